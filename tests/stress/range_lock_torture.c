/* SPDX-License-Identifier: MIT */
/*
 * timeout: 300
 * range_lock_torture: the range lock under threads, handlers and deadlines.
 *
 *   range_lock_torture [--seconds N] [--seed S]       exit 0: nothing broke; 1: something did
 *
 * Each grain of the file has a cell. Whoever has it exclusively writes its own name into it, naps,
 * and must find it still there; whoever shares it counts itself in, and must find no writer. Some
 * threads wait, some try, some have deadlines, and a signal keeps coming whose handler does the
 * same to whatever it interrupts. Every wait must end, nobody may be passed by many later ones (the
 * longest wait is bounded), and in the end nothing may be left.
 */
#define RL_STEP_HOOK 1
#include "../../lockmgr/range_lock.c"

#include "../../lockmgr/range_room.c"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS  8
#define GRAINS   2048 /* 8 MiB */
#define GRAIN    ((uint64_t)RL_RANGE_GRAIN)
#define HOT      16           /* grains that half of all calls go to */
#define SLACK_NS 15000000000u /* a machine busy with other things */

static struct rl_range_lock lock __attribute__((aligned(64)));
static uint32_t writer[GRAINS], readers[GRAINS];
static uint32_t stop, broken;
static uint64_t n_taken, n_refused, n_late, n_own, n_in_handler, longest_ns;
static uint64_t seed_arg = 1;
static __thread uint64_t rnd_state;
static __thread bool naps;
static pthread_t threads[THREADS];

static uint64_t rnd(void)
{
    rnd_state ^= rnd_state << 13;
    rnd_state ^= rnd_state >> 7;
    rnd_state ^= rnd_state << 17;
    return rnd_state;
}

static void nap(long ns)
{
    struct timespec ts = {.tv_nsec = ns};

    rl_raw(SYS_nanosleep, &ts, NULL);
}

void rl_step(void)
{
    uint64_t r = naps ? rnd() : 1;

    if (r % 256 == 0)
        rl_raw(SYS_sched_yield);
    else if (r % 16384 == 1)
        nap(20000);
}

static void fail(const char *what, uint64_t detail)
{
    if (__atomic_fetch_add(&broken, 1, __ATOMIC_SEQ_CST) == 0)
        printf("broken: %s (%llu)\n", what, (unsigned long long)detail);
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
}

static void count(uint64_t *n)
{
    __atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
}

/* What is checked is not stepped: plain atomics of the compiler. */
static void be_inside(uint64_t start, uint64_t end, enum rl_range_mode mode, uint32_t name)
{
    uint64_t first = start / GRAIN, last = (end - 1) / GRAIN;

    for (uint64_t g = first; g <= last; g++) {
        if (mode == RL_EXCLUSIVE) {
            uint32_t other = __atomic_exchange_n(&writer[g], name, __ATOMIC_RELAXED);

            if (other != 0 || __atomic_load_n(&readers[g], __ATOMIC_RELAXED) != 0)
                fail("an exclusive was not alone", g);
        } else {
            __atomic_fetch_add(&readers[g], 1, __ATOMIC_RELAXED);
            if (__atomic_load_n(&writer[g], __ATOMIC_RELAXED) != 0)
                fail("a shared one met an exclusive", g);
        }
    }
    if (rnd() % 4 == 0)
        nap((long)(rnd() % 40000));
    for (uint64_t g = first; g <= last; g++) {
        if (mode == RL_EXCLUSIVE) {
            if (__atomic_load_n(&writer[g], __ATOMIC_RELAXED) != name)
                fail("an exclusive lost its range", g);
            __atomic_store_n(&writer[g], 0, __ATOMIC_RELAXED);
        } else {
            if (__atomic_load_n(&writer[g], __ATOMIC_RELAXED) != 0)
                fail("an exclusive came to a shared one", g);
            __atomic_fetch_sub(&readers[g], 1, __ATOMIC_RELAXED);
        }
    }
}

static void choose(uint64_t *start, uint64_t *end)
{
    uint64_t grains = rnd() % 8 != 0 ? 1 + rnd() % 4 : 1 + rnd() % (GRAINS / 2);
    uint64_t first = rnd() % 2 ? rnd() % HOT : rnd() % GRAINS;

    if (first + grains > GRAINS)
        first = GRAINS - grains;
    *start = first * GRAIN + rnd() % GRAIN;
    *end = (first + grains) * GRAIN - rnd() % GRAIN;
    if (*end <= *start)
        *end = *start + 1;
}

/* One call; nested: from a handler, or with something held. */
static void call(uint32_t name, bool nested)
{
    enum rl_range_mode mode = rnd() % 3 == 0 ? RL_EXCLUSIVE : RL_SHARED;
    unsigned kind = rnd() % 8;
    struct rl_range_hold hold;
    uint64_t start, end, begin = rl_now_ns(), took, longest;
    int r;

    choose(&start, &end);
    if (nested && kind > 1)
        kind =
            rnd() % 2; /* two threads that wait for what the other holds are not the lock's fault */
    r = kind == 0   ? rl_range_try(&lock, &hold, start, end, mode)
        : kind == 1 ? rl_range_acquire_until(&lock, &hold, start, end, mode, begin + rnd() % 200000)
                    : rl_range_acquire(&lock, &hold, start, end, mode);
    took = rl_now_ns() - begin;
    longest = __atomic_load_n(&longest_ns, __ATOMIC_RELAXED);
    while (took > longest && !__atomic_compare_exchange_n(&longest_ns, &longest, took, false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    if (took > SLACK_NS)
        fail("somebody waited too long", took);
    if (r == 0) {
        be_inside(start, end, mode, name);
        if (!nested && rnd() % 8 == 0)
            call(name + THREADS, true);
        rl_range_release(&hold);
        count(&n_taken);
    } else if (r == -EAGAIN && kind == 0) {
        count(&n_refused);
    } else if (r == -ETIMEDOUT && kind == 1) {
        count(&n_late);
    } else if (r == -EDEADLK && nested) {
        count(&n_own);
    } else {
        fail("an answer that cannot be", (uint64_t)-r);
    }
}

static void handler(int sig)
{
    bool napped = naps;

    (void)sig;
    naps = false;
    count(&n_in_handler);
    call((uint32_t)(rnd_state & 0xffff) + 1000, true);
    naps = napped;
}

static void *thread_main(void *arg)
{
    uint32_t me = (uint32_t)(intptr_t)arg;

    rnd_state = seed_arg * 0x9e3779b97f4a7c15u + (uint64_t)me * 0xd1342543de82ef95u + 1;
    naps = true;
    while (__atomic_load_n(&stop, __ATOMIC_SEQ_CST) == 0) {
        call(me, false);
        if (rnd() % 16 == 0)
            nap((long)(rnd() % 100000));
    }
    naps = false;
    return NULL;
}

int main(int argc, char **argv)
{
    struct sigaction sa = {.sa_handler = handler};
    uint64_t until_ns;
    int seconds = 10;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--seed") == 0)
            seed_arg = strtoull(argv[i + 1], NULL, 0);
    }
    sigaction(SIGUSR1, &sa, NULL);
    for (uint32_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, thread_main, (void *)(intptr_t)(i + 1)) != 0)
            return 1;
    rnd_state = seed_arg + 99;
    until_ns = rl_now_ns() + (uint64_t)seconds * 1000000000u;
    while (rl_now_ns() < until_ns && __atomic_load_n(&stop, __ATOMIC_SEQ_CST) == 0) {
        pthread_kill(threads[rnd() % THREADS], SIGUSR1);
        nap(300000);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    alarm(SLACK_NS / 1000000000u); /* each must end by itself */
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    alarm(0);
    if (!rl_range_idle(&lock))
        fail("all have left, and the lock is not idle", 0);
    if (broken == 0 && (n_taken == 0 || n_refused == 0 || n_late == 0 || n_in_handler == 0))
        fail("something never happened", n_taken);
    printf("range_lock_torture: seed %llu: %llu taken, %llu refused, %llu late, %llu own, %llu in "
           "handlers, longest wait %.1f ms: %s\n",
           (unsigned long long)seed_arg, (unsigned long long)n_taken, (unsigned long long)n_refused,
           (unsigned long long)n_late, (unsigned long long)n_own, (unsigned long long)n_in_handler,
           (double)longest_ns / 1e6, broken ? "BROKEN" : "nothing broke");
    return broken ? 1 : 0;
}
