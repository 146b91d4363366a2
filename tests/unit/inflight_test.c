/* SPDX-License-Identifier: MIT */
/* What inflight.h promises. Real threads, stopped by futexes at the places that matter. timeout: 60
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../shim/inflight.h"

/* One after the other: more than slots that are looked through for a thread that is gone. */
#ifdef RL_TSAN
#define THREADS 120
#else
#define THREADS 3000
#endif

static int file, other;
static struct stat id;

/* A thread that is inside a call on fd until it is told to go. */
struct flyer {
    pthread_t thread;
    int fd, depth;
    uint32_t in, may_go, calls;
};

static void wait_for(uint32_t *word)
{
    while (rl_load_32(word) == 0)
        rl_futex_wait(word, 0, 1000000);
}

static void fly(struct flyer *f, int depth)
{
    INFLIGHT(leg, f->fd);
    if (depth > 1) {
        fly(f, depth - 1);
        return;
    }
    rl_store_32(&f->in, 1);
    wait_for(&f->may_go);
}

static void *flyer_main(void *arg)
{
    fly(arg, ((struct flyer *)arg)->depth);
    return NULL;
}

static void take_off(struct flyer *f, int fd, int depth)
{
    *f = (struct flyer){.fd = fd, .depth = depth};
    assert_int_equal(pthread_create(&f->thread, NULL, flyer_main, f), 0);
    wait_for(&f->in);
}

static void land(struct flyer *f)
{
    rl_store_32(&f->may_go, 1);
    pthread_join(f->thread, NULL);
}

static bool over(uint32_t since)
{
    inflight_look();
    return inflight_over(id.st_dev, id.st_ino, since);
}

static int open_files(void **state)
{
    char a[] = "/tmp/inflight_test.XXXXXX", b[] = "/tmp/inflight_test.XXXXXX";

    (void)state;
    file = mkstemp(a);
    other = mkstemp(b);
    unlink(a);
    unlink(b);
    return file < 0 || other < 0 || fstat(file, &id) != 0;
}

static void a_call_under_way_is_waited_for(void **state)
{
    struct flyer f;
    uint32_t since;

    (void)state;
    assert_true(inflight_barrier());
    assert_true(over(inflight_look()));
    take_off(&f, file, 1);
    since = inflight_look();
    assert_false(over(since));
    assert_false(over(since));
    land(&f);
    assert_true(over(since));
}

static void a_duplicate_is_the_same_file(void **state)
{
    struct flyer f;
    int copy = dup(file);
    uint32_t since;

    (void)state;
    take_off(&f, copy, 1);
    since = inflight_look();
    assert_false(over(since));
    land(&f);
    assert_true(over(since));
    close(copy);
}

static void a_call_on_another_file_is_not(void **state)
{
    struct flyer f;

    (void)state;
    take_off(&f, other, 1);
    assert_true(over(inflight_look()));
    land(&f);
}

static void a_call_on_a_closed_number_is(void **state)
{
    struct flyer f;

    (void)state;
    take_off(&f, 1000, 1);
    assert_false(over(inflight_look()));
    land(&f);
}

/* One thread, so that its slot shows a call at every look; only the second began after it. */
static void a_call_that_began_later_is_not(void **state)
{
    uint32_t since;

    (void)state;
    {
        INFLIGHT(leg, file);
        since = inflight_look();
        assert_false(over(since));
    }
    INFLIGHT(leg, file);
    assert_true(over(since));
    assert_false(over(inflight_look()));
}

/* The number of calls moved before the look, and again by nothing: still the call it saw. */
static void what_moved_before_the_look_does_not_count(void **state)
{
    uint32_t since;

    (void)state;
    {
        INFLIGHT(leg, file);
    }
    INFLIGHT(leg, file);
    since = inflight_look();
    assert_false(over(since));
    assert_false(over(since));
}

static void a_call_inside_another_hides_neither(void **state)
{
    for (int depth = 2; depth <= 5; depth++) {
        struct flyer f;
        uint32_t since;

        (void)state;
        take_off(&f, file, depth);
        since = inflight_look();
        assert_false(over(since));
        land(&f);
        assert_true(over(since));
    }
}

static void a_call_anywhere_holds_every_file(void **state)
{
    struct leg *leg = inflight_begin_anywhere();
    uint32_t since = inflight_look();

    (void)state;
    assert_false(over(since));
    inflight_end(&leg);
    assert_true(over(since));
}

static void *cancelled_main(void *arg)
{
    struct flyer *f = arg;
    INFLIGHT(leg, f->fd);

    rl_store_32(&f->in, 1);
    for (;;)
        pause();
    return NULL;
}

static void a_cancelled_call_is_over(void **state)
{
    struct flyer f = {.fd = file};

    (void)state;
#ifdef RL_TSAN
    skip(); /* its own unwinding of a cancelled thread never ends */
#endif
    assert_int_equal(pthread_create(&f.thread, NULL, cancelled_main, &f), 0);
    wait_for(&f.in);
    pthread_cancel(f.thread);
    pthread_join(f.thread, NULL);
    assert_true(over(inflight_look()));
}

static void *vanishing_main(void *arg)
{
    struct flyer *f = arg;
    struct leg *leg = inflight_begin(f->fd);

    (void)leg; /* never ended, as after a jump out of a handler */
    rl_store_32(&f->in, 1);
    wait_for(&f->may_go);
    return NULL;
}

static void a_thread_that_is_gone_holds_nothing(void **state)
{
    struct flyer f = {.fd = file};
    uint32_t since;

    (void)state;
    assert_int_equal(pthread_create(&f.thread, NULL, vanishing_main, &f), 0);
    wait_for(&f.in);
    since = inflight_look();
    assert_false(over(since));
    land(&f);
    /* The kernel takes a moment to let the thread go after the join. */
    for (int i = 0; i < 1000 && !over(since); i++)
        usleep(1000);
    assert_true(over(since));
}

/* More threads than slots in a chunk, one after the other and many at once. */
static void threads_without_number_are_all_seen(void **state)
{
    static struct flyer many[200];

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        struct flyer f;

        take_off(&f, file, 1);
        if (i % (THREADS / 6) == 0)
            assert_false(over(inflight_look()));
        land(&f);
    }
    for (int i = 0; i < 200; i++)
        take_off(&many[i], file, 1);
    for (int i = 0; i < 200; i++) {
        uint32_t since = inflight_look();

        assert_false(over(since));
        land(&many[i]);
    }
    assert_true(over(inflight_look()));
}

static void a_forked_child_starts_without_the_others(void **state)
{
    struct flyer f;
    pid_t child;
    int status;

    (void)state;
    take_off(&f, file, 1);
    child = fork();
    if (child == 0) {
        bool ok;

        inflight_forked();
        ok = over(inflight_look());
        {
            INFLIGHT(leg, file);
            ok = ok && !over(inflight_look());
        }
        _exit(ok ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    land(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_under_way_is_waited_for),
        cmocka_unit_test(a_duplicate_is_the_same_file),
        cmocka_unit_test(a_call_on_another_file_is_not),
        cmocka_unit_test(a_call_on_a_closed_number_is),
        cmocka_unit_test(a_call_that_began_later_is_not),
        cmocka_unit_test(what_moved_before_the_look_does_not_count),
        cmocka_unit_test(a_call_inside_another_hides_neither),
        cmocka_unit_test(a_call_anywhere_holds_every_file),
        cmocka_unit_test(a_cancelled_call_is_over),
        cmocka_unit_test(a_thread_that_is_gone_holds_nothing),
        cmocka_unit_test(threads_without_number_are_all_seen),
        cmocka_unit_test(a_forked_child_starts_without_the_others),
    };

    return cmocka_run_group_tests(tests, open_files, NULL);
}
