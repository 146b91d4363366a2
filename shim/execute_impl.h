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
