/* SPDX-License-Identifier: MIT */
/*
 * open_loop FILE COUNT: COUNT pairs of open and close of an existing file, and the mean ns of a
 * pair as JSON on stdout, by the clock and of processor time: nothing is waited for in it, and a busy
 * neighbour changes the former by more than a shim does.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>
#include "bench.h"

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: open_loop FILE COUNT\n");
        return 2;
    }
    unsigned long count = bench_count(argv[2]);
    int fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        bench_die(argv[1]);
    uint64_t begin = bench_now_ns(), cpu_begin = bench_cpu_ns();
    for (unsigned long i = 0; i < count; i++) {
        int one = open(argv[1], O_RDONLY);
        if (one < 0 || close(one))
            bench_die(argv[1]);
    }
    uint64_t cpu = bench_cpu_ns() - cpu_begin, took = bench_now_ns() - begin;
    printf("{\"ns\":%.2f,\"cpu_ns\":%.2f,\"rss_kib\":%ld}\n", (double)took / (double)count,
           (double)cpu / (double)count, bench_rss_kib());
    return 0;
}
