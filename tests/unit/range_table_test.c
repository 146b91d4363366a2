/* SPDX-License-Identifier: MIT */
/* What range_table.h promises to one thread at a time. timeout: 60 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "../../lockmgr/range_table.h"

#define NODES 128
#define LIMIT 64
#define K4    4096u
#define MIB   ((uint64_t)1 << 20)
#define GIB   ((uint64_t)1 << 30)
#define TIB   ((uint64_t)1 << 40)

static struct rl_table table, *const t = &table;
static union {
    struct rl_pool pool;
    char bytes[sizeof(struct rl_pool) + NODES * sizeof(struct rl_node)];
} mem;
static struct rl_pool *const pool = &mem.pool;

static int open_table(void **state)
{
    (void)state;
    memset(t, 0, sizeof *t);
    memset(&mem, 0, sizeof mem);
    pool->capacity = NODES;
    pool->limit = LIMIT;
    rl_drain_open(t, pool);
    return 0;
}

static enum rl_put put(uint64_t start, uint64_t end)
{
    return rl_table_put(t, pool, t->act, start, end, 77);
}

static int overlaps(uint64_t start, uint64_t end)
{
    struct rl_span out[NODES];

    return rl_table_overlaps(t, pool, start, end, out, NODES);
}

/* Bytes of [0, 1 GiB) in the queue, counted by probing each place once, whatever overlaps. */
static bool queued_at(uint64_t at)
{
    return overlaps(at, at + 1) > 0;
}

/* Drains one pass; returns the number of stretches and their sum. */
static int drain(uint64_t call_max, uint64_t *bytes)
{
    struct rl_span s;
    int n = 0;

    *bytes = 0;
    rl_drain_begin(t, pool);
    while (rl_drain_next(t, pool, call_max, &s)) {
        assert_true(s.start < s.end && s.end - s.start <= call_max);
        *bytes += s.end - s.start;
        rl_drain_applied(t, pool, &s);
        n++;
    }
    rl_drain_end(t);
    return n;
}

static void assert_drains_empty(void)
{
    uint64_t bytes;

    drain(8 * MIB, &bytes);
    assert_true(rl_table_empty(t));
    assert_int_equal(pool->used, 0);
}

static void a_closed_table_takes_nothing(void **state)
{
    uint32_t act = t->act;

    (void)state;
    assert_int_equal(rl_table_put(t, pool, act + 4, 0, K4, 1), RL_PUT_CLOSED);
    assert_int_equal(rl_table_put(t, pool, act & ~3u, 0, K4, 1), RL_PUT_CLOSED);
    assert_true(rl_table_close(t, act));
    assert_false(rl_table_close(t, act));
    assert_int_equal(rl_table_put(t, pool, act, 0, K4, 1), RL_PUT_CLOSED);
    assert_int_equal(rl_table_put(t, pool, t->act, 0, K4, 1), RL_PUT_CLOSED);
    assert_true(rl_table_empty(t));
}

static void a_run_of_ascending_punches_takes_no_node_and_is_one_range(void **state)
{
    struct rl_span out[2];
    uint64_t bytes;

    (void)state;
    for (uint64_t i = 0; i < 131072; i++)
        assert_int_equal(put(i * K4, (i + 1) * K4), i == 0 ? RL_PUT_QUEUED : RL_PUT_MERGED);
    assert_int_equal(pool->used, 0);
    assert_int_equal(rl_table_overlaps(t, pool, 0, RL_FOREVER, out, 2), 1);
    assert_int_equal(out[0].start, 0);
    assert_int_equal(out[0].end, 131072ull * K4);
    assert_int_equal(drain(8 * MIB, &bytes), 64);
    assert_int_equal(bytes, 131072ull * K4);
    assert_drains_empty();
}

static void runs_in_several_places_each_have_a_tail(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100; i++)
        for (uint64_t run = 0; run < RL_TAILS; run++)
            assert_int_equal(put(run * GIB + i * K4, run * GIB + (i + 1) * K4),
                             i == 0 ? RL_PUT_QUEUED : RL_PUT_MERGED);
    assert_int_equal(pool->used, 0);
    assert_int_equal(put(RL_TAILS * GIB, RL_TAILS * GIB + K4), RL_PUT_QUEUED);
    assert_int_equal(pool->used, 1);
    assert_int_equal(overlaps(0, RL_FOREVER), RL_TAILS + 1);
    assert_drains_empty();
}

static void descending_and_overlapping_ranges_merge_but_gaps_do_not(void **state)
{
    (void)state;
    assert_int_equal(put(10 * K4, 11 * K4), RL_PUT_QUEUED);
    assert_int_equal(put(9 * K4, 10 * K4), RL_PUT_MERGED);
    assert_int_equal(put(5 * K4, 10 * K4), RL_PUT_MERGED);
    assert_int_equal(put(6 * K4, 7 * K4), RL_PUT_MERGED);
    assert_int_equal(overlaps(0, GIB), 1);
    assert_int_equal(put(12 * K4, 13 * K4), RL_PUT_QUEUED); /* one block further */
    assert_false(queued_at(11 * K4));
    assert_int_equal(put(3 * K4, 4 * K4), RL_PUT_QUEUED);
    assert_false(queued_at(4 * K4));
    assert_drains_empty();
}

static void what_does_not_pack_goes_into_a_node_and_is_exact(void **state)
{
    static const struct rl_span odd[] = {
        {1, K4},                                       /* unaligned start */
        {8 * K4, 9 * K4 - 1},                          /* unaligned end */
        {8 * GIB, 8 * GIB + 4 * GIB},                  /* 2^20 blocks: one too many */
        {(uint64_t)1 << 48, ((uint64_t)1 << 48) + K4}, /* 256 TiB */
        {300 * TIB, RL_FOREVER},
    };
    struct rl_span out[4];

    (void)state;
    for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++) {
        uint32_t used = pool->used;

        assert_int_equal(put(odd[i].start, odd[i].end), RL_PUT_QUEUED);
        assert_int_equal(pool->used, used + 1);
        assert_int_equal(rl_table_overlaps(t, pool, odd[i].start, odd[i].end, out, 4), 1);
        assert_memory_equal(&out[0], &odd[i], sizeof *out);
    }
    assert_int_equal(overlaps(0, 1), 0);
    assert_int_equal(overlaps(9 * K4 - 1, 9 * K4), 0);
    drain((uint64_t)INT64_MAX, &(uint64_t){0});
    assert_true(rl_table_empty(t));
}

static void the_largest_packed_ranges_stay_exact(void **state)
{
    uint64_t top = ((uint64_t)1 << 48) - K4, most = (((uint64_t)1 << 20) - 1) * K4;
    struct rl_span out[4];

    (void)state;
    assert_int_equal(put(top, top + K4), RL_PUT_QUEUED);
    assert_int_equal(put(0, most), RL_PUT_QUEUED);
    assert_int_equal(pool->used, 0);
    assert_int_equal(put(most, most + K4), RL_PUT_QUEUED); /* would not fit into the word */
    assert_int_equal(rl_table_overlaps(t, pool, top, RL_FOREVER, out, 4), 1);
    assert_int_equal(out[0].start, top);
    assert_int_equal(out[0].end, top + K4);
    assert_true(queued_at(most - 1) && queued_at(most));
    assert_false(queued_at(most + K4));
    assert_drains_empty();
}

static void a_full_pool_refuses_but_merging_goes_on(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < LIMIT; i++)
        assert_int_equal(put(i * MIB + 1, i * MIB + 2), RL_PUT_QUEUED);
    assert_int_equal(put(MIB / 2 + 1, MIB / 2 + 3), RL_PUT_FULL);
    assert_int_equal(put(MIB / 2, MIB / 2 + K4), RL_PUT_FULL);
    assert_int_equal(pool->used, LIMIT);
    assert_false(queued_at(MIB / 2 + 1));
    assert_drains_empty();
    assert_int_equal(put(0, K4), RL_PUT_QUEUED);
    for (uint64_t i = 0; i < LIMIT; i++)
        assert_int_equal(put(i * MIB + 5, i * MIB + 6), RL_PUT_QUEUED);
    assert_int_equal(put(K4, 2 * K4), RL_PUT_MERGED);
    assert_drains_empty();
}

static void overlaps_are_cut_and_too_many_are_told(void **state)
{
    struct rl_span out[3];

    (void)state;
    put(1, 100);
    put(50, 200);
    put(MIB - 10, MIB + 10);
    assert_int_equal(rl_table_overlaps(t, pool, 90, 95, out, 3), 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(out[i].start, 90);
        assert_int_equal(out[i].end, 95);
    }
    assert_int_equal(rl_table_overlaps(t, pool, 0, 2 * MIB, out, 3), 3);
    assert_int_equal(rl_table_overlaps(t, pool, 0, 2 * MIB, out, 2), -1);
    assert_int_equal(rl_table_overlaps(t, pool, 0, 2 * MIB, out, 0), -1);
    assert_int_equal(rl_table_overlaps(t, pool, 200, 201, out, 0), 0);
    assert_int_equal(rl_table_overlaps(t, pool, 60, 60, out, 3), 0);
    assert_int_equal(rl_table_overlaps(t, pool, 60, 50, out, 3), 0);
}

static void maybe_is_never_false_where_something_is(void **state)
{
    uint64_t seed = 88172645463325252u, bytes;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint64_t a = seed % (1 << 28), len;

        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        len = 1 + seed % (i % 7 == 0 ? 3 * MIB : 9000);
        if (i % 2 == 0)
            a &= ~(uint64_t)4095, len = (len + 4095) & ~(uint64_t)4095;
        if (i % 97 == 0)
            drain(8 * MIB, &bytes);
        if (put(a, a + len) == RL_PUT_FULL)
            continue;
        assert_true(rl_table_maybe(t, a, a + 1));
        assert_true(rl_table_maybe(t, a + len - 1, a + len));
        assert_true(overlaps(a, a + len) != 0);
        assert_true(queued_at(a) && queued_at(a + len - 1));
    }
    assert_drains_empty();
    assert_false(rl_table_maybe(t, 0, RL_FOREVER));
}

static void stamps_move_with_puts_and_removals_in_their_classes_only(void **state)
{
    uint64_t near = rl_table_stamp(t, 0, MIB), far = rl_table_stamp(t, 5 * MIB, 6 * MIB), bytes;

    (void)state;
    put(K4, 2 * K4);
    assert_int_not_equal(rl_table_stamp(t, 0, MIB), near);
    near = rl_table_stamp(t, 0, MIB);
    put(2 * K4, 3 * K4); /* merged */
    assert_int_not_equal(rl_table_stamp(t, 0, MIB), near);
    near = rl_table_stamp(t, 0, MIB);
    drain(MIB, &bytes);
    assert_int_not_equal(rl_table_stamp(t, 0, MIB), near);
    assert_int_equal(rl_table_stamp(t, 5 * MIB, 6 * MIB), far);
    put(1, 300 * MIB); /* touches all classes */
    assert_int_not_equal(rl_table_stamp(t, 5 * MIB, 6 * MIB), far);
    assert_int_equal(rl_table_stamp(t, 5, 5), 0);
    assert_drains_empty();
    /* at rest every generation is even: a look is believed at once */
    for (int c = 0; c < RL_CLASSES; c++)
        assert_int_equal(t->gen[c] & 1, 0);
}

static void a_look_is_not_believed_while_something_is_taken_out(void **state)
{
    (void)state;
    t->gen[3]++;
    assert_int_equal(overlaps(3 * MIB, 3 * MIB + 1), -1);
    assert_int_equal(overlaps(2 * MIB, 3 * MIB), 0);
    t->gen[3]++;
    assert_int_equal(overlaps(3 * MIB, 3 * MIB + 1), 0);
}

static void a_want_is_applied_first_and_splits_leave_both_sides(void **state)
{
    struct rl_span s;

    (void)state;
    put(100 * K4, 200 * K4);     /* tail */
    put(3 * MIB + 1, 9 * MIB);   /* wide node */
    put(20 * MIB, 20 * MIB + 3); /* another, not wanted */
    rl_table_want(t, 150 * K4, 151 * K4);
    rl_table_want(t, 5 * MIB, 6 * MIB);
    for (int i = 0; i < 2; i++) {
        assert_true(rl_drain_next_wanted(t, pool, 8 * MIB, &s));
        assert_int_equal(s.start, i == 0 ? 150 * K4 : 5 * MIB);
        assert_int_equal(s.end, i == 0 ? 151 * K4 : 6 * MIB);
        rl_drain_applied(t, pool, &s);
    }
    assert_false(rl_drain_next_wanted(t, pool, 8 * MIB, &s));
    assert_true(queued_at(150 * K4 - 1) && queued_at(151 * K4));
    assert_false(queued_at(150 * K4) || queued_at(151 * K4 - 1));
    assert_true(queued_at(5 * MIB - 1) && queued_at(6 * MIB));
    assert_false(queued_at(5 * MIB) || queued_at(6 * MIB - 1));
    assert_true(queued_at(3 * MIB + 1) && queued_at(9 * MIB - 1) && queued_at(20 * MIB));
    assert_drains_empty();
}

static void a_wanted_stretch_is_at_most_call_max(void **state)
{
    struct rl_span s;
    int n = 0;

    (void)state;
    put(0, 4 * MIB);
    rl_table_want(t, MIB, 2 * MIB);
    while (rl_drain_next_wanted(t, pool, MIB / 4, &s)) {
        assert_true(s.start >= MIB && s.end <= 2 * MIB && s.end - s.start <= MIB / 4);
        rl_drain_applied(t, pool, &s);
        n++;
    }
    assert_int_equal(n, 4);
    assert_true(queued_at(MIB - 1) && queued_at(2 * MIB));
    assert_drains_empty();
}

static void a_met_want_moves_done_seq_and_frees_its_place(void **state)
{
    struct rl_span s;
    uint32_t seq;

    (void)state;
    for (int i = 0; i < RL_WANTS; i++)
        rl_table_want(t, (uint64_t)i * MIB, (uint64_t)i * MIB + K4);
    rl_table_want(t, 0, K4); /* the same again takes no place */
    assert_int_equal(t->want_all, 0);
    rl_table_want(t, 9 * MIB, 9 * MIB + K4);
    assert_int_equal(t->want_all, 1);
    seq = t->done_seq;
    assert_false(rl_drain_next_wanted(t, pool, MIB, &s));
    assert_int_not_equal(t->done_seq, seq);
    for (int i = 0; i < RL_WANTS; i++)
        assert_int_equal(t->want[i], 0);
    rl_drain_begin(t, pool);
    assert_int_equal(t->want_all, 0);
    rl_drain_end(t);
    rl_table_want(t, 300 * TIB, 301 * TIB); /* does not pack */
    assert_int_equal(t->want_all, 1);
}

/* Without nodes to split with, what lies before the wanted part goes along. */
static void wants_make_progress_when_there_are_no_nodes_to_split_with(void **state)
{
    struct rl_span s;
    uint32_t left = 0;

    (void)state;
    put(1, 16 * MIB);
    while (rl_node_get_reserved(pool) != 0)
        left++;
    assert_true(left > RL_POOL_SPARE);
    rl_table_want(t, 5 * MIB, 5 * MIB + K4);
    for (int i = 0; rl_drain_next_wanted(t, pool, MIB, &s); i++) {
        assert_true(i < 32);
        rl_drain_applied(t, pool, &s);
    }
    assert_false(queued_at(5 * MIB));
    assert_true(queued_at(5 * MIB + K4));
}

static void what_comes_while_a_stretch_is_applied_stays(void **state)
{
    struct rl_span s;

    (void)state;
    put(MIB + 1, MIB + 100);
    rl_drain_begin(t, pool);
    assert_true(rl_drain_next(t, pool, MIB, &s));
    put(MIB + 1, MIB + 100);
    put(MIB + 50, 2 * MIB + 1);
    rl_drain_applied(t, pool, &s);
    assert_int_equal(overlaps(MIB + 1, MIB + 2), 1);
    assert_int_equal(overlaps(MIB + 60, MIB + 61), 2);
    assert_false(rl_drain_next(t, pool, MIB, &s)); /* nor is it in this pass */
    rl_drain_end(t);
    assert_drains_empty();
}

static void a_pass_takes_what_is_queued_at_its_beginning(void **state)
{
    struct rl_span s;
    uint32_t pass;

    (void)state;
    put(0, K4);
    put(5, 6);
    assert_int_equal(t->first_ns, 77);
    pass = t->pass_begun;
    assert_int_equal(rl_drain_begin(t, pool), pass + 1);
    assert_int_equal(t->first_ns, 0);
    put(MIB, MIB + K4);
    assert_int_equal(t->first_ns, 77);
    while (rl_drain_next(t, pool, MIB, &s)) {
        assert_true(s.end <= MIB);
        assert_int_equal(t->pass_done, pass);
        rl_drain_applied(t, pool, &s);
    }
    assert_int_equal(t->pass_done, pass);
    rl_drain_end(t);
    assert_int_equal(t->pass_done, pass + 1);
    assert_false(queued_at(0));
    assert_true(queued_at(MIB));
}

static void neighbours_are_applied_in_one_call(void **state)
{
    uint64_t bytes;

    (void)state;
    for (uint64_t i = 0; i < 40; i++) /* every other first, odd ends: nothing merges */
        put((i * 2 % 40 + (i >= 20)) * 100 + 1, (i * 2 % 40 + (i >= 20)) * 100 + 101);
    assert_int_equal(drain(MIB, &bytes), 1);
    assert_int_equal(bytes, 4000);
}

static void a_postponed_stretch_stays_for_a_later_pass(void **state)
{
    struct rl_span s;
    uint64_t bytes;

    (void)state;
    put(1, 100);
    put(MIB + 1, MIB + 100);
    rl_drain_begin(t, pool);
    assert_true(rl_drain_next(t, pool, MIB, &s));
    rl_drain_postponed(t, pool, &s);
    assert_true(queued_at(s.start) && queued_at(s.end - 1));
    assert_true(rl_drain_next(t, pool, MIB, &s));
    rl_drain_applied(t, pool, &s);
    assert_false(rl_drain_next(t, pool, MIB, &s));
    rl_drain_end(t);
    assert_int_equal(pool->used, 1);
    assert_int_equal(drain(MIB, &bytes), 1);
    assert_int_equal(bytes, 99);
    assert_int_equal(pool->used, 0);
}

static void closing_waits_for_the_queue_and_a_new_activation_is_empty(void **state)
{
    uint32_t act = t->act;
    uint64_t bytes;

    (void)state;
    assert_false(rl_drain_close(t));
    put(0, K4);
    put(1, 2);
    assert_true(rl_table_close(t, act));
    assert_false(rl_drain_close(t));
    assert_int_equal(overlaps(0, K4), 2); /* still seen */
    drain(MIB, &bytes);
    assert_true(rl_drain_close(t));
    assert_int_equal(t->act & RL_ACT_STATE, RL_ACT_OFF);
    assert_int_equal(rl_table_put(t, pool, act, 0, K4, 1), RL_PUT_CLOSED);
    rl_drain_open(t, pool);
    assert_int_equal(t->act & RL_ACT_STATE, RL_ACT_ON);
    assert_int_equal(t->act >> 2, (act >> 2) + 1);
    assert_true(rl_table_empty(t));
}

/* A node that a putter of an older activation pushed too late. */
static void push_stranger(uint64_t start, uint64_t end)
{
    uint32_t act = t->act;

    assert_int_equal(put(start, end), RL_PUT_QUEUED);
    t->act = act + 4;
    assert_int_equal(overlaps(start, end), 0);
}

static void strangers_are_never_seen_or_applied_and_go_with_the_next_pass(void **state)
{
    struct rl_span s;

    (void)state;
    push_stranger(101, 200);
    rl_table_want(t, 0, K4);
    assert_false(rl_drain_next_wanted(t, pool, MIB, &s));
    put(51, 101); /* its neighbour */
    put(2 * MIB - 1, 2 * MIB + 1);
    rl_drain_begin(t, pool);
    while (rl_drain_next(t, pool, MIB, &s)) {
        assert_true(s.end <= 101 || s.start >= MIB);
        rl_drain_applied(t, pool, &s);
    }
    rl_drain_end(t);
    assert_true(rl_table_empty(t));
    assert_int_equal(pool->used, 0);
}

/* A stranger that arrives while the pass runs is no neighbour to grow over. */
static void a_stretch_does_not_grow_over_a_stranger(void **state)
{
    struct rl_span s;
    uint32_t act = t->act;

    (void)state;
    put(1, 100);
    rl_drain_begin(t, pool);
    t->act = act - 4 + (act < 8 ? 4u << 8 : 0);
    put(100, 200);
    t->act = act;
    assert_true(rl_drain_next(t, pool, MIB, &s));
    assert_int_equal(s.end, 100);
    rl_drain_applied(t, pool, &s);
    assert_false(rl_drain_next(t, pool, MIB, &s));
    rl_drain_end(t);
    assert_drains_empty();
}

static void a_leftover_tail_is_dead_and_gives_way(void **state)
{
    (void)state;
    put(0, K4);
    t->act += 4; /* as if a late putter had left it */
    assert_int_equal(overlaps(0, K4), 0);
    assert_int_equal(put(K4, 2 * K4), RL_PUT_QUEUED);
    assert_int_equal(overlaps(0, K4), 0);
    assert_int_equal(overlaps(K4, 2 * K4), 1);
    assert_drains_empty();
}

static void activations_wrap_their_eight_bits_in_the_tail(void **state)
{
    (void)state;
    for (int i = 0; i < 600; i++) {
        put(0, K4);
        assert_int_equal(overlaps(0, K4), 1);
        rl_table_close(t, t->act);
        drain(MIB, &(uint64_t){0});
        assert_true(rl_drain_close(t));
        t->tail[0] = (uint64_t)1 << 8 | (t->act >> 2 & 0xff); /* a leftover of just this number */
        rl_drain_open(t, pool);
        assert_int_equal(overlaps(0, K4), 0);
    }
}

static void numbers_of_passes_and_stretches_wrap_around_zero(void **state)
{
    (void)state;
    t->pass_begun = t->pass_done = UINT32_MAX - 1;
    t->chunk = UINT32_MAX - 1;
    for (int i = 0; i < 4; i++) {
        uint64_t bytes;
        uint32_t target = t->pass_begun + 1;

        put(1, 100);
        put(MIB + 1, MIB + 100);
        assert_int_equal(drain(MIB, &bytes), 2);
        assert_int_equal(bytes, 198);
        assert_true(t->pass_begun != 0 && t->chunk != 0);
        assert_true((int32_t)(t->pass_done - target) >= 0);
        assert_int_equal(pool->used, 0);
    }
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup(f, open_table)
    const struct CMUnitTest tests[] = {
        CASE(a_closed_table_takes_nothing),
        CASE(a_run_of_ascending_punches_takes_no_node_and_is_one_range),
        CASE(runs_in_several_places_each_have_a_tail),
        CASE(descending_and_overlapping_ranges_merge_but_gaps_do_not),
        CASE(what_does_not_pack_goes_into_a_node_and_is_exact),
        CASE(the_largest_packed_ranges_stay_exact),
        CASE(a_full_pool_refuses_but_merging_goes_on),
        CASE(overlaps_are_cut_and_too_many_are_told),
        CASE(maybe_is_never_false_where_something_is),
        CASE(stamps_move_with_puts_and_removals_in_their_classes_only),
        CASE(a_look_is_not_believed_while_something_is_taken_out),
        CASE(a_want_is_applied_first_and_splits_leave_both_sides),
        CASE(a_wanted_stretch_is_at_most_call_max),
        CASE(a_met_want_moves_done_seq_and_frees_its_place),
        CASE(wants_make_progress_when_there_are_no_nodes_to_split_with),
        CASE(what_comes_while_a_stretch_is_applied_stays),
        CASE(a_pass_takes_what_is_queued_at_its_beginning),
        CASE(neighbours_are_applied_in_one_call),
        CASE(a_postponed_stretch_stays_for_a_later_pass),
        CASE(closing_waits_for_the_queue_and_a_new_activation_is_empty),
        CASE(strangers_are_never_seen_or_applied_and_go_with_the_next_pass),
        CASE(a_stretch_does_not_grow_over_a_stranger),
        CASE(a_leftover_tail_is_dead_and_gives_way),
        CASE(activations_wrap_their_eight_bits_in_the_tail),
        CASE(numbers_of_passes_and_stretches_wrap_around_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
