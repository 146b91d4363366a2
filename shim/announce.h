/* SPDX-License-Identifier: MIT */
/*
 * announce: calls under way that a punch must not be queued beside.
 *
 * A punch that is queued while a write to the same bytes is in the kernel could be applied after
 * the write landed, and destroy it, although somebody saw in between that the punch came first. A
 * read whose place in the file is not known cannot be combined with what is queued. So both say
 * what they are about to touch before they look at the queue, and a punch that meets such an
 * announcement is made in its caller, where the kernel decides who came first.
 *
 * The other side of the handshake: a punch counts itself into `putting` before it looks for
 * announcements, and out when it is queued. Whoever announces waits until nobody is in there (a
 * hundred nanoseconds), so that what it then sees of the queue is all there will be.
 *
 * An announcement that is never taken back (siglongjmp out of a handler) costs speed only. A punch
 * that never counts itself out is noticed after ANNOUNCE_WAIT_NS, and ends deferral for the file.
 */
#ifndef SHIM_ANNOUNCE_H
#define SHIM_ANNOUNCE_H

#include "file.h"

struct announcement {
    struct file_state *fs; /* NULL: nothing to take back */
    uint64_t packed;
    int slot; /* -1: anywhere in the file */
};

/* range NULL: not known where. */
void announce(struct announcement *a, struct rl_inode *inode, const struct rl_span *range);
void announce_over(struct announcement *a);

/* Is no other call announced for the file, or for what meets [start, end)? */
bool announce_alone(const struct announcement *mine);
bool announce_clear(const struct announcement *mine, uint64_t start, uint64_t end);

/* One that is also taken back when a cancelled thread unwinds through the real call. */
#define ANNOUNCEMENT(name)                                                                         \
    struct announcement name __attribute__((cleanup(announce_over))) = {.fs = NULL}

/* May a punch of [start, end) be queued? True: queue it, then announce_put_ends. */
bool announce_put_begins(struct file_state *fs, uint64_t start, uint64_t end);
void announce_put_ends(struct file_state *fs);

#endif
