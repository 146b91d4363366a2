/* SPDX-License-Identifier: MIT */
/* policy_window: how big a window is, when it is full and where it lies, as tables. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Rows say what differs from the usual. */
#pragma GCC diagnostic ignored "-Woverride-init"

#include "../../shim/policy_window.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define NO  WINDOW_NOWHERE

static void a_file_gets_its_window_or_what_the_budget_leaves(void **state)
{
    const struct {
        const char *what;
        struct window_facts f;
        uint64_t bytes;
    } rows[] = {
        {"off", {0, 64 * MIB, 1, 0}, 0},
        {"off, whatever the budget", {0, MIB, 9, 64 * MIB}, 0},
        {"alone", {8 * MIB, 64 * MIB, 1, 0}, 8 * MIB},
        {"nobody counted yet", {8 * MIB, 64 * MIB, 0, 0}, 8 * MIB},
        {"four of them fit", {8 * MIB, 64 * MIB, 4, 48 * MIB}, 8 * MIB},
        {"eight do not", {8 * MIB, 64 * MIB, 8, 0}, 4 * MIB},
        {"the budget is less than one window", {8 * MIB, MIB, 1, 0}, 512 * KIB},
        {"others came before with more than their share",
         {8 * MIB, 16 * MIB, 2, 15 * MIB},
         512 * KIB},
        {"others have all of it", {8 * MIB, 16 * MIB, 2, 16 * MIB}, 64 * KIB},
        {"others have more than that", {8 * MIB, 16 * MIB, 2, 99 * MIB}, 64 * KIB},
        {"very many", {8 * MIB, 16 * MIB, 500, 0}, 64 * KIB},
        {"the least setting", {64 * KIB, 64 * MIB, 1, 0}, 64 * KIB},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (policy_window_bytes(&rows[i].f) != rows[i].bytes)
            fail_msg("%s: %llu", rows[i].what, (unsigned long long)policy_window_bytes(&rows[i].f));
}

static void what_bypasses_the_cache_or_goes_away_is_left_alone(void **state)
{
    const struct {
        const char *what;
        struct window_file f;
        bool takes;
    } rows[] = {
        {"ext4", {FILE_KIND_EXT4, O_RDWR, 1}, true},
        {"XFS", {FILE_KIND_XFS, O_WRONLY | O_APPEND, 1}, true},
        {"btrfs, two names", {FILE_KIND_BTRFS, O_RDWR, 2}, true},
        {"memory", {FILE_KIND_TMPFS, O_RDWR, 1}, false},
        {"another file system", {FILE_KIND_NONE, O_RDWR, 1}, false},
        {"deleted", {FILE_KIND_EXT4, O_RDWR, 0}, false},
        {"O_TMPFILE", {FILE_KIND_EXT4, O_RDWR | O_TMPFILE, 1}, false},
        {"direct", {FILE_KIND_EXT4, O_RDWR | O_DIRECT, 1}, false},
        {"O_SYNC", {FILE_KIND_EXT4, O_RDWR | O_SYNC, 1}, false},
        {"O_DSYNC", {FILE_KIND_EXT4, O_RDWR | O_DSYNC, 1}, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (policy_window_takes(&rows[i].f) != rows[i].takes)
            fail_msg("%s", rows[i].what);
}

static void a_window_is_full_before_the_next_write_would_overflow_it(void **state)
{
    (void)state;
    assert_false(policy_window_full(7 * MIB, MIB, 8 * MIB));
    assert_true(policy_window_full(8 * MIB, MIB, 8 * MIB));
    assert_false(policy_window_full(MIB, 7 * MIB, 8 * MIB));
    assert_true(policy_window_full(64 * MIB, 64 * MIB, 8 * MIB));
    assert_true(policy_window_full(8 * MIB, 1, 8 * MIB));
}

static void what_is_started_lies_behind_the_tail_in_whole_pages(void **state)
{
    const struct {
        const char *what;
        struct window_place p;
        struct window_range r;
    } rows[] = {
        {"write() from the start",
         {8 * MIB, 8 * MIB, NO, 0, 0, 8 * MIB, 8 * MIB},
         {0, 8 * MIB, true}},
        {"the tail's own page is left for the next write",
         {8 * MIB, 8 * MIB, NO, 0, 0, 8 * MIB + 100, 8 * MIB + 100},
         {0, 8 * MIB, true}},
        {"and taken along then",
         {8 * MIB, 8 * MIB, NO, 0, 8 * MIB, 16 * MIB + 200, 16 * MIB + 200},
         {8 * MIB, 16 * MIB, true}},
        {"pwrite() one after the other",
         {8 * MIB, 0, 8 * MIB + 100, 16 * MIB + 50, 8 * MIB, NO, 16 * MIB + 50},
         {8 * MIB, 16 * MIB, true}},
        {"pwrite() one after the other, elsewhere",
         {8 * MIB, 0, 100 * MIB, 108 * MIB, 8 * MIB, NO, 200 * MIB},
         {100 * MIB, 108 * MIB, true}},
        {"pwrite() here and there",
         {8 * MIB, 0, 5 * MIB + 1, 900 * MIB + 5, 3 * MIB, NO, 1000 * MIB},
         {5 * MIB, 900 * MIB, false}},
        {"the first append to a file that was there: all that is dirty of it",
         {8 * MIB, 8 * MIB, NO, 0, 0, 508 * MIB + 7, 508 * MIB + 7},
         {0, 508 * MIB, false}},
        {"lseek() and write()",
         {8 * MIB, 8 * MIB, NO, 0, 900 * MIB, 3 * MIB, 1000 * MIB + 1},
         {0, 1000 * MIB, false}},
        {"position not known",
         {8 * MIB, MIB, 3 * MIB, 9 * MIB, 0, NO, 50 * MIB},
         {0, 50 * MIB, false}},
        {"both kinds, one tail",
         {8 * MIB, 4 * MIB, 4 * MIB, 8 * MIB, 0, 8 * MIB, 8 * MIB},
         {0, 8 * MIB, true}},
        {"a file cut short meanwhile",
         {8 * MIB, 0, 8 * MIB, 16 * MIB, 8 * MIB, NO, 9 * MIB + 5},
         {8 * MIB, 9 * MIB, true}},
        {"cut to nothing", {8 * MIB, 0, 8 * MIB, 16 * MIB, 8 * MIB, NO, 0}, {0, 0, false}},
        {"nothing known at all", {8 * MIB, 0, NO, 0, 8 * MIB, NO, 9 * MIB}, {0, 0, false}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct window_range r = policy_window_range(&rows[i].p);

        if (r.start != rows[i].r.start || r.end != rows[i].r.end ||
            (r.start < r.end && r.tail != rows[i].r.tail))
            fail_msg("%s: [%llu, %llu) %d", rows[i].what, (unsigned long long)r.start,
                     (unsigned long long)r.end, r.tail);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_gets_its_window_or_what_the_budget_leaves),
        cmocka_unit_test(what_bypasses_the_cache_or_goes_away_is_left_alone),
        cmocka_unit_test(a_window_is_full_before_the_next_write_would_overflow_it),
        cmocka_unit_test(what_is_started_lies_behind_the_tail_in_whole_pages),
    };

    return cmocka_run_group_tests_name("policy_window", tests, NULL, NULL);
}
