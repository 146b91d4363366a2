/* SPDX-License-Identifier: MIT */
/*
 * create: opens with O_CREAT, done so that an existing name costs what a read-only open costs, and
 * a new one is created once while the other threads wait.
 *
 * The wrapper makes its real call with create_path(&hold) in place of its own path, as long as
 * create_again says so:
 *
 *     CREATE_HOLD(hold, path);
 *     CREATE_LOOK(hold, true, dirfd, path, flags);
 *     do
 *         fd = hold.interrupted ? -1 : real.open(create_path(&hold), flags, mode);
 *     while (create_again(&hold, fd));
 *
 * create_path is either the path as given, or, where a look (an O_PATH descriptor) found a regular
 * file of the caller's own user, that descriptor's name in /proc. The real call is the same in both
 * cases, with the same flags. What it opened is compared with what was looked at; if it is another
 * file, or the call failed other than by a signal, it is made again with the path as given, and
 * that is the answer.
 *
 * With O_TRUNC the look only lets the kernel know the name, and the call has the path as given: a
 * program that puts a file of its own on our number meanwhile (dup2 to a number it never got) would
 * have that one truncated. So truncation is the kernel's own, as often and when it would be.
 *
 * An O_PATH descriptor never drops a lock, wakes a FIFO's reader, breaks a lease or moves a time.
 * Ours is O_CLOEXEC and lies 256 above the lowest free number, so that the real call gets the
 * number it would have got; it exists only during the call. It is closed when the thread is
 * cancelled; after a jump out of a handler, by this thread's next such open; in a forked child, at
 * once. Where no number is free, the kernel's own way is taken.
 *
 * No lock is held during any call. Handlers may open files: while an open of their thread is under
 * way theirs are plain.
 */
#ifndef SHIM_CREATE_H
#define SHIM_CREATE_H

#include "../lockmgr/name_table.h"
#include "policy_create.h"
#include "state.h"

struct place;

struct create_hold {
    const char *path; /* for the real call */
    const char *given;
    struct create_mine *mine; /* NULL: nothing is held */
    struct place *place;
    uint64_t begin_ns;
    uint32_t tag;
    uint32_t before; /* errno as it was */
    int flags;
    bool interrupted;      /* no call: the answer is EINTR, by the look */
    bool looked;           /* path is the descriptor's name */
    bool cuts;             /* found, and to be truncated: by its own path */
    bool timed, leads_new; /* what the plain call tells */
    uint64_t dev, ino;     /* of what was found */
    char proc[40];
};

/* Whether opens are looked after: never; the file that they opened, now and then, on what kind of
 * file system it lies; or their paths. */
enum create_care { CREATE_NEVER, CREATE_WATCHES, CREATE_READS };
extern uint32_t create_care __attribute__((visibility("hidden")));

static inline bool create_helps(int flags)
{
    return policy_create_flags(flags) && rl_load_32(&create_care) != CREATE_NEVER && state_works();
}

static inline const char *create_path(const struct create_hold *hold)
{
    return hold->path;
}

void create_look(struct create_hold *hold, int dirfd, const char *path, int flags);
bool create_more(struct create_hold *hold, int fd);
void create_drop(struct create_hold *hold);

/* After the real call gave fd (negative: failed, errno says why): must it be made again? Then fd,
 * if there is one, is not what was asked for, and closed. */
static inline bool create_again(struct create_hold *hold, int fd)
{
    if (likely(hold->place == NULL) || !create_more(hold, fd))
        return false;
    if (fd >= 0)
        rl_raw(SYS_close, fd);
    return true;
}

static inline void create_end(struct create_hold *hold)
{
    if (unlikely(hold->mine != NULL))
        create_drop(hold);
}

#define CREATE_HOLD(name, its_path)                                                                \
    struct create_hold name __attribute__((cleanup(create_end)));                                  \
    name.path = (its_path);                                                                        \
    name.mine = NULL;                                                                              \
    name.place = NULL;                                                                             \
    name.interrupted = false
#define CREATE_LOOK(name, may, dirfd, its_path, flags)                                             \
    if (create_helps(flags) && (may))                                                              \
    create_look(&name, dirfd, its_path, flags)

/* Once, before other threads. */
void create_start(void);

/* In a forked child, and when a thread's file system identity becomes its own. */
void create_forked(void);

/* setfsuid was called: who owns what is no longer known. */
void create_fsuid(void);

#endif
