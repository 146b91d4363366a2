/* SPDX-License-Identifier: MIT */
/*
 * inflight: which descriptors the process's threads are inside a data call on, at this moment.
 *
 * A read or write that finds the state word idle goes to the kernel as it is, knowing of no queue.
 * When the worker turns a file on, such calls may be under way, and nothing may be queued for the
 * file until they are over: a write would be destroyed by the punch that it did not see, a read
 * could combine what no moment ever showed. So every such call writes its descriptor into a slot
 * that only its own thread stores to, and takes it out afterwards: two plain stores to a line that
 * nobody else touches, no fence. The worker, after it has made the word say "on", makes every
 * running thread pass a barrier (membarrier(2)): a call that begins after it sees the word, a call
 * that began before it is seen here. It waits until each of those was seen to end.
 *
 * What can go wrong is only that deferral starts late or never: a call jumped out of (siglongjmp
 * out of a handler that interrupted it) leaves its slot taken until the thread ends. Not covered: a
 * descriptor that one thread closes while another is inside a call on it.
 *
 * Slots are never freed while the process lives; a thread that is gone leaves one to the next.
 */
#ifndef SHIM_INFLIGHT_H
#define SHIM_INFLIGHT_H

#include "state.h"

struct leg {
    uint32_t fd;    /* descriptor + 1; 0 none. Stored by the thread alone */
    uint32_t calls; /* goes up when a call ends, before fd is taken out */
};

/* This thread's slot; before its first call, one that is always taken: a test less. */
extern __thread struct leg *inflight_mine __attribute__((visibility("hidden")));

/* The first call of a thread, or a handler's call inside another. Never fails; NULL means that it
 * is counted with all those that have no slot, which keeps every file from being turned on. */
struct leg *inflight_begin_slowly(int fd);

/* A call on files nobody knows: returns NULL, and no file is turned on until inflight_end. */
struct leg *inflight_begin_anywhere(void);
void inflight_end_uncounted(void);

/* Before the look at the state word. */
static inline struct leg *inflight_begin(int fd)
{
    struct leg *leg = inflight_mine;

    if (unlikely(leg->fd != 0))
        return inflight_begin_slowly(fd);
    rl_store_32(&leg->fd, (uint32_t)fd + 1);
    __asm__ volatile("" ::: "memory"); /* the word is looked at after this: inflight_barrier */
    return leg;
}

/* The call is over, or known otherwise from now on (announce.h). */
static inline void inflight_land(struct leg *leg)
{
    if (unlikely(leg == NULL)) {
        inflight_end_uncounted();
        return;
    }
#ifdef RL_TSAN
    rl_store_32(&leg->calls, leg->calls + 1);
#else
    leg->calls++; /* one instruction; ordered by the release in the next store */
#endif
    rl_store_32(&leg->fd, 0);
}

static inline void inflight_end(struct leg *const *leg)
{
    inflight_land(*leg);
}

/* Until the end of the block, also when the thread is cancelled in it. */
#define INFLIGHT(name, fd)                                                                         \
    struct leg *const name __attribute__((cleanup(inflight_end), unused)) = inflight_begin(fd)

/* --- for the worker --- */

/* Makes all running threads pass a full barrier. False: this kernel cannot, so nothing may be
 * turned on. Pairs with the compiler barrier in inflight_begin. */
bool inflight_barrier(void);

/* Looks at all slots once. Returns the number of this look, counted from 1. */
uint32_t inflight_look(void);

/* Are all calls over that were under way in look number `since`, and could have been on the inode
 * (dev, ino)? About as of the last look. */
bool inflight_over(uint64_t dev, uint64_t ino, uint32_t since);

/* --- for whoever holds up others --- */

#define INFLIGHT_VIEW 16

/* Calls of other threads on one inode, as of one look. */
struct inflight_view {
    const struct leg *leg[INFLIGHT_VIEW];
    uint32_t calls[INFLIGHT_VIEW];
    unsigned n;
};

/* Looks. May take an fstat for a descriptor that nobody asked about yet. A call that just began may
 * be missed: this is for manners, not for exactness. */
void inflight_beside(const struct rl_inode *inode, struct inflight_view *view);

/* Are all of them over? */
bool inflight_moved(const struct inflight_view *view);

/* Waits until no other thread is inside a call on the descriptor fd that it began before. Calls on
 * regular files end; one that does not for seconds is waited for no longer. */
void inflight_wait(int fd);

/* Waits until no other thread is inside a call that it began before and that may be on the inode.
 * After inflight_barrier. False: one did not end for seconds, or cannot be known. */
bool inflight_wait_inode(uint64_t dev, uint64_t ino);

/* In a forked child: the other threads do not exist here. */
void inflight_forked(void);

#endif
