/* SPDX-License-Identifier: MIT */
/*
 * call_name: calls that make and remove names. They happen at once and in order; what is queued
 * belongs to the inode, whatever it is called.
 */
#include "call.h"

#define NAMES(name, params, args)                                                                  \
    FREQUENT int name params                                                                       \
    {                                                                                              \
        call_seen(STAT_calls_name);                                                                \
        return real.name args;                                                                     \
    }
NAMES(unlink, (const char *path), (path))
NAMES(unlinkat, (int dirfd, const char *path, int flags), (dirfd, path, flags))
NAMES(remove, (const char *path), (path))
NAMES(rmdir, (const char *path), (path))
NAMES(rename, (const char *from, const char *to), (from, to))
NAMES(renameat, (int fromfd, const char *from, int tofd, const char *to), (fromfd, from, tofd, to))
NAMES(renameat2, (int fromfd, const char *from, int tofd, const char *to, unsigned flags),
      (fromfd, from, tofd, to, flags))
NAMES(shm_unlink, (const char *name), (name))

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
