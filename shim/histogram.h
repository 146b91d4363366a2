/* SPDX-License-Identifier: MIT */
/*
 * histogram: latencies in log-linear buckets, four to a power of two.
 *
 * Bucket 0 holds everything below HIST_FIRST_NS, the last everything from its bound on; what lies
 * between is off by an eighth at most if a bucket's middle stands for it. All of this is pure.
 * Where the counts are kept, and by whom, is the owner's business.
 */
#ifndef SHIM_HISTOGRAM_H
#define SHIM_HISTOGRAM_H

#include <stdint.h>

enum {
    HIST_FIRST_BITS = 6,
    HIST_FIRST_NS = 1 << HIST_FIRST_BITS,
    HIST_STEP_BITS = 2,  /* 4 buckets to a power of two */
    HIST_LAST_BITS = 38, /* 275 s */
    HIST_BUCKETS = 1 + ((HIST_LAST_BITS - HIST_FIRST_BITS) << HIST_STEP_BITS),
};

static inline unsigned hist_bucket(uint64_t ns)
{
    unsigned top, at;

    if (ns < HIST_FIRST_NS)
        return 0;
    top = 63 - (unsigned)__builtin_clzll(ns);
    at = 1 + ((top - HIST_FIRST_BITS) << HIST_STEP_BITS) +
         (unsigned)(ns >> (top - HIST_STEP_BITS) & ((1u << HIST_STEP_BITS) - 1));
    return at < HIST_BUCKETS ? at : HIST_BUCKETS - 1;
}

/* The smallest value of a bucket; hist_low(HIST_BUCKETS) is where the last would end. */
static inline uint64_t hist_low(unsigned bucket)
{
    unsigned step = bucket - 1;

    if (bucket == 0)
        return 0;
    return ((uint64_t)(1u << HIST_STEP_BITS) + (step & ((1u << HIST_STEP_BITS) - 1)))
           << ((step >> HIST_STEP_BITS) + HIST_FIRST_BITS - HIST_STEP_BITS);
}

/* What stands for a bucket. */
static inline uint64_t hist_middle(unsigned bucket)
{
    return (hist_low(bucket) + hist_low(bucket + 1)) / 2;
}

static inline uint64_t hist_count(const uint64_t *hist)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < HIST_BUCKETS; i++)
        n += hist[i];
    return n;
}

/* About the sum of all that was put in. */
static inline uint64_t hist_sum(const uint64_t *hist)
{
    uint64_t ns = 0;

    for (unsigned i = 0; i < HIST_BUCKETS; i++)
        ns += hist[i] * hist_middle(i);
    return ns;
}

/* The value that `part` of `whole` lie at or below (1 of 2: the median); 0 if it is empty. */
static inline uint64_t hist_at(const uint64_t *hist, uint64_t part, uint64_t whole)
{
    uint64_t n = hist_count(hist), want, seen = 0;

    if (n == 0)
        return 0;
    want = (uint64_t)(((unsigned __int128)n * part + whole - 1) / whole);
    for (unsigned i = 0; i < HIST_BUCKETS; i++) {
        seen += hist[i];
        if (seen >= want && seen != 0)
            return hist_middle(i);
    }
    return hist_middle(HIST_BUCKETS - 1);
}

#endif
