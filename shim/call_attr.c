/* SPDX-License-Identifier: MIT */
/*
 * call_attr: times, mode, owner, extended attributes. A punch moves mtime and ctime and strips
 * set-id bits and file capabilities, so one that comes late would undo what is set here.
 *
 * By path: everything is settled rather than the path looked up; these are rare calls.
 */
#include "call.h"

#define BY_PATH(ret, name, why, params, args)                                                      \
    ret name params                                                                                \
    {                                                                                              \
        TIMED_PATH(ACT_attr, AT_FDCWD, NULL);                                                      \
        SETTLE_ALL(why);                                                                           \
        return real.name args;                                                                     \
    }
#define BY_FD(ret, name, why, params, args)                                                        \
    ret name params                                                                                \
    {                                                                                              \
        TIMED_FD(ACT_attr, fd);                                                                    \
        SETTLE_FD(fd, why);                                                                        \
        return real.name args;                                                                     \
    }

BY_PATH(int, utime, WHY_times, (const char *path, const struct utimbuf *times), (path, times))
BY_PATH(int, utimes, WHY_times, (const char *path, const struct timeval times[2]), (path, times))
BY_PATH(int, lutimes, WHY_times, (const char *path, const struct timeval times[2]), (path, times))
BY_FD(int, futimes, WHY_times, (int fd, const struct timeval times[2]), (fd, times))
BY_PATH(int, futimesat, WHY_times, (int dirfd, const char *path, const struct timeval times[2]),
        (dirfd, path, times))
BY_PATH(int, utimensat, WHY_times,
        (int dirfd, const char *path, const struct timespec times[2], int flags),
        (dirfd, path, times, flags))
BY_FD(int, futimens, WHY_times, (int fd, const struct timespec times[2]), (fd, times))

BY_PATH(int, chmod, WHY_mode, (const char *path, mode_t mode), (path, mode))
BY_FD(int, fchmod, WHY_mode, (int fd, mode_t mode), (fd, mode))
BY_PATH(int, fchmodat, WHY_mode, (int dirfd, const char *path, mode_t mode, int flags),
        (dirfd, path, mode, flags))
BY_PATH(int, lchmod, WHY_mode, (const char *path, mode_t mode), (path, mode))

BY_PATH(int, chown, WHY_owner, (const char *path, uid_t owner, gid_t group), (path, owner, group))
BY_FD(int, fchown, WHY_owner, (int fd, uid_t owner, gid_t group), (fd, owner, group))
BY_PATH(int, lchown, WHY_owner, (const char *path, uid_t owner, gid_t group), (path, owner, group))
BY_PATH(int, fchownat, WHY_owner,
        (int dirfd, const char *path, uid_t owner, gid_t group, int flags),
        (dirfd, path, owner, group, flags))

#define SETS_PATH(name)                                                                            \
    BY_PATH(int, name, WHY_xattr,                                                                  \
            (const char *path, const char *attr, const void *value, size_t size, int flags),       \
            (path, attr, value, size, flags))
SETS_PATH(setxattr)
SETS_PATH(lsetxattr)
BY_FD(int, fsetxattr, WHY_xattr,
      (int fd, const char *attr, const void *value, size_t size, int flags),
      (fd, attr, value, size, flags))
BY_PATH(int, removexattr, WHY_xattr, (const char *path, const char *attr), (path, attr))
BY_PATH(int, lremovexattr, WHY_xattr, (const char *path, const char *attr), (path, attr))
BY_FD(int, fremovexattr, WHY_xattr, (int fd, const char *attr), (fd, attr))

/* Reading them: security.capability is gone after a punch. */
BY_PATH(ssize_t, getxattr, WHY_xattr,
        (const char *path, const char *attr, void *value, size_t size), (path, attr, value, size))
BY_PATH(ssize_t, lgetxattr, WHY_xattr,
        (const char *path, const char *attr, void *value, size_t size), (path, attr, value, size))
BY_FD(ssize_t, fgetxattr, WHY_xattr, (int fd, const char *attr, void *value, size_t size),
      (fd, attr, value, size))
BY_PATH(ssize_t, listxattr, WHY_xattr, (const char *path, char *list, size_t size),
        (path, list, size))
BY_PATH(ssize_t, llistxattr, WHY_xattr, (const char *path, char *list, size_t size),
        (path, list, size))
BY_FD(ssize_t, flistxattr, WHY_xattr, (int fd, char *list, size_t size), (fd, list, size))
