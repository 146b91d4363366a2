/* SPDX-License-Identifier: MIT */
/*
 * What a killed owner leaves (lockmgr/leftover.h): the kill comes between any two atomic operations
 * of two actors. Each time what is left is applied to a copy of the file, as the keeper would do,
 * and the copy must hold what the calls that had returned by then had made of it. timeout: 120
 */
#include "interleave.h"

#include "../../lockmgr/ranges.c"
#include "../../lockmgr/range_table.c"
#include "../../lockmgr/drain.c"
#include "../../lockmgr/leftover.c"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "sim_file.h"

#define SAMPLES 4000

static uint32_t act_then;
static unsigned long kills, found; /* looks; those that found something left */

/* What a cell may hold after a kill: the oldest value a finished call allows, and what a call under
 * way may have made of it. */
static struct {
    uint64_t done;
    uint64_t perhaps;
} may[SIM_CELLS];

static void run(const struct il_scenario *s)
{
    kills = found = 0;
    assert_int_equal(il_explore(s, SAMPLES), 0);
    assert_true(kills > 1000);
    assert_true(found > 100);
}

static void setup(void)
{
    sim_reset();
    sim.at[1] = BLK;
    sim.at[2] = 3 * BLK; /* a gap of one block before it */
    sim.at[3] = 2 * MIB;
    for (int i = 0; i < SIM_CELLS; i++)
        may[i].done = may[i].perhaps = 1;
    act_then = sim_act();
}

static void setup_with_block_beside(void)
{
    setup();
    sim.at[2] = 2 * BLK; /* stays: nobody punches it */
}

static void punch(int cell, uint64_t bytes)
{
    may[cell].perhaps = 0;
    sim_punch(act_then, sim.at[cell], sim.at[cell] + bytes);
    may[cell].done = 0;
}

/* Nothing else touches the cell meanwhile: the value before it is a finished one. */
static void write_cell(int cell, uint64_t value)
{
    sim_wait_clear(sim.at[cell], sim.at[cell] + BLK);
    may[cell].perhaps = value;
    il_step();
    sim.cell[cell] = value;
    may[cell].done = value;
}

static void kill_here(void)
{
    static struct rl_span left[SIM_NODES + RL_TAILS];
    size_t n = rl_leftover(T, POOL, SIM_NODES, left, SIM_NODES + RL_TAILS);

    kills++;
    found += n != 0;
    for (int i = 0; i < SIM_CELLS; i++) {
        uint64_t v = sim.cell[i];

        for (size_t k = 0; k < n; k++)
            if (meets(sim.at[i], &left[k]))
                v = 0;
        IL_EXPECT(v == may[i].done || v == may[i].perhaps);
    }
    for (size_t k = 1; k < n; k++)
        IL_EXPECT(left[k].start > left[k - 1].end);
}

static void check_end(void)
{
    kill_here();
}

/* --- the scenarios --- */

static void actor_punches(void)
{
    punch(0, BLK);
    punch(3, BLK);
    punch(1, BLK);
}

static void actor_consumes(void)
{
    sim_pass();
    sim_wants();
    sim_pass();
}

static void every_punch_that_returned_is_left_or_applied(void **state)
{
    (void)state;
    run(&(struct il_scenario){
        __func__, setup, {actor_punches, actor_consumes}, kill_here, check_end});
}

static void actor_punches_wide(void)
{
    may[0].perhaps = may[1].perhaps = may[2].perhaps = may[3].perhaps = 0;
    sim_punch(act_then, 1, 2 * MIB + BLK); /* unaligned and over classes: a node in the wide list */
    may[0].done = may[1].done = may[2].done = may[3].done = 0;
}

static void actor_cuts(void)
{
    rl_table_want(T, sim.at[2], sim.at[2] + BLK);
    sim_wants();
    sim_pass();
}

static void a_range_that_is_being_cut_is_left_whole(void **state)
{
    (void)state;
    run(&(struct il_scenario){
        __func__, setup, {actor_punches_wide, actor_cuts}, kill_here, check_end});
}

static void actor_punches_and_writes(void)
{
    punch(0, BLK);
    write_cell(0, 2);
    punch(3, BLK);
    write_cell(3, 3);
}

static void actor_consumes_long(void)
{
    while (!il.done[0]) {
        sim_wants();
        il_wait();
    }
}

static void nothing_written_after_a_punch_is_punched_again(void **state)
{
    (void)state;
    run(&(struct il_scenario){
        __func__, setup, {actor_punches_and_writes, actor_consumes_long}, kill_here, check_end});
}

static void actor_closes(void)
{
    sim_close_and_drain();
    /* On again: nothing of the older activation counts any more. */
    rl_drain_open(T, POOL);
}

static void actor_late(void)
{
    sim_punch(act_then, 1, 2);
    sim_punch(act_then, 2 * MIB, 2 * MIB + BLK);
}

static void check_closed_table(void)
{
    struct rl_span left[SIM_NODES + RL_TAILS];

    sim_close_and_drain();
    rl_push_range(T, POOL, rl_node_get(POOL), sim_act(), 0, BLK); /* too late, and refused */
    IL_EXPECT(rl_leftover(T, POOL, SIM_NODES, left, SIM_NODES + RL_TAILS) == 0);
}

static void what_a_closed_table_holds_is_nobodys(void **state)
{
    (void)state;
    assert_int_equal(
        il_explore(
            &(struct il_scenario){__func__, setup, {actor_late, NULL}, NULL, check_closed_table},
            10),
        0);
}

static void check_older(void)
{
    struct rl_span left[SIM_NODES + RL_TAILS];

    IL_EXPECT(rl_leftover(T, POOL, SIM_NODES, left, SIM_NODES + RL_TAILS) == 0);
}

static void actor_late_node(void)
{
    uint32_t index = rl_node_get(POOL); /* as a putter that slept before its push */

    rl_push_range(T, POOL, index, act_then, 0, BLK);
}

static void what_belongs_to_an_older_activation_is_nobodys(void **state)
{
    (void)state;
    assert_int_equal(il_explore(
                         &(struct il_scenario){
                             __func__, setup, {actor_closes, actor_late_node}, NULL, check_older},
                         SAMPLES),
                     0);
}

static void actor_punches_beside(void)
{
    punch(1, BLK);
    may[3].perhaps = 0;
    sim_punch(act_then, 3 * BLK, 4 * BLK);
    punch(0, BLK);
}

static void nothing_between_two_ranges_is_touched(void **state)
{
    (void)state;
    run(&(struct il_scenario){__func__,
                              setup_with_block_beside,
                              {actor_punches_beside, actor_consumes},
                              kill_here,
                              check_end});
}

/* --- order and bounds --- */

static uint64_t next_random(uint64_t *state)
{
    return il_random(state);
}

static void ranges_in_any_order_come_out_sorted_and_merged(void **state)
{
    static bool want[512], got[512];
    uint64_t seed = 88172645463325252u;

    (void)state;
    for (int round = 0; round < 200; round++) {
        struct rl_span out[SIM_NODES + RL_TAILS];
        size_t n;

        sim_reset();
        memset(want, 0, sizeof want);
        memset(got, 0, sizeof got);
        for (int i = 0; i < 25; i++) {
            unsigned at = (unsigned)(next_random(&seed) % 500);
            unsigned len = 1 + (unsigned)(next_random(&seed) % 12);

            rl_push_range(T, POOL, rl_node_get(POOL), sim_act(), (uint64_t)at * 1000,
                          (uint64_t)(at + len) * 1000);
            for (unsigned b = at; b < at + len; b++)
                want[b] = true;
        }
        n = rl_leftover(T, POOL, SIM_NODES, out, SIM_NODES + RL_TAILS);
        for (size_t i = 0; i < n; i++) {
            assert_true(i == 0 || out[i].start > out[i - 1].end);
            for (uint64_t b = out[i].start / 1000; b < out[i].end / 1000; b++)
                got[b] = true;
        }
        assert_memory_equal(want, got, sizeof want);
    }
}

static void a_torn_pool_ends_the_walk(void **state)
{
    struct rl_span out[SIM_NODES + RL_TAILS];

    (void)state;
    sim_reset();
    for (int i = 0; i < 4; i++)
        rl_push_range(T, POOL, rl_node_get(POOL), sim_act(), (uint64_t)i * MIB + 1,
                      (uint64_t)i * MIB + 2);
    POOL->node[1].next = 1;          /* a loop */
    POOL->node[2].next = 0xfffffff0; /* out of the pool */
    POOL->node[3].end = UINT64_MAX;  /* no range */
    POOL->node[4].start = 9 * MIB;   /* the same */
    assert_int_equal(rl_leftover(T, POOL, SIM_NODES, out, SIM_NODES + RL_TAILS), 2);
    assert_int_equal(out[0].start, 1);
    assert_int_equal(out[1].start, MIB + 1);
}

int main(void)
{
#ifdef RL_TSAN
    puts("SKIP: the threads of an interleaving are contexts of one thread, which ThreadSanitizer "
         "cannot follow");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_in_any_order_come_out_sorted_and_merged),
        cmocka_unit_test(a_torn_pool_ends_the_walk),
        cmocka_unit_test(what_a_closed_table_holds_is_nobodys),
        cmocka_unit_test(what_belongs_to_an_older_activation_is_nobodys),
        cmocka_unit_test(nothing_between_two_ranges_is_touched),
        cmocka_unit_test(every_punch_that_returned_is_left_or_applied),
        cmocka_unit_test(a_range_that_is_being_cut_is_left_whole),
        cmocka_unit_test(nothing_written_after_a_punch_is_punched_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
