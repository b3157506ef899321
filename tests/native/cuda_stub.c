/* libcuda.so.1 as far as a primary context: CUDA_STUB_DEVICES devices; CUDA_STUB_BROKEN is one that gives no context. */
#include <stdlib.h>

static int number(const char *name, int other) {
    const char *text = getenv(name);
    return text ? atoi(text) : other;
}

int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal < number("CUDA_STUB_DEVICES", 1) ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &number;
    return device == number("CUDA_STUB_BROKEN", -1) ? 46 : 0;
}
int cuCtxSetCurrent(void *context) { return context ? 0 : 201; }
int cuGetErrorName(int error, const char **name) {
    *name = error == 46 ? "CUDA_ERROR_DEVICE_UNAVAILABLE" : error == 101 ? "CUDA_ERROR_INVALID_DEVICE" : "CUDA_ERROR";
    return 0;
}
