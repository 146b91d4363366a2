/* SPDX-License-Identifier: MIT */
/*
 * call_mount: free space, quota, and the file systems themselves. What is queued frees space, so it
 * is applied before anybody counts ("delete until enough is free" would delete too much), and
 * before a file system goes or a file is given to the kernel to write or swap to.
 */
#include "call.h"

#define SETTLES(ret, name, params, args)                                                           \
    ret name params                                                                                \
    {                                                                                              \
        TIMED_PATH(ACT_statfs, AT_FDCWD, NULL);                                                    \
        SETTLE_ALL(WHY_statfs);                                                                    \
        return real.name args;                                                                     \
    }
SETTLES(int, statfs, (const char *path, struct statfs *buf), (path, buf))
SETTLES(int, __statfs, (const char *path, struct statfs *buf), (path, buf))
SETTLES(int, statfs64, (const char *path, struct statfs64 *buf), (path, buf))
SETTLES(int, fstatfs, (int fd, struct statfs *buf), (fd, buf))
SETTLES(int, fstatfs64, (int fd, struct statfs64 *buf), (fd, buf))
SETTLES(int, statvfs, (const char *path, struct statvfs *buf), (path, buf))
SETTLES(int, statvfs64, (const char *path, struct statvfs64 *buf), (path, buf))
SETTLES(int, fstatvfs, (int fd, struct statvfs *buf), (fd, buf))
SETTLES(int, fstatvfs64, (int fd, struct statvfs64 *buf), (fd, buf))
SETTLES(int, quotactl, (int cmd, const char *special, int id, caddr_t addr),
        (cmd, special, id, addr))
SETTLES(int, umount, (const char *target), (target))
SETTLES(int, umount2, (const char *target, int flags), (target, flags))
SETTLES(int, mount,
        (const char *source, const char *target, const char *type, unsigned long flags,
         const void *data),
        (source, target, type, flags, data))

/* The kernel itself writes to these files, unseen. */
#define ENDS(ret, name, params, args)                                                              \
    ret name params                                                                                \
    {                                                                                              \
        WHEN_BUSY(settle_end_all(WHY_statfs));                                                     \
        return real.name args;                                                                     \
    }
ENDS(int, swapon, (const char *path, int flags), (path, flags))
ENDS(int, acct, (const char *path), (path))
