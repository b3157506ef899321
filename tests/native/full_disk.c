/* A full disk, or a quota: from the Nth write below a folder on, everything that needs space fails.

   FULL_AT is N, FULL_ERRNO the error, FULL_BELOW the folder. Preload it into a program. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_int count;

static int below(const char *path) {
    const char *folder = getenv("FULL_BELOW");
    char full[PATH_MAX];
    if (folder == NULL)
        return 0;
    if (path[0] != '/') {
        char here[PATH_MAX];
        if (getcwd(here, sizeof here) == NULL)
            return 0;
        if (snprintf(full, sizeof full, "%s/%s", here, path) >= (int)sizeof full)
            return 0;
        path = full;
    }
    return strncmp(path, folder, strlen(folder)) == 0;
}

static int fails(void) {
    const char *at = getenv("FULL_AT"), *number = getenv("FULL_ERRNO");
    if (at == NULL || number == NULL || atomic_fetch_add(&count, 1) + 1 < atoi(at))
        return 0;
    errno = atoi(number);
    return 1;
}

static int file_fails(int file) {
    char link[64], path[PATH_MAX];
    struct stat status;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return below(path) && fails();
}

/* A rename onto a name that exists needs no space. */
static int needs_entry(const char *path) { return below(path) && access(path, F_OK) != 0; }

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *data, size_t size) {
    return file_fails(file) ? -1 : NEXT(write)(file, data, size);
}
ssize_t writev(int file, const struct iovec *parts, int parts_count) {
    return file_fails(file) ? -1 : NEXT(writev)(file, parts, parts_count);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset) {
    return file_fails(file) ? -1 : NEXT(pwrite64)(file, data, size, offset);
}
ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
    return file_fails(to) ? -1 : NEXT(sendfile)(to, from, offset, size);
}
ssize_t copy_file_range(int from, off64_t *start, int to, off64_t *place, size_t size,
                        unsigned flags) {
    return file_fails(to) ? -1 : NEXT(copy_file_range)(from, start, to, place, size, flags);
}
int fsync(int file) { return file_fails(file) ? -1 : NEXT(fsync)(file); }
int rename(const char *old, const char *new) {
    return needs_entry(new) && fails() ? -1 : NEXT(rename)(old, new);
}
int renameat(int from, const char *old, int to, const char *new) {
    return needs_entry(new) && fails() ? -1 : NEXT(renameat)(from, old, to, new);
}
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    return needs_entry(new) && fails() ? -1 : NEXT(renameat2)(from, old, to, new, flags);
}
int link(const char *old, const char *new) {
    return below(new) && fails() ? -1 : NEXT(link)(old, new);
}
int mkdir(const char *path, mode_t mode) {
    return below(path) && fails() ? -1 : NEXT(mkdir)(path, mode);
}
int symlink(const char *to, const char *path) {
    return below(path) && fails() ? -1 : NEXT(symlink)(to, path);
}

#define OPEN(name)                                                                       \
    int name(const char *path, int flags, ...) {                                         \
        va_list rest;                                                                    \
        va_start(rest, flags);                                                           \
        mode_t mode = va_arg(rest, mode_t);                                              \
        va_end(rest);                                                                    \
        if ((flags & O_CREAT) && access(path, F_OK) != 0 && below(path) && fails())      \
            return -1;                                                                   \
        return NEXT(name)(path, flags, mode);                                            \
    }
OPEN(open)
OPEN(open64)
