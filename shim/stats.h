/* SPDX-License-Identifier: MIT */
/*
 * stats: the counters of this process, in a mapping that others can read (`stats = DIRECTORY`) and
 * that outlives a kill there.
 *
 * Any thread may count, also in handlers and in the worker; counters are independent of each other.
 * Nothing on the path of an I/O call that needs no help counts anything unless report, stats or
 * mode = observe asks for it. Zeroed memory is a valid page; stats_page_init names it.
 */
#ifndef SHIM_STATS_H
#define SHIM_STATS_H

#include "../lockmgr/sync.h"

#define STATS_MAGIC   0x74617473686c7204u /* "\4rlhstat" in memory: never a text file */
#define STATS_VERSION 2

enum stat_id {
#define COUNT(name, help) STAT_##name,
#define PEAK(name, help)  STAT_##name,
#include "stats.def"
#undef COUNT
#undef PEAK
    STAT_COUNT
};

enum why {
#define WHY(name, help) WHY_##name,
#include "why.def"
#undef WHY
    WHY_COUNT
};

/* What there is at this moment, as far as the thread that sees to it last looked. */
enum gauge_id {
    GAUGE_punch_ranges,   /* queued */
    GAUGE_punch_since_ns, /* CLOCK_MONOTONIC of the oldest that is in no pass yet, 0 none */
    GAUGE_held_files,     /* deleted, to be freed */
    GAUGE_held_bytes,
    GAUGE_held_since_ns, /* CLOCK_MONOTONIC since when some file was held at any time, 0 none is */
    GAUGE_COUNT
};

struct stats_page {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes; /* of this struct */
    uint32_t pid;
    uint32_t counters; /* STAT_COUNT */
    uint32_t reasons;  /* WHY_COUNT */
    uint32_t pad;
    uint64_t started_ns; /* CLOCK_REALTIME */
    char program[64];    /* program name, NUL-terminated */
    uint64_t value[STAT_COUNT];
    uint64_t settled[WHY_COUNT];
    uint64_t gauge[GAUGE_COUNT];
};

/* Where this process counts; never NULL (a private page until the shared one is there). */
extern struct stats_page *stats __attribute__((visibility("hidden")));

static inline void stat_add(enum stat_id id, uint64_t n)
{
    rl_add_64(&stats->value[id], n);
}

static inline void stat_gauge(enum gauge_id id, uint64_t n)
{
    if (rl_load_64(&stats->gauge[id]) != n)
        rl_store_64(&stats->gauge[id], n);
}

static inline void stat_peak(enum stat_id id, uint64_t n)
{
    uint64_t seen = rl_load_64(&stats->value[id]);

    while (n > seen && !rl_cas_64(&stats->value[id], &seen, n))
        ;
}

void stats_page_init(struct stats_page *page, uint32_t pid, uint64_t started_ns,
                     const char *program);

/* Moves counting to `page`, which must stay mapped. What was counted so far moves along. */
void stats_use(struct stats_page *page);

/* Names and help texts, for reports. */
const char *stat_name(enum stat_id id);
const char *stat_help(enum stat_id id);
bool stat_is_peak(enum stat_id id);
const char *why_name(enum why why);
const char *why_help(enum why why);

#endif
