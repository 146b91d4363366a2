/* SPDX-License-Identifier: MIT */
/*
 * leftover: what the owner of a range table left queued when it was killed.
 *
 * The owner is gone, with all its threads, at any instruction of range_table.h: nothing changes any
 * more, and nothing is half-way, because every step there is one store or one compare-and-swap.
 * What stands in an open or draining table may be applied: as long as it stands there no write
 * newer than it was let through, so applying it now is what the consumer might have done in the
 * owner's last moment. A range may stand there although it was applied (the kill came before it was
 * taken out): applying it again changes nothing, for the same reason. One whose putter never
 * returned counts as made or as not made, as a call cut off by the kill may.
 *
 * Not to be applied: what a closed table holds (its putters found it closed and made the call
 * themselves), and ranges of older activations (the same).
 *
 * The memory may be mapped read-only. Whatever wild stores of a dying program left there, the walk
 * stays in bounds and ends.
 */
#ifndef RL_LEFTOVER_H
#define RL_LEFTOVER_H

#include "range_table.h"

/* The most that rl_leftover can give for this pool. */
static inline size_t rl_leftover_most(const struct rl_pool *pool)
{
    return (size_t)rl_load_32(&pool->capacity) + RL_TAILS;
}

/* Sorted, neighbours merged. capacity: nodes that are really mapped behind the pool, index 0
 * included. Returns how many; what goes beyond cap is left out. */
size_t rl_leftover(const struct rl_table *t, const struct rl_pool *pool, uint32_t capacity,
                   struct rl_span *out, size_t cap);

#endif
