/* SPDX-License-Identifier: MIT */
/*
 * bench: the stalls of README on the user's own disk, before and after (rlshim bench DIR).
 *
 * cmd_bench.c decides how large things may be, starts each measurement as a process of its own with
 * or without the library, and cleans up. bench_work.c is what such a process does; it writes one
 * line a result, "NAME VALUE", to descriptor 1, and ends with 0, or with one line on stderr.
 * bench_table.c says what came of it. A process works only in the directory it is given.
 */
#ifndef SHIM_CMD_BENCH_H
#define SHIM_CMD_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each is one process's work. */
enum bench_job {
    BENCH_READS,  /* reads of a file in which others punch holes and which others extend */
    BENCH_DELETE, /* unlink, rename over, and the last close, of a large file */
    BENCH_COMMIT, /* many threads that append to one file and sync it */
    BENCH_BURST,  /* small synced appends beside large buffered ones */
    BENCH_REOPEN, /* truncating reopen of small files */
    BENCH_CREATE, /* many threads that open the same names with O_CREAT */
    BENCH_JOBS
};

enum bench_way { BENCH_LESS, BENCH_MORE }; /* is better */
enum bench_unit { BENCH_NS, BENCH_SHARE, BENCH_RATE, BENCH_MIB_S };

struct bench_metric {
    enum bench_job job;
    const char *name; /* of the line; no blanks */
    const char *text;
    enum bench_way way;
    enum bench_unit unit;
    bool main;    /* what the verdict goes by: one of each job at least */
    double worth; /* before must be this bad (good: at most) for there to be anything to cure */
};

#define BENCH_METRICS 13
extern const struct bench_metric bench_metrics[BENCH_METRICS];
extern const char *const bench_job_name[BENCH_JOBS];

#define BENCH_TURNS 2 /* of each kind: before, after, after, before */

struct bench_result {
    bool tried;
    char why_not[256];                           /* "" measured */
    double value[2][BENCH_METRICS][BENCH_TURNS]; /* [0 before, 1 after] */
    unsigned turns[2];
    double acted; /* what the counters of the library say that it did, in pieces */
};

/* What a process is told, as text in its arguments. */
struct bench_size {
    uint64_t bytes; /* that it may have on the disk */
    double seconds; /* about how long it may measure */
};

/* `rlshim bench-job JOB BYTES SECONDS` in the directory to work in; for cmd_bench.c only. */
int bench_job(int argc, char **argv);

/* Helpers of bench_work.c for bench_storm.c. */
double bench_now(void);
void bench_put(const char *name, double value);
int bench_end(const char *what);            /* one line with errno on stderr; the exit status */
void bench_count(const char *const *names); /* the sum of these counters as "acted" */

int bench_commit(const struct bench_size *size);
int bench_burst(const struct bench_size *size);
int bench_create(const struct bench_size *size);

/* The table and its meaning. set: the --set of the command line, for the last line. */
void bench_print(const struct bench_result result[BENCH_JOBS], bool known_fs);

#endif
