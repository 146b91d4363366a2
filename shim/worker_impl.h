/* SPDX-License-Identifier: MIT */
/* worker_impl: what worker.c (starting, waking, stopping; the program's threads) and worker_loop.c
 * (the worker thread itself) share; and worker_apply.c, its hands. */
#ifndef SHIM_WORKER_IMPL_H
#define SHIM_WORKER_IMPL_H

#include "raw_thread.h"
#include "worker.h"

#define WORKER_ASKS 64

enum worker_state { WORKER_NONE, WORKER_RUNS, WORKER_LEAVES };

struct worker {
    uint32_t state; /* enum worker_state */
    uint32_t seq;   /* futex: something to do */
    uint32_t asleep;
    uint32_t leave;
    uint64_t ask[WORKER_ASKS]; /* inode index + 1 << 32 | fd; 0 free */
    struct raw_thread thread;
};

extern struct worker worker __attribute__((visibility("hidden")));

/* What the thread runs. */
int worker_main(void *arg);

/* A file with deferral on. Worker only. */
struct job {
    struct rl_inode *inode; /* NULL: free */
    struct file_state *fs;
    uint64_t dev, ino;
    int fd; /* reference to the file in the worker's table */
    bool in_pass;
    bool out; /* span is being applied or waits for the gate */
    bool urgent;
    bool told;      /* a lost punch was logged */
    bool hurried;   /* the pass: somebody waits for it */
    bool postponed; /* something of this pass could not be applied: the pass is not over */
    bool requested; /* at the gate */
    bool inside;
    rl_ticket ticket;
    struct rl_span span;
    uint64_t gate_ns;       /* when the gate was requested */
    uint32_t gate_seq;      /* of the gate when it was last seen to move, and */
    uint64_t gate_moved_ns; /* when that was */
    uint64_t used_ns;       /* when there was last something to do */
    uint64_t retry_ns;      /* nothing before this, 0 none */
    unsigned tries;         /* failed in a row */
    uint32_t since;         /* the look (inflight.h) whose calls must be over first; 0: they are */
    uint64_t look_ns;       /* when to look again, and */
    uint64_t look_after_ns; /* how long to wait then */
};

/* worker_apply.c: n files' spans are punched, together where there is a ring, and leave their
 * gates; what failed is postponed or given up. */
void worker_apply(struct job *const *ready, int n);

/* A ring if the settings want one and the kernel has it; at the thread's beginning and end. */
void worker_apply_starts(void);
void worker_apply_ends(void);
void worker_apply_forked(void);

/* In a forked child: no file is on. */
void worker_loop_forked(void);

#endif
