/* SPDX-License-Identifier: MIT */
/*
 * evict: files whose last name, or last descriptor, goes are freed behind the caller's back.
 *
 * The name goes at once and in order; only the freeing of the inode comes later. Around the real
 * call:
 *     evict_begin(dirfd, path, &hold);    looks, and takes a reference where that pays
 *     r = real.unlink(path);
 *     evict_end(&hold, r == 0);           lets go of it: a thread does, and it pays
 *
 * The reference is an O_PATH descriptor in the table of a thread of its own (as the worker's: see
 * worker.h), which opens it by the same path and compares device and inode number with what the
 * caller saw. So nothing ever appears in the program's descriptor table: the lowest-free rule,
 * RLIMIT_NOFILE and what children inherit are as without us, and no POSIX lock is dropped. Another
 * thread closes them, oldest first, since that may take a second during which the first has to
 * answer. Both are gone when nothing was held for a while, and before calls that a second thread
 * would change (evict_stop).
 *
 * What is held is bounded (policy_evict.h); beyond that the call frees in the caller. As long as
 * something is held the state word has WORD_HELD, so that whoever asks for free space, or meets a
 * full disk, comes to evict_drain. A program that this one starts finds what was deleted before
 * free: system, popen and posix_spawn drain, and so does an exec in a child of fork or vfork
 * (evict_before_exec); fork itself does not wait, since a child that stays this program can tell no
 * difference before it asks.
 *
 * If the process ends or becomes another, the kernel closes the references: ending takes as long as
 * the unlink would have. A forked child has none of them.
 *
 * Handlers may interrupt all of this and call anything: from the moment that a reference is the
 * caller's until it is queued signals are blocked, so that nobody waits for what they interrupted.
 */
#ifndef SHIM_EVICT_H
#define SHIM_EVICT_H

#include <sys/types.h>

#include "stats.h"
#include "state.h"

enum { EVICT_NOTHING = -1, EVICT_WATCH = -2 };

struct evict_hold {
    int slot;      /* EVICT_NOTHING: no need for evict_end; EVICT_WATCH: only timed, to learn */
    uint32_t turn; /* of the slot: it may have been given up and taken by another */
    uint32_t major, minor;
    uint64_t bytes, began_ns;
};

/* Before a call that takes the name `path` away, puts another file in its place, or closes fd. */
void evict_begin(int dirfd, const char *path, struct evict_hold *hold);
void evict_begin_rename(int fromfd, const char *from, int tofd, const char *to,
                        struct evict_hold *hold);
void evict_begin_close(int fd, struct evict_hold *hold);

/* After it, unless hold->slot is EVICT_NOTHING. gone: it succeeded. */
void evict_end(struct evict_hold *hold, bool gone);

/* For the caller's frame: let go of also when the thread is cancelled in the call. */
void evict_let_go(struct evict_hold *hold);
#define EVICT_HOLD(name)                                                                           \
    struct evict_hold name __attribute__((cleanup(evict_let_go))) = {.slot = EVICT_NOTHING}

/* Returns when what is held now has been freed, or cannot be (a frozen file system). Leaves errno
 * alone. */
void evict_drain(enum why why);

/* Before any exec, also in a child of vfork: what was deleted before the fork, by the parent, is
 * free. */
void evict_before_exec(void);

/* As evict_drain, and the threads are gone. */
void evict_stop(void);

/* In a forked child: there is nothing. */
void evict_forked(void);

static inline bool evict_held(void)
{
    return unlikely((state_word() & WORD_HELD) != 0);
}

/* This process has files without a name, or may have: closes look for them. */
static inline void evict_nameless(void)
{
    if (rl_load_32(&proc.nameless) == 0)
        rl_store_32(&proc.nameless, 1);
}

#endif
