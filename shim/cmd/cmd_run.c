/* SPDX-License-Identifier: MIT */
/* cmd_run: rlshim run, rlshim observe. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "cmd.h"
#include "program.h"

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

struct wishes {
    const char *cmd, *library;
};

static int take(int key, char *value, void *to)
{
    struct wishes *w = to;
    char *variable;

    if (key == 'l') {
        w->library = value;
        return 0;
    }
    variable = setting_variable(w->cmd, value);
    if (variable == NULL)
        return EXIT_USAGE;
    putenv(variable);
    return 0;
}

int cmd_run(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {.name = "set", .key = 's', .arg = "KEY=VALUE"},
        {.name = "library", .key = 'l', .arg = "FILE"},
        {0},
    };
    const char *cmd = argv[0], *given;
    struct wishes w = {.cmd = cmd};
    char library[4096];
    int i, rc = args_parse_program(argc, argv, options, take, &w, &i);

    if (rc >= 0)
        return rc;
    given = w.library;
    if (i == argc)
        return misuse(cmd, "no program was given");
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
    if (strcmp(cmd, "observe") == 0 && !observe_has_place(argv[i]))
        return observe_run(cmd, argv + i);
    execvp(argv[i], argv + i);
    rc = errno;
    fail(cmd, "%.300s cannot be started: %s", argv[i], strerror(rc));
    return rc == ENOENT ? 127 : 126; /* as shells and env(1) */
}
