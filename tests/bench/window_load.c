/* SPDX-License-Identifier: MIT */
/*
 * window_load: what writeback_window is about. Prints one line of JSON.
 *
 *   window_load beside DIR SECONDS   one thread writes 512 MiB through the page cache, 1 MiB a
 *       call, and fsyncs, again and again; another appends 4 KiB to a log and fdatasyncs. The
 *       figures of the log's syncs, and the writer's rate.
 *   window_load last DIR [MIB]       MIB (256) at the speed of memory, then one fdatasync: how long
 *       that takes, and how long the writes took.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define TOOL_NAME "window_load"
#include "../../examples/latency.h"
#include "../../examples/tool.h"

#define BURST_BYTES ((uint64_t)512 << 20)
#define CALL_BYTES  ((size_t)1 << 20)
#define WRAP_BYTES  ((uint64_t)3 << 30)
#define LOG_BYTES   4096

static char bulk_path[PATH_MAX], log_path[PATH_MAX];
static atomic_bool stop;
static uint64_t bulk_bytes, bulk_ns;

static int create(char *path, const char *dir, const char *name)
{
    int fd;

    snprintf(path, PATH_MAX, "%s/%s", dir, name);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        die(3, "cannot make %s: %m", path);
    return fd;
}

static void put(int fd, const char *path, const char *from, size_t n)
{
    if (write(fd, from, n) != (ssize_t)n)
        die(1, "cannot write to %s: %m", path);
}

static void *bursts(void *arg)
{
    int fd = *(int *)arg;
    char *block = big_buffer(CALL_BYTES);
    uint64_t size = 0, begin = now_ns();

    memset(block, 'x', CALL_BYTES);
    while (!atomic_load(&stop)) {
        for (uint64_t n = 0; n < BURST_BYTES && !atomic_load(&stop); n += CALL_BYTES) {
            put(fd, bulk_path, block, CALL_BYTES);
            bulk_bytes += CALL_BYTES;
        }
        if (fsync(fd) != 0)
            die(1, "fsync of %s: %m", bulk_path);
        size += BURST_BYTES;
        if (size >= WRAP_BYTES) {
            if (lseek(fd, 0, SEEK_SET) != 0)
                die(1, "%s: %m", bulk_path);
            size = 0;
        }
    }
    bulk_ns = now_ns() - begin;
    return NULL;
}

static void beside(const char *dir, double seconds)
{
    static struct latency lat;
    int bulk = create(bulk_path, dir, "bulk"), log = create(log_path, dir, "log");
    char block[LOG_BYTES];
    uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
    pthread_t thread;
    uint64_t n = 0;

    memset(block, 'l', sizeof block);
    if (pthread_create(&thread, NULL, bursts, &bulk) != 0)
        die(3, "no thread");
    while (now_ns() < end) {
        uint64_t begin = now_ns();

        put(log, log_path, block, sizeof block);
        if (fdatasync(log) != 0)
            die(1, "fdatasync of %s: %m", log_path);
        latency_add(&lat, now_ns() - begin);
        n++;
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    printf("{\"commits\":%llu,\"worst_ms\":%.3f,\"p99_us\":%.1f,\"p50_us\":%.1f,"
           "\"burst_mib_s\":%.1f}\n",
           (unsigned long long)n, ms(lat.worst_ns), latency_percentile_us(&lat, 0.99),
           latency_percentile_us(&lat, 0.5), (double)bulk_bytes / MIB / ((double)bulk_ns / 1e9));
    unlink(bulk_path);
    unlink(log_path);
}

static void last(const char *dir, uint64_t bytes)
{
    int fd = create(bulk_path, dir, "bulk");
    char *block = big_buffer(CALL_BYTES);
    uint64_t begin = now_ns(), written, synced;

    memset(block, 'x', CALL_BYTES);
    for (uint64_t n = 0; n < bytes; n += CALL_BYTES)
        put(fd, bulk_path, block, CALL_BYTES);
    written = now_ns();
    if (fdatasync(fd) != 0)
        die(1, "fdatasync of %s: %m", bulk_path);
    synced = now_ns();
    printf("{\"write_ms\":%.3f,\"sync_ms\":%.3f,\"all_ms\":%.3f,\"mib_s\":%.1f}\n",
           ms(written - begin), ms(synced - written), ms(synced - begin),
           (double)bytes / MIB / ((double)(synced - begin) / 1e9));
    unlink(bulk_path);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "beside") == 0)
        beside(argv[2], strtod(argv[3], NULL));
    else if ((argc == 3 || argc == 4) && strcmp(argv[1], "last") == 0)
        last(argv[2], (uint64_t)(argc == 4 ? strtoul(argv[3], NULL, 10) : 256) * MIB);
    else
        die(2, "usage: window_load beside DIR SECONDS | window_load last DIR [MIB]");
    return 0;
}
