/* SPDX-License-Identifier: MIT */
/* readable: see readable.h. */
#include <errno.h>
#include <limits.h>
#include <stdint.h>

#include "readable.h"
#include "state.h"

#define PAGE_BYTES                                                                                 \
    ((uintptr_t)4096) /* the smallest there is; larger ones are asked about twice                  \
                       */
#define HOW_UNKNOWN (-1)

/* The kernel copies the set of signals in before it looks at what is to be done with it, so an
 * unknown operation tells EFAULT from EINVAL and changes nothing. `p` is aligned to 8. */
static bool kernel_reads(uintptr_t p)
{
    return rl_raw(SYS_rt_sigprocmask, HOW_UNKNOWN, p, NULL, sizeof(uint64_t)) != -EFAULT;
}

bool readable(const void *p, size_t bytes)
{
    uintptr_t at = (uintptr_t)p, end = at + bytes;
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);

    if (bytes == 0)
        return true;
    if (at < PAGE_BYTES || end < at)
        return false;
    if (at >= here && end <= (here | (PAGE_BYTES - 1)) + 1)
        return true;
    /* After a seccomp filter we make no call of our own; then nobody acts on the answer either. */
    if (rl_load_32(&proc.sandboxed) != 0)
        return false;
    for (at &= ~(sizeof(uint64_t) - 1); at < end; at = (at | (PAGE_BYTES - 1)) + 1)
        if (!kernel_reads(at))
            return false;
    return true;
}

bool readable_vector(const struct iovec *iov, int count)
{
    if (count <= 0 || count > IOV_MAX || !readable(iov, (size_t)count * sizeof *iov))
        return false;
    for (int i = 0; i < count; i++)
        if (iov[i].iov_len > SSIZE_MAX)
            return false;
    return true;
}
