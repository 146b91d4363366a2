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
 * Rooms are more groups, in memory the caller added, of three kinds: for ranges within 64 KiB,
 * found by a hash; within one MiB, the same; all others. A group that ran full for the first time
 * is marked for good, and those who look go on to the next one, three times at most.
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
#define USED_SMALL  1u
#define USED_MIDDLE 2u

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
    uint32_t used;                         /* USED_SMALL, USED_MIDDLE */
    uint32_t wide_top;                     /* wide groups that were ever used */
    uint32_t log_small, log_middle, wides; /* groups: two powers of two, a number */
    uint8_t pad[64 - 28];
    struct group group[]; /* small, middle, wide; then a bit for each group: it ran over */
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

/* What is in the way of a claim, and of whose. */
struct look {
    struct lock *lock;
    struct group *own; /* the claim's own slot, left out */
    unsigned own_slot;
    uint64_t word;
    uint64_t start, end; /* grains */
    uint32_t me, turn;
    bool nested;
    struct group *group; /* result: whose slot; NULL nobody's */
    unsigned slot;
    uint64_t seen;
    uint32_t seen_turn;
};

/* Returns true to end the walk. */
typedef bool rl_visit(struct group *g, struct look *k);

static inline uint64_t grains_of(uint64_t w)
{
    return w >> 8 & SPAN_END;
}

static inline uint64_t start_of(uint64_t w)
{
    return w >> 28;
}

static inline uint64_t end_of(uint64_t w)
{
    return grains_of(w) == SPAN_END ? UINT64_MAX : start_of(w) + grains_of(w);
}

static inline uint32_t owner_of_hash(uint64_t hash)
{
    return (uint32_t)(hash >> 32) | 1;
}

static inline void mark_used(uint32_t *used, uint32_t bit)
{
    uint32_t v = rl_load_32(used);

    if (RL_MUTANT(42))
        return;
    while ((v & bit) == 0 && !rl_cas_32(used, &v, v | bit))
        ;
}

/* Takes a free slot of g and signs it. Threads begin at different ones. */
static inline __attribute__((always_inline)) bool
claim_in(struct group *g, struct rl_range_hold *hold, uint64_t w, uint64_t hash)
{
    for (unsigned k = 0; k < GROUP_SLOTS; k++) {
        unsigned i = ((unsigned)(hash >> 61) + k) & (GROUP_SLOTS - 1);
        uint64_t free = 0;

        if (rl_load_64(&g->slot[i]) == 0 && rl_cas_64(&g->slot[i], &free, w)) {
            rl_store_32(&g->owner[i], owner_of_hash(hash));
            hold->rl_slot = i;
            hold->rl_group = g;
            return true;
        }
    }
    return false;
}

/* Whether slot i excludes the word. */
static inline __attribute__((always_inline)) bool slot_excludes(const struct group *g, unsigned i,
                                                                unsigned own, uint64_t word)
{
    uint64_t w = rl_load_64(&g->slot[i]);

    return w != 0 && i != own && ((w | word) & W_EXCLUSIVE) != 0 && start_of(w) < end_of(word) &&
           end_of(w) > start_of(word);
}

/* Whether any slot but `own` does. Written out: gcc 12 makes a loop of it that is half as fast. */
static inline __attribute__((always_inline)) bool group_excludes(const struct group *g,
                                                                 unsigned own, uint64_t word)
{
    return slot_excludes(g, 0, own, word) || slot_excludes(g, 1, own, word) ||
           slot_excludes(g, 2, own, word) || slot_excludes(g, 3, own, word) ||
           slot_excludes(g, 4, own, word) || slot_excludes(g, 5, own, word) ||
           slot_excludes(g, 6, own, word) || slot_excludes(g, 7, own, word);
}

/* range_room.c: the groups of all rooms in which a slot can be that meets k->word, or all groups; a
 * slot in one, for ranges within one MiB or for any. */
bool rl_room_visit(struct look *k, rl_visit *fn, bool all);
bool rl_room_excludes(struct lock *l, const struct group *own, unsigned own_slot, uint64_t word);
bool rl_room_claim(struct lock *l, struct rl_range_hold *hold, uint64_t w, uint64_t hash,
                   bool narrow);

_Static_assert(sizeof(struct lock) == RL_RANGE_LOCK_BYTES, "public size");
_Static_assert(sizeof(struct room) == 64, "RL_RANGE_ROOM_BYTES");
_Static_assert(GROUPS *GROUP_SLOTS == RL_RANGE_SLOTS, "public number");

#endif
