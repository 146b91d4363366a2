/* SPDX-License-Identifier: MIT */
/* What inode_table.h promises. timeout: 60 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "../../lockmgr/inode_table.h"

static struct rl_inode_table table, *const t = &table;

static int zero(void **state)
{
    (void)state;
    memset(t, 0, sizeof *t);
    return 0;
}

static unsigned set_of_entry(const struct rl_inode *i)
{
    return rl_inode_index(t, i) / RL_INODE_WAYS;
}

/* `n` inode numbers whose entries share a set; the table is empty again afterwards. */
static void same_set(uint64_t *ino, int n)
{
    uint32_t gen;
    unsigned set = 0;
    int k = 0;

    for (uint64_t i = 1; k < n; i++) {
        struct rl_inode *e = rl_inode_get(t, 8, i, &gen);

        assert_non_null(e);
        if (k == 0)
            set = set_of_entry(e);
        if (set_of_entry(e) == set)
            ino[k++] = i;
    }
    memset(t, 0, sizeof *t);
}

static void what_was_made_is_found_by_device_and_number(void **state)
{
    uint32_t made = 0, found = 0;
    struct rl_inode *a = rl_inode_get(t, 1, 100, &made);

    (void)state;
    assert_non_null(a);
    assert_true(made != 0 && (made & 1) == 0);
    assert_ptr_equal(rl_inode_find(t, 1, 100, &found), a);
    assert_int_equal(found, made);
    assert_ptr_equal(rl_inode_get(t, 1, 100, &found), a);
    assert_int_equal(found, made);
    assert_null(rl_inode_find(t, 2, 100, &found));
    assert_null(rl_inode_find(t, 1, 101, &found));
    assert_null(rl_inode_find(t, 0, 0, &found)); /* unused entries hold zeros */
    assert_ptr_not_equal(rl_inode_get(t, 2, 100, &found), a);
    assert_int_equal(t->lock, 0);
}

static void only_idle_entries_give_way(void **state)
{
    struct rl_inode *entry[RL_INODE_WAYS], *newer;
    uint64_t ino[RL_INODE_WAYS + 2], waited;
    uint32_t gen[RL_INODE_WAYS], g;

    (void)state;
    same_set(ino, RL_INODE_WAYS + 2);
    for (int i = 0; i < RL_INODE_WAYS; i++) {
        entry[i] = rl_inode_get(t, 8, ino[i], &gen[i]);
        assert_non_null(entry[i]);
        if (i % 2 == 0)
            entry[i]->table.act = 1 << 2 | (i % 4 == 0 ? RL_ACT_ON : RL_ACT_DRAINING);
        else
            rl_gate_enter_shared(&entry[i]->gate, &waited);
    }
    assert_null(rl_inode_get(t, 8, ino[RL_INODE_WAYS], &g)); /* all busy */
    for (int i = 0; i < RL_INODE_WAYS; i++)
        assert_ptr_equal(rl_inode_find(t, 8, ino[i], &g), entry[i]);
    entry[3]->flags = 5;
    rl_gate_leave_shared(&entry[3]->gate, 0);
    newer = rl_inode_get(t, 8, ino[RL_INODE_WAYS], &g);
    assert_ptr_equal(newer, entry[3]);
    assert_int_not_equal(g, gen[3]);
    assert_int_equal(newer->flags, 0);
    assert_null(rl_inode_find(t, 8, ino[3], &g));
    newer->table.act = 1 << 2 | RL_ACT_ON;
    assert_null(rl_inode_get(t, 8, ino[RL_INODE_WAYS + 1], &g)); /* all busy again */
}

static void unused_entries_are_taken_before_idle_ones(void **state)
{
    uint64_t ino[RL_INODE_WAYS];
    uint32_t gen;

    (void)state;
    same_set(ino, RL_INODE_WAYS);
    for (int i = 0; i < RL_INODE_WAYS; i++)
        assert_non_null(rl_inode_get(t, 8, ino[i], &gen));
    for (int i = 0; i < RL_INODE_WAYS; i++)
        assert_non_null(rl_inode_find(t, 8, ino[i], &gen));
}

static void a_lock_whose_holder_is_gone_is_stolen_and_a_fresh_one_is_not(void **state)
{
    uint32_t now = (uint32_t)(rl_now_ns() / 1000000u) | 1, gen;

    (void)state;
    t->lock = now - 5000;
    assert_non_null(rl_inode_get(t, 1, 1, &gen));
    assert_int_equal(t->lock, 0);
    t->lock = now + 600000; /* taken "just now", whenever this runs */
    assert_null(rl_inode_get(t, 1, 2, &gen));
    assert_non_null(rl_inode_get(t, 1, 1, &gen)); /* what exists needs no lock */
    assert_int_equal(t->lock, now + 600000);
}

static void an_inserter_lost_half_way_costs_its_way_only(void **state)
{
    uint64_t ino[RL_INODE_WAYS];
    uint32_t gen;
    struct rl_inode *e;

    (void)state;
    same_set(ino, RL_INODE_WAYS);
    e = rl_inode_get(t, 8, ino[0], &gen);
    e->gen++; /* it was changing the key when its thread went away */
    assert_null(rl_inode_find(t, 8, ino[0], &gen));
    for (int i = 1; i < RL_INODE_WAYS; i++) {
        struct rl_inode *other = rl_inode_get(t, 8, ino[i], &gen);

        assert_non_null(other);
        assert_ptr_not_equal(other, e);
        assert_int_equal(gen & 1, 0);
        other->table.act = 1 << 2 | RL_ACT_ON;
    }
    assert_null(rl_inode_get(t, 8, ino[0], &gen));
}

static void generations_leave_out_zero(void **state)
{
    uint32_t gen;

    (void)state;
    for (int i = 0; i < RL_INODES; i++)
        t->inode[i].gen = UINT32_MAX - 1;
    assert_non_null(rl_inode_get(t, 1, 1, &gen));
    assert_true(gen != 0 && (gen & 1) == 0);
    assert_non_null(rl_inode_find(t, 1, 1, &gen));
}

#define THREADS 4
#define KEYS    64

static struct rl_inode *result[THREADS][KEYS];
static pthread_barrier_t start_line;

static void *get_all(void *arg)
{
    int me = (int)(intptr_t)arg;

    pthread_barrier_wait(&start_line);
    for (int k = 0; k < KEYS; k++) {
        uint32_t gen;

        while ((result[me][k] = rl_inode_get(t, 1, (uint64_t)k * 4096, &gen)) == NULL)
            ;
    }
    return NULL;
}

static void concurrent_gets_of_one_key_give_one_entry(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        pthread_t thread[THREADS];

        zero(NULL);
        pthread_barrier_init(&start_line, NULL, THREADS);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&thread[i], NULL, get_all, (void *)(intptr_t)i), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(thread[i], NULL);
        pthread_barrier_destroy(&start_line);
        for (int k = 0; k < KEYS; k++) {
            int n = 0;

            for (int e = 0; e < RL_INODES; e++)
                n += t->inode[e].gen != 0 && t->inode[e].dev == 1 &&
                     t->inode[e].ino == (uint64_t)k * 4096;
            assert_true(n <= 1);
        }
    }
}

static uint32_t churn_stop;

static void *churn(void *arg)
{
    uint64_t *ino = arg;

    for (uint32_t i = 0; rl_load_32(&churn_stop) == 0; i++) {
        uint32_t gen;

        rl_inode_get(t, 8 + i % 2, ino[i % 12], &gen);
    }
    return NULL;
}

/* Keys come and go; a found entry held the key at the generation that came with it: the owner of a
 * generation never sees another key under it. */
static void a_found_entry_has_the_key_that_was_asked_for(void **state)
{
    uint64_t ino[12];
    pthread_t thread[2];

    (void)state;
    same_set(ino, 12);
    rl_store_32(&churn_stop, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, churn, ino), 0);
    for (int i = 0; i < 300000; i++) {
        uint32_t gen;
        struct rl_inode *e = rl_inode_find(t, 8, ino[i % 12], &gen);
        uint64_t dev, num;

        if (e == NULL)
            continue;
        dev = rl_load_64(&e->dev);
        num = rl_load_64(&e->ino);
        rl_fence_load();
        assert_int_equal(gen & 1, 0);
        if (rl_load_32(&e->gen) == gen)
            assert_true(dev == 8 && num == ino[i % 12]);
    }
    rl_store_32(&churn_stop, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup(f, zero)
    const struct CMUnitTest tests[] = {
        CASE(what_was_made_is_found_by_device_and_number),
        CASE(only_idle_entries_give_way),
        CASE(unused_entries_are_taken_before_idle_ones),
        CASE(a_lock_whose_holder_is_gone_is_stolen_and_a_fresh_one_is_not),
        CASE(an_inserter_lost_half_way_costs_its_way_only),
        CASE(generations_leave_out_zero),
        CASE(concurrent_gets_of_one_key_give_one_entry),
        CASE(a_found_entry_has_the_key_that_was_asked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
