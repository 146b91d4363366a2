/* SPDX-License-Identifier: MIT */
/* The exit report: names, ranks, escaping, both renderings, and the writing of the files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../shim/log.h"
#include "../../shim/report.h"

static struct report report;
static struct stats_page page;
static struct settings settings;
static struct config config;
static char out[REPORT_JSON_BYTES];
static char dir[150];

static int fresh(void **state)
{
    (void)state;
    memset(&report, 0, sizeof report);
    report.rank = -1;
    report.processes = 1;
    report.pid = 77;
    strcpy(report.host, "node1");
    strcpy(report.program, "app");
    stats_page_init(&page, 77, 1, "app");
    cfg_reset(&config);
    cfg_settings(&config, NULL, NULL, &settings);
    /* The runner takes its TMPDIR away, also after a test that died. */
    snprintf(dir, sizeof dir, "%s/report_test.XXXXXX",
             getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(dir) == NULL;
}

static int remove_files(void **state)
{
    (void)state;
    DIR *d = opendir(dir);
    struct dirent *e;

    while (d != NULL && (e = readdir(d)) != NULL)
        if (e->d_name[0] != '.')
            unlinkat(dirfd(d), e->d_name, 0);
    if (d != NULL)
        closedir(d);
    return rmdir(dir);
}

/* How many entries the directory has, and that none is a left-over. */
static int files(void)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d)) != NULL) {
        if (e->d_name[0] == '.')
            continue;
        assert_null(strstr(e->d_name, ".tmp"));
        n++;
    }
    closedir(d);
    return n;
}

static size_t slurp(const char *path)
{
    FILE *f = fopen(path, "r");
    size_t n;

    if (f == NULL)
        fail_msg("%s: %s", path, strerror(errno));
    n = fread(out, 1, sizeof out - 1, f);
    fclose(f);
    out[n] = '\0';
    return n;
}

static const char *name_of(const char *path, bool directory, const char *ext, unsigned attempt)
{
    static char buf[512];

    assert_true(report_name(buf, sizeof buf, path, directory, &report, ext, attempt));
    return buf;
}

static void reports_in_a_directory_are_named_by_host_pid_and_rank(void **state)
{
    (void)state;
    assert_string_equal(name_of("/d", true, "json", 0), "/d/rlshim-node1-77.json");
    report.rank = 12;
    assert_string_equal(name_of("/d", true, "txt", 0), "/d/rlshim-node1-77-rank12.txt");
    assert_string_equal(name_of("/d", true, "txt", 1), "/d/rlshim-node1-77-rank12-2.txt");
    strcpy(report.host, "../a b");
    report.rank = -1;
    assert_string_equal(name_of("/d", true, "json", 0), "/d/rlshim-.._a_b-77.json");
}

static void later_reports_in_one_file_get_the_pid_before_the_extension(void **state)
{
    (void)state;
    assert_string_equal(name_of("/d/r.json", false, "json", 0), "/d/r.json");
    assert_string_equal(name_of("/d/r.json", false, "json", 1), "/d/r.77.json");
    assert_string_equal(name_of("/d/r.json", false, "json", 2), "/d/r.77-2.json");
    assert_string_equal(name_of("/d.x/r", false, "json", 0), "/d.x/r");
    assert_string_equal(name_of("/d.x/r", false, "json", 1), "/d.x/r.77");
    assert_string_equal(name_of("/d/.r", false, "json", 1), "/d/.r.77");
    assert_string_equal(name_of("r", false, "json", 1), "r.77");
    assert_string_equal(name_of("r.txt", false, "json", 1), "r.77.txt");
}

static void a_name_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    char buf[16];

    assert_false(report_name(buf, sizeof buf, "/d", true, &report, "json", 0));
    assert_true(report_name(buf, sizeof buf, "/d/r.txt", false, &report, "", 0));
}

static void text_is_written_to_txt_files_and_json_to_others(void **state)
{
    (void)state;
    assert_true(report_wants_text("a.txt"));
    assert_true(report_wants_text("a.text"));
    assert_false(report_wants_text("a.json"));
    assert_false(report_wants_text("txt"));
    assert_false(report_wants_text(""));
}

static int64_t rank_in(const char *block, size_t n, size_t part)
{
    struct report_rank r = {.rank = -1};

    for (size_t i = 0; i < n; i += part)
        report_rank_feed(&r, block + i, n - i < part ? n - i : part);
    return r.rank;
}

#define RANK(block, part) rank_in(block, sizeof(block), part)

static void the_rank_comes_from_mpi_before_the_batch_system(void **state)
{
    (void)state;
    for (size_t part = 1; part < 40; part++) {
        assert_int_equal(RANK("A=b\0SLURM_PROCID=3\0OMPI_COMM_WORLD_RANK=12\0PMI_RANK=9", part),
                         12);
        assert_int_equal(RANK("PMIX_RANK=4\0PMI_RANK=5\0SLURM_PROCID=6", part), 5);
        assert_int_equal(RANK("SLURM_PROCID=0", part), 0);
        assert_int_equal(RANK("", part), -1);
        assert_int_equal(RANK("PMI_RANK=\0PMI_RANK=x\0PMI_RANK=1x\0PMI_RANK=-1", part), -1);
        assert_int_equal(RANK("XPMI_RANK=1\0PMI_RANK_=1\0SLURM_PROCID=99999999999", part), -1);
    }
}

static void a_huge_variable_neither_counts_nor_hides_the_next(void **state)
{
    (void)state;
    static char block[10000] = "PMI_RANK=";

    memset(block + 9, '1', 9000);
    strcpy(block + 9010, "PMIX_RANK=8");
    assert_int_equal(rank_in(block, 9010 + 12, 7), 8);
}

static const char *json(const char *s, size_t n, size_t cap)
{
    static char buf[256];
    struct cfg_text t = cfg_text_in(buf, cap);

    text_json(&t, s, n);
    return buf;
}

static void json_strings_are_escaped_and_always_utf8(void **state)
{
    (void)state;
    assert_string_equal(json("a\"b\\c", 5, 99), "\"a\\\"b\\\\c\"");
    assert_string_equal(json("\n\t\x01\x7f", 4, 99), "\"\\u000a\\u0009\\u0001\\u007f\"");
    assert_string_equal(json("\0", 1, 99), "\"\\u0000\"");
    assert_string_equal(json("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9, 99),
                        "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
    /* a stray byte, an overlong NUL, a surrogate, a cut sequence */
    assert_string_equal(json("\xff", 1, 99), "\"\\ufffd\"");
    assert_string_equal(json("\xc0\x80", 2, 99), "\"\\ufffd\\ufffd\"");
    assert_string_equal(json("\xed\xa0\x80", 3, 99), "\"\\ufffd\\ufffd\\ufffd\"");
    assert_string_equal(json("x\xe2\x82", 3, 99), "\"x\\ufffd\\ufffd\"");
}

static void json_strings_that_do_not_fit_are_cut_between_characters(void **state)
{
    (void)state;
    assert_string_equal(json("abcdef", 6, 6), "\"abc\"");
    assert_string_equal(json("ab\n", 3, 9), "\"ab\"");
    assert_string_equal(json("ab\n", 3, 11), "\"ab\\u000a\"");
    assert_string_equal(json("a\xc3\xa4", 3, 5), "\"a\"");
    assert_string_equal(json("abc", 3, 2), "");
}

static const char *shown(void (*put)(struct cfg_text *t, uint64_t n), uint64_t n)
{
    static char buf[64];
    struct cfg_text t = cfg_text_in(buf, sizeof buf);

    put(&t, n);
    return buf;
}

static void numbers_sizes_and_times_are_readable(void **state)
{
    (void)state;
    assert_string_equal(shown(text_grouped, 0), "0");
    assert_string_equal(shown(text_grouped, 999), "999");
    assert_string_equal(shown(text_grouped, 131072), "131,072");
    assert_string_equal(shown(text_grouped, UINT64_MAX), "18,446,744,073,709,551,615");
    assert_string_equal(shown(text_size, 512), "512 bytes");
    assert_string_equal(shown(text_size, 4096), "4.0 KiB");
    assert_string_equal(shown(text_size, 512 << 20), "512 MiB");
    assert_string_equal(shown(text_size, UINT64_MAX), "15.9 EiB");
    assert_string_equal(shown(text_time, 999), "999 ns");
    assert_string_equal(shown(text_time, 1500), "1.50 us");
    assert_string_equal(shown(text_time, 9900000), "9.90 ms");
    assert_string_equal(shown(text_time, 1250000000), "1.25 s");
    assert_string_equal(shown(text_time, UINT64_C(125000000000)), "2 min 5 s");
    assert_string_equal(shown(text_time, UINT64_C(7260000000000)), "2 h 1 min");
    assert_string_equal(shown(text_utc, 0), "1970-01-01T00:00:00Z");
    assert_string_equal(shown(text_utc, UINT64_C(951782399) * 1000000000), "2000-02-28T23:59:59Z");
    assert_string_equal(shown(text_utc, UINT64_C(951782400) * 1000000000), "2000-02-29T00:00:00Z");
    assert_string_equal(shown(text_utc, UINT64_C(4107542400) * 1000000000), "2100-03-01T00:00:00Z");
}

/* Times and sizes are shown in units; sums of waits as averages. */
static void put_expected(enum stat_id id, char *buf, size_t n)
{
    struct cfg_text t = cfg_text_in(buf, n);
    const char *name = stat_name(id);

    if (strstr(name, "_ns") != NULL)
        text_time(&t, report.value[id]);
    else if (strstr(name, "_bytes") != NULL)
        text_size(&t, report.value[id]);
    else
        text_grouped(&t, report.value[id]);
}

static void the_text_shows_every_counter_and_every_reason(void **state)
{
    (void)state;
    char expected[64];

    for (int i = 0; i < STAT_COUNT; i++)
        report.value[i] = 5000001 + (uint64_t)i * 1001;
    for (int i = 0; i < WHY_COUNT; i++)
        report.settled[i] = 9000001 + (uint64_t)i * 1001;
    assert_true(report_text(&report, out, sizeof out) < REPORT_TEXT_BYTES);
    for (int i = 0; i < STAT_COUNT; i++) {
        if (i == STAT_gate_wait_ns || i == STAT_settle_wait_ns)
            continue;
        put_expected((enum stat_id)i, expected, sizeof expected);
        if (strstr(out, expected) == NULL)
            fail_msg("%s (%s) is not in the text", stat_name((enum stat_id)i), expected);
    }
    for (int i = 0; i < WHY_COUNT; i++) {
        struct cfg_text t = cfg_text_in(expected, sizeof expected);

        text_grouped(&t, report.settled[i]);
        if (strstr(out, expected) == NULL)
            fail_msg("settled.%s is not in the text", why_name((enum why)i));
    }
}

static void the_text_says_what_happened_to_the_punches_and_why(void **state)
{
    (void)state;
    report.value[STAT_punch_calls] = 131072;
    report.value[STAT_punch_deferred] = 131060;
    report.value[STAT_punch_inline] = 12;
    report.value[STAT_punch_no_mapped] = 12;
    report_text(&report, out, sizeof out);
    assert_non_null(
        strstr(out, "131,072 punches: 131,060 answered at once, 12 made in the caller"));
    assert_non_null(strstr(out, "12  the file is mapped"));
    assert_null(strstr(out, "punch_backlog was reached"));
}

static void the_text_of_an_idle_program_says_so(void **state)
{
    (void)state;
    report_text(&report, out, sizeof out);
    assert_non_null(strstr(out, "No file call at all was seen"));
    report.value[STAT_calls_read] = 1;
    report_text(&report, out, sizeof out);
    assert_null(strstr(out, "No file call at all was seen"));
    assert_non_null(strstr(out, "Nothing to do"));
}

static void a_text_that_does_not_fit_says_that_it_is_cut(void **state)
{
    (void)state;
    char small[128];
    size_t n = report_text(&report, small, sizeof small);

    assert_int_equal(n, strlen(small));
    assert_int_equal(n, sizeof small - 1);
    assert_string_equal(small + n - 7, "\n(cut)\n");
}

static void half_a_json_report_is_none(void **state)
{
    (void)state;
    char small[128];

    assert_int_equal(report_json(&report, small, sizeof small), 0);
}

static void the_largest_possible_report_fits(void **state)
{
    (void)state;
    memset(report.host, 1, sizeof report.host - 1);
    memset(report.kernel, 1, sizeof report.kernel - 1);
    memset(report.program, 1, sizeof report.program - 1);
    memset(report.command, 1, sizeof report.command - 1);
    report.command_len = sizeof report.command;
    for (int i = 0; i < STAT_COUNT; i++)
        report.value[i] = UINT64_MAX;
    for (int i = 0; i < WHY_COUNT; i++)
        report.settled[i] = UINT64_MAX;
    for (int i = 0; i < CFG_ROWS; i++)
        memset(report.setting[i], 1,
               cfg_rows[i].path_offset != 0 ? sizeof report.setting[i] - 1 : 40);
    assert_true(report_json(&report, out, sizeof out) > 0);
    assert_true(report_text(&report, out, REPORT_TEXT_BYTES) < REPORT_TEXT_BYTES);
}

static void write_to(const char *path)
{
    snprintf(settings.report_path, sizeof settings.report_path, "%s", path);
    report_write(&page, &settings, dir);
}

static void a_directory_gets_json_and_text(void **state)
{
    (void)state;
    char host[64], path[256];

    page.value[STAT_punch_calls] = 4711;
    write_to(dir);
    assert_int_equal(files(), 2);
    gethostname(host, sizeof host);
    snprintf(path, sizeof path, "%s/rlshim-%s-%d.txt", dir, host, (int)getpid());
    slurp(path);
    assert_non_null(strstr(out, "4,711 punches"));
    snprintf(path, sizeof path, "%s/rlshim-%s-%d.json", dir, host, (int)getpid());
    slurp(path);
    assert_non_null(strstr(out, "\"punch_calls\": 4711"));
    assert_non_null(strstr(out, "\"punch_delay\": \"10ms\""));
    assert_non_null(strstr(out, "report_test")); /* the command line */
}

static void no_report_ever_replaces_another(void **state)
{
    (void)state;
    char path[512];

    for (int i = 1; i <= 4; i++) {
        write_to("r.json"); /* relative to the directory given */
        assert_int_equal(files(), i);
    }
    snprintf(path, sizeof path, "%s/r.%d-3.json", dir, (int)getpid());
    assert_int_equal(access(path, R_OK), 0);
    write_to(dir);
    write_to(dir);
    assert_int_equal(files(), 8);
}

/* What a function says on stderr. log_start remembers only the first stderr of a process. */
static const char *complaint_of(void (*f_of)(const char *path), const char *path)
{
    static char line[2048];
    static FILE *f;
    int saved = dup(2);
    size_t n;

    if (f == NULL)
        f = tmpfile();
    assert_non_null(f);
    assert_int_equal(ftruncate(fileno(f), 0), 0);
    rewind(f);
    dup2(fileno(f), 2);
    log_start(NULL, NULL);
    f_of(path);
    dup2(saved, 2);
    close(saved);
    rewind(f);
    n = fread(line, 1, sizeof line - 1, f);
    line[n] = '\0';
    return line;
}

static void start_with(const char *path)
{
    snprintf(settings.report_path, sizeof settings.report_path, "%s", path);
    report_start(&settings, dir);
}

static void a_report_that_can_be_written_is_not_complained_about_at_the_start(void **state)
{
    (void)state;
    assert_string_equal(complaint_of(start_with, dir), "");
    assert_string_equal(complaint_of(start_with, "./new.json"), "");
}

static void what_was_said_at_the_start_is_not_said_again(void **state)
{
    (void)state;
    const char *line = complaint_of(start_with, "./no/where.json");

    assert_non_null(strstr(line, "no report in /"));
    assert_non_null(strstr(line, "/no/where.json: there is no such file"));
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    assert_string_equal(complaint_of(write_to, "./no/where.json"), "");
}

static void a_report_past_the_file_size_limit_costs_no_signal(void **state)
{
    (void)state;
    struct rlimit old, small;

    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 10;
    setrlimit(RLIMIT_FSIZE, &small);
    write_to(dir);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(files(), 0);
}

static void special_files_are_not_written_to(void **state)
{
    (void)state;
    char fifo[256];

    snprintf(fifo, sizeof fifo, "%s/fifo", dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    write_to(fifo);
    assert_int_equal(files(), 1);
}

static void live_counters_appear_in_a_file_and_go_with_it(void **state)
{
    (void)state;
    struct stats_page *live = report_map_stats(dir, (uint32_t)getpid(), 1, "app");
    char path[512];

    assert_non_null(live);
    live->value[STAT_write_pieces] = 42;
    snprintf(path, sizeof path, "%s/rlshim-%d.stats", dir, (int)getpid());
    assert_int_equal(slurp(path), sizeof *live);
    assert_memory_equal(out, live, sizeof *live);
    report_unmap_stats();
    assert_int_equal(files(), 0);
    live->value[STAT_write_pieces]++; /* still mapped: threads may be counting */
    assert_int_equal(live->value[STAT_write_pieces], 43);
}

static void a_stale_file_of_live_counters_is_replaced(void **state)
{
    (void)state;
    char path[512];
    struct stats_page *live;

    snprintf(path, sizeof path, "%s/rlshim-%d.stats", dir, (int)getpid());
    close(open(path, O_WRONLY | O_CREAT, 0666));
    live = report_map_stats(dir, (uint32_t)getpid(), 1, "app");
    assert_non_null(live);
    assert_int_equal(live->magic, STATS_MAGIC);
    report_unmap_stats();
}

static void nothing_of_this_leaves_a_descriptor_or_errno(void **state)
{
    (void)state;
    int before = dup(0);

    close(before);
    errno = 4711;
    write_to(dir);
    assert_non_null(report_map_stats(dir, (uint32_t)getpid(), 1, "app"));
    report_unmap_stats();
    assert_int_equal(errno, 4711);
    assert_int_equal(dup(0), before);
    close(before);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh, remove_files)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reports_in_a_directory_are_named_by_host_pid_and_rank),
        TEST(later_reports_in_one_file_get_the_pid_before_the_extension),
        TEST(a_name_that_does_not_fit_is_refused),
        TEST(text_is_written_to_txt_files_and_json_to_others),
        TEST(the_rank_comes_from_mpi_before_the_batch_system),
        TEST(a_huge_variable_neither_counts_nor_hides_the_next),
        TEST(json_strings_are_escaped_and_always_utf8),
        TEST(json_strings_that_do_not_fit_are_cut_between_characters),
        TEST(numbers_sizes_and_times_are_readable),
        TEST(the_text_shows_every_counter_and_every_reason),
        TEST(the_text_says_what_happened_to_the_punches_and_why),
        TEST(the_text_of_an_idle_program_says_so),
        TEST(a_text_that_does_not_fit_says_that_it_is_cut),
        TEST(half_a_json_report_is_none),
        TEST(the_largest_possible_report_fits),
        TEST(a_directory_gets_json_and_text),
        TEST(no_report_ever_replaces_another),
        TEST(a_report_that_can_be_written_is_not_complained_about_at_the_start),
        TEST(what_was_said_at_the_start_is_not_said_again),
        TEST(a_report_past_the_file_size_limit_costs_no_signal),
        TEST(special_files_are_not_written_to),
        TEST(live_counters_appear_in_a_file_and_go_with_it),
        TEST(a_stale_file_of_live_counters_is_replaced),
        TEST(nothing_of_this_leaves_a_descriptor_or_errno),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
