/* SPDX-License-Identifier: MIT */
/* bench_storm: the jobs of `rlshim bench` where many do the same at a time; see bench.h. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "cmd.h"

#define THREADS     16
#define BLOCK       4096
#define NAMES       20
#define BURST_BYTES ((uint64_t)128 << 20)

static struct {
    double until;
    uint64_t room;      /* bytes that appenders may use */
    atomic_ullong tail; /* the next free byte */
    atomic_ullong acts;
    atomic_ullong worst_ns;
    atomic_int error;
    int fd;
} storm;

static bool failed(void)
{
    int none = 0;

    atomic_compare_exchange_strong(&storm.error, &none, errno != 0 ? errno : ENOSPC);
    return true;
}

static void took(double seconds)
{
    unsigned long long ns = (unsigned long long)(seconds * 1e9);
    unsigned long long seen = atomic_load(&storm.worst_ns);

    while (ns > seen && !atomic_compare_exchange_weak(&storm.worst_ns, &seen, ns))
        ;
    atomic_fetch_add(&storm.acts, 1);
}

/* Appends 4 KiB and syncs it, as the committers of a database log do. */
static void *commit_loop(void *unused)
{
    char block[BLOCK];
    double before = bench_now(), after;

    memset(block, 'c', sizeof block);
    while (before < storm.until && atomic_load(&storm.error) == 0) {
        uint64_t at = atomic_fetch_add(&storm.tail, BLOCK) % storm.room;

        if ((pwrite(storm.fd, block, BLOCK, (off_t)at) != BLOCK || fdatasync(storm.fd) != 0) &&
            failed())
            break;
        after = bench_now();
        took(after - before);
        before = after;
    }
    return unused;
}

static int in_threads(void *(*loop)(void *), unsigned n)
{
    pthread_t thread[THREADS];
    unsigned started = 0;

    while (started < n && pthread_create(&thread[started], NULL, loop, NULL) == 0)
        started++;
    if (started < n)
        failed();
    for (unsigned i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    errno = atomic_load(&storm.error);
    return errno == 0 ? 0 : -1;
}

int bench_commit(const struct bench_size *size)
{
    static const char *const counters[] = {"flush_shared", NULL};
    double begin = bench_now();

    storm.fd = open("log", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    storm.room = size->bytes / 2 / BLOCK * BLOCK;
    storm.until = begin + size->seconds;
    if (storm.fd < 0 || in_threads(commit_loop, THREADS) != 0)
        return bench_end("appending and syncing");
    bench_put("commits", (double)atomic_load(&storm.acts) / (bench_now() - begin));
    bench_put("worst_commit", (double)atomic_load(&storm.worst_ns));
    bench_count(counters);
    return EXIT_WORKED;
}

/* A buffered burst, then fsync, again and again over the same bytes, beside one that commits. */
static void *burst_loop(void *arg)
{
    uint64_t bytes = *(uint64_t *)arg;
    static char piece[256 << 10];
    int fd = open("bulk", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    memset(piece, 'b', sizeof piece);
    if (fd < 0) {
        failed();
        return NULL;
    }
    while (bench_now() < storm.until && atomic_load(&storm.error) == 0) {
        for (uint64_t at = 0; at < bytes; at += sizeof piece)
            if (pwrite(fd, piece, sizeof piece, (off_t)at) != (ssize_t)sizeof piece && failed())
                break;
        if (fsync(fd) != 0)
            failed();
    }
    close(fd);
    return NULL;
}

int bench_burst(const struct bench_size *size)
{
    static const char *const counters[] = {"window_started", NULL};
    uint64_t bytes = size->bytes / 2 < BURST_BYTES ? size->bytes / 2 : BURST_BYTES;
    pthread_t bulk;
    int rc;

    storm.fd = open("log", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    storm.room = size->bytes / 4 / BLOCK * BLOCK;
    storm.until = bench_now() + size->seconds;
    if (storm.fd < 0 || pthread_create(&bulk, NULL, burst_loop, &bytes) != 0)
        return bench_end("bursts");
    rc = in_threads(commit_loop, 1);
    pthread_join(bulk, NULL);
    errno = atomic_load(&storm.error);
    if (rc != 0 || errno != 0)
        return bench_end("bursts");
    bench_put("worst_append", (double)atomic_load(&storm.worst_ns));
    bench_count(counters);
    return EXIT_WORKED;
}

static void *create_loop(void *unused)
{
    char name[32];
    double before = bench_now(), after;

    for (unsigned i = 0; before < storm.until && atomic_load(&storm.error) == 0; i++) {
        int fd;

        snprintf(name, sizeof name, "n%u", i % NAMES);
        fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 && failed())
            break;
        after = bench_now();
        took(after - before);
        close(fd);
        before = bench_now();
    }
    return unused;
}

int bench_create(const struct bench_size *size)
{
    static const char *const counters[] = {"create_found", "create_waited", NULL};
    double begin = bench_now();

    storm.until = begin + size->seconds;
    if (in_threads(create_loop, THREADS) != 0)
        return bench_end("opening with O_CREAT");
    bench_put("opens", (double)atomic_load(&storm.acts) / (bench_now() - begin));
    bench_put("worst_open", (double)atomic_load(&storm.worst_ns));
    bench_count(counters);
    return EXIT_WORKED;
}
