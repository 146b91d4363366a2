/* SPDX-License-Identifier: MIT */
/*
 * unlink_loop DIR COUNT: creates COUNT files of 100 bytes in a directory of its own under DIR, then
 * removes them; the mean ns of one unlink as JSON on stdout. Only the unlinks are timed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>
#include "bench.h"

int main(int argc, char **argv)
{
    static const char content[100] = {1};
    char dir[PATH_MAX - 32], path[PATH_MAX];
    if (argc != 3) {
        fprintf(stderr, "usage: unlink_loop DIR COUNT\n");
        return 2;
    }
    unsigned long count = bench_count(argv[2]);
    if (snprintf(dir, sizeof(dir), "%s/unlink_loop.%d", argv[1], getpid()) >= (int)sizeof(dir))
        return 2;
    if (mkdir(dir, 0700))
        bench_die(dir);
    for (unsigned long i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%lu", dir, i);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
        if (fd < 0 || write(fd, content, sizeof(content)) != sizeof(content) || close(fd))
            bench_die(path);
    }
    uint64_t begin = bench_now_ns();
    for (unsigned long i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%lu", dir, i);
        if (unlink(path))
            bench_die(path);
    }
    uint64_t took_ns = bench_now_ns() - begin;
    if (rmdir(dir))
        bench_die(dir);
    bench_print(took_ns, count);
    return 0;
}
