/* SPDX-License-Identifier: MIT */
/*
 * rlshim/range_lock.h: byte-range locks and queued ranges, for one process. Link librangelock.a;
 * nothing of the shim is needed. Manual: range_lock(3).
 *
 * Everything lives in memory that the caller provides, zeroed; nothing is allocated, no thread is
 * made, no descriptor opened, errno is never touched. Functions that can fail return 0 or a
 * negative errno value. Offsets are bytes, `end` is exclusive, RL_END means the end of any file.
 */
#ifndef RLSHIM_RANGE_LOCK_H
#define RLSHIM_RANGE_LOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RL_END INT64_MAX

/*
 * --- Range lock: one per file (inode). Zeroed memory is a free lock; there is nothing to destroy.
 *
 * Shared holds do not exclude each other; an exclusive one excludes all that it overlaps. Ranges
 * are rounded outward to RL_RANGE_GRAIN, so neighbours within one grain exclude each other; from 4
 * GiB on they reach to RL_END. Calls that do not overlap never wait for each other, unless more
 * than RL_RANGE_SLOTS ranges are held or waited for at once (fewer, if they lie in the same few
 * MiB); rl_range_room raises that.
 *
 * Order: first come, first served among those that overlap and exclude each other, shared behind a
 * waiting exclusive too, so that neither kind starves. A thread that has a range of the lock
 * already is not made to wait for those who wait (they may be waiting for it), only for those who
 * hold.
 *
 * Signal handlers may call everything. A handler that asks for what the code it interrupted holds,
 * or is about to hold, cannot be served: -EDEADLK at once (after some 30 ms, if it interrupted the
 * two instructions between taking a range and signing it). A thread is told from another by its
 * thread pointer, so it has to be one of libc's.
 *
 * Nobody is freed from a lock by accident: a thread that ends, or jumps out of a handler, keeps
 * what it has. rl_range_release(hold) after the jump lets it go, whether it held or still waited
 * (the hold must not live in the frames that were left). In a forked child the holds of the other
 * threads are copies that nobody will release: zero the lock there.
 */
#define RL_RANGE_GRAIN      4096
#define RL_RANGE_SLOTS      48
#define RL_RANGE_LOCK_BYTES 832

enum rl_range_mode { RL_SHARED = 0, RL_EXCLUSIVE = 1 };

/* Best aligned to a cache line; 8 bytes will do. */
struct rl_range_lock {
    uint64_t rl_private[RL_RANGE_LOCK_BYTES / sizeof(uint64_t)];
};

/* What a caller has: in its stack frame, say. Written by acquire, read by release, by the same
 * thread. Zeroed: has nothing. May be moved while it holds, not while it waits. */
struct rl_range_hold {
    struct rl_range_lock *rl_lock;
    void *rl_group;
    uint32_t rl_slot, rl_waits;
};

/* Waits without limit. -EDEADLK: see above; -EINVAL: start >= end, or no such mode. */
int rl_range_acquire(struct rl_range_lock *lock, struct rl_range_hold *hold, uint64_t start,
                     uint64_t end, enum rl_range_mode mode);

/* Never waits. -EAGAIN: somebody who excludes it holds, waits, or is asking in this very moment
 * (two tries that meet may both fail). */
int rl_range_try(struct rl_range_lock *lock, struct rl_range_hold *hold, uint64_t start,
                 uint64_t end, enum rl_range_mode mode);

/* Waits until CLOCK_MONOTONIC is deadline_ns, then -ETIMEDOUT. */
int rl_range_acquire_until(struct rl_range_lock *lock, struct rl_range_hold *hold, uint64_t start,
                           uint64_t end, enum rl_range_mode mode, uint64_t deadline_ns);

/* Releases, or takes a wait back. A hold that has nothing: does nothing. */
void rl_range_release(struct rl_range_hold *hold);

/* Nobody holds and nobody waits. May be untrue by the time it returns, unless the caller knows that
 * nobody can come. */
bool rl_range_idle(const struct rl_range_lock *lock);

/*
 * Room for more ranges at once: RL_RANGE_ROOM_BYTES(ranges) bytes of zeroed memory, aligned to 8,
 * that stays the lock's. Half of it serves ranges within 64 KiB and a quarter those within one MiB,
 * both found by offset; the rest serves all others and is searched from end to end, as far as it
 * was ever used. Not less than 64 ranges. -EINVAL: too small.
 */
#define RL_RANGE_ROOM_BYTES(ranges) (64 + (((size_t)(ranges) + 7) / 8) * 136)
int rl_range_room(struct rl_range_lock *lock, void *memory, size_t bytes);

/*
 * --- Queue: the ranges of one file that were answered before they were applied.
 *
 * Any thread adds ranges and asks for them, in signal handlers too. One thread, the consumer,
 * applies them. Whoever needs a range applied settles it. rl_queue_maybe is the check for every
 * ordinary call: a few loads, no store.
 */
struct rl_queue;

struct rl_queue_span {
    uint64_t start, end;
};

/* Memory that a queue of at most `ranges` ranges needs, aligned to 8. */
size_t rl_queue_bytes(uint32_t ranges);

/* Makes a queue of that much zeroed memory, open. */
struct rl_queue *rl_queue_make(void *memory, uint32_t ranges);

/* -ENOSPC: full, apply it yourself now; -ESHUTDOWN: closed, the same. */
int rl_queue_add(struct rl_queue *q, uint64_t start, uint64_t end);

/* False: nothing that meets [start, end) is queued. */
bool rl_queue_maybe(const struct rl_queue *q, uint64_t start, uint64_t end);

/* The queued ranges that meet [start, end), cut to it, unsorted; returns how many, or -EAGAIN if
 * they are more than cap or move too fast: settle then. *stamp, taken before the look, tells with
 * an equal one later that they were queued all the while: look, read, look again, and repeat if
 * stamp or ranges differ; then the ranges read as what the consumer will make of them. */
int rl_queue_look(struct rl_queue *q, uint64_t start, uint64_t end, struct rl_queue_span *out,
                  int cap, uint64_t *stamp);

/* Returns when nothing that meets [start, end) is queued; deadline_ns as above (UINT64_MAX: none).
 * -ETIMEDOUT. The consumer itself must not call it. */
int rl_queue_settle(struct rl_queue *q, uint64_t start, uint64_t end, uint64_t deadline_ns);

/* Consumer: waits until somebody settles, or something is queued that is older than delay_ns.
 * -ETIMEDOUT at deadline_ns. */
int rl_queue_wait(struct rl_queue *q, uint64_t delay_ns, uint64_t deadline_ns);

/* Consumer: applies what was queued when it began, what is settled for first, in stretches of at
 * most call_max bytes, neighbours merged. apply returns 0, or anything else to have the stretch
 * again in a later pass. Returns how many stretches were applied. */
uint64_t rl_queue_apply(struct rl_queue *q, uint64_t call_max,
                        int (*apply)(void *arg, uint64_t start, uint64_t end), void *arg);

/* Consumer: refuses further ranges and applies the rest, each until apply returns 0. */
void rl_queue_close(struct rl_queue *q, uint64_t call_max,
                    int (*apply)(void *arg, uint64_t start, uint64_t end), void *arg);

#ifdef __cplusplus
}
#endif

#endif
