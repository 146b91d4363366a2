/* SPDX-License-Identifier: MIT */
/*
 * policy_punch: may this hole punch be answered now and applied later? A pure function.
 *
 * What "deferred" means to the program: reads see zeros at once; stat shows moved times at once and
 * st_blocks late (stat = settle: exact); fsync, close, fork, exec, exit and everything else of
 * contract 4 applies it first; after a crash of the machine it may not have happened, as an
 * unsynced punch may not have; after SIGKILL up to punch_delay of punches did not happen.
 */
#ifndef SHIM_POLICY_PUNCH_H
#define SHIM_POLICY_PUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "fs_kind.h"
#include "stats.h"

/* A longer punch is made as the program asked for it: cut into pieces, one that covers a terabyte
 * of nothing would take the worker minutes that the kernel does not need. */
#define PUNCH_CALLS_MAX 128u

/* ext4 says EFBIG to what lies beyond its largest offset. That depends on how the file system was
 * made and is this at the least (no huge_file: 2^32 sectors, less a block). */
#define PUNCH_REACH_EXT4 (((uint64_t)1 << 41) - ((uint64_t)64 << 10))

struct punch_facts {
    bool works; /* mode on and not switched off */
    bool defer; /* punch = defer */
    bool known_fs;
    bool whole;         /* arguments make sense: off >= 0, len > 0, no overflow */
    bool long_;         /* more than PUNCH_CALLS_MAX times punch_call_max */
    bool far;           /* ends beyond what the kernel is known to take (policy_punch_far) */
    bool on;            /* the range table accepts */
    bool asked;         /* evidence is being gathered */
    bool quiet;         /* a fork is under way */
    bool foreign;       /* the process does I/O that cannot be seen */
    uint32_t never;     /* enum stat_id, 0 none */
    uint32_t refusal;   /* enum stat_id of the last refusal, 0 none */
    bool refusal_holds; /* and it is too early to ask again */
};

enum punch_act { PUNCH_DEFER, PUNCH_INLINE, PUNCH_INLINE_AND_ASK };

struct punch_plan {
    enum punch_act act;
    enum stat_id reason; /* why not deferred */
};

struct punch_plan policy_punch(const struct punch_facts *f);

/* Might the kernel find that a punch up to `end` is beyond the largest offset? reach: what it took
 * before, or the size of a file that it made. The other file systems go on for ever. */
static inline bool policy_punch_far(enum file_kind kind, uint64_t end, uint64_t reach)
{
    return kind == FILE_KIND_EXT4 && end > PUNCH_REACH_EXT4 && end > reach;
}

#endif
