/* SPDX-License-Identifier: MIT */
/*
 * ring: the worker's io_uring. The only user of liburing.
 *
 * The descriptor of the ring lives in the worker's own table (worker.h); liburing makes its system
 * calls without libc, so nothing here touches errno or re-enters the shim. Worker thread only.
 */
#ifndef SHIM_RING_H
#define SHIM_RING_H

#include <stdbool.h>
#include <sys/types.h>

#define RING_BATCH 16 /* one punch per file is in flight: punches of one file queue on its lock */

struct ring_punch {
    int fd;
    off_t off, len;
    int result; /* 0 or -errno */
};

/* False where the kernel refuses io_uring (old, sysctl, seccomp, memory): use plain calls. */
bool ring_open(void);
void ring_close(void);

/* Submits all and waits for all. False: the ring broke, nothing is known about those whose result
 * is still 1: make them again plainly (punching twice is punching once). */
bool ring_run(struct ring_punch *punch, int n);

#endif
