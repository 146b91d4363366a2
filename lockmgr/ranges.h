/* SPDX-License-Identifier: MIT */
/*
 * ranges: the nodes that queued byte ranges are made of, and the lock-free lists they hang in.
 *
 * A pool is a fixed array of nodes in memory the caller provides (in the shim: a shared mapping, so
 * that another process can read what a killed one left). Zeroed memory is an empty pool. Nodes name
 * each other by index, never by pointer; index 0 is "none".
 *
 * Who may do what
 *   any thread, also inside a signal handler or a vfork child: rl_node_get, rl_list_push
 *   one consumer (the shim's worker): rl_list_unlink, rl_node_put, changing start or end
 * Nothing here locks, so no signal, longjmp, cancellation or kill can leave a list half-way; the
 * worst it can do is leak the one node that was between "taken" and "pushed".
 *
 * A walker may stand on a node that the consumer unlinks and recycles under it. It then reads
 * nonsense, in bounds and for a bounded number of steps; it must validate with the generation
 * counters of the table (range_table.h) before it believes what it read.
 */
#ifndef RL_RANGES_H
#define RL_RANGES_H

#include "sync.h"

struct rl_node {
    uint64_t start; /* bytes, first */
    uint64_t end;   /* bytes, one past the last */
    uint32_t next;  /* index, 0 ends the list */
    uint32_t act;   /* activation word of the table when it was pushed */
    uint32_t pass;  /* consumer: the pass it belongs to, 0 as long as it is in none */
    uint32_t chunk; /* consumer: the stretch being applied that covers it, 0 none */
};

/* A list head or free-list head: index in the low half, a tag in the high half that changes with
 * every update, so that a compare-and-swap never mistakes a recycled node for the old one. */
typedef uint64_t rl_head;

struct rl_pool {
    rl_head free;
    uint32_t fresh;    /* nodes 1..fresh were handed out at least once */
    uint32_t used;     /* nodes in use now */
    uint32_t limit;    /* most nodes in use at once; at most capacity, set by the owner */
    uint32_t capacity; /* nodes behind this header, index 0 included */
    struct rl_node node[];
};

static inline uint32_t rl_head_index(rl_head head)
{
    return (uint32_t)head;
}

/* The node at index, or NULL for 0 and for indices outside the pool (a walker gone astray). */
static inline struct rl_node *rl_node_at(struct rl_pool *pool, uint32_t index)
{
    return index != 0 && index < pool->capacity ? &pool->node[index] : NULL;
}

/* A free node's index, or 0 when the limit is reached. The consumer may not be refused (it needs
 * a node to move or split what is already queued), so it draws on the rest of the capacity. */
uint32_t rl_node_get(struct rl_pool *pool);
uint32_t rl_node_get_reserved(struct rl_pool *pool);

/* Gives a node back. Consumer only, and only for nodes that are in no list. */
void rl_node_put(struct rl_pool *pool, uint32_t index);

void rl_list_push(struct rl_pool *pool, rl_head *list, uint32_t index);

/* Takes node `index` out; `prev` is its predecessor as the consumer's own walk saw it (0: none).
 * Pushes may run at the same time. Consumer only. */
void rl_list_unlink(struct rl_pool *pool, rl_head *list, uint32_t prev, uint32_t index);

#endif
