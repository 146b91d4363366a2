/* SPDX-License-Identifier: MIT */
/*
 * range_room: more slots for a range lock. See range_lock_impl.h.
 *
 * Nothing is ever taken back: not a room, not the mark of a group that ran over, not wide_top. Each
 * is set before the claim that needs it, so whoever looks after its own claim sees it, or its claim
 * is seen by the other's look.
 */
#include "range_lock_impl.h"

#define SMALL_SHIFT 4 /* grains: 64 KiB */
#define PROBES      4

/* A kind of groups found by hash. */
struct kind {
    struct group *group;
    uint32_t *over;
    unsigned first, log, shift; /* first: number of its first group in the room */
};

static uint32_t *over_of(const struct room *r)
{
    size_t groups = ((size_t)1 << r->log_small) + ((size_t)1 << r->log_middle) + r->wides;

    return (uint32_t *)(uintptr_t)&r->group[groups];
}

static struct kind small_of(struct room *r)
{
    return (struct kind){r->group, over_of(r), 0, r->log_small, SMALL_SHIFT};
}

static struct kind middle_of(struct room *r)
{
    unsigned first = 1u << r->log_small;

    return (struct kind){r->group + first, over_of(r), first, r->log_middle, CLASS_SHIFT};
}

static struct group *wide_of(struct room *r, unsigned i)
{
    return &r->group[(1u << r->log_small) + (1u << r->log_middle) + i];
}

static unsigned hash_of(const struct kind *kind, uint64_t class)
{
    return (unsigned)((uint64_t)((uint32_t) class * 0x9e3779b1u) >> (32 - kind->log));
}

static bool has_run_over(const struct kind *kind, unsigned i)
{
    return (rl_load_32(&kind->over[(kind->first + i) / 32]) >> (kind->first + i) % 32 & 1) != 0;
}

static bool fits(uint64_t w, unsigned shift)
{
    return grains_of(w) != SPAN_END && start_of(w) >> shift == (end_of(w) - 1) >> shift;
}

static inline __attribute__((always_inline)) bool
visit_class(const struct kind *kind, uint64_t class, struct look *k, rl_visit *fn)
{
    unsigned i = hash_of(kind, class);

    for (unsigned p = 0; p < PROBES; p++) {
        if (fn(&kind->group[i], k))
            return true;
        if (!has_run_over(kind, i) || RL_MUTANT(51))
            return false;
        i = (i + 1) & ((1u << kind->log) - 1);
    }
    return false;
}

static inline __attribute__((always_inline)) bool visit_kind(const struct kind *kind,
                                                             struct look *k, rl_visit *fn, bool all)
{
    uint64_t first = start_of(k->word) >> kind->shift;
    uint64_t last = (end_of(k->word) - 1) >> kind->shift;

    if (all || last - first >= (uint64_t)1 << kind->log) {
        for (unsigned i = 0; i < 1u << kind->log; i++)
            if (fn(&kind->group[i], k))
                return true;
        return false;
    }
    for (uint64_t class = first; class <= last; class ++)
        if (visit_class(kind, class, k, fn))
            return true;
    return false;
}

static inline __attribute__((always_inline)) bool visit_rooms(struct look *k, rl_visit *fn,
                                                              bool all)
{
    for (struct room *r = rl_load_ptr(&k->lock->room); r != NULL; r = r->next) {
        uint32_t used = rl_load_32(&r->used);
        uint32_t top = rl_load_32(&r->wide_top);
        struct kind small = small_of(r), middle = middle_of(r);

        if ((used & USED_SMALL) != 0 && visit_kind(&small, k, fn, all))
            return true;
        if ((used & USED_MIDDLE) != 0 && visit_kind(&middle, k, fn, all))
            return true;
        for (unsigned i = 0; i < top; i++)
            if (fn(wide_of(r, i), k))
                return true;
    }
    return false;
}

bool rl_room_visit(struct look *k, rl_visit *fn, bool all)
{
    return visit_rooms(k, fn, all);
}

static inline __attribute__((always_inline)) bool room_group_excludes(struct group *g,
                                                                      struct look *k)
{
    return group_excludes(g, g == k->own ? k->own_slot : GROUP_SLOTS, k->word);
}

bool rl_room_excludes(struct lock *l, const struct group *own, unsigned own_slot, uint64_t word)
{
    struct look k;

    k.lock = l;
    k.own = (struct group *)(uintptr_t)own;
    k.own_slot = own_slot;
    k.word = word;
    return visit_rooms(&k, room_group_excludes, false);
}

static bool claim_hashed(const struct kind *kind, struct rl_range_hold *hold, uint64_t w,
                         uint64_t hash)
{
    unsigned i = hash_of(kind, start_of(w) >> kind->shift);

    for (unsigned p = 0; p < PROBES; p++) {
        if (claim_in(&kind->group[i], hold, w, hash))
            return true;
        mark_used(&kind->over[(kind->first + i) / 32], 1u << (kind->first + i) % 32);
        i = (i + 1) & ((1u << kind->log) - 1);
    }
    return false;
}

static bool claim_wide(struct room *r, struct rl_range_hold *hold, uint64_t w, uint64_t hash)
{
    for (unsigned i = 0; i < r->wides; i++) {
        uint32_t top = rl_load_32(&r->wide_top);

        while (top <= i && !rl_cas_32(&r->wide_top, &top, i + 1))
            ;
        if (claim_in(wide_of(r, i), hold, w, hash))
            return true;
    }
    return false;
}

bool rl_room_claim(struct lock *l, struct rl_range_hold *hold, uint64_t w, uint64_t hash,
                   bool narrow)
{
    for (struct room *r = rl_load_ptr(&l->room); r != NULL; r = r->next) {
        struct kind small = small_of(r), middle = middle_of(r);

        if (!narrow) {
            if (claim_wide(r, hold, w, hash))
                return true;
            continue;
        }
        if (fits(w, SMALL_SHIFT)) {
            mark_used(&r->used, USED_SMALL);
            if (claim_hashed(&small, hold, w, hash))
                return true;
        }
        mark_used(&r->used, USED_MIDDLE);
        if (claim_hashed(&middle, hold, w, hash))
            return true;
    }
    return false;
}

static unsigned log2_of(size_t n)
{
    return 31 - (unsigned)__builtin_clz((unsigned)n);
}

int rl_range_room(struct rl_range_lock *lock, void *memory, size_t bytes)
{
    struct lock *l = (struct lock *)lock;
    struct room *r = memory;
    void *first = rl_load_ptr(&l->room);
    size_t groups = bytes < sizeof *r ? 0 : (bytes - sizeof *r) / (sizeof(struct group) + 8);

    if (groups < 8 || groups > (size_t)1 << 24)
        return -EINVAL;
    r->log_small = log2_of(groups / 2);
    groups -= (size_t)1 << r->log_small;
    r->log_middle = log2_of(groups / 2);
    r->wides = (uint32_t)(groups - ((size_t)1 << r->log_middle));
    do {
        r->next = first;
    } while (!rl_cas_ptr(&l->room, &first, r));
    mark_used(&l->used, USED_ROOM);
    return 0;
}
