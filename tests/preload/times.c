/* SPDX-License-Identifier: MIT */
/* timeout: 60 */
/*
 * times DIR SECONDS: threads punch a file of their own and look at its times at once: they must be
 * no older than the punch, whether it is still queued, being applied, or was the last one before
 * the file is no longer deferred for. Every way to ask is asked in turn.
 *
 * With slow looks (lib/slowstat.c) that happens within a look.
 *
 * Prints "looks N, deferred N". 0: all right; 1: not, and what.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../include/rlshim/control.h"

#define PUNCH   (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define THREADS 3

static const char *dir;
static double seconds;
static atomic_ulong looks;
static atomic_uint failures;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool older(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

static int ask(int fd, unsigned how, struct timespec *mtime)
{
    struct statx stx;
    struct stat st;
    int r;

    if (how % 3 == 0) {
        r = statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &stx);
        *mtime = (struct timespec){stx.stx_mtime.tv_sec, stx.stx_mtime.tv_nsec};
        return r;
    }
    r = how % 3 == 1 ? fstat(fd, &st) : fstatat(fd, "", &st, AT_EMPTY_PATH);
    *mtime = st.st_mtim;
    return r;
}

static void *punches(void *arg)
{
    unsigned number = (unsigned)(size_t)arg, n = 0;
    double end = now() + seconds;
    char path[300], block[4096];
    int fd;

    snprintf(path, sizeof path, "%s/times-%u", dir, number);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || unlink(path) != 0)
        exit(1);
    memset(block, 'x', sizeof block);
    while (now() < end && failures == 0) {
        struct timespec before, mtime;

        /* Now and then a rest, so that it is turned off and on again. */
        if (n % 20000 == 19999)
            usleep(300000);
        if (n % 64 == 0 && pwrite(fd, block, sizeof block, (off_t)(n % 16) * 4096) < 0)
            exit(1);
        for (int tries = 0; tries < 200; tries++) { /* until it is deferred */
            uint64_t deferred = rl_counter("punch_deferred");

            clock_gettime(CLOCK_REALTIME_COARSE, &before);
            if (fallocate(fd, PUNCH, (off_t)(n % 16) * 4096, 4096) != 0) {
                printf("not ok: a punch: %s\n", strerror(errno));
                failures++;
            }
            if (rl_counter("punch_deferred") != deferred || rl_counter("punch_calls") == 0)
                break;
            usleep(500);
        }
        for (unsigned i = 0; i < 1 + n % 4; i++) {
            if (ask(fd, n + i, &mtime) != 0)
                exit(1);
            looks++;
            if (older(&mtime, &before)) {
                printf("not ok: way %u to ask, look %u: mtime %ld.%09ld, punched after %ld.%09ld\n",
                       (n + i) % 3, i, (long)mtime.tv_sec, mtime.tv_nsec, (long)before.tv_sec,
                       before.tv_nsec);
                failures++;
            }
        }
        n++;
    }
    close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread[THREADS];

    if (argc != 3)
        return 2;
    dir = argv[1];
    seconds = atof(argv[2]);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, punches, (void *)i) != 0)
            return 1;
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    printf("looks %lu, deferred %lu\n", looks, (unsigned long)rl_counter("punch_deferred"));
    return failures != 0;
}
