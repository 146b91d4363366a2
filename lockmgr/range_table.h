/* SPDX-License-Identifier: MIT */
/*
 * range_table: the byte ranges of one inode that were answered before they were applied.
 *
 * A queued range reads as zeros at once; the consumer (the shim's worker) applies it later. The
 * table tells readers and writers whether their bytes meet such a range, and lets them have the
 * meeting part applied first. Everything but the rl_drain_* functions may be called by any thread,
 * also inside signal handlers; nothing locks, nothing allocates.
 *
 * Where a range can be
 *   tail[i]  a range that still grows, packed in one word, grown in place: a run of ascending
 *            punches costs one compare-and-swap each and takes no node. Several of them, so that
 *            threads that punch in different places each have a run. Only the consumer takes a
 *            range out of a tail: a putter that copied it into a node, to make room for another
 *            run, could sleep in between, and bring back what was applied and written over since
 *   list[c]  ranges that lie in one class, c = (offset >> 20) & 63
 *   wide     ranges that touch more than one class
 * There is no separate "mask": a summary word has to be cleared when a list runs empty, and
 * clearing it races with the next push. The list heads are the mask, and cannot disagree with
 * themselves.
 *
 * How a reader stays exact (contract: a read after a punch sees zeros, a write after it wins, and
 * no mixture of old and new that no order of the calls explains): s = rl_table_stamp(…); n =
 * rl_table_overlaps(…); r = pread(…); if (rl_table_stamp(…) != s || rl_table_overlaps(…) differs
 * from n) do it all again; zero the overlaps in the first r bytes gen[c] moves by 2 after every
 * push into class c. It is odd from before the consumer takes anything out of class c until after
 * that, and a look that meets an odd one, or a gen[c] that moved, is not believed. So equal stamps
 * and equal overlaps mean that the ranges it saw were queued during the whole pread. The second
 * look at the ranges is for a pusher that was interrupted between its push and its gen[c]. A look
 * that gives -1 is no answer: want, sleep, look again, as a writer does.
 *
 * How a writer stays exact:
 *   while (rl_table_overlaps(…) != 0) rl_table_want(…), sleep on done_seq;
 *   r = pwrite(…);
 *   the same wait again: a punch queued during the write may have been applied before the write
 *   landed and still read as zeros now; returning before it left the table would let a reader see
 *   zeros first and the data later. The shim does better: no punch is queued beside a write that it
 *   meets (shim/announce.h), so there is nothing to wait for afterwards.
 *
 * Passes: the consumer works in numbered passes. Beginning one claims every range queued so far and
 * none that comes later, so a stream of new ranges cannot hold up a settle: whoever waits for what
 * is queued now waits until pass_done >= pass_begun + 1 (pass_begun as read after the last put).
 * Each stretch handed out for applying marks the nodes it covers, and only those leave when it is
 * done: a range queued meanwhile may have a write before it that the running call did not see, and
 * is applied again.
 *
 * Activation: act is 0 (nothing may be queued), or a number with a state. rl_table_put looks at it
 * again after its push, and nodes remember it, so a thread that slept through a deactivation cannot
 * get its range applied to whatever uses the table next. The tail has room for 8 bits of it: 256
 * activations, each at least a worker's idle time apart, within one interrupted call.
 */
#ifndef RL_RANGE_TABLE_H
#define RL_RANGE_TABLE_H

#include "ranges.h"

#define RL_CLASS_SHIFT 20
#define RL_CLASSES     64
#define RL_BLOCK_SHIFT 12
#define RL_WANTS       4
#define RL_TAILS       4
/* What the pool's capacity must have beyond its limit: what the consumer needs to take over all
 * tails, with room to try again when they grow under it. */
#define RL_POOL_SPARE 16u                   /* 4 * RL_TAILS */
#define RL_FOREVER    ((uint64_t)INT64_MAX) /* as the end of a range: to the end of any file */

enum { /* low bits of act */
       RL_ACT_OFF = 0,
       RL_ACT_ON = 1,       /* put accepts */
       RL_ACT_DRAINING = 2, /* put refuses, what is queued is being applied */
       RL_ACT_CLOSING = 3,  /* the consumer makes sure that nothing is left; a moment */
       RL_ACT_STATE = 3
};

struct rl_span {
    uint64_t start, end; /* bytes, end exclusive */
};

struct rl_table {
    uint32_t act;            /* number << 2 | state; consumer, but ON -> DRAINING by anyone */
    uint32_t pass_begun;     /* number of the newest pass; consumer */
    uint32_t pass_done;      /* newest pass whose ranges are all applied; consumer */
    uint32_t done_seq;       /* futex: moves whenever ranges leave or a pass ends */
    uint64_t tail[RL_TAILS]; /* start block:36, blocks:20, activation:8; 0 none */
    uint64_t first_ns; /* CLOCK_MONOTONIC of the oldest range that is in no pass yet, 0 none */
    uint64_t want[RL_WANTS]; /* ranges somebody waits for, packed like tail; 0 free */
    uint32_t want_all;       /* somebody waits for a whole pass, or want[] overflowed */
    uint32_t wide_removed;   /* moves before a node that left wide is used again */
    uint32_t chunk;          /* consumer: number of the newest stretch handed out */
    uint32_t cursor;         /* consumer: class to look into next */
    rl_head wide;
    rl_head list[RL_CLASSES];
    uint32_t gen[RL_CLASSES];
};

enum rl_put {
    RL_PUT_CLOSED, /* the table does not accept: apply it yourself, now */
    RL_PUT_FULL,   /* no node left: apply it yourself, now */
    RL_PUT_QUEUED, /* a new range */
    RL_PUT_MERGED  /* grew a tail */
};

/* Queues [start, end), start < end <= RL_FOREVER. act: the activation word the caller based its
 * decision on. now_ns: CLOCK_MONOTONIC. */
enum rl_put rl_table_put(struct rl_table *t, struct rl_pool *pool, uint32_t act, uint64_t start,
                         uint64_t end, uint64_t now_ns);

/* Sum of the generations of all classes that [start, end) touches. */
uint64_t rl_table_stamp(const struct rl_table *t, uint64_t start, uint64_t end);

/* The queued ranges that meet [start, end), cut to it, unsorted, possibly overlapping each other.
 * Returns how many, or -1 if they are more than cap or the table changes too fast to tell (as while
 * the consumer is interrupted in the middle of a change). */
int rl_table_overlaps(struct rl_table *t, struct rl_pool *pool, uint64_t start, uint64_t end,
                      struct rl_span *out, int cap);

/* The smallest block-aligned cover of [start, end) in one word, never 0; 0 if it does not fit. */
uint64_t rl_range_pack(uint64_t start, uint64_t end);
struct rl_span rl_range_unpack(uint64_t packed);

/* False only if nothing that meets [start, end) is queued: a few loads, no walk. */
bool rl_table_maybe(const struct rl_table *t, uint64_t start, uint64_t end);

bool rl_table_empty(const struct rl_table *t);

/* Asks the consumer to apply what meets [start, end) next. The caller wakes the consumer. */
void rl_table_want(struct rl_table *t, uint64_t start, uint64_t end);

/* Takes the table from ON to DRAINING. True for the one caller who did it. */
bool rl_table_close(struct rl_table *t, uint32_t act);

/* --- consumer only --- */

/* Opens the table, which must be OFF and is emptied of leftovers of older activations. */
void rl_drain_open(struct rl_table *t, struct rl_pool *pool);

/* From DRAINING to OFF. False (and nothing changed) if something is still queued. */
bool rl_drain_close(struct rl_table *t);

/* Begins a pass with everything queued up to now and returns its number. */
uint32_t rl_drain_begin(struct rl_table *t, struct rl_pool *pool);

/* The next stretch of the running pass to apply: at most call_max bytes, neighbours merged. One
 * stretch may be out at a time. False: the pass has nothing left, call rl_drain_end. */
bool rl_drain_next(struct rl_table *t, struct rl_pool *pool, uint64_t call_max,
                   struct rl_span *out);

/* The next stretch that a want asks for, whatever pass it is in. False: no want is left. */
bool rl_drain_next_wanted(struct rl_table *t, struct rl_pool *pool, uint64_t call_max,
                          struct rl_span *out);

/* The stretch that is out was applied: what it covered leaves the table, waiters wake. */
void rl_drain_applied(struct rl_table *t, struct rl_pool *pool, const struct rl_span *out);

/* The stretch that is out could not be applied now: it stays queued, for a later pass. A want for
 * it stays too, so rl_drain_next_wanted gives it again: pause first. */
void rl_drain_postponed(struct rl_table *t, struct rl_pool *pool, const struct rl_span *out);

void rl_drain_end(struct rl_table *t);

#endif
