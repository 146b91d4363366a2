/* SPDX-License-Identifier: MIT */
/* cmd_check: rlshim check: configuration and programs; the system is check_system.c's. */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../text.h"
#include "args.h"
#include "cmd.h"
#include "program.h"

void say(enum verdict verdict, const char *format, ...)
{
    static const char *const word[] = {[GOOD] = "ok  ", [NOTE] = "note", [BAD] = "BAD "};
    char text[4096], line[8192];
    struct cfg_text t = cfg_text_in(line, sizeof line);
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    text_safe(&t, text, strlen(text));
    printf("  %s  %s\n", word[verdict], line);
}

/* What holds for every program. */
static void print_settings(const struct config *c)
{
    static struct settings here, built_in;
    static struct config empty;
    bool later = false;

    cfg_reset(&empty);
    cfg_settings(c, NULL, NULL, &here);
    cfg_settings(&empty, NULL, NULL, &built_in);
    puts("  settings in force (* = not the built-in value):");
    for (int i = 0; i < CFG_ROWS; i++) {
        char value[CFG_PATH_BYTES + 16], usual[CFG_PATH_BYTES + 16];

        if (cfg_rows[i].later)
            continue;
        cfg_format(&cfg_rows[i], &here, value, sizeof value);
        cfg_format(&cfg_rows[i], &built_in, usual, sizeof usual);
        printf("    %c %-15s = %s\n", strcmp(value, usual) != 0 ? '*' : ' ', cfg_rows[i].key,
               value);
    }
    fputs("  not effective in this release:", stdout);
    for (int i = 0; i < CFG_ROWS; i++) {
        if (!cfg_rows[i].later)
            continue;
        printf("%s %s", later ? "," : "", cfg_rows[i].key);
        later = true;
    }
    puts(later ? "" : " none");
}

/* What differs for one. */
static void print_app_settings(const struct config *c, const char *app)
{
    static struct settings all, here;
    const char *slash = strrchr(app, '/');
    bool any = false;

    cfg_settings(c, NULL, NULL, &all);
    cfg_settings(c, app, NULL, &here);
    for (int i = 0; i < CFG_ROWS; i++) {
        char value[CFG_PATH_BYTES + 16], usual[CFG_PATH_BYTES + 16];

        cfg_format(&cfg_rows[i], &here, value, sizeof value);
        cfg_format(&cfg_rows[i], &all, usual, sizeof usual);
        if (strcmp(value, usual) == 0)
            continue;
        if (!any)
            printf("  for %s:\n", slash != NULL ? slash + 1 : app);
        printf("    * %-15s = %s\n", cfg_rows[i].key, value);
        any = true;
    }
}

static void print_sections(const struct config *c)
{
    unsigned paths = 0;

    for (unsigned i = 0; i < c->nsections; i++)
        paths += c->sections[i].kind == CFG_IN_PATH;
    if (paths == 0)
        return;
    say(NOTE, "other settings hold for files in %u [path] section%s:", paths,
        paths == 1 ? "" : "s");
    for (unsigned i = 0; i < c->nsections; i++) {
        const struct cfg_section *s = &c->sections[i];

        if (s->kind != CFG_IN_PATH)
            continue;
        for (unsigned a = s->first; a < (unsigned)s->first + s->count; a++)
            printf("      %.*s: %s = %.*s\n", (int)s->glob_len, s->glob,
                   cfg_rows[c->assigns[a].row].key, (int)c->assigns[a].text_len,
                   c->assigns[a].text);
    }
}

/* The library's lines begin with its name. */
static const char *bare(const char *line)
{
    return strncmp(line, "rlshim: ", 8) == 0 ? line + 8 : line;
}

static bool check_config(int apps, char **app)
{
    const struct loaded *l = load_config(environ);
    char line[2048];
    unsigned pos = 0;
    struct cfg_notice notice;

    puts("configuration");
    if (cfg_skip_line(&l->config, line, sizeof line) != 0)
        say(NOTE, "%s", bare(line));
    if (l->bad) {
        cfg_error_line(&l->error, line, sizeof line);
        say(BAD, "%s", bare(line));
        return false;
    }
    say(GOOD, "%s%s",
        l->config.file[0] != '\0' ? l->config.file : "no rlshim.conf: built-in settings",
        l->config.env_used != 0 ? ", and RLSHIM_ variables" : "");
    while (cfg_later_next(&l->config, &pos, &notice)) {
        cfg_later_line(&notice, line, sizeof line);
        say(NOTE, "%s", bare(line));
    }
    print_settings(&l->config);
    for (int i = 0; i < apps; i++)
        print_app_settings(&l->config, app[i]);
    print_sections(&l->config);
    return true;
}

static bool check_program(const char *name)
{
    static struct reached r;
    int rc = program_examine(name, true, &r);

    printf("program %s\n", name);
    if (rc != 0) {
        say(BAD, "%s: %s", name, strerror(rc));
        return false;
    }
    if (r.reach == REACH_NOT || r.reach == REACH_UNKNOWN) {
        say(BAD, "%s: %s", r.path, r.reason);
        return false;
    }
    if (r.reach == REACH_PARTLY)
        say(NOTE, "%s: %s", r.path, r.reason);
    else
        say(GOOD, "%s is dynamically linked (%s)", r.path, r.facts.interpreter);
    if (r.facts.uses_uring)
        say(NOTE, "it needs liburing, itself or through a library: from its first ring on, punches "
                  "are no longer deferred");
    if (r.facts.uses_aio)
        say(NOTE, "it needs libaio, itself or through a library: from its first context on, "
                  "punches are no longer deferred");
    if (r.facts.syscalls != 0)
        say(NOTE,
            "its code may hold %llu system call instruction%s of its own (a hint: data can look "
            "like one); file calls made there are not seen",
            (unsigned long long)r.facts.syscalls, r.facts.syscalls == 1 ? "" : "s");
    if (r.facts.library_syscalls != 0)
        say(NOTE, "libraries that it needs may hold %llu more, most of them in %s (the same hint)",
            (unsigned long long)r.facts.library_syscalls, r.facts.library);
    return true;
}

/* What holds for a program and a file, where it is not what holds for every program. */
static void print_path_settings(const char *app, const char *path)
{
    static struct settings all, here;
    const struct config *c = &load_config(environ)->config;
    char *real = realpath(path, NULL), absolute[PATH_MAX + 4096 + 2], cwd[4096];
    const char *slash = app != NULL ? strrchr(app, '/') : NULL;
    bool any = false;

    if (real == NULL && path[0] != '/' && getcwd(cwd, sizeof cwd) != NULL)
        snprintf(absolute, sizeof absolute, "%s/%s", cwd, path);
    else
        snprintf(absolute, sizeof absolute, "%s", real != NULL ? real : path);
    free(real);
    cfg_settings(c, NULL, NULL, &all);
    cfg_settings(c, app, absolute, &here);
    say(GOOD, "for %s%s%s:", absolute, app != NULL ? " in " : "",
        app == NULL     ? ""
        : slash != NULL ? slash + 1
                        : app);
    for (int i = 0; i < CFG_ROWS; i++) {
        char value[CFG_PATH_BYTES + 16], usual[CFG_PATH_BYTES + 16];

        cfg_format(&cfg_rows[i], &here, value, sizeof value);
        cfg_format(&cfg_rows[i], &all, usual, sizeof usual);
        if (strcmp(value, usual) == 0)
            continue;
        printf("    * %-15s = %s\n", cfg_rows[i].key, value);
        any = true;
    }
    if (!any)
        puts("      the settings above");
}

static struct {
    char **path, **app;
    int paths, apps;
} opt;

static int take(int key, char *value, void *to)
{
    (void)to;
    if (key == 'p')
        opt.path[opt.paths++] = value;
    else
        opt.app[opt.apps++] = value;
    return 0;
}

int cmd_check(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {.name = "path", .key = 'p', .arg = "FILE"},
        {0},
    };
    bool fine;
    int status;

    opt.path = calloc((size_t)argc + 1, sizeof *opt.path);
    opt.app = calloc((size_t)argc + 1, sizeof *opt.app);
    if (opt.path == NULL || opt.app == NULL)
        return fail(argv[0], "no memory");
    status = args_parse(argc, argv, options, take, NULL);
    if (status >= 0)
        return status;
    fine = check_config(opt.apps, opt.app);
    for (int i = 0; fine && i < opt.paths; i++)
        for (int k = 0; k < (opt.apps != 0 ? opt.apps : 1); k++)
            print_path_settings(opt.apps != 0 ? opt.app[k] : NULL, opt.path[i]);
    check_system();
    check_mounts();
    for (int i = 0; i < opt.apps; i++)
        fine = check_program(opt.app[i]) && fine;
    free(opt.path);
    free(opt.app);
    return fine ? EXIT_WORKED : EXIT_FAILED;
}
