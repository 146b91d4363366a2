/* SPDX-License-Identifier: MIT */
/*
 * whole DIR SECONDS one|forks|some|many: buffered writes that are made in pieces must look like one
 * (XFS).
 *
 * A writer keeps filling 8 MiB with one pattern after the other, a puncher now and then punches all
 * of it: whoever reads a part of it must find one pattern, or zeros, and nothing mixed, since XFS
 * lets no read, write or punch into the middle of a buffered write. Readers do so by pread of 1
 * MiB, by preadv, by read at a position of their own, with `forks` from children. With `some` and
 * `many` there are readers at a position they share, and such that use copy_file_range: beside
 * those no write can be split, and the moments when they come and go are what is tried; with `many`
 * also two writers. One more reader
 * reads elsewhere in the file, and is timed.
 *
 * Prints "far: N reads, worst W us" and exits with 0, or with 1 and what was mixed.
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
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NEAR ((size_t)8 << 20)
#define PART ((size_t)1 << 20)
#define FAR  ((off_t)64 << 20)

static char path[4096], copy_path[4096];
static atomic_bool over;
static atomic_int failed;
static atomic_ulong reads, far_reads, far_worst_us, writes, children;
static int shared_fd;
static useconds_t pause_us;

static int reopen(int flags)
{
    int fd = open(path, flags | O_CLOEXEC);

    if (fd < 0) {
        perror(path);
        exit(1);
    }
    return fd;
}

static bool one_pattern(const unsigned char *buf, size_t n)
{
    return n == 0 || memcmp(buf, buf + 1, n - 1) == 0;
}

static void check(const char *how, const unsigned char *buf, ssize_t n)
{
    if (n <= 0 || one_pattern(buf, (size_t)n)) {
        atomic_fetch_add(&reads, 1);
        return;
    }
    for (ssize_t i = 1; i < n; i++)
        if (buf[i] != buf[0]) {
            printf("not ok: %s: byte 0 is %02x, byte %zd is %02x\n", how, buf[0], i, buf[i]);
            break;
        }
    atomic_store(&failed, 1);
    atomic_store(&over, true);
}

static void *writer(void *arg)
{
    int fd = reopen(O_WRONLY);
    unsigned char *buf = malloc(NEAR);

    for (unsigned i = 0; buf != NULL && !atomic_load(&over); i++) {
        memset(buf, (int)(intptr_t)arg + (int)(i % 50), NEAR);
        if (pwrite(fd, buf, NEAR, 0) != (ssize_t)NEAR) {
            printf("not ok: a write came short\n");
            atomic_store(&failed, 1);
        }
        atomic_fetch_add(&writes, 1);
    }
    free(buf);
    close(fd);
    return NULL;
}

static void *puncher(void *arg)
{
    int fd = reopen(O_RDWR);

    (void)arg;
    for (unsigned i = 0; !atomic_load(&over); i++) {
        off_t at = i % 8 == 7 ? 0 : FAR + (off_t)(i % 4096) * 4096;

        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, at == 0 ? (off_t)NEAR : 4096);
        usleep(1000);
    }
    close(fd);
    return NULL;
}

static void *reader(void *arg)
{
    int how = (int)(intptr_t)arg;
    int fd = reopen(O_RDONLY);
    int copy = how == 3 ? open(copy_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    unsigned char *buf = malloc(PART);

    for (unsigned i = 0; buf != NULL && !atomic_load(&over); i++) {
        off_t at = (off_t)(i * 7 % 8) * (off_t)PART, to = 0;

        switch (how) {
        case 0:
            check("pread", buf, pread(fd, buf, PART, at));
            break;
        case 1:
            check("preadv", buf,
                  preadv(fd, (struct iovec[]){{buf, 5000}, {buf + 5000, PART - 5000}}, 2, at));
            break;
        case 2:
            lseek(fd, at, SEEK_SET);
            check("read", buf, read(fd, buf, PART));
            break;
        case 3:
            usleep(pause_us);
            if (copy_file_range(fd, &at, copy, &to, PART, 0) > 0)
                check("copy_file_range", buf, pread(copy, buf, PART, 0));
            break;
        case 4: /* two threads, one position: each read takes what comes */
            usleep(pause_us);
            if (i % 8 == 0)
                lseek(shared_fd, 0, SEEK_SET);
            check("read at a shared position", buf, read(shared_fd, buf, PART));
            break;
        default: {
            pid_t pid = fork();
            int status = 0;

            if (pid == 0) {
                ssize_t n = pread(fd, buf, PART, at);

                _exit(n == (ssize_t)PART && one_pattern(buf, PART) ? 0 : 1);
            }
            if (pid > 0 && waitpid(pid, &status, 0) == pid && status != 0) {
                printf("not ok: a child read two patterns\n");
                atomic_store(&failed, 1);
                atomic_store(&over, true);
            }
            atomic_fetch_add(&children, 1);
            usleep(1000000);
        }
        }
    }
    free(buf);
    if (copy >= 0)
        close(copy);
    close(fd);
    return NULL;
}

static void *far_reader(void *arg)
{
    int fd = reopen(O_RDONLY);
    char buf[4096];

    (void)arg;
    while (!atomic_load(&over)) {
        struct timespec a, b;
        unsigned long us;

        clock_gettime(CLOCK_MONOTONIC, &a);
        if (pread(fd, buf, sizeof buf, FAR + ((off_t)32 << 20)) != (ssize_t)sizeof buf)
            atomic_store(&failed, 1);
        clock_gettime(CLOCK_MONOTONIC, &b);
        us = (unsigned long)((b.tv_sec - a.tv_sec) * 1000000 + (b.tv_nsec - a.tv_nsec) / 1000);
        atomic_fetch_add(&far_reads, 1);
        if (us > atomic_load(&far_worst_us))
            atomic_store(&far_worst_us, us);
    }
    close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    enum { READERS = 7 };
    static const int one[READERS] = {0, 1, 2, 0, 1, 2, 2}, forks[READERS] = {0, 1, 0, 1, 0, 1, 5},
                     many[READERS] = {0, 1, 2, 3, 4, 4, 5}, some[READERS] = {0, 1, 3, 3, 4, 4, 2};
    pthread_t thread[READERS + 4];
    const int *kinds;
    int n = 0, fd;

    if (argc < 4)
        return 2;
    snprintf(path, sizeof path, "%s/whole.%d", argv[1], (int)getpid());
    snprintf(copy_path, sizeof copy_path, "%s/whole.copy.%d", argv[1], (int)getpid());
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, FAR * 2) != 0) {
        perror(path);
        return 1;
    }
    close(fd);
    shared_fd = reopen(O_RDONLY);
    kinds = strcmp(argv[3], "one") == 0     ? one
            : strcmp(argv[3], "forks") == 0 ? forks
            : strcmp(argv[3], "some") == 0  ? some
                                            : many;
    pause_us = kinds == some ? 60000 : 5000;
    pthread_create(&thread[n++], NULL, writer, (void *)(intptr_t)'A');
    if (kinds == many)
        pthread_create(&thread[n++], NULL, writer, (void *)(intptr_t)0x80);
    pthread_create(&thread[n++], NULL, puncher, NULL);
    pthread_create(&thread[n++], NULL, far_reader, NULL);
    for (int i = 0; i < READERS; i++)
        pthread_create(&thread[n++], NULL, reader, (void *)(intptr_t)kinds[i]);
    for (int i = 0; i < atoi(argv[2]) * 20 && !atomic_load(&over); i++)
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    atomic_store(&over, true);
    while (n > 0)
        pthread_join(thread[--n], NULL);
    unlink(path);
    unlink(copy_path);
    printf("far: %lu reads, worst %lu us; %lu writes, %lu reads of what they write, %lu children\n",
           atomic_load(&far_reads), atomic_load(&far_worst_us), atomic_load(&writes),
           atomic_load(&reads), atomic_load(&children));
    return atomic_load(&failed);
}
