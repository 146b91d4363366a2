/* SPDX-License-Identifier: MIT */
/*
 * fs_kind: which file system lies under a descriptor or a device number.
 *
 * A path can be looked at with statx, which tells a device number and no file system. The answer
 * that a descriptor of the same device gave is remembered for a second: the number may be given to
 * another file system after an umount, and by then nobody goes by the old answer.
 *
 * Any thread, any handler: one word a slot, compared as a whole.
 */
#ifndef SHIM_FS_KIND_H
#define SHIM_FS_KIND_H

#include <stdint.h>

enum file_kind { FILE_KIND_NONE, FILE_KIND_EXT4, FILE_KIND_XFS, FILE_KIND_BTRFS, FILE_KIND_TMPFS };

/* Asks the kernel. Leaves errno alone. */
enum file_kind fs_kind_of(int fd);

/* What was learned about the device within the last second; -1: nothing was. */
int fs_kind_known(uint32_t major, uint32_t minor);

void fs_kind_learn(uint32_t major, uint32_t minor, enum file_kind kind);

#endif
