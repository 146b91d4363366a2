/* SPDX-License-Identifier: MIT */
/*
 * evidence: does this process alone use an inode? Asked by the worker before deferral is turned on.
 *
 * A deferred punch destroys what somebody writes unseen into its range, so "probably" is a no:
 *   both     every descriptor of the process for the inode was opened here (not inherited,
 * received, a stdio stream or in POSIX aio), nothing is mapped, no io_uring or libaio is loaded
 *   auto     the inode has no name, and no other process has it open or mapped: either it never had
 *            a name (O_TMPFILE, memfd) and no child was made since, or a census of /proc sees every
 *            process of the machine (root, initial pid and user namespace, no unreadable entry) and
 *            finds none. One exception: where process 1 is shielded even from root (seen on
 *            Firecracker guests), it is passed over if the file was made during this process's
 *            life; init would have had to open a data file of ours by name and keep it open
 *   private  the operator vouches for strangers; after a fork, no process that can be read has it,
 *            and no other member of the family has it on (family.h)
 *
 * Runs on the worker thread, with its own descriptor table: raw calls only.
 */
#ifndef SHIM_EVIDENCE_H
#define SHIM_EVIDENCE_H

#include "file.h"
#include "stats.h"

/* fd: of the program. pidfd: of this process, in the worker's table. 0 and *own (a reference to the
 * file in the worker's table), or the counter that says why not. */
enum stat_id evidence_gather(const struct rl_inode *inode, const struct file_state *fs, int fd,
                             int pidfd, int *own);

/* For an inode that is on, before a pass: has it got a name meanwhile (auto)? */
bool evidence_holds(const struct file_state *fs, int own);

#define EVIDENCE_OK ((enum stat_id)0)

#endif
