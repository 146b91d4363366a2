/* SPDX-License-Identifier: MIT */
/*
 * The invariants of range_table.h where ranges are put, looked at and applied in an open table,
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
static uint64_t got[2];
static int n_a;
static struct rl_span out_a[SIM_NODES];

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
        __func__, setup_two_blocks, {actor_punch_write, actor_consumer}, NULL, check_last_write});
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

int main(void)
{
#ifdef RL_TSAN
    puts("SKIP: the threads of an interleaving are contexts of one thread, which ThreadSanitizer "
         "cannot follow");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sleeping_putter_never_brings_an_applied_range_back),
        cmocka_unit_test(a_sleeping_putter_never_brings_a_wanted_range_back),
        cmocka_unit_test(a_put_range_is_in_sight_until_it_is_applied),
        cmocka_unit_test(a_tail_that_grows_while_it_is_taken_loses_nothing),
        cmocka_unit_test(a_split_hides_no_part),
        cmocka_unit_test(a_walk_over_a_recycled_node_is_not_believed),
        cmocka_unit_test(punch_and_write_take_effect_in_order),
        cmocka_unit_test(a_punch_after_a_write_is_not_taken_for_done),
        cmocka_unit_test(a_read_gives_no_mixture_when_a_range_leaves_and_comes_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
