/* SPDX-License-Identifier: MIT */
/*
 * bench: what every measuring loop here shares: a clock, a count from the command line, and one
 * line of JSON with the mean time of a call and the resident memory at the end. Header only.
 */
#ifndef TESTS_BENCH_H
#define TESTS_BENCH_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline uint64_t bench_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t bench_cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline void bench_die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static inline unsigned long bench_count(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end || !value || value > 100000000) {
        fprintf(stderr, "%s: must be a count from 1 to 100000000\n", text);
        exit(2);
    }
    return value;
}

/* statm would do, but the kernel batches its counters; the roll-up walks the page tables. */
static inline long bench_rss_kib(void)
{
    char line[128];
    long kib = -1;
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "Rss: %ld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

static inline void bench_print(uint64_t took_ns, unsigned long count)
{
    printf("{\"ns\":%.2f,\"rss_kib\":%ld}\n", (double)took_ns / (double)count, bench_rss_kib());
}

#endif
