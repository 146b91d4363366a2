/* SPDX-License-Identifier: MIT */
/*
 * policy_window: how much a buffered writer may leave dirty behind it, when a window is full, and
 * where it lies. Pure functions.
 *
 * A file that is written from one end to the other has a tail, the end of the newest write: whole
 * pages behind it are what is started, so that no page goes to the disk twice because the next
 * write touches it again. A file that is written here and there has none: what was written since
 * the last start lies somewhere between the lowest and the highest place, or, where the program
 * moved the file position itself, somewhere in the file. Starting that starts exactly what is
 * dirty there, since the kernel passes over clean pages.
 */
#ifndef SHIM_POLICY_WINDOW_H
#define SHIM_POLICY_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "file.h"

#define WINDOW_PAGE_BYTES  4096u
#define WINDOW_LEAST_BYTES ((uint64_t)64 << 10)
#define WINDOW_NOWHERE     UINT64_MAX

struct window_facts {
    uint64_t window_bytes; /* the setting for the file; 0: off */
    uint64_t budget_bytes; /* for all files together */
    uint32_t active;       /* files that were written to lately, this one included */
    uint64_t others_bytes; /* what the others of these have dirty */
};

/* What the file gets: its setting, or its share of the budget if that is less, or what the others
 * have left of it. Each may have two windows dirty: one that is being written back and one that
 * fills. */
uint64_t policy_window_bytes(const struct window_facts *f);

/* May this be touched at all? Not what bypasses the cache or is synchronous anyway, not what has no
 * name (it will be deleted, and what of it was never written costs nothing). */
struct window_file {
    enum file_kind kind;
    int open_flags;
    uint64_t links;
};
bool policy_window_takes(const struct window_file *f);

/* Is a window full with these `bytes`, of which the last write brought `last`? Looks one such write
 * ahead, so that a steady writer never has more than a window. */
bool policy_window_full(uint64_t bytes, uint64_t last, uint64_t window_bytes);

/* What was written since the last start, as far as it is known. */
struct window_place {
    uint64_t bytes;
    uint64_t blind;   /* of these, at the file position: nobody asked where */
    uint64_t low;     /* the others: from here, WINDOW_NOWHERE none */
    uint64_t high;    /* to here */
    uint64_t started; /* where the last start ended */
    uint64_t now;     /* the file position after the newest blind write, WINDOW_NOWHERE unknown */
    uint64_t size;    /* of the file */
};

struct window_range {
    uint64_t start, end; /* bytes, whole pages; empty: nothing to start */
    bool tail;           /* lies behind one tail: the next one begins where this ends */
};
struct window_range policy_window_range(const struct window_place *p);

#endif
