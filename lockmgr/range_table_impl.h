/* SPDX-License-Identifier: MIT */
/* range_table_impl: what range_table.c and drain.c share and nobody else needs. */
#ifndef RL_RANGE_TABLE_IMPL_H
#define RL_RANGE_TABLE_IMPL_H

#include "range_table.h"

#define RL_BLOCK ((uint64_t)1 << RL_BLOCK_SHIFT)

/* The classes that [start, end) touches: n of them from *first on, counted modulo RL_CLASSES. */
static inline void rl_classes(uint64_t start, uint64_t end, unsigned *first, unsigned *n)
{
    uint64_t a = start >> RL_CLASS_SHIFT;
    uint64_t b = (end - 1) >> RL_CLASS_SHIFT;

    *first = (unsigned)(a & (RL_CLASSES - 1));
    *n = start >= end ? 0 : b - a >= RL_CLASSES ? RL_CLASSES : (unsigned)(b - a + 1);
}

static inline bool rl_tail_is_of(uint64_t tail, uint32_t act)
{
    return (tail & 0xff) == (act >> 2 & 0xff);
}

uint64_t rl_pack(uint64_t start, uint64_t end, uint32_t number);
struct rl_span rl_unpack(uint64_t packed);
rl_head *rl_list_of(struct rl_table *t, uint64_t start, uint64_t end);
void rl_gen_add(struct rl_table *t, uint64_t start, uint64_t end, uint32_t by);

/* Fills a fresh node and pushes it into the list its range belongs to. */
void rl_push_range(struct rl_table *t, struct rl_pool *pool, uint32_t index, uint32_t act,
                   uint64_t start, uint64_t end);

#endif
