/* SPDX-License-Identifier: MIT */
/*
 * pread_loop FILE COUNT: COUNT cached 4 KiB preads of one block, and the mean ns of one as JSON on
 * stdout. The file is created where it is missing. Also run under callgrind (instructions.sh),
 * where two runs of different COUNT tell what one call executes.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>
#include "bench.h"

int main(int argc, char **argv)
{
    static char buf[4096] __attribute__((aligned(4096)));
    if (argc != 3) {
        fprintf(stderr, "usage: pread_loop FILE COUNT\n");
        return 2;
    }
    unsigned long count = bench_count(argv[2]);
    int fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        bench_die(argv[1]);
    if (pwrite(fd, buf, sizeof(buf), 0) != sizeof(buf))
        bench_die("pwrite");
    uint64_t begin = bench_now_ns();
    for (unsigned long i = 0; i < count; i++)
        if (pread(fd, buf, sizeof(buf), 0) != sizeof(buf))
            bench_die("pread");
    bench_print(bench_now_ns() - begin, count);
    return 0;
}
