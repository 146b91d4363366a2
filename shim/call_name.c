/* SPDX-License-Identifier: MIT */
/*
 * call_name: calls that make and remove names. They happen at once and in order; what is queued
 * belongs to the inode, whatever it is called. The space of a big file comes later (evict.h).
 */
#include "call.h"

#define NAMES(name, params, args)                                                                  \
    FREQUENT int name params                                                                       \
    {                                                                                              \
        call_seen(STAT_calls_name);                                                                \
        return real.name args;                                                                     \
    }
NAMES(shm_unlink, (const char *name), (name))

/* A directory's space is asked for next, by who removes it: what was in it is freed first. */
int rmdir(const char *path)
{
    call_seen(STAT_calls_name);
    if (evict_held())
        settle_all(WHY_statfs);
    return real.rmdir(path);
}

/* (dirfd, path) loses its file, if `when` holds. */
#define TAKES(name, params, args, when, dirfd, path)                                               \
    int name params                                                                                \
    {                                                                                              \
        struct evict_hold hold = {.slot = EVICT_NOTHING};                                          \
        int r;                                                                                     \
                                                                                                   \
        call_seen(STAT_calls_name);                                                                \
        if (when)                                                                                  \
            evict_begin(dirfd, path, &hold);                                                       \
        r = CALL_WITH_SPACE(real.name args);                                                       \
        if (hold.slot != EVICT_NOTHING)                                                            \
            evict_end(&hold, r == 0);                                                              \
        return r;                                                                                  \
    }
TAKES(unlink, (const char *path), (path), true, AT_FDCWD, path)
TAKES(unlinkat, (int dirfd, const char *path, int flags), (dirfd, path, flags), flags == 0, dirfd,
      path)
TAKES(remove, (const char *path), (path), true, AT_FDCWD, path)
TAKES(rename, (const char *from, const char *to), (from, to), true, AT_FDCWD, to)
TAKES(renameat, (int fromfd, const char *from, int tofd, const char *to), (fromfd, from, tofd, to),
      true, tofd, to)
TAKES(renameat2, (int fromfd, const char *from, int tofd, const char *to, unsigned flags),
      (fromfd, from, tofd, to, flags), flags == 0, tofd, to)

/* A file without a name may get one here (O_TMPFILE), and with it strangers: that it had none was
 * the evidence. Turned on while the link was being made: ended afterwards. */
#define LINKS(name, params, args)                                                                  \
    FREQUENT int name params                                                                       \
    {                                                                                              \
        int r;                                                                                     \
                                                                                                   \
        call_seen(STAT_calls_name);                                                                \
        state_doubt();                                                                             \
        WHEN_BUSY(settle_end_all(WHY_link));                                                       \
        r = real.name args;                                                                        \
        state_doubt();                                                                             \
        WHEN_BUSY(settle_end_all(WHY_link));                                                       \
        return r;                                                                                  \
    }
LINKS(link, (const char *from, const char *to), (from, to))
LINKS(linkat, (int fromfd, const char *from, int tofd, const char *to, int flags),
      (fromfd, from, tofd, to, flags))
