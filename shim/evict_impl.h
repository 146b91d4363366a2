/* SPDX-License-Identifier: MIT */
/* evict_impl: what evict.c (the program's threads) and evict_loop.c (our two) share. */
#ifndef SHIM_EVICT_IMPL_H
#define SHIM_EVICT_IMPL_H

#include <limits.h>

#include "evict.h"
#include "raw_thread.h"

#define EVICT_ASKS 16
#define EVICT_HELD 1024

/* A question, and the reference that answers it. */
enum ask_state {
    ASK_FREE,
    ASK_FILLING, /* its caller's */
    ASK_ASKED,   /* who takes it may have it: the opener, or its caller, who is tired of waiting */
    ASK_OPENING, /* the opener's */
    ASK_READY,   /* fd is held; the caller's, or after ORPHAN_NS the opener's */
    ASK_REFUSED, /* its caller's */
};

struct evict_ask {
    uint32_t state; /* futex */
    uint32_t turn;
    uint64_t dev, ino, bytes, ready_ns;
    uint64_t hold_max_ns;
    int dirfd;
    bool follow; /* path is a link of /proc to a descriptor */
    int fd;
    char path[PATH_MAX];
};

enum held_state { HELD_FREE, HELD_FILLING, HELD_READY };

struct evict_held {
    uint32_t state;
    uint32_t number; /* they are closed in this order */
    int fd;
    bool gone; /* its name, or its descriptor: closing it frees it */
    uint64_t dev, bytes, since_ns;
};

/* In shared memory of its own: a forked child has to see how far its parent is. */
struct evict_progress {
    uint32_t freed; /* futex: counts what was closed of evict.queued */
    uint32_t pid;
    uint64_t hurry_ns; /* CLOCK_MONOTONIC: until then somebody waits, no pauses */
};

enum evict_runs { EVICT_NONE, EVICT_RUNS, EVICT_LEAVES };

struct evict {
    struct raw_thread opener, closer;
    uint32_t runs;   /* enum evict_runs, of the opener */
    uint32_t leave;  /* somebody waits for both to be gone */
    uint32_t hurry;  /* somebody waits for what is held: no pauses */
    uint32_t asked;  /* futex: something for the opener */
    uint32_t queued; /* counts what was ever queued */
    uint32_t posted; /* futex: something for the closer */
    uint32_t closer_leaves;
    struct evict_progress *progress;
    uint32_t files; /* held, ready ones included */
    uint64_t bytes;
    uint64_t oldest_ns;  /* since when what is being closed was held, 0 nothing */
    uint64_t closing_ns; /* when that close began, 0 nothing */
    struct evict_ask ask[EVICT_ASKS];
    struct evict_held held[EVICT_HELD];
};

extern struct evict evict __attribute__((visibility("hidden")));

/* What the opener runs; it starts the closer. */
int evict_open_loop(void *arg);

/* What freeing costs on a device, as policy_evict has it. */
uint64_t evict_cost(uint32_t major, uint32_t minor);
void evict_cost_seen(uint32_t major, uint32_t minor, uint64_t bytes, uint64_t took_ns);

static inline void evict_freed_wait(const struct evict_progress *p, uint32_t seen, uint64_t ns)
{
    struct timespec ts = {.tv_sec = 0, .tv_nsec = (long)ns};

    rl_raw(SYS_futex, &p->freed, FUTEX_WAIT, seen, &ts);
}

static inline void evict_freed_wake(const struct evict_progress *p)
{
    rl_raw(SYS_futex, &p->freed, FUTEX_WAKE, INT32_MAX);
}

/* Held is counted, and seen by the state word, before the file's name goes. */
void evict_count(uint64_t bytes);
void evict_uncount(uint64_t bytes);

#endif
