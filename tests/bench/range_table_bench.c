/* SPDX-License-Identifier: MIT */
/*
 * range_table_bench: what the range table costs, in nanoseconds an operation.
 *
 *   range_table_bench [--ms N]       N milliseconds a figure (200)
 *
 * For each figure one line for people and one for programs: "result NAME threads=T ns=X". A figure
 * is the best of five runs: what disturbs a run only ever makes it slower. Each thread works on its
 * own part of one table, as threads of one program do on one file.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lockmgr/gate.h"
#include "../../lockmgr/range_table.h"

#define NODES   8192
#define MIB     ((uint64_t)1 << 20)
#define BATCH   256
#define RUNS    5
#define THREADS 2
#define K4      4096u

static struct rl_table table, *const t = &table;
static struct rl_pool *pool;
static uint32_t started, stop;
static uint64_t ms = 200;

struct work {
    const char *name;
    void (*prepare)(void);
    void (*batch)(unsigned me, uint64_t *state);
    unsigned ops; /* in a batch */
};

struct worker {
    pthread_t thread;
    const struct work *work;
    unsigned me;
    uint64_t batches;
};

static void drain(void)
{
    struct rl_span s;

    rl_drain_begin(t, pool);
    while (rl_drain_next(t, pool, RL_FOREVER, &s))
        rl_drain_applied(t, pool, &s);
    rl_drain_end(t);
}

static void prepare_empty(void)
{
    memset(t, 0, sizeof *t);
    memset(pool, 0, sizeof *pool + NODES * sizeof(struct rl_node));
    pool->capacity = NODES;
    pool->limit = NODES / 2;
    rl_drain_open(t, pool);
}

/* n ranges of 64 MiB each thread's part, none of which the looker's byte meets. */
static void prepare_ranges(unsigned n)
{
    prepare_empty();
    for (unsigned i = 0; i < n; i++)
        rl_table_put(t, pool, t->act, i * 8191u % 64 * MIB + 1 + i * 64,
                     i * 8191u % 64 * MIB + 9 + i * 64, 1);
}

static void prepare_1(void)
{
    prepare_ranges(1);
}

static void prepare_64(void)
{
    prepare_ranges(64);
}

static void prepare_1024(void)
{
    prepare_ranges(1024);
}

static void maybe_batch(unsigned me, uint64_t *state)
{
    for (unsigned i = 0; i < BATCH; i++)
        *state += rl_table_maybe(t, (me * 64 + i % 64) * MIB, (me * 64 + i % 64) * MIB + K4);
}

static void ascending_batch(unsigned me, uint64_t *state)
{
    uint64_t base = (uint64_t)me << 44;

    for (unsigned i = 0; i < BATCH; i++) {
        /* 4 GiB is all that a tail holds: begin again within it, which merges as well */
        uint64_t at = base + (*state)++ % 1000000 * K4;

        if (rl_table_put(t, pool, t->act, at, at + K4, 1) == RL_PUT_FULL)
            abort();
    }
}

/* Takes and gives back: the consumer's part is in the figure, for the pool is finite. */
static pthread_mutex_t consumer = PTHREAD_MUTEX_INITIALIZER;

static void random_batch(unsigned me, uint64_t *state)
{
    bool full = false;

    *state += me + 1;
    for (unsigned i = 0; i < BATCH; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        uint64_t at = (*state >> 40) * K4;

        full |= rl_table_put(t, pool, t->act, at, at + K4, 1) == RL_PUT_FULL;
    }
    if (full || rl_load_32(&pool->used) > NODES / 4) {
        pthread_mutex_lock(&consumer);
        if (rl_load_32(&pool->used) > NODES / 8)
            drain();
        pthread_mutex_unlock(&consumer);
    }
}

static void overlaps_batch(unsigned me, uint64_t *state)
{
    struct rl_span out[16];

    for (unsigned i = 0; i < BATCH; i++) {
        uint64_t at = (me + i) % 64 * MIB + MIB - K4;

        *state += (uint64_t)rl_table_overlaps(t, pool, at, at + 1, out, 16);
    }
}

static void *work_thread(void *arg)
{
    struct worker *w = arg;
    uint64_t state = 0;

    while (rl_load_32(&started) == 0)
        ;
    while (rl_load_32(&stop) == 0) {
        w->work->batch(w->me, &state);
        w->batches++;
    }
    return (void *)(uintptr_t)(state == 42); /* the work is used */
}

static double run_once(const struct work *work, unsigned threads)
{
    struct worker w[THREADS] = {0};
    struct timespec ts = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    uint64_t begin, took, batches = 0;

    work->prepare();
    rl_store_32(&started, 0);
    rl_store_32(&stop, 0);
    for (unsigned i = 0; i < threads; i++) {
        w[i].work = work;
        w[i].me = i;
        if (pthread_create(&w[i].thread, NULL, work_thread, &w[i]) != 0)
            abort();
    }
    begin = rl_now_ns();
    rl_store_32(&started, 1);
    nanosleep(&ts, NULL);
    rl_store_32(&stop, 1);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(w[i].thread, NULL);
    took = rl_now_ns() - begin;
    for (unsigned i = 0; i < threads; i++)
        batches += w[i].batches;
    return batches == 0 ? 0 : (double)took * threads / ((double)batches * work->ops);
}

int main(int argc, char **argv)
{
    static const struct work works[] = {
        {"maybe, nothing queued", prepare_empty, maybe_batch, BATCH},
        {"put, ascending", prepare_empty, ascending_batch, BATCH},
        {"put, random, with its draining", prepare_empty, random_batch, BATCH},
        {"overlaps, 1 range queued", prepare_1, overlaps_batch, BATCH},
        {"overlaps, 64 ranges queued", prepare_64, overlaps_batch, BATCH},
        {"overlaps, 1024 ranges queued", prepare_1024, overlaps_batch, BATCH},
    };

    if (argc == 3 && strcmp(argv[1], "--ms") == 0)
        ms = strtoull(argv[2], NULL, 10);
    pool = malloc(sizeof *pool + NODES * sizeof(struct rl_node));
    if (pool == NULL || ms == 0)
        return 1;
    for (unsigned i = 0; i < sizeof works / sizeof *works; i++)
        for (unsigned threads = 1; threads <= THREADS; threads++) {
            char name[64];
            double best = 0;

            for (int r = 0; r < RUNS; r++) {
                double ns = run_once(&works[i], threads);

                if (best == 0 || (ns != 0 && ns < best))
                    best = ns;
            }
            snprintf(name, sizeof name, "%s", works[i].name);
            printf("%-34s %u thread%s %9.1f ns\n", name, threads, threads == 1 ? " " : "s", best);
            for (char *p = name; *p != '\0'; p++)
                if (*p == ' ' || *p == ',')
                    *p = '_';
            printf("result range_table_%s threads=%u ns=%.2f\n", name, threads, best);
        }
    free(pool);
    return 0;
}
