/* SPDX-License-Identifier: MIT */
/*
 * call_sync: calls by which data is handed over, to the disk or to another process: what is queued
 * is part of it, and goes first.
 */
#include "call.h"
#include "flush.h"
#include "window.h"

#define SYNCS(name, act, params, result)                                                           \
    int name params                                                                                \
    {                                                                                              \
        struct window_sync window = {.fs = NULL};                                                  \
        int r;                                                                                     \
        TIMED_FD(act, fd);                                                                         \
                                                                                                   \
        call_seen(STAT_calls_sync);                                                                \
        SETTLE_FD(fd, WHY_fsync);                                                                  \
        if (window_wanted(state_word()))                                                           \
            window_syncs(fd, &window);                                                             \
        r = result;                                                                                \
        return unlikely(window.fs != NULL) ? window_synced(fd, &window, r) : r;                    \
    }
SYNCS(fsync, ACT_fsync, (int fd), flush_file(fd, FLUSH_ALL))
SYNCS(fdatasync, ACT_fdatasync, (int fd), flush_file(fd, FLUSH_DATA))

/* A part of a file: what is dirty elsewhere stays so. Its waiting flags tell errors as fsync does.
 */
int sync_file_range(int fd, off_t off, off_t n, unsigned flags)
{
    struct window_sync window = {.fs = NULL};
    int r;
    TIMED_FD(ACT_sync_range, fd);

    call_seen(STAT_calls_sync);
    SETTLE_FD(fd, WHY_fsync);
    if (window_wanted(state_word()) &&
        (flags & (SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER)) != 0)
        window_syncs(fd, &window);
    r = real.sync_file_range(fd, off, n, flags);
    window.bytes = 0;
    return unlikely(window.fs != NULL) ? window_synced(fd, &window, r) : r;
}

/* More than one file: whatever there is. Not shared: an error of the file system is kept for every
 * open file description, and syncfs itself is the only call that tells it. */
int syncfs(int fd)
{
    TIMED_AS(ACT_sync_all, -1, AT_FDCWD, NULL, 0);
    call_seen(STAT_calls_sync);
    SETTLE_ALL(WHY_syncfs);
    return real.syncfs(fd);
}

void sync(void)
{
    TIMED_AS(ACT_sync_all, -1, AT_FDCWD, NULL, 0);
    call_seen(STAT_calls_sync);
    SETTLE_ALL(WHY_syncfs);
    real.sync();
}

int msync(void *addr, size_t n, int flags)
{
    TIMED_AS(ACT_msync, -1, AT_FDCWD, NULL, 0);
    call_seen(STAT_calls_sync);
    SETTLE_ALL(WHY_msync);
    return real.msync(addr, n, flags);
}

/* Locks: letting one go is how processes hand data over; taking or converting one may let another
 * go. Settling for all of them costs nothing where nothing is queued, and needs no look into the
 * program's structures. fcntl's are in call_fd.c. */
#define LOCKS(name, params, args)                                                                  \
    int name params                                                                                \
    {                                                                                              \
        TIMED_FD(ACT_lock, fd);                                                                    \
        SETTLE_FD(fd, WHY_unlock);                                                                 \
        return real.name args;                                                                     \
    }
LOCKS(flock, (int fd, int operation), (fd, operation))
LOCKS(lockf, (int fd, int command, off_t len), (fd, command, len))
LOCKS(lockf64, (int fd, int command, off_t len), (fd, command, len))

/* Advice about the page cache, which a queued punch does not disturb: a page it drops or fetches
 * reads the same under the overlay. */
#define ADVISES(ret, name, params, args)                                                           \
    ret name params                                                                                \
    {                                                                                              \
        call_enter();                                                                              \
        return real.name args;                                                                     \
    }
ADVISES(int, posix_fadvise, (int fd, off_t off, off_t n, int advice), (fd, off, n, advice))
ADVISES(int, posix_fadvise64, (int fd, off_t off, off_t n, int advice), (fd, off, n, advice))
ADVISES(ssize_t, readahead, (int fd, off_t off, size_t n), (fd, off, n))
