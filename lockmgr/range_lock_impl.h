/* SPDX-License-Identifier: MIT */
/*
 * range_lock_impl: what is inside a struct rl_range_lock (include/rlshim/range_lock.h).
 *
 * A range that is held or waited for is one 64-bit word in a slot:
 *   bits 28-63  start in grains     bit 1  waiting, its turn is in turn[]
 *   bits  8-27  length in grains    bit 0  exclusive
 *   bits  2-7   part of the owner's identity
 * A free slot is 0, a length of SPAN_END goes on for ever. Only the owner of a slot changes it, so
 * all but the claim are plain stores.
 *
 * Eight slots are a group. A range within one MiB goes into the group of that MiB (modulo their
 * number), any other, and what finds its group full, into a wide one. So a call has to look only
 * into the groups of its own MiB and the wide ones, of those that were ever used (`used` never
 * loses a bit: clearing one would race with the next claim).
 *
 * Rooms are more groups, in memory the caller added.
 */
#ifndef RL_RANGE_LOCK_IMPL_H
#define RL_RANGE_LOCK_IMPL_H

#include "../include/rlshim/range_lock.h"
#include "sync.h"

#define GROUP_SLOTS 8
#define NARROWS     4
#define WIDES       2
#define GROUPS      (NARROWS + WIDES)
#define WIDE_MASK   (((1u << WIDES) - 1) << NARROWS)

#define GRAIN_SHIFT 12
#define CLASS_SHIFT 8 /* grains: 1 MiB */
#define SPAN_END    ((uint64_t)0xfffff)
#define START_MAX   (((uint64_t)1 << 36) - 1)

#define W_EXCLUSIVE ((uint64_t)1)
#define W_WAITING   ((uint64_t)2)
#define W_TAG       ((uint64_t)0xfc)

/* lock.used beyond the groups */
#define USED_ROOM    (1u << 30) /* there are rooms */
#define USED_CROWDED (1u << 31) /* somebody waits for a slot: newcomers give way for a moment */
/* room.used */
#define USED_NARROW 1u
#define USED_WIDE   2u

/* lock.wait */
#define WAIT_ARMED 1u
#define WAIT_ONE   2u

struct group {
    uint64_t slot[GROUP_SLOTS];
    uint32_t owner[GROUP_SLOTS]; /* whose; 0 while a claim is not signed yet */
    uint32_t turn[GROUP_SLOTS];  /* of a waiting slot; its owner writes it before it waits */
};

struct room {
    struct room *next;
    uint32_t used;
    uint32_t narrows, wides; /* groups; narrows is a power of two */
    uint8_t pad[64 - 24];
    struct group group[];
};

struct lock {
    uint32_t used;             /* groups that were ever used; USED_ */
    uint32_t wait;             /* waiters in units of WAIT_ONE; WAIT_ARMED */
    uint32_t turn;             /* newest turn given to a waiter */
    uint32_t calm;             /* releases that found it armed and nobody waiting */
    uint32_t seq[GROUP_SLOTS]; /* futexes: seq[i] moves when a slot i of any group changes */
    uint32_t room_seq;         /* futex: moves when a slot gets free while somebody wants one */
    uint32_t room_wanted;      /* how many want one */
    struct room *room;
    struct group group[GROUPS];
} __attribute__((may_alias));

_Static_assert(sizeof(struct lock) == RL_RANGE_LOCK_BYTES, "public size");
_Static_assert(sizeof(struct room) == 64, "RL_RANGE_ROOM_BYTES");
_Static_assert(GROUPS *GROUP_SLOTS == RL_RANGE_SLOTS, "public number");

#endif
