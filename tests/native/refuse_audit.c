/* A loader audit module (rtld-audit(7)) that hides this machine's own driver libraries from a test's process, so
 * that a host without a driver can be played on one that has it. Copies below the folders in REFUSE_EXCEPT
 * (separated by colons) may be loaded.
 */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>
#include <string.h>

unsigned int la_version(unsigned int version) { return version < LAV_CURRENT ? version : LAV_CURRENT; }

char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag) {
    (void)cookie;
    (void)flag;
    const char *base = strrchr(name, '/');
    if (!base || (strncmp(base, "/libnvidia-ml.so", 16) && strncmp(base, "/libcuda.so", 11)))
        return (char *)name;
    const char *allowed = getenv("REFUSE_EXCEPT");
    while (allowed && *allowed) {
        size_t length = strcspn(allowed, ":");
        if (length && !strncmp(name, allowed, length))
            return (char *)name;
        allowed += length + (allowed[length] == ':');
    }
    return NULL;
}
