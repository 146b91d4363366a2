/* SPDX-License-Identifier: MIT */
/*
 * call_map: mmap. A mapping shows the file's bytes without a call, so nothing may be queued for a
 * file that is mapped: deferral ends, and does not come back while the mapping is there (the search
 * for evidence looks at /proc/self/maps).
 *
 * Allocators call this before any constructor has run, and inside their own start-up: until init it
 * is the raw system call, nothing else.
 */
#include <sys/mman.h>

#include "call.h"

static void *map_raw(void *addr, size_t n, int prot, int flags, int fd, off_t off)
{
    long p = rl_raw(SYS_mmap, addr, n, prot, flags, fd, off);

    if (p < 0 && p > -4096) {
        errno = (int)-p;
        return MAP_FAILED;
    }
    return (void *)p;
}

#define MAPS(name)                                                                                 \
    void *name(void *addr, size_t n, int prot, int flags, int fd, off_t off)                       \
    {                                                                                              \
        uint64_t word = state_word();                                                              \
        void *p;                                                                                   \
                                                                                                   \
        if (unlikely((word & WORD_COLD) != 0))                                                     \
            return map_raw(addr, n, prot, flags, fd, off);                                         \
        if ((flags & MAP_ANONYMOUS) != 0 || fd < 0)                                                \
            return real.name(addr, n, prot, flags, fd, off);                                       \
        TIMED_FD(ACT_map, fd);                                                                     \
        if ((flags & MAP_TYPE) != MAP_PRIVATE)                                                     \
            rl_store_32(&proc.maps, 1);                                                            \
        call_end_fd(fd, WHY_mmap);                                                                 \
        p = real.name(addr, n, prot, flags, fd, off);                                              \
        /* Turned on between the two, by somebody who could not see the mapping yet. */            \
        if (p != MAP_FAILED)                                                                       \
            call_end_fd(fd, WHY_mmap);                                                             \
        return p;                                                                                  \
    }
MAPS(mmap)
MAPS(mmap64)
