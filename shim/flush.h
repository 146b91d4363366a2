/* SPDX-License-Identifier: MIT */
/*
 * flush: fsync and fdatasync, shared by those who want them of one file at the same time
 * (lockmgr/single_flight.h). The only place that makes these calls.
 *
 * What a caller may rely on:
 *   - 0 means that a sync of this very file began after the call did, and succeeded; a sync that
 *     somebody else made counts only if that descriptor was this inode before and after it.
 *   - Errors are kept by the kernel for every open file description. Whoever was served asks for
 *     its own afterwards: sync_file_range waits for one byte where no file has any, flushes
 *     nothing, and returns and consumes the error of the description (1 us).
 *   - If a shared sync fails, every caller on that descriptor gets its error; on others each makes
 *     its own sync.
 *   - Cancellation: at the beginning and the end, or in the real call. A cancelled, lost or slow
 *     leader holds up nobody for good.
 *   - Programs with one thread never come here: nobody could share with them.
 */
#ifndef SHIM_FLUSH_H
#define SHIM_FLUSH_H

enum flush_kind { FLUSH_DATA, FLUSH_ALL };

/* Returns and sets errno as fsync or fdatasync. */
int flush_file(int fd, enum flush_kind kind);

#endif
