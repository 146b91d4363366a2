/* SPDX-License-Identifier: MIT */
/*
 * policy_remedy: which mitigation would have helped a call, and about how long the call would have
 * taken with it. Pure: what was seen of the call in, an estimate out. Estimates are on the careful
 * side of what was measured (README), and never longer than the call was.
 */
#ifndef SHIM_POLICY_REMEDY_H
#define SHIM_POLICY_REMEDY_H

#include <stdbool.h>

#include "observe.h"

struct remedy_facts {
    enum act act;
    uint64_t took_ns;
    bool beside_big;      /* a big direct write was under way on the file */
    bool beside_drain;    /* a punch, truncation or other fallocate mode was */
    bool known_fs;        /* ext4, XFS or btrfs: where freeing may be put off, and is worth it */
    bool cut_nothing;     /* a truncation to the size the file had */
    bool cut_before;      /* the file was truncated so, and ext4 will write it back at its close */
    bool existed;         /* the name an open with O_CREAT asked for */
    bool lookup_pays;     /* a plain open of it is cheaper here than one with O_CREAT */
    uint32_t syncs;       /* of the file that were under way as it began, with this one */
    uint32_t creates;     /* opens with O_CREAT, the same */
    uint64_t frees_bytes; /* what the call gave back to the disk */
    uint64_t dirty_bytes; /* written to the file by way of the page cache, and not synced */
    uint64_t dirty_all_bytes; /* the same, over all files */
    uint64_t hold_ns;         /* hold_target */
    uint64_t evict_min_bytes;
};

struct remedy_guess {
    enum remedy remedy; /* REMEDY_NONE: nothing here helps */
    uint64_t would_ns;
};

struct remedy_guess policy_remedy(const struct remedy_facts *f);

#endif
