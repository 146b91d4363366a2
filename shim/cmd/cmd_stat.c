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
#include "args.h"
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

static uint64_t age_ns(uint64_t since_ns)
{
    struct timespec ts;
    uint64_t now;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    now = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
    return since_ns != 0 && now > since_ns ? now - since_ns : 0;
}

/* "3 ranges queued, the oldest for 2 ms; 1 deleted file of 2.0 GiB held, for 40 ms". False: nothing
 * is. */
static bool put_backlog(struct cfg_text *t, const struct stats_page *page)
{
    const uint64_t *g = page->gauge;

    if (g[GAUGE_punch_ranges] != 0) {
        text_grouped(t, g[GAUGE_punch_ranges]);
        cfg_text_add(t, g[GAUGE_punch_ranges] == 1 ? " range queued" : " ranges queued");
        if (g[GAUGE_punch_since_ns] != 0) {
            cfg_text_add(t, ", the oldest for ");
            text_time(t, age_ns(g[GAUGE_punch_since_ns]));
        }
    }
    if (g[GAUGE_held_files] != 0) {
        cfg_text_add(t, t->len != 0 ? "; " : "");
        text_grouped(t, g[GAUGE_held_files]);
        cfg_text_add(t, g[GAUGE_held_files] == 1 ? " deleted file of " : " deleted files of ");
        text_size(t, g[GAUGE_held_bytes]);
        cfg_text_add(t, " held, some for ");
        text_time(t, age_ns(g[GAUGE_held_since_ns]));
    }
    return t->len != 0;
}

static bool alive(uint32_t pid)
{
    return kill((pid_t)pid, 0) == 0 || errno == EPERM;
}

static void print_all_counters(const struct stats_page *page)
{
    char value[64], text[512];
    struct cfg_text t = cfg_text_in(text, sizeof text);
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
    if (put_backlog(&t, page))
        printf("  now: %s\n", text);
}

/* --- intervals --- */

/* 1234 or 1.23M: no more than 7 characters. */
static void short_count(uint64_t n, char *buf, size_t size)
{
    static const char unit[] = "kMGTPE";
    double v = (double)n;
    int u = -1;

    for (; v >= 99999.5 || (u >= 0 && v >= 999.5); u++)
        v /= 1000;
    if (u < 0)
        snprintf(buf, size, "%.0f", v);
    else
        snprintf(buf, size, v < 9.995 ? "%.2f%c" : v < 99.95 ? "%.1f%c" : "%.0f%c", v, unit[u]);
}

/* Changes of counters, then what there is. */
static const struct {
    const char *title;
    enum stat_id id;
} columns[] = {
    {"punches", STAT_punch_calls}, {"deferred", STAT_punch_deferred}, {"pieces", STAT_write_pieces},
    {"gated", STAT_gate_waited},   {"waited", STAT_gate_wait_ns},     {"settles", STAT_settles},
    {"shared", STAT_flush_shared}, {"deleted", STAT_evict_files},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void print_titles(bool named)
{
    if (named)
        printf("%-15s ", "program");
    for (int i = named ? 1 : 0; i < COLUMNS - (named ? 1 : 0); i++)
        printf("%9s", columns[i].title);
    puts(named ? "   queued" : "");
}

static void print_changes(const struct stats_page *then, const struct stats_page *now, bool named)
{
    char value[96];

    if (named) {
        snprintf(value, sizeof value, "%u %s", now->pid, now->program);
        printf("%-15.15s ", value);
    }
    for (int i = named ? 1 : 0; i < COLUMNS - (named ? 1 : 0); i++) {
        uint64_t was = then != NULL ? then->value[columns[i].id] : 0;
        uint64_t n = now->value[columns[i].id] - was;

        if (columns[i].id == STAT_gate_wait_ns)
            format(columns[i].id, n, value, sizeof value);
        else
            short_count(n, value, sizeof value);
        printf("%9s", value);
    }
    if (named) {
        short_count(now->gauge[GAUGE_punch_ranges], value, sizeof value);
        printf("%9s", value);
    }
    putchar('\n');
}

/* What is queued and held, under the line of changes, if there is anything. */
static void print_backlog(const struct stats_page *page)
{
    char text[512];
    struct cfg_text t = cfg_text_in(text, sizeof text);

    if (put_backlog(&t, page))
        printf("          %s\n", text);
}

static void sleep_for(double seconds)
{
    struct timespec pause = {.tv_sec = (time_t)seconds,
                             .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

    nanosleep(&pause, NULL);
}

static int watch(const char *path, const struct stats_page *first, double interval, uint64_t count)
{
    struct stats_page then = *first, now;

    print_titles(false);
    for (uint64_t i = 0; count == 0 || i < count; i++) {
        if (i != 0 && i % 20 == 0)
            print_titles(false);
        fflush(stdout);
        sleep_for(interval);
        if (read_page(path, &now) != NULL || !alive(first->pid)) {
            printf("process %u has ended\n", first->pid);
            return EXIT_WORKED;
        }
        print_changes(&then, &now, false);
        print_backlog(&now);
        fflush(stdout);
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

/* Whatever is done with each program's page, in the order of their numbers. */
struct each {
    struct stats_page *then; /* of the round before, by place in the list; NULL: none yet */
    int nthen;
    unsigned shown;
};

static const struct stats_page *page_before(const struct each *e, const struct stats_page *page)
{
    for (int i = 0; i < e->nthen; i++)
        if (e->then[i].pid == page->pid && e->then[i].started_ns == page->started_ns)
            return &e->then[i];
    return NULL;
}

/* One round over all programs; -1: the directory cannot be read. */
static int round_of(const char *cmd, const char *dir, struct each *e,
                    void (*show)(const struct stats_page *then, const struct stats_page *now),
                    int *status)
{
    struct dirent **names;
    int n = scandir(dir, &names, is_counters, by_pid);
    struct stats_page *now = n >= 0 ? calloc((size_t)n + 1, sizeof *now) : NULL;
    int have = 0;

    if (n < 0 || now == NULL)
        return -1;
    e->shown = 0;
    for (int i = 0; i < n; i++) {
        char path[8192];
        const char *bad;

        snprintf(path, sizeof path, "%s/%s", dir, names[i]->d_name);
        bad = read_page(path, &now[have]);
        free(names[i]);
        if (bad != NULL) {
            if (access(path, F_OK) == 0 || e->then == NULL)
                *status = fail(cmd, "%s: %s", path, bad);
            continue;
        }
        if (e->then != NULL && !alive(now[have].pid))
            continue;
        show(page_before(e, &now[have]), &now[have]);
        e->shown++;
        have++;
    }
    free(names);
    free(e->then);
    e->then = now;
    e->nthen = have;
    return n;
}

static void show_line(const struct stats_page *then, const struct stats_page *now)
{
    char program[80];
    struct cfg_text t = cfg_text_in(program, sizeof program);

    (void)then;
    text_safe(&t, now->program, strlen(now->program));
    printf("%8u  %-16.16s %12llu %12llu %12llu %12llu%s\n", now->pid, program,
           (unsigned long long)now->value[STAT_punch_calls],
           (unsigned long long)now->value[STAT_punch_deferred],
           (unsigned long long)now->value[STAT_write_pieces],
           (unsigned long long)now->value[STAT_settles],
           alive(now->pid) ? "" : "  (was killed; its file may be removed)");
}

static void show_nothing(const struct stats_page *then, const struct stats_page *now)
{
    (void)then;
    (void)now;
}

static void show_changes(const struct stats_page *then, const struct stats_page *now)
{
    print_changes(then, now, true);
    print_backlog(now);
}

static int list(const char *cmd, const char *dir, double interval, uint64_t count)
{
    struct each e = {0};
    int status = EXIT_WORKED, n;

    if (interval == 0) {
        if (access(dir, R_OK | X_OK) == 0)
            printf("%8s  %-16s %12s %12s %12s %12s\n", "PID", "PROGRAM", "PUNCHES", "DEFERRED",
                   "PIECES", "SETTLES");
        n = round_of(cmd, dir, &e, show_line, &status);
        if (n == 0)
            printf("no program runs with stats = %s\n", dir);
        free(e.then);
        return n < 0 ? fail(cmd, "%s: %s", dir, strerror(errno)) : status;
    }
    n = round_of(cmd, dir, &e, show_nothing, &status);
    for (uint64_t i = 0; n >= 0 && (count == 0 || i < count); i++) {
        sleep_for(interval);
        print_titles(true);
        n = round_of(cmd, dir, &e, show_changes, &status);
        fflush(stdout);
        if (ferror(stdout))
            break;
    }
    free(e.then);
    return n < 0 ? fail(cmd, "%s: %s", dir, strerror(errno)) : status;
}

/* --- for collectors of metrics: Prometheus' text format, version 0.0.4 --- */

static void put_label(const char *s)
{
    char safe[256];
    struct cfg_text t = cfg_text_in(safe, sizeof safe);

    text_safe(&t, s, strlen(s));
    for (const char *p = safe; *p != '\0'; p++) {
        if (*p == '\\' || *p == '"')
            putchar('\\');
        putchar(*p);
    }
}

static void put_sample(const struct stats_page *page, const char *name, const char *suffix,
                       const char *reason, uint64_t n)
{
    printf("rlshim_%s%s{pid=\"%u\",program=\"", name, suffix, page->pid);
    put_label(page->program);
    if (reason != NULL)
        printf("\",reason=\"%s", reason);
    printf("\"} %llu\n", (unsigned long long)n);
}

static void put_metric(const char *name, const char *suffix, const char *type, const char *help)
{
    printf("# HELP rlshim_%s%s %s\n# TYPE rlshim_%s%s %s\n", name, suffix, help, name, suffix,
           type);
}

static void put_gauges(const struct stats_page *pages, int n)
{
    static const struct {
        const char *name, *help;
        enum gauge_id id;
        bool since;
    } gauges[] = {
        {"punch_queued_ranges", "ranges of hole punches that are queued", GAUGE_punch_ranges,
         false},
        {"punch_queued_oldest_ns", "for how long the oldest of them has been queued",
         GAUGE_punch_since_ns, true},
        {"held_files", "deleted files that are still to be freed", GAUGE_held_files, false},
        {"held_bytes", "their size on disk", GAUGE_held_bytes, false},
        {"held_ns", "since when some file has been held", GAUGE_held_since_ns, true},
    };

    for (size_t g = 0; g < sizeof gauges / sizeof *gauges; g++) {
        put_metric(gauges[g].name, "", "gauge", gauges[g].help);
        for (int i = 0; i < n; i++) {
            uint64_t v = pages[i].gauge[gauges[g].id];

            put_sample(&pages[i], gauges[g].name, "", NULL, gauges[g].since ? age_ns(v) : v);
        }
    }
}

static void put_prometheus(const struct stats_page *pages, int n)
{
    for (int id = 0; id < STAT_COUNT; id++) {
        bool peak = stat_is_peak((enum stat_id)id);
        const char *name = stat_name((enum stat_id)id), *suffix = peak ? "" : "_total";

        put_metric(name, suffix, peak ? "gauge" : "counter", stat_help((enum stat_id)id));
        for (int i = 0; i < n; i++)
            put_sample(&pages[i], name, suffix, NULL, pages[i].value[id]);
    }
    put_metric("settled", "_total", "counter", "times something queued was applied early");
    for (int why = 0; why < WHY_COUNT; why++)
        for (int i = 0; i < n; i++)
            put_sample(&pages[i], "settled", "_total", why_name((enum why)why),
                       pages[i].settled[why]);
    put_gauges(pages, n);
}

static int prometheus_all(const char *cmd, const char *dir)
{
    struct each e = {0};
    int status = EXIT_WORKED;
    int alive_ones = 0;

    if (round_of(cmd, dir, &e, show_nothing, &status) < 0)
        return fail(cmd, "%s: %s", dir, strerror(errno));
    for (int i = 0; i < e.nthen; i++)
        if (alive(e.then[i].pid))
            e.then[alive_ones++] = e.then[i];
    put_prometheus(e.then, alive_ones);
    free(e.then);
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

static struct {
    const char *dir;
    bool all, prometheus;
    char *word[4]; /* what is no option */
    int words;
} opt;

static int take(int key, char *value, void *to)
{
    (void)to;
    switch (key) {
    case 'a':
        opt.all = true;
        return 0;
    case 'd':
        opt.dir = value;
        return 0;
    case 'p':
        opt.prometheus = true;
        return 0;
    default:
        if (opt.words == 4)
            return misuse("stat", "it takes a PID, or --all");
        opt.word[opt.words++] = value;
        return 0;
    }
}

int cmd_stat(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {.name = "all", .key = 'a'},
        {.name = "dir", .key = 'd', .arg = "DIRECTORY"},
        {.name = "prometheus", .key = 'p'},
        {0},
    };
    const char *cmd = argv[0], *dir, *reason;
    uint64_t pid = 0, count = 0;
    double interval = 0;
    struct stats_page page;
    char path[8192], *end, **word = opt.word;
    int status = args_parse(argc, argv, options, take, NULL);
    int words;

    if (status >= 0)
        return status;
    words = opt.words;
    if (!opt.all && (words == 0 || words > 3))
        return misuse(cmd, "it takes a PID, or --all");
    if (!opt.all && (!parse_number(*word, INT32_MAX, &pid) || pid == 0))
        return misuse(cmd, "'%.80s' is not a process number", *word);
    if (!opt.all) {
        word++;
        words--;
    }
    if (words > 2 || (opt.prometheus && words > 0))
        return misuse(cmd, opt.prometheus ? "--prometheus prints once: it takes no INTERVAL"
                                          : "it takes an INTERVAL and a COUNT");
    if (words > 0) {
        interval = strtod(word[0], &end);
        if (*end != '\0' || end == word[0] || !(interval >= 0.001 && interval <= 86400))
            return misuse(cmd, "'%.80s' is not a number of seconds", word[0]);
    }
    if (words > 1 && (!parse_number(word[1], UINT64_MAX, &count) || count == 0))
        return misuse(cmd, "'%.80s' is not a number of lines", word[1]);
    dir = directory(opt.dir);
    if (dir == NULL)
        return fail(cmd, "no directory with counters is known; start programs with stats = "
                         "DIRECTORY and name it here with --dir DIRECTORY");
    if (opt.all)
        return opt.prometheus ? prometheus_all(cmd, dir) : list(cmd, dir, interval, count);
    snprintf(path, sizeof path, "%s/rlshim-%u.stats", dir, (unsigned)pid);
    reason = read_page(path, &page);
    if (reason != NULL)
        return fail(cmd, "%s: %s%s", path, reason,
                    access(path, F_OK) != 0 ? "; does the program run with rlshim and stats = this "
                                              "directory? 'rlshim stat --all' lists those that do"
                                            : "");
    if (opt.prometheus)
        put_prometheus(&page, 1);
    else if (interval == 0)
        print_all_counters(&page);
    else
        return watch(path, &page, interval, count);
    return EXIT_WORKED;
}
