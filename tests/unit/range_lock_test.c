/* SPDX-License-Identifier: MIT */
/* The range lock as include/rlshim/range_lock.h promises them. timeout: 60 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../include/rlshim/range_lock.h"
#include "../../lockmgr/gate.h"
#include "../../lockmgr/sync.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define K4  ((uint64_t)4096)

static struct rl_range_lock lock;

static int fresh(void **state)
{
    (void)state;
    memset(&lock, 0, sizeof lock);
    return 0;
}

/* --- another thread's view --- */

struct asked {
    uint64_t start, end;
    enum rl_range_mode mode;
    int result;
};

static void *try_thread(void *arg)
{
    struct asked *a = arg;
    struct rl_range_hold hold;

    a->result = rl_range_try(&lock, &hold, a->start, a->end, a->mode);
    rl_range_release(&hold);
    return NULL;
}

static int other_tries(uint64_t start, uint64_t end, enum rl_range_mode mode)
{
    struct asked a = {start, end, mode, 1};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, try_thread, &a), 0);
    pthread_join(thread, NULL);
    return a.result;
}

/* A thread that waits for a range, then keeps it until it is told. */
struct waiter {
    pthread_t thread;
    uint64_t start, end;
    enum rl_range_mode mode;
    uint32_t got, leave;
    int result;
};

static void *waiter_thread(void *arg)
{
    struct waiter *w = arg;
    struct rl_range_hold hold;

    w->result = rl_range_acquire(&lock, &hold, w->start, w->end, w->mode);
    rl_store_32(&w->got, 1);
    while (rl_load_32(&w->leave) == 0)
        usleep(500);
    rl_range_release(&hold);
    return NULL;
}

/* Whether the waiting slots of the lock are n: their count is in its second word (range_lock_impl).
 */
static unsigned waiting(void)
{
    return rl_load_32((uint32_t *)&lock + 1) >> 1;
}

static void wait_begin(struct waiter *w, uint64_t start, uint64_t end, enum rl_range_mode mode)
{
    unsigned before = waiting();

    *w = (struct waiter){.start = start, .end = end, .mode = mode};
    assert_int_equal(pthread_create(&w->thread, NULL, waiter_thread, w), 0);
    while (waiting() == before && rl_load_32(&w->got) == 0)
        usleep(500);
    usleep(2000); /* counted is not yet marked: give it time; nothing below depends on it */
}

static void wait_got(struct waiter *w)
{
    while (rl_load_32(&w->got) == 0)
        usleep(500);
    assert_int_equal(w->result, 0);
}

static void wait_end(struct waiter *w)
{
    rl_store_32(&w->leave, 1);
    pthread_join(w->thread, NULL);
}

static void take(struct rl_range_hold *h, uint64_t start, uint64_t end, enum rl_range_mode mode)
{
    assert_int_equal(rl_range_acquire(&lock, h, start, end, mode), 0);
}

/* --- who excludes whom --- */

static void shared_holders_share_and_exclusive_ones_do_not(void **state)
{
    struct rl_range_hold h;

    (void)state;
    take(&h, 0, K4, RL_SHARED);
    assert_int_equal(other_tries(0, K4, RL_SHARED), 0);
    assert_int_equal(other_tries(0, K4, RL_EXCLUSIVE), -EAGAIN);
    rl_range_release(&h);
    take(&h, 0, K4, RL_EXCLUSIVE);
    assert_int_equal(other_tries(0, K4, RL_SHARED), -EAGAIN);
    assert_int_equal(other_tries(K4, 2 * K4, RL_EXCLUSIVE), 0);
    assert_int_equal(other_tries(64 * MIB, 128 * MIB, RL_EXCLUSIVE), 0);
    rl_range_release(&h);
    assert_int_equal(other_tries(0, K4, RL_EXCLUSIVE), 0);
    assert_true(rl_range_idle(&lock));
}

/* Every pair of these, against arithmetic on the rounded ranges. */
static void overlap_is_never_missed_and_never_invented(void **state)
{
    static const uint64_t edge[] = {0,
                                    1,
                                    K4 - 1,
                                    K4,
                                    3 * K4 + 7,
                                    MIB - 1,
                                    MIB,
                                    MIB + K4,
                                    3 * MIB,
                                    4 * MIB + 1,
                                    9 * MIB,
                                    GIB,
                                    4 * GIB - 2 * K4,
                                    4 * GIB - K4,
                                    4 * GIB,
                                    5 * GIB,
                                    (uint64_t)1 << 47,
                                    ((uint64_t)1 << 48) - K4,
                                    (uint64_t)1 << 48,
                                    (uint64_t)1 << 60,
                                    RL_END};
    unsigned n = sizeof edge / sizeof *edge, excluded = 0, free = 0;

    (void)state;
    for (unsigned a = 0; a < n; a++)
        for (unsigned b = a + 1; b < n; b++) {
            struct rl_range_hold h;

            take(&h, edge[a], edge[b], RL_EXCLUSIVE);
            for (unsigned c = 0; c < n; c++)
                for (unsigned d = c + 1; d < n; d++) {
                    /* by hand: bytes that overlap must exclude, grains that do not must not */
                    bool bytes = edge[a] < edge[d] && edge[c] < edge[b];
                    bool grains = edge[a] / K4 * K4 < (edge[d] + K4 - 1) / K4 * K4 &&
                                  edge[c] / K4 * K4 < (edge[b] + K4 - 1) / K4 * K4;
                    bool exact = edge[b] - edge[a] < 4 * GIB - 2 * K4 &&
                                 edge[d] - edge[c] < 4 * GIB - 2 * K4 && edge[b] < GIB << 16 &&
                                 edge[d] < GIB << 16;
                    struct rl_range_hold other;
                    int r = rl_range_try(&lock, &other, edge[c], edge[d], RL_SHARED);

                    rl_range_release(&other);
                    if (bytes)
                        assert_int_equal(r, -EDEADLK); /* ours: the same thread asks */
                    if (exact && !grains)
                        assert_int_equal(r, 0);
                    excluded += r != 0;
                    free += r == 0;
                }
            rl_range_release(&h);
        }
    assert_true(excluded > 1000 && free > 1000);
    assert_true(rl_range_idle(&lock));
}

static void wrong_ranges_and_modes_are_refused(void **state)
{
    struct rl_range_hold h;

    (void)state;
    assert_int_equal(rl_range_acquire(&lock, &h, 5, 5, RL_SHARED), -EINVAL);
    rl_range_release(&h);
    assert_int_equal(rl_range_try(&lock, &h, 6, 5, RL_SHARED), -EINVAL);
    assert_int_equal(rl_range_acquire(&lock, &h, 0, 5, (enum rl_range_mode)2), -EINVAL);
    rl_range_release(&h);
    rl_range_release(&h);
    rl_range_release(&(struct rl_range_hold){0});
    assert_true(rl_range_idle(&lock));
}

/* --- waiting --- */

static void a_waiter_gets_in_when_the_holder_leaves(void **state)
{
    struct rl_range_hold h;
    struct waiter w;

    (void)state;
    for (int mode = RL_SHARED; mode <= RL_EXCLUSIVE; mode++) {
        take(&h, 8 * MIB, 9 * MIB, RL_EXCLUSIVE);
        wait_begin(&w, 8 * MIB + 5, 8 * MIB + 6, (enum rl_range_mode)mode);
        assert_int_equal(rl_load_32(&w.got), 0);
        rl_range_release(&h);
        wait_got(&w);
        assert_int_equal(other_tries(8 * MIB, 9 * MIB, RL_EXCLUSIVE), -EAGAIN);
        wait_end(&w);
    }
    assert_true(rl_range_idle(&lock));
}

static void a_waiting_exclusive_is_not_overtaken_by_shared_ones(void **state)
{
    struct rl_range_hold h;
    struct waiter exclusive, shared;

    (void)state;
    take(&h, 0, K4, RL_SHARED);
    wait_begin(&exclusive, 0, MIB, RL_EXCLUSIVE);
    assert_int_equal(other_tries(0, K4, RL_SHARED), -EAGAIN);
    assert_int_equal(other_tries(MIB - 1, MIB, RL_SHARED), -EAGAIN);
    assert_int_equal(other_tries(MIB, 2 * MIB, RL_SHARED), 0);
    wait_begin(&shared, 0, K4, RL_SHARED);
    rl_range_release(&h);
    wait_got(&exclusive);
    assert_int_equal(rl_load_32(&shared.got), 0);
    wait_end(&exclusive);
    wait_got(&shared);
    wait_end(&shared);
    assert_true(rl_range_idle(&lock));
}

static void waiters_go_in_the_order_of_their_coming(void **state)
{
    struct rl_range_hold h;
    struct waiter w[5];

    (void)state;
    take(&h, 0, 64 * MIB, RL_EXCLUSIVE);
    for (unsigned i = 0; i < 5; i++) {
        wait_begin(&w[i], i * MIB / 2, 32 * MIB, RL_EXCLUSIVE);
        assert_int_equal(waiting(), i + 1);
    }
    rl_range_release(&h);
    for (unsigned i = 0; i < 5; i++) {
        wait_got(&w[i]);
        for (unsigned k = i + 1; k < 5; k++)
            assert_int_equal(rl_load_32(&w[k].got), 0);
        wait_end(&w[i]);
    }
    assert_true(rl_range_idle(&lock));
}

static void a_deadline_ends_a_wait_and_leaves_nothing(void **state)
{
    struct rl_range_hold h, late;
    struct waiter w;
    uint64_t begin;

    (void)state;
    take(&h, 0, MIB, RL_SHARED);
    for (int i = 0; i < 3; i++) {
        wait_begin(&w, 2 * MIB, 3 * MIB, RL_EXCLUSIVE); /* a holder that is not us */
        wait_got(&w);
        begin = rl_now_ns();
        assert_int_equal(rl_range_acquire_until(&lock, &late, 2 * MIB, 2 * MIB + 1, RL_EXCLUSIVE,
                                                begin + (i == 0 ? 0 : 30000000)),
                         -ETIMEDOUT);
        assert_true(rl_now_ns() - begin >= (i == 0 ? 0 : 30000000));
        rl_range_release(&late); /* has nothing */
        wait_end(&w);
        assert_int_equal(waiting(), 0);
    }
    assert_int_equal(other_tries(0, MIB, RL_SHARED), 0); /* no mark of theirs is left */
    rl_range_release(&h);
    assert_int_equal(rl_range_acquire_until(&lock, &h, 0, 1, RL_SHARED, 1), 0);
    rl_range_release(&h);
    assert_true(rl_range_idle(&lock));
}

static void errno_is_left_alone(void **state)
{
    struct rl_range_hold h;
    struct waiter w;

    (void)state;
    wait_begin(&w, 0, MIB, RL_EXCLUSIVE);
    wait_got(&w);
    errno = 4711;
    assert_int_equal(rl_range_acquire_until(&lock, &h, 0, 1, RL_SHARED, rl_now_ns() + 5000000),
                     -ETIMEDOUT);
    assert_int_equal(rl_range_try(&lock, &h, 0, 1, RL_SHARED), -EAGAIN);
    assert_int_equal(errno, 4711);
    wait_end(&w);
}

/* --- the same thread again --- */

static void a_thread_is_told_when_it_would_wait_for_itself(void **state)
{
    struct rl_range_hold h, again;

    (void)state;
    take(&h, 0, K4, RL_SHARED);
    assert_int_equal(rl_range_acquire(&lock, &again, 0, MIB, RL_EXCLUSIVE), -EDEADLK);
    assert_int_equal(rl_range_try(&lock, &again, 0, MIB, RL_EXCLUSIVE), -EDEADLK);
    take(&again, 0, MIB, RL_SHARED);
    rl_range_release(&h);
    rl_range_release(&again);
    assert_true(rl_range_idle(&lock));
}

static void a_holder_passes_those_who_may_wait_for_it(void **state)
{
    struct rl_range_hold h, again;
    struct waiter w;

    (void)state;
    take(&h, 0, K4, RL_SHARED);
    wait_begin(&w, 0, 8 * MIB, RL_EXCLUSIVE);
    assert_int_equal(other_tries(MIB, 2 * MIB, RL_SHARED), -EAGAIN);
    take(&again, 0, K4, RL_SHARED);
    assert_int_equal(rl_load_32(&w.got), 0);
    rl_range_release(&h); /* not nested: the second one still stands */
    usleep(5000);
    assert_int_equal(rl_load_32(&w.got), 0);
    rl_range_release(&again);
    wait_got(&w);
    wait_end(&w);
    assert_true(rl_range_idle(&lock));
}

static uint32_t handled;
static int handler_result[2];

static void handler(int sig)
{
    struct rl_range_hold h;

    (void)sig;
    handler_result[0] = rl_range_acquire(&lock, &h, 0, K4, RL_EXCLUSIVE);
    rl_range_release(&h);
    handler_result[1] = rl_range_acquire(&lock, &h, 4 * MIB, 5 * MIB, RL_EXCLUSIVE);
    rl_range_release(&h);
    rl_store_32(&handled, 1);
}

static void a_handler_gets_what_is_free_and_is_told_of_what_it_interrupted(void **state)
{
    struct rl_range_hold h;
    struct waiter w;

    (void)state;
    signal(SIGUSR1, handler);
    handled = 0;
    take(&h, 0, K4, RL_SHARED);
    raise(SIGUSR1);
    assert_int_equal(handler_result[0], -EDEADLK);
    assert_int_equal(handler_result[1], 0);
    /* and while the interrupted code waits, for the very range that the handler asks for */
    rl_store_32(&handled, 0);
    wait_begin(&w, 4 * MIB, 4 * MIB + 1, RL_EXCLUSIVE);
    pthread_kill(w.thread, SIGUSR1);
    usleep(10000);
    rl_range_release(&h);
    while (rl_load_32(&handled) == 0)
        usleep(500);
    assert_int_equal(handler_result[1], -EDEADLK);
    wait_got(&w);
    wait_end(&w);
    assert_true(rl_range_idle(&lock));
}

static sigjmp_buf landing;
static struct rl_range_hold left;

static void jump(int sig)
{
    (void)sig;
    siglongjmp(landing, 1);
}

static void *jumper_thread(void *arg)
{
    (void)arg;
    if (sigsetjmp(landing, 1) == 0)
        rl_range_acquire(&lock, &left, 0, MIB, RL_EXCLUSIVE);
    rl_range_release(&left);
    return NULL;
}

static void release_after_a_jump_takes_the_wait_back(void **state)
{
    struct rl_range_hold h;
    pthread_t thread;

    (void)state;
    signal(SIGUSR2, jump);
    take(&h, 0, K4, RL_SHARED);
    assert_int_equal(pthread_create(&thread, NULL, jumper_thread, NULL), 0);
    while (waiting() == 0)
        usleep(500);
    usleep(20000);
    pthread_kill(thread, SIGUSR2);
    pthread_join(thread, NULL);
    assert_int_equal(waiting(), 0);
    assert_int_equal(other_tries(0, K4, RL_SHARED), 0);
    rl_range_release(&h);
    assert_true(rl_range_idle(&lock));
}

static void a_forked_child_zeroes_the_lock_and_goes_on(void **state)
{
    struct rl_range_hold h, mine;
    int status = 0;
    pid_t pid;

    (void)state;
    take(&h, 0, K4, RL_EXCLUSIVE);
    pid = fork();
    if (pid == 0) {
        alarm(20);
        memset(&lock, 0, sizeof lock);
        _exit(rl_range_acquire(&lock, &mine, 0, K4, RL_EXCLUSIVE) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(other_tries(0, K4, RL_SHARED), -EAGAIN);
    rl_range_release(&h);
}

/* --- many ranges --- */

static void the_lock_holds_as_many_ranges_as_it_says(void **state)
{
    struct rl_range_hold h[RL_RANGE_SLOTS + 1];
    uint64_t begin;

    (void)state;
    for (unsigned i = 0; i < RL_RANGE_SLOTS; i++)
        take(&h[i], i * MIB, i * MIB + K4, RL_EXCLUSIVE);
    for (unsigned i = 0; i < RL_RANGE_SLOTS; i++)
        assert_int_equal(other_tries(i * MIB + K4 - 1, i * MIB + K4, RL_SHARED), -EAGAIN);
    assert_int_equal(rl_range_try(&lock, &h[RL_RANGE_SLOTS], GIB, GIB + 1, RL_SHARED), -EAGAIN);
    begin = rl_now_ns();
    assert_int_equal(
        rl_range_acquire_until(&lock, &h[RL_RANGE_SLOTS], GIB, GIB + 1, RL_SHARED, begin + 5000000),
        -ETIMEDOUT);
    rl_range_release(&h[RL_RANGE_SLOTS - 1]); /* one of those that are open to all */
    take(&h[RL_RANGE_SLOTS - 1], GIB, 2 * GIB, RL_SHARED);
    h[RL_RANGE_SLOTS] = (struct rl_range_hold){0};
    for (unsigned i = 0; i <= RL_RANGE_SLOTS; i++)
        rl_range_release(&h[i]);
    assert_true(rl_range_idle(&lock));
}

static void who_waits_for_a_slot_gets_the_next_one(void **state)
{
    struct rl_range_hold h[RL_RANGE_SLOTS];
    struct waiter w;

    (void)state;
    for (unsigned i = 0; i < RL_RANGE_SLOTS; i++)
        take(&h[i], i * MIB, i * MIB + K4, RL_SHARED);
    wait_begin(&w, 3 * MIB, 4 * MIB, RL_SHARED);
    assert_int_equal(rl_load_32(&w.got), 0);
    for (unsigned i = 0; i < RL_RANGE_SLOTS; i++)
        rl_range_release(&h[i]);
    wait_got(&w);
    wait_end(&w);
    assert_true(rl_range_idle(&lock));
}

static void room_for_a_thousand_ranges(void **state)
{
    enum { RANGES = 1024 };
    static struct rl_range_hold h[RANGES];
    size_t bytes = RL_RANGE_ROOM_BYTES(2 * RANGES);
    void *memory = calloc(1, bytes);
    struct rl_range_hold other;

    (void)state;
    assert_non_null(memory);
    assert_int_equal(rl_range_room(&lock, memory, 100), -EINVAL);
    assert_int_equal(rl_range_room(&lock, memory, bytes), 0);
    for (unsigned i = 0; i < RANGES; i++) {
        uint64_t start = i % 3 == 0 ? i * MIB : i * MIB + 512 * 1024;

        assert_int_equal(
            rl_range_try(&lock, &h[i], start, start + (i % 5 == 0 ? MIB / 2 : K4), RL_EXCLUSIVE),
            0);
    }
    for (unsigned i = 0; i < RANGES; i++) {
        uint64_t start = i % 3 == 0 ? i * MIB : i * MIB + 512 * 1024;

        assert_int_equal(rl_range_try(&lock, &other, start, start + 1, RL_SHARED), -EDEADLK);
        assert_int_equal(
            rl_range_try(&lock, &other, start + MIB * 3 / 4, start + MIB * 3 / 4 + 1, RL_SHARED),
            i % 3 == 2 && (i + 1) % 5 == 0 && i + 1 < RANGES ? -EDEADLK : 0);
        rl_range_release(&other);
    }
    assert_int_equal(rl_range_try(&lock, &other, 0, RL_END, RL_SHARED), -EDEADLK);
    assert_false(rl_range_idle(&lock));
    for (unsigned i = 0; i < RANGES; i++)
        rl_range_release(&h[i]);
    assert_true(rl_range_idle(&lock));
    assert_int_equal(rl_range_try(&lock, &other, 0, RL_END, RL_EXCLUSIVE), 0);
    rl_range_release(&other);
    free(memory);
}

int main(void)
{
#define LOCK_TEST(name) cmocka_unit_test_setup(name, fresh)
    const struct CMUnitTest tests[] = {
        LOCK_TEST(shared_holders_share_and_exclusive_ones_do_not),
        LOCK_TEST(overlap_is_never_missed_and_never_invented),
        LOCK_TEST(wrong_ranges_and_modes_are_refused),
        LOCK_TEST(a_waiter_gets_in_when_the_holder_leaves),
        LOCK_TEST(a_waiting_exclusive_is_not_overtaken_by_shared_ones),
        LOCK_TEST(waiters_go_in_the_order_of_their_coming),
        LOCK_TEST(a_deadline_ends_a_wait_and_leaves_nothing),
        LOCK_TEST(errno_is_left_alone),
        LOCK_TEST(a_thread_is_told_when_it_would_wait_for_itself),
        LOCK_TEST(a_holder_passes_those_who_may_wait_for_it),
        LOCK_TEST(a_handler_gets_what_is_free_and_is_told_of_what_it_interrupted),
        LOCK_TEST(release_after_a_jump_takes_the_wait_back),
        LOCK_TEST(a_forked_child_zeroes_the_lock_and_goes_on),
        LOCK_TEST(the_lock_holds_as_many_ranges_as_it_says),
        LOCK_TEST(who_waits_for_a_slot_gets_the_next_one),
        LOCK_TEST(room_for_a_thousand_ranges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
