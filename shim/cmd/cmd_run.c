/* SPDX-License-Identifier: MIT */
/* cmd_run: rlshim run, rlshim observe. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cmd.h"
#include "program.h"

/* KEY=VALUE into RLSHIM_KEY. Whether the value is right is for the configuration's own checks to
 * say, in their own words. */
static int put_setting(const char *cmd, const char *arg)
{
    const char *equal = strchr(arg, '=');
    char name[128] = "RLSHIM_";
    size_t len = equal != NULL ? (size_t)(equal - arg) : 0;
    int row = 0;

    if (len == 0 || len > 100)
        return misuse(cmd, "--set needs KEY=VALUE, as in --set punch_delay=5ms, not '%.80s'", arg);
    if (equal[1] == '\0')
        return misuse(cmd, "--set %.*s= has no value", (int)len, arg);
    while (row < CFG_ROWS &&
           (strlen(cfg_rows[row].key) != len || strncasecmp(cfg_rows[row].key, arg, len) != 0))
        row++;
    if (row == CFG_ROWS)
        return misuse(cmd, "there is no setting '%.*s'; rlshim.conf.example lists them", (int)len,
                      arg);
    for (size_t i = 0; i < len; i++)
        name[7 + i] = (char)(arg[i] >= 'a' && arg[i] <= 'z' ? arg[i] - 'a' + 'A' : arg[i]);
    if (setenv(name, equal + 1, 1) != 0)
        return fail(cmd, "%s", strerror(errno));
    return EXIT_WORKED;
}

/* "RLSHIM_PUNCH" as the user wrote it is "punch". */
static const char *set_name(const char *variable)
{
    for (int i = 0; i < CFG_ROWS; i++)
        if (strncmp(variable, "RLSHIM_", 7) == 0 && strcasecmp(variable + 7, cfg_rows[i].key) == 0)
            return cfg_rows[i].key;
    return variable;
}

/* Mistakes in --set are ours to refuse; those in a file or variable are the library's to tell. */
static int check_settings(const char *cmd, char *const *set, int sets)
{
    static struct config config;
    static struct cfg_error error;
    char *block[CFG_ROWS + 2];
    int n = 0;

    for (int i = 0; i < sets && n <= CFG_ROWS; i++) {
        size_t size = strlen(set[i]) + 8;
        char *entry = malloc(size);

        if (entry == NULL)
            return fail(cmd, "no memory");
        snprintf(entry, size, "RLSHIM_%s", set[i]);
        for (char *c = entry + 7; *c != '='; c++)
            if (*c >= 'a' && *c <= 'z')
                *c = (char)(*c - 'a' + 'A');
        block[n++] = entry;
    }
    block[n] = NULL;
    cfg_reset(&config);
    n = cfg_env(&config, block, &error);
    for (int i = 0; block[i] != NULL; i++)
        free(block[i]);
    return n != 0 ? misuse(cmd, "--set %s: %s; %s", set_name(error.key), error.reason, error.hint)
                  : EXIT_WORKED;
}

static int preload(const char *cmd, const char *library)
{
    const char *old = getenv("LD_PRELOAD");
    char *value;
    size_t size;

    /* ld.so splits the variable at both, and knows no quoting. */
    if (strpbrk(library, " :") != NULL)
        return fail(cmd,
                    "%.300s has a blank or colon in its path, which LD_PRELOAD cannot hold; link "
                    "or move it and name it with --library",
                    library);
    size = strlen(library) + (old != NULL ? strlen(old) : 0) + 2;
    value = malloc(size);
    if (value == NULL)
        return fail(cmd, "no memory");
    snprintf(value, size, "%s%s%s", library, old != NULL && *old != '\0' ? ":" : "",
             old != NULL ? old : "");
    if (setenv("LD_PRELOAD", value, 1) != 0)
        return fail(cmd, "%s", strerror(errno));
    free(value);
    return EXIT_WORKED;
}

static void warn(const char *name)
{
    static struct reached r;

    if (program_examine(name, false, &r) != 0 || r.reach == REACH_YES || r.reach == REACH_UNKNOWN)
        return;
    fprintf(stderr, "rlshim: WARNING: %.300s: %s.\n", r.path, r.reason);
    if (r.reach == REACH_NOT)
        fputs("rlshim: WARNING: it runs now WITHOUT rlshim; nothing will be any faster.\n", stderr);
}

static bool absolute(const char *given, char *buf, size_t n)
{
    char *real = realpath(given, NULL);
    bool fits = real != NULL && strlen(real) < n && access(real, R_OK) == 0;

    if (fits)
        strcpy(buf, real);
    free(real);
    return fits;
}

int cmd_run(int argc, char **argv)
{
    const char *cmd = argv[0];
    const char *given = NULL;
    char library[4096];
    char *set[CFG_ROWS + 1];
    int sets = 0;
    int i, rc;

    for (i = 1; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (strcmp(argv[i], "--set") == 0) {
            if (i + 1 == argc)
                return misuse(cmd, "--set needs KEY=VALUE");
            if (sets > CFG_ROWS)
                return misuse(cmd, "there are more --set than settings");
            rc = put_setting(cmd, argv[++i]);
            if (rc != 0)
                return rc;
            set[sets++] = argv[i];
        } else if (strcmp(argv[i], "--library") == 0) {
            if (i + 1 == argc)
                return misuse(cmd, "--library needs the path of a librlshim.so");
            given = argv[++i];
        } else {
            return misuse(cmd, "there is no option '%.80s'", argv[i]);
        }
    }
    if (i == argc)
        return misuse(cmd, "no program was given");
    rc = check_settings(cmd, set, sets);
    if (rc != 0)
        return rc;
    if (strcmp(cmd, "observe") == 0)
        setenv("RLSHIM_MODE", "observe", 1);
    if (given != NULL && !absolute(given, library, sizeof library))
        return fail(cmd, "%.300s: %s", given, errno != 0 ? strerror(errno) : "cannot be read");
    if (given == NULL && !find_library(library, sizeof library))
        return fail(cmd, "librlshim.so is neither beside this command nor in ../lib; "
                         "name it with --library FILE");
    rc = preload(cmd, library);
    if (rc != 0)
        return rc;
    warn(argv[i]);
    fflush(NULL);
    execvp(argv[i], argv + i);
    rc = errno;
    fail(cmd, "%.300s cannot be started: %s", argv[i], strerror(rc));
    return rc == ENOENT ? 127 : 126; /* as shells and env(1) */
}
