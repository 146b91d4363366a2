/* SPDX-License-Identifier: MIT */
/*
 * latency: counts how long calls took, and says where the time went. Header only, one thread adds,
 * readers come after it was joined.
 *
 * Percentiles come from 64 steps to each power of two (1.6 %), so no list of samples is kept. The
 * coarse buckets, a power of two of microseconds each, also carry the time spent in them: one read
 * that is stuck for a second is nothing among a hundred thousand reads, and most of the run.
 */
#ifndef EXAMPLES_LATENCY_H
#define EXAMPLES_LATENCY_H

#include <stdint.h>
#include <stdio.h>
#include <time.h>

#define LATENCY_STALL_NS 5000000u /* a call this long counts as stalled */
#define LATENCY_STEPS    64u
#define LATENCY_FINE     (48 * LATENCY_STEPS)
#define LATENCY_COARSE   25 /* below 2 us .. 16 s and more */

struct latency {
    uint64_t count, worst_ns, stalled_ns;
    uint64_t fine[LATENCY_FINE];
    uint64_t coarse_count[LATENCY_COARSE], coarse_ns[LATENCY_COARSE];
};

static inline uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static inline void latency_add(struct latency *lat, uint64_t ns)
{
    unsigned e = 63 - (unsigned)__builtin_clzll(ns | LATENCY_STEPS);
    unsigned fine = e * LATENCY_STEPS + (unsigned)(ns >> (e - 6)) % LATENCY_STEPS;
    unsigned coarse = 63 - (unsigned)__builtin_clzll((ns / 1000) | 1);

    lat->fine[fine < LATENCY_FINE ? fine : LATENCY_FINE - 1]++;
    coarse = coarse < LATENCY_COARSE ? coarse : LATENCY_COARSE - 1;
    lat->coarse_count[coarse]++;
    lat->coarse_ns[coarse] += ns;
    lat->count++;
    if (ns > lat->worst_ns)
        lat->worst_ns = ns;
    if (ns >= LATENCY_STALL_NS)
        lat->stalled_ns += ns;
}

static inline double latency_percentile_us(const struct latency *lat, double share)
{
    uint64_t want = (uint64_t)(share * (double)lat->count), seen = 0;
    for (unsigned i = 0; i < LATENCY_FINE; i++) {
        seen += lat->fine[i];
        if (seen <= want)
            continue;
        unsigned e = i / LATENCY_STEPS;
        double step = (double)(1ull << (e - 6));
        double ns = (LATENCY_STEPS + i % LATENCY_STEPS) * step + step / 2;
        return (ns < (double)lat->worst_ns ? ns : (double)lat->worst_ns) / 1000;
    }
    return (double)lat->worst_ns / 1000;
}

/* "hist_reads":[..],"hist_ms":[..] with one entry per power of two of microseconds. */
static inline void latency_print_json(const struct latency *lat)
{
    printf("\"hist_reads\":[");
    for (int i = 0; i < LATENCY_COARSE; i++)
        printf("%s%llu", i ? "," : "", (unsigned long long)lat->coarse_count[i]);
    printf("],\"hist_ms\":[");
    for (int i = 0; i < LATENCY_COARSE; i++)
        printf("%s%.3f", i ? "," : "", ms(lat->coarse_ns[i]));
    printf("]");
}

static inline void latency_print_bars(const struct latency *lat, uint64_t wall_ns)
{
    static const char bar[] = "########################################";
    printf("  %-18s %9s  %s\n", "a read took", "reads", "share of the reader's time");
    for (int i = 0; i < LATENCY_COARSE; i++) {
        char label[32];
        double low = i ? (double)(1u << i) : 0, high = (double)(2u << i);
        double share = wall_ns ? (double)lat->coarse_ns[i] / (double)wall_ns : 0;
        if (!lat->coarse_count[i])
            continue;
        if (high <= 1024)
            snprintf(label, sizeof(label), "%.0f - %.0f us", low, high);
        else
            snprintf(label, sizeof(label), "%.1f - %.1f ms", low / 1000, high / 1000);
        printf("  %-18s %9llu  %5.1f %%  %.*s\n", label, (unsigned long long)lat->coarse_count[i],
               100 * share, (int)(share * 40 + 0.5), bar);
    }
}

#endif
