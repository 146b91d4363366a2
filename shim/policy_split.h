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

#define SPLIT_ALIGN         4096u
#define SPLIT_DEFAULT_BYTES ((size_t)1 << 20)

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
    bool gate;          /* enter shared */
    size_t piece_bytes; /* 0: whole */
};

struct split_plan policy_split(const struct split_facts *f);

/* Does a punch, truncation or the like on this file system wait for all direct I/O of the inode, so
 * that it has to pass the gate? */
bool policy_drain_gated(bool gate, enum file_kind kind);

#endif
