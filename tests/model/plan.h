/* SPDX-License-Identifier: MIT */
/*
 * A plan: all that is decided about one history before it runs, from its seed alone.
 *
 * The schedule is the machine's, so the same plan gives many traces; shrinking and replaying run a
 * plan again and again. A plan is saved as text and loaded back, so a shrunken one can be kept.
 */
#ifndef MODEL_PLAN_H
#define MODEL_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    PLAN_THREADS = 6,
    PLAN_STEPS = 100, /* a thread */
    PLAN_ISLANDS = 4,
    PLAN_INITS = 8,
    PLAN_LASTS = 4,
    PLAN_SLOTS = 3, /* descriptors of a thread: own, second, append */
    BLOCK = 4096,
    IO_MAX = 2 << 20, /* the largest single read or write */
    STREAM_MAX = 256 << 10,
    ID_INIT = 1, /* the write that laid the file out; threads start at 2 */
    ID_MAX = 255,
};

/* One row each in plan.c; the names are those of --ops and of replay files. */
enum call {
    CALL_PREAD,
    CALL_PREADV,
    CALL_READ,
    CALL_READV,
    CALL_PWRITE,
    CALL_PWRITEV,
    CALL_WRITE,
    CALL_APPEND,
    CALL_PUNCH,
    CALL_ZERO,
    CALL_ALLOC,
    CALL_TRUNCATE,
    CALL_STAT,
    CALL_SEEKEND,
    CALL_FSYNC,
    CALL_FDATASYNC,
    CALL_MMAP,
    CALL_SENDFILE,
    CALL_COPY,
    CALL_REOPEN,
    CALL_DECOY,
    CALL_UNLINK,
    CALL_FORK,
    CALL_EXEC,
    CALL_SHARED,
    CALL_STREAM,
    CALL_FREAD,
    CALL_FWRITE,
    CALL_SPLICE,
    CALL_ADVISE,
    CALL_PAUSE,
    CALLS,
};

enum file_kind { FILE_NAMED, FILE_UNLINKED, FILE_TMPFILE, FILE_KINDS };
enum mode { MODE_BUFFERED, MODE_DIRECT, MODE_MIXED, MODES };

/* How the last phase hands the file to the outside auditor: each must settle what is queued. */
enum settle {
    SETTLE_FSYNC,
    SETTLE_FDATASYNC,
    SETTLE_SEEK,
    SETTLE_FLOCK,
    SETTLE_FCNTL,
    SETTLE_LOCKF,
    SETTLE_MMAP,
    SETTLE_CHMOD,
    SETTLE_UTIMES,
    SETTLE_SENDFD,
    SETTLE_CLOSE,
    SETTLES,
};

struct step {
    uint8_t call, slot, id, arg;
    int64_t off, len;
};

struct plan {
    uint64_t seed;
    uint8_t mode, kind, settle, threads;
    uint8_t islands, inits, lasts;
    bool drop_base;   /* the descriptor that made the file is closed once the threads have theirs */
    bool sync_init;   /* what was laid out is on disk before the threads start */
    bool unlink_late; /* FILE_UNLINKED: only after all opens, as the reported workload does */
    bool warm;        /* punch first and wait a little: evidence of sole use takes a moment */
    bool signals;     /* handlers that use the file interrupt the threads */
    bool check_late;  /* look again after a while: a late punch would move the times */
    uint8_t direct[PLAN_THREADS]; /* a bit per slot */
    int64_t base[PLAN_ISLANDS], island_len;
    struct step init[PLAN_INITS];
    struct step last[PLAN_LASTS]; /* punches right before the file is handed over */
    uint16_t steps[PLAN_THREADS];
    struct step step[PLAN_THREADS][PLAN_STEPS];
};

/* What the place offers and what the user asked for. */
struct wishes {
    int threads;    /* 0: any */
    int mode;       /* -1: any */
    int kind;       /* -1: any */
    uint32_t calls; /* a bit per call */
    bool can_direct, can_zero, can_copy, can_tmpfile;
};

void plan_make(struct plan *p, uint64_t seed, const struct wishes *w);
int plan_save(const struct plan *p, FILE *f);
int plan_load(struct plan *p, FILE *f);
const char *plan_call_name(unsigned call);
const char *plan_settle_name(unsigned settle);
uint32_t plan_calls_of(const char *list); /* 0 if a name is unknown */

#endif
