/* SPDX-License-Identifier: MIT */
/*
 * committers: N threads that each append 4 KiB to one file and fdatasync it, as the committers of a
 * database log do, for some seconds. Prints commits a second and how long a commit took.
 *
 * Each thread's fdatasync covers what the others have appended by then, but the kernel makes every
 * one of them a flush of its own. Run it as it is and under LD_PRELOAD=librlshim.so, and compare.
 *
 * Afterwards every block must hold what its thread wrote.
 *
 * Exit: 0 done, 1 data or an I/O call was wrong, 2 usage, 3 this directory cannot be written to.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define TOOL_NAME "committers"
#include "latency.h"
#include "tool.h"

#define THREADS_MAX 256
#define BLOCK_BYTES 4096

static struct {
    const char *dir;
    double seconds;
    int threads, own, full, json;
} opt = {.dir = ".", .seconds = 4, .threads = 32};

struct committer {
    pthread_t thread;
    unsigned number;
    int fd;
    struct latency lat;
    uint64_t *blocks; /* where it wrote */
    size_t count, room;
};

static struct committer committers[THREADS_MAX];
static char path[PATH_MAX];
static atomic_uint_fast64_t tail;
static atomic_bool stop;
static pthread_barrier_t start_line;

static void fill(char *block, unsigned number, uint64_t at)
{
    uint64_t stamp[2] = {number, at};

    memset(block, (int)('a' + number % 26), BLOCK_BYTES);
    memcpy(block, stamp, sizeof stamp);
}

static void *commit(void *arg)
{
    struct committer *c = arg;
    char block[BLOCK_BYTES];

    pthread_barrier_wait(&start_line);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        uint64_t begin = now_ns(), at = atomic_fetch_add(&tail, 1);

        if (c->count == c->room) {
            c->room = c->room ? 2 * c->room : 1024;
            c->blocks = realloc(c->blocks, c->room * sizeof *c->blocks);
            if (!c->blocks)
                die(3, "no memory to remember what was written");
        }
        fill(block, c->number, at);
        if (pwrite(c->fd, block, BLOCK_BYTES, (off_t)(at * BLOCK_BYTES)) != BLOCK_BYTES)
            die(1, "%s: cannot append: %m", path);
        if (opt.full ? fsync(c->fd) : fdatasync(c->fd))
            die(1, "%s: %s: %m", path, opt.full ? "fsync" : "fdatasync");
        latency_add(&c->lat, now_ns() - begin);
        c->blocks[c->count++] = at;
    }
    return NULL;
}

static void check(void)
{
    char block[BLOCK_BYTES], wanted[BLOCK_BYTES];

    for (int i = 0; i < opt.threads; i++)
        for (size_t n = 0; n < committers[i].count; n++) {
            uint64_t at = committers[i].blocks[n];

            fill(wanted, (unsigned)i, at);
            if (pread(committers[0].fd, block, BLOCK_BYTES, (off_t)(at * BLOCK_BYTES)) !=
                    BLOCK_BYTES ||
                memcmp(block, wanted, BLOCK_BYTES))
                die(1, "%s: block %llu is not what thread %d wrote", path, (unsigned long long)at,
                    i);
        }
}

static void usage(FILE *to)
{
    fprintf(to, "usage: committers [--dir DIR] [--threads N] [--seconds S] [--own] [--fsync] "
                "[--json]\n"
                "  --own    a descriptor for each thread, not one for all\n"
                "  --fsync  fsync instead of fdatasync\n");
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"dir", required_argument, 0, 'd'},     {"threads", required_argument, 0, 't'},
        {"seconds", required_argument, 0, 's'}, {"own", no_argument, &opt.own, 1},
        {"fsync", no_argument, &opt.full, 1},   {"json", no_argument, &opt.json, 1},
        {"help", no_argument, 0, 'h'},          {0, 0, 0, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (c) {
        case 0:
            break;
        case 'd':
            opt.dir = optarg;
            break;
        case 't':
            opt.threads = (int)parse_number("threads", optarg, THREADS_MAX);
            break;
        case 's':
            opt.seconds = parse_number("seconds", optarg, 3600);
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            usage(stderr);
            exit(2);
        }
    if (optind != argc || opt.threads < 1) {
        usage(stderr);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static struct latency all;
    struct timespec length;
    uint64_t begin, took;

    parse(argc, argv);
    snprintf(path, sizeof path, "%s/committers-%ld", opt.dir, (long)getpid());
    pthread_barrier_init(&start_line, NULL, (unsigned)opt.threads + 1);
    for (int i = 0; i < opt.threads; i++) {
        struct committer *c = &committers[i];

        c->number = (unsigned)i;
        c->fd = i && !opt.own ? committers[0].fd : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (c->fd < 0)
            die(3, "%s: %m", path);
        if (pthread_create(&c->thread, NULL, commit, c))
            die(3, "cannot start %d threads", opt.threads);
    }
    length.tv_sec = (time_t)opt.seconds;
    length.tv_nsec = (long)((opt.seconds - (double)length.tv_sec) * 1e9);
    pthread_barrier_wait(&start_line);
    begin = now_ns();
    nanosleep(&length, NULL);
    atomic_store(&stop, true);
    for (int i = 0; i < opt.threads; i++)
        pthread_join(committers[i].thread, NULL);
    took = now_ns() - begin;
    for (int i = 0; i < opt.threads; i++) {
        struct latency *lat = &committers[i].lat;

        all.count += lat->count;
        for (unsigned n = 0; n < LATENCY_FINE; n++)
            all.fine[n] += lat->fine[n];
        all.worst_ns = lat->worst_ns > all.worst_ns ? lat->worst_ns : all.worst_ns;
    }
    check();
    unlink(path);
    double rate = (double)all.count * 1e9 / (double)took;
    double p50 = latency_percentile_us(&all, 0.5), p99 = latency_percentile_us(&all, 0.99);
    if (opt.json)
        printf("{\"threads\":%d,\"commits_s\":%.1f,\"p50_ms\":%.4f,\"p99_ms\":%.4f,"
               "\"worst_ms\":%.3f}\n",
               opt.threads, rate, p50 / 1000, p99 / 1000, ms(all.worst_ns));
    else
        printf("%d threads: %.0f commits/s; a commit took %.2f ms (median), %.2f ms (99 %%), "
               "%.1f ms at worst\n",
               opt.threads, rate, p50 / 1000, p99 / 1000, ms(all.worst_ns));
    return 0;
}
