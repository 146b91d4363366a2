/* SPDX-License-Identifier: MIT */
/*
 * delete_bench: deleting, at full size; one line of JSON.
 *
 *   delete_bench big DIR COUNT MIB unlink|rename|close
 *       writes a file of MIB MiB and deletes it, COUNT times: how long the call takes (ms: median
 * and worst, so the 99th percentile of up to 100), and on average until statvfs returns, that is
 *       until its space is free
 *   delete_bench beside DIR FILES deletes|nothing
 *       reads 512 bytes at random places of a file of 2 GiB, O_DIRECT, while five threads delete
 * FILES files of 1 MiB each 0.1 ms, or sleep as long instead: the 99th percentile of a read (us)
 *   delete_bench until DIR FILES MIB WANTED_MIB
 *       deletes until statvfs shows WANTED_MIB more than before: how many files that took
 *   delete_bench size DIR FILES
 *       create, write 4 KiB, close, with an ftruncate to the size it has before the close and
 * without, in turns: loops a second, and their ratio
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "bench.h"

#define MIB       ((size_t)1 << 20)
#define DELETERS  5
#define READ_FILE 2048 /* MiB */
#define TURN      50

static const char *dir;
static char *chunk;

static void path_of(char *path, size_t bytes, const char *what, long n)
{
    snprintf(path, bytes, "%s/%s%ld", dir, what, n);
}

static int written(const char *path, long mib)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

    for (long i = 0; fd >= 0 && i < mib; i++)
        if (write(fd, chunk, MIB) != (ssize_t)MIB)
            bench_die(path);
    if (fd < 0 || fsync(fd) != 0)
        bench_die(path);
    return fd;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static uint64_t free_bytes(void)
{
    struct statvfs s;

    if (statvfs(dir, &s) != 0)
        bench_die("statvfs");
    return (uint64_t)s.f_bavail * s.f_frsize;
}

static int big(long count, long mib, const char *way)
{
    uint64_t *ns = calloc((size_t)count, sizeof(*ns)), all = 0, t[3];
    char path[500], other[500];
    int fd;

    path_of(path, sizeof(path), "big", 0);
    path_of(other, sizeof(other), "other", 0);
    for (long i = 0; i < count; i++) {
        fd = written(path, mib);
        if (way[0] == 'c' && unlink(path) != 0)
            bench_die(path);
        if (way[0] != 'c')
            close(fd);
        if (way[0] == 'r' && close(open(other, O_WRONLY | O_CREAT, 0600)) != 0)
            bench_die(other);
        free_bytes();
        usleep(10000);
        t[0] = bench_now_ns();
        if ((way[0] == 'c' ? close(fd) : way[0] == 'r' ? rename(other, path) : unlink(path)) != 0)
            bench_die(path);
        t[1] = bench_now_ns();
        free_bytes();
        t[2] = bench_now_ns();
        ns[i] = t[1] - t[0];
        all += t[2] - t[0];
        unlink(path);
    }
    qsort(ns, (size_t)count, sizeof(*ns), by_size);
    printf("{\"call_p50_ms\":%.3f,\"call_worst_ms\":%.3f,\"freed_ms\":%.3f}\n",
           (double)ns[count / 2] / 1e6, (double)ns[count - 1] / 1e6,
           (double)all / 1e6 / (double)count);
    return 0;
}

static long files_each;
static int deletes, busy;

static void *deleter(void *arg)
{
    struct timespec pause = {0, 100000};
    long first = (long)(intptr_t)arg * files_each;
    char path[500];

    for (long i = first; i < first + files_each; i++) {
        path_of(path, sizeof(path), "d", i);
        if (deletes && unlink(path) != 0)
            bench_die(path);
        nanosleep(&pause, NULL);
    }
    __atomic_fetch_sub(&busy, 1, __ATOMIC_RELEASE);
    return NULL;
}

static int beside(long files, const char *what)
{
    enum { MOST = 1 << 20 };
    uint64_t *ns = malloc(MOST * sizeof(*ns));
    pthread_t t[DELETERS];
    unsigned seed = 1;
    char path[500];
    size_t n = 0;
    void *sector;
    int fd;

    deletes = what[0] == 'd';
    files_each = files / DELETERS;
    for (long i = 0; i < files_each * DELETERS; i++) {
        path_of(path, sizeof(path), "d", i);
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (write(fd, chunk, MIB) != (ssize_t)MIB || close(fd) != 0)
            bench_die(path);
    }
    path_of(path, sizeof(path), "read", 0);
    close(written(path, READ_FILE));
    fd = open(path, O_RDONLY | O_DIRECT);
    if (fd < 0 || posix_memalign(&sector, 4096, 4096) != 0)
        bench_die(path);
    sync();
    busy = DELETERS;
    for (long i = 0; i < DELETERS; i++)
        pthread_create(&t[i], NULL, deleter, (void *)(intptr_t)i);
    while (n < MOST && __atomic_load_n(&busy, __ATOMIC_ACQUIRE) != 0) {
        off_t at = (off_t)(rand_r(&seed) % (READ_FILE * 2048)) * 512;
        uint64_t began = bench_now_ns();

        if (pread(fd, sector, 512, at) != 512)
            bench_die("pread");
        ns[n++] = bench_now_ns() - began;
    }
    for (long i = 0; i < DELETERS; i++)
        pthread_join(t[i], NULL);
    for (long i = 0; !deletes && i < files_each * DELETERS; i++) {
        path_of(path, sizeof(path), "d", i);
        unlink(path);
    }
    path_of(path, sizeof(path), "read", 0);
    unlink(path);
    qsort(ns, n, sizeof(*ns), by_size);
    printf("{\"read_p99_us\":%.1f,\"read_p50_us\":%.1f,\"reads\":%zu}\n",
           (double)ns[n * 99 / 100] / 1e3, (double)ns[n / 2] / 1e3, n);
    return 0;
}

static int until(long files, long mib, long wanted)
{
    char path[500];
    uint64_t before;
    long n = 0;

    for (long i = 0; i < files; i++) {
        path_of(path, sizeof(path), "u", i);
        close(written(path, mib));
    }
    before = free_bytes();
    while (n < files && free_bytes() < before + (uint64_t)wanted * MIB) {
        path_of(path, sizeof(path), "u", n++);
        if (unlink(path) != 0)
            bench_die(path);
    }
    printf("{\"deleted\":%ld}\n", n);
    for (; n < files; n++) {
        path_of(path, sizeof(path), "u", n);
        unlink(path);
    }
    return 0;
}

static uint64_t sized(long first, int truncates)
{
    uint64_t began = bench_now_ns();
    char path[500];

    for (long i = first; i < first + TURN; i++) {
        path_of(path, sizeof(path), "s", i);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
        if (fd < 0 || write(fd, chunk, 4096) != 4096 || (truncates && ftruncate(fd, 4096) != 0) ||
            close(fd) != 0)
            bench_die(path);
    }
    return bench_now_ns() - began;
}

static int size(long files)
{
    uint64_t ns[2] = {0, 0};
    char path[500];
    long turns = files / TURN;

    for (long turn = 0; turn < 2 * turns; turn++)
        ns[(turn + turn / 2) & 1] += sized(turn * TURN, (int)((turn + turn / 2) & 1));
    for (long i = 0; i < 2 * turns * TURN; i++) {
        path_of(path, sizeof(path), "s", i);
        unlink(path);
    }
    printf("{\"with_per_s\":%.0f,\"without_per_s\":%.0f,\"ratio\":%.3f}\n",
           (double)(turns * TURN) * 1e9 / (double)ns[1],
           (double)(turns * TURN) * 1e9 / (double)ns[0], (double)ns[0] / (double)ns[1]);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 3 ? argv[1] : "";

    dir = argc > 2 ? argv[2] : "";
    chunk = malloc(MIB);
    if (chunk == NULL)
        bench_die("memory");
    memset(chunk, 'x', MIB);
    if (strcmp(what, "big") == 0 && argc == 6)
        return big((long)bench_count(argv[3]), (long)bench_count(argv[4]), argv[5]);
    if (strcmp(what, "beside") == 0 && argc == 5)
        return beside((long)bench_count(argv[3]), argv[4]);
    if (strcmp(what, "until") == 0 && argc == 6)
        return until((long)bench_count(argv[3]), (long)bench_count(argv[4]),
                     (long)bench_count(argv[5]));
    if (strcmp(what, "size") == 0)
        return size((long)bench_count(argv[3]));
    fprintf(stderr, "usage: delete_bench big|beside|until|size DIR NUMBER…\n");
    return 2;
}
