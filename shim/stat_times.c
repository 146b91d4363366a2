/* SPDX-License-Identifier: MIT */
/* stat_times: see stat_times.h. */
#include "stat_times.h"
#include "tail.h"

#define LOOKS_MAX 4u /* of calls beside files that go on and off all the time */

static struct rl_inode *inode_of(const struct stat_view *view)
{
    return S_ISREG(view->mode) ? file_by_identity(view->dev, view->ino) : NULL;
}

static bool is_on(const struct rl_inode *inode)
{
    return (rl_load_32(&inode->table.act) & RL_ACT_STATE) != RL_ACT_OFF;
}

/* No file was turned on or off since before the real call. */
static bool same_files(const struct stat_view *view)
{
    uint64_t word = state_word();

    return state_epoch(word) == state_epoch(view->word) &&
           (word & WORD_FILES) == (view->word & WORD_FILES);
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

void stat_begins(struct stat_view *view)
{
    view->word = state_word();
    view->moves = tail_moves();
    view->looks++;
    view->queued = false;
}

bool stat_again(struct stat_view *view)
{
    struct rl_inode *inode = inode_of(view);
    struct file_state *fs;
    struct timespec at;

    if (inode == NULL) /* or not any more: its entry was given away after it was turned off */
        return S_ISREG(view->mode) && view->looks < LOOKS_MAX && !same_files(view);
    fs = file_state(inode);
    if (view->moves != tail_moves() && rl_load_32(&fs->tail_seq) != 0)
        return true; /* the size may be one that was taken back since */
    if (is_on(inode) && !rl_table_empty(&inode->table)) {
        view->queued = true;
        if (view->looks >= LOOKS_MAX ||
            (fs->stat_mode != CFG_STAT_SETTLE && (view->mode & (S_ISUID | S_ISGID)) == 0))
            return false;
        settle_inode(inode, WHY_stat);
        view->settled = true;
        return true;
    }
    /* Nothing is queued now. Was there before the real call, and it was applied since? Then the
     * call found old times. Or the program has set the times back: another look tells. */
    if (view->settled || (!is_on(inode) && same_files(view)))
        return false;
    view->settled = true;
    at = queued_at(inode);
    return older(&view->mtime, &at) || older(&view->ctime, &at);
}

bool stat_times(struct stat_view *view)
{
    struct rl_inode *inode = inode_of(view);
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
    if (!view->queued) /* as it was looked up before: it may have been applied by now */
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
