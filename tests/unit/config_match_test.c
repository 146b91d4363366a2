/* SPDX-License-Identifier: MIT */
/* Patterns of configuration sections: fnmatch(3) is the reference, and the cost has a bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fnmatch.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../shim/config_match.h"

static void a_pattern_matches_what_its_writer_expects(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *subject;
        bool matches;
    } cases[] = {
        {"/var/lib/mysql/*.ibd", "/var/lib/mysql/t1.ibd", true},
        {"/var/lib/mysql/*.ibd", "/var/lib/mysql/db/t1.ibd", false},
        {"/var/lib/mysql/*/*.ibd", "/var/lib/mysql/db/t1.ibd", true},
        {"/d/*", "/d/.hidden", true},
        {"/d/*", "/d/", true},
        {"/d/?", "/d//", false},
        {"/d/[!a-c]x", "/d/dx", true},
        {"/d/[!a-c]x", "/d/bx", false},
        {"/d/[]x]", "/d/]", true},
        {"/d/\\*", "/d/*", true},
        {"/d/\\*", "/d/a", false},
        {"mysqld*", "mysqld_safe", true},
        {"mysqld", "mysqld_safe", false},
        {"", "", true},
        {"", "x", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *p = cases[i].pattern, *s = cases[i].subject;
        assert_null(cfg_glob_fault(p, strlen(p)));
        if (cfg_glob_match(p, strlen(p), s, strlen(s)) != cases[i].matches)
            fail_msg("'%s' on '%s'", p, s);
    }
}

static void patterns_that_cannot_mean_what_they_say_are_faults(void **state)
{
    (void)state;
    static const char *const faulty[] = {"[a",          "a\\",   "a**",  "[a/b]",
                                         "[[:digit:]]", "[z-a]", "a\\/b"};
    for (size_t i = 0; i < sizeof(faulty) / sizeof(faulty[0]); i++)
        assert_non_null(cfg_glob_fault(faulty[i], strlen(faulty[i])));
}

static void globs_match_as_fnmatch_does(void **state)
{
    (void)state;
    static const char pattern_bytes[] = "ab/*?[]!-.\\";
    static const char subject_bytes[] = "ab/.-]!";
    uint64_t seed = 20240817;
    unsigned compared = 0, matched = 0;

    for (int i = 0; i < 400000; i++) {
        char p[9], s[9];
        size_t np = 0, ns = 0;
        for (seed = seed * 6364136223846793005u + 1442695040888963407u; np < (seed >> 60) % 9; np++)
            p[np] = pattern_bytes[(seed >> (5 * np)) % (sizeof(pattern_bytes) - 1)];
        for (seed = seed * 6364136223846793005u + 1442695040888963407u; ns < (seed >> 60) % 9; ns++)
            s[ns] = subject_bytes[(seed >> (5 * ns)) % (sizeof(subject_bytes) - 1)];
        p[np] = s[ns] = 0;
        if (cfg_glob_fault(p, np))
            continue;
        bool ours = cfg_glob_match(p, np, s, ns);
        if (ours != (fnmatch(p, s, FNM_PATHNAME) == 0))
            fail_msg("'%s' on '%s': %d", p, s, ours);
        compared++;
        matched += ours;
    }
    assert_true(compared > 100000 && matched > 1000);
}

static void a_hostile_glob_takes_no_more_than_length_times_length(void **state)
{
    (void)state;
    static char p[20000], s[20000];

    /* Exponential matchers do not come back from this one; ours needs some 10^8 steps. */
    for (size_t i = 0; i < sizeof(p); i++)
        p[i] = i % 2 ? 'a' : '*';
    memset(s, 'a', sizeof(s));
    p[sizeof(p) - 1] = 'b';
    assert_false(cfg_glob_match(p, sizeof(p), s, sizeof(s)));
    assert_true(cfg_glob_match(p, sizeof(p) - 1, s, sizeof(s)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pattern_matches_what_its_writer_expects),
        cmocka_unit_test(patterns_that_cannot_mean_what_they_say_are_faults),
        cmocka_unit_test(globs_match_as_fnmatch_does),
        cmocka_unit_test(a_hostile_glob_takes_no_more_than_length_times_length),
    };
    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
