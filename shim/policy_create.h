/* SPDX-License-Identifier: MIT */
/*
 * policy_create: how an open with O_CREAT is done. Pure functions.
 *
 * O_CREAT on a name that exists needs nothing of what creating needs, but the kernel may look the
 * name up under the directory's lock, and a server be asked to create. So the name is looked up
 * first (O_PATH), and what was found is opened through that descriptor, which needs no second
 * look-up. Measured with a FUSE server at 2 ms a request, 16 threads, the same 20 names, not in the
 * kernel's cache: read-only opens 120 ms, with O_CREAT 430-470 ms, looked up first 111-116 ms.
 *
 * Exact for every answer: what exists and is a regular file of the caller's own user is what the
 * kernel would have opened (fs.protected_regular and protected_fifos only ever refuse other users'
 * files); everything else, and every error, is left to the kernel. So what these functions decide
 * changes how long an open takes, never what it returns.
 */
#ifndef SHIM_POLICY_CREATE_H
#define SHIM_POLICY_CREATE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>

#include "config.h"

/* Where looking first pays, for a directory. */
enum create_kind {
    CREATE_KIND_UNKNOWN,
    CREATE_KIND_PLAIN,   /* local, Linux 6.12 or later: an existing name takes no lock any more */
    CREATE_KIND_REMOTE,  /* FUSE, network: each round trip and each wait counts */
    CREATE_KIND_MEASURE, /* local, older: the lock is taken, but briefly; whichever is faster */
};

/* Below this an open is so fast that the 4 us of the extra calls matter: then both ways are tried.
 */
#define CREATE_FAST_NS 100000u

struct create_facts {
    enum cfg_create setting;
    enum create_kind kind;
    bool known;        /* this name was seen to exist not long ago: a hint */
    uint32_t missing;  /* opens in a row that found, or expected, no such name here: a hint */
    uint32_t look_ns;  /* mean time of an open that looked first and found a file; 0 not known */
    uint32_t plain_ns; /* mean time of a plain one that probably did */
    uint32_t turn;     /* counts opens in this directory */
};

enum create_plan {
    CREATE_PLAIN, /* the kernel's own way */
    CREATE_TIMED, /* the same, and its time tells which way is faster */
    CREATE_LOOK,  /* look first; if it is missing, one creates and the others wait */
    CREATE_LEAD,  /* probably missing: the first goes the kernel's way at once, the others look */
};

enum create_plan policy_create(const struct create_facts *f);

/* O_EXCL, O_TMPFILE, O_DIRECTORY and O_PATH mean something else. O_NOFOLLOW would stay visible in
 * F_GETFL, or not. Access mode 3 is nobody's. */
static inline bool policy_create_flags(int flags)
{
    return (flags & (O_CREAT | O_EXCL | O_DIRECTORY | O_PATH | O_NOFOLLOW)) == O_CREAT &&
           (flags & O_ACCMODE) != O_ACCMODE;
}

/* Is this what the kernel would have opened for O_CREAT, in whatever directory it lies? */
bool policy_create_keeps(uint32_t mode, uint32_t uid, uint32_t own_uid);

/* Reading a path costs a system call, since only the kernel may meet an address that cannot be
 * read: 38 % of an open on local ext4. So `auto` reads paths only in a process that has use for it:
 * in its first opens, and from one that met a file system where a look pays, until this many in a
 * row did not. Meanwhile it is told by descriptors that such opens gave, one of CREATE_SAMPLE of a
 * thread. */
#define CREATE_LOOKS  64u
#define CREATE_SAMPLE 32u

/* How many more paths are to be read, after one led to `kind`. */
uint32_t policy_create_left(uint32_t left, enum create_kind kind);

/* By statfs's f_type, and the kernel's version (6.12: 0x60c). */
enum create_kind policy_create_kind(uint64_t fs_type, uint32_t kernel);

#endif
