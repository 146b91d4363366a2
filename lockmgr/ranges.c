/* SPDX-License-Identifier: MIT */
/* ranges: see ranges.h for who may do what. */
#include "ranges.h"

static rl_head head_make(rl_head old, uint32_t index)
{
    return ((old >> 32) + (RL_MUTANT(1) ? 0 : 1)) << 32 | index;
}

static uint32_t node_get(struct rl_pool *pool, uint32_t limit)
{
    rl_head head;
    uint32_t fresh;

    /* Count first: the limit then holds at every moment, not only on average. */
    if (rl_add_32(&pool->used, 1) >= limit)
        goto full;
    head = rl_load_64(&pool->free);
    while (rl_head_index(head) != 0) {
        uint32_t index = rl_head_index(head);
        uint32_t next = rl_load_32(&pool->node[index].next);

        /* If the node was taken meanwhile `next` is stale, but then the tag has moved on. */
        if (rl_cas_64(&pool->free, &head, head_make(head, next)))
            return index;
    }
    fresh = rl_load_32(&pool->fresh);
    while (fresh + 1 < pool->capacity)
        if (rl_cas_32(&pool->fresh, &fresh, fresh + 1))
            return fresh + 1;
full:
    rl_add_32(&pool->used, (uint32_t)-1);
    return 0;
}

uint32_t rl_node_get(struct rl_pool *pool)
{
    return node_get(pool, rl_load_32(&pool->limit));
}

uint32_t rl_node_get_reserved(struct rl_pool *pool)
{
    /* By what is there, not by the count: putters that are being refused are counted for a moment,
     * and a consumer refused for that would end a pass with ranges left out. */
    return node_get(pool, RL_MUTANT(12) ? pool->capacity : UINT32_MAX);
}

void rl_node_put(struct rl_pool *pool, uint32_t index)
{
    rl_list_push(pool, &pool->free, index);
    rl_add_32(&pool->used, (uint32_t)-1);
}

void rl_list_push(struct rl_pool *pool, rl_head *list, uint32_t index)
{
    rl_head head = rl_load_64(list);

    do
        rl_store_32(&pool->node[index].next, rl_head_index(head));
    while (!rl_cas_64(list, &head, head_make(head, index)));
}

void rl_list_unlink(struct rl_pool *pool, rl_head *list, uint32_t prev, uint32_t index)
{
    uint32_t next = rl_load_32(&pool->node[index].next);
    rl_head head;

    if (prev == 0) {
        head = rl_load_64(list);
        while (rl_head_index(head) == index)
            if (rl_cas_64(list, &head, head_make(head, next)))
                return;
        /* Pushes got in front since the walk: the predecessor is now one of theirs. */
        for (prev = rl_head_index(head); rl_load_32(&pool->node[prev].next) != index;)
            prev = rl_load_32(&pool->node[prev].next);
    }
    /* Only this thread changes `next` of nodes that are already in a list. */
    rl_store_32(&pool->node[prev].next, next);
}
