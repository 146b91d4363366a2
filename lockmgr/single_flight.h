/* SPDX-License-Identifier: MIT */
/*
 * single_flight: one call for all who want the same done at the same time (single flight).
 *
 * Made for calls like fsync, whose effect covers everything that happened before they began. Calls
 * are numbered rounds. Whoever comes while no round runs leads the next one at once; whoever comes
 * while one runs waits for the round after it, which is led by one of those who wait. So a caller
 * is served only by a round that began after it came, and at most one round runs while one waits.
 *
 * A round may have to be full (fsync) or not (fdatasync): it is if its leader or anybody waiting
 * for it wants that. A full round serves both kinds.
 *
 * A leader tells how its round ended. OK serves everybody who waited for it. FAILED gives them the
 * leader's word on it, and each is on its own. LOST (the leader was cancelled, or its call was not
 * what the others need) sends them to the next round. A leader that never says (jumped out of, its
 * thread gone) is given up after RL_FLIGHT_PATIENCE_NS: from then on more than one round may run,
 * which costs time and nothing else, because only a round that ended OK ever serves.
 *
 * Those who were served together come back together, a moment apart. The first of them to come
 * would lead a round for itself alone and the others wait for it, so a round that follows one of
 * many waits for as many as there were, but for no longer than an eighth of what a round takes
 * (RL_FLIGHT_GATHER_MAX_NS at most) from the end of the one before. Who is alone never waits.
 *
 * Waiting leaves no trace that anybody has to clean up, so a waiter may disappear at any moment.
 * No allocation, no lock, async-signal-safe; but a thread that leads or waits must not wait again
 * in a signal handler: it would wait for itself. Zeroed memory is an idle flight.
 */
#ifndef RL_FLIGHT_H
#define RL_FLIGHT_H

#include "sync.h"

#define RL_FLIGHT_PATIENCE_NS   4000000000u
#define RL_FLIGHT_LOOK_NS       50000000u /* a wake-up that went to somebody who is gone costs this */
#define RL_FLIGHT_GATHER_MAX_NS 500000u
#define RL_FLIGHT_TRIES         4 /* rounds that may be lost before a caller goes alone */

struct rl_flight {
    uint64_t word; /* see single_flight.c */
    uint64_t ok;   /* the last round that ended OK */
    uint64_t
        failed; /* the last one that FAILED: low half of its number, and what its leader said */
    uint64_t ended_ns; /* CLOCK_MONOTONIC when the last round with company ended */
    uint64_t mean_ns;  /* how long such rounds take */
    uint32_t expected; /* how many may want the next round; 0 or 1: no company */
    uint32_t pad;
    uint32_t seq[2]; /* futexes of those who wait for even and odd rounds */
};

enum rl_flight_role {
    RL_FLIGHT_LEAD,   /* make the call now, then rl_flight_end */
    RL_FLIGHT_SERVED, /* a round that began after rl_flight_join was called ended OK */
    RL_FLIGHT_FAILED, /* it did not: seat.said is what its leader said */
    RL_FLIGHT_ALONE,  /* too many rounds were lost: make a call of your own */
};

enum rl_flight_outcome { RL_FLIGHT_OK, RL_FLIGHT_BROKE, RL_FLIGHT_LOST };

struct rl_flight_seat {
    uint64_t round;
    uint64_t waited_ns; /* 0: did not wait */
    uint64_t began_ns;  /* LEAD: when the round began */
    uint32_t waiting;   /* LEAD: how many the round serves beside its leader (at most 16383 told) */
    uint32_t said;      /* FAILED */
    bool full;          /* LEAD: the call has to be a full one */
};

/* Leads a round, if none runs and nobody waits or is expected to. */
bool rl_flight_lead(struct rl_flight *f, bool full, struct rl_flight_seat *seat);

/* Waits for a round and says what became of it, or leads one. */
enum rl_flight_role rl_flight_join(struct rl_flight *f, bool full, struct rl_flight_seat *seat);

/* By the leader, once. Any later word on the same round is as good as none, except that OK serves
 * whoever still waits for it. */
void rl_flight_end(struct rl_flight *f, const struct rl_flight_seat *seat,
                   enum rl_flight_outcome outcome, uint32_t said);

/* No round runs and nobody waits. */
bool rl_flight_idle(const struct rl_flight *f);

#endif
