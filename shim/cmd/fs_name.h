/* SPDX-License-Identifier: MIT */
/* fs_name: file systems by the number that statfs(2) gives. */
#ifndef SHIM_CMD_FS_NAME_H
#define SHIM_CMD_FS_NAME_H

#include <stdbool.h>

/* NULL: not known here. */
const char *fs_name(long type);

/* One of those where the library defers, holds and splits (fs_kind.h). */
bool fs_deferred(long type);

/* Where a look-up is cheaper than O_CREAT on any kernel: FUSE and the network. */
bool fs_remote(long type);

#endif
