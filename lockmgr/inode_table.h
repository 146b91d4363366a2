/* SPDX-License-Identifier: MIT */
/*
 * inode_table: (device, inode number) -> gate and range table.
 *
 * A fixed, set-associative array in zeroed memory the caller provides. Look-ups are lock-free.
 * An entry that is idle (gate empty, no sync under way, range table off) may give way to another
 * inode; its generation then changes, and holders of the old index find out by comparing. Using a
 * stale entry's gate is harmless (a gate only decides when, gate.h); its range table is protected
 * by the activation word. Full set: no entry, and the caller does without.
 */
#ifndef RL_INODE_TABLE_H
#define RL_INODE_TABLE_H

#include "single_flight.h"
#include "gate.h"
#include "range_table.h"

#define RL_INODE_SETS 64
#define RL_INODE_WAYS 8
#define RL_INODES     (RL_INODE_SETS * RL_INODE_WAYS)

struct rl_inode {
    uint32_t gen;   /* odd while the key changes; 0 never used; moves with every new inode */
    uint32_t flags; /* the owner's; 0 for a new inode */
    uint64_t dev, ino;
    struct rl_gate gate;
    struct rl_flight flight; /* of syncs; whoever uses it compares the generation */
    struct rl_table table;
};

struct rl_inode_table {
    uint32_t lock; /* milliseconds (never 0) when an inserter took it, 0 free */
    uint32_t pad;
    struct rl_inode inode[RL_INODES];
};

/* The entry, or NULL. *gen is what its generation was. */
struct rl_inode *rl_inode_find(struct rl_inode_table *t, uint64_t dev, uint64_t ino, uint32_t *gen);

/* The same, making one if there is none. NULL if its set is full of busy inodes, or an inserter
 * does not get done (it may be the very code that a signal handler interrupted). */
struct rl_inode *rl_inode_get(struct rl_inode_table *t, uint64_t dev, uint64_t ino, uint32_t *gen);

static inline uint32_t rl_inode_index(const struct rl_inode_table *t, const struct rl_inode *i)
{
    return (uint32_t)(i - t->inode);
}

#endif
