/* SPDX-License-Identifier: MIT */
/*
 * slowstat: a library whose fstat, fstatat and statx take SLOWSTAT_MS longer to return than to
 * look, as when the thread loses the processor there. Preloaded behind the shim, it is what the
 * shim calls.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void rest(void)
{
    const char *ms = getenv("SLOWSTAT_MS");
    long n = ms != NULL ? atol(ms) : 0;
    struct timespec t = {n / 1000, n % 1000 * 1000000};

    nanosleep(&t, NULL);
}

int fstatat(int dirfd, const char *path, struct stat *st, int flags)
{
    int r = NEXT(fstatat)(dirfd, path, st, flags);

    rest();
    return r;
}

int fstat(int fd, struct stat *st)
{
    return fstatat(fd, "", st, AT_EMPTY_PATH);
}

int statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *stx)
{
    int r = NEXT(statx)(dirfd, path, flags, mask, stx);

    rest();
    return r;
}
