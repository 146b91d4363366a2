/* SPDX-License-Identifier: MIT */
/*
 * stat_times: what a stat call of a file with queued punches shows.
 *
 * The size is the program's, not that of a file extended ahead of a write (tail.h). Blocks are
 * shown as the disk has them now, so up to punch_delay late, unless stat = settle. Times never run
 * backwards: a stat after a queued punch shows mtime and ctime no older than the punch, and so do
 * later ones, because the kernel's clock at applying is later. Set-id bits are settled for: a punch
 * removes them.
 */
#ifndef SHIM_STAT_TIMES_H
#define SHIM_STAT_TIMES_H

#include <sys/stat.h>

#include "settle.h"

/* One stat call, which may take several real ones. Zeroed at first. */
struct stat_view {
    /* from before the real call */
    uint64_t word;  /* the state word */
    uint32_t moves; /* tail_moves */
    uint32_t looks; /* how many real calls there were, with this one */
    bool settled;   /* nothing was queued any more */
    bool queued;    /* from after it: something is */
    /* what the real call found */
    uint32_t mode;
    uint64_t dev, ino, size;
    struct timespec mtime, ctime;
};

/* Before each real call. */
void stat_begins(struct stat_view *view);

/* After it: was no file on all the while? Then there is nothing to look at. */
static inline bool stat_alone(const struct stat_view *view)
{
    return ((view->word | state_word()) & WORD_FILES) == 0;
}

/* Otherwise. True: the real call has to be made once more, since what was queued has been applied
 * in the meantime, or the file was extended or cut. */
bool stat_again(struct stat_view *view);

/* Then: raises the times of a file with something queued, and shows its size. True if anything
 * changed. */
bool stat_times(struct stat_view *view);

#endif
