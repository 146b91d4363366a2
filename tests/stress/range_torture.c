/* SPDX-License-Identifier: MIT */
/*
 * timeout: 300
 * range_torture: the range table under threads that keep to range_table.h word for word, on a
 * simulated kernel.
 *
 *   range_torture [--seconds N] [--seed S]      exit 0: nothing broke; 1: something did
 *
 * Two files share one table in turns: odd activations belong to file 1, even ones to file 0, so a
 * range that outlives its activation hits the wrong file. A block's content is a cell of 512 bytes
 * at offset 512 of the block; it is zeroed by a punch that covers it.
 *   owners    each punches, writes, reads and settles a region of its own, so it knows every value
 *   the pair  punches B, then writes A, then B; nobody may see a new A beside an old B
 *   observers read at random; what they or an owner saw or did is never undone (floor)
 *   handlers  a signal handler in all of them punches cells that nobody writes, and looks
 *   consumer  applies, postpones, settles, closes and opens
 * The lock manager is compiled in with RL_STEP_HOOK: any atomic operation may be followed by a
 * thread change or a nap.
 */
#define RL_STEP_HOOK 1
#include "../../lockmgr/ranges.c"
#include "../../lockmgr/range_table.c"
#include "../../lockmgr/drain.c"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWNERS    4
#define OBSERVERS 2
#define REGION    300 /* blocks of an owner: crosses a class border */
#define PAIR_A    (OWNERS * REGION + 7)
#define PAIR_B    (PAIR_A + 130)
#define HANDLED   (PAIR_B + 60) /* blocks the handlers punch, 64 each thread */
#define THREADS   (OWNERS + 1 + OBSERVERS)
#define BLOCKS    (HANDLED + THREADS * 64)
#define NODES     160
#define LIMIT     40
#define CALL_MAX  (64u * 4096)
#define MAX_SPANS 256
#define STUCK_S   15

static struct rl_table table, *const t = &table;
static union {
    struct rl_pool pool;
    char bytes[sizeof(struct rl_pool) + NODES * sizeof(struct rl_node)];
} mem;
static struct rl_pool *const pool = &mem.pool;

static uint32_t cell[2][BLOCKS];   /* what the simulated disk holds: 0, or a version */
static uint32_t floor_[2][BLOCKS]; /* 2v: version v was seen or written; 2v+1: a zero after it */
static uint32_t at_end[2][OWNERS * REGION];                   /* what the owners left */
static pthread_mutex_t pair_lock = PTHREAD_MUTEX_INITIALIZER; /* makes a read of A and B one step */
static uint32_t stop, failures, want_pass;
static uint64_t progress[THREADS + 1];
static uint64_t n_puts, n_merged, n_full, n_closed, n_reads, n_retries, n_writes, n_applied,
    n_postponed, n_settles, n_opens, n_signals;
static __thread uint64_t rnd_state;
static __thread int my_index = -1;

static void fail(const char *what, int file, int block, uint32_t seen, uint32_t wanted)
{
    if (rl_add_32(&failures, 1) < 5) {
        char line[200];
        int n = snprintf(line, sizeof line, "broken: %s: file %d block %d has %u, expected %u\n",
                         what, file, block, seen, wanted);

        if (write(STDOUT_FILENO, line, (size_t)n) < 0)
            abort();
    }
    rl_store_32(&stop, 1);
}

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
    uint64_t r = rnd_state == 0 ? 1 : rnd();

    if (r % 512 == 0)
        rl_raw(SYS_sched_yield);
    else if (r % 16384 == 1)
        nap(20000);
}

static bool stopped(void)
{
    return rl_load_32(&stop) != 0;
}

/* Calls that are under way end as they should, unless all is lost anyway. */
static bool lost(void)
{
    return rl_load_32(&failures) != 0;
}

static uint64_t cell_start(int b)
{
    return (uint64_t)b * 4096 + 512;
}

static int file_of(uint32_t act)
{
    return (int)(act >> 2 & 1);
}

static void raise_floor(int f, int b, uint32_t to)
{
    uint32_t now = rl_load_32(&floor_[f][b]);

    while (now < to && !rl_cas_32(&floor_[f][b], &now, to))
        ;
}

static bool is_pair(int b)
{
    return b == PAIR_A || b == PAIR_B;
}

static void cell_set(int f, int b, uint32_t v)
{
    if (is_pair(b))
        pthread_mutex_lock(&pair_lock);
    rl_store_32(&cell[f][b], v);
    if (is_pair(b))
        pthread_mutex_unlock(&pair_lock);
}

/* --- the simulated kernel --- */

static void kernel_punch(int f, struct rl_span s)
{
    int last = s.end > cell_start(BLOCKS - 1) ? BLOCKS - 1 : (int)(s.end / 4096);

    for (int b = (int)(s.start / 4096); b <= last; b++)
        if (s.start <= cell_start(b) && s.end >= cell_start(b) + 512) {
            rl_step();
            cell_set(f, b, 0);
        }
}

/* --- the protocols of range_table.h --- */

static int look_at(int a, int b, struct rl_span *out)
{
    return rl_table_overlaps(t, pool, cell_start(a), cell_start(b - 1) + 512, out, MAX_SPANS);
}

static void sleep_on_done(uint32_t seq)
{
    rl_futex_wait(&t->done_seq, seq, 2000000);
}

static void wait_clear(int a, int b)
{
    struct rl_span out[MAX_SPANS];

    for (;;) {
        uint32_t seq = rl_load_32(&t->done_seq);

        if (look_at(a, b, out) == 0 || lost())
            return;
        rl_table_want(t, cell_start(a), cell_start(b - 1) + 512);
        sleep_on_done(seq);
    }
}

static void write_cells(int f, int a, int b, const uint32_t *v)
{
    wait_clear(a, b);
    for (int i = a; i < b; i++) {
        rl_step();
        cell_set(f, i, v[i - a]);
    }
    wait_clear(a, b);
    rl_add_64(&n_writes, 1);
}

static bool same(const struct rl_span *x, const struct rl_span *y, int n)
{
    return n <= 0 || memcmp(x, y, (size_t)n * sizeof *x) == 0;
}

static bool read_cells(int f, int a, int b, uint32_t *v)
{
    struct rl_span before[MAX_SPANS], after[MAX_SPANS];
    uint64_t start = cell_start(a), end = cell_start(b - 1) + 512;

    while (!lost()) {
        uint32_t seq = rl_load_32(&t->done_seq), act = rl_load_32(&t->act);
        uint64_t stamp = rl_table_stamp(t, start, end);
        int n = file_of(act) == f ? look_at(a, b, before) : 0;

        if (n < 0) { /* more than we hold, or a consumer asleep half-way */
            rl_table_want(t, start, end);
            sleep_on_done(seq);
            continue;
        }
        if (is_pair(a))
            pthread_mutex_lock(&pair_lock);
        for (int i = a; i < b; i++)
            v[i - a] = rl_load_32(&cell[f][i]);
        if (is_pair(a))
            pthread_mutex_unlock(&pair_lock);
        rl_fence_load();
        if (rl_table_stamp(t, start, end) != stamp ||
            (file_of(act) == f && (look_at(a, b, after) != n || !same(before, after, n))) ||
            rl_load_32(&t->act) >> 2 != act >> 2) {
            rl_add_64(&n_retries, 1);
            continue;
        }
        for (int k = 0; k < n; k++)
            for (int i = a; i < b; i++)
                if (before[k].start <= cell_start(i) && before[k].end >= cell_start(i) + 512)
                    v[i - a] = 0;
        rl_add_64(&n_reads, 1);
        return true;
    }
    return false;
}

/* Punches blocks [a, b): queued if the table takes it. Returns what the table said. */
static enum rl_put punch(uint32_t act, int a, int b, bool aligned)
{
    struct rl_span s = {(uint64_t)a * 4096 + (aligned ? 0 : 512),
                        (uint64_t)b * 4096 - (aligned ? 0 : 512)};
    enum rl_put put = rl_table_put(t, pool, act, s.start, s.end, 1);

    rl_add_64(put == RL_PUT_MERGED   ? &n_merged
              : put == RL_PUT_FULL   ? &n_full
              : put == RL_PUT_CLOSED ? &n_closed
                                     : &n_puts,
              1);
    if (put == RL_PUT_CLOSED || put == RL_PUT_FULL)
        kernel_punch(file_of(act), s);
    return put;
}

/* --- signal handlers: cells 64 * thread .. +63 hold 1 and are only ever punched --- */

static void on_signal(int sig)
{
    uint64_t kept = rnd_state;
    uint32_t act = rl_load_32(&t->act), v = 1;
    int b, f = file_of(act);

    (void)sig;
    if (my_index < 0 || stopped() || lost())
        return;
    b = HANDLED + 64 * my_index + (int)(rnd() % 64);
    punch(act, b, b + 1, rnd() % 2 == 0);
    if (read_cells(f, b, b + 1, &v) && v != 0)
        fail("a handler's read after its punch", f, b, v, 0);
    rl_add_64(&n_signals, 1);
    rnd_state = kept ^ 0x5bd1e995;
}

static void begin_thread(int index, uint64_t seed)
{
    rnd_state = seed * 0x9e3779b97f4a7c15u + (uint64_t)index * 0xd1342543de82ef95u + 1;
    my_index = index;
}

static uint64_t seed_arg = 1;

/* --- owners --- */

static void settle(int f, int first, const uint32_t *expect, uint32_t act)
{
    uint32_t target = rl_load_32(&t->pass_begun) + 1;

    rl_store_32(&t->want_all, 1);
    rl_store_32(&want_pass, 1);
    for (;;) {
        uint32_t seq = rl_load_32(&t->done_seq);

        if ((int32_t)(rl_load_32(&t->pass_done) - target) >= 0 || lost() ||
            rl_load_32(&t->act) >> 2 != act >> 2)
            break;
        sleep_on_done(seq);
    }
    for (int i = 0; i < REGION && !lost(); i++)
        if (rl_load_32(&cell[f][first + i]) != expect[i])
            fail("after settling the disk", f, first + i, cell[f][first + i], expect[i]);
    rl_add_64(&n_settles, 1);
}

static void *owner(void *arg)
{
    int me = (int)(intptr_t)arg, first = me * REGION;
    uint32_t expect[2][REGION], version[2][REGION], seen[REGION], fresh[REGION];
    int cursor = 0;

    begin_thread(me, seed_arg);
    for (int f = 0; f < 2; f++)
        for (int i = 0; i < REGION; i++)
            expect[f][i] = version[f][i] = 1;
    while (!stopped()) {
        uint32_t act = rl_load_32(&t->act);
        int f = file_of(act), kind = (int)(rnd() % 16);
        int len = kind % 4 != 0 ? 1 : 1 + (int)(rnd() % (rnd() % 8 == 0 ? REGION : 12));
        int a = rnd() % 4 == 0 ? cursor : (int)(rnd() % REGION), b;

        b = a + len > REGION ? REGION : a + len;
        cursor = b % REGION;
        rl_add_64(&progress[me], 1);
        if (kind < 8) {
            enum rl_put put = punch(act, first + a, first + b, rnd() % 3 != 0);

            for (int i = a; i < b; i++) {
                expect[f][i] = 0;
                raise_floor(f, first + i, 2 * version[f][i] + 1);
            }
            if (put == RL_PUT_QUEUED || put == RL_PUT_MERGED)
                for (int i = a; i < b; i++) {
                    bool maybe =
                        rl_table_maybe(t, cell_start(first + i), cell_start(first + i) + 1);
                    uint32_t v = rl_load_32(&cell[f][first + i]);

                    if (!maybe && v != 0)
                        fail("nothing there according to maybe, and yet", f, first + i, v, 0);
                }
        } else if (kind < 13) {
            for (int i = a; i < b; i++)
                fresh[i] = ++version[f][i];
            write_cells(f, first + a, first + b, &fresh[a]);
            for (int i = a; i < b; i++) {
                expect[f][i] = fresh[i];
                raise_floor(f, first + i, 2 * fresh[i]);
            }
        } else if (kind == 15 && rnd() % 32 == 0) {
            settle(f, first, expect[f], act);
        }
        if (rnd() % 16 == 0) {
            a = 0;
            b = REGION;
        }
        f = rnd() % 8 == 0 ? !f : f;
        if (!read_cells(f, first + a, first + b, &seen[a]))
            break;
        for (int i = a; i < b; i++)
            if (seen[i] != expect[f][i])
                fail("an owner's read", f, first + i, seen[i], expect[f][i]);
    }
    /* For the check after the last drain. Not in floor_: an observer that looked before still
     * raises it. */
    for (int f = 0; f < 2; f++)
        for (int i = 0; i < REGION; i++)
            at_end[f][first + i] = expect[f][i];
    return NULL;
}

static void *pair(void *arg)
{
    uint32_t k[2] = {1, 1};
    int me = (int)(intptr_t)arg;

    begin_thread(me, seed_arg);
    while (!stopped()) {
        uint32_t act = rl_load_32(&t->act);
        int f = file_of(act);

        rl_add_64(&progress[me], 1);
        k[f]++;
        punch(act, PAIR_B, PAIR_B + 1, rnd() % 2 == 0);
        raise_floor(f, PAIR_B, 2 * (k[f] - 1) + 1);
        write_cells(f, PAIR_A, PAIR_A + 1, &k[f]);
        raise_floor(f, PAIR_A, 2 * k[f]);
        write_cells(f, PAIR_B, PAIR_B + 1, &k[f]);
        raise_floor(f, PAIR_B, 2 * k[f]);
    }
    return NULL;
}

static void *observer(void *arg)
{
    uint32_t v[PAIR_B - PAIR_A + 1], least[PAIR_B - PAIR_A + 1];
    int me = (int)(intptr_t)arg;

    begin_thread(me, seed_arg);
    while (!stopped()) {
        bool at_pair = rnd() % 2 == 0;
        int f = (int)(rnd() % 2), a = (int)(rnd() % (OWNERS * REGION - 16));
        int b = a + 1 + (int)(rnd() % 16);

        if (at_pair) {
            a = PAIR_A;
            b = PAIR_B + 1;
        }
        rl_add_64(&progress[me], 1);
        for (int i = a; i < b; i++)
            least[i - a] = rl_load_32(&floor_[f][i]);
        if (!read_cells(f, a, b, v))
            break;
        for (int i = a; i < b; i++) {
            uint32_t x = v[i - a], l = least[i - a];

            if (x != 0 && 2 * x < l)
                fail("what was seen or done is undone", f, i, x, (l + 1) / 2);
            raise_floor(f, i, x != 0 ? 2 * x : l | (l != 0));
        }
        if (at_pair && v[PAIR_B - PAIR_A] != 0 && v[PAIR_B - PAIR_A] != v[0])
            fail("a mixture: B beside A", f, PAIR_B, v[PAIR_B - PAIR_A], v[0]);
    }
    return NULL;
}

/* --- the consumer --- */

static void apply(struct rl_span s, bool *postponed)
{
    if (rnd() % 32 == 0 && postponed != NULL) {
        rl_drain_postponed(t, pool, &s);
        rl_add_64(&n_postponed, 1);
        *postponed = true;
        return;
    }
    kernel_punch(file_of(rl_load_32(&t->act)), s);
    rl_drain_applied(t, pool, &s);
    rl_add_64(&n_applied, 1);
}

static void one_pass(bool may_postpone)
{
    bool postponed = false;
    struct rl_span s;

    rl_drain_begin(t, pool);
    while (rl_drain_next(t, pool, CALL_MAX, &s)) {
        apply(s, may_postpone ? &postponed : NULL);
        while (rnd() % 2 == 0 && rl_drain_next_wanted(t, pool, CALL_MAX, &s))
            apply(s, NULL);
    }
    if (!postponed) /* else somebody would take it for settled */
        rl_drain_end(t);
}

static void close_for_good(void)
{
    rl_table_close(t, rl_load_32(&t->act));
    while (!rl_drain_close(t) && !lost())
        one_pass(false);
}

static void *consumer(void *arg)
{
    sigset_t all;

    (void)arg;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    begin_thread(THREADS, seed_arg);
    my_index = -1;
    for (uint64_t round = 1; rl_load_32(&want_pass) != 2; round++) {
        struct rl_span s;

        rl_add_64(&progress[THREADS], 1);
        while (rl_drain_next_wanted(t, pool, CALL_MAX, &s))
            apply(s, NULL);
        if (rl_load_32(&want_pass) != 2 &&
            (rl_swap_32(&want_pass, 0) != 0 || rl_load_32(&t->want_all) != 0 || round % 8 == 0))
            one_pass(true);
        if (round % 64 == 0) {
            close_for_good();
            nap(rnd() % 2 == 0 ? 1 : 100000);
            rl_drain_open(t, pool);
            rl_add_64(&n_opens, 1);
        }
        if (rnd() % 4 == 0)
            nap((long)(rnd() % (rnd() % 16 == 0 ? 20000000 : 200000))); /* long: the pool fills */
    }
    close_for_good();
    return NULL;
}

static void check_end(void)
{
    rl_drain_open(t, pool); /* leftovers of putters that came too late go here */
    if (!rl_table_empty(t) || pool->used != 0)
        fail("the drained table is empty; nodes in use", 0, 0, pool->used, 0);
    for (int f = 0; f < 2; f++)
        for (int i = 0; i < OWNERS * REGION; i++) {
            if (cell[f][i] != at_end[f][i])
                fail("at the end the disk", f, i, cell[f][i], at_end[f][i]);
        }
}

static void run(int seconds)
{
    pthread_t thread[THREADS], drainer;
    uint64_t last[THREADS + 1] = {0};
    int quiet[THREADS + 1] = {0};
    sigset_t usr;

    pool->capacity = NODES;
    pool->limit = LIMIT;
    for (int f = 0; f < 2; f++)
        for (int i = 0; i < BLOCKS; i++) {
            cell[f][i] = 1;
            floor_[f][i] = 2;
        }
    rl_drain_open(t, pool);
    pthread_create(&drainer, NULL, consumer, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL,
                       i < OWNERS    ? owner
                       : i == OWNERS ? pair
                                     : observer,
                       (void *)(intptr_t)i);
    sigemptyset(&usr);
    sigaddset(&usr, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr, NULL);
    for (int tick = 0; tick < seconds * 100 && !stopped(); tick++) {
        nap(10000000);
        for (int i = 0; i < THREADS; i++)
            pthread_kill(thread[i], SIGUSR1);
        for (int i = 0; i <= THREADS; i++) {
            uint64_t now = rl_load_64(&progress[i]);

            quiet[i] = now == last[i] ? quiet[i] + 1 : 0;
            last[i] = now;
            if (quiet[i] > STUCK_S * 100) {
                printf("broken: thread %d made no step for %d s\n", i, STUCK_S);
                exit(1);
            }
        }
    }
    rl_store_32(&stop, 1);
    alarm(STUCK_S); /* the threads must end by themselves */
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    rl_store_32(&want_pass, 2);
    pthread_join(drainer, NULL);
    if (!lost())
        check_end();
}

int main(int argc, char **argv)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    int seconds = 10;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--seed") == 0)
            seed_arg = strtoull(argv[i + 1], NULL, 0);
    }
    sigaction(SIGUSR1, &sa, NULL);
    run(seconds);
    printf(
        "range_torture: seed %llu: %llu queued, %llu merged, %llu full, %llu closed, %llu writes, "
        "%llu reads, %llu repeated, %llu applied, %llu postponed, %llu settles, %llu "
        "activations, %llu signals: %s\n",
        (unsigned long long)seed_arg, (unsigned long long)n_puts, (unsigned long long)n_merged,
        (unsigned long long)n_full, (unsigned long long)n_closed, (unsigned long long)n_writes,
        (unsigned long long)n_reads, (unsigned long long)n_retries, (unsigned long long)n_applied,
        (unsigned long long)n_postponed, (unsigned long long)n_settles, (unsigned long long)n_opens,
        (unsigned long long)n_signals, failures == 0 ? "nothing broke" : "BROKEN");
    return failures == 0 ? 0 : 1;
}
