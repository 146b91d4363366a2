/* SPDX-License-Identifier: MIT */
/*
 * cmd_stat: rlshim stat: reads the live counters of DIR/rlshim-PID.stats.
 *
 * Reads rather than maps: a file that is cut short while we look must not kill us.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../stats.h"
#include "../text.h"
#include "cmd.h"

/* 0, or a reason. */
static const char *read_page(const char *path, struct stats_page *page)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t n;

    if (fd < 0)
        return strerror(errno);
    n = read(fd, page, sizeof *page);
    close(fd);
    if (n < 0)
        return strerror(errno);
    if ((size_t)n < offsetof(struct stats_page, value) || page->magic != STATS_MAGIC)
        return "it does not hold rlshim's counters";
    if (page->version != STATS_VERSION || page->counters != STAT_COUNT ||
        page->reasons != WHY_COUNT || page->bytes != sizeof *page)
        return "it was written by another version of rlshim; use that version's command";
    if ((size_t)n < sizeof *page)
        return "it is cut short";
    page->program[sizeof page->program - 1] = '\0';
    return NULL;
}

static void format(enum stat_id id, uint64_t n, char *buf, size_t size)
{
    const char *name = stat_name(id);
    size_t len = strlen(name);
    struct cfg_text t = cfg_text_in(buf, size);

    if (len > 3 && strcmp(name + len - 3, "_ns") == 0)
        text_time(&t, n);
    else if (len > 6 && strcmp(name + len - 6, "_bytes") == 0)
        text_size(&t, n);
    else
        text_grouped(&t, n);
}

static bool alive(uint32_t pid)
{
    return kill((pid_t)pid, 0) == 0 || errno == EPERM;
}

static void print_all_counters(const struct stats_page *page)
{
    char value[64];
    bool any = false;

    printf("%s, process %u\n", page->program, page->pid);
    for (int i = 0; i < STAT_COUNT; i++) {
        if (page->value[i] == 0)
            continue;
        format((enum stat_id)i, page->value[i], value, sizeof value);
        printf("%14s  %-24s %s\n", value, stat_name((enum stat_id)i), stat_help((enum stat_id)i));
        any = true;
    }
    for (int i = 0; i < WHY_COUNT; i++) {
        if (page->settled[i] == 0)
            continue;
        printf("%14llu  settled.%-16s applied early: %s\n", (unsigned long long)page->settled[i],
               why_name((enum why)i), why_help((enum why)i));
        any = true;
    }
    if (!any)
        puts("  nothing counted yet");
}

/* The columns of the interval form. */
static const struct {
    const char *title;
    enum stat_id id;
} columns[] = {
    {"punches", STAT_punch_calls},
    {"deferred", STAT_punch_deferred},
    {"applied", STAT_punch_applied_bytes},
    {"pieces", STAT_write_pieces},
    {"waits", STAT_gate_waited},
    {"waited", STAT_gate_wait_ns},
    {"settles", STAT_settles},
    {"waited", STAT_settle_wait_ns},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void print_titles(void)
{
    for (int i = 0; i < COLUMNS; i++)
        printf("%11s", columns[i].title);
    putchar('\n');
}

static void print_changes(const struct stats_page *then, const struct stats_page *now)
{
    for (int i = 0; i < COLUMNS; i++) {
        char value[64];

        format(columns[i].id, now->value[columns[i].id] - then->value[columns[i].id], value,
               sizeof value);
        printf("%11s", value);
    }
    putchar('\n');
    fflush(stdout);
}

static int watch(const char *path, const struct stats_page *first, double interval, uint64_t count)
{
    struct stats_page then = *first, now;
    struct timespec pause = {.tv_sec = (time_t)interval,
                             .tv_nsec = (long)((interval - (double)(time_t)interval) * 1e9)};

    print_titles();
    for (uint64_t i = 0; count == 0 || i < count; i++) {
        if (i != 0 && i % 20 == 0)
            print_titles();
        fflush(stdout);
        nanosleep(&pause, NULL);
        if (read_page(path, &now) != NULL || !alive(first->pid)) {
            printf("process %u has ended\n", first->pid);
            return EXIT_WORKED;
        }
        print_changes(&then, &now);
        if (ferror(stdout))
            return EXIT_FAILED;
        then = now;
    }
    return EXIT_WORKED;
}

static int by_pid(const struct dirent **a, const struct dirent **b)
{
    long x = atol((*a)->d_name + 7), y = atol((*b)->d_name + 7);

    return (x > y) - (x < y);
}

static int is_counters(const struct dirent *d)
{
    size_t len = strlen(d->d_name);

    return len > 13 && strncmp(d->d_name, "rlshim-", 7) == 0 &&
           strcmp(d->d_name + len - 6, ".stats") == 0;
}

static int list(const char *cmd, const char *dir)
{
    struct dirent **names;
    int n = scandir(dir, &names, is_counters, by_pid);
    int status = EXIT_WORKED;

    if (n < 0)
        return fail(cmd, "%s: %s", dir, strerror(errno));
    if (n == 0)
        printf("no program runs with stats = %s\n", dir);
    else
        printf("%8s  %-16s %12s %12s %12s %12s\n", "PID", "PROGRAM", "PUNCHES", "DEFERRED",
               "PIECES", "SETTLES");
    for (int i = 0; i < n; i++) {
        struct stats_page page;
        char path[8192];
        const char *bad;

        snprintf(path, sizeof path, "%s/%s", dir, names[i]->d_name);
        bad = read_page(path, &page);
        if (bad != NULL)
            status = fail(cmd, "%s: %s", path, bad);
        else
            printf("%8u  %-16.16s %12llu %12llu %12llu %12llu%s\n", page.pid, page.program,
                   (unsigned long long)page.value[STAT_punch_calls],
                   (unsigned long long)page.value[STAT_punch_deferred],
                   (unsigned long long)page.value[STAT_write_pieces],
                   (unsigned long long)page.value[STAT_settles],
                   alive(page.pid) ? "" : "  (was killed; its file may be removed)");
        free(names[i]);
    }
    free(names);
    return status;
}

/* --dir, then what the library would take. */
static const char *directory(const char *given)
{
    static struct settings s;
    const struct loaded *l;

    if (given != NULL)
        return given;
    l = load_config(environ);
    if (l->bad)
        return NULL;
    cfg_settings(&l->config, NULL, NULL, &s);
    return s.stats_path[0] != '\0' ? s.stats_path : NULL;
}

int cmd_stat(int argc, char **argv)
{
    const char *cmd = argv[0], *dir = NULL, *reason;
    bool all = false;
    uint64_t pid = 0, count = 0;
    double interval = 0;
    struct stats_page page;
    char path[8192], *end;
    int i = 1;

    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--all") == 0)
            all = true;
        else if (strcmp(argv[i], "--dir") == 0 && i + 1 < argc)
            dir = argv[++i];
        else
            return misuse(cmd, "'%.80s' is not an option, or needs a value", argv[i]);
    }
    if (all ? i != argc : i == argc || argc - i > 3)
        return misuse(cmd, "it takes a PID, or --all");
    if (!all && (!parse_number(argv[i], INT32_MAX, &pid) || pid == 0))
        return misuse(cmd, "'%.80s' is not a process number", argv[i]);
    if (argc - i > 1) {
        interval = strtod(argv[i + 1], &end);
        if (*end != '\0' || end == argv[i + 1] || !(interval >= 0.001 && interval <= 86400))
            return misuse(cmd, "'%.80s' is not a number of seconds", argv[i + 1]);
    }
    if (argc - i > 2 && (!parse_number(argv[i + 2], UINT64_MAX, &count) || count == 0))
        return misuse(cmd, "'%.80s' is not a number of lines", argv[i + 2]);
    dir = directory(dir);
    if (dir == NULL)
        return fail(cmd, "no directory with counters is known; start programs with stats = "
                         "DIRECTORY and name it here with --dir DIRECTORY");
    if (all)
        return list(cmd, dir);
    snprintf(path, sizeof path, "%s/rlshim-%u.stats", dir, (unsigned)pid);
    reason = read_page(path, &page);
    if (reason != NULL)
        return fail(cmd, "%s: %s%s", path, reason,
                    access(path, F_OK) != 0 ? "; does the program run with rlshim and stats = this "
                                              "directory? 'rlshim stat --all' lists those that do"
                                            : "");
    if (interval == 0) {
        print_all_counters(&page);
        return EXIT_WORKED;
    }
    return watch(path, &page, interval, count);
}
