/* SPDX-License-Identifier: MIT */
/*
 * The invariants of range_table.h where a table opens, closes and settles, and those of its pool,
 * under every interleaving of two actors with two thread changes, and a fixed sample of those with
 * more. timeout: 120
 */
#include "interleave.h"

#include "../../lockmgr/ranges.c"
#include "../../lockmgr/range_table.c"
#include "../../lockmgr/drain.c"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "sim_file.h"

#define SAMPLES 4000

static enum rl_put put_a, put_b;
static bool saw_zero;
static uint32_t pass_seen;
static uint32_t index_a[4], index_b[4];

static void run(const struct il_scenario *s)
{
    assert_int_equal(il_explore(s, SAMPLES), 0);
}

static void check_drains_empty(void)
{
    sim_drain();
    IL_EXPECT(rl_table_empty(T));
    IL_EXPECT(POOL->used == 0);
}

/* --- putters that slept through a deactivation --- */

static void setup_late_putter(void)
{
    setup_tail_queued();
    sim_close_and_drain();
    rl_drain_open(T, POOL); /* a number of its own, then back to a fresh activation */
    act_then = sim_act();
    sim.cell[0] = sim.cell[1] = 1;
    put_a = put_b = RL_PUT_CLOSED;
    sim.at[0] = MIB;     /* where the late putter puts */
    sim.at[1] = 3 * MIB; /* where the next activation puts */
}

static void actor_put_late(void)
{
    put_a = rl_table_put(T, POOL, act_then, MIB, MIB + BLK, 7);
}

static void actor_put_late_unaligned(void)
{
    put_a = rl_table_put(T, POOL, act_then, MIB, MIB + BLK - 1, 7);
}

/* Closes, opens for another inode whose block at MIB is 5, puts there, and has all applied. */
static void actor_next_activation(void)
{
    struct rl_span s;

    sim_close_and_drain();
    sim.cell[0] = 5;
    rl_drain_open(T, POOL);
    put_b = rl_table_put(T, POOL, sim_act(), 3 * MIB, 3 * MIB + BLK, 7);
    IL_EXPECT(put_b == RL_PUT_QUEUED);
    rl_table_want(T, MIB, MIB + 2 * BLK);
    while (rl_drain_next_wanted(T, POOL, MIB, &s))
        sim_apply_out(s);
    sim_pass();
}

static void watch_next_activation(void)
{
    if (put_b == RL_PUT_QUEUED)
        expect_zero_now(1);
}

static void check_next_activation(void)
{
    sim_drain();
    IL_EXPECT(sim.cell[0] == 5);
    IL_EXPECT(sim.cell[1] == 0);
    IL_EXPECT(rl_table_empty(T));
    IL_EXPECT(POOL->used == 0);
}

static void a_late_putter_never_touches_the_next_activation(void **state)
{
    (void)state;
    run(&(struct il_scenario){__func__,
                              setup_late_putter,
                              {actor_put_late, actor_next_activation},
                              watch_next_activation,
                              check_next_activation});
    run(&(struct il_scenario){__func__,
                              setup_late_putter,
                              {actor_put_late_unaligned, actor_next_activation},
                              watch_next_activation,
                              check_next_activation});
}

/* --- closing: a punch that came too late is made by its caller, and nobody saw it before --- */

static void setup_closing(void)
{
    sim_reset();
    sim.at[0] = MIB;
    act_then = sim_act();
    put_a = RL_PUT_QUEUED;
    saw_zero = false;
}

static void actor_punch(void)
{
    put_a = sim_punch(act_then, MIB, MIB + BLK);
}

static void actor_punch_unaligned(void)
{
    put_a = sim_punch(act_then, MIB, MIB + BLK - 1);
}

static void actor_close(void)
{
    sim_close_and_drain();
}

static void watch_zero_stays(void)
{
    uint64_t v;

    if (!sim_peek(0, &v))
        return;
    IL_EXPECT(v == 0 || !saw_zero);
    if (v == 0)
        saw_zero = true;
}

static void check_closed(void)
{
    IL_EXPECT(sim.cell[0] == 0);
    IL_EXPECT(sim_act() >> 2 == act_then >> 2 && (sim_act() & RL_ACT_STATE) == RL_ACT_OFF);
    rl_drain_open(T, POOL);
    check_drains_empty();
}

static void what_once_read_as_zeros_stays_so_while_the_table_closes(void **state)
{
    (void)state;
    run(&(struct il_scenario){
        __func__, setup_closing, {actor_punch, actor_close}, watch_zero_stays, check_closed});
    run(&(struct il_scenario){__func__,
                              setup_closing,
                              {actor_punch_unaligned, actor_close},
                              watch_zero_stays,
                              check_closed});
}

/* --- settling --- */

static void actor_put_then_note_pass(void)
{
    sim_punch(act_then, MIB, MIB + BLK);
    sim_punch(act_then, MIB + BLK, MIB + 3 * BLK);
    pass_seen = rl_load_32(&T->pass_begun);
}

static void check_settled(void)
{
    for (int i = 0; i < 3 && (int32_t)(rl_load_32(&T->pass_done) - (pass_seen + 1)) < 0; i++)
        sim_pass();
    IL_EXPECT(sim.cell[0] == 0 && sim.cell[1] == 0);
    check_drains_empty();
}

static void a_pass_begun_after_a_put_settles_it(void **state)
{
    (void)state;
    run(&(struct il_scenario){__func__,
                              setup_two_blocks,
                              {actor_put_then_note_pass, actor_one_pass},
                              NULL,
                              check_settled});
}

static void check_clock_runs(void)
{
    IL_EXPECT(rl_table_empty(T) || T->first_ns != 0);
}

static void what_no_pass_took_keeps_the_clock_running(void **state)
{
    (void)state;
    run(&(struct il_scenario){__func__,
                              setup_two_blocks,
                              {actor_put_then_note_pass, actor_one_pass},
                              NULL,
                              check_clock_runs});
}

/* --- the pool and its lists --- */

static void setup_pool(void)
{
    sim_reset();
    memset(index_a, 0, sizeof index_a);
    memset(index_b, 0, sizeof index_b);
    for (int i = 0; i < 4; i++)
        index_b[i] = rl_node_get(POOL);
    for (int i = 0; i < 4; i++)
        rl_node_put(POOL, index_b[i]);
    memset(index_b, 0, sizeof index_b);
}

static void actor_get(void)
{
    for (int i = 0; i < 2; i++)
        index_a[i] = rl_node_get(POOL);
}

static void actor_get_put_get(void)
{
    uint32_t x = rl_node_get(POOL);
    uint32_t y = rl_node_get(POOL);

    rl_node_put(POOL, x);
    index_b[0] = y;
    index_b[1] = rl_node_get(POOL);
    index_b[2] = rl_node_get(POOL);
}

static void check_pool(void)
{
    uint32_t all[5] = {index_a[0], index_a[1], index_b[0], index_b[1], index_b[2]};

    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 5; k++)
            IL_EXPECT(all[i] != 0 && (i == k || all[i] != all[k]));
    IL_EXPECT(POOL->used == 5);
    for (int i = 0; i < 5; i++)
        rl_node_put(POOL, all[i]);
    IL_EXPECT(POOL->used == 0);
}

static void no_node_is_handed_out_twice(void **state)
{
    (void)state;
    run(&(struct il_scenario){
        __func__, setup_pool, {actor_get, actor_get_put_get}, NULL, check_pool});
}

static rl_head list_head;

static void setup_list(void)
{
    sim_reset();
    list_head = 0;
    for (int i = 0; i < 3; i++) {
        index_b[i] = rl_node_get(POOL);
        rl_list_push(POOL, &list_head, index_b[i]);
    }
}

static void actor_push(void)
{
    for (int i = 0; i < 2; i++) {
        index_a[i] = rl_node_get(POOL);
        rl_list_push(POOL, &list_head, index_a[i]);
    }
}

static void actor_unlink(void)
{
    /* The list is b2 b1 b0 and grows at the front only. */
    rl_list_unlink(POOL, &list_head, 0, index_b[2]);
    rl_list_unlink(POOL, &list_head, index_b[1], index_b[0]);
}

static void check_list(void)
{
    uint32_t i = rl_head_index(list_head);

    IL_EXPECT(i == index_a[1]);
    i = POOL->node[i].next;
    IL_EXPECT(i == index_a[0]);
    i = POOL->node[i].next;
    IL_EXPECT(i == index_b[1]);
    IL_EXPECT(POOL->node[i].next == 0);
}

static void pushes_and_unlinks_do_not_disturb_each_other(void **state)
{
    (void)state;
    run(&(struct il_scenario){__func__, setup_list, {actor_push, actor_unlink}, NULL, check_list});
}

int main(void)
{
#ifdef RL_TSAN
    puts("SKIP: the threads of an interleaving are contexts of one thread, which ThreadSanitizer "
         "cannot follow");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_putter_never_touches_the_next_activation),
        cmocka_unit_test(what_once_read_as_zeros_stays_so_while_the_table_closes),
        cmocka_unit_test(a_pass_begun_after_a_put_settles_it),
        cmocka_unit_test(what_no_pass_took_keeps_the_clock_running),
        cmocka_unit_test(no_node_is_handed_out_twice),
        cmocka_unit_test(pushes_and_unlinks_do_not_disturb_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
