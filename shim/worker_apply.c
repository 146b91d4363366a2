/* SPDX-License-Identifier: MIT */
/*
 * worker_apply: what the worker thread does to files, and what becomes of punches that fail. Rules
 * as in worker_loop.c: no libc beyond mem* and str*, no thread-local variable, no lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "evidence.h"
#include "log.h"
#include "ring.h"
#include "worker_impl.h"
#include "zeros.h"

#define RETRY_NS        100000000u /* after a punch that could not be applied */
#define URGENT_RETRY_NS 10000000u  /* the same while somebody waits for it */
#define TRIES_MAX       10

static bool have_ring;

void worker_apply_forked(void)
{
    have_ring = false;
}

void worker_apply_starts(void)
{
    have_ring = ring_open();
    if (!have_ring)
        stat_add(STAT_ring_refused, 1);
}

void worker_apply_ends(void)
{
    ring_close();
    have_ring = false;
}

static void punch_failed(struct job *job, long error)
{
    if (zeros_write(job->fd, job->span.start, job->span.end) == 0) {
        stat_add(STAT_punch_zeroed, 1);
        rl_drain_applied(&job->inode->table, &proc.arena->pool, &job->span);
        job->tries = 0;
    } else if (++job->tries >= TRIES_MAX) {
        stat_add(STAT_punch_dropped, 1);
        if (!job->told) /* once a file */
            log_line(CFG_LOG_ERROR, LOG_S("a hole punch answered earlier could not be applied ("),
                     LOG_ERRNO(-error), LOG_S("): inode "), LOG_ID(job->ino), LOG_S(", bytes "),
                     LOG_ID(job->span.start), LOG_S(" to "), LOG_ID(job->span.end),
                     LOG_S(" may hold old data; set punch = sync for this file"));
        job->told = true;
        rl_drain_applied(&job->inode->table, &proc.arena->pool, &job->span);
    } else {
        stat_add(STAT_punch_postponed, 1);
        rl_drain_postponed(&job->inode->table, &proc.arena->pool, &job->span);
        job->retry_ns = rl_now_ns() + (job->urgent ? URGENT_RETRY_NS : RETRY_NS);
        job->postponed = true;
    }
    rl_store_32(&job->fs->never, STAT_punch_no_fs); /* this file does not take late punches */
    rl_table_close(&job->inode->table, rl_load_32(&job->inode->table.act));
}

/* btrfs leaves the times alone when it is asked to punch what is a hole already; but a stat may
 * have shown them moved while the punch was queued, and they must not go back. */
static void move_times(struct job *job)
{
    static const struct timespec now[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
    uint64_t queued_ns = rl_load_64(&job->fs->queued_at_ns);
    struct stat st;

    if (rl_raw(SYS_fstat, job->fd, &st) == 0 &&
        (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec < queued_ns &&
        rl_raw(SYS_utimensat, job->fd, NULL, now, 0) != 0)
        job->fs->stat_mode = CFG_STAT_SETTLE; /* not the owner: show what is there */
}

static void punched(struct job *job, long result)
{
    if (job->inside)
        rl_gate_leave_exclusive(&job->inode->gate, job->ticket);
    job->inside = false;
    job->out = false;
    stat_add(STAT_punch_applied_calls, 1);
    if (result != 0) {
        punch_failed(job, result);
        return;
    }
    stat_add(STAT_punch_applied_bytes, job->span.end - job->span.start);
    if (job->fs->kind == FILE_KIND_BTRFS + 1)
        move_times(job);
    job->tries = 0;
    rl_drain_applied(&job->inode->table, &proc.arena->pool, &job->span);
}

static long plain_punch(const struct job *job)
{
    long r;

    while ((r = rl_raw(SYS_fallocate, job->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       job->span.start, job->span.end - job->span.start)) == -EINTR)
        ;
    stat_add(STAT_plain_calls, 1);
    return r;
}

void worker_apply(struct job *const *ready, int n)
{
    struct ring_punch punch[RING_BATCH];

    for (int i = 0; i < n; i++)
        punch[i] = (struct ring_punch){.fd = ready[i]->fd,
                                       .off = (off_t)ready[i]->span.start,
                                       .len = (off_t)(ready[i]->span.end - ready[i]->span.start),
                                       .result = 1};
    if (have_ring && ring_run(punch, n)) {
        stat_add(STAT_ring_calls, (uint64_t)n);
        stat_add(STAT_ring_submissions, 1);
    } else if (have_ring) {
        ring_close();
        have_ring = false;
    }
    for (int i = 0; i < n; i++) {
        if (punch[i].result == 1 || punch[i].result == -EINTR || punch[i].result == -EAGAIN)
            punch[i].result = (int)plain_punch(ready[i]);
        punched(ready[i], punch[i].result);
    }
}
