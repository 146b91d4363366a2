/* SPDX-License-Identifier: MIT */
/* bench_table: what `rlshim bench` measured, and what it means; see bench.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../text.h"
#include "bench.h"
#include "cmd.h"

#define MS 1e6

const char *const bench_job_name[BENCH_JOBS] = {
    [BENCH_READS] = "reads beside hole punches and big direct appends to the file",
    [BENCH_DELETE] = "deleting a large file that is not in memory",
    [BENCH_COMMIT] = "16 threads that append to one file and sync it",
    [BENCH_BURST] = "a small synced append beside large buffered writes",
    [BENCH_REOPEN] = "O_TRUNC on files that are empty already",
    [BENCH_CREATE] = "16 threads that open the same 20 names with O_CREAT",
};

const struct bench_metric bench_metrics[BENCH_METRICS] = {
    {BENCH_READS, "stalled", "time in reads of 5 ms and more", BENCH_LESS, BENCH_SHARE, true, 0.02},
    {BENCH_READS, "worst_read", "longest read", BENCH_LESS, BENCH_NS, false, 0},
    {BENCH_READS, "punches", "punches a second", BENCH_MORE, BENCH_RATE, false, 0},
    {BENCH_READS, "appended", "appended", BENCH_MORE, BENCH_MIB_S, false, 0},
    {BENCH_DELETE, "unlink", "unlink", BENCH_LESS, BENCH_NS, true, 2 * MS},
    {BENCH_DELETE, "rename", "rename over it", BENCH_LESS, BENCH_NS, true, 2 * MS},
    {BENCH_DELETE, "close", "last close, the name being gone", BENCH_LESS, BENCH_NS, true, 2 * MS},
    {BENCH_COMMIT, "commits", "commits a second", BENCH_MORE, BENCH_RATE, true, 0},
    {BENCH_COMMIT, "worst_commit", "longest commit", BENCH_LESS, BENCH_NS, false, 0},
    {BENCH_BURST, "worst_append", "longest append and sync", BENCH_LESS, BENCH_NS, true, 20 * MS},
    {BENCH_REOPEN, "reopens", "create, reopen, write, delete: a second", BENCH_MORE, BENCH_RATE,
     true, 0},
    {BENCH_CREATE, "opens", "opens a second", BENCH_MORE, BENCH_RATE, true, 0},
    {BENCH_CREATE, "worst_open", "longest open", BENCH_LESS, BENCH_NS, false, 0},
};

static const char *const setting_of[BENCH_JOBS] = {
    [BENCH_READS] = "gate, split",      [BENCH_DELETE] = "evict",    [BENCH_COMMIT] = "fsync",
    [BENCH_BURST] = "writeback_window", [BENCH_REOPEN] = "truncate", [BENCH_CREATE] = "create",
};

/* Times and shares: the worst of the turns, since it is the worst that hurts; rates: the mean. */
static double value(const struct bench_result *r, int after, int metric)
{
    double sum = 0, most = 0;

    for (unsigned i = 0; i < r->turns[after]; i++) {
        double v = r->value[after][metric][i];

        sum += v;
        most = v > most ? v : most;
    }
    return bench_metrics[metric].unit == BENCH_NS ? most : sum / r->turns[after];
}

static void format(char *buf, size_t n, enum bench_unit unit, double v)
{
    struct cfg_text t = cfg_text_in(buf, n);

    if (unit == BENCH_NS)
        text_time(&t, (uint64_t)v);
    else if (unit == BENCH_SHARE)
        snprintf(buf, n, "%.1f %%", v * 100);
    else if (unit == BENCH_MIB_S)
        snprintf(buf, n, "%.0f MiB/s", v);
    else
        text_grouped(&t, (uint64_t)(v + 0.5));
}

/* How many times better it became; below 1: worse. */
static double gain(const struct bench_metric *m, double before, double after)
{
    double small = m->unit == BENCH_NS ? 1e4 : m->unit == BENCH_SHARE ? 0.001 : 1e-9;

    before = before > small ? before : small;
    after = after > small ? after : small;
    return m->way == BENCH_LESS ? before / after : after / before;
}

static void print_metric(const struct bench_result *r, int metric)
{
    const struct bench_metric *m = &bench_metrics[metric];
    char before[64], after[64], change[64];
    double times = gain(m, value(r, 0, metric), value(r, 1, metric));

    format(before, sizeof before, m->unit, value(r, 0, metric));
    format(after, sizeof after, m->unit, value(r, 1, metric));
    if (times > 0.8 && times < 1.25)
        snprintf(change, sizeof change, "the same");
    else if (times >= 1000 || times <= 0.001)
        snprintf(change, sizeof change, "> 999 x %s",
                 (times > 1) == (m->way == BENCH_MORE) ? "more" : "less");
    else
        snprintf(change, sizeof change, times >= 9.95 || times <= 0.1 ? "%.0f x %s" : "%.1f x %s",
                 times > 1 ? times : 1 / times,
                 (times > 1) == (m->way == BENCH_MORE) ? "more" : "less");
    printf("  %-40s%12s%12s  %s\n", m->text, before, after, change);
}

/* Do all turns of one kind lie on one side of all of the other? */
static bool apart(const struct bench_result *r, int metric)
{
    double low[2] = {INFINITY, INFINITY}, high[2] = {0, 0};

    for (int after = 0; after < 2; after++)
        for (unsigned i = 0; i < r->turns[after]; i++) {
            low[after] = fmin(low[after], r->value[after][metric][i]);
            high[after] = fmax(high[after], r->value[after][metric][i]);
        }
    return low[0] > high[1] || low[1] > high[0];
}

struct verdict_of {
    bool shows;         /* there is something to cure */
    bool doubt;         /* the turns disagree about a change */
    double best, worst; /* that became of what the verdict goes by */
};

static struct verdict_of judge(const struct bench_result *r, int job)
{
    struct verdict_of v = {.worst = INFINITY};

    for (int i = 0; i < BENCH_METRICS; i++) {
        const struct bench_metric *m = &bench_metrics[i];
        double times;

        if ((int)m->job != job || !m->main)
            continue;
        if (m->way == BENCH_LESS && value(r, 0, i) < m->worth && value(r, 1, i) < m->worth)
            continue;
        v.shows = true;
        times = gain(m, value(r, 0, i), value(r, 1, i));
        if (!apart(r, i) && (times < 0.8 || times >= 1.25)) {
            v.doubt = true;
            times = 1;
        }
        v.best = fmax(times, v.best);
        v.worst = fmin(times, v.worst);
    }
    return v;
}

/* What got worse beside it. */
static void print_price(const struct bench_result *r, int job)
{
    const char *before = "; its price:";

    for (int i = 0; i < BENCH_METRICS; i++) {
        const struct bench_metric *m = &bench_metrics[i];
        double times;

        if ((int)m->job != job || m->main)
            continue;
        times = gain(m, value(r, 0, i), value(r, 1, i));
        if (times >= 0.8)
            continue;
        printf("%s %s %.0f %% %s", before, m->text,
               100 * (m->way == BENCH_MORE ? 1 - times : 1 / times - 1),
               m->way == BENCH_MORE ? "less" : "longer");
        before = ",";
    }
}

static void print_meaning(const struct bench_result *r, int job, bool known_fs)
{
    struct verdict_of v = judge(r, job);

    if (r->acted == 0)
        printf("  -> rlshim did nothing here (%s)%s\n", setting_of[job],
               known_fs ? "" : ": not on this file system");
    else if (!v.shows)
        printf("  -> not a stall on this disk: nothing to take away (%s)\n", setting_of[job]);
    else if (v.worst < 0.8)
        printf("  -> WORSE with rlshim here: consider switching it off (%s)\n", setting_of[job]);
    else if (v.best >= 1.25) {
        printf("  -> helps here (%s)", setting_of[job]);
        print_price(r, job);
        putchar('\n');
    } else if (v.doubt)
        printf("  -> cannot be told: the turns disagree; try a quieter moment (%s)\n",
               setting_of[job]);
    else
        printf("  -> does not help here (%s)\n", setting_of[job]);
}

void bench_print(const struct bench_result result[BENCH_JOBS], bool known_fs)
{
    printf("\n%-42s%12s%12s\n", "", "without", "with rlshim");
    for (int job = 0; job < BENCH_JOBS; job++) {
        const struct bench_result *r = &result[job];

        puts(bench_job_name[job]);
        if (r->why_not[0] != '\0' || r->turns[0] == 0 || r->turns[1] == 0) {
            printf("  not measured: %s\n", r->why_not[0] != '\0' ? r->why_not : "no time was left");
            continue;
        }
        for (int i = 0; i < BENCH_METRICS; i++)
            if ((int)bench_metrics[i].job == job)
                print_metric(r, i);
        print_meaning(r, job, known_fs);
    }
    puts("\n"
         "Times are the worst of two turns each way, rates and shares their mean, in the\n"
         "order without, with, with, without. Another run on a busy disk may differ by\n"
         "half. In brackets: the setting in rlshim.conf. What a program of yours gains is\n"
         "told by 'rlshim observe -- PROGRAM' and 'rlshim report'.");
}
