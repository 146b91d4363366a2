/* SPDX-License-Identifier: MIT */
/*
 * range_lock: see include/rlshim/range_lock.h, and range_lock_impl.h for the words.
 *
 * Taking a range: claim a slot with one compare-and-swap, then look at the others. Nothing that
 * excludes it: it is held, and nothing more is written. Of two that claim at the same time at least
 * one sees the other (both looks come after both claims' barriers).
 *
 * Who saw something takes a turn (a number), marks its slot waiting and looks again, until nothing
 * is in its way: no slot that is not waiting (it holds, or has not looked yet), and no waiting one
 * with an earlier turn. Then it takes the mark away, and looks once more: one that is nested
 * (below) may have passed it in between. If so the mark comes back. Two waiting ones never both go:
 * the turns order them, and whoever has the later turn claimed its slot before it took that turn,
 * so it sees the earlier one, or is seen by it unmarked. A newcomer never passes a waiting one: it
 * sees that slot, taken before its own, and takes a later turn. So at most those who had claimed
 * before go first: first come, first served.
 *
 * Nested: a thread that has a slot of this lock already does not wait for waiting ones, which may
 * be waiting for it. It can meet one that is about to go: each has taken its mark away before it
 * looks the last time, so at least one of them sees the other and steps back.
 *
 * Letting go is two plain stores and a look whether anybody waits. That look may run ahead of the
 * store; whoever waits has the kernel run a barrier on all processors that run this process
 * (membarrier: 1 to 50 us, before a sleep that costs as much) after it was counted. Each release
 * then either was visible to its next look or sees the count. WAIT_ARMED says that this has
 * happened since the word was last 0, and keeps it from being 0, so it is not done for each wait; a
 * thousand releases without a waiter end it. Where membarrier is refused (seccomp), waiters look
 * every millisecond.
 *
 * Sleepers sleep on seq[index of the slot in their way], the waiting one with the latest turn if
 * there is one: so a release wakes whoever is next, and shared ones together, not the whole queue.
 */
#include "gate.h"
#include "range_lock_impl.h"

#define SLICE_NS      100000000u /* nobody sleeps longer without looking */
#define SLICE_POLL_NS 1000000u   /* without membarrier, and for a slot */
#define UNSIGNED_NS   10000000u  /* look for the owner of a claim that is not signed */
#define UNSIGNED_MAX  3 /* then it is taken for one that this thread's handler interrupted */
#ifndef CALM_MAX
#define CALM_MAX 1000
#endif
#define TRY   ((uint64_t)0) /* as a deadline */
#define NEVER UINT64_MAX

/* --- words --- */

static uint64_t thread_hash(void)
{
    return (uint64_t)rl_thread_pointer() * 0x9e3779b97f4a7c15u;
}

static uint64_t tag_of_hash(uint64_t hash)
{
    return hash >> 22 & W_TAG;
}

static uint64_t word_of(uint64_t start, uint64_t end, bool exclusive, uint64_t hash)
{
    uint64_t first = start >> GRAIN_SHIFT;
    uint64_t grains = ((end - 1) >> GRAIN_SHIFT) - first + 1;

    if (first >= START_MAX) {
        first = START_MAX;
        grains = SPAN_END;
    }
    if (grains > SPAN_END || RL_MUTANT(40))
        grains = SPAN_END;
    return first << 28 | grains << 8 | tag_of_hash(hash) | (exclusive ? W_EXCLUSIVE : 0);
}

static bool excludes(const struct look *k, uint64_t w)
{
    return ((k->word | w) & W_EXCLUSIVE) != 0 && start_of(w) < k->end && end_of(w) > k->start;
}

static bool is_narrow(uint64_t w)
{
    return grains_of(w) <= (uint64_t)1 << CLASS_SHIFT &&
           start_of(w) >> CLASS_SHIFT == (end_of(w) - 1) >> CLASS_SHIFT;
}

static unsigned class_of(uint64_t w)
{
    return (unsigned)(start_of(w) >> CLASS_SHIFT) & (NARROWS - 1);
}

/* How many narrow groups a range touches, from class_of on. */
static unsigned classes_of(uint64_t w)
{
    uint64_t n;

    if (grains_of(w) == SPAN_END)
        return NARROWS;
    n = ((end_of(w) - 1) >> CLASS_SHIFT) - (start_of(w) >> CLASS_SHIFT) + 1;
    return n < NARROWS ? (unsigned)n : NARROWS;
}

/* --- groups --- */

/* The groups in which a slot can be that meets k->word; or all. */
static inline __attribute__((always_inline)) bool visit_groups(struct look *k, rl_visit *fn,
                                                               bool all)
{
    uint32_t used = rl_load_32(&k->lock->used);
    uint32_t look = WIDE_MASK;

    if (all) {
        look |= (1u << NARROWS) - 1;
    } else {
        unsigned first = class_of(k->word), n = classes_of(k->word);

        for (unsigned i = 0; i < n; i++)
            look |= 1u << ((first + i) & (NARROWS - 1));
    }
    if (RL_MUTANT(41))
        look &= ~WIDE_MASK;
    for (look &= used; look != 0; look &= look - 1)
        if (fn(&k->lock->group[__builtin_ctz(look)], k))
            return true;
    return (used & USED_ROOM) != 0 && rl_room_visit(k, fn, all);
}

/* --- claims --- */

static bool claim_anywhere(struct lock *l, struct rl_range_hold *hold, uint64_t w, uint64_t hash)
{
    if (is_narrow(w)) {
        unsigned c = class_of(w);

        mark_used(&l->used, 1u << c);
        if (claim_in(&l->group[c], hold, w, hash) || rl_room_claim(l, hold, w, hash, true))
            return true;
    }
    for (unsigned i = 0; i < WIDES; i++) {
        unsigned c = NARROWS + ((unsigned)(hash >> 60) + i) % WIDES;

        mark_used(&l->used, 1u << c);
        if (claim_in(&l->group[c], hold, w, hash))
            return true;
    }
    return rl_room_claim(l, hold, w, hash, false);
}

/* --- waking --- */

/* Counted and barred: from now on every release sees that somebody waits. */
static bool arm(struct lock *l)
{
    uint32_t v = rl_load_32(&l->wait);

    if ((v & WAIT_ARMED) != 0)
        return true;
    if (!RL_MUTANT(43) && !rl_fence_everywhere())
        return false;
    while ((v & WAIT_ARMED) == 0 && !rl_cas_32(&l->wait, &v, v | WAIT_ARMED))
        ;
    return true;
}

static __attribute__((noinline)) void wake(struct lock *l, unsigned slot)
{
    uint32_t v;

    rl_fence(); /* pairs with the count of a waiter: it sees the slot, or we see it */
    v = rl_load_32(&l->wait);
    if (v < WAIT_ONE) {
        if (rl_add_32(&l->calm, 1) > CALM_MAX) {
            rl_store_32(&l->calm, 0);
            rl_cas_32(&l->wait, &v, 0);
        }
        return;
    }
    rl_store_32(&l->calm, 0);
    rl_add_32(&l->seq[slot], 1);
    rl_futex_wake(&l->seq[slot], INT32_MAX);
    if (rl_load_32(&l->room_wanted) != 0) {
        rl_add_32(&l->room_seq, 1);
        rl_futex_wake(&l->room_seq, 1);
    }
}

static void sleep_on(uint32_t *seq, uint32_t seen, uint64_t slice_ns, uint64_t deadline_ns)
{
    if (deadline_ns != NEVER) {
        uint64_t now_ns = rl_now_ns();

        if (now_ns >= deadline_ns)
            return;
        if (deadline_ns - now_ns < slice_ns)
            slice_ns = deadline_ns - now_ns;
    }
    rl_futex_wait(seq, seen, slice_ns);
}

static bool is_late(uint64_t deadline_ns)
{
    return deadline_ns != NEVER && (deadline_ns == TRY || rl_now_ns() >= deadline_ns);
}

/* Waits until there is a slot to claim. Those who come while somebody waits give way once. */
static __attribute__((noinline)) bool claim_crowded(struct lock *l, struct rl_range_hold *hold,
                                                    uint64_t w, uint64_t hash, uint64_t deadline_ns)
{
    bool given_way = rl_load_32(&l->room_wanted) == 0 || deadline_ns == TRY;
    bool done;

    if (given_way && claim_anywhere(l, hold, w, hash)) {
        uint32_t v = rl_load_32(&l->used);

        if ((v & USED_CROWDED) != 0 && rl_load_32(&l->room_wanted) == 0)
            rl_cas_32(&l->used, &v, v & ~USED_CROWDED); /* if lost, a waiter sets it again */
        return true;
    }
    if (deadline_ns == TRY)
        return false;
    rl_add_32(&l->wait, WAIT_ONE);
    rl_add_32(&l->room_wanted, 1);
    for (;;) {
        uint32_t seen = rl_load_32(&l->room_seq);

        mark_used(&l->used, USED_CROWDED);
        done = given_way && claim_anywhere(l, hold, w, hash);
        if (done || is_late(deadline_ns))
            break;
        arm(l);
        sleep_on(&l->room_seq, seen, SLICE_POLL_NS, deadline_ns);
        given_way = true;
    }
    rl_add_32(&l->room_wanted, (uint32_t)-1);
    rl_add_32(&l->wait, (uint32_t)-WAIT_ONE);
    return done;
}

/* --- looks --- */

static inline bool is_own(const struct look *k, const struct group *g, unsigned i)
{
    return g == k->own && i == k->own_slot;
}

/* First look: is anything there at all? */
static inline bool meets(struct group *g, struct look *k)
{
    for (unsigned i = 0; i < GROUP_SLOTS; i++) {
        uint64_t w = rl_load_64(&g->slot[i]);

        if (w != 0 && !is_own(k, g, i) && excludes(k, w)) {
            k->group = g;
            k->slot = i;
            k->seen = w;
            return true;
        }
    }
    return false;
}

static bool same_tag(uint64_t a, uint64_t b)
{
    return ((a ^ b) & W_TAG) == 0;
}

enum whose { OTHERS, MINE, UNSIGNED };

static enum whose whose(const struct look *k, const struct group *g, unsigned i, uint64_t w)
{
    uint32_t owner;

    if (!same_tag(k->word, w) || RL_MUTANT(44))
        return OTHERS;
    owner = rl_load_32(&g->owner[i]);
    return owner == k->me ? MINE : owner == 0 ? UNSIGNED : OTHERS;
}

static bool finds_mine(struct group *g, struct look *k)
{
    for (unsigned i = 0; i < GROUP_SLOTS; i++) {
        uint64_t w = rl_load_64(&g->slot[i]);

        if (w != 0 && !is_own(k, g, i) && whose(k, g, i, w) != OTHERS)
            return true;
    }
    return false;
}

static bool is_earlier(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

/* A waiter's look: remembers the waiting slot with the latest turn before its own, or else the
 * first that is not waiting. */
static bool blocks(struct group *g, struct look *k)
{
    for (unsigned i = 0; i < GROUP_SLOTS; i++) {
        uint64_t w = rl_load_64(&g->slot[i]);
        uint32_t turn = 0;

        if (w == 0 || is_own(k, g, i) || !excludes(k, w))
            continue;
        if ((w & W_WAITING) != 0) {
            if ((k->nested && !RL_MUTANT(45)) || RL_MUTANT(46))
                continue;
            turn = rl_load_32(&g->turn[i]);
            if (rl_load_64(&g->slot[i]) != w) {
                i--; /* another's turn, perhaps: look at this slot again */
                continue;
            }
            if (!is_earlier(turn, k->turn) ||
                (k->group != NULL && (k->seen & W_WAITING) != 0 && is_earlier(turn, k->seen_turn)))
                continue;
        } else if (k->group != NULL) {
            continue;
        }
        k->group = g;
        k->slot = i;
        k->seen = w;
        k->seen_turn = turn;
    }
    return false;
}

static bool is_blocked(struct look *k)
{
    k->group = NULL;
    visit_groups(k, blocks, false);
    return k->group != NULL;
}

/* --- waiting --- */

static void mark_waiting(struct look *k, bool waiting)
{
    rl_store_64(&k->own->slot[k->own_slot], waiting ? k->word | W_WAITING : k->word);
    if (waiting && !RL_MUTANT(47))
        wake(k->lock, k->own_slot); /* for those it is not in the way of any more */
    else
        rl_fence(); /* pairs with the same in others: one of two sees the other */
}

/* The mark is taken away, unless a nested one has passed. */
static bool go(struct look *k)
{
    mark_waiting(k, false);
    if (!is_blocked(k) || RL_MUTANT(48))
        return true;
    mark_waiting(k, true);
    return false;
}

static __attribute__((noinline)) int wait_turn(struct look *k, struct rl_range_hold *hold,
                                               uint64_t deadline_ns)
{
    struct lock *l = k->lock;
    struct group *watched = NULL;
    unsigned watched_slot = 0, unsigned_looks = 0;
    uint64_t watched_word = 0;
    uint32_t watched_turn = 0, seen = 0;
    bool armed = false;
    int err;

    rl_add_32(&l->wait, WAIT_ONE);
    hold->rl_waits = 1;
    k->nested = visit_groups(k, finds_mine, true);
    k->turn = rl_add_32(&l->turn, 1) + 1;
    rl_store_32(&k->own->turn[k->own_slot], k->turn);
    mark_waiting(k, true);
    for (;;) {
        enum whose whose_it_is;

        if (!is_blocked(k)) {
            if (go(k))
                break;
            continue;
        }
        whose_it_is = (k->seen & W_WAITING) != 0 ? OTHERS : whose(k, k->group, k->slot, k->seen);
        err = -EDEADLK;
        if (whose_it_is == MINE || (whose_it_is == UNSIGNED && unsigned_looks >= UNSIGNED_MAX))
            goto withdraw;
        /* Seen twice, once after seq was read and the count is known to all: now it may sleep. */
        if (k->group != watched || k->slot != watched_slot || k->seen != watched_word ||
            k->seen_turn != watched_turn) {
            watched = k->group;
            watched_slot = k->slot;
            watched_word = k->seen;
            watched_turn = k->seen_turn;
            unsigned_looks = 0;
            err = -ETIMEDOUT;
            if (is_late(deadline_ns))
                goto withdraw;
            seen = rl_load_32(&l->seq[watched_slot]);
            armed = arm(l);
            continue;
        }
        unsigned_looks += whose_it_is == UNSIGNED;
        sleep_on(&l->seq[watched_slot], seen,
                 whose_it_is == UNSIGNED ? UNSIGNED_NS
                 : armed                 ? SLICE_NS
                                         : SLICE_POLL_NS,
                 deadline_ns);
        if (is_late(deadline_ns)) {
            watched = NULL; /* one more look, then it is late */
        } else if (whose_it_is != UNSIGNED) {
            seen = rl_load_32(&l->seq[watched_slot]);
        }
    }
    rl_add_32(&l->wait, (uint32_t)-WAIT_ONE);
    hold->rl_waits = 0;
    return 0;
withdraw:
    rl_range_release(hold);
    return err;
}

/* --- public --- */

/* Whether anything outside rooms, but for the own slot, excludes a word within one MiB. */
static inline __attribute__((always_inline)) bool
is_excluded_here(struct lock *l, const struct group *own, unsigned own_slot, uint64_t word)
{
    const struct group *home = &l->group[class_of(word)];
    uint32_t used = rl_load_32(&l->used);

    if (group_excludes(home, own == home ? own_slot : GROUP_SLOTS, word))
        return true;
    for (uint32_t look = used & WIDE_MASK; look != 0; look &= look - 1) {
        const struct group *wide = &l->group[__builtin_ctz(look)];

        if (group_excludes(wide, own == wide ? own_slot : GROUP_SLOTS, word))
            return true;
    }
    return false;
}

static bool is_excluded(struct lock *l, const struct group *own, unsigned own_slot, uint64_t word)
{
    return is_excluded_here(l, own, own_slot, word) ||
           ((rl_load_32(&l->used) & USED_ROOM) != 0 && rl_room_excludes(l, own, own_slot, word));
}

/* Everything but the common case. */
static __attribute__((noinline)) int take(struct rl_range_lock *lock, struct rl_range_hold *hold,
                                          uint64_t start, uint64_t end, enum rl_range_mode mode,
                                          uint64_t deadline_ns)
{
    struct lock *l = (struct lock *)lock;
    uint64_t hash = thread_hash();
    struct look k = {.lock = l, .me = owner_of_hash(hash)};
    bool claimed = hold->rl_group != NULL;

    if (!claimed) {
        if (start >= end || (mode != RL_SHARED && mode != RL_EXCLUSIVE))
            return -EINVAL;
    }
    k.word = word_of(start, end, mode == RL_EXCLUSIVE, hash);
    k.start = start_of(k.word);
    k.end = end_of(k.word);
    if (!claimed) {
        if (deadline_ns == TRY && visit_groups(&k, meets, false))
            return whose(&k, k.group, k.slot, k.seen) == MINE ? -EDEADLK : -EAGAIN;
        hold->rl_lock = lock;
        hold->rl_waits = 0;
        if (!claim_crowded(l, hold, k.word, hash, deadline_ns))
            return deadline_ns == TRY ? -EAGAIN : -ETIMEDOUT;
    }
    k.own = hold->rl_group;
    k.own_slot = hold->rl_slot;
    if (RL_MUTANT(49) || !(is_narrow(k.word) ? is_excluded(l, k.own, k.own_slot, k.word)
                                             : visit_groups(&k, meets, false)))
        return 0;
    if (deadline_ns != TRY)
        return wait_turn(&k, hold, deadline_ns);
    rl_range_release(hold);
    return -EAGAIN;
}

/* The common case: within one MiB, whose group was used before and has a free slot. True: taken.
 * Otherwise take goes on, with what is claimed. */
static inline __attribute__((always_inline)) bool take_quick(struct rl_range_lock *lock,
                                                             struct rl_range_hold *hold,
                                                             uint64_t start, uint64_t end,
                                                             enum rl_range_mode mode, bool try)
{
    struct lock *l = (struct lock *)lock;
    uint64_t first = start >> GRAIN_SHIFT, last = (end - 1) >> GRAIN_SHIFT;
    unsigned home = (unsigned)(first >> CLASS_SHIFT) & (NARROWS - 1);
    struct group *g = &l->group[home];
    uint64_t hash = thread_hash();
    uint64_t word = first << 28 | (last - first + 1) << 8 | tag_of_hash(hash) | (unsigned)mode;

    if (start >= end || last >> CLASS_SHIFT != first >> CLASS_SHIFT || first >= START_MAX ||
        (rl_load_32(&l->used) & (1u << home | USED_CROWDED)) != 1u << home ||
        (unsigned)mode > RL_EXCLUSIVE || (try && is_excluded_here(l, NULL, GROUP_SLOTS, word)) ||
        !claim_in(g, hold, word, hash)) {
        hold->rl_group = NULL;
        return false;
    }
    hold->rl_lock = lock;
    hold->rl_waits = 0;
    /* Rooms are looked into out of line: a call here would cost all the others six registers. */
    return (rl_load_32(&l->used) & USED_ROOM) == 0 &&
           (!is_excluded_here(l, g, hold->rl_slot, word) || RL_MUTANT(49));
}

int rl_range_acquire(struct rl_range_lock *lock, struct rl_range_hold *hold, uint64_t start,
                     uint64_t end, enum rl_range_mode mode)
{
    if (take_quick(lock, hold, start, end, mode, false))
        return 0;
    return take(lock, hold, start, end, mode, NEVER);
}

int rl_range_try(struct rl_range_lock *lock, struct rl_range_hold *hold, uint64_t start,
                 uint64_t end, enum rl_range_mode mode)
{
    if (take_quick(lock, hold, start, end, mode, true))
        return 0;
    return take(lock, hold, start, end, mode, TRY);
}

int rl_range_acquire_until(struct rl_range_lock *lock, struct rl_range_hold *hold, uint64_t start,
                           uint64_t end, enum rl_range_mode mode, uint64_t deadline_ns)
{
    if (take_quick(lock, hold, start, end, mode, false))
        return 0;
    return take(lock, hold, start, end, mode, deadline_ns != TRY ? deadline_ns : 1);
}

void rl_range_release(struct rl_range_hold *hold)
{
    struct lock *l = (struct lock *)hold->rl_lock;
    struct group *g = hold->rl_group;

    if (g == NULL)
        return;
    hold->rl_group = NULL;
    if (hold->rl_waits != 0) {
        hold->rl_waits = 0;
        rl_add_32(&l->wait, (uint32_t)-WAIT_ONE);
    }
    rl_store_32(&g->owner[hold->rl_slot], 0); /* before: the next owner's name must not be lost */
    rl_store_64(&g->slot[hold->rl_slot], 0);
    if (rl_load_32(&l->wait) != 0 && !RL_MUTANT(50))
        wake(l, hold->rl_slot);
}

static bool finds_any(struct group *g, struct look *k)
{
    (void)k;
    for (unsigned i = 0; i < GROUP_SLOTS; i++)
        if (rl_load_64(&g->slot[i]) != 0)
            return true;
    return false;
}

bool rl_range_idle(const struct rl_range_lock *lock)
{
    struct look k = {.lock = (struct lock *)(uintptr_t)lock};

    return rl_load_32(&k.lock->wait) < WAIT_ONE && !visit_groups(&k, finds_any, true);
}
