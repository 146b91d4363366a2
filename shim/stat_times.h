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

/* What the real call found. */
struct stat_view {
    uint64_t dev, ino;
    uint32_t mode;
    struct timespec mtime, ctime;
    uint64_t size;
    uint32_t moves; /* tail_moves from before the real call */
};

/* True: what was queued is applied now, or the file was extended or cut meanwhile, and the real
 * call has to be made once more. looks: how many were made. */
bool stat_again(const struct stat_view *view, int looks);

/* Then: raises the times of a file with something queued, and shows its size. True if anything
 * changed. */
bool stat_times(struct stat_view *view);

#endif
