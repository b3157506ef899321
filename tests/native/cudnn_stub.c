/* cuDNN's libraries as far as loading, versions and handles: the main one with -DMAIN, else a sub-library.
 *
 * Like the real main library, this one opens the others by name when it is first asked, the full name before the short
 * one, with a DT_RUNPATH of $ORIGIN. -DVERSION is 92000 for 9.20.0; -DNAMES a text of the names that the file carries;
 * -DCRASH and -DHANG happen in a constructor. CUDNN_STUB_CREATE in the environment is what cudnnCreate gives.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
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
static void *open_member(const char *name) {
    char full[128], brief[128];
    snprintf(full, sizeof full, "libcudnn_%s.so.%d.%d.%d", name, VERSION / 10000, VERSION / 100 % 100, VERSION % 100);
    snprintf(brief, sizeof brief, "libcudnn_%s.so.%d", name, VERSION / 10000);
    void *library = dlopen(full, RTLD_NOW | RTLD_GLOBAL);
    return library ? library : dlopen(brief, RTLD_NOW | RTLD_GLOBAL);
}

static size_t version_of(const char *name) {
    void *library = open_member(name);
    size_t (*version)(void) = library ? (size_t(*)(void))dlsym(library, "stub_version") : NULL;
    return version ? version() : 0;
}

/* As the real ones: 1002 is CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH, 3009 was seen where a sub-library is missing. */
static int check(const char *name) {
    size_t version = version_of(name);
    return version == VERSION ? 0 : version ? 1002 : 3009;
}

size_t cudnnGetVersion(void) {
    size_t version = version_of("graph");
    return version ? version : VERSION;
}
size_t cudnnGetCudartVersion(void) { return 13000; }
int cudnnGraphVersionCheck(void) { return check("graph"); }
int cudnnOpsVersionCheck(void) { return check("ops"); }
int cudnnCnnVersionCheck(void) { return check("cnn"); }
int cudnnAdvVersionCheck(void) { return check("adv"); }

int cudnnCreate(void **handle) {
    const char *text = getenv("CUDNN_STUB_CREATE");
    *handle = &open_member;
    return text ? atoi(text) : 0;
}
int cudnnDestroy(void *handle) { return handle == &open_member ? 0 : 2000; }
const char *cudnnGetErrorString(int status) {
    return status == 1001 ? "CUDNN_STATUS_NOT_INITIALIZED" : "CUDNN_STATUS_OTHER";
}
void cudnnGetLastErrorString(char *text, size_t size) {
    snprintf(text, size, "cudaGetDeviceCount(&count) != cudaSuccess");
}
#else
size_t stub_version(void) { return VERSION; }
#endif
