/* SPDX-License-Identifier: MIT */
/*
 * create_loop [--existing] DIR COUNT: COUNT opens with O_CREAT, and closes, of distinct new names
 * in a directory of its own under DIR, or of one name that exists; the mean ns of a pair, and the
 * mean of its processor time, as JSON on stdout. The names are removed afterwards, untimed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>
#include "bench.h"

int main(int argc, char **argv)
{
    char dir[PATH_MAX - 32], path[PATH_MAX];
    int existing = argc == 4 && strcmp(argv[1], "--existing") == 0;
    if (argc != 3 + existing) {
        fprintf(stderr, "usage: create_loop [--existing] DIR COUNT\n");
        return 2;
    }
    unsigned long count = bench_count(argv[2 + existing]);
    if (snprintf(dir, sizeof(dir), "%s/create_loop.%d", argv[1 + existing], getpid()) >=
        (int)sizeof(dir))
        return 2;
    if (mkdir(dir, 0700))
        bench_die(dir);
    uint64_t begin = bench_now_ns(), cpu = bench_cpu_ns();
    for (unsigned long i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%lu", dir, existing ? 0 : i);
        int fd = open(path, O_WRONLY | O_CREAT, 0600);
        if (fd < 0 || close(fd))
            bench_die(path);
    }
    cpu = bench_cpu_ns() - cpu;
    uint64_t took_ns = bench_now_ns() - begin;
    for (unsigned long i = 0; i < (existing ? 1 : count); i++) {
        snprintf(path, sizeof(path), "%s/%lu", dir, i);
        if (unlink(path))
            bench_die(path);
    }
    if (rmdir(dir))
        bench_die(dir);
    printf("{\"ns\":%.2f,\"cpu_ns\":%.2f,\"rss_kib\":%ld}\n", (double)took_ns / (double)count,
           (double)cpu / (double)count, bench_rss_kib());
    return 0;
}
