/* SPDX-License-Identifier: MIT */
/* stat_times: see stat_times.h. */
#include "stat_times.h"
#include "tail.h"

static struct rl_inode *deferring(const struct stat_view *view)
{
    struct rl_inode *inode = S_ISREG(view->mode) ? file_by_identity(view->dev, view->ino) : NULL;

    if (inode == NULL || (rl_load_32(&inode->table.act) & RL_ACT_STATE) == RL_ACT_OFF)
        return NULL;
    return inode;
}

static struct timespec queued_at(const struct rl_inode *inode)
{
    struct file_state *fs = file_state(inode);
    uint64_t ns = rl_load_64(&fs->queued_at_ns);

    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

static bool older(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

bool stat_again(const struct stat_view *view, int looks)
{
    struct rl_inode *inode = deferring(view);
    struct timespec at;

    if (inode == NULL)
        return false;
    if (view->moves != tail_moves() && rl_load_32(&file_state(inode)->tail_seq) != 0)
        return true; /* the size may be one that was taken back since */
    if (looks > 1)
        return false;
    if (!rl_table_empty(&inode->table)) {
        if (file_state(inode)->stat_mode != CFG_STAT_SETTLE &&
            (view->mode & (S_ISUID | S_ISGID)) == 0)
            return false;
        settle_inode(inode, WHY_stat);
        return true;
    }
    /* Nothing queued, but older times than the last punch: it was applied between the real call and
     * here, or the program has set the times back since. The second look tells. */
    at = queued_at(inode);
    return older(&view->mtime, &at) || older(&view->ctime, &at);
}

bool stat_times(struct stat_view *view)
{
    struct rl_inode *inode = deferring(view);
    struct timespec at;
    uint64_t size;
    bool changed = false;

    if (inode == NULL)
        return false;
    size = tail_shown(inode, view->size);
    if (size != view->size) {
        view->size = size;
        changed = true;
    }
    if (rl_table_empty(&inode->table))
        return changed;
    at = queued_at(inode);
    if (older(&view->mtime, &at)) {
        view->mtime = at;
        changed = true;
    }
    if (older(&view->ctime, &at)) {
        view->ctime = at;
        changed = true;
    }
    if (changed)
        stat_add(STAT_stat_adjusted, 1);
    return changed;
}
