/* SPDX-License-Identifier: MIT */
/* Latency histograms, and which mitigation a slow call is counted to, as tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Rows say what differs from the usual. */
#pragma GCC diagnostic ignored "-Woverride-init"

#include "../../shim/policy_remedy.h"

#define MIB (UINT64_C(1) << 20)
#define US  UINT64_C(1000)
#define MS  UINT64_C(1000000)

static void every_duration_lies_in_its_bucket(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 64; bits++)
        for (int64_t off = -2; off <= 2; off++)
            for (uint64_t part = 4; part < 8; part++) {
                uint64_t ns = ((UINT64_C(1) << bits) / 4 * part) + (uint64_t)off;
                unsigned at = hist_bucket(ns);

                assert_in_range(at, 0, HIST_BUCKETS - 1);
                assert_true(hist_low(at) <= ns);
                if (at < HIST_BUCKETS - 1)
                    assert_true(ns < hist_low(at + 1));
            }
}

static void buckets_follow_each_other_and_are_an_eighth_off_at_most(void **state)
{
    (void)state;
    assert_int_equal(hist_low(0), 0);
    assert_int_equal(hist_low(1), HIST_FIRST_NS);
    for (unsigned i = 1; i < HIST_BUCKETS; i++) {
        uint64_t low = hist_low(i), high = hist_low(i + 1), middle = hist_middle(i);

        assert_true(low < high);
        assert_int_equal(hist_bucket(low), i);
        assert_true(middle - low <= low / 8);
        if (i < HIST_BUCKETS - 1)
            assert_int_equal(hist_bucket(high - 1), i);
    }
}

static void percentiles_count_from_the_shortest(void **state)
{
    uint64_t hist[HIST_BUCKETS] = {0};

    (void)state;
    assert_int_equal(hist_at(hist, 1, 2), 0);
    hist[hist_bucket(10 * US)] = 98;
    hist[hist_bucket(5 * MS)] = 1;
    hist[hist_bucket(900 * MS)] = 1;
    assert_int_equal(hist_count(hist), 100);
    assert_int_equal(hist_at(hist, 1, 2), hist_middle(hist_bucket(10 * US)));
    assert_int_equal(hist_at(hist, 98, 100), hist_middle(hist_bucket(10 * US)));
    assert_int_equal(hist_at(hist, 99, 100), hist_middle(hist_bucket(5 * MS)));
    assert_int_equal(hist_at(hist, 1, 1), hist_middle(hist_bucket(900 * MS)));
    assert_int_equal(hist_at(hist, 0, 100), hist_middle(hist_bucket(10 * US)));
    hist[HIST_BUCKETS - 1] = UINT64_MAX / 200;
    assert_int_equal(hist_at(hist, 999, 1000), hist_middle(HIST_BUCKETS - 1)); /* no overflow */
}

#define USUAL .took_ns = 100 * MS, .hold_ns = 2 * MS, .evict_min_bytes = MIB, .known_fs = true

static void slow_calls_are_counted_to_what_would_have_helped(void **state)
{
    const struct {
        const char *what;
        struct remedy_facts f;
        enum remedy remedy;
        uint64_t would_ns;
    } rows[] = {
        {"a read for itself", {USUAL, .act = ACT_read}, REMEDY_NONE, 100 * MS},
        {"a read beside a big write",
         {USUAL, .act = ACT_read, .beside_big = true},
         REMEDY_gate,
         2 * MS},
        {"a read beside both",
         {USUAL, .act = ACT_read, .beside_big = true, .beside_drain = true},
         REMEDY_gate,
         2 * MS},
        {"a read beside punches",
         {USUAL, .act = ACT_read, .beside_drain = true},
         REMEDY_punch,
         2 * MS},
        {"a quick read beside a big write",
         {USUAL, .act = ACT_read, .beside_big = true, .took_ns = MS},
         REMEDY_NONE,
         MS},
        {"the big write itself",
         {USUAL, .act = ACT_write_big, .beside_drain = true},
         REMEDY_NONE,
         100 * MS},
        {"a punch beside a big write",
         {USUAL, .act = ACT_punch, .beside_big = true},
         REMEDY_gate,
         2 * MS},
        {"a punch", {USUAL, .act = ACT_punch, .beside_drain = true}, REMEDY_punch, US},
        {"an allocation",
         {USUAL, .act = ACT_fallocate, .beside_drain = true},
         REMEDY_NONE,
         100 * MS},
        {"unlink of a big file",
         {USUAL, .act = ACT_unlink, .frees_bytes = MIB},
         REMEDY_evict,
         100 * US},
        {"of one below evict_min",
         {USUAL, .act = ACT_unlink, .frees_bytes = MIB - 1},
         REMEDY_NONE,
         100 * MS},
        {"of nothing, with evict_min = 0",
         {USUAL, .act = ACT_unlink, .evict_min_bytes = 0},
         REMEDY_NONE,
         100 * MS},
        {"of a big one elsewhere",
         {USUAL, .act = ACT_unlink, .frees_bytes = MIB, .known_fs = false},
         REMEDY_NONE,
         100 * MS},
        {"of one cut before for nothing",
         {USUAL, .act = ACT_unlink, .frees_bytes = MIB, .cut_before = true},
         REMEDY_elide,
         100 * US},
        {"its close", {USUAL, .act = ACT_close, .cut_before = true}, REMEDY_elide, 100 * US},
        {"rename over a big file",
         {USUAL, .act = ACT_rename, .frees_bytes = MIB},
         REMEDY_evict,
         100 * US},
        {"the last close of a deleted file",
         {USUAL, .act = ACT_close, .frees_bytes = MIB},
         REMEDY_evict,
         100 * US},
        {"a truncation that changes nothing",
         {USUAL, .act = ACT_truncate, .cut_nothing = true, .known_fs = false},
         REMEDY_elide,
         20 * US},
        {"an open that does",
         {USUAL, .act = ACT_open_cut, .cut_nothing = true},
         REMEDY_elide,
         20 * US},
        {"one of a big file",
         {USUAL, .act = ACT_open_cut, .frees_bytes = MIB},
         REMEDY_truncate,
         100 * US},
        {"the same beside a big write",
         {USUAL, .act = ACT_truncate, .frees_bytes = MIB, .beside_big = true},
         REMEDY_gate,
         2 * MS},
        {"two syncs of a file", {USUAL, .act = ACT_fdatasync, .syncs = 2}, REMEDY_NONE, 100 * MS},
        {"three", {USUAL, .act = ACT_fdatasync, .syncs = 3}, REMEDY_fsync, 50 * MS},
        {"three, and much that is dirty",
         {USUAL, .act = ACT_fsync, .syncs = 3, .dirty_bytes = 512 * MIB},
         REMEDY_fsync,
         50 * MS},
        {"a sync of much",
         {USUAL, .act = ACT_fsync, .syncs = 1, .dirty_bytes = 80 * MIB},
         REMEDY_writeback,
         10 * MS},
        {"a sync of little beside much",
         {USUAL, .act = ACT_fdatasync, .syncs = 1, .dirty_all_bytes = 512 * MIB},
         REMEDY_writeback,
         100 * MS / 3},
        {"a sync of little",
         {USUAL, .act = ACT_fdatasync, .syncs = 1, .dirty_all_bytes = MIB},
         REMEDY_NONE,
         100 * MS},
        {"opens of one name by many",
         {USUAL, .act = ACT_open_create, .creates = 16, .existed = true, .lookup_pays = true},
         REMEDY_create,
         100 * MS / 3},
        {"by one",
         {USUAL, .act = ACT_open_create, .creates = 1, .existed = true, .lookup_pays = true},
         REMEDY_NONE,
         100 * MS},
        {"of a new name",
         {USUAL, .act = ACT_open_create, .creates = 16, .lookup_pays = true},
         REMEDY_NONE,
         100 * MS},
        {"where O_CREAT costs nothing",
         {USUAL, .act = ACT_open_create, .creates = 16, .existed = true},
         REMEDY_NONE,
         100 * MS},
        {"stat",
         {USUAL, .act = ACT_stat, .beside_big = true, .beside_drain = true},
         REMEDY_NONE,
         100 * MS},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct remedy_guess g = policy_remedy(&rows[i].f);

        if (g.remedy != rows[i].remedy || g.would_ns != rows[i].would_ns)
            fail_msg("%s: remedy %d, %llu ns", rows[i].what, (int)g.remedy,
                     (unsigned long long)g.would_ns);
    }
}

static void no_guess_is_longer_than_the_call_was(void **state)
{
    struct remedy_facts f = {.hold_ns = 2 * MS,
                             .beside_big = true,
                             .beside_drain = true,
                             .known_fs = true,
                             .syncs = 9,
                             .creates = 9,
                             .existed = true,
                             .lookup_pays = true,
                             .frees_bytes = 512 * MIB};

    (void)state;
    for (int act = 0; act < ACT_COUNT; act++)
        for (uint64_t took = 0; took < 10 * MS; took = took * 2 + 1) {
            struct remedy_guess g;

            f.act = (enum act)act;
            f.took_ns = took;
            g = policy_remedy(&f);
            assert_true(g.would_ns <= took);
            assert_true(g.remedy == REMEDY_NONE || g.would_ns < took);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_duration_lies_in_its_bucket),
        cmocka_unit_test(buckets_follow_each_other_and_are_an_eighth_off_at_most),
        cmocka_unit_test(percentiles_count_from_the_shortest),
        cmocka_unit_test(slow_calls_are_counted_to_what_would_have_helped),
        cmocka_unit_test(no_guess_is_longer_than_the_call_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
