/* SPDX-License-Identifier: MIT */
/*
 * execute: the only place where planned calls are made: through the gate, in pieces, around queued
 * ranges. Reached only from wrappers, never from below.
 *
 * Return values and errno are those of the real call. Cancellation may strike in any real call or
 * in none of our waits; gates are left by clean-up handlers (-fexceptions).
 */
#ifndef SHIM_EXECUTE_H
#define SHIM_EXECUTE_H

#include <sys/uio.h>

#include "inflight.h"
#include "settle.h"
#include "announce.h"

/* One read or write as the program made it. */
struct io {
    int fd;
    const struct iovec *iov;
    int count;
    off_t off;       /* meaningless unless positional */
    int flags;       /* RWF_* */
    bool positional; /* off says where; else the file position */
    struct leg *leg; /* this call's (inflight.h) */
    /* The real call of the same name, for these pieces at that offset. */
    ssize_t (*issue)(const struct io *io, const struct iovec *iov, int count, off_t off);
};

/* The most that one call moves, whatever was asked for (MAX_RW_COUNT in the kernel). */
#define IO_BYTES_MAX ((size_t)0x7ffff000)

/* How much that is. No length is beyond SSIZE_MAX. */
static inline size_t io_bytes(const struct iovec *iov, int count)
{
    size_t bytes = 0;

    for (int i = 0; i < count && bytes < IO_BYTES_MAX; i++)
        bytes += iov[i].iov_len;
    return bytes < IO_BYTES_MAX ? bytes : IO_BYTES_MAX;
}

ssize_t execute_read(const struct io *io);
ssize_t execute_write(const struct io *io);

/* Announces that the file behind fd is being read or changed by a call we do not follow
 * (copy_file_range, splice, an ioctl), from before the call until after it: settles, and punches
 * that come meanwhile are made in their callers. Nothing when nothing is on. */
void execute_beside_begins(int fd, enum why why, struct announcement *mine);
void execute_beside_ends(struct announcement *mine);

/* A call that makes the kernel drain direct I/O on fd's inode: settles the inode (unless it is a
 * punch), passes the gate, and makes the call. */
struct drain_call {
    int fd;
    int mode; /* of fallocate */
    off_t off, len;
    int (*issue)(const struct drain_call *call);
};
int execute_fallocate(const struct drain_call *call);
int execute_truncate(const struct drain_call *call);

/* Has it found out whether this process is alone with the file, unless that is known, or asked. */
void execute_ask(int fd, struct rl_inode *inode);

/* Truncations that change nothing but times (policy_truncate.h).
 *   elide_truncate   YES: done, ftruncate has succeeded
 *   elide_open       YES: make this open without O_TRUNC, and if it succeeds call elide_opened;
 *                    false from there: the kernel would have refused: close the descriptor and make
 *                    the open as it was asked for, which has the right error
 *   elide_learn      after LEARN, when the kernel has made the call and succeeded */
enum elide { ELIDE_NO, ELIDE_LEARN, ELIDE_YES };
enum elide elide_truncate(int fd, off_t len);
enum elide elide_open(int dirfd, const char *path, int flags);
bool elide_opened(int fd);
void elide_learn(int fd);

/* The same by path or at open: found with stat beforehand; NULL if there is no entry. */
struct drain_hold {
    struct rl_inode *inode;
    rl_ticket ticket;
    bool gated;
    struct announcement mine;
};
void execute_hold_path(int dirfd, const char *path, struct drain_hold *hold);
void execute_release(struct drain_hold *hold);

#endif
