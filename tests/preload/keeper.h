/* SPDX-License-Identifier: MIT */
/*
 * keeper.h: what keeper.c (looks, without the library) and keeper_victim.c (dies, with it) share.
 *
 * The victim notes in the journal, memory shared by both, what it is about to do to each block of
 * the data file, and what it has done. After its death and the keeper's each block must be what was
 * done last, or what was about to be done.
 */
#ifndef TESTS_KEEPER_H
#define TESTS_KEEPER_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCK  4096
#define BLOCKS 2048 /* 8 MiB */
#define HANDS  2    /* threads of the victim, each with half of the blocks */
#define PUNCH  (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

struct journal {
    uint64_t about[BLOCKS], done[BLOCKS]; /* 0: a hole; else what is written there */
    uint32_t port;
    uint32_t step; /* what the victim has come to */
    uint32_t order;
    int32_t result;
};

#define UNUSED __attribute__((unused)) /* by one of the two */

static char data[4096], journal_path[4096];
static struct journal *journal;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(2);
}

UNUSED static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

UNUSED static void nap_us(long us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

UNUSED static void fill(unsigned char *buf, uint64_t value, int block)
{
    for (size_t i = 0; i < BLOCK / 8; i++) {
        uint64_t word = value == 0 ? 0 : value << 16 | (uint64_t)block;

        memcpy(buf + i * 8, &word, 8);
    }
}

UNUSED static struct journal *map_journal(bool make)
{
    int fd = open(journal_path, O_RDWR | (make ? O_CREAT | O_TRUNC : 0), 0600);
    void *p;

    if (fd < 0 || (make && ftruncate(fd, sizeof *journal) != 0))
        die(journal_path);
    p = mmap(NULL, sizeof *journal, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        die("mmap");
    close(fd);
    return p;
}

UNUSED static bool wait_word(const uint32_t *word, uint32_t value, unsigned ms)
{
    uint64_t until = now_ns() + ms * UINT64_C(1000000);

    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) < value) {
        if (now_ns() > until)
            return false;
        nap_us(200);
    }
    return true;
}

UNUSED static uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

/* Where both find what they share: DIR holds the data, STATS the journal and the counters. */
UNUSED static void find_paths(const char *dir, const char *stats)
{
    if (snprintf(data, sizeof data, "%s/data", dir) >= (int)sizeof data ||
        snprintf(journal_path, sizeof journal_path, "%s/journal", stats) >=
            (int)sizeof journal_path)
        die("path");
}

#endif
