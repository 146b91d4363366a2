/* SPDX-License-Identifier: MIT */
/*
 * create_storm: many threads or processes open the same names in one directory.
 *
 *   create_storm [--processes] [--own] [--list] WAY DIR PREFIX NAMES WORKERS
 *
 *   WAY          ro: O_RDONLY; creat: O_RDWR|O_CREAT; trunc: the same with O_TRUNC; fopen: "a"
 *   --processes  workers are processes
 *   --own        each worker has NAMES names of its own
 *   --list       one more thread lists DIR all the while
 *
 * Workers begin together. Prints, as JSON, the milliseconds until the last one was done, and of
 * listings their number and mean. Exit 1 if an open failed, or gave no file.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

static const char *way, *dir, *prefix;
static unsigned long names, workers;
static int own;
struct shared {
    pthread_barrier_t start;
    unsigned failed;
    uint64_t end_ns; /* of the last worker's last open; its exit does not count */
};
static struct shared *shared;
static volatile int done;

static int open_one(const char *path)
{
    FILE *stream;

    if (strcmp(way, "ro") == 0)
        return open(path, O_RDONLY);
    if (strcmp(way, "creat") == 0)
        return open(path, O_RDWR | O_CREAT, 0640);
    if (strcmp(way, "trunc") == 0)
        return open(path, O_RDWR | O_CREAT | O_TRUNC, 0640);
    stream = fopen(path, "a");
    return stream != NULL && fclose(stream) == 0 ? dup(1) : -1;
}

static void work(unsigned long who)
{
    uint64_t end_ns, seen = 0;
    char path[4096];

    pthread_barrier_wait(&shared->start);
    for (unsigned long i = 0; i < names; i++) {
        int fd;

        if (own)
            snprintf(path, sizeof path, "%s/%s%lu.%lu", dir, prefix, who, i);
        else
            snprintf(path, sizeof path, "%s/%s%lu", dir, prefix, i);
        fd = open_one(path);
        if (fd < 0 || close(fd) != 0) {
            perror(path);
            __atomic_fetch_add(&shared->failed, 1, __ATOMIC_RELAXED);
        }
    }
    end_ns = bench_now_ns();
    while (end_ns > seen && !__atomic_compare_exchange_n(&shared->end_ns, &seen, end_ns, false,
                                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static void *work_thread(void *arg)
{
    work((unsigned long)(uintptr_t)arg);
    return NULL;
}

static double listed_ms;
static unsigned long lists;

static void *list_thread(void *arg)
{
    (void)arg;
    pthread_barrier_wait(&shared->start);
    do {
        uint64_t begin = bench_now_ns();
        DIR *d = opendir(dir);

        while (d != NULL && readdir(d) != NULL)
            ;
        if (d != NULL)
            closedir(d);
        listed_ms += (double)(bench_now_ns() - begin) / 1e6;
        lists++;
        usleep(1000);
    } while (!done);
    return NULL;
}

int main(int argc, char **argv)
{
    int processes = 0, list = 0, i = 1;
    pthread_barrierattr_t attr;
    pthread_t thread[512], lister;
    uint64_t begin;

    for (; i < argc && argv[i][0] == '-'; i++) {
        processes |= strcmp(argv[i], "--processes") == 0;
        own |= strcmp(argv[i], "--own") == 0;
        list |= strcmp(argv[i], "--list") == 0;
    }
    if (argc - i != 5) {
        fprintf(stderr, "usage: create_storm [--processes] [--own] [--list] WAY DIR PREFIX NAMES "
                        "WORKERS\n");
        return 2;
    }
    way = argv[i];
    dir = argv[i + 1];
    prefix = argv[i + 2];
    names = bench_count(argv[i + 3]);
    workers = bench_count(argv[i + 4]);
    if (workers > 512)
        bench_die("more than 512 workers");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        bench_die("mmap");
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->start, &attr, (unsigned)workers + 1 + (unsigned)list);
    for (unsigned long w = 0; w < workers; w++) {
        if (processes && fork() == 0) {
            work(w);
            exit(0);
        }
        if (!processes && pthread_create(&thread[w], NULL, work_thread, (void *)(uintptr_t)w))
            bench_die("pthread_create");
    }
    if (list && pthread_create(&lister, NULL, list_thread, NULL))
        bench_die("pthread_create");
    pthread_barrier_wait(&shared->start);
    begin = bench_now_ns();
    for (unsigned long w = 0; w < workers; w++)
        if (processes)
            wait(NULL);
        else
            pthread_join(thread[w], NULL);
    done = 1;
    if (list)
        pthread_join(lister, NULL);
    printf("{\"ms\":%.3f,\"lists\":%lu,\"list_ms\":%.3f}\n", (double)(shared->end_ns - begin) / 1e6,
           lists, lists ? listed_ms / (double)lists : 0);
    return shared->failed != 0;
}
