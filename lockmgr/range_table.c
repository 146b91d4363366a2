/* SPDX-License-Identifier: MIT */
/* range_table: putting, looking, wanting. The consumer's half is drain.c. See range_table.h. */
#include "range_table_impl.h"

_Static_assert(RL_POOL_SPARE == 4 * RL_TAILS, "room for the tails");

/* The smallest block-aligned cover, packed; 0 if it does not fit. */
uint64_t rl_pack(uint64_t start, uint64_t end, uint32_t number)
{
    uint64_t first = start >> RL_BLOCK_SHIFT;
    uint64_t last = (end + RL_BLOCK - 1) >> RL_BLOCK_SHIFT;

    if (first >= (uint64_t)1 << 36 || last - first >= (uint64_t)1 << 20)
        return 0;
    return first << 28 | (last - first) << 8 | (number & 0xff);
}

struct rl_span rl_unpack(uint64_t packed)
{
    uint64_t first = packed >> 28;
    uint64_t blocks = packed >> 8 & 0xfffff;

    return (struct rl_span){first << RL_BLOCK_SHIFT, (first + blocks) << RL_BLOCK_SHIFT};
}

uint64_t rl_range_pack(uint64_t start, uint64_t end)
{
    return start < end ? rl_pack(start, end, 1) : 0;
}

struct rl_span rl_range_unpack(uint64_t packed)
{
    return rl_unpack(packed);
}

rl_head *rl_list_of(struct rl_table *t, uint64_t start, uint64_t end)
{
    if (start >> RL_CLASS_SHIFT == (end - 1) >> RL_CLASS_SHIFT)
        return &t->list[start >> RL_CLASS_SHIFT & (RL_CLASSES - 1)];
    return &t->wide;
}

void rl_gen_add(struct rl_table *t, uint64_t start, uint64_t end, uint32_t by)
{
    unsigned n, first;

    rl_classes(start, end, &first, &n);
    while (n-- > 0)
        rl_add_32(&t->gen[first++ & (RL_CLASSES - 1)], by);
}

uint64_t rl_table_stamp(const struct rl_table *t, uint64_t start, uint64_t end)
{
    uint64_t sum = 0;
    unsigned n, first;

    rl_classes(start, end, &first, &n);
    while (n-- > 0)
        sum += rl_load_32(&t->gen[first++ & (RL_CLASSES - 1)]);
    return sum;
}

void rl_push_range(struct rl_table *t, struct rl_pool *pool, uint32_t index, uint32_t act,
                   uint64_t start, uint64_t end)
{
    struct rl_node *node = &pool->node[index];

    rl_store_64(&node->start, start);
    rl_store_64(&node->end, end);
    rl_store_32(&node->act, act);
    rl_store_32(&node->pass, 0);
    rl_store_32(&node->chunk, 0);
    rl_list_push(pool, rl_list_of(t, start, end), index);
}

/* Contiguous or overlapping with what the tail holds, and the union still fits into a word. */
static uint64_t tail_union(uint64_t cur, uint64_t start, uint64_t end, uint32_t number)
{
    struct rl_span old = rl_unpack(cur);

    if (RL_MUTANT(2) ? start > old.end + RL_BLOCK : start > old.end || end < old.start)
        return 0;
    return rl_pack(start < old.start ? start : old.start, end > old.end ? end : old.end, number);
}

/* RL_PUT_FULL here: no tail takes it. */
static enum rl_put put_tail(struct rl_table *t, struct rl_pool *pool, uint32_t act, uint64_t start,
                            uint64_t end, uint64_t packed)
{
    for (int i = 0; i < RL_TAILS; i++) {
        uint64_t cur = rl_load_64(&t->tail[i]);

        while (cur != 0 && rl_tail_is_of(cur, act)) {
            uint64_t merged = tail_union(cur, start, end, act >> 2);

            if (merged == 0)
                break;
            if (rl_cas_64(&t->tail[i], &cur, merged))
                return RL_PUT_MERGED;
        }
    }
    /* The consumer will need a node for each tail. */
    if (rl_load_32(&pool->used) >= rl_load_32(&pool->limit))
        return RL_PUT_FULL;
    for (int i = 0; i < RL_TAILS; i++) {
        uint64_t cur = rl_load_64(&t->tail[i]);

        while (cur == 0 || !rl_tail_is_of(cur, act)) {
            /* A leftover of an older activation, or ours is the older one. If act is current now,
             * what was in the tail before this look is the leftover. */
            if (!RL_MUTANT(13) && rl_load_32(&t->act) != act)
                return RL_PUT_CLOSED;
            if (rl_cas_64(&t->tail[i], &cur, packed))
                return RL_PUT_QUEUED;
        }
    }
    return RL_PUT_FULL;
}

enum rl_put rl_table_put(struct rl_table *t, struct rl_pool *pool, uint32_t act, uint64_t start,
                         uint64_t end, uint64_t now_ns)
{
    enum rl_put put = RL_PUT_FULL;
    uint64_t packed = 0;
    uint64_t none = 0;

    if ((act & RL_ACT_STATE) != RL_ACT_ON || rl_load_32(&t->act) != act)
        return RL_PUT_CLOSED;
    if (((start | end) & (RL_BLOCK - 1)) == 0)
        packed = rl_pack(start, end, act >> 2);
    if (packed != 0)
        put = put_tail(t, pool, act, start, end, packed);
    if (put == RL_PUT_FULL) {
        uint32_t index = rl_node_get(pool);

        if (index != 0) {
            rl_push_range(t, pool, index, act, start, end);
            put = RL_PUT_QUEUED;
        }
    }
    if (put == RL_PUT_FULL || put == RL_PUT_CLOSED)
        return put;
    if (!RL_MUTANT(4))
        rl_gen_add(t, start, end, 2);
    /* A clock that runs is left alone: if the consumer stops it after this load, its look comes
     * after our push and finds the range. */
    if (rl_load_64(&t->first_ns) == 0)
        rl_cas_64(&t->first_ns, &none, now_ns);
    /* Pairs with the compare-and-swap in rl_table_close: either the closer's drain finds our range,
     * or we find the table closed and the caller applies it. */
    if (!RL_MUTANT(5) && rl_load_32(&t->act) != act)
        return RL_PUT_CLOSED;
    return put;
}

/* Adds what [start, end) of a queued range [s, e) covers. Returns the new count, cap + 1 at most.
 */
static int span_add(struct rl_span *out, int n, int cap, uint64_t s, uint64_t e, uint64_t start,
                    uint64_t end)
{
    if (s >= end || e <= start)
        return n;
    if (n < cap) {
        out[n].start = s > start ? s : start;
        out[n].end = e < end ? e : end;
    }
    return n < cap ? n + 1 : cap + 1;
}

/* Counts matching nodes of one list; *steps bounds a walk that was led astray by recycling. */
static int walk(struct rl_pool *pool, rl_head head, uint32_t act, uint64_t start, uint64_t end,
                struct rl_span *out, int n, int cap, uint32_t *steps)
{
    struct rl_node *node = rl_node_at(pool, rl_head_index(head));

    while (node != NULL && n <= cap && *steps > 0) {
        if ((rl_load_32(&node->act) ^ act) >> 2 == 0)
            n = span_add(out, n, cap, rl_load_64(&node->start), rl_load_64(&node->end), start, end);
        node = rl_node_at(pool, rl_load_32(&node->next));
        --*steps;
    }
    return n;
}

/* False: the consumer is taking something out of a class that [start, end) touches. */
static bool stamp_steady(const struct rl_table *t, uint64_t start, uint64_t end, uint64_t *stamp)
{
    uint32_t odd = 0;
    unsigned n, first;

    *stamp = 0;
    rl_classes(start, end, &first, &n);
    while (n-- > 0) {
        uint32_t gen = rl_load_32(&t->gen[first++ & (RL_CLASSES - 1)]);

        odd |= gen & 1;
        *stamp += gen;
    }
    return odd == 0 || RL_MUTANT(14);
}

/* One look. -1: the table changed under it; cap + 1: too many. */
static int look(struct rl_table *t, struct rl_pool *pool, uint64_t start, uint64_t end,
                struct rl_span *out, int cap)
{
    uint32_t act = rl_load_32(&t->act);
    uint32_t removed = rl_load_32(&t->wide_removed);
    uint32_t steps = pool->capacity + 1;
    uint64_t stamp;
    unsigned count, first;
    int n = 0;

    if ((act & RL_ACT_STATE) == RL_ACT_OFF)
        return 0;
    if ((act & RL_ACT_STATE) == RL_ACT_CLOSING && !RL_MUTANT(15))
        return -1;
    if (!stamp_steady(t, start, end, &stamp))
        return -1;
    for (int i = 0; i < RL_TAILS; i++) { /* before the lists: ranges move from here to there */
        uint64_t tail = rl_load_64(&t->tail[i]);

        if (tail != 0 && rl_tail_is_of(tail, act))
            n = span_add(out, n, cap, rl_unpack(tail).start, rl_unpack(tail).end, start, end);
    }
    if (!RL_MUTANT(6))
        n = walk(pool, rl_load_64(&t->wide), act, start, end, out, n, cap, &steps);
    rl_classes(start, end, &first, &count);
    while (count-- > 0)
        n = walk(pool, rl_load_64(&t->list[first++ & (RL_CLASSES - 1)]), act, start, end, out, n,
                 cap, &steps);
    rl_fence_load(); /* the walk before the counters that vouch for it; pairs with the RMWs in
                      * rl_gen_add */
    if (steps == 0 || rl_load_32(&t->wide_removed) != removed ||
        rl_table_stamp(t, start, end) != stamp)
        return -1;
    /* A range put while the table closes may be refused: it counts only if the state we judged it
     * by still stands (rl_drain_close). */
    if (!RL_MUTANT(15) && rl_load_32(&t->act) != act)
        return -1;
    return n;
}

int rl_table_overlaps(struct rl_table *t, struct rl_pool *pool, uint64_t start, uint64_t end,
                      struct rl_span *out, int cap)
{
    if (start >= end)
        return 0;
    for (int attempt = 0; attempt < 8; attempt++) {
        int n;

        if (attempt >= 2) /* the consumer or the closer may have been preempted half-way */
            rl_raw(SYS_sched_yield);
        n = look(t, pool, start, end, out, cap);
        if (n >= 0)
            return n > cap ? -1 : n;
    }
    return -1;
}

bool rl_table_maybe(const struct rl_table *t, uint64_t start, uint64_t end)
{
    unsigned n, first;

    for (int i = 0; i < RL_TAILS; i++) { /* before the lists: ranges move from here to there */
        uint64_t tail = rl_load_64(&t->tail[i]);

        if (tail != 0 && rl_unpack(tail).start < end && rl_unpack(tail).end > start)
            return true;
    }
    if (rl_head_index(rl_load_64(&t->wide)) != 0)
        return true;
    rl_classes(start, end, &first, &n);
    while (n-- > 0)
        if (rl_head_index(rl_load_64(&t->list[first++ & (RL_CLASSES - 1)])) != 0)
            return true;
    return false;
}

bool rl_table_empty(const struct rl_table *t)
{
    return !rl_table_maybe(t, 0, RL_FOREVER);
}

void rl_table_want(struct rl_table *t, uint64_t start, uint64_t end)
{
    uint64_t packed = start < end ? rl_pack(start, end, 1) : 0;

    for (int i = 0; packed != 0 && i < RL_WANTS; i++) {
        uint64_t seen = 0;

        if (rl_cas_64(&t->want[i], &seen, packed) || seen == packed)
            return;
    }
    rl_store_32(&t->want_all, 1);
}

bool rl_table_close(struct rl_table *t, uint32_t act)
{
    return (act & RL_ACT_STATE) == RL_ACT_ON &&
           rl_cas_32(&t->act, &act, (act & ~(uint32_t)RL_ACT_STATE) | RL_ACT_DRAINING);
}
