/* SPDX-License-Identifier: MIT */
/*
 * Performing one step of a plan: the libc call, and the record of it in the trace.
 *
 * Only ordinary libc calls; this program does not know whether anything sits between it and the
 * kernel. A forked child performs steps too, so nothing here allocates or uses stdio.
 */
#ifndef MODEL_PERFORM_H
#define MODEL_PERFORM_H

#include "plan.h"
#include "trace.h"

#include <pthread.h>
#include <sys/types.h>

enum { DECOY_BYTES = 64 << 10, KIDS_MAX = 4 };

/* One history's file and its surroundings, shared by all actors. */
struct subject {
    const struct plan *plan;
    struct arena *arena;
    int arena_fd;
    char path[512];
    const char *self; /* this program, for starting helpers */
    int base_fd;      /* -1 once dropped */
    int shared_fd;    /* one description whose position all threads share, under shared_lock */
    bool shared_direct;
    pthread_mutex_t shared_lock;
    int stream_fd; /* see streams.c */
    char stream_path[512];
    const char *decoy_path;
    int decoy_fd;
    const unsigned char *decoy; /* its DECOY_BYTES bytes, which nothing may change */
    bool whole_reads;           /* XFS, buffered only: see check.h */
    /* Reads that take no lock of the inode: mappings, and copies inside the kernel. Not on XFS:
     * there (6.18) they see a whole page of zeros while another call zeroes or punches a part of
     * that page; seen without the library, by replaying a plan. */
    bool checks_unlocked;
};

struct actor {
    struct subject *subject;
    unsigned lane;
    int fd[PLAN_SLOTS];
    bool direct[PLAN_SLOTS];
    unsigned char *wbuf, *rbuf; /* IO_MAX bytes each, page aligned */
    int scratch;                /* a file of its own in the same directory, for copies */
    pid_t kid[KIDS_MAX];
    unsigned kids;
};

/* Performs the step and returns how many steps it took up: a fork takes its child's along. */
unsigned perform(struct actor *a, const struct step *s, unsigned left);

/* Waits for forked children; their failures go into the trace. */
void perform_reap(struct actor *a);

/* The stream file holds what was written, whole and in order: NULL, or what is wrong. */
const char *stream_check(const struct subject *f, const struct trace *t, unsigned char *buf);

/* Signal handlers that use the file: from signals_start to signals_stop the caller's ticks send
 * them to the threads that have called signals_join. */
bool signals_start(struct subject *f);
void signals_join(struct subject *f, unsigned thread);
void signals_tick(pthread_t thread);
void signals_stop(void);

/* Opens the subject once more, by name if `by_name`, else through /proc/self/fd of `of`. */
int subject_open(const struct subject *f, int of, bool by_name, int flags);

/* The body of a started reader: reads and fills in the record that its parent began. */
void reader_fill(struct arena *arena, struct op *o, int fd, unsigned char *buf);

#endif
