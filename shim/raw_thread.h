/* SPDX-License-Identifier: MIT */
/*
 * raw_thread: a thread that the C library does not know (worker.h says why).
 *
 * Made by clone(2) with a thread pointer of its own, all signals blocked, so that no handler of the
 * program runs on it. What it runs may call nothing of libc but mem* and str*, and use no
 * thread-local variable. Sanitizer builds use a pthread, since their instrumentation needs TLS.
 *
 * The owner sees to it that one raw_thread is started by one thread at a time, and not again before
 * tid is 0.
 */
#ifndef SHIM_RAW_THREAD_H
#define SHIM_RAW_THREAD_H

#include <stdbool.h>
#include <stdint.h>

struct raw_thread {
    uint32_t tid; /* 0: there is none. The kernel clears it and wakes waiters at its end */
    char *stack;  /* kept for the next start */
};

/* Shares everything with the caller, its descriptor table too. False if it cannot be had. */
bool raw_thread_start(struct raw_thread *thread, int (*run)(void *));

/* Returns when the thread is gone; calls knock() (NULL: nothing) every 10 ms until then. */
void raw_thread_gone(struct raw_thread *thread, void (*knock)(void));

#endif
