/* cuDNN's libraries as far as loading, versions, handles and a convolution: the main one with -DMAIN, else a member.
 *
 * Like the real main library, this one opens the others by name when it is first asked, the full name before the short
 * one, with a DT_RUNPATH of $ORIGIN. -DVERSION is 92000 for 9.20.0 and 8907 for 8.9.7; -DNAMES a text of the names
 * that the file carries; -DCRASH and -DHANG happen in a constructor. -DFIXED_VERSION: the main library answers for
 * itself. In the environment: CUDNN_STUB_CREATE is what cudnnCreate gives. CUDNN_STUB_FAIL holds what calls give, as
 * in cuda_stub.c. CUDNN_STUB_REASON is the reason that a log then tells; CUDNN_STUB_WRONG the type (float16), or
 * "all", whose results have one wrong value, and with CUDNN_STUB_NAN=1 it is no number. With CUDNN_STUB_BIT=1 one bit
 * of each result is another.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((used)) static const char names[] = NAMES;

#ifdef CRASH
__attribute__((constructor)) static void crash(void) { raise(SIGSEGV); }
#endif
#ifdef HANG
__attribute__((constructor)) static void hang(void) {
    for (;;) pause();
}
#endif

#ifdef MAIN
enum { EIGHT = VERSION < 10000 };

static void *open_member(const char *name) {
    char full[128], brief[128];
    int major = EIGHT ? VERSION / 1000 : VERSION / 10000;
    int minor = VERSION / 100 % (EIGHT ? 10 : 100), patch = VERSION % 100;
    snprintf(full, sizeof full, "libcudnn_%s.so.%d.%d.%d", name, major, minor, patch);
    snprintf(brief, sizeof brief, "libcudnn_%s.so.%d", name, major);
    void *library = dlopen(full, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        library = dlopen(brief, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        fprintf(stderr, "Unable to load any of {%s, %s}.\n", full, brief);
    return library;
}

static size_t version_of(const char *name) {
    void *library = open_member(name);
    size_t (*version)(void) = library ? (size_t(*)(void))dlsym(library, "stub_version") : NULL;
    return version ? version() : 0;
}

const char *cudnnGetErrorString(int status) {
    static const struct { int code; const char *name; } texts[] = {
        {1, "CUDNN_STATUS_NOT_INITIALIZED"}, {2, "CUDNN_STATUS_ALLOC_FAILED"}, {4, "CUDNN_STATUS_INTERNAL_ERROR"},
        {8, "CUDNN_STATUS_EXECUTION_FAILED"}, {1001, "CUDNN_STATUS_NOT_INITIALIZED"},
        {1002, "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"}, {1008, "CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED"},
        {3007, "CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH"}, {3009, "CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE"},
        {4000, "CUDNN_STATUS_INTERNAL_ERROR"}, {4004, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"},
        {5000, "CUDNN_STATUS_EXECUTION_FAILED"}, {5001, "CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER"}};
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == status)
            return texts[i].name;
    return "CUDNN_STATUS_OTHER";
}

static const char *reason(void) {
    const char *text = getenv("CUDNN_STUB_REASON");
    return text ? text : "cudaGetDeviceCount(&count) != cudaSuccess";
}

/* The log as 8.9 and 9 write it: only with the variables of their own family. */
static int say(const char *function, int status) {
    const char *level = getenv(EIGHT ? "CUDNN_LOGERR_DBG" : "CUDNN_LOGLEVEL_DBG"), *path = getenv("CUDNN_LOGDEST_DBG");
    FILE *log = status && level && atoi(level) > 0 && path ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "\nE! CuDNN (v%d%s) function %s() called:\n", VERSION, EIGHT ? "" : " 48", function);
        fprintf(log, "e!     Info: Traceback contains 2 message(s)\n");
        fprintf(log, "e!         Error: %s; Reason: %s\n", cudnnGetErrorString(status), reason());
        fprintf(log, "e!         Error: %s; Reason: ptrDesc->finalize()\n", cudnnGetErrorString(status));
        fprintf(log, "e! Time: 2026-11-21T10:12:10.539843 (0d+0h+0m+0s since start)\n");
        fprintf(log, "e! Process=1; Thread=1; GPU=NULL; Handle=NULL; StreamId=NULL.\n\n");
        fclose(log);
    }
    return status;
}

static int planted(const char *function) {
    const char *text = getenv("CUDNN_STUB_FAIL");
    size_t length = strlen(function);
    while (text && *text) {
        if (!strncmp(text, function, length) && text[length] == '=') {
            int code = atoi(text + length + 1);
            while (code == 9001)
                pause();
            if (code == 9002)
                raise(SIGSEGV);
            if (code == 9003) {
                fprintf(stderr, "terminate called after throwing an instance of 'stub'\n");
                abort();
            }
            return say(function, code);
        }
        text = strchr(text, ',');
        text += text != NULL;
    }
    return 0;
}

#define ENTER                           \
    int status = planted(__func__);     \
    if (status)                         \
        return status

/* As the real ones: 1002 is CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH, 3009 was seen where a sub-library is missing. */
static int check(const char *function, const char *name) {
    size_t version = version_of(name);
    return say(function, version == VERSION ? 0 : version ? EIGHT ? 14 : 1002 : EIGHT ? 11 : 3009);
}

size_t cudnnGetVersion(void) {
#ifdef FIXED_VERSION
    return VERSION;
#else
    size_t version = version_of(EIGHT ? "ops_infer" : "graph");
    return version ? version : VERSION;
#endif
}
size_t cudnnGetCudartVersion(void) { return 13000; }
size_t cudnnGetMaxDeviceVersion(void) {
    const char *text = getenv("CUDNN_STUB_MAX_DEVICE");
    return text ? atoi(text) : 1210;
}
#if VERSION < 10000
int cudnnOpsInferVersionCheck(void) { return check(__func__, "ops_infer"); }
int cudnnCnnInferVersionCheck(void) { return check(__func__, "cnn_infer"); }
#else
int cudnnGraphVersionCheck(void) { return check(__func__, "graph"); }
int cudnnOpsVersionCheck(void) { return check(__func__, "ops"); }
int cudnnCnnVersionCheck(void) { return check(__func__, "cnn"); }
int cudnnAdvVersionCheck(void) { return check(__func__, "adv"); }
void cudnnGetLastErrorString(char *text, size_t size) { snprintf(text, size, "%s", reason()); }
#endif

struct descriptor { int type, shape[4], math; };

int cudnnCreate(void **handle) {
    ENTER;
    const char *text = getenv("CUDNN_STUB_CREATE");
    *handle = malloc(1);
    return say(__func__, text ? atoi(text) : 0);
}
int cudnnSetStream(void *handle, void *stream) {
    ENTER;
    return handle && stream ? 0 : 2000;
}

static int make(struct descriptor **out) {
    *out = calloc(1, sizeof **out);
    return 0;
}
static int set(struct descriptor *one, int type, int a, int b, int c, int d) {
    *one = (struct descriptor){type, {a, b, c, d}, 0};
    return a > 0 && b > 0 && c > 0 && d > 0 ? 0 : 2000;
}

int cudnnCreateTensorDescriptor(struct descriptor **out) { return make(out); }
int cudnnCreateFilterDescriptor(struct descriptor **out) { return make(out); }
int cudnnCreateConvolutionDescriptor(struct descriptor **out) { return make(out); }
int cudnnSetTensor4dDescriptor(struct descriptor *one, int format, int type, int n, int c, int h, int w) {
    ENTER;
    return format ? 3000 : set(one, type, n, c, h, w);
}
int cudnnSetFilter4dDescriptor(struct descriptor *one, int type, int format, int k, int c, int h, int w) {
    ENTER;
    return format ? 3000 : set(one, type, k, c, h, w);
}
int cudnnSetConvolution2dDescriptor(
    struct descriptor *one, int ph, int pw, int u, int v, int dh, int dw, int mode, int type) {
    ENTER;
    return u == 1 && v == 1 && dh == 1 && dw == 1 && mode == 1 ? set(one, type, ph, pw, 1, 1) : 3000;
}
int cudnnSetConvolutionMathType(struct descriptor *one, int math) {
    ENTER;
    one->math = math;
    return 0;
}
int cudnnGetConvolution2dForwardOutputDim(
    struct descriptor *how, struct descriptor *x, struct descriptor *w, int *n, int *k, int *h, int *v) {
    ENTER;
    *n = x->shape[0], *k = w->shape[0];
    *h = x->shape[2] + 2 * how->shape[0] - w->shape[2] + 1;
    *v = x->shape[3] + 2 * how->shape[1] - w->shape[3] + 1;
    return x->shape[1] == w->shape[1] ? 0 : 2000;
}

struct perf {
    int algo, status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
};

int cudnnGetConvolutionForwardAlgorithm_v7(
    void *handle, struct descriptor *x, struct descriptor *w, struct descriptor *how, struct descriptor *y,
    int requested, int *returned, struct perf *out) {
    ENTER;
    const char *engines[] = {"heuristic", "engines_precompiled"};
    for (int i = 0; !EIGHT && i < 2; i++)
        if (!open_member(engines[i]))
            return say(__func__, 1008);
    if (EIGHT && !open_member("cnn_infer"))
        return say(__func__, 11);
    out[0] = (struct perf){6, 0, 1.0f, 100, 1, how->math, {0}}; /* Winograd: not what is wanted */
    out[1] = (struct perf){1, 0, 2.0f, 256, 1, how->math, {0}};
    out[2] = (struct perf){4, 3000, -1.0f, 0, 1, how->math, {0}};
    *returned = handle && y && requested >= 3 ? 3 : 0;
    return 0;
}

static float from_half(uint16_t bits) {
    _Float16 value;
    memcpy(&value, &bits, 2);
    return value;
}
static uint16_t to_half(float value) {
    _Float16 small = value;
    uint16_t bits;
    memcpy(&bits, &small, 2);
    return bits;
}
static float from_brain(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}
static uint16_t to_brain(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static float load(const void *data, int at, int type) {
    const uint16_t *small = data;
    return type == 0 ? ((const float *)data)[at] : type == 2 ? from_half(small[at]) : from_brain(small[at]);
}
static void store(void *data, int at, int type, float value) {
    if (type == 0)
        ((float *)data)[at] = value;
    else
        ((uint16_t *)data)[at] = type == 2 ? to_half(value) : to_brain(value);
}

int cudnnConvolutionForward(
    void *handle, const float *alpha, struct descriptor *xd, const void *x, struct descriptor *wd, const void *w,
    struct descriptor *how, int algo, void *space, size_t size, const float *beta, struct descriptor *yd, void *y) {
    ENTER;
    int c = xd->shape[1], height = xd->shape[2], width = xd->shape[3], k = wd->shape[0], side = wd->shape[2];
    int type = xd->type, at = 0;
    const char *names[] = {"float32", "", "float16", "", "", "", "", "", "", "bfloat16"};
    const char *wrong = getenv("CUDNN_STUB_WRONG");
    if (!handle || *alpha != 1 || *beta != 0 || algo != 1 || !space || size < 256 || yd->type != type)
        return say(__func__, 2000);
    for (int n = 0; n < xd->shape[0]; n++)
        for (int f = 0; f < k; f++)
            for (int i = 0; i < height; i++)
                for (int j = 0; j < width; j++) {
                    float sum = 0;
                    for (int d = 0; d < c; d++)
                        for (int r = 0; r < side; r++)
                            for (int s = 0; s < side; s++) {
                                int h = i + r - how->shape[0], v = j + s - how->shape[1];
                                if (h >= 0 && h < height && v >= 0 && v < width)
                                    sum += load(x, ((n * c + d) * height + h) * width + v, type) *
                                           load(w, ((f * c + d) * side + r) * side + s, type);
                            }
                    store(y, at++, type, sum);
                }
    if (wrong && (!strcmp(wrong, "all") || !strcmp(wrong, names[type])))
        store(y, at / 2, type, getenv("CUDNN_STUB_NAN") ? 0.0f / 0.0f : 1000);
    if (getenv("CUDNN_STUB_BIT"))
        *(char *)y ^= 1; /* the lowest bit of the first value */
    return 0;
}
#else
size_t stub_version(void) { return VERSION; }
#endif
