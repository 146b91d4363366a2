/* SPDX-License-Identifier: MIT */
/* worker_impl: what worker.c (starting, waking, stopping; the program's threads) and worker_loop.c
 * (the worker thread itself) share. */
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

/* In a forked child: no file is on. */
void worker_loop_forked(void);

#endif
