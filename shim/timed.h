/* SPDX-License-Identifier: MIT */
/*
 * timed: what an interposed call does to be timed. TIMED… stands before anything else in a
 * wrapper; the call is over at the end of the block, also when the thread is cancelled in it. A
 * siglongjmp out of it leaves the call uncounted.
 */
#ifndef SHIM_TIMED_H
#define SHIM_TIMED_H

#include <fcntl.h>

#include "observe.h"
#include "state.h"

/* The file behind a path, before the call. */
struct timed_before {
    uint64_t dev, ino, bytes, blocks_bytes;
    uint32_t major, minor, links;
    bool known;
};

struct timed {
    uint64_t start; /* in ticks; 0: not timed */
    enum act act;
    int fd;           /* -1: by path. An open's result goes here */
    int dirfd;        /* with path */
    const char *path; /* NULL: by descriptor */
    uint64_t amount;  /* bytes written, new size */
    uint32_t beside;  /* calls like this one, under way with it */
    uint32_t file;    /* index in the table of files; FILE_UNASKED until it is looked up */
    bool counted_in;  /* among those under way */
    struct timed_before before;
};

/* state_init, if calls are to be timed; false: no memory. */
bool observe_start(const struct settings *s);

/* report_observe.c: what was observed goes into the report. */
void observe_reports(void);

/* The constructor: what needs a libc that works. */
void observe_start_late(void);

/* In a forked child. */
void observe_forked(void);

/* Out of line. */
void timed_begin(struct timed *t, enum act act, int fd, int dirfd, const char *path,
                 uint64_t amount);
void timed_end(struct timed *t);

static inline void timed_over(struct timed *t)
{
    if (unlikely(t->start != 0))
        timed_end(t);
}

#define TIMED_AS(act, fd, dirfd, path, amount)                                                     \
    struct timed timed_ __attribute__((unused, cleanup(timed_over)));                              \
    timed_.start = 0;                                                                              \
    if (unlikely((state_word() & WORD_TIME) != 0))                                                 \
    timed_begin(&timed_, act, fd, dirfd, path, (uint64_t)(amount))

#define TIMED_FD(act, fd)                   TIMED_AS(act, fd, AT_FDCWD, NULL, 0)
#define TIMED_PATH(act, dirfd, path)        TIMED_AS(act, -1, dirfd, path, 0)
#define TIMED_CUT(act, fd, dirfd, path, to) TIMED_AS(act, fd, dirfd, path, to)

/* The descriptor that an open has made; returns it. */
#define TIMED_OPENED(result) (timed_.fd = (result))

/* An open, by what makes it slow. */
static inline enum act timed_open_act(int flags)
{
    if ((flags & O_TRUNC) != 0)
        return ACT_open_cut;
    return (flags & O_CREAT) != 0 ? ACT_open_create : ACT_open;
}
#define TIMED_OPEN(flags, dirfd, path)                                                             \
    TIMED_AS(timed_open_act(flags), -1, dirfd, path,                                               \
             ((flags) & (O_EXCL | O_TRUNC)) == O_EXCL ? TIMED_OPEN_NEW : 0)
#define TIMED_OPEN_NEW 1 /* an amount: the name cannot have been there */

#endif
