/* SPDX-License-Identifier: MIT */
/* clock: see clock.h. */
#include <fcntl.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "clock.h"
#include "real.h"
#include "state.h"

#define LEARN_NS 300000u
#define TRIES    5

struct clock clock_used = {.mult = (uint64_t)1 << 32};

static int (*vdso)(clockid_t, struct timespec *);

uint64_t clock_vdso(void)
{
    struct timespec now = {0};

    if (vdso != NULL)
        vdso(CLOCK_MONOTONIC, &now);
    else
        rl_raw(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The kernel keeps its own time by the counter only where that runs evenly, and alike on all
 * processors. */
static bool kernel_relies(void)
{
    static const char *const good[] = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page",
                                       "arch_sys_counter"};
    char name[64];
    long n, fd = rl_raw(SYS_openat, AT_FDCWD,
                        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
                        O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    n = rl_raw(SYS_read, fd, name, sizeof name);
    rl_raw(SYS_close, fd);
    for (size_t i = 0; n > 0 && i < sizeof good / sizeof *good; i++)
        if ((size_t)n == strlen(good[i]) + 1 && memcmp(name, good[i], (size_t)n - 1) == 0)
            return true;
    return false;
}

static bool runs_evenly(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;

    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & 1u << 8) != 0;
#else
    return true;
#endif
}

/* Both clocks at one moment, as nearly as can be had. */
static void both(uint64_t *ticks, uint64_t *ns)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < TRIES; i++) {
        uint64_t before = clock_ticks(), now = clock_vdso(), after = clock_ticks();

        if (after - before < least) {
            least = after - before;
            *ticks = before + least / 2;
            *ns = now;
        }
    }
}

static bool learn(void)
{
    uint64_t t0 = 0, t1 = 0, n0 = 0, n1 = 0;

    both(&t0, &n0);
    do
        both(&t1, &n1);
    while (n1 - n0 < LEARN_NS);
    if (t1 <= t0)
        return false;
    clock_used.mult = (uint64_t)(((unsigned __int128)(n1 - n0) << 32) / (t1 - t0));
    return clock_used.mult != 0;
}

void clock_start(void)
{
    *(void **)&vdso = real_vdso("__vdso_clock_gettime", "__kernel_clock_gettime");
    if (vdso == NULL || !kernel_relies() || !runs_evenly())
        return;
    clock_used.counter = true;
    if (!learn())
        clock_used = (struct clock){.mult = (uint64_t)1 << 32};
}
