/* SPDX-License-Identifier: MIT */
/* execute_impl: what the execute_*.c files share and nobody else needs. */
#ifndef SHIM_EXECUTE_IMPL_H
#define SHIM_EXECUTE_IMPL_H

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "execute.h"
#include "gate_hold.h"

static inline int open_flags(int fd)
{
    return (int)rl_raw(SYS_fcntl, fd, F_GETFL);
}

static inline off_t position(int fd)
{
    return (off_t)rl_raw(SYS_lseek, fd, 0L, SEEK_CUR);
}

#define PARTS_MAX 64 /* iovecs in one piece */

/* The next piece of at most max bytes, from byte `done` on. Returns its length. */
size_t write_next_piece(const struct io *io, size_t done, size_t max, struct iovec *part,
                        int *parts);

/* After a call that gave n of bytes: once more where a full disk stopped it, see there. */
ssize_t write_rest(const struct io *io, const struct iovec *iov, int count, off_t off, ssize_t n,
                   size_t bytes, int saved, uint64_t word);

/* One call, around what is queued. */
ssize_t write_plain(const struct io *io);

/* RLIMIT_FSIZE is set: the signal and the short count must come as the kernel has them. */
bool write_size_limited(void);

/* A buffered write that may be worth splitting if there is evidence: its inode, or NULL. Then: */
struct rl_inode *execute_whole_file(const struct io *io, size_t bytes, int flags);
ssize_t execute_whole(const struct io *io, struct rl_inode *inode, size_t bytes);

/*
 * "Position, then call" must be one step for this thread too: a handler that reads or writes
 * through the same descriptor in between moves it. The mask is put back by a clean-up, also when
 * the thread is cancelled.
 */
struct signals {
    bool blocked;
    uint64_t mask;
};
static inline void signals_block(struct signals *s)
{
    uint64_t all = ~(uint64_t)0;

    s->blocked = rl_raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &s->mask, sizeof s->mask) == 0;
}
static inline void signals_back(struct signals *s)
{
    if (s->blocked)
        rl_raw(SYS_rt_sigprocmask, SIG_SETMASK, &s->mask, NULL, sizeof s->mask);
    s->blocked = false;
}
#define SIGNALS(name)                                                                              \
    struct signals name __attribute__((cleanup(signals_back))) = {.blocked = false}

#endif
