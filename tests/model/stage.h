/* SPDX-License-Identifier: MIT */
/*
 * The stage: what a model process sets up once and uses for all its histories (buffers, scratch
 * files, a decoy, the shared trace, the outside auditor, what the file system can do), and the
 * running of one history on it.
 */
#ifndef MODEL_STAGE_H
#define MODEL_STAGE_H

#include "check.h"
#include "perform.h"

struct stage {
    char dir[400], self[512];
    struct arena *arena;
    int arena_fd;
    char decoy_path[512];
    int decoy_fd;
    unsigned char decoy[DECOY_BYTES];
    int auditor; /* socket */
    pid_t auditor_pid;
    unsigned char *buf[PLAN_THREADS + 1][2];
    int scratch[PLAN_THREADS + 1];
    bool can_direct, can_zero, can_copy, can_tmpfile, punch_moves_mtime, reads_are_whole,
        unlocked_are_checked;
    uint64_t histories, calls, reads, bytes_checked, undecided, full, forks;
    char fs[16];
};

enum outcome { OUTCOME_GOOD, OUTCOME_BAD, OUTCOME_FULL };

/* 0, or -1 with one line on stderr. Returns 1 if the directory cannot punch at all. */
int stage_open(struct stage *st, const char *dir, const char *self);
void stage_close(struct stage *st);

/* Runs the plan once; the trace of a bad one stays in *t until the next run. */
enum outcome stage_run(struct stage *st, const struct plan *p, struct trace *t, struct finding *f);

/* Prints the finding and the calls that touch its bytes, in order of their beginning. */
void explain(FILE *out, const struct plan *p, const struct trace *t, const struct finding *f);

/* Makes a failing plan smaller while it still fails within `tries` runs; at most `seconds`. */
void shrink(struct stage *st, struct plan *p, int tries, int seconds);

#endif
