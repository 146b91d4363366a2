/* SPDX-License-Identifier: MIT */
/*
 * whole: buffered writes in pieces that nobody can tell from one.
 *
 * XFS holds the inode lock exclusively while it copies a buffered write, and readers of the file
 * wait for all of it. Direct writes may be split as they are, since nobody promises that they land
 * at once; a buffered one on XFS does land at once for readers, writers and punches. So whoever
 * meets its range has to wait for all of it here instead, and only they.
 *
 * Only while the file is armed (file.h): all calls ask here, and no other process has it. The
 * writer counts itself into `whole`, waits until every call is over that looked before
 * (inflight.h), and takes its range exclusively (range_lock.h). Everybody else who finds `whole`
 * not zero takes theirs shared around the real call; as long as it is zero they store nothing.
 * Calls whose range is not known, or to which the size matters, wait until it is zero (settle.c),
 * and while one of them is announced nothing is split; so does whatever ends the evidence.
 *
 * All who hold a range block signals: the kernel does not let a handler in either while it reads
 * or writes a regular file, and one that jumped out would keep the range for ever.
 */
#ifndef SHIM_WHOLE_H
#define SHIM_WHOLE_H

#include "announce.h"

/* Smaller ones hold the lock for less time than the waiting here costs. */
#define WHOLE_LEAST_BYTES ((size_t)1 << 20)

struct whole_hold {
    struct rl_range_hold range;
    struct rl_inode *counted; /* in whole; NULL: only beside one, or nothing */
};

/* Ends, also when a cancelled thread unwinds through the real call. */
#define WHOLE_HOLD(name)                                                                           \
    struct whole_hold name __attribute__((cleanup(whole_end))) = {.counted = NULL}

static inline bool whole_busy(const struct rl_inode *inode)
{
    return rl_load_32(&file_state(inode)->whole) != 0;
}

/* The caller, a write of [start, end) that is announced as `mine`, has landed, and has signals
 * blocked, may write in pieces until whole_end. False: in one. Leaves errno alone. */
bool whole_begin(struct whole_hold *hold, struct rl_inode *inode, uint64_t start, uint64_t end,
                 const struct announcement *mine);

/* A call on [start, end) that met whole_busy, with signals blocked: waits for writes in pieces that
 * it meets, and keeps new ones away until whole_end. */
void whole_beside(struct whole_hold *hold, struct rl_inode *inode, uint64_t start, uint64_t end);
void whole_end(struct whole_hold *hold);

/* Waits until no write in pieces is under way. Not for those who have a hold. */
void whole_wait(struct rl_inode *inode);

#endif
