/* SPDX-License-Identifier: MIT */
/*
 * One body, two uses: libFuzzer drives it with bytes of its own, tests/unit/config_test.c includes
 * this file and drives it with the fixed examples below. Whatever the bytes are, the parser either
 * refuses with one clean line and mode = off, or yields settings inside their bounds.
 */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../shim/config.h"
#include "../../shim/config_match.h"
#include "../../shim/config_text.h"
#include "../../shim/config_value.h"

#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct config fuzz_config;

static void fuzz_check_line(const char *line, int len)
{
    FUZZ_CHECK(len > 0 && strlen(line) == (size_t)len);
    FUZZ_CHECK(strncmp(line, "rlshim: ", 8) == 0);
    for (int i = 0; i < len; i++)
        FUZZ_CHECK((unsigned char)line[i] >= 0x20 && line[i] != 0x7f);
}

static void fuzz_check_error(const struct config *c, const struct cfg_error *err)
{
    char line[4096], tiny[9];
    struct settings s;
    const char *tail = " The program runs without rlshim.";
    int len = cfg_error_line(err, line, sizeof(line));

    fuzz_check_line(line, len);
    FUZZ_CHECK(strcmp(line + len - strlen(tail), tail) == 0);
    FUZZ_CHECK(err->reason[0] && err->hint[0]);
    FUZZ_CHECK(cfg_error_line(err, tiny, sizeof(tiny)) == sizeof(tiny) - 1);
    cfg_settings(c, "app", NULL, &s);
    FUZZ_CHECK(s.mode == CFG_MODE_OFF);
}

/* In bounds, and its text means the same again. */
static void fuzz_check_settings(const struct settings *s)
{
    static struct settings again;

    memset(&again, 0, sizeof(again));
    for (size_t i = 0; i < CFG_ROWS; i++) {
        const struct cfg_row *row = &cfg_rows[i];
        char text[CFG_PATH_BYTES + 16];
        struct cfg_value v;
        struct cfg_error err;
        int len = cfg_format(row, s, text, sizeof(text));
        FUZZ_CHECK(len > 0);
        FUZZ_CHECK(cfg_value_parse(row, text, (size_t)len, &v, &err) == 0);
        cfg_value_store(row, &v, &again);
    }
    FUZZ_CHECK(memcmp(s, &again, sizeof(again)) == 0);
}

static void fuzz_check_config(const struct config *c)
{
    static const char *const paths[] = {NULL, "/", "/a", "/a/b.ibd", "/var/lib/mysql/t/x.ibd"};
    static struct settings s;
    struct cfg_notice notice;
    char line[4096];

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        cfg_settings(c, i & 1 ? "mysqld" : NULL, paths[i], &s);
        fuzz_check_settings(&s);
        if (paths[i] && cfg_path_matches(c, paths[i]))
            FUZZ_CHECK(cfg_has_paths(c));
    }
    for (unsigned pos = 0; cfg_later_next(c, &pos, &notice);)
        fuzz_check_line(line, cfg_later_line(&notice, line, sizeof(line)));
}

/* Lines of the input as variables; what has no prefix gets one, so that most bytes count. */
static void fuzz_environment(const char *text, size_t size)
{
    enum { VARIABLES = 40, VARIABLE_BYTES = 2048 };
    static char store[VARIABLES][VARIABLE_BYTES];
    char *list[VARIABLES + 1];
    size_t n = 0;
    struct cfg_error err;

    while (size && n < VARIABLES) {
        const char *newline = memchr(text, '\n', size);
        size_t len = newline ? (size_t)(newline - text) : size;
        struct cfg_text t = cfg_text_in(store[n], VARIABLE_BYTES);
        if (len < 7 || memcmp(text, "RLSHIM_", 7) != 0)
            cfg_text_add(&t, "RLSHIM_");
        cfg_text_bytes(&t, text, len);
        list[n] = store[n];
        n++;
        size -= len + (newline != NULL);
        text += len + (newline != NULL);
    }
    list[n] = NULL;
    cfg_reset(&fuzz_config);
    if (cfg_env(&fuzz_config, list, &err))
        fuzz_check_error(&fuzz_config, &err);
    else
        fuzz_check_config(&fuzz_config);
}

/* "pattern\nsubject": our answer is fnmatch's. Short ones only, glibc's may take exponential time.
 */
static void fuzz_glob(const char *text, size_t size)
{
    char pattern[17], subject[33];
    const char *newline = size ? memchr(text, '\n', size) : NULL;
    size_t np = newline ? (size_t)(newline - text) : 0;
    size_t ns = newline ? size - np - 1 : 0;

    if (!newline)
        return;
    cfg_glob_match(text, np, newline + 1, ns); /* faulty and long ones must only come back */
    if (cfg_glob_fault(text, np) || np >= sizeof(pattern) || ns >= sizeof(subject))
        return;
    if (memchr(text, 0, size))
        return;
    memcpy(pattern, text, np);
    memcpy(subject, newline + 1, ns);
    pattern[np] = subject[ns] = 0;
    FUZZ_CHECK(cfg_glob_match(pattern, np, subject, ns) ==
               (fnmatch(pattern, subject, FNM_PATHNAME) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cfg_error err;
    uint8_t how = size ? data[0] : 0;
    const char *text = size ? (const char *)data + 1 : "";

    size -= size != 0;
    switch (how) {
    case 'e':
        fuzz_environment(text, size);
        break;
    case 'g':
        fuzz_glob(text, size);
        break;
    default:
        if (cfg_parse(&fuzz_config, text, size, "fuzzed.conf", &err))
            fuzz_check_error(&fuzz_config, &err);
        else
            fuzz_check_config(&fuzz_config);
    }
    return 0;
}

/* The first byte chooses: f a file, e an environment, g pattern and subject. */
static const char *const config_fuzz_examples[] __attribute__((unused)) = {
    "",
    "f",
    "f\n\r\n\t \n",
    "f\xef\xbb\xbfmode = off\r\n",
    "f\xff\xfe[\x01path /\x80*]\nsplit=\xc3\x28",
    "f[default]\npunch_delay = 18446744073709551616us",
    "f[default]\npunch_call_max = 18014398509481985K",
    "f[path /a/*]\nshare = private # mine\n[app mysql*]\nlog = info:/tmp/x\n[default]\nstat=settle",
    "f[path \"/a b/*\"] ; note ]\nsplit = 64k\n[path '/[!a-c]?\\*']\nevict_min=0",
    "f[path /a]\nmode = off",
    "f[",
    "f[path",
    "f[path ",
    "f[path \"",
    "f[path '']",
    "f[app /x]",
    "f[default]]",
    "f=",
    "f = \n",
    "fkey",
    "flog = '",
    "flog = '' x",
    "flog = debug:",
    "freport = \"/a # b\" # c",
    "fwriteback_window = 0\nevict_rate=off\nevict_bytes_max=auto\nstats=./s\nreport=..",
    "ePUNCH=banana",
    "ePUNCH=sync\nRLSHIM_PUNCH=defer\nLOG= info \nCONF=x\nREPORT=",
    "epunch=sync",
    "e\xff=\x1b[31m",
    "g/a/*\n/a/b",
    "g[]-a]\n]",
    "g[!]a-]*\\*?\nxy*z",
    "g*a*a*a*a*a*a*b\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "g[a\na",
    "g\\\n\\",
};
