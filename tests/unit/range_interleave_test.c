/* SPDX-License-Identifier: MIT */
/*
 * The invariants of range_table.h under every interleaving of two actors with two thread changes,
 * and a fixed sample of those with more. timeout: 120
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

static uint32_t act_then; /* the activation word a late putter still believes in */
static enum rl_put put_a, put_b;
static uint64_t got[2];
static int n_a;
static struct rl_span out_a[SIM_NODES];
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

/* --- a putter that sleeps while its tail is applied and written over --- */

static void setup_tail_queued(void)
{
    sim_reset();
    sim.at[1] = 2 * MIB;
    act_then = sim_act();
    sim_punch(act_then, 0, BLK);
}

static void actor_put_elsewhere(void)
{
    put_a = sim_punch(act_then, MIB, MIB + BLK);
}

static void actor_drain_then_write(void)
{
    sim_pass();
    sim_write(0, 2);
    IL_EXPECT(sim_read(0) == 2);
}

static void check_write_survived(void)
{
    sim_drain();
    IL_EXPECT(sim_read(0) == 2);
    IL_EXPECT(sim.cell[0] == 2);
    check_drains_empty();
}

static void a_sleeping_putter_never_brings_an_applied_range_back(void **state)
{
    (void)state;
    run(&(struct il_scenario){__func__,
                              setup_tail_queued,
                              {actor_put_elsewhere, actor_drain_then_write},
                              NULL,
                              check_write_survived});
}

static void actor_want_then_write(void)
{
    rl_table_want(T, 0, BLK);
    sim_wants();
    sim_write(0, 2);
}

static void a_sleeping_putter_never_brings_a_wanted_range_back(void **state)
{
    (void)state;
    run(&(struct il_scenario){__func__,
                              setup_tail_queued,
                              {actor_put_elsewhere, actor_want_then_write},
                              NULL,
                              check_write_survived});
}

/* --- nothing that was put is ever out of sight before it was applied --- */

static void setup_two_putters(void)
{
    sim_reset();
    sim.at[0] = 0;
    sim.at[1] = MIB;
    sim.at[2] = 3 * MIB;
    act_then = sim_act();
    sim_punch(act_then, 0, BLK);
    put_a = put_b = RL_PUT_CLOSED;
}

static void actor_put_third(void)
{
    put_b = sim_punch(act_then, 3 * MIB, 3 * MIB + BLK);
}

static void actor_one_pass(void)
{
    sim_pass();
}

static void expect_zero_now(int cell)
{
    uint64_t v;

    IL_EXPECT(sim.cell[cell] == 0 || rl_table_maybe(T, sim.at[cell], sim.at[cell] + BLK));
    if (sim_peek(cell, &v))
        IL_EXPECT(v == 0);
}

static void watch_puts(void)
{
    expect_zero_now(0);
    if (put_a != RL_PUT_CLOSED)
        expect_zero_now(1);
    if (put_b != RL_PUT_CLOSED)
        expect_zero_now(2);
}

static void check_all_applied(void)
{
    check_drains_empty();
    IL_EXPECT(sim.cell[0] == 0 && sim.cell[1] == 0);
    IL_EXPECT(put_b == RL_PUT_CLOSED || sim.cell[2] == 0);
}

static void a_put_range_is_in_sight_until_it_is_applied(void **state)
{
    (void)state;
    run(&(struct il_scenario){__func__,
                              setup_two_putters,
                              {actor_put_elsewhere, actor_put_third},
                              watch_puts,
                              check_all_applied});
    run(&(struct il_scenario){__func__,
                              setup_two_putters,
                              {actor_put_elsewhere, actor_one_pass},
                              watch_puts,
                              check_all_applied});
}

static void actor_grow_tail(void)
{
    for (unsigned i = 1; i < 8; i++)
        put_a = sim_punch(act_then, i * BLK, (i + 1) * BLK);
}

static void setup_growing(void)
{
    sim_reset();
    act_then = sim_act();
    sim_punch(act_then, 0, BLK);
    put_a = put_b = RL_PUT_CLOSED;
}

static void watch_first_cell(void)
{
    expect_zero_now(0);
}

static void check_cells_zero(void)
{
    check_drains_empty();
    for (int i = 0; i < SIM_CELLS; i++)
        IL_EXPECT(sim.cell[i] == 0);
}

static void a_tail_that_grows_while_it_is_taken_loses_nothing(void **state)
{
    (void)state;
    run(&(struct il_scenario){__func__,
                              setup_growing,
                              {actor_grow_tail, actor_one_pass},
                              watch_first_cell,
                              check_cells_zero});
}

/* --- a looker beside the consumer --- */

static uint64_t look_start, look_end;

static void actor_look(void)
{
    n_a = sim_overlaps(look_start, look_end, out_a, SIM_NODES);
}

static void check_looker_saw_it(void)
{
    IL_EXPECT(n_a != 0);
}

static void setup_split(uint64_t end)
{
    sim_reset();
    sim.at[0] = 128 * 1024;
    rl_table_put(T, POOL, sim_act(), 1, end, 7); /* unaligned: goes into a node */
}

static void setup_split_in_class(void)
{
    setup_split(512 * 1024);
    look_start = 300 * 1024;
    look_end = look_start + BLK;
}

static void setup_split_wide(void)
{
    setup_split(6 * MIB);
    look_start = 4 * MIB;
    look_end = look_start + BLK;
}

static void setup_split_wide_left(void)
{
    setup_split(6 * MIB);
    sim.at[0] = 3 * MIB;
    look_start = BLK;
    look_end = look_start + BLK;
}

static void setup_split_wide_to_class(void)
{
    setup_split(2 * MIB);
    sim.at[0] = MIB;
    look_start = MIB + 64 * 1024;
    look_end = look_start + BLK;
}

static void actor_apply_cell_0(void)
{
    rl_table_want(T, sim.at[0], sim.at[0] + BLK);
    sim_wants();
}

static void a_split_hides_no_part(void **state)
{
    (void)state;
    void (*const setups[])(void) = {setup_split_in_class, setup_split_wide, setup_split_wide_left,
                                    setup_split_wide_to_class};

    for (unsigned i = 0; i < sizeof setups / sizeof *setups; i++)
        run(&(struct il_scenario){
            __func__, setups[i], {actor_look, actor_apply_cell_0}, NULL, check_looker_saw_it});
}

static uint64_t leaving_end;

static void setup_neighbour_leaves(void)
{
    sim_reset();
    leaving_end = BLK;
    look_start = 64 * 1024;
    look_end = look_start + 3;
    rl_table_put(T, POOL, sim_act(), look_start, look_end, 7);
    rl_table_put(T, POOL, sim_act(), 1, 3, 7); /* the list's head, leaves */
}

static void setup_wide_neighbour_leaves(void)
{
    sim_reset();
    leaving_end = 2 * MIB;
    look_start = 5 * MIB;
    look_end = 8 * MIB;
    rl_table_put(T, POOL, sim_act(), look_start + 1, look_end, 7);
    rl_table_put(T, POOL, sim_act(), 1, 2 * MIB, 7);
}

/* The node that leaves is used again at once, in another list. */
static void actor_apply_and_reuse(void)
{
    rl_table_want(T, 0, leaving_end);
    sim_wants();
    rl_table_put(T, POOL, sim_act(), 9 * MIB + 1, 9 * MIB + 3, 7);
    rl_table_put(T, POOL, sim_act(), 10 * MIB + 1, 10 * MIB + 3, 7);
}

static void a_walk_over_a_recycled_node_is_not_believed(void **state)
{
    (void)state;
    run(&(struct il_scenario){__func__,
                              setup_neighbour_leaves,
                              {actor_look, actor_apply_and_reuse},
                              NULL,
                              check_looker_saw_it});
    run(&(struct il_scenario){__func__,
                              setup_wide_neighbour_leaves,
                              {actor_look, actor_apply_and_reuse},
                              NULL,
                              check_looker_saw_it});
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

static void setup_settle(void)
{
    sim_reset();
    sim.at[0] = MIB;
    sim.at[1] = MIB + BLK;
    act_then = sim_act();
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
    run(&(struct il_scenario){
        __func__, setup_settle, {actor_put_then_note_pass, actor_one_pass}, NULL, check_settled});
}

static void check_clock_runs(void)
{
    IL_EXPECT(rl_table_empty(T) || T->first_ns != 0);
}

static void what_no_pass_took_keeps_the_clock_running(void **state)
{
    (void)state;
    run(&(struct il_scenario){__func__,
                              setup_settle,
                              {actor_put_then_note_pass, actor_one_pass},
                              NULL,
                              check_clock_runs});
}

/* --- writer, reader and puncher against the consumer --- */

static void actor_punch_write(void)
{
    for (uint64_t v = 2; v < 4; v++) {
        sim_punch(act_then, MIB, MIB + BLK);
        IL_EXPECT(sim_read(0) == 0);
        sim_write(0, v);
        IL_EXPECT(sim_read(0) == v);
    }
}

static void actor_consumer(void)
{
    for (int i = 0; i < 6; i++) {
        sim_wants();
        if (i % 2 == 0)
            sim_pass();
        il_wait();
    }
    while (!il.done[0]) {
        sim_wants();
        il_wait();
    }
}

static void check_last_write(void)
{
    sim_drain();
    IL_EXPECT(sim.cell[0] == 3);
    check_drains_empty();
}

static void punch_and_write_take_effect_in_order(void **state)
{
    (void)state;
    run(&(struct il_scenario){
        __func__, setup_settle, {actor_punch_write, actor_consumer}, NULL, check_last_write});
}

/* A range wider than a class and one inside it, cut while new ones arrive on top. */
static void setup_wide_and_narrow(void)
{
    sim_reset();
    sim.at[0] = MIB;
    sim.at[1] = MIB + BLK;
    act_then = sim_act();
    sim_punch(act_then, MIB - 1, 2 * MIB + 1);
}

static void actor_write_punch_inside(void)
{
    sim_write(0, 2);
    sim_punch(act_then, MIB, MIB + BLK - 1); /* a class node */
    IL_EXPECT(sim_read(0) == 0);
}

static void check_zero_0(void)
{
    sim_drain();
    IL_EXPECT(sim.cell[0] == 0);
    check_drains_empty();
}

static void a_punch_after_a_write_is_not_taken_for_done(void **state)
{
    (void)state;
    run(&(struct il_scenario){__func__,
                              setup_wide_and_narrow,
                              {actor_write_punch_inside, actor_consumer},
                              NULL,
                              check_zero_0});
}

/* --- no mixture: the same range leaves and comes back within one read --- */

static void stage_wait(void)
{
    il_wait();
}

static void actor_read_pair(void)
{
    sim_read2(0, 1, got, stage_wait);
}

static void setup_mixture(void)
{
    sim_reset();
    act_then = sim_act();
    sim.cell[0] = 4;
    sim.cell[1] = 1;
    rl_table_put(T, POOL, act_then, BLK, 2 * BLK - 1, 7);
}

static void actor_drain_write_both_punch(void)
{
    rl_table_want(T, BLK, 2 * BLK);
    sim_wants();
    sim_write(1, 2);
    sim_write(0, 5);
    sim_write(0, 6);
    sim_punch(act_then, BLK, 2 * BLK - 1);
}

static void check_mixture(void)
{
    static const uint64_t legal[][2] = {{4, 0}, {4, 2}, {5, 2}, {6, 2}, {6, 0}};
    bool found = false;

    for (unsigned i = 0; i < sizeof legal / sizeof *legal; i++)
        found |= got[0] == legal[i][0] && got[1] == legal[i][1];
    IL_EXPECT(found);
    check_drains_empty();
}

static void a_read_gives_no_mixture_when_a_range_leaves_and_comes_back(void **state)
{
    struct il_scenario s = {"mixture",
                            setup_mixture,
                            {actor_read_pair, actor_drain_write_both_punch},
                            NULL,
                            check_mixture};
    long n1 = il_steps_of(&s, 1);

    (void)state;
    il_failures = 0;
    /* The reader stops only where it stood after its look and after its pread; the other side is
     * cut in three at every place. */
    for (long x = 0; x <= n1; x++)
        for (long y = 0; x + y <= n1; y++)
            for (long z = 0; x + y + z <= n1; z += 1)
                il_schedule(&s, (long[]){0, x, IL_ALL, y, IL_ALL, z, IL_ALL}, 7);
    assert_int_equal(il_failures, 0);
    run(&s);
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
        cmocka_unit_test(no_node_is_handed_out_twice),
        cmocka_unit_test(pushes_and_unlinks_do_not_disturb_each_other),
        cmocka_unit_test(a_sleeping_putter_never_brings_an_applied_range_back),
        cmocka_unit_test(a_sleeping_putter_never_brings_a_wanted_range_back),
        cmocka_unit_test(a_put_range_is_in_sight_until_it_is_applied),
        cmocka_unit_test(a_tail_that_grows_while_it_is_taken_loses_nothing),
        cmocka_unit_test(a_split_hides_no_part),
        cmocka_unit_test(a_walk_over_a_recycled_node_is_not_believed),
        cmocka_unit_test(a_late_putter_never_touches_the_next_activation),
        cmocka_unit_test(what_once_read_as_zeros_stays_so_while_the_table_closes),
        cmocka_unit_test(a_pass_begun_after_a_put_settles_it),
        cmocka_unit_test(what_no_pass_took_keeps_the_clock_running),
        cmocka_unit_test(punch_and_write_take_effect_in_order),
        cmocka_unit_test(a_punch_after_a_write_is_not_taken_for_done),
        cmocka_unit_test(a_read_gives_no_mixture_when_a_range_leaves_and_comes_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
