/* SPDX-License-Identifier: MIT */
/* gate_hold: being inside a gate, left also when a cancelled thread unwinds (-fexceptions). */
#ifndef SHIM_GATE_HOLD_H
#define SHIM_GATE_HOLD_H

#include "file.h"
#include "nested.h"
#include "stats.h"

/* The innermost gate this thread is inside, and the stack address where it went in. A handler that
 * punches the very file whose write it interrupted would wait for itself. A hold that was jumped
 * out of (nested.h) is forgotten. */
extern __thread struct rl_gate *gate_mine __attribute__((visibility("hidden")));
extern __thread const void *gate_mine_at __attribute__((visibility("hidden")));

struct gate_hold {
    struct rl_gate *gate; /* NULL: not inside */
    rl_ticket ticket;
    bool exclusive;
};

static inline void gate_enter(struct gate_hold *hold, struct rl_inode *inode, bool exclusive)
{
    uint64_t waited_ns;

    if (unlikely(gate_mine == &inode->gate) && nested_in(gate_mine_at, hold))
        return; /* ours already */
    hold->exclusive = exclusive;
    hold->ticket = exclusive ? rl_gate_enter_exclusive(&inode->gate, &waited_ns)
                             : rl_gate_enter_shared(&inode->gate, &waited_ns);
    hold->gate = &inode->gate;
    gate_mine = &inode->gate;
    gate_mine_at = hold;
    stat_add(STAT_gate_entered, 1);
    if (waited_ns != 0) {
        stat_add(STAT_gate_waited, 1);
        stat_add(STAT_gate_wait_ns, waited_ns);
        stat_peak(STAT_gate_wait_max_ns, waited_ns);
    }
}

static inline void gate_leave(struct gate_hold *hold)
{
    if (hold->gate == NULL)
        return;
    if (hold->exclusive)
        rl_gate_leave_exclusive(hold->gate, hold->ticket);
    else
        rl_gate_leave_shared(hold->gate, hold->ticket);
    hold->gate = NULL;
    gate_mine = NULL;
}

#define GATE_HOLD(name) struct gate_hold name __attribute__((cleanup(gate_leave))) = {.gate = NULL}

#endif
