/* SPDX-License-Identifier: MIT */
/* rlshim.conf.example is the manual that people copy from: it must not drift from settings.def. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../shim/config.h"

static struct config config;
static struct cfg_error error;
static struct settings settings;

static FILE *open_example(void)
{
    char path[4096];
    const char *slash = strrchr(__FILE__, '/');

    snprintf(path, sizeof(path), "%.*s/../../rlshim.conf.example",
             slash ? (int)(slash - __FILE__) : 1, slash ? __FILE__ : ".");
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("%s cannot be opened: run this test from the root of the tree", path);
    return f;
}

static const struct settings *in_force(const char *app, const char *path)
{
    cfg_settings(&config, app, path, &settings);
    return &settings;
}

static void example_file_names_every_setting_at_its_built_in_value(void **state)
{
    (void)state;
    static char text[65536];
    bool seen[CFG_ROWS] = {false};
    struct settings built_in;

    FILE *f = open_example();
    size_t n = fread(text, 1, sizeof(text), f);
    fclose(f);
    assert_in_range(n, 1, sizeof(text) - 1);
    assert_int_equal(cfg_parse(&config, text, n, "example", &error), 0);
    assert_int_equal(config.nassigns, CFG_ROWS);
    for (size_t i = 0; i < CFG_ROWS; i++) {
        const struct cfg_assign *a = &config.assigns[i];
        seen[a->row] = true;
        assert_int_equal(a->text_len, strlen(cfg_rows[a->row].builtin));
        assert_memory_equal(a->text, cfg_rows[a->row].builtin, a->text_len);
    }
    for (size_t i = 0; i < CFG_ROWS; i++)
        assert_true(seen[i]);
    in_force("mysqld", "/var/lib/mysql/a/b.ibd");
    cfg_reset(&config);
    cfg_settings(&config, NULL, NULL, &built_in);
    assert_memory_equal(&settings, &built_in, sizeof(built_in));
}

/* The commented sections at its end are what people will copy first. */
static void example_sections_work_once_their_comment_sign_is_gone(void **state)
{
    (void)state;
    static char text[65536];
    size_t n = 0;

    FILE *f = open_example();
    bool in_examples = false;
    for (char line[512]; fgets(line, sizeof(line), f);) {
        if (strncmp(line, "# [app", 6) == 0)
            in_examples = true;
        if (in_examples && line[0] == '#' && line[1] == ' ')
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", line + 2);
    }
    fclose(f);
    assert_int_equal(cfg_parse(&config, text, n, "example", &error), 0);
    assert_string_equal(in_force("mysqld", NULL)->report_path, "/var/tmp/rlshim");
    assert_int_equal(in_force(NULL, "/var/lib/mysql/a/b.ibd")->share, CFG_SHARE_PRIVATE);
    assert_true(cfg_path_matches(&config, "/srv/bulk load/x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example_file_names_every_setting_at_its_built_in_value),
        cmocka_unit_test(example_sections_work_once_their_comment_sign_is_gone),
    };
    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
