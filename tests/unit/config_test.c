/* SPDX-License-Identifier: MIT */
/*
 * Configuration text and environment to settings: what is accepted, what is refused in which words,
 * and which source wins. Finding and reading the file is tested in config_load_test.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "../fuzz/config_fuzz.c"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define K  UINT64_C(1024)
#define M  (K * K)

static struct config config;
static struct cfg_error error;
static struct settings settings;

static int parse(const char *text)
{
    return cfg_parse(&config, text, strlen(text), "test.conf", &error);
}

static void take(const char *text)
{
    if (parse(text) != 0)
        fail_msg("refused: %s (line %u: %s: %s)", text, error.line, error.key, error.reason);
}

static const char *line_of_error(void)
{
    static char line[2048];
    int len = cfg_error_line(&error, line, sizeof(line));
    assert_int_equal(len, strlen(line));
    return line;
}

static const struct settings *in_force(const char *app, const char *path)
{
    cfg_settings(&config, app, path, &settings);
    return &settings;
}

static const char *shown(const struct cfg_row *row, const struct settings *s)
{
    static char text[CFG_PATH_BYTES + 16];
    cfg_format(row, s, text, sizeof(text));
    return text;
}

static void built_in_values_are_those_of_the_design(void **state)
{
    (void)state;
    static const char *const expected[][2] = {
        {"mode", "on"},
        {"gate", "on"},
        {"share", "auto"},
        {"punch", "defer"},
        {"punch_delay", "10ms"},
        {"punch_call_max", "8M"},
        {"punch_backlog", "4096"},
        {"stat", "late"},
        {"split", "auto"},
        {"hold_target", "2ms"},
        {"preextend", "auto"},
        {"evict", "defer"},
        {"evict_min", "1M"},
        {"evict_hold_max", "1s"},
        {"evict_bytes_max", "auto"},
        {"evict_files_max", "256"},
        {"evict_rate", "0"},
        {"truncate", "elide"},
        {"create", "auto"},
        {"fsync", "share"},
        {"writeback_window", "0"},
        {"writeback_budget", "64M"},
        {"keeper", "on"},
        {"children", "on"},
        {"stall_threshold", "10ms"},
        {"timing", "off"},
        {"report", "off"},
        {"log", "off"},
        {"stats", "off"},
    };
    assert_int_equal(sizeof(expected) / sizeof(expected[0]), CFG_ROWS);
    cfg_reset(&config);
    in_force(NULL, NULL);
    for (size_t i = 0; i < CFG_ROWS; i++) {
        const struct cfg_row *row = cfg_row_find(expected[i][0], strlen(expected[i][0]));
        assert_non_null(row);
        assert_string_equal(row->builtin, expected[i][1]);
        const char *now = row->later && row->meanwhile ? row->meanwhile : row->builtin;
        assert_string_equal(shown(row, &settings), now);
    }
    assert_true(settings.gate && settings.children);
    assert_int_equal(settings.mode, CFG_MODE_ON);
    assert_int_equal(settings.punch_delay_ns, 10 * MS);
    assert_int_equal(settings.punch_call_max_bytes, 8 * M);
    assert_int_equal(settings.split_bytes, CFG_AUTO);
    assert_string_equal(settings.report_path, "");
}

/* For each setting every kind of good value with what it becomes, and bad ones. */
static const struct {
    const char *key;
    const char *good[6];
    const char *bad[6];
} values[] = {
    {"mode", {"on", "observe", "off"}, {"On", "1", "yes", "on off"}},
    {"gate", {"on", "off"}, {"auto", "0", "true"}},
    {"share", {"auto", "private", "lease"}, {"shared", "off"}},
    {"punch", {"defer", "sync"}, {"banana", "deferred", "on"}},
    {"punch_delay", {"100us", "10ms", "10s"}, {"10", "99us", "11s", "-1ms", "1.5ms", "10 ms"}},
    {"punch_call_max", {"4K", "8M", "1G"}, {"4095", "5000", "2G", "8MB", "0x1000", "M"}},
    {"punch_backlog", {"1", "4096", "1048576"}, {"0", "1048577", "4K", "many"}},
    {"stat", {"late", "settle"}, {"sync"}},
    {"split", {"auto", "off", "4K", "256K", "1G"}, {"on", "0", "1", "4097", "2G"}},
    {"hold_target", {"100us", "2ms", "1s"}, {"2", "1us", "2s", "2m"}},
    {"preextend", {"auto", "on", "off"}, {"defer"}},
    {"evict", {"defer", "sync"}, {"off"}},
    {"evict_min", {"0", "1M", "16T"}, {"17T", "small", "1ms"}},
    {"evict_hold_max", {"1ms", "1s", "60s"}, {"0s", "61s", "1"}},
    {"evict_bytes_max", {"auto", "1M", "1024T"}, {"off", "10%", "1K", "2000T"}},
    {"evict_files_max", {"1", "256", "65536"}, {"0", "65537"}},
    {"evict_rate", {"0", "1M", "1T"}, {"1", "100M/s"}},
    {"truncate", {"elide", "defer", "replace", "sync"}, {"on"}},
    {"create", {"auto", "dedupe", "sync"}, {"dedup"}},
    {"fsync", {"share", "sync"}, {"off"}},
    {"writeback_window", {"0", "64K", "1G"}, {"1", "2G", "auto"}},
    {"writeback_budget", {"1M", "64M", "1T"}, {"0", "off"}},
    {"keeper", {"on", "off"}, {"1"}},
    {"children", {"on", "off"}, {"none"}},
    {"stall_threshold", {"10us", "10ms", "3600s"}, {"0", "off", "1us", "3601s"}},
    {"timing", {"on", "off"}, {"1", "tsc"}},
    {"report", {"off", "/tmp", "./r", ".", "..", "a/b c"}, {"on", "stderr", "report.json"}},
    {"log",
     {"off", "error", "info", "debug", "info:/tmp/x.log", "debug:./x"},
     {"on", "warn", "info:", "info:x", "inof:/tmp/x", "stderr"}},
    {"stats", {"off", "/run/rlshim", "./s"}, {"on", "1"}},
};

static void every_setting_takes_its_good_values_and_refuses_bad_ones(void **state)
{
    (void)state;
    char text[256];

    assert_int_equal(sizeof(values) / sizeof(values[0]), CFG_ROWS);
    for (size_t i = 0; i < CFG_ROWS; i++) {
        const struct cfg_row *row = cfg_row_find(values[i].key, strlen(values[i].key));
        assert_non_null(row);
        for (size_t g = 0; g < 6 && values[i].good[g]; g++) {
            const char *good = values[i].good[g];
            snprintf(text, sizeof(text), "%s = %s\n", values[i].key, good);
            take(text);
            in_force(NULL, NULL);
            bool later = row->meanwhile && (row->later || config.assigns[0].value.later);
            assert_string_equal(shown(row, &settings), later ? row->meanwhile : good);
        }
        for (size_t b = 0; b < 6 && values[i].bad[b]; b++) {
            snprintf(text, sizeof(text), "\n%s = %s\n", values[i].key, values[i].bad[b]);
            if (parse(text) == 0)
                fail_msg("accepted: %s", text);
            assert_int_equal(error.line, 2);
            assert_string_equal(error.key, values[i].key);
            assert_non_null(strstr(error.reason, values[i].bad[b]));
            assert_int_equal(in_force(NULL, NULL)->mode, CFG_MODE_OFF);
        }
    }
}

static void every_word_becomes_its_own_value(void **state)
{
    (void)state;
    char text[128];

    for (size_t i = 0; i < CFG_ROWS; i++) {
        for (const struct cfg_word *w = cfg_rows[i].words; w->text; w++) {
            snprintf(text, sizeof(text), "%s=%s", cfg_rows[i].key, w->text);
            take(text);
            assert_true(config.assigns[0].value.number == w->value);
            for (const struct cfg_word *x = cfg_rows[i].words; x != w; x++)
                assert_true(x->value != w->value || cfg_rows[i].kind == CFG_KIND_SIZE);
        }
    }
    take("mode=observe\ngate=off\nshare=private\npunch=sync\nstat=settle\nsplit=off\nchildren=off\n"
         "log=debug");
    in_force(NULL, NULL);
    assert_int_equal(settings.mode, CFG_MODE_OBSERVE);
    assert_false(settings.gate);
    assert_int_equal(settings.share, CFG_SHARE_PRIVATE);
    assert_int_equal(settings.punch, CFG_PUNCH_SYNC);
    assert_int_equal(settings.stat_mode, CFG_STAT_SETTLE);
    assert_int_equal(settings.split_bytes, CFG_OFF);
    assert_false(settings.children);
    assert_int_equal(settings.log, CFG_LOG_DEBUG);
}

static void units_multiply(void **state)
{
    (void)state;
    take("punch_delay=250us\npunch_call_max=1048576\nsplit=64k\nevict_min=3T\nevict_hold_max=2s");
    in_force(NULL, NULL);
    assert_int_equal(settings.punch_delay_ns, 250 * US);
    assert_int_equal(settings.punch_call_max_bytes, M);
    assert_int_equal(settings.split_bytes, 64 * K);
    assert_int_equal(settings.evict_min_bytes, 3 * M * M);
    assert_int_equal(settings.evict_hold_max_ns, 2000 * MS);
}

static void numbers_that_overflow_are_too_large(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "punch_delay = 18446744073709551616us", "punch_delay = 18446744073709552ms",
        "punch_call_max = 18014398509481985K",  "evict_min = 16777216T",
        "punch_backlog = 18446744073709551617", "evict_min = 99999999999999999999999999999999",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_int_equal(parse(lines[i]), -1);
        assert_non_null(strstr(error.reason, "is too large"));
    }
}

static void log_takes_a_level_a_place_or_both(void **state)
{
    (void)state;
    take("log = info");
    assert_int_equal(in_force(NULL, NULL)->log, CFG_LOG_INFO);
    assert_string_equal(settings.log_path, "");
    take("log = debug:/tmp/a b.log");
    assert_int_equal(in_force(NULL, NULL)->log, CFG_LOG_DEBUG);
    assert_string_equal(settings.log_path, "/tmp/a b.log");
    take("log = ./x.log");
    assert_int_equal(in_force(NULL, NULL)->log, CFG_LOG_INFO);
    assert_string_equal(settings.log_path, "./x.log");
}

static void paths_have_a_limit_and_no_less_room_than_it_says(void **state)
{
    (void)state;
    char text[CFG_PATH_BYTES + 64];

    for (int too_long = 0; too_long < 2; too_long++) {
        int path = CFG_PATH_BYTES - 1 + too_long;
        int n = snprintf(text, sizeof(text), "report = /");
        memset(text + n, 'x', (size_t)path - 1);
        text[n + path - 1] = 0;
        assert_int_equal(parse(text), -too_long);
        if (!too_long) {
            assert_string_equal(in_force(NULL, NULL)->report_path, text + n - 1);
        } else {
            assert_non_null(strstr(error.reason, "longer than 1023 bytes"));
        }
    }
}

static void the_most_specific_source_wins_and_within_a_kind_the_later(void **state)
{
    (void)state;
    char *env[] = {"HOME=/root", "RLSHIM_STAT=settle", NULL};

    take("punch_delay = 1ms\nstat = late\n"
         "[path /d/*]\npunch_delay = 5ms\nstat = late\n"
         "[app my*]\npunch_delay = 3ms\nsplit = 1M\n"
         "[default]\npunch_delay = 2ms\nsplit = 2M\npunch_backlog = 7\n"
         "[app mysqld]\npunch_delay = 4ms\n"
         "[path /d/x]\npunch_delay = 6ms\n");
    assert_int_equal(cfg_env(&config, env, &error), 0);

    assert_int_equal(in_force(NULL, NULL)->punch_delay_ns, 2 * MS);
    assert_int_equal(in_force("myisam", NULL)->punch_delay_ns, 3 * MS);
    assert_int_equal(in_force("mysqld", NULL)->punch_delay_ns, 4 * MS);
    assert_int_equal(settings.split_bytes, M);
    assert_int_equal(settings.punch_backlog, 7);
    assert_int_equal(in_force("/usr/sbin/mysqld", "/e/y")->punch_delay_ns, 4 * MS);
    assert_int_equal(in_force("mysqld", "/d/y")->punch_delay_ns, 5 * MS);
    assert_int_equal(in_force("mysqld", "/d/x")->punch_delay_ns, 6 * MS);
    assert_int_equal(settings.split_bytes, M);
    assert_int_equal(in_force("bash", "/d/x")->punch_delay_ns, 6 * MS);
    assert_int_equal(settings.split_bytes, 2 * M);
    assert_int_equal(settings.stat_mode, CFG_STAT_SETTLE);

    assert_true(cfg_has_paths(&config));
    assert_true(cfg_path_matches(&config, "/d/zzz"));
    assert_false(cfg_path_matches(&config, "/d/z/z"));
    take("stat = late");
    assert_false(cfg_has_paths(&config));
    assert_false(cfg_path_matches(&config, "/d/zzz"));
}

static void equal_settings_compare_equal_byte_by_byte(void **state)
{
    (void)state;
    struct settings a, b;

    take("[path /a/*]\nsplit = 1M\n[path /b/*]\nsplit = 1M");
    memset(&a, 0x55, sizeof(a));
    memset(&b, 0xaa, sizeof(b));
    cfg_settings(&config, NULL, "/a/1", &a);
    cfg_settings(&config, NULL, "/b/1", &b);
    assert_memory_equal(&a, &b, sizeof(a));
    cfg_settings(&config, NULL, "/c/1", &b);
    assert_true(memcmp(&a, &b, sizeof(a)) != 0);
}

static void environment_is_over_all_and_must_be_right_too(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *line;
    } wrong[] = {
        {"RLSHIM_PUNCH=banana", "rlshim: environment: RLSHIM_PUNCH: 'banana' is not a value it can "
                                "take; write sync or defer. The program runs without rlshim."},
        {"RLSHIM_PUNCH_DELEY=1ms",
         "rlshim: environment: RLSHIM_PUNCH_DELEY: is no setting; did you mean RLSHIM_PUNCH_DELAY? "
         "The program runs without rlshim."},
        {"RLSHIM_punch=sync", "rlshim: environment: RLSHIM_punch: is no setting; did you mean "
                              "RLSHIM_PUNCH? The program runs without rlshim."},
        {"RLSHIM_LD_LIBRARY_PATH=/x",
         "rlshim: environment: RLSHIM_LD_LIBRARY_PATH: is no setting; unset it; "
         "rlshim.conf.example lists the settings. The program runs without rlshim."},
        {"RLSHIM_PUNCH_DELAY=10",
         "rlshim: environment: RLSHIM_PUNCH_DELAY: '10' has no unit (us, ms or s); write a time "
         "from 100us to 10s. The program runs without rlshim."},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char *env[] = {"RLSHIM_CONF=/x", (char *)wrong[i].variable, NULL};
        take("mode = observe");
        assert_int_equal(cfg_env(&config, env, &error), -1);
        assert_string_equal(line_of_error(), wrong[i].line);
        assert_int_equal(in_force(NULL, NULL)->mode, CFG_MODE_OFF);
    }
}

static void environment_names_count_once_and_empty_ones_not(void **state)
{
    (void)state;
    char report[] = "RLSHIM_REPORT=/tmp/a # b";
    char *env[] = {"RLSHIM_MODE=",
                   "RLSHIM_SPLIT=1M",
                   "RLSHIM_SPLIT=2M",
                   "RLSHIMX=1",
                   "RLSHIM_NOVALUE",
                   report,
                   NULL};

    take("mode = observe\n[path /*]\nsplit = 4M");
    assert_int_equal(cfg_env(&config, env, &error), 0);
    memset(report, 'X', sizeof(report) - 1); /* as setproctitle does */
    assert_int_equal(in_force(NULL, "/a")->mode, CFG_MODE_OBSERVE);
    assert_int_equal(settings.split_bytes, M);
    assert_string_equal(settings.report_path, "/tmp/a # b");
}

static void an_environment_too_big_is_refused(void **state)
{
    (void)state;
    static char big[CFG_ENV_BYTES + 64] = "RLSHIM_SPLIT=";
    char *env[] = {big, NULL};

    memset(big + strlen(big), '1', CFG_ENV_BYTES + 1);
    cfg_reset(&config);
    assert_int_equal(cfg_env(&config, env, &error), -1);
    assert_string_equal(error.key, "RLSHIM_SPLIT");
    assert_non_null(strstr(error.reason, "8 KiB"));
}

static void errors_say_where_what_why_and_what_to_do(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned line;
        const char *said;
    } wrong[] = {
        {"punch = banana", 1, "punch: 'banana' is not a value it can take; write sync or defer."},
        {"\n\npunch_dely = 1ms", 3, "punch_dely: is no setting; did you mean 'punch_delay'?"},
        {"pucnh = sync", 1, "pucnh: is no setting; did you mean 'punch'?"},
        {"punch delay = 1ms", 1, "punch delay: is no setting; did you mean 'punch_delay'?"},
        {"colour = red", 1, "colour: is no setting; rlshim.conf.example lists them all."},
        {"split = maybe", 1,
         "split: 'maybe' is not a value it can take; write off, auto or a size from 4K to 1G."},
        {"punch_call_max = 5000", 1, "punch_call_max: '5000' is not a multiple of 4K; write 4K."},
        {"punch_delay = 10", 1,
         "punch_delay: '10' has no unit (us, ms or s); write a time from 100us to 10s."},
        {"punch_backlog = 0", 1,
         "punch_backlog: '0' is too small; write a number from 1 to 1048576."},
        {"gate = off\n# x\ngate = on", 3,
         "gate: is set already in this section, on line 1; remove one of the two."},
        {"report = on", 1,
         "report: 'on' is not a path; write off, or a path with a '/' such as /tmp/rlshim or "
         "./rlshim."},
        {"gate", 1, "gate: there is no '=' on this line; write KEY = VALUE."},
        {"gate =  # on", 1,
         "gate: has no value; write one, or remove the line for the built-in value."},
        {"report = \"/a", 1,
         "report: a quote is opened and not closed; close it on the same line, or leave quotes "
         "out."},
        {"report = \"/a\" b", 1,
         "report: there is text after the closing quote; put all of the value in quotes."},
        {"[path /x]\nmode = off", 2,
         "mode: holds for the whole program, not for single files; to leave these files alone set "
         "gate = off, punch = sync and split = off here."},
        {"[path /x]\nkeeper = off", 2,
         "keeper: holds for the whole program, not for single files; move it to [default] or an "
         "[app ...] section."},
        {"[path x/y]", 1,
         "[path x/y]: a path pattern must start with '/'; write it as the program opens it, from "
         "the root."},
        {"[path /x/**]", 1,
         "[path /x/**]: '**' is not known, '*' stays within one directory: name each level as in "
         "/a/*/*; correct the pattern."},
        {"[path /x/[a]", 1,
         "[path /x/[a]: a '[' of the pattern is never closed; correct the pattern."},
        {"[app /bin/x]", 1,
         "[app /bin/x]: an app section takes a program's file name, not a path; leave the "
         "directories out."},
        {"[app ]", 1, "[app ]: this section names no pattern; write [app NAME]."},
        {"[path]", 1, "[path ]: this section names no pattern; write [path /DIR/PATTERN]."},
        {"[defaults]", 1,
         "[defaults: is no section; write [default], [app NAME] or [path /PATTERN]."},
        {"[default x]", 1,
         "[default]: this section takes no name; write [default], [app NAME] or [path /PATTERN]."},
        {"[app x", 1,
         "[app: the section's ']' is missing or has text after it; write [default], [app NAME] or "
         "[path /PATTERN]."},
        {"[path \"/x\"] y", 1,
         "[path: the section's ']' is missing or has text after it; write [default], [app NAME] or "
         "[path /PATTERN]."},
    };
    char expected[1024];

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (parse(wrong[i].text) == 0)
            fail_msg("accepted: %s", wrong[i].text);
        snprintf(expected, sizeof(expected),
                 "rlshim: test.conf:%u: %s The program runs without rlshim.", wrong[i].line,
                 wrong[i].said);
        assert_string_equal(line_of_error(), expected);
        assert_int_equal(in_force(NULL, NULL)->mode, CFG_MODE_OFF);
    }
}

static void error_lines_are_safe_for_a_terminal(void **state)
{
    (void)state;
    char tiny[16];

    assert_int_equal(parse("punch = \x1b[31mr\xc3\xb6t\xff\xc2\x9b."), -1);
    assert_non_null(strstr(line_of_error(), "'?[31mr\xc3\xb6t???.'"));
    assert_int_equal(cfg_error_line(&error, tiny, sizeof(tiny)), sizeof(tiny) - 1);
    assert_string_equal(tiny, "rlshim: test.co");
}

static void comments_quotes_and_line_ends_are_as_documented(void **state)
{
    (void)state;
    take("\xef\xbb\xbf# \xff\xfe any bytes in a comment\r\n"
         "  ; mode = off\r\n"
         "\t split\t=64K ;x\r\n"
         "report = /a#b;c/d e # f\r\n"
         "stats = \"/a # b\"#c\r\n"
         "log='/x \"y\"'\r\n"
         "[ app  my sql ] ; ]\r\n"
         "stat=settle\r\n"
         "[path \"/x ] #y/*\" ] # z\r\n"
         "punch=sync");
    in_force("my sql", "/x ] #y/1");
    assert_int_equal(settings.mode, CFG_MODE_ON);
    assert_int_equal(settings.split_bytes, 64 * K);
    assert_string_equal(settings.report_path, "/a#b;c/d e");
    assert_string_equal(settings.stats_path, "/a # b");
    assert_string_equal(settings.log_path, "/x \"y\"");
    assert_int_equal(settings.stat_mode, CFG_STAT_SETTLE);
    assert_int_equal(settings.punch, CFG_PUNCH_SYNC);
    assert_int_equal(parse("split = 64K;x"), -1);
    assert_non_null(strstr(error.reason, "'64K;x'"));
}

static void files_that_are_no_text_or_too_much_are_refused(void **state)
{
    (void)state;
    static char big[CFG_FILE_BYTES_MAX + 1];
    static char many[(CFG_SECTIONS_MAX + 1) * 16];
    size_t n = 0;

    assert_int_equal(cfg_parse(&config, "mode = on\n\0", 11, "test.conf", &error), -1);
    assert_string_equal(line_of_error(),
                        "rlshim: test.conf: is not text, it holds NUL bytes; check "
                        "that it is the right file. The program runs without "
                        "rlshim.");
    memset(big, '#', sizeof(big));
    assert_int_equal(cfg_parse(&config, big, sizeof(big), "test.conf", &error), -1);
    assert_non_null(strstr(error.reason, "larger than 1 MiB"));
    assert_int_equal(cfg_parse(&config, big, sizeof(big) - 1, "test.conf", &error), 0);
    assert_int_equal(cfg_parse(&config, NULL, 0, "test.conf", &error), 0);

    for (int i = 0; i <= CFG_SECTIONS_MAX; i++)
        n += (size_t)snprintf(many + n, sizeof(many) - n, "[default]\n");
    assert_int_equal(parse(many), -1);
    assert_int_equal(error.line, CFG_SECTIONS_MAX + 1);
    assert_non_null(strstr(error.reason, "128 sections"));
}

static void as_many_settings_as_promised_fit(void **state)
{
    (void)state;
    static char many[(CFG_ASSIGNS_MAX + 1) * 32];
    char *end = many;

    /* 16 settings a section, so that 1024 of them need 64 of the 128 sections. */
    for (int i = 0; i < CFG_ASSIGNS_MAX; i++)
        end += sprintf(end, "%s%s=%s\n", i % 16 ? "" : "[default]\n", cfg_rows[i % 16].key,
                       cfg_rows[i % 16].builtin);
    take(many);
    assert_int_equal(config.nassigns, CFG_ASSIGNS_MAX);
    sprintf(end, "[default]\nmode=on\n");
    assert_int_equal(parse(many), -1);
    assert_non_null(strstr(error.reason, "more than 1024 settings"));
}

static void what_is_not_effective_yet_says_so_once_a_key(void **state)
{
    (void)state;
    char *env[] = {"RLSHIM_TRUNCATE=replace", NULL};
    static const char *const expected[] = {
        "rlshim: test.conf:2: share = lease is not effective in this release; it works as share = "
        "auto",
        "rlshim: environment: truncate = replace is not effective in this release; it works as "
        "truncate = elide",
    };
    struct cfg_notice notice;
    char line[512];
    unsigned pos = 0;

    take("[path /a]\nshare=lease\ncreate=sync\n[default]\nshare = private\n"
         "writeback_budget=8M\npunch=defer\n[path /b]\nshare=lease\n");
    assert_int_equal(cfg_env(&config, env, &error), 0);
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        assert_true(cfg_later_next(&config, &pos, &notice));
        cfg_later_line(&notice, line, sizeof(line));
        assert_string_equal(line, expected[i]);
    }
    assert_false(cfg_later_next(&config, &pos, &notice));
    /* lease means auto, not the private of the section it overrides */
    assert_int_equal(in_force(NULL, NULL)->share, CFG_SHARE_PRIVATE);
    assert_int_equal(in_force(NULL, "/a")->share, CFG_SHARE_AUTO);
}

static void fixed_examples_of_the_fuzz_target_hold(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(config_fuzz_examples) / sizeof(config_fuzz_examples[0]); i++)
        LLVMFuzzerTestOneInput((const uint8_t *)config_fuzz_examples[i],
                               strlen(config_fuzz_examples[i]));
    for (size_t i = 0; i < CFG_ROWS; i++) { /* every prefix of a setting's line */
        char line[128];
        int n = snprintf(line, sizeof(line), "f%s = %s # x", cfg_rows[i].key, cfg_rows[i].builtin);
        for (int k = 0; k <= n; k++)
            LLVMFuzzerTestOneInput((const uint8_t *)line, (size_t)k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in_values_are_those_of_the_design),
        cmocka_unit_test(every_setting_takes_its_good_values_and_refuses_bad_ones),
        cmocka_unit_test(every_word_becomes_its_own_value),
        cmocka_unit_test(units_multiply),
        cmocka_unit_test(numbers_that_overflow_are_too_large),
        cmocka_unit_test(log_takes_a_level_a_place_or_both),
        cmocka_unit_test(paths_have_a_limit_and_no_less_room_than_it_says),
        cmocka_unit_test(the_most_specific_source_wins_and_within_a_kind_the_later),
        cmocka_unit_test(equal_settings_compare_equal_byte_by_byte),
        cmocka_unit_test(environment_is_over_all_and_must_be_right_too),
        cmocka_unit_test(environment_names_count_once_and_empty_ones_not),
        cmocka_unit_test(an_environment_too_big_is_refused),
        cmocka_unit_test(errors_say_where_what_why_and_what_to_do),
        cmocka_unit_test(error_lines_are_safe_for_a_terminal),
        cmocka_unit_test(comments_quotes_and_line_ends_are_as_documented),
        cmocka_unit_test(files_that_are_no_text_or_too_much_are_refused),
        cmocka_unit_test(as_many_settings_as_promised_fit),
        cmocka_unit_test(what_is_not_effective_yet_says_so_once_a_key),
        cmocka_unit_test(fixed_examples_of_the_fuzz_target_hold),
    };
    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
