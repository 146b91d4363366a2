/* SPDX-License-Identifier: MIT */
/*
 * slowsync: a library whose fsync and fdatasync take a while, count themselves and fail on demand.
 * Preloaded behind the shim, it is what the shim calls; alone, what the program calls.
 */
#include <errno.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "slowsync.h"

struct slowsync slowsync = {.ms = 20};

static int slow_sync(int fd, int (*raw)(int))
{
    struct timespec t = {.tv_nsec = slowsync.ms * 1000000L};
    int now, error, fails = 1;

    now = atomic_fetch_add(&slowsync.running, 1) + 1;
    if (now > slowsync.most)
        slowsync.most = now;
    atomic_fetch_add(&slowsync.calls, 1);
    nanosleep(&t, NULL); /* a cancellation point, as fsync is one */
    atomic_fetch_sub(&slowsync.running, 1);
    error = slowsync.error;
    if (error != 0 && atomic_compare_exchange_strong(&slowsync.fail, &fails, 0)) {
        errno = error;
        return -1;
    }
    return raw(fd);
}

static int raw_sync(int fd)
{
    return lseek(fd, 0, SEEK_CUR) < 0 ? -1 : 0;
}

int fsync(int fd)
{
    atomic_fetch_add(&slowsync.full, 1);
    return slow_sync(fd, raw_sync);
}

int fdatasync(int fd)
{
    return slow_sync(fd, raw_sync);
}
