/* SPDX-License-Identifier: MIT */
/* zeros: see zeros.h. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include "../lockmgr/rawcall.h"
#include "zeros.h"

long zeros_write(int fd, uint64_t start, uint64_t end)
{
    static char zeros[65536] __attribute__((aligned(4096)));
    uint64_t at = start;
    struct stat st;
    long n;

    if (rl_raw(SYS_fallocate, fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, start, end - start) ==
        0)
        return 0;
    if ((n = rl_raw(SYS_fstat, fd, &st)) != 0)
        return n;
    if (end > (uint64_t)st.st_size)
        end = (uint64_t)st.st_size;
    while (at < end) {
        n = rl_raw(SYS_pwrite64, fd, zeros, end - at < sizeof zeros ? end - at : sizeof zeros, at);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? n : -EIO;
        at += (uint64_t)n;
    }
    return 0;
}
