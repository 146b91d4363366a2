/* SPDX-License-Identifier: MIT */
/*
 * policy_truncate: does this truncation change nothing but times? Pure functions.
 *
 * Such a call is still dear in two places, and only there is it left out (Linux 6.18, loop
 * devices): ext4, btrfs  to size 0: marks the file "write back when closed", and whoever unlinks it
 * next waits for that write (examples/vfsmix: a half to an eighth of the loops, btrfs 3/4) XFS   to
 * the size it has: writes back everything beyond the size on disk and waits (0.04 ms for 4 KiB in
 * memory, 0.8 ms for 1 MiB) Elsewhere the kernel needs 2 to 6 us for it, as much as we would.
 *
 * What the kernel does besides, and why it cannot be missed where we say CUT_TIMES:
 *   frees blocks beyond the end     there are none: no blocks at all, or asked for (CUT_TIMES_IF…)
 *   zeroes the rest of a page that somebody wrote to beyond the end through a mapping
 *                                   the size is a multiple of the page, or we never mapped a file
 *   drops set-id bits, capabilities set-id bits: real call; capabilities: looked for by the caller
 *   refuses append-only files, and swap files (which have two pages at least)
 *                                   real call
 *   moves mtime and ctime, tells watchers IN_MODIFY
 *                                   so does utimensat with the access time left out, by the same
 *                                   clock; it is refused to those who may not set times, and they
 *                                   get the real call
 */
#ifndef SHIM_POLICY_TRUNCATE_H
#define SHIM_POLICY_TRUNCATE_H

#include <stdbool.h>
#include <stdint.h>

#include "fs_kind.h"

#define CUT_SWAP_MIN_BYTES 8192u /* the smallest swap file: a header and one page */

struct cut_facts {
    bool works;  /* mode on, not switched off */
    bool elides; /* truncate = elide, or a setting that goes further */
    int kind;    /* enum file_kind; -1 not known */
    bool regular;
    uint32_t mode;         /* permission bits of st_mode */
    bool append_only;      /* or not known whether it is */
    uint64_t size, blocks; /* of the file; blocks of 512 bytes */
    uint64_t wanted;       /* size asked for */
    bool maps;             /* a file was mapped shared in this process, or could have been unseen */
    bool swaps;            /* there is swap space on this machine */
};

enum cut {
    CUT_REAL,               /* make the call */
    CUT_TIMES,              /* only move times */
    CUT_TIMES_IF_NONE_PAST, /* only move times, if nothing is allocated beyond the end */
};

enum cut policy_cut(const struct cut_facts *f);

/* An open with these flags truncates, and could be made without O_TRUNC instead. Not where the
 * kernel asks for more than the open itself would (O_RDONLY), and not where it ignores O_TRUNC. */
bool policy_cut_flags(int flags);

/* The flags of fopen with this mode, or -1 where it does not truncate or means more than we know.
 */
int policy_cut_mode(const char *mode);

#endif
