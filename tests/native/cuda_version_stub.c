/* libcuda.so.1 as far as cuDriverGetVersion: the number in the environment variable CUDA_VERSION_STUB. */
#include <stdlib.h>

int cuDriverGetVersion(int *version) {
    const char *text = getenv("CUDA_VERSION_STUB");
    *version = text ? atoi(text) : 0;
    return text ? 0 : 100;
}
