/* SPDX-License-Identifier: MIT */
/*
 * single_flight: see single_flight.h. The word:
 *   bits  0-47  number of the last round that began
 *   bit  48     it runs
 *   bit  49     the next one has to be full
 *   bits 50-63  how many wait for the next one; it stays at the most it can hold
 * 48 bits are enough for a million rounds a second over eight years; no number comes twice.
 */
#include "single_flight.h"
#include "gate.h" /* rl_now_ns */

#define ROUND_MASK  (((uint64_t)1 << 48) - 1)
#define RUNS        ((uint64_t)1 << 48)
#define NEXT_FULL   ((uint64_t)1 << 49)
#define WAITS       ((uint64_t)1 << 50)
#define WAITS_SHIFT 50
#define WAITS_MAX   0x3fffu

static uint64_t last_round(uint64_t w)
{
    return w & ROUND_MASK;
}

static uint32_t waiting(uint64_t w)
{
    return (uint32_t)(w >> WAITS_SHIFT);
}

/* Round n began, and does not run any more. */
static bool is_over(uint64_t w, uint64_t n)
{
    return last_round(w) > n || (last_round(w) == n && (w & RUNS) == 0);
}

static bool start(struct rl_flight *f, uint64_t *w, bool full, struct rl_flight_seat *seat)
{
    uint64_t next = last_round(*w) + 1;

    if (!rl_cas_64(&f->word, w, next | RUNS))
        return false;
    seat->round = next;
    seat->full = full || ((*w & NEXT_FULL) != 0 && !RL_MUTANT(36));
    seat->waiting = waiting(*w);
    seat->began_ns = rl_now_ns();
    return true;
}

/* How long after the last round's end the next waits for company. */
static uint64_t gather_ns(const struct rl_flight *f)
{
    uint64_t ns = rl_load_64(&f->mean_ns) / 8;

    return ns < RL_FLIGHT_GATHER_MAX_NS ? ns : RL_FLIGHT_GATHER_MAX_NS;
}

static bool has_company(const struct rl_flight *f)
{
    return rl_load_32(&f->expected) > 1;
}

/* No round runs: does the next one wait for more to come? */
static bool gathers(const struct rl_flight *f, uint64_t w, uint64_t now_ns)
{
    return waiting(w) < rl_load_32(&f->expected) &&
           now_ns - rl_load_64(&f->ended_ns) < gather_ns(f);
}

bool rl_flight_lead(struct rl_flight *f, bool full, struct rl_flight_seat *seat)
{
    uint64_t w = rl_load_64(&f->word);

    seat->waited_ns = 0;
    while ((w & RUNS) == 0 && waiting(w) == 0 && !(has_company(f) && gathers(f, w, rl_now_ns())))
        if (start(f, &w, full, seat))
            return true;
    return false;
}

/* Takes a seat in the next round, or leads it if nothing runs. Returns true for the latter. */
static bool board(struct rl_flight *f, bool full, struct rl_flight_seat *seat)
{
    uint64_t w = rl_load_64(&f->word);

    for (;;) {
        uint64_t next = w;

        if ((w & RUNS) == 0 && waiting(w) == 0 && !has_company(f)) {
            if (start(f, &w, full, seat))
                return true;
            continue;
        }
        if (waiting(w) < WAITS_MAX)
            next += WAITS;
        if (full)
            next |= NEXT_FULL;
        if (rl_cas_64(&f->word, &w, next)) {
            /* Not the round that runs: it may have begun before what this caller did. */
            seat->round = last_round(w) + (RL_MUTANT(37) ? 0 : 1);
            return false;
        }
    }
}

/* What became of the round that the caller waited for. ALONE: nothing, it was lost. */
static enum rl_flight_role verdict(const struct rl_flight *f, struct rl_flight_seat *seat)
{
    uint64_t failed;

    /* A later round is as good: it began later still. */
    if (rl_load_64(&f->ok) >= seat->round || RL_MUTANT(38))
        return RL_FLIGHT_SERVED;
    failed = rl_load_64(&f->failed);
    if (failed >> 32 == (seat->round & UINT32_MAX)) {
        seat->said = (uint32_t)failed;
        return RL_FLIGHT_FAILED;
    }
    return RL_FLIGHT_ALONE;
}

/* The round that runs has not ended for so long that its leader must be gone. */
static void give_up(struct rl_flight *f, uint64_t w)
{
    if (!RL_MUTANT(39))
        rl_cas_64(&f->word, &w, w & ~RUNS);
}

enum rl_flight_role rl_flight_join(struct rl_flight *f, bool full, struct rl_flight_seat *seat)
{
    uint64_t began_ns = rl_now_ns();
    uint64_t since_ns = began_ns; /* when `running` was first seen to run */
    uint64_t running = 0;

    for (int tries = 0; tries < RL_FLIGHT_TRIES; tries++) {
        if (board(f, full, seat)) {
            seat->waited_ns = tries != 0 ? rl_now_ns() - began_ns : 0;
            return RL_FLIGHT_LEAD;
        }
        for (;;) {
            uint32_t *futex = &f->seq[seat->round & 1];
            uint32_t seq = rl_load_32(futex);
            uint64_t w = rl_load_64(&f->word);
            uint64_t now_ns = rl_now_ns();

            if (is_over(w, seat->round))
                break;
            if ((w & RUNS) == 0) { /* the round before is over: this one wants a leader */
                if (gathers(f, w, now_ns)) {
                    rl_raw(SYS_sched_yield); /* a timer would sleep longer than that */
                    continue;
                }
                if (!start(f, &w, full, seat))
                    continue;
                seat->waited_ns = now_ns - began_ns;
                seat->waiting -= seat->waiting != 0; /* this caller was counted */
                return RL_FLIGHT_LEAD;
            }
            if (running != last_round(w)) {
                running = last_round(w);
                since_ns = now_ns;
            } else if (now_ns - since_ns > RL_FLIGHT_PATIENCE_NS) {
                give_up(f, w);
                continue;
            }
            rl_futex_wait(futex, seq, RL_FLIGHT_LOOK_NS);
        }
        seat->waited_ns = rl_now_ns() - began_ns;
        switch (verdict(f, seat)) {
        case RL_FLIGHT_SERVED:
            return RL_FLIGHT_SERVED;
        case RL_FLIGHT_FAILED:
            return RL_FLIGHT_FAILED;
        default:
            break;
        }
    }
    return RL_FLIGHT_ALONE;
}

/* For the round that comes. Racing updates are of a round that was given up. */
static void learn(struct rl_flight *f, const struct rl_flight_seat *seat, uint32_t waiters)
{
    uint32_t many = seat->waiting + 1 + waiters;
    uint64_t now_ns, mean;

    if (many == 1) {
        if (has_company(f))
            rl_store_32(&f->expected, 1);
        return;
    }
    now_ns = rl_now_ns();
    mean = rl_load_64(&f->mean_ns);
    rl_store_64(&f->mean_ns, mean == 0 ? now_ns - seat->began_ns
                                       : mean - mean / 8 + (now_ns - seat->began_ns) / 8);
    rl_store_64(&f->ended_ns, now_ns);
    rl_store_32(&f->expected, many);
}

static void wake(struct rl_flight *f, uint64_t round, uint32_t sleepers)
{
    rl_add_32(&f->seq[round & 1], 1);
    rl_futex_wake(&f->seq[round & 1], sleepers);
}

void rl_flight_end(struct rl_flight *f, const struct rl_flight_seat *seat,
                   enum rl_flight_outcome outcome, uint32_t said)
{
    uint64_t round = seat->round;
    uint64_t w = rl_load_64(&f->word);
    uint64_t ok;

    if (last_round(w) < round)
        return; /* not a round of this flight: a forked child begins with new ones */
    /* What it was must be there before it is over. */
    if (outcome == RL_FLIGHT_OK && seat->waiting != 0) {
        ok = rl_load_64(&f->ok);
        while (ok < round && !rl_cas_64(&f->ok, &ok, round))
            ;
    } else if (outcome == RL_FLIGHT_BROKE) {
        rl_store_64(&f->failed, round << 32 | said);
    }
    if (last_round(w) == round)
        learn(f, seat, waiting(w));
    do {
        if (last_round(w) != round || (w & RUNS) == 0)
            return; /* it was given up */
    } while (!rl_cas_64(&f->word, &w, w & ~RUNS));
    if (seat->waiting != 0)
        wake(f, round, INT32_MAX);
    if (waiting(w) != 0)
        wake(f, round + 1, 1); /* one of them leads; the others have nothing to do yet */
}

bool rl_flight_idle(const struct rl_flight *f)
{
    uint64_t w = rl_load_64(&f->word);

    return (w & RUNS) == 0 && waiting(w) == 0;
}
