/* SPDX-License-Identifier: MIT */
/*
 * Is a trace what one plain file could have shown? Three rules, each a function of the trace alone.
 *
 * check_bytes: every byte of the file, from 0 to the last offset anyone used and beyond, is a
 * register whose states are "beyond the end", zero, or the write that put it there; all calls that
 * touch or see it must have an order that respects real time (linearizability). Exact for each
 * byte: a search with memory of the configurations it has seen, not a heuristic. If it runs out of
 * its budget the answer is CHECK_UNDECIDED, never a wrong one.
 *
 * check_whole_reads: only where the file system makes reads whole (buffered XFS, where a reader
 * holds the inode's I/O lock shared and writers and punches hold it exclusively): all bytes of one
 * read must have been true at one moment. Catches "new A beside old B" when the punch of B had
 * returned before the write of A began. On ext4 that mixture is the plain kernel's own: a reader
 * collects references to several folios, and a punch detaches them before it copies.
 *
 * check_times: mtime and ctime never run backwards, and are no older than a change that had
 * returned before the stat began.
 */
#ifndef MODEL_CHECK_H
#define MODEL_CHECK_H

#include "trace.h"

enum check { CHECK_OK, CHECK_BAD, CHECK_UNDECIDED };

struct finding {
    const char *rule;
    int64_t off, len;         /* the bytes concerned */
    const struct op *culprit; /* the first call that no order explains; may be NULL */
    char why[200];
};

enum check check_bytes(const struct trace *t, struct finding *f);
enum check check_whole_reads(const struct trace *t, struct finding *f);

/* punch_moves_mtime: whether this file system's punch does (asked of the kernel at start). */
enum check check_times(const struct trace *t, bool punch_moves_mtime, struct finding *f);

#endif
