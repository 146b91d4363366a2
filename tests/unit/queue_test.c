/* SPDX-License-Identifier: MIT */
/* The queue as include/rlshim/range_lock.h promises it. timeout: 60 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../include/rlshim/range_lock.h"
#include "../../lockmgr/gate.h"
#include "../../lockmgr/sync.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define K4  ((uint64_t)4096)

#define RANGES 64

static struct rl_queue *q;
static uint64_t applied_bytes;
static int refusals;

static int apply(void *arg, uint64_t start, uint64_t end)
{
    (void)arg;
    if (refusals > 0) {
        refusals--;
        return -EIO;
    }
    applied_bytes += end - start;
    return 0;
}

static int queue_new(void **state)
{
    *state = calloc(1, rl_queue_bytes(RANGES));
    q = *state != NULL ? rl_queue_make(*state, RANGES) : NULL;
    applied_bytes = 0;
    refusals = 0;
    return q == NULL;
}

static int queue_free(void **state)
{
    free(*state);
    return 0;
}

static void what_is_queued_is_seen_until_it_is_applied(void **state)
{
    struct rl_queue_span span[4];
    uint64_t stamp, again;

    (void)state;
    assert_false(rl_queue_maybe(q, 0, RL_END));
    assert_int_equal(rl_queue_add(q, 5, 5), -EINVAL);
    assert_int_equal(rl_queue_add(q, MIB, MIB + 8 * K4), 0);
    assert_true(rl_queue_maybe(q, MIB, MIB + 1));
    assert_false(rl_queue_maybe(q, 2 * MIB, 3 * MIB));
    assert_int_equal(rl_queue_look(q, MIB + K4, MIB + 2 * K4, span, 4, &stamp), 1);
    assert_int_equal(span[0].start, MIB + K4);
    assert_int_equal(span[0].end, MIB + 2 * K4);
    assert_int_equal(rl_queue_look(q, MIB + K4, MIB + 2 * K4, span, 4, &again), 1);
    assert_true(stamp == again);
    assert_int_equal(rl_queue_wait(q, 0, UINT64_MAX), 0);
    assert_int_equal(rl_queue_apply(q, 4 * K4, apply, NULL), 2);
    assert_int_equal(applied_bytes, 8 * K4);
    assert_int_equal(rl_queue_look(q, 0, RL_END, span, 4, NULL), 0);
    assert_int_equal(rl_queue_wait(q, 0, rl_now_ns() + 1000000), -ETIMEDOUT);
}

static void what_cannot_be_applied_comes_again(void **state)
{
    (void)state;
    refusals = 1;
    assert_int_equal(rl_queue_add(q, 0, K4), 0);
    assert_int_equal(rl_queue_add(q, 8 * MIB, 8 * MIB + K4), 0);
    assert_int_equal(rl_queue_apply(q, RL_END, apply, NULL), 1);
    assert_true(rl_queue_maybe(q, 0, RL_END));
    assert_int_equal(rl_queue_wait(q, 0, UINT64_MAX), 0); /* it is due again */
    assert_int_equal(rl_queue_apply(q, RL_END, apply, NULL), 1);
    assert_false(rl_queue_maybe(q, 0, RL_END));
    assert_int_equal(applied_bytes, 2 * K4);
}

static void a_full_queue_refuses_and_a_closed_one_too(void **state)
{
    int n = 0;

    (void)state;
    while (n < 10 * RANGES &&
           rl_queue_add(q, (uint64_t)n * 3 * MIB, (uint64_t)n * 3 * MIB + 1) == 0)
        n++;
    assert_true(n >= RANGES && n < 10 * RANGES);
    assert_int_equal(rl_queue_add(q, GIB, GIB + 1), -ENOSPC);
    refusals = 3;
    rl_queue_close(q, RL_END, apply, NULL);
    assert_int_equal(applied_bytes, n);
    assert_int_equal(rl_queue_add(q, 0, K4), -ESHUTDOWN);
    rl_queue_close(q, RL_END, apply, NULL); /* twice is once */
}

static void *consumer_thread(void *arg)
{
    while (rl_load_32(arg) == 0)
        if (rl_queue_wait(q, 1000000000, rl_now_ns() + 20000000) == 0)
            rl_queue_apply(q, 8 * MIB, apply, NULL);
    return NULL;
}

static void whoever_settles_has_it_applied(void **state)
{
    uint32_t stop = 0;
    pthread_t thread;

    (void)state;
    assert_int_equal(rl_queue_settle(q, 0, RL_END, 0), 0); /* nothing is queued */
    assert_int_equal(rl_queue_add(q, 0, K4), 0);
    assert_int_equal(rl_queue_settle(q, 0, 1, rl_now_ns() + 1000000), -ETIMEDOUT);
    assert_int_equal(pthread_create(&thread, NULL, consumer_thread, &stop), 0);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(rl_queue_add(q, 0, K4), 0);
        assert_int_equal(rl_queue_settle(q, 0, 1, UINT64_MAX), 0);
        assert_false(rl_queue_maybe(q, 0, 1));
    }
    rl_store_32(&stop, 1);
    pthread_join(thread, NULL);
}

int main(void)
{
#define QUEUE_TEST(name) cmocka_unit_test_setup_teardown(name, queue_new, queue_free)
    const struct CMUnitTest tests[] = {
        QUEUE_TEST(what_is_queued_is_seen_until_it_is_applied),
        QUEUE_TEST(what_cannot_be_applied_comes_again),
        QUEUE_TEST(a_full_queue_refuses_and_a_closed_one_too),
        QUEUE_TEST(whoever_settles_has_it_applied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
