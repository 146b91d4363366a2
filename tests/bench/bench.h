/* SPDX-License-Identifier: MIT */
/* bench: the two lines that every measuring loop here needs. Header only. */
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

static inline void bench_die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

#endif
