/* Stands in for libnvidia-ml.so.1: any host, told by the file that the environment variable NVML_STUB names.
 *
 * Lines of tab-separated cells (tests/native_build.py writes them):
 *   driver RELEASE | cuda NUMBER | cuda_v1 NUMBER | nvml RELEASE
 *   gpu NAME UUID BUS MAJOR MINOR TOTAL FREE ECC MODE MIG      "-": NVML_ERROR_NOT_SUPPORTED
 *   mig GPU SLOT NAME UUID GI CI TOTAL FREE
 *   fail FUNCTION CODE GPU                                     GPU "-": whichever the device
 *   hang FUNCTION
 * NVML_STUB_LOG names a file that every call is appended to. OLD_DRIVER leaves out what R400 did not have.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { ROWS = 256, CELLS = 12 };

struct row { char *cell[CELLS]; };

static struct row rows[ROWS];
static int row_count = -1;
static int started;

static void load(void) {
    if (row_count >= 0)
        return;
    row_count = 0;
    FILE *file = fopen(getenv("NVML_STUB") ? getenv("NVML_STUB") : "", "r");
    char line[4096];
    while (file && row_count < ROWS && fgets(line, sizeof line, file)) {
        char *rest = strdup(line), *cell;
        rest[strcspn(rest, "\n")] = 0;
        for (int i = 0; i < CELLS && (cell = strsep(&rest, "\t")); i++)
            rows[row_count].cell[i] = cell;
        row_count++;
    }
    if (file)
        fclose(file);
}

static struct row *find(const char *kind, int number) {
    load();
    for (int i = 0; i < row_count; i++)
        if (!strcmp(rows[i].cell[0], kind) && number-- == 0)
            return &rows[i];
    return NULL;
}

static int gpu_number(const struct row *device) {
    int number = 0;
    for (const struct row *row = rows; row < device; row++)
        number += !strcmp(row->cell[0], "gpu");
    return strcmp(device->cell[0], "gpu") ? atoi(device->cell[1]) : number;
}

/* What the script says of this call: 0, or the error to return. */
static int enter(const char *function, const struct row *device) {
    load();
    const char *path = getenv("NVML_STUB_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "%s\n", function);
        fclose(log);
    }
    for (int i = 0; i < row_count; i++) {
        char **cell = rows[i].cell;
        if (!strcmp(cell[0], "hang") && !strcmp(cell[1], function))
            for (;;)
                pause();
        if (strcmp(cell[0], "fail") || strcmp(cell[1], function))
            continue;
        if (!strcmp(cell[3], "-") || (device && gpu_number(device) == atoi(cell[3])))
            return atoi(cell[2]);
    }
    return SUCCESS;
}

static int put(const char *text, char *out, unsigned int size) {
    if (strlen(text) + 1 > size)
        return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

static int is_mig(const struct row *device) { return !strcmp(device->cell[0], "mig"); }

#define ENTER(device)                        \
    int status = enter(__func__, device);    \
    if (status || !started)                  \
        return status ? status : UNINITIALIZED

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    int status = enter(__func__, NULL);
    started += !status;
    return status;
}

int nvmlShutdown(void) {
    ENTER(NULL);
    started--;
    return SUCCESS;
}

int nvmlSystemGetNVMLVersion(char *out, unsigned int size) { /* answers before nvmlInit */
    int status = enter(__func__, NULL);
    return status ? status : put(find("nvml", 0)->cell[1], out, size);
}

int nvmlSystemGetDriverVersion(char *out, unsigned int size) {
    ENTER(NULL);
    return put(find("driver", 0)->cell[1], out, size);
}

int nvmlSystemGetCudaDriverVersion(int *out) { /* the made-up answer that must not be believed */
    ENTER(NULL);
    struct row *row = find("cuda_v1", 0);
    *out = row ? atoi(row->cell[1]) : 99990;
    return SUCCESS;
}

#ifndef OLD_DRIVER
int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    ENTER(NULL);
    *out = atoi(find("cuda", 0)->cell[1]);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(struct row *device, unsigned int *current, unsigned int *pending) {
    ENTER(device);
    if (is_mig(device) || !strcmp(device->cell[10], "-"))
        return NOT_SUPPORTED;
    *current = *pending = atoi(device->cell[10]);
    return SUCCESS;
}
#endif

int nvmlDeviceGetCount_v2(unsigned int *count) {
    ENTER(NULL);
    for (*count = 0; find("gpu", *count); ++*count)
        ;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct row **out) {
    struct row *device = find("gpu", index);
    ENTER(device);
    *out = device;
    return device ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetName(struct row *device, char *out, unsigned int size) {
    ENTER(device);
    return put(device->cell[is_mig(device) ? 3 : 1], out, size);
}

int nvmlDeviceGetUUID(struct row *device, char *out, unsigned int size) {
    ENTER(device);
    return put(device->cell[is_mig(device) ? 4 : 2], out, size);
}

struct pci {
    char legacy[16];
    unsigned int domain, bus, device, id, subsystem;
    char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(struct row *device, struct pci *out) {
    ENTER(device);
    memset(out, 0, sizeof *out);
    return put(device->cell[3], out->bus_id, sizeof out->bus_id);
}

int nvmlDeviceGetCudaComputeCapability(struct row *device, int *major, int *minor) {
    ENTER(device);
    if (is_mig(device))
        return NOT_SUPPORTED;
    *major = atoi(device->cell[4]);
    *minor = atoi(device->cell[5]);
    return SUCCESS;
}

struct memory { unsigned long long total, free, used; };

int nvmlDeviceGetMemoryInfo(struct row *device, struct memory *out) {
    ENTER(device);
    int at = is_mig(device) ? 7 : 6;
    out->total = strtoull(device->cell[at], NULL, 10);
    out->free = strtoull(device->cell[at + 1], NULL, 10);
    out->used = out->total - out->free;
    return SUCCESS;
}

int nvmlDeviceGetEccMode(struct row *device, int *current, int *pending) {
    ENTER(device);
    if (is_mig(device) || !strcmp(device->cell[8], "-"))
        return NOT_SUPPORTED;
    *current = *pending = atoi(device->cell[8]);
    return SUCCESS;
}

int nvmlDeviceGetComputeMode(struct row *device, int *mode) {
    ENTER(device);
    if (is_mig(device) || !strcmp(device->cell[9], "-"))
        return NOT_SUPPORTED;
    *mode = atoi(device->cell[9]);
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(struct row *device, unsigned int *count) {
    ENTER(device);
    *count = 7;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct row *device, unsigned int index, struct row **out) {
    ENTER(device);
    struct row *mig;
    for (int i = 0; (mig = find("mig", i)); i++)
        if (atoi(mig->cell[1]) == gpu_number(device) && atoi(mig->cell[2]) == (int)index) {
            *out = mig;
            return SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetGpuInstanceId(struct row *device, unsigned int *id) {
    ENTER(device);
    *id = atoi(device->cell[5]);
    return is_mig(device) ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetComputeInstanceId(struct row *device, unsigned int *id) {
    ENTER(device);
    *id = atoi(device->cell[6]);
    return is_mig(device) ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

const char *nvmlErrorString(int code) {
    (void)code;
    return "an error of the stub";
}
