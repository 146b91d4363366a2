/* SPDX-License-Identifier: MIT */
/* Reports read back: what was written comes back, and no damaged file is taken for a report. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../shim/cmd/report_read.h"
/* The command's sources are in no library. */
#include "../../shim/cmd/observed.c"
#include "../../shim/cmd/report_read.c"

static struct report written, back;
static char text[REPORT_JSON_BYTES];
static size_t length;

static int write_one(void **state)
{
    static const char command[] = "app\0\0with \\ and \n\xc3\xa4";

    (void)state;
    memset(&written, 0, sizeof written);
    written.rank = 3;
    written.pid = 4711;
    written.processes = 1;
    written.started_ns = UINT64_C(1790000000123456789);
    written.ended_ns = UINT64_C(1790000001123456789);
    strcpy(written.host, "node-1");
    strcpy(written.kernel, "6.18.0");
    strcpy(written.program, "a \"program\"");
    memcpy(written.command, command, sizeof command);
    written.command_len = sizeof command;
    for (int i = 0; i < STAT_COUNT; i++)
        written.value[i] = INT64_MAX - (uint64_t)i;
    for (int i = 0; i < WHY_COUNT; i++)
        written.settled[i] = (uint64_t)i * 3;
    for (int i = 0; i < CFG_ROWS; i++)
        strcpy(written.setting[i], cfg_rows[i].builtin);
    length = report_json(&written, text, sizeof text);
    return length == 0;
}

static void a_report_comes_back_as_it_was_written(void **state)
{
    (void)state;
    assert_null(report_read(text, length, &back));
    assert_memory_equal(&back, &written, sizeof back);
}

static void a_report_cut_anywhere_is_refused(void **state)
{
    (void)state;
    size_t whole = length - 1; /* the last byte is a newline */

    for (size_t n = 0; n < whole; n++) {
        char *copy = malloc(n != 0 ? n : 1); /* exact, so that sanitizers see a read past it */
        const char *bad;

        memcpy(copy, text, n);
        bad = report_read(copy, n, &back);
        free(copy);
        if (bad == NULL)
            fail_msg("cut to %zu bytes it was accepted", n);
    }
}

static void no_changed_byte_is_a_crash(void **state)
{
    (void)state;
    static const char with[] = {0, '"', '{', '}', '[', ',', '\\', '9', 'u', (char)0xff};

    for (size_t i = 0; i < length; i++)
        for (size_t k = 0; k < sizeof with; k += 1 + i % 3) {
            char was = text[i];

            text[i] = with[k];
            report_read(text, length, &back);
            assert_true(back.command_len <= sizeof back.command);
            text[i] = was;
        }
}

static const char *reason_for(const char *s)
{
    const char *bad = report_read(s, strlen(s), &back);

    assert_non_null(bad);
    return bad;
}

static void what_is_no_report_is_told_apart(void **state)
{
    (void)state;
    static char deep[5000];

    assert_non_null(strstr(reason_for(""), "empty"));
    assert_non_null(strstr(reason_for("rlshim report: x"), ".json"));
    assert_non_null(strstr(reason_for("{}"), "not a report"));
    assert_non_null(
        strstr(reason_for("{\"schema\": \"rlshim-report\", \"version\": 99}"), "another version"));
    assert_non_null(
        strstr(reason_for("{\"schema\": \"rlshim-report\", \"version\": 1} x"), "follows its end"));
    assert_non_null(
        strstr(reason_for("{\"counters\": {\"punch_calls\": 18446744073709551616}}"), "too large"));
    assert_non_null(strstr(reason_for("{\"schema\": \"rlshim-report\", \"version\": 1, "
                                      "\"counters\": {\"punch_calls\": -1}}"),
                           "member"));
    assert_non_null(strstr(reason_for("{\"schema\": \"rlshim-report\", \"version\": 1, "
                                      "\"observed\": {\"bucket_bits\": [6, 2]}}"),
                           "observed"));
    strcpy(deep, "{\"x\": ");
    memset(deep + 6, '[', sizeof deep - 7);
    assert_non_null(strstr(reason_for(deep), "nested"));
}

static void members_of_later_releases_are_passed_over(void **state)
{
    (void)state;
    static const char later[] =
        "{\"new\": [1, -2.5e3, {\"a\": null}, true], \"schema\": \"rlshim-report\", \"version\": 1,"
        "\"counters\": {\"unheard_of\": 1, \"punch_calls\": 2}, \"rank\": null,"
        "\"settings\": {\"unheard_of\": \"x\"}, \"command\": []}";

    assert_null(report_read(later, strlen(later), &back));
    assert_int_equal(back.value[STAT_punch_calls], 2);
    assert_int_equal(back.rank, -1);
}

static void counts_add_up_and_peaks_stay_the_largest(void **state)
{
    (void)state;
    static struct report a, b;

    assert_null(report_read(text, length, &a));
    b = a;
    strcpy(b.host, "node-2");
    strcpy(b.setting[0], "other");
    a.value[STAT_punch_calls] = 5;
    b.value[STAT_punch_calls] = 6;
    a.value[STAT_punch_delay_max_ns] = 7;
    b.value[STAT_punch_delay_max_ns] = 3;
    b.started_ns -= 10;
    b.ended_ns += 10;
    report_add(&a, &b);
    assert_int_equal(a.processes, 2);
    assert_int_equal(a.value[STAT_punch_calls], 11);
    assert_int_equal(a.value[STAT_punch_delay_max_ns], 7);
    assert_int_equal(a.ended_ns - a.started_ns, 1000000020);
    assert_int_equal(a.settled[2], 12);
    assert_true(a.mixed_hosts);
    assert_false(a.mixed_programs);
    assert_string_equal(a.setting[0], "(several)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_report_comes_back_as_it_was_written, write_one),
        cmocka_unit_test_setup(a_report_cut_anywhere_is_refused, write_one),
        cmocka_unit_test_setup(no_changed_byte_is_a_crash, write_one),
        cmocka_unit_test_setup(what_is_no_report_is_told_apart, write_one),
        cmocka_unit_test_setup(members_of_later_releases_are_passed_over, write_one),
        cmocka_unit_test_setup(counts_add_up_and_peaks_stay_the_largest, write_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
