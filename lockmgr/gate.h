/* SPDX-License-Identifier: MIT */
/*
 * gate: who goes first on one inode.
 *
 * Some calls make the kernel wait for all direct I/O in flight on the inode while they hold its
 * lock (inode_dio_wait), and everybody behind them waits too, readers included. The gate makes them
 * wait in user space instead, where nobody queues up behind them: pieces of direct writes enter
 * shared, draining calls (punch and other fallocate modes, truncation) enter exclusive. Readers do
 * not take part.
 *
 * Fair in time: a waiting exclusive goes before the next piece. A stream of exclusives, each coming
 * within RL_GATE_GAP_NS of the one before, then keeps the gate for a share of what a piece takes on
 * this inode (mean / RL_GATE_SHARE, within the bounds below); after that the waiting pieces go
 * first. So a stream of punches costs a writer at most about a twentieth of its rate, while without
 * the gate it would get a punch or two in between its writes. Counting calls instead of time would
 * give a run of 13 us punches one call per piece of milliseconds.
 *
 * The gate decides when a call is made, never what it does. So it may be wrong for a moment, and
 * that is what makes it safe in a guest: every wait is bounded; a waiter that has seen no movement
 * for RL_GATE_PATIENCE_NS concludes that somebody left without saying so (siglongjmp out of a
 * handler, a killed vfork child), declares a new era with nobody inside, and goes on. So does one
 * that waited RL_GATE_LONGEST_NS while others passed: a waiter that was lost while it was counted
 * would hold up the other side for ever. Leaving with an old era's ticket does nothing.
 *
 * No allocation, no lock, async-signal-safe. Zeroed memory is an open gate.
 */
#ifndef RL_GATE_H
#define RL_GATE_H

#include "sync.h"

#define RL_GATE_PATIENCE_NS 1000000000u
#define RL_GATE_LONGEST_NS  4000000000u
#define RL_GATE_SHARE       16u
#define RL_GATE_TURN_MIN_NS 50000u
#define RL_GATE_TURN_MAX_NS 1000000u
#define RL_GATE_GAP_NS      50000u
#define RL_GATE_POLL_NS     100000u

struct rl_gate {
    uint64_t word;     /* see gate.c */
    uint64_t turn_ns;  /* CLOCK_MONOTONIC when the first of the now waiting pieces began to wait */
    uint64_t since_ns; /* when the first of the pieces now inside went in */
    uint64_t piece_ns; /* mean time that pieces are inside */
    uint64_t left_ns;  /* when the last exclusive left */
    uint32_t seq;      /* futex: moves whenever a waiter may get in */
    uint32_t pad;
};

/* What enter returns and leave takes. */
typedef uint32_t rl_ticket;

/* *waited_ns is the time spent waiting, 0 if none. */
rl_ticket rl_gate_enter_shared(struct rl_gate *g, uint64_t *waited_ns);
rl_ticket rl_gate_enter_exclusive(struct rl_gate *g, uint64_t *waited_ns);
void rl_gate_leave_shared(struct rl_gate *g, rl_ticket ticket);
void rl_gate_leave_exclusive(struct rl_gate *g, rl_ticket ticket);

/* For a caller with other things to do: asks once (new pieces then wait), tries again later, and
 * takes the request back if it gives up. */
void rl_gate_request(struct rl_gate *g, rl_ticket *era);
bool rl_gate_try_requested(struct rl_gate *g, rl_ticket *era);
void rl_gate_withdraw(struct rl_gate *g, rl_ticket era);

/* For the same caller, when nothing has moved (seq) for RL_GATE_PATIENCE_NS while it asked:
 * declares a new era, as a sleeping waiter would. */
void rl_gate_renew(struct rl_gate *g);

/* Nobody inside and nobody waiting. */
bool rl_gate_idle(const struct rl_gate *g);

uint64_t rl_now_ns(void); /* CLOCK_MONOTONIC */

#endif
