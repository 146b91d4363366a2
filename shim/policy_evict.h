/* SPDX-License-Identifier: MIT */
/*
 * policy_evict: is the freeing of this file worth putting off, and is there room for it? Pure.
 *
 * unlink, rename over and the last close free the inode inside the call: 693 ms for a cold file of
 * 2 GiB on ext4, 140 on btrfs, 3 on XFS. Held by a reference it is the thread that lets go of the
 * reference who pays. Asking for one costs two context switches and sometimes the start of a thread
 * (0.05 to 0.5 ms), so it is not asked for where the kernel needs no longer than that: below
 * evict_min, and where freeing has been seen to be cheap (a disk in memory, XFS, which frees in the
 * background itself, files of few extents that are not cached). evict_min = 0: always. Never on
 * tmpfs: what is held there is memory,
 * and a program that ran out of it could not be helped.
 */
#ifndef SHIM_POLICY_EVICT_H
#define SHIM_POLICY_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "fs_kind.h"

#define EVICT_PAYS_NS      500000u
#define EVICT_COST_UNKNOWN UINT64_MAX

struct evict_facts {
    bool works;  /* mode on, not switched off, no exec or exit under way */
    bool defers; /* evict = defer */
    bool regular;
    bool last_name; /* this call takes its last name, or it has none */
    int kind;       /* enum file_kind, -1 not known yet */
    uint64_t bytes, min_bytes;
    uint64_t ns_per_mib; /* what freeing was seen to cost on this device, or EVICT_COST_UNKNOWN */
};

bool policy_evict_pays(const struct evict_facts *f);

/* ns_per_mib after `bytes` took took_ns: it rises at once and falls slowly, since a cheap one may
 * just have had another user. */
uint64_t policy_evict_learn(uint64_t ns_per_mib, uint64_t bytes, uint64_t took_ns);

struct evict_room {
    uint32_t files, files_max;
    uint64_t bytes, bytes_max; /* held; bytes_max 0: a tenth of free_bytes */
    uint64_t free_bytes;       /* on the file system, or what is left of a quota */
    uint64_t free_files;       /* the same in inodes; UINT64_MAX where they are made as needed */
    uint64_t oldest_ns, hold_max_ns; /* how long the oldest has been held, 0 none */
    uint64_t rate;                   /* bytes a second, 0 no limit */
};

/* Room for `bytes` more. Inodes are counted whatever bytes_max says: stdio, which nobody makes
 * once more when space has come, needs one too. */
bool policy_evict_fits(const struct evict_room *r, uint64_t bytes);

/* How long to wait after `bytes` were freed in took_ns. */
uint64_t policy_evict_pause_ns(uint64_t bytes, uint64_t took_ns, uint64_t rate);

#endif
