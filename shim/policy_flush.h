/* SPDX-License-Identifier: MIT */
/*
 * policy_flush: may this fsync share, and what a shared one means to a caller. Pure functions.
 *
 * Only where it was measured to pay and proven to be exact: ext4, XFS, btrfs. On network file
 * systems overlapping calls are better, on tmpfs there is nothing to save, and elsewhere it is not
 * known whether a served caller's errors can be asked for (flush.h). ext4 shares its journal's
 * commits among few callers better than rounds do (4 threads: 0.6-1.1 times the commits), so there
 * it takes a crowd (32 threads: 1.1-1.6 times).
 */
#ifndef SHIM_POLICY_FLUSH_H
#define SHIM_POLICY_FLUSH_H

#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "file.h"

#define FLUSH_CROWD_EXT4 12u

struct flush_facts {
    bool share;  /* fsync = share */
    bool inside; /* this thread is in a shared sync already, and a signal handler calls */
    enum file_kind kind;
    uint32_t crowd; /* callers at one time, lately */
};
bool policy_flush_shares(const struct flush_facts *f);

/* Is this errno of a sync about the data, or about the call (a bad descriptor, an interruption, a
 * filter)? The latter says nothing to others. */
bool policy_flush_is_about_data(int error);

/* A sync of another failed. Does a caller with this descriptor get its error, without a sync of its
 * own? If it is the same descriptor, so the same open file description: the kernel told the error
 * of that description to the one who synced, and would tell the others that all is well. */
bool policy_flush_told(int leader_fd, int fd);

#endif
