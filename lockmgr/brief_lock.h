/* SPDX-License-Identifier: MIT */
/*
 * brief_lock: a lock for nanoseconds of work, which a handler, a jump or a kill may interrupt.
 *
 * Nobody waits long for it: a taker that does not get it does without, so a handler that
 * interrupted the holder cannot hang, and one whose holder was jumped out of is stolen after a
 * second. The work under it must therefore bear a second thread at it.
 */
#ifndef RL_BRIEF_LOCK_H
#define RL_BRIEF_LOCK_H

#include "gate.h"
#include "sync.h"

#define RL_BRIEF_STEAL_MS 1000u /* the holder works for nanoseconds: after this it is gone */
#define RL_BRIEF_SPINS    2000

/* What it wrote into the lock, 0 if it did not get it. */
static inline uint32_t rl_brief_take(uint32_t *lock)
{
    uint32_t now = (uint32_t)(rl_now_ns() / 1000000u) | 1;

    for (int spin = 0; spin < RL_BRIEF_SPINS; spin++) {
        uint32_t seen = 0;

        if (rl_cas_32(lock, &seen, now))
            return now;
        if (now - seen > RL_BRIEF_STEAL_MS && !RL_MUTANT(32) && now - seen < UINT32_MAX / 2)
            rl_cas_32(lock, &seen, 0);
        else if (spin % 64 == 63)
            rl_raw(SYS_sched_yield);
    }
    return 0;
}

/* Not if it was stolen meanwhile: then it is another's. */
static inline void rl_brief_drop(uint32_t *lock, uint32_t taken)
{
    rl_cas_32(lock, &taken, 0);
}

#endif
