/* SPDX-License-Identifier: MIT */
/*
 * name_table: single flight by name. Of the threads that want to do one thing to one name, one does
 * it and the others wait until it is done. Knows nothing of files: what a flight is for, and what
 * is true afterwards, its callers find out for themselves.
 *
 * Rules:
 *   - No lock is held while a flight is under way, however long that takes: a flight occupies a
 *     slot, and only those of the same name wait for it.
 *   - Two different names never meet: the whole name is compared, and where it starts from (the
 *     identity of a directory and the mount it was reached through). Two spellings of one name, a
 *     name longer than RL_NAME_BYTES_MAX, a full set: they miss each other, which costs only the
 *     work that a flight would have saved.
 *   - A leader that fails, or is cancelled, ends its flight like any other. One that was jumped out
 *     of or died is forgotten: nobody waits longer than RL_NAME_WAIT_NS, and then the name and the
 *     slot are free for the next.
 *   - A thread never waits for itself (a handler that opens what it interrupted).
 *   - Zeroed memory is an empty table.
 */
#ifndef RL_NAME_TABLE_H
#define RL_NAME_TABLE_H

#include "sync.h"

#define RL_NAME_SETS      32
#define RL_NAME_WAYS      4
#define RL_NAME_BYTES_MAX 504u
#define RL_NAME_WAIT_NS   2000000000u

/* The name as its user gave it, and the directory that it starts from. */
struct rl_name_key {
    uint64_t dev, ino, mount;
    const char *name; /* need not end in NUL */
    uint32_t bytes;
};

struct rl_name_slot {
    uint32_t state;    /* futex: phase, "somebody sleeps", generation */
    uint32_t began_ms; /* CLOCK_MONOTONIC */
    uint64_t leader;
    uint64_t dev, ino, mount;
    uint64_t bytes;
    uint64_t name[RL_NAME_BYTES_MAX / 8];
};

struct rl_name_table {
    uint32_t lock; /* brief_lock: held while a slot is filled */
    uint32_t pad;
    struct rl_name_slot slot[RL_NAME_SETS * RL_NAME_WAYS];
};

/* One flight as its leader or one who waits knows it. */
struct rl_name_flight {
    struct rl_name_slot *slot; /* NULL: none */
    uint32_t state;
};

enum rl_name_role {
    RL_NAME_NONE,   /* no flight can be had: do without */
    RL_NAME_LEADER, /* do it, then rl_name_end */
    RL_NAME_WAITER, /* rl_name_wait, then look for yourself */
};

/* `self` tells threads from each other; never 0. */
enum rl_name_role rl_name_join(struct rl_name_table *t, const struct rl_name_key *key,
                               uint64_t self, struct rl_name_flight *flight);

/* Sleeps until the flight has ended (true), or for `limit_ns` (false). No cancellation point. */
bool rl_name_wait(const struct rl_name_flight *flight, uint64_t limit_ns);

/* Wakes everyone who waits. Nothing if the flight is no longer this leader's. */
void rl_name_end(struct rl_name_flight *flight);

#endif
