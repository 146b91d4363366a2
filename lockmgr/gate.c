/* SPDX-License-Identifier: MIT */
/*
 * gate: see gate.h. The word:
 *   bits  0-11  pieces inside          bits 24-35  pieces waiting
 *   bit  12     an exclusive inside    bits 36-47  exclusives waiting
 *   bit  13     the waiting pieces have their turn
 *   bits 48-63  era
 * Counts of waiters are what makes newcomers hold back; a waiter that is lost is forgotten with the
 * era.
 */
#include <time.h>

#include "gate.h"

#define IN_SHARED      ((uint64_t)1)
#define IN_EXCLUSIVE   ((uint64_t)1 << 12)
#define TURN           ((uint64_t)1 << 13)
#define WAIT_SHARED    ((uint64_t)1 << 24)
#define WAIT_EXCLUSIVE ((uint64_t)1 << 36)
#define ERA            ((uint64_t)1 << 48)
#define COUNT_MASK     ((uint64_t)0xfff)
#define NOT_COUNTED    ((rl_ticket)UINT32_MAX) /* no era: takes no other waiter's count away */

static unsigned shared_inside(uint64_t w)
{
    return (unsigned)(w & COUNT_MASK);
}

static unsigned shared_waiting(uint64_t w)
{
    return (unsigned)(w >> 24 & COUNT_MASK);
}

static unsigned exclusive_waiting(uint64_t w)
{
    return (unsigned)(w >> 36 & COUNT_MASK);
}

static rl_ticket era_of(uint64_t w)
{
    return (rl_ticket)(w >> 48);
}

uint64_t rl_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts); /* vDSO: no system call, does not touch errno */
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void wake(struct rl_gate *g)
{
    rl_add_32(&g->seq, 1);
    rl_futex_wake(&g->seq, INT32_MAX);
}

static bool may_enter(uint64_t w, bool exclusive)
{
    if ((w & IN_EXCLUSIVE) != 0)
        return false;
    if (exclusive)
        return (shared_inside(w) == 0 || RL_MUTANT(25)) && (w & TURN) == 0;
    return (exclusive_waiting(w) == 0 || RL_MUTANT(26) || (w & TURN) != 0) &&
           shared_inside(w) < COUNT_MASK - 1;
}

/* The word after entering; waiting: the caller is among the counted waiters. */
static uint64_t entered(uint64_t w, bool exclusive, bool waiting)
{
    if (exclusive)
        return w + IN_EXCLUSIVE - (waiting ? WAIT_EXCLUSIVE : 0);
    w += IN_SHARED;
    if (waiting)
        w -= WAIT_SHARED;
    if (shared_waiting(w) == 0 && !RL_MUTANT(27))
        w &= ~TURN; /* the turn ends with the last piece that waited for it */
    return w;
}

static uint64_t wait_unit(bool exclusive)
{
    return exclusive ? WAIT_EXCLUSIVE : WAIT_SHARED;
}

/* How long pieces may be kept waiting by exclusives that keep coming. */
static uint64_t turn_limit_ns(const struct rl_gate *g)
{
    uint64_t mean = rl_load_64(&g->piece_ns) / RL_GATE_SHARE;

    return mean < RL_GATE_TURN_MIN_NS   ? RL_GATE_TURN_MIN_NS
           : mean > RL_GATE_TURN_MAX_NS ? RL_GATE_TURN_MAX_NS
                                        : mean;
}

/* A piece that could enter, but a stream of exclusives still has the gate. */
static bool stream_has_gate(const struct rl_gate *g, uint64_t w, uint64_t now_ns)
{
    return (w & TURN) == 0 && now_ns - rl_load_64(&g->left_ns) < RL_GATE_GAP_NS &&
           now_ns - rl_load_64(&g->turn_ns) < turn_limit_ns(g);
}

/* A moving mean over some 32 pieces: throttled and cached devices alternate between bursts and
 * pauses. Racing updates may lose one sample. */
static void learn_piece(struct rl_gate *g)
{
    uint64_t took = rl_now_ns() - rl_load_64(&g->since_ns);
    uint64_t mean = rl_load_64(&g->piece_ns);

    rl_store_64(&g->piece_ns, mean == 0 ? took : mean - mean / 32 + took / 32);
}

static bool can_count_waiter(uint64_t w, bool exclusive)
{
    return (exclusive ? exclusive_waiting(w) : shared_waiting(w)) < COUNT_MASK - 1;
}

static rl_ticket enter(struct rl_gate *g, bool exclusive, uint64_t *waited_ns)
{
    uint64_t w = rl_load_64(&g->word);
    uint64_t began_ns = 0;
    uint64_t moved_ns = 0;   /* when seq was last seen to move */
    uint64_t blocked_ns = 0; /* since when it has been waiting in this era */
    uint32_t last_seq = 0;
    bool waiting = false;
    rl_ticket era = era_of(w);

    *waited_ns = 0;
    for (;;) {
        uint32_t seq = rl_load_32(&g->seq);
        uint64_t now_ns;

        w = rl_load_64(&g->word);
        if (waiting && era_of(w) != era) { /* a new era: we are not counted in it */
            waiting = RL_MUTANT(24);
            era = era_of(w);
            blocked_ns = rl_now_ns();
        }
        if (may_enter(w, exclusive) &&
            (exclusive || !waiting || !stream_has_gate(g, w, rl_now_ns()))) {
            if (rl_cas_64(&g->word, &w, entered(w, exclusive, waiting)))
                break;
            continue;
        }
        now_ns = rl_now_ns();
        if (began_ns == 0) {
            began_ns = moved_ns = blocked_ns = now_ns;
            last_seq = seq;
        }
        if (!waiting && can_count_waiter(w, exclusive)) {
            if (!rl_cas_64(&g->word, &w, w + wait_unit(exclusive)))
                continue;
            if (!exclusive && shared_waiting(w) == 0)
                rl_store_64(&g->turn_ns, now_ns);
            era = era_of(w);
            waiting = true;
            continue; /* look again: it may have opened before we were counted */
        }
        if (seq != last_seq) {
            last_seq = seq;
            moved_ns = now_ns;
        }
        if ((now_ns - moved_ns > RL_GATE_PATIENCE_NS && !RL_MUTANT(22)) ||
            (now_ns - blocked_ns > RL_GATE_LONGEST_NS && !RL_MUTANT(22) && !RL_MUTANT(23))) {
            if (rl_cas_64(&g->word, &w, (w & ~(ERA - 1)) + ERA))
                wake(g);
            moved_ns = blocked_ns = now_ns;
            continue;
        }
        /* Exclusives that come in a stream do not wake pieces one by one: those look themselves. */
        rl_futex_wait(&g->seq, seq, exclusive ? RL_GATE_PATIENCE_NS / 4 : RL_GATE_POLL_NS);
    }
    if (!exclusive && shared_inside(w) == 0)
        rl_store_64(&g->since_ns, rl_now_ns());
    if (began_ns != 0)
        *waited_ns = rl_now_ns() - began_ns;
    return era_of(w);
}

rl_ticket rl_gate_enter_shared(struct rl_gate *g, uint64_t *waited_ns)
{
    return enter(g, false, waited_ns);
}

rl_ticket rl_gate_enter_exclusive(struct rl_gate *g, uint64_t *waited_ns)
{
    return enter(g, true, waited_ns);
}

void rl_gate_leave_shared(struct rl_gate *g, rl_ticket ticket)
{
    uint64_t w = rl_load_64(&g->word);

    if (shared_inside(w) == 1)
        learn_piece(g);
    do {
        if ((era_of(w) != ticket && !RL_MUTANT(28)) || shared_inside(w) == 0)
            return;
    } while (!rl_cas_64(&g->word, &w, w - IN_SHARED));
    if (shared_inside(w) == 1 && (exclusive_waiting(w) != 0 || shared_waiting(w) != 0))
        wake(g);
}

void rl_gate_leave_exclusive(struct rl_gate *g, rl_ticket ticket)
{
    uint64_t w = rl_load_64(&g->word);
    uint64_t next, now_ns;

    do {
        if ((era_of(w) != ticket && !RL_MUTANT(28)) || (w & IN_EXCLUSIVE) == 0)
            return;
        next = w - IN_EXCLUSIVE;
        if (shared_waiting(w) != 0) {
            now_ns = rl_now_ns();
            rl_store_64(&g->left_ns, now_ns);
            if (now_ns - rl_load_64(&g->turn_ns) >= turn_limit_ns(g) && !RL_MUTANT(29))
                next |= TURN;
        }
    } while (!rl_cas_64(&g->word, &w, next));
    if (exclusive_waiting(w) != 0 || (next & TURN) != 0)
        wake(g);
}

void rl_gate_request(struct rl_gate *g, rl_ticket *era)
{
    uint64_t w = rl_load_64(&g->word);

    *era = NOT_COUNTED;
    while (can_count_waiter(w, true))
        if (rl_cas_64(&g->word, &w, w + WAIT_EXCLUSIVE)) {
            *era = era_of(w);
            return;
        }
}

bool rl_gate_try_requested(struct rl_gate *g, rl_ticket *era)
{
    uint64_t w = rl_load_64(&g->word);

    while (may_enter(w, true)) {
        bool waiting = era_of(w) == *era && exclusive_waiting(w) != 0;

        if (rl_cas_64(&g->word, &w, entered(w, true, waiting))) {
            *era = era_of(w);
            return true;
        }
    }
    return false;
}

void rl_gate_withdraw(struct rl_gate *g, rl_ticket era)
{
    uint64_t w = rl_load_64(&g->word);

    while (era_of(w) == era && exclusive_waiting(w) != 0)
        if (rl_cas_64(&g->word, &w, w - WAIT_EXCLUSIVE)) {
            if (!RL_MUTANT(30))
                wake(g);
            return;
        }
}

void rl_gate_renew(struct rl_gate *g)
{
    uint64_t w = rl_load_64(&g->word);

    if (rl_cas_64(&g->word, &w, (w & ~(ERA - 1)) + ERA))
        wake(g);
}

bool rl_gate_idle(const struct rl_gate *g)
{
    return (rl_load_64(&g->word) & (ERA - 1)) == 0;
}
