/* SPDX-License-Identifier: MIT */
/*
 * field: what programs were reported to do, made small. Run by field.sh, with and without the shim.
 *
 *   field until-free DIR FILES MIB WANTED   makes FILES files of MIB MiB, then deletes one after
 * the other until statvfs shows WANTED MiB more than before; prints how many field
 * delete-beside-reads DIR THREADS FILES   threads delete files of 1 MiB while another reads; prints
 * what the shim held, and whether all of it is free at the end field write-then-size DIR FILES
 * creates, writes 4 KiB, ftruncate to 4096, close; prints the sizes and times that are wrong field
 * append FILE LINES   appends numbered lines, O_APPEND, of many lengths
 *
 * The last line on stderr: the counters of the shim, if it is there.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "../../include/rlshim/control.h"

static const char *dir;

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static void number(char *path, size_t bytes, long n)
{
    snprintf(path, bytes, "%s/%ld", dir, n);
}

static void make(long n, off_t bytes)
{
    char path[400];
    int fd;

    number(path, sizeof path, n);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || fallocate(fd, 0, 0, bytes) != 0 || close(fd) != 0)
        die(path);
}

static uint64_t free_bytes(void)
{
    struct statvfs s;

    if (statvfs(dir, &s) != 0)
        die("statvfs");
    return (uint64_t)s.f_bavail * s.f_frsize;
}

static int until_free(long files, long mib, long wanted)
{
    uint64_t before;
    char path[400];
    long n = 0;

    for (long i = 0; i < files; i++)
        make(i, mib << 20);
    before = free_bytes();
    while (n < files && free_bytes() < before + ((uint64_t)wanted << 20)) {
        number(path, sizeof path, n++);
        if (unlink(path) != 0)
            die(path);
    }
    printf("deleted %ld\n", n);
    while (n < files) {
        number(path, sizeof path, n++);
        unlink(path);
    }
    return 0;
}

static long each;
static int reads_on = 1;

static void *deletes(void *arg)
{
    struct timespec pause = {0, 100000};
    long first = (long)(intptr_t)arg * each;
    char path[400];

    for (long i = first; i < first + each; i++) {
        number(path, sizeof path, i);
        if (unlink(path) != 0)
            die(path);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void *reads(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char sector[512];
    unsigned seed = 1;

    while (__atomic_load_n(&reads_on, __ATOMIC_RELAXED))
        if (pread(fd, sector, sizeof sector, rand_r(&seed) % 8192 * 512) != sizeof sector)
            die("pread");
    return NULL;
}

static int delete_beside_reads(long threads, long files)
{
    pthread_t t[16], reader;
    uint64_t before = free_bytes();
    char path[400];
    int fd;

    each = files / threads;
    for (long i = 0; i < each * threads; i++)
        make(i, 1 << 20);
    make(files, 4 << 20);
    number(path, sizeof path, files);
    fd = open(path, O_RDONLY);
    pthread_create(&reader, NULL, reads, (void *)(intptr_t)fd);
    for (long i = 0; i < threads; i++)
        pthread_create(&t[i], NULL, deletes, (void *)(intptr_t)i);
    for (long i = 0; i < threads; i++)
        pthread_join(t[i], NULL);
    __atomic_store_n(&reads_on, 0, __ATOMIC_RELAXED);
    pthread_join(reader, NULL);
    close(fd);
    unlink(path);
    printf("all is free: %s\n", free_bytes() + (2 << 20) >= before ? "yes" : "no");
    return 0;
}

static int write_then_size(long files)
{
    static char block[4096];
    struct stat st, after;
    long wrong = 0;
    char path[400];
    int fd;

    memset(block, 'x', sizeof block);
    for (long i = 0; i < files; i++) {
        number(path, sizeof path, i);
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (fd < 0 || write(fd, block, sizeof block) != sizeof block || fstat(fd, &st) != 0)
            die(path);
        if (i % 50 == 0)
            usleep(12000); /* a tick of the clock that files have their times from */
        if (ftruncate(fd, sizeof block) != 0 || fstat(fd, &after) != 0 || close(fd) != 0)
            die(path);
        wrong += after.st_size != sizeof block || after.st_blocks * 512 < (long)sizeof block ||
                 (i % 50 == 0 && after.st_mtim.tv_sec == st.st_mtim.tv_sec &&
                  after.st_mtim.tv_nsec == st.st_mtim.tv_nsec);
        unlink(path);
    }
    printf("wrong %ld of %ld\n", wrong, files);
    return 0;
}

/* Each line tells its number and its length. */
static int append(const char *file, long lines)
{
    static char line[2100];
    struct timespec pause = {0, 200000};
    int fd = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);

    if (fd < 0)
        die(file);
    memset(line, 'x', sizeof line);
    for (long i = 0; i < lines; i++) {
        int rest = (int)(i * 37 % 2000);
        int n = snprintf(line, 40, "%08ld %04d ", i, rest);

        line[n] = 'x';
        line[n + rest] = '\n';
        if (write(fd, line, (size_t)(n + rest + 1)) != n + rest + 1)
            die("write");
        line[n + rest] = 'x';
        if (i % 16 == 0)
            nanosleep(&pause, NULL);
    }
    return close(fd);
}

int main(int argc, char **argv)
{
    int r = 2;

    if (argc < 4) {
        fprintf(stderr, "usage: field WHAT DIR NUMBER…\n");
        return 2;
    }
    dir = argv[2];
    if (strcmp(argv[1], "until-free") == 0 && argc == 6)
        r = until_free(atol(argv[3]), atol(argv[4]), atol(argv[5]));
    else if (strcmp(argv[1], "delete-beside-reads") == 0 && argc == 5)
        r = delete_beside_reads(atol(argv[3]), atol(argv[4]));
    else if (strcmp(argv[1], "write-then-size") == 0)
        r = write_then_size(atol(argv[3]));
    else if (strcmp(argv[1], "append") == 0)
        r = append(argv[2], atol(argv[3]));
    fprintf(stderr, "held %llu elided %llu\n", (unsigned long long)rl_counter("evict_files"),
            (unsigned long long)rl_counter("truncate_elided"));
    return r;
}
