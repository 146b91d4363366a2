/* SPDX-License-Identifier: MIT */
/*
 * unlink_loop DIR COUNT PAIRS [calibrate]: creates COUNT small files in a directory of its own
 * under DIR, and removes them, with the shim switched off and on in turns (rl_off, rl_on); one line
 * a pair: the mean ns of processor time of one unlink without and with. Only the unlinks are timed.
 * Processor time, one process for both, and turns of a few files, because a busy neighbour changes
 * an unlink by more than the shim does; nothing is waited for in the unlink of a small file. Looks
 * are rationed by time, and what is saved up while it is off counts: with it on all the time it
 * costs less.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../include/rlshim/control.h"
#include "bench.h"

#define TURN 50ul

static char dir[PATH_MAX - 32];

static uint64_t cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t unlinks(unsigned long first, unsigned long count)
{
    char path[PATH_MAX];
    uint64_t begin = cpu_ns();

    for (unsigned long i = first; i < first + count; i++) {
        snprintf(path, sizeof(path), "%s/%lu", dir, i);
        if (unlink(path))
            bench_die(path);
    }
    return cpu_ns() - begin;
}

int main(int argc, char **argv)
{
    static const char content[100] = {1};
    char path[PATH_MAX];

    if (argc < 4) {
        fprintf(stderr, "usage: unlink_loop DIR COUNT PAIRS [calibrate]\n");
        return 2;
    }
    unsigned long count = bench_count(argv[2]), pairs = bench_count(argv[3]);
    unsigned long turns = count / pairs / (2 * TURN);
    if (turns == 0 ||
        snprintf(dir, sizeof(dir), "%s/unlink_loop.%d", argv[1], getpid()) >= (int)sizeof(dir))
        return 2;
    if (argc == 4 && !rl_active()) {
        fprintf(stderr, "unlink_loop: rlshim is not active here: preload it\n");
        return 2;
    }
    count = pairs * turns * 2 * TURN;
    if (mkdir(dir, 0700))
        bench_die(dir);
    for (unsigned long i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%lu", dir, i);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
        if (fd < 0 || write(fd, content, sizeof(content)) != sizeof(content) || close(fd))
            bench_die(path);
    }
    unsigned long at = 0;
    for (unsigned long pair = 0; pair < pairs; pair++) {
        uint64_t ns[2] = {0, 0};

        for (unsigned long turn = 0; turn < 2 * turns; turn++, at += TURN) {
            unsigned on = (turn + turn / 2 + pair) & 1; /* off on on off */

            on ? rl_on() : rl_off();
            ns[on] += unlinks(at, TURN);
        }
        printf("%.1f %.1f\n", (double)ns[0] / (double)(turns * TURN),
               (double)ns[1] / (double)(turns * TURN));
    }
    rl_on();
    if (rmdir(dir))
        bench_die(dir);
    return 0;
}
