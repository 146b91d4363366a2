/* SPDX-License-Identifier: MIT */
/*
 * range_lock_bench: an acquire and a release of the range lock against other locks (lock_rivals.h).
 *
 *   range_lock_bench [--rounds N] [--ms N] [--file FILE]     15 rounds of 20 ms
 *
 * Round by round each lock runs for the given time, in turn and back again; a figure is the median
 * of the rounds, a ratio the median of the rounds' own ratios (rival / slots: above 1 the rival is
 * slower), with a 95 % interval of that median. First the lock alone, then with a 4
 * KiB pread or pwrite inside, of FILE (default: a new one in TMPDIR) in the page cache.
 *
 * Exit 1 if a target is missed: with 1 held range faster than every other lock; with 64 and 1024
 * faster than the list. Two processors say nothing about how any of these scale.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/vfs.h>
#include <time.h>

#include "lock_rivals.h"

#define MIB     ((uint64_t)1 << 20)
#define K4      ((uint64_t)4096)
#define BATCH   256
#define ROUNDS  64
#define HELD    1024
#define FILE_MB 64

static uint64_t ms = 20;
static unsigned rounds = 15;
static int fd = -1;
static uint32_t started, stop;
static union rival_hold held[HELD];

enum pattern {
    OWN_MIB,   /* each thread in a MiB of its own */
    SAME,      /* all threads the same 4 KiB */
    HOT,       /* 16 grains, random, each eighth call exclusive */
    WITH_HELD, /* between the held ranges */
};

struct work {
    const char *name;
    unsigned threads, n_held;
    bool dense; /* the held ranges lie in the MiB that is worked in */
    bool exclusive;
    enum pattern pattern;
    unsigned skip; /* bit of a rival that cannot do it */
    unsigned beat; /* bits of rivals that must be slower */
};

struct worker {
    pthread_t thread;
    const struct work *work;
    const struct rival *rival;
    unsigned me;
    bool io;
    uint64_t ops;
    uint64_t best_ns; /* fastest batch */
    char pad[RIVAL_LINE];
};

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void one(struct worker *w, uint64_t *rnd, unsigned i)
{
    const struct work *work = w->work;
    bool exclusive = work->exclusive;
    static __thread char buf[4096];
    union rival_hold h;
    uint64_t at = 0;

    switch (work->pattern) {
    case OWN_MIB:
        at = w->me * MIB + i % 256 * K4;
        break;
    case SAME:
        break;
    case HOT:
        *rnd = *rnd * 6364136223846793005u + 1442695040888963407u;
        at = (*rnd >> 60) * K4;
        exclusive = (*rnd >> 33) % 8 == 0;
        break;
    default: /* odd grains are free: anywhere among the held ones, or in the one MiB */
        *rnd = *rnd * 6364136223846793005u + 1442695040888963407u;
        at = work->dense ? ((*rnd >> 40) % 128 * 2 + 1) * K4
                         : (*rnd >> 40) % 48 * MIB + ((*rnd >> 33) % 127 * 2 + 1) * K4;
        break;
    }
    w->rival->take(&h, w->me, at, at + K4, exclusive);
    if (w->io) {
        ssize_t r = exclusive ? pwrite(fd, buf, K4, (off_t)(at % (FILE_MB * MIB)))
                              : pread(fd, buf, K4, (off_t)(at % (FILE_MB * MIB)));

        if (r != (ssize_t)K4)
            abort();
    }
    w->rival->drop(&h, w->me);
}

static void *work_thread(void *arg)
{
    struct worker *w = arg;
    uint64_t rnd = w->me * 77777 + 1;

    while (__atomic_load_n(&started, __ATOMIC_ACQUIRE) == 0)
        sched_yield();
    while (__atomic_load_n(&stop, __ATOMIC_RELAXED) == 0) {
        uint64_t begin = w->work->threads == 1 ? now_ns() : 0;

        for (unsigned i = 0; i < BATCH; i++)
            one(w, &rnd, i + (unsigned)w->ops);
        w->ops += BATCH;
        if (w->work->threads == 1) {
            uint64_t took = now_ns() - begin;

            if (w->best_ns == 0 || took < w->best_ns)
                w->best_ns = took;
        }
    }
    return NULL;
}

/* Nanoseconds an operation: of one thread without I/O its fastest batch, for whatever disturbs it
 * only makes it slower; otherwise wall time over what all threads did. */
static double run_once(const struct work *work, const struct rival *rival, bool io)
{
    static struct worker w[MAX_THREADS] __attribute__((aligned(64)));
    struct timespec ts = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    uint64_t begin, took, ops = 0;

    memset(w, 0, sizeof w);
    for (unsigned i = 0; i < work->n_held; i++) {
        uint64_t at = work->dense ? i * 2 * K4 : i % 48 * MIB + i / 48 * 2 * K4;

        rival->take(&held[i], MAX_THREADS - 1, at, at + K4, false);
    }
    __atomic_store_n(&started, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&stop, 0, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < work->threads; i++) {
        w[i] = (struct worker){.work = work, .rival = rival, .me = i, .io = io};
        if (pthread_create(&w[i].thread, NULL, work_thread, &w[i]) != 0)
            abort();
    }
    begin = now_ns();
    __atomic_store_n(&started, 1, __ATOMIC_RELEASE);
    nanosleep(&ts, NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < work->threads; i++)
        pthread_join(w[i].thread, NULL);
    took = now_ns() - begin;
    for (unsigned i = 0; i < work->threads; i++)
        ops += w[i].ops;
    for (unsigned i = 0; i < work->n_held; i++)
        rival->drop(&held[i], MAX_THREADS - 1);
    if (work->threads == 1 && !io)
        return (double)w[0].best_ns / BATCH;
    return (double)took / (double)ops;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *v, unsigned n)
{
    qsort(v, n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Counted from either end of the sorted ratios: where the 95 % interval of their median ends. */
static unsigned interval_rank(unsigned n)
{
    double rank = ((double)n - 1.96 * sqrt((double)n)) / 2;

    return rank < 0 ? 0 : (unsigned)rank;
}

static bool measure(const struct work *work, bool io)
{
    static double ns[RIVALS][ROUNDS];
    bool met = true;

    for (unsigned round = 0; round < rounds; round++)
        for (unsigned k = 0; k < RIVALS; k++) {
            unsigned r = round % 2 ? RIVALS - 1 - k : k;

            if ((work->skip & 1u << r) == 0)
                do { /* a busy machine may not have let it run at all */
                    ns[r][round] = run_once(work, &rivals[r], io);
                } while (!(ns[r][round] > 0 && ns[r][round] < 1e12));
        }
    printf("%-34s%s\n", work->name, io ? "  with 4 KiB I/O" : "");
    for (unsigned r = 0; r < RIVALS; r++) {
        double ratio[ROUNDS], sorted[ROUNDS], m, lo, hi;
        bool missed;

        if ((work->skip & 1u << r) != 0) {
            printf("    %-8s cannot: it would wait for the held range\n", rivals[r].name);
            continue;
        }
        for (unsigned i = 0; i < rounds; i++) {
            ratio[i] = ns[r][i] / ns[SLOTS][i];
            sorted[i] = ns[r][i];
        }
        m = median(ratio, rounds);
        lo = ratio[interval_rank(rounds)];
        hi = ratio[rounds - 1 - interval_rank(rounds)];
        missed = !io && (work->beat & 1u << r) != 0 && m <= 1;
        met &= !missed;
        printf("    %-8s %9.1f ns   ratio %6.2f [%.2f, %.2f]%s\n", rivals[r].name,
               median(sorted, rounds), m, lo, hi, missed ? "   MISSED" : "");
        printf("result range_lock_%s%s rival=%s ns=%.2f ratio=%.3f low=%.3f high=%.3f\n",
               work->name, io ? "_io" : "", rivals[r].name, median(sorted, rounds), m, lo, hi);
    }
    return met;
}

static void open_file(const char *name)
{
    char path[4096];
    static char block[MIB];

    if (name == NULL) {
        const char *dir = getenv("TMPDIR");

        snprintf(path, sizeof path, "%s/range_lock_bench.XXXXXX", dir != NULL ? dir : "/tmp");
        fd = mkstemp(path);
        if (fd >= 0)
            unlink(path);
    } else {
        fd = open(name, O_RDWR | O_CREAT, 0600);
    }
    for (unsigned i = 0; fd >= 0 && i < FILE_MB; i++)
        if (pwrite(fd, block, sizeof block, (off_t)(i * MIB)) != (ssize_t)sizeof block)
            fd = -1;
    if (fd < 0) {
        perror("range_lock_bench: no file to read and write; give one with --file");
        exit(1);
    }
}

int main(int argc, char **argv)
{
    enum { ALL = 1u << RWLOCK | 1u << TREE | 1u << LIST };
    static const struct work works[] = {
        {"uncontended_exclusive", 1, 0, false, true, OWN_MIB, 0, ALL},
        {"uncontended_shared", 1, 0, false, false, OWN_MIB, 0, ALL},
        {"held_1_shared", 1, 1, false, false, WITH_HELD, 0, ALL},
        {"held_1_exclusive", 1, 1, false, true, WITH_HELD, 1u << RWLOCK, ALL},
        {"mask_hit_exclusive", 1, 4, true, true, WITH_HELD, 1u << RWLOCK, 1u << TREE | 1u << LIST},
        {"held_64_shared", 1, 64, false, false, WITH_HELD, 0, 1u << LIST},
        {"held_1024_shared", 1, 1024, false, false, WITH_HELD, 0, 1u << LIST},
        {"held_64_in_one_MiB", 1, 64, true, false, WITH_HELD, 0, 1u << LIST},
        {"held_1024_in_8_MiB", 1, 1024, true, false, WITH_HELD, 0, 1u << LIST},
        {"two_readers_same_range", 2, 0, false, false, SAME, 0, 0},
        {"two_writers_disjoint", 2, 0, false, true, OWN_MIB, 0, 0},
        {"8_threads_disjoint_writers", 8, 0, false, true, OWN_MIB, 0, 0},
        {"8_threads_hot_16_grains", 8, 0, false, false, HOT, 1u << NONE, 0},
    };
    const char *name = NULL;
    bool met = true;
    size_t bytes = RL_RANGE_ROOM_BYTES(4 * HELD);
    void *room = calloc(1, bytes);

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--rounds") == 0)
            rounds = (unsigned)atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--ms") == 0)
            ms = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--file") == 0)
            name = argv[i + 1];
    }
    if (room == NULL || ms == 0 || rounds == 0 || rounds > ROUNDS)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_file(name);
    list_make();
    printf("ns an acquire and a release, %u rounds of %llu ms; none is no lock, the floor\n",
           rounds, (unsigned long long)ms);
    for (int io = 0; io < 2; io++)
        for (unsigned i = 0; i < sizeof works / sizeof *works; i++) {
            /* A lock is as its user would have it: room for a thousand ranges only where they come
             */
            memset(&slots, 0, sizeof slots);
            if (works[i].n_held >= 64) {
                memset(room, 0, bytes);
                rl_range_room(&slots, room, bytes);
            }
            met &= measure(&works[i], io != 0);
        }
    free(room);
    return met ? 0 : 1;
}
