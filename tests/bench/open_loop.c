/* SPDX-License-Identifier: MIT */
/*
 * open_loop FILE COUNT: COUNT pairs of open and close of an existing file, and the mean ns of a
 * pair as JSON on stdout.
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
    uint64_t begin = bench_now_ns();
    for (unsigned long i = 0; i < count; i++) {
        int one = open(argv[1], O_RDONLY);
        if (one < 0 || close(one))
            bench_die(argv[1]);
    }
    bench_print(bench_now_ns() - begin, count);
    return 0;
}
