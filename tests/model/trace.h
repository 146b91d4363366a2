/* SPDX-License-Identifier: MIT */
/*
 * A trace: what the threads and processes of one history did to the file and what they saw.
 *
 * It lives in a memfd, so that forked children, started programs and the outside auditor write into
 * the same trace and draw from the same ticket counter. A lane is one sequential actor (a thread, a
 * forked child); only that actor writes its lane, and a record counts once `nops` covers it.
 * `inv` and `res` are tickets drawn right before and right after the call: a call precedes another
 * in real time exactly when its `res` is smaller than the other's `inv`.
 */
#ifndef MODEL_TRACE_H
#define MODEL_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRACE_LANES = 20,       /* main, six threads, forked children */
    TRACE_OPS = 160,        /* a lane */
    TRACE_RUNS = 1 << 16,   /* all reads of a history together */
    TRACE_RUNS_READ = 4096, /* one read; an honest one has a few dozen */
};

/* What a call does to the model. The names of the calls themselves are in plan.h. */
enum effect {
    EFFECT_NONE,      /* fsync, dup, close, ...: only its error counts */
    EFFECT_WRITE,     /* [off, off+len) become `id`; a gap below becomes zero */
    EFFECT_APPEND,    /* the same, and the file ended at `off` at that moment */
    EFFECT_ZERO,      /* [off, off+len) become zero, the size stays: punch, zero range keep size */
    EFFECT_ZERO_GROW, /* zero range without keep size */
    EFFECT_GROW,      /* fallocate mode 0: the size becomes at least off+len */
    EFFECT_TRUNCATE,  /* the size becomes `off` */
    EFFECT_READ,      /* saw `runs`; with `eof` nothing exists from the last run's end to off+len */
    EFFECT_SIZE,      /* saw the size `off`, and times if mtime_ns is not 0 */
};

enum { SPLIT_BYTES = 256 << 10, PIECE_BYTES = 64 << 10 };

enum { ERR_DECOY = 10001, ERR_POSITION, ERR_CONTENT, ERR_HELPER };

struct run {
    int64_t off;
    uint32_t len;
    uint16_t id; /* 0: zero bytes */
};

struct op {
    uint64_t inv, res;
    int64_t off, len, ret;
    int64_t wall_inv_ns, wall_res_ns; /* CLOCK_REALTIME_COARSE around the call */
    int64_t mtime_ns, ctime_ns;
    uint32_t run, runs;
    int32_t err;
    uint8_t effect, call, lane, id;
    bool eof;
    bool pieces; /* a WRITE that may land in pieces: direct, from SPLIT_BYTES up, see check.c */
    bool whole;  /* a READ that this file system must make whole, see check.h */
};

struct arena {
    _Atomic uint64_t ticket;
    _Atomic uint32_t runs_used;
    _Atomic uint32_t lanes_used;
    uint64_t nonce;
    _Atomic uint32_t nops[TRACE_LANES];
    struct op ops[TRACE_LANES][TRACE_OPS];
    struct run runs[TRACE_RUNS];
};

/* What the checkers read: hand-made in unit tests, taken from an arena otherwise. Operations of
 * one lane stand in program order. */
struct trace {
    const struct op *ops[TRACE_LANES * TRACE_OPS];
    size_t nops;
    const struct run *runs;
};

void trace_from_arena(struct trace *t, struct arena *a);

#endif
