/* SPDX-License-Identifier: MIT */
/*
 * whole: see whole.h.
 *
 * The writer waits for earlier calls before it takes its range: such a call may itself be waiting
 * for the range of an earlier writer, but never for one of ours, so there is no circle.
 */
#include "whole.h"
#include "inflight.h"
#include "stats.h"
#include "worker.h"

#define WAIT_NS      100000000u  /* then look again */
#define LONGEST_WAIT 2000000000u /* for a range; then the write is made in one */

bool whole_begin(struct whole_hold *hold, struct rl_inode *inode, uint64_t start, uint64_t end,
                 const struct announcement *mine)
{
    struct file_state *fs = file_state(inode);

    if (!file_armed(inode) || !announce_clear(mine, start, end))
        return false; /* as one can see without stopping anybody */
    rl_add_32(&fs->whole, 1);
    hold->counted = inode;
    if (announce_clear(mine, start, end) && file_armed(inode) && file_on(inode) &&
        (RL_MUTANT(86) || (inflight_barrier() && inflight_wait_inode(inode->dev, inode->ino))) &&
        rl_range_acquire_until(&fs->range, &hold->range, start, end, RL_EXCLUSIVE,
                               rl_now_ns() + LONGEST_WAIT) == 0)
        return true;
    whole_end(hold);
    return false;
}

void whole_beside(struct whole_hold *hold, struct rl_inode *inode, uint64_t start, uint64_t end)
{
    if (start < end && !RL_MUTANT(87))
        rl_range_acquire(&file_state(inode)->range, &hold->range, start, end, RL_SHARED);
}

void whole_end(struct whole_hold *hold)
{
    struct rl_inode *inode = hold->counted;
    struct file_state *fs;

    rl_range_release(&hold->range);
    if (inode == NULL)
        return;
    hold->counted = NULL;
    fs = file_state(inode);
    if (rl_add_32(&fs->whole, (uint32_t)-1) != 1)
        return;
    rl_futex_wake(&fs->whole, INT32_MAX);
    if ((rl_load_32(&inode->table.act) & RL_ACT_STATE) == RL_ACT_DRAINING)
        worker_wake();
}

void whole_wait(struct rl_inode *inode)
{
    struct file_state *fs = file_state(inode);
    uint32_t seen;

    while ((seen = rl_load_32(&fs->whole)) != 0 && !RL_MUTANT(88))
        rl_futex_wait(&fs->whole, seen, WAIT_NS);
}
