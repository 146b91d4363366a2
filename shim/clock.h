/* SPDX-License-Identifier: MIT */
/*
 * clock: the clock that calls are timed with, when they are.
 *
 * A call is timed by two looks at it, so what a look costs is what timing costs: 35 ns through the
 * vDSO on a virtual machine, 14 ns for the processor's own counter, of which the kernel says
 * whether it may be relied on. Any thread, any handler; no system call.
 */
#ifndef SHIM_CLOCK_H
#define SHIM_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct clock {
    uint64_t mult; /* nanoseconds of a tick, in 2^-32 */
    bool counter;  /* the processor's; else the vDSO's, where a tick is a nanosecond */
};
extern struct clock clock_used __attribute__((visibility("hidden")));

/* Once, before anything is timed. Takes 0.3 ms to learn the counter's pace. */
void clock_start(void);

uint64_t clock_vdso(void); /* CLOCK_MONOTONIC */

static inline uint64_t clock_ticks(void)
{
    if (__builtin_expect(!clock_used.counter, 0))
        return clock_vdso();
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
}

/* Processors may disagree by a few ticks. */
static inline uint64_t clock_ns(uint64_t from, uint64_t to)
{
    return to > from ? (uint64_t)((unsigned __int128)(to - from) * clock_used.mult >> 32) : 0;
}

#endif
