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

/* Takes a node out of its list for good. The generations go up first: a reader that still saw the
 * range must find them changed after its read (rl_table_stamp). */
static void node_remove(struct rl_table *t, struct rl_pool *pool, rl_head *list, uint32_t prev,
                        uint32_t index)
{
    struct rl_node *node = &pool->node[index];

    if (!RL_MUTANT(7)) {
        rl_gen_bump(t, node->start, node->end);
        if (list == &t->wide)
            rl_add_32(&t->wide_removed, 1);
    }
    rl_list_unlink(pool, list, prev, index);
    rl_node_put(pool, index);
}

/* Drops nodes of older activations: their pushers found the table closed and applied them. */
static void drop_strangers(struct rl_table *t, struct rl_pool *pool, rl_head *list)
{
    uint32_t prev = 0;
    uint32_t index = rl_head_index(rl_load_64(list));

    while (index != 0) {
        uint32_t next = rl_load_32(&pool->node[index].next);

        if ((pool->node[index].act ^ t->act) >> 2 != 0)
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
    rl_store_64(&t->tail, 0);
    rl_store_64(&t->first_ns, 0);
    for (int i = 0; i < RL_WANTS; i++)
        rl_store_64(&t->want[i], 0);
    rl_store_32(&t->want_all, 0);
    rl_store_32(&t->act, number << 2 | RL_ACT_ON);
}

bool rl_drain_close(struct rl_table *t)
{
    uint32_t act = rl_load_32(&t->act);
    uint64_t tail = rl_load_64(&t->tail);

    if ((act & RL_ACT_STATE) != RL_ACT_DRAINING)
        return false;
    if ((tail != 0 && rl_tail_is_of(tail, act)) || rl_table_maybe(t, 0, RL_FOREVER))
        return false;
    rl_store_32(&t->act, (act & ~(uint32_t)RL_ACT_STATE) | RL_ACT_OFF);
    rl_add_32(&t->done_seq, 1);
    rl_futex_wake(&t->done_seq, INT32_MAX);
    return true;
}

/* Moves the tail into a node. */
static void tail_flush(struct rl_table *t, struct rl_pool *pool)
{
    uint64_t cur = rl_load_64(&t->tail);

    /* Bounded: putters may grow the tail as fast as we copy it. Whatever is left in it after the
     * last try is in nodes as well, up to where it had grown when we looked. */
    for (int attempt = 0; attempt < 4 && cur != 0; attempt++) {
        uint32_t index;

        if (rl_tail_is_of(cur, t->act) && !RL_MUTANT(8)) {
            index = rl_node_get_reserved(pool);
            if (index == 0)
                return;
            rl_push_range(t, pool, index, t->act, rl_unpack(cur).start, rl_unpack(cur).end);
        }
        if (rl_cas_64(&t->tail, &cur, 0))
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
    tail_flush(t, pool);
    for (unsigned i = 0; i <= RL_CLASSES; i++) {
        rl_head *list = list_at(t, i);
        uint32_t index;

        drop_strangers(t, pool, list);
        for (index = rl_head_index(rl_load_64(list)); index != 0; index = pool->node[index].next)
            if (pool->node[index].pass == 0)
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

            if (node->start < s->end && node->end > s->start)
                node->chunk = t->chunk;
        }
}

/* Grows [out->start, out->end) over the nodes of `list` that continue it, up to `limit`. */
static void grow_chunk(struct rl_pool *pool, rl_head *list, uint64_t limit, struct rl_span *out)
{
    bool grown = true;

    while (grown && out->end < limit) {
        grown = false;
        for (uint32_t index = rl_head_index(rl_load_64(list)); index != 0;
             index = pool->node[index].next) {
            struct rl_node *node = &pool->node[index];

            if (node->start <= out->end && node->end > out->end) {
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
        grow_chunk(pool, list, out->start + call_max, out);
        if (i != 0)
            t->cursor = (t->cursor + i - 1) & (RL_CLASSES - 1);
        t->chunk = number_after(t->chunk);
        mark_chunk(t, pool, out);
        return true;
    }
    t->cursor = 0;
    return false;
}

/* The part of [start, end) that the first node found meets. */
static bool first_overlap(struct rl_table *t, struct rl_pool *pool, const struct rl_span *want,
                          struct rl_span *out)
{
    rl_head *list;

    for (unsigned i = 0; (list = list_meeting(t, want, i)) != NULL; i++)
        for (uint32_t index = rl_head_index(rl_load_64(list)); index != 0;
             index = pool->node[index].next) {
            struct rl_node *node = &pool->node[index];

            if (node->start >= want->end || node->end <= want->start)
                continue;
            out->start = node->start > want->start ? node->start : want->start;
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
        struct rl_span tail = rl_unpack(rl_load_64(&t->tail));

        if (packed == 0)
            continue;
        if (tail.start < want.end && tail.end > want.start)
            tail_flush(t, pool);
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

/* Cuts the chunk out of one node that it covers in whole or in part. Returns true if the node left
 * its list. */
static bool node_cut(struct rl_table *t, struct rl_pool *pool, rl_head *list, uint32_t prev,
                     uint32_t index, const struct rl_span *s)
{
    struct rl_node *node = &pool->node[index];
    uint64_t start = node->start;
    uint64_t end = node->end;
    uint32_t right;

    node->chunk = 0;
    if (s->start <= start && s->end >= end) {
        node_remove(t, pool, list, prev, index);
        return true;
    }
    rl_gen_bump(t, s->start > start ? s->start : start, s->end < end ? s->end : end);
    if (s->start <= start) {
        rl_store_64(&node->start, s->end);
        return false;
    }
    if (s->end < end && !RL_MUTANT(10)) {
        /* The right part gets its node before this one shrinks: it is queued at every moment. */
        right = rl_node_get_reserved(pool);
        if (right == 0)
            return false; /* nothing lost: the whole node stays and is applied again */
        rl_push_range(t, pool, right, node->act, s->end, end);
        pool->node[right].pass = node->pass;
    }
    rl_store_64(&node->end, s->start);
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
