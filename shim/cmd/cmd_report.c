/* SPDX-License-Identifier: MIT */
/*
 * cmd_report: rlshim report [--json | --html] [--before FILE]... FILE...: exit reports, those of
 * one run added together, in one of the forms of view.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "args.h"
#include "cmd.h"
#include "view.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)
#define PATIENCE_S     2

static struct {
    enum { TEXT, JSON, HTML } form;
    char **before, **after; /* names */
    int nbefore, nafter;
    time_t begun;
    time_t told;
} opt;

static struct report one;

/* A file in new memory. NULL, or a reason. */
static const char *read_file(const char *path, char **text, size_t *n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const char *bad = NULL;
    struct stat st;
    size_t room = 1 << 16;
    ssize_t got = 1;

    *n = 0;
    *text = NULL;
    if (fd < 0)
        return strerror(errno);
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        bad = "it is a directory; name the .json files in it";
    else if (S_ISREG(st.st_mode) && st.st_size > 0 && (uint64_t)st.st_size < FILE_BYTES_MAX)
        room = (size_t)st.st_size + 1;
    while (bad == NULL && got != 0) {
        if (*text == NULL || *n == room) {
            char *more = realloc(*text, *text != NULL ? (room *= 2) : room);

            if (more == NULL || room > FILE_BYTES_MAX) {
                free(more != NULL ? more : *text);
                *text = NULL;
                bad = more == NULL ? "there is not enough memory for it"
                                   : "it is too large for a report";
                break;
            }
            *text = more;
        }
        got = read(fd, *text + *n, room - *n);
        if (got > 0)
            *n += (size_t)got;
        else if (got < 0 && errno != EINTR)
            bad = strerror(errno);
    }
    close(fd);
    return bad;
}

static void tell_progress(const char *what, int done, int all)
{
    time_t now = time(NULL);

    if (done == all || now - opt.begun < PATIENCE_S || now == opt.told)
        return;
    opt.told = now;
    fprintf(stderr, "rlshim report: %s %d of %d\n", what, done, all);
}

/* All the files of a run. EXIT_FAILED after a line for each that was no report. */
static int read_run(char *const *files, int n, struct run *run)
{
    int status = EXIT_WORKED;

    for (int i = 0; i < n; i++) {
        struct observed *seen = NULL;
        char *text;
        size_t size;
        const char *bad = read_file(files[i], &text, &size);

        if (bad == NULL)
            bad = report_read_all(text, size, &one, &seen);
        free(text);
        if (bad == NULL && run->seen != NULL && seen != NULL && !observed_add(run->seen, seen))
            bad = "there is not enough memory to add it";
        if (bad != NULL) {
            status = fail("report", "%s: %s", files[i], bad);
        } else {
            if (run->sum.processes == 0)
                run->sum = one;
            else
                report_add(&run->sum, &one);
            if (run->seen == NULL) {
                run->seen = seen;
                seen = NULL;
            }
        }
        observed_free(seen);
        tell_progress("read", i + 1, n);
    }
    return status;
}

int report_show(FILE *to, char *const *files, int n)
{
    struct run run = {.seen = NULL};
    int status;

    opt.begun = time(NULL);
    status = read_run(files, n, &run);
    if (run.sum.processes != 0)
        view_text(to, &run, NULL);
    observed_free(run.seen);
    return status;
}

static int take(int key, char *value, void *to)
{
    (void)to;
    switch (key) {
    case 'j':
    case 'm':
        if (opt.form != TEXT)
            return misuse("report", "it prints one of --json and --html");
        opt.form = key == 'j' ? JSON : HTML;
        return 0;
    case 'b':
        opt.before[opt.nbefore++] = value;
        return 0;
    default:
        opt.after[opt.nafter++] = value;
        return 0;
    }
}

int cmd_report(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {.name = "json", .key = 'j'},
        {.name = "html", .key = 'm'},
        {.name = "before", .key = 'b', .arg = "FILE"},
        {0},
    };
    static struct run before, run;
    int status;

    opt.begun = time(NULL);
    opt.before = calloc((size_t)argc, sizeof *opt.before);
    opt.after = calloc((size_t)argc, sizeof *opt.after);
    if (opt.before == NULL || opt.after == NULL)
        return fail(argv[0], "no memory");
    status = args_parse(argc, argv, options, take, NULL);
    if (status >= 0)
        return status;
    if (opt.nafter == 0)
        return misuse(argv[0], opt.nbefore != 0 ? "no file was given to compare --before with"
                                                : "no file was given");
    status = read_run(opt.before, opt.nbefore, &before);
    if (read_run(opt.after, opt.nafter, &run) != EXIT_WORKED)
        status = EXIT_FAILED;
    if (run.sum.processes != 0 && (opt.nbefore == 0 || before.sum.processes != 0)) {
        const struct run *with = opt.nbefore != 0 ? &before : NULL;

        if (opt.form == HTML)
            view_html(stdout, &run, with);
        else if (opt.form == TEXT)
            view_text(stdout, &run, with);
        else if (!view_json(stdout, &run, with))
            status = fail(argv[0], "the JSON could not be written");
    }
    observed_free(before.seen);
    observed_free(run.seen);
    free(opt.before);
    free(opt.after);
    return status;
}
