/* libcuda.so.1 as far as contexts, memory and streams; a device's memory is the host's.
 *
 * CUDA_STUB_DEVICES devices (1), of compute capability CUDA_STUB_CC (90), mode CUDA_STUB_MODE (0) and with
 * CUDA_STUB_FREE free bytes. CUDA_STUB_BROKEN is a device that gives no context. CUDA_STUB_FAIL holds what calls give:
 * "cuInit=802,cuMemAlloc_v2@1=2", where @1 is the device; the results 9001, 9002 and 9003 are a hang, a crash and an
 * abort. CUDA_VISIBLE_DEVICES is read as far as one number.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALL = 1 << 20 };
static int here = -1; /* the device of the current context */

static int number(const char *name, int other) {
    const char *text = getenv(name);
    return text ? atoi(text) : other;
}

static int planted(const char *function, int device) {
    const char *text = getenv("CUDA_STUB_FAIL");
    char plain[96], special[96];
    snprintf(plain, sizeof plain, "%s=", function);
    snprintf(special, sizeof special, "%s@%d=", function, device);
    while (text && *text) {
        const char *value = NULL;
        if (!strncmp(text, plain, strlen(plain)))
            value = text + strlen(plain);
        if (!strncmp(text, special, strlen(special)))
            value = text + strlen(special);
        int code = value ? atoi(value) : 0;
        while (code == 9001)
            pause();
        if (code == 9002)
            raise(SIGSEGV);
        if (code == 9003) {
            fprintf(stderr, "terminate called after throwing an instance of 'stub'\n");
            abort();
        }
        if (value)
            return code;
        text = strchr(text, ',');
        text += text != NULL;
    }
    return 0;
}

static int count(void) {
    int devices = number("CUDA_STUB_DEVICES", 1);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!visible)
        return devices;
    return *visible >= '0' && *visible <= '9' && atoi(visible) < devices;
}

#define ENTER(device)                                \
    int status = planted(__func__, device);          \
    if (status)                                      \
        return status

int cuInit(unsigned flags) {
    ENTER(-1);
    return flags ? 1 : count() ? 0 : 100;
}
int cuDriverGetVersion(int *version) {
    ENTER(-1);
    *version = 13000;
    return 0;
}
int cuDeviceGetCount(int *out) {
    ENTER(-1);
    *out = count();
    return 0;
}
int cuDeviceGet(int *device, int ordinal) {
    ENTER(ordinal);
    *device = ordinal;
    return ordinal < count() ? 0 : 101;
}
int cuDeviceGetName(char *name, int size, int device) {
    ENTER(device);
    snprintf(name, size, "Stand-in %d", device);
    return 0;
}
int cuDeviceGetAttribute(int *value, int which, int device) {
    ENTER(device);
    int capability = number("CUDA_STUB_CC", 90);
    *value = which == 75 ? capability / 10 : which == 76 ? capability % 10 : number("CUDA_STUB_MODE", 0);
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    ENTER(device);
    *context = (char *)&here + device;
    return device == number("CUDA_STUB_BROKEN", -1) ? 46 : 0;
}
int cuCtxSetCurrent(void *context) {
    if (!context)
        return 201;
    here = (int)((char *)context - (char *)&here);
    ENTER(here);
    return 0;
}
int cuCtxSynchronize(void) {
    ENTER(here);
    return here < 0 ? 201 : 0;
}
int cuMemGetInfo_v2(size_t *available, size_t *total) {
    ENTER(here);
    const char *text = getenv("CUDA_STUB_FREE");
    *total = 80UL << 30;
    *available = text ? strtoull(text, NULL, 10) : *total;
    return 0;
}
int cuMemAlloc_v2(unsigned long long *address, size_t size) {
    ENTER(here);
    if (!size)
        return 1;
    *address = (unsigned long long)malloc(size);
    return *address ? 0 : 2;
}
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) {
    ENTER(here);
    memcpy((void *)to, from, size);
    return 0;
}
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) {
    ENTER(here);
    memcpy(to, (void *)from, size);
    return 0;
}
int cuMemsetD8_v2(unsigned long long address, unsigned char byte, size_t size) {
    ENTER(here);
    memset((void *)address, byte, size);
    return 0;
}
int cuStreamCreate(void **stream, unsigned flags) {
    ENTER(here);
    *stream = malloc(1);
    return flags == 1 ? 0 : 1;
}
int cuStreamSynchronize(void *stream) {
    ENTER(here);
    return 0;
}

int cuGetErrorName(int error, const char **name) {
    static const struct { int code; const char *name; } names[] = {
        {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {34, "CUDA_ERROR_STUB_LIBRARY"}, {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
        {100, "CUDA_ERROR_NO_DEVICE"}, {101, "CUDA_ERROR_INVALID_DEVICE"}, {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
        {304, "CUDA_ERROR_OPERATING_SYSTEM"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {719, "CUDA_ERROR_LAUNCH_FAILED"},
        {802, "CUDA_ERROR_SYSTEM_NOT_READY"}, {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
        {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"}, {805, "CUDA_ERROR_MPS_CONNECTION_FAILED"},
        {807, "CUDA_ERROR_MPS_SERVER_NOT_READY"}, {999, "CUDA_ERROR_UNKNOWN"}};
    *name = "CUDA_ERROR";
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == error)
            *name = names[i].name;
    return 0;
}

/* What the engines of a real cuDNN 9 link against and no test calls: CUDA_ERROR_NOT_SUPPORTED. */
#define LINKED(name) int name(void) { return 801; }
LINKED(cuGetErrorString)
LINKED(cuModuleGetFunction)
LINKED(cuModuleLoadData)
LINKED(cuModuleUnload)
LINKED(cuTensorMapEncodeIm2col)
LINKED(cuTensorMapEncodeTiled)
