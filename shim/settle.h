/* SPDX-License-Identifier: MIT */
/*
 * settle: apply what is queued, before a call that could tell the difference.
 *
 * Every function returns at once when nothing is queued for what it names, sleeps on a futex
 * otherwise, and leaves errno alone. None is a cancellation point. They may be called in signal
 * handlers: no lock is held by whoever was interrupted.
 */
#ifndef SHIM_SETTLE_H
#define SHIM_SETTLE_H

#include "file.h"
#include "stats.h"

void settle_inode(struct rl_inode *inode, enum why why);
void settle_fd(int fd, enum why why);
void settle_all(enum why why);

/* Until nothing queued meets [start, end). */
void settle_range(struct rl_inode *inode, uint64_t start, uint64_t end, enum why why);

/* For who must not wait: true if something queued meets [start, end), and it is on its way. */
bool settle_asked(struct rl_inode *inode, uint64_t start, uint64_t end);

/* Settles and turns deferral off; it may come back when there is evidence again. */
void settle_end_inode(struct rl_inode *inode, enum why why);
void settle_end_fd(int fd, enum why why);
void settle_end_all(enum why why);

/* Settles, turns deferral off for good: `never` is the counter that tells why from now on. */
void settle_never_fd(int fd, enum why why, enum stat_id never);
void settle_foreign(enum why why); /* for the whole process */

/* As settle_end_all, and the worker thread is gone when it returns. */
void settle_stop(enum why why);

/* Before a seccomp filter: as settle_stop, and from now on the shim makes no call of its own, since
 * the filter may kill for any. */
void settle_sandbox(void);

/* For wrappers: nothing but a load when idle. */
#define SETTLE_FD(fd, why)                                                                         \
    do {                                                                                           \
        uint64_t word_ = state_word();                                                             \
        if (!state_idle(word_)) {                                                                  \
            state_enter(word_);                                                                    \
            settle_fd(fd, why);                                                                    \
        }                                                                                          \
    } while (0)
#define SETTLE_ALL(why)                                                                            \
    do {                                                                                           \
        uint64_t word_ = state_word();                                                             \
        if (!state_idle(word_)) {                                                                  \
            state_enter(word_);                                                                    \
            settle_all(why);                                                                       \
        }                                                                                          \
    } while (0)
/* Generic: FUNCTION(arguments) when the word is not zero. */
#define WHEN_BUSY(...)                                                                             \
    do {                                                                                           \
        uint64_t word_ = state_word();                                                             \
        if (!state_idle(word_)) {                                                                  \
            state_enter(word_);                                                                    \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

#endif
