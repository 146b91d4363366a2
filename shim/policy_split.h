/* SPDX-License-Identifier: MIT */
/*
 * policy_split: gate and piece size for one write. A pure function.
 *
 * Only big direct writes; never what the contract keeps whole: O_APPEND, O_SYNC, O_DSYNC and the
 * RWF flags of the same meaning, RWF_ATOMIC, a write under RLIMIT_FSIZE (SIGXFSZ and the short
 * count must come as the kernel does them), and writes whose last piece could fail with EINVAL
 * where the whole call would have (anything not aligned to 4 KiB, the largest logical block).
 */
#ifndef SHIM_POLICY_SPLIT_H
#define SHIM_POLICY_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "file.h"

#define SPLIT_ALIGN       4096u
#define SPLIT_FIRST_BYTES ((size_t)1 << 20)  /* while the device's rate is not known */
#define SPLIT_LEAST_BYTES ((size_t)64 << 10) /* and the step in which pieces are sized */
#define SPLIT_MOST_BYTES  ((size_t)64 << 20)
#define SPLIT_HURRIED_BYTES                                                                        \
    ((size_t)4 << 20)   /* what pieces too short for their cost may grow to                        \
                         */
#define SPLIT_ALONE 16u /* times hold_target: what a piece takes while nobody is held up */

struct split_facts {
    size_t bytes;   /* of the whole write */
    bool aligned;   /* offset, buffers and lengths are multiples of SPLIT_ALIGN */
    bool direct;    /* O_DIRECT */
    int open_flags; /* F_GETFL */
    int rwf_flags;
    bool size_limited;    /* RLIMIT_FSIZE is set */
    bool may_interleave;  /* position of its own, or nobody else can move it */
    bool gate;            /* gate = on */
    uint64_t split_bytes; /* the setting: a size, CFG_AUTO or CFG_OFF */
    enum file_kind kind;
};

struct split_plan {
    bool gate; /* enter shared */
    bool split;
    size_t piece_bytes; /* a size of the operator's; 0: policy_piece says, before each piece */
};

struct split_plan policy_split(const struct split_facts *f);

/*
 * The size of the next piece, by time: what the device writes in hold_target while others are
 * inside a call on the inode, in SPLIT_ALONE times that while nobody is. One piece at a time leaves
 * the device idle for a moment after each, so a lone writer wants them long; and whoever comes
 * meets one long piece, once.
 */
struct piece_facts {
    uint64_t rate_bytes_s; /* what the file gets; 0 not known */
    uint64_t hold_target_ns;
    size_t last_bytes; /* the piece before, 0 none: none grows to more than twice that */
    size_t least_bytes;
    bool crowded; /* others were inside a call on the inode lately */
};
size_t policy_piece(const struct piece_facts *f);

/*
 * The same for buffered writes, at the rate that copying has been taking: memory's, or the device's
 * where the kernel makes writers wait for it. What pieces took while others wanted the lock says
 * nothing about that, except how much work they were: a rate from those would shrink the pieces,
 * and with them the rate.
 */
size_t policy_whole_piece(uint64_t rate_bytes_s, uint64_t hold_target_ns);

struct whole_sample {
    uint64_t bytes, wall_ns, cpu_ns;
    bool alone; /* nobody else was inside a call on the file when it began */
};
uint64_t policy_whole_rate(uint64_t rate_bytes_s, const struct whole_sample *sample);

/* Does a punch, truncation or the like on this file system wait for all direct I/O of the inode, so
 * that it has to pass the gate? */
bool policy_drain_gated(bool gate, enum file_kind kind);

#endif
