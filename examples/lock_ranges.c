/* SPDX-License-Identifier: MIT */
/*
 * lock_ranges: the range lock on its own, without the shim (librangelock.a, range_lock(3)).
 *
 *   lock_ranges [--threads N] [--seconds S] [--kib K] [--no-sync] [DIR]   8, 2 s each, 64 KiB, /tmp
 *
 * Threads of one program keep records of K KiB in one file, one region of the file each, and each
 * record has to be read, changed, written back and on disk before anybody else may see it: pread,
 * pwrite, fdatasync. Under one mutex for the file they take turns although they never meet; with a
 * range lock only those that meet would, and flushes of several go together. Without the flush the
 * threads only copy memory, and there is little to win. A thread
 * that counts all records now and then takes the whole file shared. Every record is checked.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../include/rlshim/range_lock.h"

#define MOST    64
#define RECORDS 16 /* of each thread */

static struct rl_range_lock ranges; /* zeroed memory is a free lock */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool use_ranges;
static int fd;
static size_t record_bytes = 64 * 1024;
static unsigned threads = 8;
static bool sync_each = true;
static bool stop;
static unsigned long torn;

struct writer {
    pthread_t thread;
    unsigned me;
    unsigned long updates;
};

static bool stopped(void)
{
    return __atomic_load_n(&stop, __ATOMIC_RELAXED);
}

static void lock(struct rl_range_hold *hold, uint64_t start, uint64_t end, enum rl_range_mode mode)
{
    if (!use_ranges)
        pthread_mutex_lock(&mutex);
    else if (rl_range_acquire(&ranges, hold, start, end, mode) != 0)
        abort(); /* only a thread that waits for itself is refused */
}

static void unlock(struct rl_range_hold *hold)
{
    if (!use_ranges)
        pthread_mutex_unlock(&mutex);
    else
        rl_range_release(hold);
}

/* A record is whole if its first and its last number agree. */
static void check(const uint64_t *record)
{
    if (record[0] != record[record_bytes / 8 - 1])
        __atomic_fetch_add(&torn, 1, __ATOMIC_RELAXED);
}

static void *writer_thread(void *arg)
{
    struct writer *w = arg;
    uint64_t *record = malloc(record_bytes);

    while (record != NULL && !stopped()) {
        uint64_t at = (w->me * RECORDS + w->updates % RECORDS) * (uint64_t)record_bytes;
        struct rl_range_hold hold;

        lock(&hold, at, at + record_bytes, RL_EXCLUSIVE);
        if (pread(fd, record, record_bytes, (off_t)at) != (ssize_t)record_bytes)
            abort();
        check(record);
        record[0]++;
        record[record_bytes / 8 - 1]++;
        if (pwrite(fd, record, record_bytes, (off_t)at) != (ssize_t)record_bytes)
            abort();
        if (sync_each && fdatasync(fd) != 0)
            abort();
        unlock(&hold);
        w->updates++;
    }
    free(record);
    return NULL;
}

static void *counter_thread(void *arg)
{
    uint64_t *record = malloc(record_bytes);

    while (record != NULL && !stopped()) {
        struct timespec nap = {.tv_nsec = 100000000};
        struct rl_range_hold hold;

        lock(&hold, 0, RL_END, RL_SHARED);
        for (uint64_t i = 0; i < threads; i++) {
            if (pread(fd, record, record_bytes, (off_t)(i * RECORDS * record_bytes)) > 0)
                check(record);
        }
        unlock(&hold);
        ++*(unsigned long *)arg;
        nanosleep(&nap, NULL);
    }
    free(record);
    return NULL;
}

static double run(bool with_ranges, double seconds, unsigned long *counts)
{
    static struct writer w[MOST];
    struct timespec ts = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    pthread_t counter;
    unsigned long updates = 0;

    memset(w, 0, sizeof w);
    use_ranges = with_ranges;
    *counts = 0;
    __atomic_store_n(&stop, false, __ATOMIC_RELAXED);
    if (pthread_create(&counter, NULL, counter_thread, counts) != 0)
        abort();
    for (unsigned i = 0; i < threads; i++) {
        w[i].me = i;
        if (pthread_create(&w[i].thread, NULL, writer_thread, &w[i]) != 0)
            abort();
    }
    nanosleep(&ts, NULL);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(w[i].thread, NULL);
        updates += w[i].updates;
    }
    pthread_join(counter, NULL);
    return (double)updates / seconds;
}

int main(int argc, char **argv)
{
    const char *dir = "/tmp";
    char path[4096];
    double seconds = 2, rate[2] = {0, 0};
    unsigned long counts[2];

    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && strcmp(argv[i], "--threads") == 0)
            threads = (unsigned)atoi(argv[++i]);
        else if (i + 1 < argc && strcmp(argv[i], "--seconds") == 0)
            seconds = atof(argv[++i]);
        else if (i + 1 < argc && strcmp(argv[i], "--kib") == 0)
            record_bytes = (size_t)atoi(argv[++i]) * 1024;
        else if (strcmp(argv[i], "--no-sync") == 0)
            sync_each = false;
        else if (argv[i][0] != '-')
            dir = argv[i];
        else
            threads = 0;
    }
    if (threads < 1 || threads > MOST || seconds <= 0 || record_bytes < 4096 ||
        record_bytes > (size_t)64 << 20) {
        fprintf(stderr,
                "usage: lock_ranges [--threads 1-%d] [--seconds S] [--kib 4-65536] "
                "[--no-sync] [DIR]\n",
                MOST);
        return 2;
    }
    snprintf(path, sizeof path, "%s/lock_ranges.XXXXXX", dir);
    fd = mkstemp(path);
    if (fd < 0) {
        fprintf(stderr, "lock_ranges: cannot make a file in %s; name another directory\n", dir);
        return 1;
    }
    unlink(path);
    if (ftruncate(fd, (off_t)(threads * RECORDS * record_bytes)) != 0)
        return 1;
    run(false, seconds / 4, &counts[0]); /* fills the page cache */
    rate[0] = run(false, seconds, &counts[0]);
    rate[1] = run(true, seconds, &counts[1]);
    printf("%u writers, records of %zu KiB read, changed, written back%s in %s:\n\n", threads,
           record_bytes / 1024, sync_each ? " and flushed" : "", dir);
    printf("    %-14s %14s %18s\n", "", "updates/s", "whole-file counts");
    printf("    %-14s %14.0f %18lu\n", "one mutex", rate[0], counts[0]);
    printf("    %-14s %14.0f %18lu\n", "range lock", rate[1], counts[1]);
    printf("\n    range lock / mutex: %.2f; records found torn: %lu\n", rate[1] / rate[0], torn);
    return torn == 0 ? 0 : 1;
}
