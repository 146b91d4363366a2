/* SPDX-License-Identifier: MIT */
/* execute_read: reads around queued ranges; the protocol is explained in lockmgr/range_table.h. */
#include <errno.h>
#include <string.h>

#include "execute_impl.h"
#include "tail.h"
#include "whole.h"

#define SPANS_MAX  32 /* queued ranges one read can be combined with; more: apply them first */
#define READ_TRIES 4

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

#define PARTS 64 /* iovecs at a time: a handler's stack may be small */

/* The first n bytes of the read. Not without a call where there are none: the kernel has errors to
 * tell also at the end of a file. */
static __attribute__((noinline)) ssize_t read_part(const struct io *io, off_t off, size_t n)
{
    ssize_t done = 0;
    int i = 0;

    do {
        struct iovec part[PARTS];
        size_t bytes = 0;
        int parts = 0;
        ssize_t r;

        for (; i < io->count && parts < PARTS && (n > 0 || parts == 0); i++, parts++) {
            part[parts] = io->iov[i];
            if (part[parts].iov_len > n)
                part[parts].iov_len = n;
            n -= part[parts].iov_len;
            bytes += part[parts].iov_len;
        }
        r = io->issue(io, part, parts, off + done);
        if (r < 0)
            return done != 0 ? done : r;
        done += r;
        if ((size_t)r < bytes)
            break;
    } while (n > 0 && i < io->count);
    return done;
}

/* The real call, up to the end of the file as the program knows it. */
static ssize_t read_shown(const struct io *io, struct rl_inode *inode, off_t off, bool seek_back)
{
    size_t n = io_bytes(io->iov, io->count);

    for (;;) {
        struct tail_seen seen;
        size_t most = tail_clip(inode, (uint64_t)off, n, &seen);
        ssize_t r =
            likely(most == n) ? io->issue(io, io->iov, io->count, off) : read_part(io, off, most);

        if (r <= 0 || likely(tail_unseen(inode, &seen)))
            return r;
        if (seek_back)
            rl_raw(SYS_lseek, io->fd, off, SEEK_SET);
    }
}

/* A read at a known offset. seek_back: the file position must be put back before another try. */
static ssize_t read_around(const struct io *io, struct rl_inode *inode, off_t off, bool seek_back)
{
    uint64_t start = (uint64_t)off;
    uint64_t end = start + io_bytes(io->iov, io->count);
    struct rl_span before[SPANS_MAX], after[SPANS_MAX];
    SIGNALS(signals);
    WHOLE_HOLD(hold);

    if (off < 0 || end > RL_FOREVER || end == start)
        return io->issue(io, io->iov, io->count, off);
    if (unlikely(whole_busy(inode))) {
        if ((io->flags & RWF_NOWAIT) != 0) {
            errno = EAGAIN;
            return -1;
        }
        signals_block(&signals);
        whole_beside(&hold, inode, start, end);
    }
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
        r = read_shown(io, inode, off, seek_back);
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
    return read_shown(io, inode, off, seek_back);
}

ssize_t execute_read(const struct io *io)
{
    struct rl_inode *inode = file_active(io->fd);
    bool armed;
    off_t at;

    if (inode == NULL)
        return io->issue(io, io->iov, io->count, io->off);
    if (io->positional)
        return read_around(io, inode, io->off, false);
    armed = file_armed(inode); /* before the claim: those who do not ask are over by then */
    if (file_claim_position(io->fd, true) && armed) {
        SIGNALS(signals);
        signals_block(&signals);
        if ((at = position(io->fd)) >= 0)
            return read_around(io, inode, at, true);
    }
    ANNOUNCEMENT(mine);
    announce(&mine, inode, NULL);
    if (would_wait(io, inode, 0, RL_FOREVER))
        return -1;
    settle_inode(inode, WHY_position);
    return io->issue(io, io->iov, io->count, io->off);
}
