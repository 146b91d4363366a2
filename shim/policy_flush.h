/* SPDX-License-Identifier: MIT */
/*
 * policy_flush: may this fsync share, and what a shared one means to a caller. Pure functions.
 *
 * Only where it was proven to be exact: ext4, XFS, btrfs. Elsewhere it is not known whether a served
 * caller's errors can be asked for (flush.h), and on tmpfs there is nothing to save.
 *
 * Whether it pays there is learnt for each file, because it depends on the device and on the crowd.
 * Where a flush takes a millisecond, sharing is worth several times the commits; where it takes
 * tens of microseconds (a write cache that survives power loss), waking those who were served takes
 * longer than their own flush would. So the calls of a file that meet others are timed in stretches;
 * after a stretch the other way is tried for one, and stays if a call takes less there. Each trial
 * that loses makes the next one rarer; a crowd that doubled or halved makes the next one due.
 * What comes first is a guess: share, except on ext4, which commits its journal for several callers
 * at once by itself, below a dozen callers.
 */
#ifndef SHIM_POLICY_FLUSH_H
#define SHIM_POLICY_FLUSH_H

#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "file.h"

#define FLUSH_CROWD_EXT4 12u

enum flush_way { FLUSH_GUESS, FLUSH_ALONE, FLUSH_SHARED };

struct flush_facts {
    bool share;         /* fsync = share */
    bool inside;        /* this thread is in a shared sync already, and a signal handler calls */
    enum file_kind kind;
    enum flush_way way; /* that was learnt */
    uint32_t crowd;     /* callers at one time, lately */
};
bool policy_flush_shares(const struct flush_facts *f);

/* A stretch of FLUSH_STRETCH calls is over: a call took mean_ns, and at most crowd came at a time.
 * shared: which way they went. Returns the way of the next stretch. */
#define FLUSH_STRETCH 256u
enum flush_way policy_flush_learn(struct flush_choice *c, bool shared, uint64_t mean_ns,
                                  uint32_t crowd);

/* After FLUSH_GLIMPSE calls of a trial: is it so much worse that this is the end of its stretch? */
#define FLUSH_GLIMPSE 32u
bool policy_flush_gives_up(const struct flush_choice *c, bool shared, uint64_t mean_ns);

/* Is this errno of a sync about the data, or about the call (a bad descriptor, an interruption, a
 * filter)? The latter says nothing to others. */
bool policy_flush_is_about_data(int error);

/* A sync of another failed. Does a caller with this descriptor get its error, without a sync of its
 * own? If it is the same descriptor, so the same open file description: the kernel told the error
 * of that description to the one who synced, and would tell the others that all is well. */
bool policy_flush_told(int leader_fd, int fd);

#endif
