/* SPDX-License-Identifier: MIT */
/* execute_read: reads around queued ranges; the protocol is explained in lockmgr/range_table.h. */
#include <errno.h>
#include <string.h>

#include "execute_impl.h"

#define SPANS_MAX  32 /* queued ranges one read can be combined with; more: apply them first */
#define READ_TRIES 4
#define PARTS_MAX  64 /* iovecs in one repeated read */

/* Zeros what the spans cover of the first n bytes of the buffers, whose first byte is at `start`.
 */
static void overlay(const struct iovec *iov, int count, uint64_t start, size_t n,
                    const struct rl_span *span, int spans)
{
    for (int s = 0; s < spans; s++) {
        uint64_t from = span[s].start - start;
        uint64_t to = span[s].end - start < n ? span[s].end - start : n;
        uint64_t at = 0;

        for (int i = 0; i < count && at < to; at += iov[i++].iov_len) {
            uint64_t a = from > at ? from : at;
            uint64_t b = to < at + iov[i].iov_len ? to : at + iov[i].iov_len;

            if (a < b)
                memset((char *)iov[i].iov_base + (a - at), 0, b - a);
        }
    }
}

static bool same_spans(const struct rl_span *a, int na, const struct rl_span *b, int nb)
{
    return na == nb && (na <= 0 || memcmp(a, b, (size_t)na * sizeof *a) == 0);
}

/* RWF_NOWAIT: what the kernel says when it would have to wait. */
static bool would_wait(const struct io *io, struct rl_inode *inode, uint64_t start, uint64_t end)
{
    if ((io->flags & RWF_NOWAIT) == 0 || !settle_asked(inode, start, end))
        return false;
    errno = EAGAIN;
    return true;
}

/* A read at a known offset. seek_back: the file position must be put back before another try. */
static ssize_t read_around(const struct io *io, struct rl_inode *inode, off_t off, bool seek_back)
{
    uint64_t start = (uint64_t)off;
    uint64_t end = start + io_bytes(io->iov, io->count);
    struct rl_span before[SPANS_MAX], after[SPANS_MAX];

    if (off < 0 || end > RL_FOREVER || end == start)
        return io->issue(io, io->iov, io->count, off);
    for (int tries = 0; tries < READ_TRIES; tries++) {
        uint32_t act = rl_load_32(&inode->table.act) >> 2;
        uint64_t stamp = rl_table_stamp(&inode->table, start, end);
        int n = rl_table_overlaps(&inode->table, &proc.arena->pool, start, end, before, SPANS_MAX);
        ssize_t r;
        int m;

        if (n < 0) {
            if (would_wait(io, inode, start, end))
                return -1;
            settle_range(inode, start, end, WHY_read);
            continue;
        }
        r = io->issue(io, io->iov, io->count, off);
        if (r <= 0)
            return r;
        m = rl_table_overlaps(&inode->table, &proc.arena->pool, start, end, after, SPANS_MAX);
        if (rl_load_32(&inode->table.act) >> 2 == act &&
            rl_table_stamp(&inode->table, start, end) == stamp && same_spans(before, n, after, m)) {
            if (n > 0 && file_verify(io->fd, inode)) {
                overlay(io->iov, io->count, start, (size_t)r, before, n);
                stat_add(STAT_read_overlaid, 1);
            }
            return r;
        }
        stat_add(STAT_read_repeated, 1);
        if (seek_back)
            rl_raw(SYS_lseek, io->fd, off, SEEK_SET);
    }
    /* The queue changes faster than this read can be made: nothing queued, nothing to combine. */
    if (would_wait(io, inode, start, end))
        return -1;
    settle_range(inode, start, end, WHY_read);
    return io->issue(io, io->iov, io->count, off);
}

static ssize_t issue_raw_preadv(const struct io *io, const struct iovec *iov, int count, off_t off)
{
    long n = rl_raw(SYS_preadv, io->fd, iov, count, off, 0);

    if (n < 0)
        errno = (int)-n;
    return n;
}

/* Reads the n bytes that were just read at the file position once more, with the queue taken into
 * account: only those, so that the result still fits the position. */
static void read_again(const struct io *io, struct rl_inode *inode, ssize_t n)
{
    struct iovec part[PARTS_MAX];
    struct io again = {.fd = io->fd, .iov = part, .positional = true, .issue = issue_raw_preadv};
    size_t left = (size_t)n;
    int saved = errno;

    again.off = position(io->fd) - n;
    for (int i = 0; i < io->count && left > 0 && again.off >= 0;) {
        size_t bytes = 0;

        for (again.count = 0; i < io->count && left > 0 && again.count < PARTS_MAX; i++) {
            size_t len = io->iov[i].iov_len < left ? io->iov[i].iov_len : left;

            part[again.count++] = (struct iovec){io->iov[i].iov_base, len};
            bytes += len;
            left -= len;
        }
        if (inode != NULL)
            read_around(&again, inode, again.off, false);
        else
            issue_raw_preadv(&again, part, again.count, again.off);
        again.off += (off_t)bytes;
    }
    errno = saved;
}

static bool is_regular(int fd)
{
    struct stat st;

    return rl_raw(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode);
}

ssize_t execute_read_late(const struct io *io, ssize_t n)
{
    struct rl_inode *inode;
    int saved = errno;

    if (n <= 0)
        return n;
    /* Not only if deferral is on for the file now: it may have been on, and ended, within the read.
     */
    inode = file_inode(io->fd, false);
    if (inode != NULL || is_regular(io->fd)) {
        if (io->positional)
            n = inode != NULL ? read_around(io, inode, io->off, false)
                              : io->issue(io, io->iov, io->count, io->off);
        else if (file_claim_position(io->fd))
            read_again(io, inode, n);
        /* else nobody can say which bytes these were: it was a read beside the punch */
    }
    if (n >= 0)
        errno = saved;
    return n;
}

ssize_t execute_read(const struct io *io)
{
    uint64_t word = state_word();
    struct rl_inode *inode = file_active(io->fd);
    ssize_t n;
    off_t at;

    if (inode == NULL) {
        n = io->issue(io, io->iov, io->count, io->off);
        return unlikely(state_word() != word) ? execute_read_late(io, n) : n;
    }
    if (io->positional)
        return read_around(io, inode, io->off, false);
    if (file_claim_position(io->fd) && (at = position(io->fd)) >= 0) {
        n = read_around(io, inode, at, true);
        return n;
    }
    if (would_wait(io, inode, 0, RL_FOREVER))
        return -1;
    settle_inode(inode, WHY_position);
    return io->issue(io, io->iov, io->count, io->off);
}
