/* SPDX-License-Identifier: MIT */
/*
 * worker: the one thread that applies queued punches and looks for evidence of sole use.
 *
 * It is a thread the C library does not know: made by clone(2) with a thread pointer of its own,
 * because a pthread would be counted as one of the program's (the process would not end when the
 * program's last thread returns, and the worker itself would run the exit handlers). So nothing it
 * runs may use libc beyond mem* and str*, nor thread-local variables: raw calls only. Sanitizer
 * builds use a pthread, since their instrumentation needs TLS.
 *
 * Right after its start it takes a descriptor table of its own, empty (close_range with
 * CLOSE_RANGE_UNSHARE), and fetches what it needs with pidfd_getfd from the program's. That gives
 * all of these at once, on kernels from 5.9 on:
 *   - no descriptor of ours in the program's table: closefrom, /proc/self/fd, the lowest-free rule,
 *     RLIMIT_NOFILE are as without the shim; fork and exec inherit nothing of ours;
 *   - the reference cannot be closed or replaced behind our back, so a punch never meets another
 *     inode; and
 *   - closing it drops no POSIX lock of the program: they belong to the descriptor table.
 *
 * It starts when a punch could be deferred, leaves after WORKER_IDLE_NS without work, and is made
 * to leave before calls that a second thread would change (settle_stop).
 */
#ifndef SHIM_WORKER_H
#define SHIM_WORKER_H

#include "file.h"

#define WORKER_IDLE_NS 200000000u
#define WORKER_FILES   256 /* files with deferral on at one time */

/* Inode entries that are on or draining: index + 1, 0 free. Written by the worker. */
extern uint32_t worker_files[WORKER_FILES] __attribute__((visibility("hidden")));

/* Starts it if it is not running; false if it cannot be had. Any thread. */
bool worker_start(void);

/* Something to do now. A load when it is already awake. */
void worker_wake(void);

/* Asks for evidence about the inode behind fd, which the caller has open; the answer shows in the
 * range table's activation or in file_state.refusal. */
void worker_ask(struct rl_inode *inode, uint32_t gen, int fd);

/* Makes it leave and waits until the thread is gone. Everything must have been ended before. */
void worker_stop(void);

/* In a forked child: there is none. */
void worker_forked(void);

bool worker_running(void);

#endif
