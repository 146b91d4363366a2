/* SPDX-License-Identifier: MIT */
/*
 * spawn_loop PROGRAM COUNT LIBRARY: starts PROGRAM (no arguments) COUNT times plainly and COUNT
 * times with LD_PRELOAD=LIBRARY, in the order A B B A, and prints one pair "A B" a line: wall time
 * in us from posix_spawn until the program was waited for. This process itself is not preloaded.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bench.h"

#define ENV_MAX 4096

static double spawn_us(const char *program, char **env)
{
    char *args[] = {(char *)program, NULL};
    pid_t pid;
    int status;
    uint64_t begin = bench_now_ns();
    errno = posix_spawn(&pid, program, NULL, NULL, args, env);
    if (errno)
        bench_die(program);
    if (waitpid(pid, &status, 0) != pid)
        bench_die("waitpid");
    double us = (double)(bench_now_ns() - begin) / 1000;
    if (status) {
        fprintf(stderr, "%s: ended with wait status %d\n", program, status);
        exit(1);
    }
    return us;
}

int main(int argc, char **argv)
{
    static char *plain[ENV_MAX], *preloaded[ENV_MAX + 1];
    char preload[PATH_MAX + 16];
    size_t n = 0;

    if (argc != 4) {
        fprintf(stderr, "usage: spawn_loop PROGRAM COUNT LIBRARY\n");
        return 2;
    }
    unsigned long count = bench_count(argv[2]);
    if (access(argv[3], R_OK))
        bench_die(argv[3]); /* ld.so would only warn and run the program without it */
    for (char **e = environ; *e && n < ENV_MAX - 1; e++)
        if (strncmp(*e, "LD_PRELOAD=", 11))
            plain[n++] = *e;
    memcpy(preloaded, plain, n * sizeof(*plain));
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", argv[3]);
    preloaded[n] = preload;

    for (int i = 0; i < 5; i++) { /* page cache */
        spawn_us(argv[1], plain);
        spawn_us(argv[1], preloaded);
    }
    for (unsigned long i = 0; i < count; i++) {
        double a = 0, b;
        if (i % 2 == 0)
            a = spawn_us(argv[1], plain);
        b = spawn_us(argv[1], preloaded);
        if (i % 2 == 1)
            a = spawn_us(argv[1], plain);
        printf("%.1f %.1f\n", a, b);
    }
    return 0;
}
