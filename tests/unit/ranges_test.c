/* SPDX-License-Identifier: MIT */
/* The pool of nodes and its lists: what ranges.h promises, one thread. timeout: 30 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../lockmgr/ranges.h"

#define CAPACITY 16

static struct rl_pool *new_pool(uint32_t limit)
{
    struct rl_pool *pool = calloc(1, sizeof *pool + CAPACITY * sizeof(struct rl_node));

    assert_non_null(pool);
    pool->capacity = CAPACITY;
    pool->limit = limit;
    return pool;
}

static void each_index_is_handed_out_once_and_never_zero(void **state)
{
    struct rl_pool *pool = new_pool(CAPACITY);
    bool seen[CAPACITY] = {false};

    (void)state;
    for (int i = 1; i < CAPACITY; i++) {
        uint32_t index = rl_node_get(pool);

        assert_in_range(index, 1, CAPACITY - 1);
        assert_false(seen[index]);
        seen[index] = true;
    }
    assert_int_equal(rl_node_get(pool), 0);
    assert_int_equal(rl_node_get_reserved(pool), 0);
    assert_int_equal(pool->used, CAPACITY - 1);
    free(pool);
}

static void the_limit_refuses_putters_but_not_the_consumer(void **state)
{
    struct rl_pool *pool = new_pool(3);
    uint32_t index;

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_not_equal(rl_node_get(pool), 0);
    assert_int_equal(rl_node_get(pool), 0);
    assert_int_equal(pool->used, 3);
    index = rl_node_get_reserved(pool);
    assert_int_not_equal(index, 0);
    assert_int_equal(rl_node_get(pool), 0);
    rl_node_put(pool, index);
    assert_int_equal(rl_node_get(pool), 0);
    rl_node_put(pool, 1);
    assert_int_equal(rl_node_get(pool), 1);
    free(pool);
}

/* Many putters that are being refused at once push the count up for a moment. */
static void the_consumer_gets_a_node_while_putters_are_counted_and_refused(void **state)
{
    struct rl_pool *pool = new_pool(3);

    (void)state;
    pool->used = CAPACITY + 5;
    assert_int_not_equal(rl_node_get_reserved(pool), 0);
    free(pool);
}

static void a_given_back_node_is_used_again_before_a_fresh_one(void **state)
{
    struct rl_pool *pool = new_pool(CAPACITY);
    uint32_t a = rl_node_get(pool), b = rl_node_get(pool);

    (void)state;
    rl_node_put(pool, a);
    rl_node_put(pool, b);
    assert_int_equal(rl_node_get(pool), b);
    assert_int_equal(rl_node_get(pool), a);
    assert_int_equal(pool->fresh, 2);
    free(pool);
}

static void indices_outside_the_pool_have_no_node(void **state)
{
    struct rl_pool *pool = new_pool(CAPACITY);

    (void)state;
    assert_null(rl_node_at(pool, 0));
    assert_null(rl_node_at(pool, CAPACITY));
    assert_null(rl_node_at(pool, UINT32_MAX));
    assert_ptr_equal(rl_node_at(pool, CAPACITY - 1), &pool->node[CAPACITY - 1]);
    free(pool);
}

static void a_list_is_last_in_first_out_and_its_tag_moves(void **state)
{
    struct rl_pool *pool = new_pool(CAPACITY);
    rl_head list = 0, before;

    (void)state;
    for (uint32_t i = 1; i <= 3; i++) {
        before = list;
        rl_list_push(pool, &list, rl_node_get(pool));
        assert_int_equal(rl_head_index(list), i);
        assert_int_not_equal(list >> 32, before >> 32);
    }
    assert_int_equal(pool->node[3].next, 2);
    assert_int_equal(pool->node[2].next, 1);
    assert_int_equal(pool->node[1].next, 0);
    free(pool);
}

static void unlink_takes_out_first_middle_last_and_only(void **state)
{
    struct rl_pool *pool = new_pool(CAPACITY);
    rl_head list = 0, before;

    (void)state;
    for (int i = 0; i < 4; i++)
        rl_list_push(pool, &list, rl_node_get(pool)); /* 4 3 2 1 */
    before = list;
    rl_list_unlink(pool, &list, 0, 4);
    assert_int_equal(rl_head_index(list), 3);
    assert_int_not_equal(list >> 32, before >> 32);
    rl_list_unlink(pool, &list, 3, 2);
    assert_int_equal(pool->node[3].next, 1);
    rl_list_unlink(pool, &list, 3, 1);
    assert_int_equal(pool->node[3].next, 0);
    rl_list_unlink(pool, &list, 0, 3);
    assert_int_equal(rl_head_index(list), 0);
    free(pool);
}

static void unlink_finds_its_predecessor_when_pushes_got_in_front(void **state)
{
    struct rl_pool *pool = new_pool(CAPACITY);
    rl_head list = 0;

    (void)state;
    for (int i = 0; i < 4; i++)
        rl_list_push(pool, &list, rl_node_get(pool));
    rl_list_unlink(pool, &list, 0, 2); /* was first when the caller looked */
    assert_int_equal(rl_head_index(list), 4);
    assert_int_equal(pool->node[3].next, 1);
    free(pool);
}

static void tags_wrap_without_touching_the_index(void **state)
{
    struct rl_pool *pool = new_pool(CAPACITY);
    rl_head list = (uint64_t)UINT32_MAX << 32;

    (void)state;
    rl_list_push(pool, &list, rl_node_get(pool));
    assert_int_equal(list, 1);
    free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_index_is_handed_out_once_and_never_zero),
        cmocka_unit_test(the_limit_refuses_putters_but_not_the_consumer),
        cmocka_unit_test(the_consumer_gets_a_node_while_putters_are_counted_and_refused),
        cmocka_unit_test(a_given_back_node_is_used_again_before_a_fresh_one),
        cmocka_unit_test(indices_outside_the_pool_have_no_node),
        cmocka_unit_test(a_list_is_last_in_first_out_and_its_tag_moves),
        cmocka_unit_test(unlink_takes_out_first_middle_last_and_only),
        cmocka_unit_test(unlink_finds_its_predecessor_when_pushes_got_in_front),
        cmocka_unit_test(tags_wrap_without_touching_the_index),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
