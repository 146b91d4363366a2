/* SPDX-License-Identifier: MIT */
/*
 * real: the next library's function for every interposed name.
 *
 * Filled once by real_init, before any other thread can exist; read-only afterwards. A member is
 * NULL only for names that no library behind us defines.
 */
#ifndef SHIM_REAL_H
#define SHIM_REAL_H

#include <aio.h>
#include <stdbool.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <utime.h>

/* libc offers a macro as well. */
#undef fwrite_unlocked

#if __SIZEOF_LONG__ != 8
#error "rlshim is written for 64-bit systems: off_t and off64_t must be the same"
#endif

struct real_calls {
#define CALL(ret, name, params) ret(*name) params;
#include "calls.def"
#undef CALL
};

extern struct real_calls real __attribute__((visibility("hidden")));

/* Looks every name up. Idempotent. */
void real_init(void);

/* A function that the kernel lends every process, by either of two names; NULL where there is none.
 */
void *real_vdso(const char *name, const char *other);

#endif
