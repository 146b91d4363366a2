/* SPDX-License-Identifier: MIT */
/*
 * tail: space that a big direct write has taken behind the end of the file before it wrote there.
 *
 * ext4 holds the inode lock exclusively for all of the I/O of a direct write that makes the file
 * longer, and readers wait for it. Into space that is allocated and within the file's size it
 * writes under the shared lock. So the write extends the file first, all at once, and then writes
 * its pieces (`preextend`). Meanwhile the kernel's size is larger than what the program may see:
 * `shown` is the program's, and goes up with every write that is over.
 *
 * Only while the file is armed (file.h): all calls ask here first, and no other process has it.
 *   - Reads end at `shown` (tail_clip), stat and SEEK_END show it.
 *   - A write that meets a tail is a member of it from before its real call until it has raised
 *     `shown`: what it wrote must not be cut off.
 *   - Everything else to which the size matters (truncation, copies, O_APPEND, fork, close...) has
 *     the tail given back first: the members leave after the call they are in, the last one cuts
 *     the file to `shown`, and those with more to write go on as if there were no tail. settle.c
 *     does that. While such a call is announced (announce.h) no tail begins.
 *
 * A member blocks signals: a write to a regular file is not interrupted by them either, and a
 * handler could jump out, or wait for its own thread to leave. None waits for a tail to end.
 *
 * The death of the process leaves zeros behind the last whole write (contract: with
 * `preextend = on` only, for `auto` acts on files without a name).
 */
#ifndef SHIM_TAIL_H
#define SHIM_TAIL_H

#include "announce.h"

/* Members in the low half, and: */
#define TAIL_ACTIVE  ((uint32_t)1 << 31) /* shown holds; without it nothing is extended */
#define TAIL_CLOSING ((uint32_t)1 << 30) /* nobody enters; or nobody may enter yet */

struct tail_member {
    struct rl_inode *inode; /* NULL: not a member */
    int fd;
};

/* Leaves, also when a cancelled thread unwinds through the real call. */
#define TAIL_MEMBER(name)                                                                          \
    struct tail_member name __attribute__((cleanup(tail_leave))) = {.inode = NULL}

static inline bool tail_busy(const struct rl_inode *inode)
{
    return rl_load_32(&file_state(inode)->tail) != 0;
}

/* The caller, a write of [start, end) that is announced as `mine` and has signals blocked, extends
 * the file if it may and if that pays, or joins who did. False: write as usual. Leaves errno
 * alone. */
bool tail_begin(struct tail_member *m, struct rl_inode *inode, int fd, uint64_t start, uint64_t end,
                const struct announcement *mine);

/* A write that is announced, before its real call: a member if there is a tail. If one is just
 * coming or going, waits until that is decided. Signals are blocked. */
bool tail_enter(struct tail_member *m, struct rl_inode *inode, int fd);

/* A write up to `end` is over, and it was a member's. */
void tail_wrote(const struct tail_member *m, uint64_t end);

/* Does somebody wait for the tail to be given back? Then leave between two pieces. */
bool tail_wanted(const struct tail_member *m);
void tail_leave(struct tail_member *m);

/* Waits until the file has no tail. Not for members. */
void tail_give_back(struct rl_inode *inode);

/*
 * For reads at `off`: how much of n bytes may be shown, and *seen for tail_unseen. After the real
 * call that says false if a tail began meanwhile, so that the call has to be made again. Beside a
 * tail one look is enough: shown does not go down.
 */
struct tail_seen {
    uint32_t seq;
    bool active;
};
size_t tail_clip(struct rl_inode *inode, uint64_t off, size_t n, struct tail_seen *seen);
bool tail_unseen(struct rl_inode *inode, const struct tail_seen *seen);

/* Goes up whenever a tail begins or is about to be gone, for calls that do not know yet which
 * file they are about. */
uint32_t tail_moves(void);

/* The size to show for one that the kernel gave. */
uint64_t tail_shown(struct rl_inode *inode, uint64_t size);

#endif
