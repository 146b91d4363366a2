/* SPDX-License-Identifier: MIT */
/* What name_table.h promises. Only lower bounds of time are checked, or bounds that are far beyond
 * what a busy machine needs. timeout: 120 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "../../lockmgr/gate.h"
#include "../../lockmgr/name_table.h"

#define LONG_NS UINT64_C(20000000000)
#define ME      1
#define OTHER   2

static struct rl_name_table table, *const t = &table;

static int zero(void **state)
{
    (void)state;
    memset(t, 0, sizeof *t);
    return 0;
}

static struct rl_name_key key_of(const char *name)
{
    return (struct rl_name_key){
        .dev = 1, .ino = 2, .mount = 3, .name = name, .bytes = (uint32_t)strlen(name)};
}

static enum rl_name_role join(const struct rl_name_key *key, uint64_t self,
                              struct rl_name_flight *flight)
{
    return rl_name_join(t, key, self, flight);
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void the_first_leads_and_the_others_wait_until_it_ends(void **state)
{
    struct rl_name_key key = key_of("out/file");
    struct rl_name_flight a, b, c;

    (void)state;
    assert_int_equal(join(&key, ME, &a), RL_NAME_LEADER);
    assert_int_equal(join(&key, OTHER, &b), RL_NAME_WAITER);
    assert_false(rl_name_wait(&b, 1000000));
    rl_name_end(&a);
    assert_null(a.slot);
    assert_true(rl_name_wait(&b, LONG_NS));
    assert_int_equal(join(&key, OTHER, &c), RL_NAME_LEADER);
    assert_true(rl_name_wait(&b, LONG_NS)); /* the flight it waited for, not the next one */
    rl_name_end(&a);                        /* ended already: takes nothing from the next */
    assert_int_equal(join(&key, ME, &b), RL_NAME_WAITER);
    rl_name_end(&c);
    assert_true(rl_name_wait(&b, LONG_NS));
}

static void names_that_differ_in_anything_never_meet(void **state)
{
    char name[2][RL_NAME_BYTES_MAX];
    struct rl_name_flight flight[2];
    struct rl_name_key key[2];

    (void)state;
    for (uint32_t bytes = 1; bytes <= 20; bytes++)
        for (uint32_t at = 0; at < bytes + 4; at++) {
            memset(name, 'x', sizeof name);
            for (int i = 0; i < 2; i++)
                key[i] = (struct rl_name_key){1, 2, 3, name[i], bytes};
            if (at < bytes)
                name[1][at] = 'y';
            else if (at == bytes)
                key[1].bytes++;
            else if (at == bytes + 1)
                key[1].dev++;
            else if (at == bytes + 2)
                key[1].ino++;
            else
                key[1].mount++;
            assert_int_equal(join(&key[0], ME, &flight[0]), RL_NAME_LEADER);
            assert_int_equal(join(&key[1], OTHER, &flight[1]), RL_NAME_LEADER);
            rl_name_end(&flight[0]);
            rl_name_end(&flight[1]);
        }
}

/* One set gets more names than it has slots: some fly alone, none meets another. */
static void a_full_table_is_a_miss(void **state)
{
    enum { NAMES = 4 * RL_NAME_SETS * RL_NAME_WAYS };
    static struct rl_name_flight flight[NAMES];
    char name[32];
    int led = 0;

    (void)state;
    for (int i = 0; i < NAMES; i++) {
        struct rl_name_key key;
        enum rl_name_role role;

        snprintf(name, sizeof name, "name%d", i);
        key = key_of(name);
        role = join(&key, ME, &flight[i]);
        assert_int_not_equal(role, RL_NAME_WAITER);
        led += role == RL_NAME_LEADER;
    }
    assert_in_range(led, RL_NAME_WAYS, RL_NAME_SETS * RL_NAME_WAYS);
    assert_true(led > RL_NAME_SETS * RL_NAME_WAYS / 2);
    for (int i = 0; i < NAMES; i++)
        rl_name_end(&flight[i]);
    for (int i = 0; i < NAMES; i++)
        assert_int_equal(t->slot[i % (RL_NAME_SETS * RL_NAME_WAYS)].state & 7, 0);
}

static void what_is_too_long_or_empty_flies_alone(void **state)
{
    char name[RL_NAME_BYTES_MAX + 1];
    struct rl_name_key key = {1, 2, 3, name, RL_NAME_BYTES_MAX + 1};
    struct rl_name_flight flight;

    (void)state;
    memset(name, 'n', sizeof name);
    assert_int_equal(join(&key, ME, &flight), RL_NAME_NONE);
    key.bytes = 0;
    assert_int_equal(join(&key, ME, &flight), RL_NAME_NONE);
    key.bytes = RL_NAME_BYTES_MAX;
    assert_int_equal(join(&key, ME, &flight), RL_NAME_LEADER);
    rl_name_end(&flight);
}

static void a_thread_does_not_wait_for_itself(void **state)
{
    struct rl_name_key key = key_of("own");
    struct rl_name_flight outer, inner;

    (void)state;
    assert_int_equal(join(&key, ME, &outer), RL_NAME_LEADER);
    assert_int_equal(join(&key, ME, &inner), RL_NAME_NONE);
    rl_name_end(&inner);
    assert_int_equal(join(&key, OTHER, &inner), RL_NAME_WAITER);
    rl_name_end(&outer);
}

static void a_leader_that_never_ends_is_forgotten(void **state)
{
    struct rl_name_key key = key_of("hung");
    struct rl_name_flight gone, waiter, next;

    (void)state;
    assert_int_equal(join(&key, ME, &gone), RL_NAME_LEADER);
    assert_int_equal(join(&key, OTHER, &waiter), RL_NAME_WAITER);
    assert_false(rl_name_wait(&waiter, RL_NAME_WAIT_NS + 10000000));
    assert_int_equal(join(&key, OTHER, &next), RL_NAME_LEADER);
    rl_name_end(&gone); /* late: it may not end what is another's now */
    assert_int_equal(join(&key, ME, &waiter), RL_NAME_WAITER);
    assert_false(rl_name_wait(&waiter, 1000000));
    rl_name_end(&next);
    assert_true(rl_name_wait(&waiter, LONG_NS));
}

struct sleeper {
    struct rl_name_flight flight;
    uint32_t asleep;
    uint64_t slept_ns;
};

static void *sleep_on(void *arg)
{
    struct sleeper *s = arg;
    uint64_t begin_ns = rl_now_ns();

    rl_store_32(&s->asleep, 1);
    rl_name_wait(&s->flight, LONG_NS);
    s->slept_ns = rl_now_ns() - begin_ns;
    return NULL;
}

static void the_end_wakes_everyone(void **state)
{
    enum { SLEEPERS = 8 };
    struct rl_name_key key = key_of("shared");
    struct sleeper sleeper[SLEEPERS];
    pthread_t thread[SLEEPERS];
    struct rl_name_flight flight;

    (void)state;
    assert_int_equal(join(&key, ME, &flight), RL_NAME_LEADER);
    for (int i = 0; i < SLEEPERS; i++) {
        sleeper[i].asleep = 0;
        assert_int_equal(join(&key, OTHER, &sleeper[i].flight), RL_NAME_WAITER);
        assert_int_equal(pthread_create(&thread[i], NULL, sleep_on, &sleeper[i]), 0);
    }
    for (int i = 0; i < SLEEPERS; i++)
        while (rl_load_32(&sleeper[i].asleep) == 0)
            nap_ms(1);
    nap_ms(50);
    rl_name_end(&flight);
    for (int i = 0; i < SLEEPERS; i++) {
        pthread_join(thread[i], NULL);
        assert_true(sleeper[i].slept_ns < LONG_NS / 2);
    }
}

/* Many threads meet on a few names again and again: never two leaders at once, and nobody is left.
 */
enum { CROWD = 8, NAMES = 3, ROUNDS = 20000 };
static uint32_t inside[NAMES], doubled, led, waited;

static void *crowd(void *arg)
{
    uint64_t self = (uint64_t)(uintptr_t)arg;

    for (int i = 0; i < ROUNDS; i++) {
        static const char *const name[NAMES] = {"a", "b", "a/b/c/d/e/f/g/h"};
        int n = (i + (int)self) % NAMES;
        struct rl_name_key key = key_of(name[n]);
        struct rl_name_flight flight;

        switch (rl_name_join(t, &key, self, &flight)) {
        case RL_NAME_LEADER:
            if (rl_add_32(&inside[n], 1) != 0)
                rl_add_32(&doubled, 1);
            if (i % 16 == 0)
                rl_raw(SYS_sched_yield);
            rl_add_32(&inside[n], (uint32_t)-1);
            rl_add_32(&led, 1);
            rl_name_end(&flight);
            break;
        case RL_NAME_WAITER:
            if (!rl_name_wait(&flight, LONG_NS))
                rl_add_32(&doubled, 1);
            rl_add_32(&waited, 1);
            break;
        default:
            break;
        }
    }
    return NULL;
}

static void there_are_never_two_leaders_of_one_name(void **state)
{
    pthread_t thread[CROWD];

    (void)state;
    for (uintptr_t i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, crowd, (void *)(i + 1)), 0);
    for (int i = 0; i < CROWD; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(doubled, 0);
    assert_true(led > 0 && waited > 0);
    assert_int_equal(t->lock, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_first_leads_and_the_others_wait_until_it_ends, zero),
        cmocka_unit_test_setup(names_that_differ_in_anything_never_meet, zero),
        cmocka_unit_test_setup(a_full_table_is_a_miss, zero),
        cmocka_unit_test_setup(what_is_too_long_or_empty_flies_alone, zero),
        cmocka_unit_test_setup(a_thread_does_not_wait_for_itself, zero),
        cmocka_unit_test_setup(a_leader_that_never_ends_is_forgotten, zero),
        cmocka_unit_test_setup(the_end_wakes_everyone, zero),
        cmocka_unit_test_setup(there_are_never_two_leaders_of_one_name, zero),
    };

    return cmocka_run_group_tests_name("name_table", tests, NULL, NULL);
}
