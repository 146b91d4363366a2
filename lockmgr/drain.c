/* SPDX-License-Identifier: MIT */
/* drain: the consumer's half of range_table.h. One thread at a time; pushes may go on meanwhile. */
#include "range_table_impl.h"

/* All lists, wide first, then the classes from the cursor on. */
static rl_head *list_at(struct rl_table *t, unsigned i)
{
    return i == 0 ? &t->wide : &t->list[(t->cursor + i - 1) & (RL_CLASSES - 1)];
}

/* The lists in which nodes that meet s can be; NULL after the last. */
static rl_head *list_meeting(struct rl_table *t, const struct rl_span *s, unsigned i)
{
    unsigned n, first;

    rl_classes(s->start, s->end, &first, &n);
    if (i > n)
        return NULL;
    return i == 0 ? &t->wide : &t->list[(first + i - 1) & (RL_CLASSES - 1)];
}

/* Numbers of passes and stretches count up and leave out 0, which means none. */
static uint32_t number_after(uint32_t n)
{
    return n + 1 != 0 ? n + 1 : 1;
}

/* A node of an older activation: its pusher found the table closed and applied it. */
static bool is_stranger(const struct rl_table *t, const struct rl_node *node)
{
    return (node->act ^ rl_load_32(&t->act)) >> 2 != 0;
}

/* Takes a node out of its list for good. The generations are odd meanwhile: nobody who looks in
 * between, or stands on the node, believes what he saw. wide_removed is for walkers whose classes
 * the node does not touch; they stand on it all the same. */
static void node_remove(struct rl_table *t, struct rl_pool *pool, rl_head *list, uint32_t prev,
                        uint32_t index)
{
    struct rl_node *node = &pool->node[index];
    uint64_t start = node->start;
    uint64_t end = node->end;

    if (!RL_MUTANT(7))
        rl_gen_add(t, start, end, RL_MUTANT(16) ? 2 : 1);
    rl_list_unlink(pool, list, prev, index);
    if (list == &t->wide && !RL_MUTANT(17))
        rl_add_32(&t->wide_removed, 1);
    if (!RL_MUTANT(7) && !RL_MUTANT(16))
        rl_gen_add(t, start, end, 1);
    rl_node_put(pool, index);
}

static void drop_strangers(struct rl_table *t, struct rl_pool *pool, rl_head *list)
{
    uint32_t prev = 0;
    uint32_t index = rl_head_index(rl_load_64(list));

    while (index != 0) {
        uint32_t next = rl_load_32(&pool->node[index].next);

        if (is_stranger(t, &pool->node[index]))
            node_remove(t, pool, list, prev, index);
        else
            prev = index;
        index = next;
    }
}

void rl_drain_open(struct rl_table *t, struct rl_pool *pool)
{
    uint32_t number = (rl_load_32(&t->act) >> 2) + 1;

    rl_store_32(&t->act, number << 2 | RL_ACT_OFF);
    for (unsigned i = 0; i <= RL_CLASSES; i++)
        drop_strangers(t, pool, list_at(t, i));
    for (int i = 0; i < RL_TAILS; i++)
        rl_store_64(&t->tail[i], 0);
    rl_store_64(&t->first_ns, 0);
    for (int i = 0; i < RL_WANTS; i++)
        rl_store_64(&t->want[i], 0);
    rl_store_32(&t->want_all, 0);
    rl_store_32(&t->act, number << 2 | RL_ACT_ON);
}

bool rl_drain_close(struct rl_table *t)
{
    uint32_t act = rl_load_32(&t->act);

    if ((act & RL_ACT_STATE) != RL_ACT_DRAINING || !rl_table_empty(t))
        return false;
    /* A putter that was late for DRAINING may still push. Whatever a looker saw was pushed before
     * CLOSING, so it is found here and the table goes on draining; whatever is pushed later nobody
     * ever sees, and its putter finds the table closed and applies it. */
    rl_store_32(&t->act, act | RL_ACT_CLOSING);
    rl_fence(); /* pairs with the compare-and-swap of a push */
    if (!rl_table_empty(t) && !RL_MUTANT(15)) {
        rl_store_32(&t->act, act);
        return false;
    }
    rl_store_32(&t->act, (act & ~(uint32_t)RL_ACT_STATE) | RL_ACT_OFF);
    rl_add_32(&t->done_seq, 1);
    rl_futex_wake(&t->done_seq, INT32_MAX);
    return true;
}

/* Moves a tail into a node. The node comes first, so that the range is in one place at least at
 * every moment. */
static void tail_flush(struct rl_table *t, struct rl_pool *pool, uint64_t *tail)
{
    uint32_t act = rl_load_32(&t->act);
    uint64_t cur = rl_load_64(tail);

    /* Bounded: putters may grow the tail as fast as we copy it. Whatever is left in it after the
     * last try is in nodes as well, up to where it had grown when we looked. */
    for (int attempt = 0; attempt < 4 && cur != 0; attempt++) {
        uint32_t index;

        if (RL_MUTANT(3) && !rl_cas_64(tail, &cur, 0))
            continue;
        if (rl_tail_is_of(cur, act) && !RL_MUTANT(8)) {
            index = rl_node_get_reserved(pool);
            if (index == 0)
                return;
            rl_push_range(t, pool, index, act, rl_unpack(cur).start, rl_unpack(cur).end);
        }
        if (RL_MUTANT(3) || rl_cas_64(tail, &cur, 0))
            return;
    }
}

uint32_t rl_drain_begin(struct rl_table *t, struct rl_pool *pool)
{
    uint32_t pass = number_after(rl_load_32(&t->pass_begun));

    rl_store_32(&t->pass_begun, pass);
    rl_store_64(&t->first_ns, 0); /* before the look: what comes later starts the clock again */
    rl_store_32(&t->want_all, 0);
    rl_fence(); /* pairs with the RMWs in rl_table_put */
    for (int i = 0; i < RL_TAILS; i++)
        tail_flush(t, pool, &t->tail[i]);
    for (unsigned i = 0; i <= RL_CLASSES; i++) {
        rl_head *list = list_at(t, i);
        uint32_t index;

        drop_strangers(t, pool, list);
        for (index = rl_head_index(rl_load_64(list)); index != 0; index = pool->node[index].next)
            if (pool->node[index].pass == 0 &&
                (!is_stranger(t, &pool->node[index]) || RL_MUTANT(18)))
                pool->node[index].pass = pass;
    }
    if (RL_MUTANT(9))
        rl_store_32(&t->pass_done, pass);
    return pass;
}

/* Marks every node that the stretch about to be applied covers in whole or in part. */
static void mark_chunk(struct rl_table *t, struct rl_pool *pool, const struct rl_span *s)
{
    rl_head *list;

    for (unsigned i = 0; (list = list_meeting(t, s, i)) != NULL; i++)
        for (uint32_t index = rl_head_index(rl_load_64(list)); index != 0;
             index = pool->node[index].next) {
            struct rl_node *node = &pool->node[index];

            if (node->start < s->end && node->end > s->start && !is_stranger(t, node))
                node->chunk = t->chunk;
        }
}

/* Grows [out->start, out->end) over the nodes of `list` that continue it, up to `limit`. */
static void grow_chunk(struct rl_table *t, struct rl_pool *pool, rl_head *list, uint64_t limit,
                       struct rl_span *out)
{
    bool grown = true;

    while (grown && out->end < limit) {
        grown = false;
        for (uint32_t index = rl_head_index(rl_load_64(list)); index != 0;
             index = pool->node[index].next) {
            struct rl_node *node = &pool->node[index];

            if (node->start <= out->end && node->end > out->end &&
                (!is_stranger(t, node) || RL_MUTANT(19))) {
                out->end = node->end < limit ? node->end : limit;
                grown = true;
            }
        }
    }
}

bool rl_drain_next(struct rl_table *t, struct rl_pool *pool, uint64_t call_max, struct rl_span *out)
{
    for (unsigned i = 0; i <= RL_CLASSES; i++) {
        rl_head *list = list_at(t, i);
        struct rl_node *best = NULL;

        for (uint32_t index = rl_head_index(rl_load_64(list)); index != 0;
             index = pool->node[index].next) {
            struct rl_node *node = &pool->node[index];

            if (node->pass != 0 && (best == NULL || node->start < best->start))
                best = node;
        }
        if (best == NULL)
            continue;
        out->start = best->start;
        out->end = best->end - best->start > call_max ? best->start + call_max : best->end;
        grow_chunk(t, pool, list, out->start + call_max, out);
        if (i != 0)
            t->cursor = (t->cursor + i - 1) & (RL_CLASSES - 1);
        t->chunk = number_after(t->chunk);
        mark_chunk(t, pool, out);
        return true;
    }
    t->cursor = 0;
    return false;
}

/* A node can be cut in the middle without taking what the tails will need. */
static bool may_split(const struct rl_pool *pool)
{
    return rl_load_32(&pool->used) + RL_POOL_SPARE < pool->capacity;
}

/* The part of [start, end) that the first node found meets; with what is before it in that node if
 * there are no nodes to split with. */
static bool first_overlap(struct rl_table *t, struct rl_pool *pool, const struct rl_span *want,
                          struct rl_span *out)
{
    rl_head *list;

    for (unsigned i = 0; (list = list_meeting(t, want, i)) != NULL; i++)
        for (uint32_t index = rl_head_index(rl_load_64(list)); index != 0;
             index = pool->node[index].next) {
            struct rl_node *node = &pool->node[index];

            if (node->start >= want->end || node->end <= want->start ||
                (is_stranger(t, node) && !RL_MUTANT(20)))
                continue;
            out->start = node->start;
            if (node->start < want->start && may_split(pool))
                out->start = want->start;
            out->end = node->end < want->end ? node->end : want->end;
            return true;
        }
    return false;
}

bool rl_drain_next_wanted(struct rl_table *t, struct rl_pool *pool, uint64_t call_max,
                          struct rl_span *out)
{
    for (int i = 0; i < RL_WANTS; i++) {
        uint64_t packed = rl_load_64(&t->want[i]);
        struct rl_span want = rl_unpack(packed);

        if (packed == 0)
            continue;
        for (int k = 0; k < RL_TAILS; k++) {
            struct rl_span tail = rl_unpack(rl_load_64(&t->tail[k]));

            if (tail.start < want.end && tail.end > want.start)
                tail_flush(t, pool, &t->tail[k]);
        }
        if (first_overlap(t, pool, &want, out)) {
            if (out->end - out->start > call_max)
                out->end = out->start + call_max;
            t->chunk = number_after(t->chunk);
            mark_chunk(t, pool, out);
            return true;
        }
        rl_store_64(&t->want[i], 0);
        rl_add_32(&t->done_seq, 1);
        rl_futex_wake(&t->done_seq, INT32_MAX);
    }
    return false;
}

/* Into and out of the time in which nobody may believe what he sees of a node being cut. */
static void gen_edge(struct rl_table *t, uint64_t start, uint64_t end)
{
    if (!RL_MUTANT(21))
        rl_gen_add(t, start, end, 1);
}

/* Cuts the chunk out of one node that it covers in whole or in part. Returns true if the node left
 * its list. */
static bool node_cut(struct rl_table *t, struct rl_pool *pool, rl_head *list, uint32_t prev,
                     uint32_t index, const struct rl_span *s)
{
    struct rl_node *node = &pool->node[index];
    uint64_t start = node->start;
    uint64_t end = node->end;
    uint32_t right = 0;

    node->chunk = 0;
    if (s->start <= start && s->end >= end) {
        node_remove(t, pool, list, prev, index);
        return true;
    }
    /* Odd for the whole node: a split moves its right part to the head of a list, where a walker
     * who is past the head does not look any more, while the rest of the node shrinks. */
    if (s->start > start && s->end < end && !RL_MUTANT(10)) {
        /* The right part gets its node before this one shrinks: it is queued at every moment. */
        right = may_split(pool) ? rl_node_get_reserved(pool) : 0;
        if (right == 0)
            return false; /* nothing lost: the whole node stays and is applied again */
    }
    gen_edge(t, start, end);
    if (s->start <= start) {
        rl_store_64(&node->start, s->end);
    } else {
        if (right != 0) {
            rl_push_range(t, pool, right, node->act, s->end, end);
            pool->node[right].pass = node->pass;
        }
        rl_store_64(&node->end, s->start);
    }
    gen_edge(t, start, end);
    return false;
}

void rl_drain_applied(struct rl_table *t, struct rl_pool *pool, const struct rl_span *out)
{
    rl_head *list;

    for (unsigned i = 0; (list = list_meeting(t, out, i)) != NULL; i++) {
        uint32_t prev = 0;
        uint32_t index = rl_head_index(rl_load_64(list));

        while (index != 0) {
            struct rl_node *node = &pool->node[index];
            uint32_t next = rl_load_32(&node->next);
            bool ours = node->chunk == t->chunk ||
                        (RL_MUTANT(11) && node->start < out->end && node->end > out->start);

            if (!ours || !node_cut(t, pool, list, prev, index, out))
                prev = index;
            index = next;
        }
    }
    rl_add_32(&t->done_seq, 1);
    rl_futex_wake(&t->done_seq, INT32_MAX);
}

void rl_drain_postponed(struct rl_table *t, struct rl_pool *pool, const struct rl_span *out)
{
    rl_head *list;

    for (unsigned i = 0; (list = list_meeting(t, out, i)) != NULL; i++)
        for (uint32_t index = rl_head_index(rl_load_64(list)); index != 0;
             index = pool->node[index].next) {
            struct rl_node *node = &pool->node[index];

            if (node->chunk == t->chunk) {
                node->chunk = 0;
                node->pass = 0;
            }
        }
}

void rl_drain_end(struct rl_table *t)
{
    rl_store_32(&t->pass_done, rl_load_32(&t->pass_begun));
    rl_add_32(&t->done_seq, 1);
    rl_futex_wake(&t->done_seq, INT32_MAX);
}
