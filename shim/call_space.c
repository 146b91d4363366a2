/* SPDX-License-Identifier: MIT */
/*
 * call_space: calls that give or take a file's blocks. They make the kernel drain direct I/O, so
 * execute passes the gate with them; a punch may be answered at once.
 */
#include "call.h"

#define FALLOCATES(name)                                                                           \
    static int name##_issue(const struct drain_call *call)                                         \
    {                                                                                              \
        return real.name(call->fd, call->mode, call->off, call->len);                              \
    }                                                                                              \
    int name(int fd, int mode, off_t off, off_t len)                                               \
    {                                                                                              \
        TIMED_FD((mode & FALLOC_FL_PUNCH_HOLE) != 0 ? ACT_punch : ACT_fallocate, fd);              \
        call_enter();                                                                              \
        return execute_fallocate(&(struct drain_call){                                             \
            .fd = fd, .mode = mode, .off = off, .len = len, .issue = name##_issue});               \
    }
FALLOCATES(fallocate)
FALLOCATES(fallocate64)

/* Returns its error and leaves errno alone, which execute does not mind. Mode 0. */
#define POSIX_FALLOCATES(name)                                                                     \
    static int name##_issue(const struct drain_call *call)                                         \
    {                                                                                              \
        return real.name(call->fd, call->off, call->len);                                          \
    }                                                                                              \
    int name(int fd, off_t off, off_t len)                                                         \
    {                                                                                              \
        TIMED_FD(ACT_fallocate, fd);                                                               \
        call_enter();                                                                              \
        return execute_fallocate(                                                                  \
            &(struct drain_call){.fd = fd, .off = off, .len = len, .issue = name##_issue});        \
    }
POSIX_FALLOCATES(posix_fallocate)
POSIX_FALLOCATES(posix_fallocate64)

#define FTRUNCATES(name)                                                                           \
    static int name##_issue(const struct drain_call *call)                                         \
    {                                                                                              \
        return real.name(call->fd, call->len);                                                     \
    }                                                                                              \
    int name(int fd, off_t len)                                                                    \
    {                                                                                              \
        TIMED_CUT(ACT_truncate, fd, AT_FDCWD, NULL, len);                                          \
        call_enter();                                                                              \
        return execute_truncate(                                                                   \
            &(struct drain_call){.fd = fd, .len = len, .issue = name##_issue});                    \
    }
FTRUNCATES(ftruncate)
FTRUNCATES(ftruncate64)

#define TRUNCATES(name)                                                                            \
    int name(const char *path, off_t len)                                                          \
    {                                                                                              \
        TIMED_CUT(ACT_truncate, -1, AT_FDCWD, path, len);                                          \
        call_enter();                                                                              \
        CALL_CUTS(true, AT_FDCWD, path);                                                           \
        stat_add(STAT_calls_space, 1);                                                             \
        return real.name(path, len);                                                               \
    }
TRUNCATES(truncate)
TRUNCATES(truncate64)
