/* SPDX-License-Identifier: MIT */
/*
 * The model's checkers on histories made by hand: each wrong one must be caught, each right one
 * accepted. A row is one call; tickets give the real-time order.
 */
/* The checkers are part of the model program, not of a library; they need nothing else. */
#include "../model/check.c"
#define by_value whole_by_value
#include "../model/whole.c"
#undef by_value
#include "../model/pattern.c"
#include "../model/times.c"
#include "../model/trace.c"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { ROWS = 64 };
static const int64_t PAGE = 4096;

/* One hand-made history; rows of one lane must be added together, in their order. */
struct tale {
    struct op op[ROWS];
    struct run run[ROWS];
    struct trace t;
    unsigned n, runs;
};

static struct op *row(struct tale *h, unsigned lane, uint64_t inv, uint64_t res, enum effect e,
                      int64_t off, int64_t len)
{
    struct op *o = &h->op[h->n];

    *o = (struct op){.lane = (uint8_t)lane,
                     .inv = inv,
                     .res = res,
                     .effect = (uint8_t)e,
                     .off = off,
                     .len = len};
    h->t.ops[h->n++] = o;
    h->t.nops = h->n;
    h->t.runs = h->run;
    return o;
}

static void writes(struct tale *h, unsigned lane, uint64_t inv, uint64_t res, unsigned id,
                   int64_t page, int64_t pages)
{
    row(h, lane, inv, res, EFFECT_WRITE, page * PAGE, pages * PAGE)->id = (uint8_t)id;
}

static void punches(struct tale *h, unsigned lane, uint64_t inv, uint64_t res, int64_t page,
                    int64_t pages)
{
    row(h, lane, inv, res, EFFECT_ZERO, page * PAGE, pages * PAGE);
}

/* A read of one page after another; `ids` one a page, -1 ends the file there. */
static struct op *reads(struct tale *h, unsigned lane, uint64_t inv, uint64_t res, int64_t page,
                        int pages, const int *ids)
{
    struct op *o = row(h, lane, inv, res, EFFECT_READ, page * PAGE, pages * PAGE);

    o->run = h->runs;
    for (int i = 0; i < pages; i++) {
        if (ids[i] < 0) {
            o->eof = true;
            break;
        }
        h->run[h->runs++] = (struct run){(page + i) * PAGE, (uint32_t)PAGE, (uint16_t)ids[i]};
        o->runs++;
    }
    return o;
}

static void sees(struct tale *h, unsigned lane, uint64_t inv, uint64_t res, int64_t page, int id)
{
    reads(h, lane, inv, res, page, 1, &id);
}

static enum check bytes_of(struct tale *h)
{
    struct finding f;

    return check_bytes(&h->t, &f);
}

static enum check whole_of(struct tale *h)
{
    struct finding f;

    return check_whole_reads(&h->t, &f);
}

static void a_read_after_a_write_sees_it(void **s)
{
    struct tale h = {0};

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 4);
    sees(&h, 1, 3, 4, 2, 1);
    assert_int_equal(bytes_of(&h), CHECK_OK);
}

static void a_stale_read_after_a_punch_returned_is_caught(void **s)
{
    struct tale h = {0};
    struct finding f;

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 4);
    punches(&h, 0, 3, 4, 1, 2);
    sees(&h, 1, 5, 6, 2, 1);
    assert_int_equal(check_bytes(&h.t, &f), CHECK_BAD);
    assert_ptr_equal(f.culprit, &h.op[2]);
    assert_int_equal(f.off, 2 * PAGE);
}

static void a_read_beside_a_punch_may_see_old_or_zero(void **s)
{
    (void)s;
    for (int id = 0; id <= 1; id++) {
        struct tale h = {0};

        writes(&h, 0, 1, 2, 1, 0, 4);
        punches(&h, 0, 3, 6, 1, 2);
        sees(&h, 1, 4, 5, 2, id);
        assert_int_equal(bytes_of(&h), CHECK_OK);
    }
}

static void time_does_not_turn_back_beside_a_punch(void **s)
{
    struct tale h = {0};

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 4);
    punches(&h, 0, 3, 10, 1, 2);
    sees(&h, 1, 4, 5, 2, 0);
    sees(&h, 1, 6, 7, 2, 1);
    assert_int_equal(bytes_of(&h), CHECK_BAD);
}

static void a_write_zeroed_by_a_late_punch_is_caught(void **s)
{
    struct tale h = {0};

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 4);
    punches(&h, 0, 3, 4, 1, 2);
    writes(&h, 1, 5, 6, 2, 1, 1);
    sees(&h, 2, 7, 8, 1, 0);
    assert_int_equal(bytes_of(&h), CHECK_BAD);
}

static void a_write_beside_a_punch_may_lose_to_it(void **s)
{
    struct tale h = {0};

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 4);
    punches(&h, 0, 3, 6, 1, 2);
    writes(&h, 1, 4, 5, 2, 1, 1);
    sees(&h, 2, 7, 8, 1, 0);
    assert_int_equal(bytes_of(&h), CHECK_OK);
}

static void a_write_seen_and_then_lost_to_an_older_punch_is_caught(void **s)
{
    struct tale h = {0};

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 4);
    punches(&h, 0, 3, 4, 1, 1);
    writes(&h, 1, 5, 6, 2, 1, 1);
    sees(&h, 2, 7, 8, 1, 2);
    sees(&h, 2, 9, 10, 1, 0);
    assert_int_equal(bytes_of(&h), CHECK_BAD);
}

static void a_lost_write_is_caught(void **s)
{
    struct tale h = {0};

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 4);
    writes(&h, 1, 3, 4, 2, 1, 1);
    sees(&h, 2, 5, 6, 1, 1);
    assert_int_equal(bytes_of(&h), CHECK_BAD);
}

static void a_value_nobody_wrote_there_is_caught(void **s)
{
    struct tale h = {0};

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 4);
    writes(&h, 1, 3, 4, 2, 1, 1);
    sees(&h, 2, 5, 6, 2, 2);
    assert_int_equal(bytes_of(&h), CHECK_BAD);
}

static void a_value_from_the_future_is_caught(void **s)
{
    struct tale h = {0};

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 4);
    sees(&h, 1, 3, 4, 1, 2);
    writes(&h, 2, 5, 6, 2, 1, 1);
    assert_int_equal(bytes_of(&h), CHECK_BAD);
}

/* Two readers, two concurrent writers: each reader alone is fine, their orders contradict. */
static void readers_that_disagree_on_the_order_of_writes_are_caught(void **s)
{
    struct tale h = {0};

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 1);
    writes(&h, 1, 3, 20, 2, 0, 1);
    writes(&h, 2, 4, 21, 3, 0, 1);
    sees(&h, 3, 5, 6, 0, 2);
    sees(&h, 3, 7, 8, 0, 3);
    sees(&h, 4, 9, 10, 0, 2);
    assert_int_equal(bytes_of(&h), CHECK_BAD);
    h.run[h.runs - 1].id = 3;
    assert_int_equal(bytes_of(&h), CHECK_OK);
}

static void a_torn_byte_range_is_judged_byte_by_byte(void **s)
{
    struct tale h = {0};
    struct op *o;

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 1);
    writes(&h, 1, 3, 6, 2, 0, 1);
    o = row(&h, 2, 4, 5, EFFECT_READ, 0, PAGE);
    h.run[0] = (struct run){0, 100, 2};
    h.run[1] = (struct run){100, (uint32_t)PAGE - 100, 1};
    o->runs = 2;
    assert_int_equal(bytes_of(&h), CHECK_OK);
    o->inv = 7;
    o->res = 8;
    assert_int_equal(bytes_of(&h), CHECK_BAD);
}

static void an_unaligned_punch_may_not_take_one_byte_more(void **s)
{
    struct tale h = {0};
    struct op *o;

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 1);
    row(&h, 1, 3, 4, EFFECT_ZERO, 10, 20);
    o = row(&h, 2, 5, 6, EFFECT_READ, 0, PAGE);
    h.run[0] = (struct run){0, 10, 1};
    h.run[1] = (struct run){10, 20, 0};
    h.run[2] = (struct run){30, (uint32_t)PAGE - 30, 1};
    o->runs = 3;
    assert_int_equal(bytes_of(&h), CHECK_OK);
    h.run[1].len++;
    h.run[2].off++;
    h.run[2].len--;
    assert_int_equal(bytes_of(&h), CHECK_BAD);
}

static void a_truncation_ends_the_file(void **s)
{
    struct tale h = {0};

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 4);
    row(&h, 1, 3, 4, EFFECT_TRUNCATE, 2 * PAGE, 0);
    reads(&h, 2, 5, 6, 1, 2, (int[]){1, -1});
    assert_int_equal(bytes_of(&h), CHECK_OK);
    sees(&h, 2, 7, 8, 3, 1);
    assert_int_equal(bytes_of(&h), CHECK_BAD);
}

static void growing_again_brings_zeros_not_old_bytes(void **s)
{
    struct tale h = {0};

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 4);
    row(&h, 1, 3, 4, EFFECT_TRUNCATE, 2 * PAGE, 0);
    row(&h, 1, 5, 6, EFFECT_TRUNCATE, 4 * PAGE, 0);
    sees(&h, 2, 7, 8, 3, 0);
    assert_int_equal(bytes_of(&h), CHECK_OK);
    sees(&h, 2, 9, 10, 3, 1);
    assert_int_equal(bytes_of(&h), CHECK_BAD);
}

static void a_punch_does_not_lengthen_the_file(void **s)
{
    struct tale h = {0};

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 2);
    punches(&h, 1, 3, 4, 1, 8);
    row(&h, 2, 5, 6, EFFECT_SIZE, 2 * PAGE, 0);
    assert_int_equal(bytes_of(&h), CHECK_OK);
    row(&h, 2, 7, 8, EFFECT_SIZE, 9 * PAGE, 0);
    assert_int_equal(bytes_of(&h), CHECK_BAD);
}

static void two_appends_to_one_place_are_caught(void **s)
{
    (void)s;
    for (int overlap = 0; overlap <= 1; overlap++) {
        struct tale h = {0};

        writes(&h, 0, 1, 2, 1, 0, 1);
        row(&h, 1, 3, 6, EFFECT_APPEND, PAGE, PAGE)->id = 2;
        row(&h, 2, 4, 5, EFFECT_APPEND, overlap ? PAGE : 2 * PAGE, PAGE)->id = 3;
        assert_int_equal(bytes_of(&h), overlap ? CHECK_BAD : CHECK_OK);
    }
}

static void a_lane_without_calls_on_a_byte_does_not_disturb(void **s)
{
    struct tale h = {0};

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 8);
    row(&h, 1, 3, 4, EFFECT_NONE, 0, 0);
    sees(&h, 2, 5, 6, 7, 1);
    punches(&h, 3, 7, 8, 0, 1);
    sees(&h, 4, 9, 10, 0, 0);
    sees(&h, 5, 11, 12, 7, 1);
    assert_int_equal(bytes_of(&h), CHECK_OK);
    sees(&h, 5, 13, 14, 7, 0);
    assert_int_equal(bytes_of(&h), CHECK_BAD);
}

/* Wide concurrency without a contradiction must be decided, and quickly. */
static void many_concurrent_writers_are_decided(void **s)
{
    struct tale h = {0};

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 1);
    for (unsigned lane = 1; lane <= 6; lane++)
        for (unsigned k = 0; k < 6; k++)
            writes(&h, lane, 10 + lane + 100 * k, 90 + lane + 100 * k, 10 * lane + k, 0, 1);
    sees(&h, 7, 1000, 1001, 0, 35);
    assert_int_equal(bytes_of(&h), CHECK_OK);
    h.run[h.runs - 1].id = 34;
    assert_int_equal(bytes_of(&h), CHECK_BAD);
}

/* A (page 0) and B (page 1): B is punched, then A written; new A beside old B never was. */
static void new_a_beside_old_b_in_one_whole_read_is_caught(void **s)
{
    struct tale h = {0};
    struct op *o;

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 2);
    punches(&h, 1, 5, 6, 1, 1);
    writes(&h, 1, 7, 8, 2, 0, 1);
    o = reads(&h, 2, 3, 10, 0, 2, (int[]){2, 1});
    assert_int_equal(bytes_of(&h), CHECK_OK); /* each byte alone can be explained */
    assert_int_equal(whole_of(&h), CHECK_OK); /* and nothing promised a whole read */
    o->whole = true;
    assert_int_equal(whole_of(&h), CHECK_BAD);
}

/* The other way round: zero from a punch, though B was rewritten before A. */
static void new_a_beside_zero_b_in_one_whole_read_is_caught(void **s)
{
    struct tale h = {0};

    (void)s;
    writes(&h, 0, 1, 2, 1, 0, 2);
    punches(&h, 1, 3, 4, 1, 1);
    writes(&h, 1, 6, 7, 2, 1, 1);
    writes(&h, 1, 8, 9, 3, 0, 1);
    reads(&h, 2, 5, 10, 0, 2, (int[]){3, 0})->whole = true;
    assert_int_equal(bytes_of(&h), CHECK_OK);
    assert_int_equal(whole_of(&h), CHECK_BAD);
}

static void a_whole_read_of_one_moment_is_accepted(void **s)
{
    static const int seen[][2] = {{1, 1}, {1, 0}, {2, 0}};

    (void)s;
    for (unsigned i = 0; i < 3; i++) {
        struct tale h = {0};

        writes(&h, 0, 1, 2, 1, 0, 2);
        punches(&h, 1, 5, 6, 1, 1);
        writes(&h, 1, 7, 8, 2, 0, 1);
        reads(&h, 2, 3, 10, 0, 2, seen[i])->whole = true;
        assert_int_equal(whole_of(&h), CHECK_OK);
    }
}

static struct op *stats(struct tale *h, uint64_t inv, int64_t mtime, int64_t ctime)
{
    struct op *o = row(h, 2, inv, inv + 1, EFFECT_SIZE, PAGE, 0);

    o->mtime_ns = mtime;
    o->ctime_ns = ctime;
    o->wall_inv_ns = o->wall_res_ns = 5000;
    return o;
}

static void times_that_run_backwards_are_caught(void **s)
{
    struct tale h = {0};
    struct finding f;

    (void)s;
    stats(&h, 1, 100, 100);
    stats(&h, 3, 100, 101);
    assert_int_equal(check_times(&h.t, true, &f), CHECK_OK);
    stats(&h, 5, 99, 101);
    assert_int_equal(check_times(&h.t, true, &f), CHECK_BAD);
    h.op[2].mtime_ns = 100;
    h.op[2].ctime_ns = 100;
    assert_int_equal(check_times(&h.t, true, &f), CHECK_BAD);
}

static void a_stat_that_does_not_show_a_punch_is_caught(void **s)
{
    struct tale h = {0};
    struct finding f;

    (void)s;
    punches(&h, 1, 1, 2, 0, 1);
    h.op[0].wall_inv_ns = 1000;
    stats(&h, 3, 1000, 1000);
    assert_int_equal(check_times(&h.t, true, &f), CHECK_OK);
    h.op[1].mtime_ns = 999;
    assert_int_equal(check_times(&h.t, true, &f), CHECK_BAD);
    assert_int_equal(check_times(&h.t, false, &f), CHECK_OK);
}

static void every_byte_names_its_write(void **s)
{
    static unsigned char buf[1000];
    struct run run[8];

    (void)s;
    for (uint64_t nonce = 0; nonce < 3; nonce++) {
        for (unsigned id = 1; id <= 255; id++) {
            pattern_fill(buf, 12345, sizeof(buf), id, nonce);
            assert_null(memchr(buf, 0, sizeof(buf)));
            assert_int_equal(pattern_runs(buf, 12345, sizeof(buf), nonce, run, 8), 1);
            assert_int_equal(run[0].id, id);
            assert_int_equal(run[0].len, sizeof(buf));
        }
    }
    memset(buf + 100, 0, 7);
    assert_int_equal(pattern_runs(buf, 12345, sizeof(buf), 2, run, 8), 3);
    assert_int_equal(run[1].off, 12445);
    assert_int_equal(run[1].len, 7);
    assert_int_equal(run[1].id, 0);
}

static void bytes_in_a_wrong_place_name_other_writes(void **s)
{
    static unsigned char buf[4096];
    static struct run run[4096];

    (void)s;
    pattern_fill(buf, 0, sizeof(buf), 9, 42);
    unsigned n = pattern_runs(buf, 4096, sizeof(buf), 42, run, 4096), same = 0;

    for (unsigned i = 0; i < n; i++)
        same += run[i].id == 9;
    assert_true(same < 4);
    assert_int_equal(pattern_runs(buf, 4096, sizeof(buf), 42, run, 2), 3); /* does not fit */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_after_a_write_sees_it),
        cmocka_unit_test(a_stale_read_after_a_punch_returned_is_caught),
        cmocka_unit_test(a_read_beside_a_punch_may_see_old_or_zero),
        cmocka_unit_test(time_does_not_turn_back_beside_a_punch),
        cmocka_unit_test(a_write_zeroed_by_a_late_punch_is_caught),
        cmocka_unit_test(a_write_beside_a_punch_may_lose_to_it),
        cmocka_unit_test(a_write_seen_and_then_lost_to_an_older_punch_is_caught),
        cmocka_unit_test(a_lost_write_is_caught),
        cmocka_unit_test(a_value_nobody_wrote_there_is_caught),
        cmocka_unit_test(a_value_from_the_future_is_caught),
        cmocka_unit_test(readers_that_disagree_on_the_order_of_writes_are_caught),
        cmocka_unit_test(a_torn_byte_range_is_judged_byte_by_byte),
        cmocka_unit_test(an_unaligned_punch_may_not_take_one_byte_more),
        cmocka_unit_test(a_truncation_ends_the_file),
        cmocka_unit_test(growing_again_brings_zeros_not_old_bytes),
        cmocka_unit_test(a_punch_does_not_lengthen_the_file),
        cmocka_unit_test(two_appends_to_one_place_are_caught),
        cmocka_unit_test(a_lane_without_calls_on_a_byte_does_not_disturb),
        cmocka_unit_test(many_concurrent_writers_are_decided),
        cmocka_unit_test(new_a_beside_old_b_in_one_whole_read_is_caught),
        cmocka_unit_test(new_a_beside_zero_b_in_one_whole_read_is_caught),
        cmocka_unit_test(a_whole_read_of_one_moment_is_accepted),
        cmocka_unit_test(times_that_run_backwards_are_caught),
        cmocka_unit_test(a_stat_that_does_not_show_a_punch_is_caught),
        cmocka_unit_test(every_byte_names_its_write),
        cmocka_unit_test(bytes_in_a_wrong_place_name_other_writes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
