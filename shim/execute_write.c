/* SPDX-License-Identifier: MIT */
/* execute_write: writes around queued ranges (lockmgr/range_table.h), through the gate, in pieces.
 */
#include <errno.h>
#include <sys/resource.h>
#include <signal.h>

#include "evict.h"
#include "execute_impl.h"
#include "pace.h"
#include "policy_split.h"
#include "tail.h"
#include "whole.h"

/* Where a program's memory ends, unless it asked for more by a hint to mmap. */
#if defined(__x86_64__)
#define USER_END (((uintptr_t)1 << 47) - 4096)
#else
#define USER_END ((uintptr_t)1 << 48)
#endif

static bool appends(const struct io *io)
{
    int flags = open_flags(io->fd);

    return (flags >= 0 && (flags & O_APPEND) != 0) || (io->flags & RWF_APPEND) != 0;
}

/* Where a write will land, as far as the queue must be clear. False: not known. */
static bool write_range(const struct io *io, const struct rl_inode *inode, off_t off, size_t bytes,
                        bool append, struct rl_span *range)
{
    struct stat st;

    if (append) {
        /* At the end of the file, wherever that is by then: nothing queued may lie behind it. */
        if (rl_raw(SYS_fstat, io->fd, &st) != 0)
            return false;
        *range = (struct rl_span){(uint64_t)st.st_size, RL_FOREVER};
        return true;
    }
    if (!io->positional) {
        bool armed = file_armed(inode); /* before the claim: those who do not ask are over */

        if (!file_claim_position(io->fd, true) || !armed || (off = position(io->fd)) < 0)
            return false;
    }
    if (off < 0 || bytes == 0 || (uint64_t)off + bytes > RL_FOREVER)
        return false;
    *range = (struct rl_span){(uint64_t)off, (uint64_t)off + bytes};
    return true;
}

/* The next piece of at most max bytes, from byte `done` on. Returns its length. */
size_t write_next_piece(const struct io *io, size_t done, size_t max, struct iovec *part,
                        int *parts)
{
    size_t bytes = 0;

    *parts = 0;
    for (int i = 0; i < io->count && bytes < max && *parts < PARTS_MAX; i++) {
        size_t len = io->iov[i].iov_len;
        size_t take;

        if (done >= len) {
            done -= len;
            continue;
        }
        take = len - done < max - bytes ? len - done : max - bytes;
        part[(*parts)++] = (struct iovec){(char *)io->iov[i].iov_base + done, take};
        bytes += take;
        done = 0;
    }
    return bytes;
}

bool write_size_limited(void)
{
    struct rlimit limit;

    return rl_raw(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit) != 0 ||
           limit.rlim_cur != RLIM_INFINITY;
}

/* A short write that a full disk can be the reason of: pipes and sockets have reasons of their own,
 * and at RLIMIT_FSIZE a second call would raise the signal that the first did not. */
static bool stopped_early(int fd, size_t done, size_t bytes)
{
    struct stat st;

    return done < bytes && rl_raw(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) &&
           !write_size_limited();
}

/* Before the call, as `word` says, or now: what was held may be freed this moment. */
static bool nothing_queued(uint64_t word)
{
    return !state_files_on() && (word & WORD_HELD) == 0 && !evict_held();
}

/*
 * The file system is full, but queued punches and deleted files hold space that it would have by
 * now: apply and free them all, and go on once where the write stopped. Without rlshim it would not
 * have stopped.
 */
ssize_t write_rest(const struct io *io, const struct iovec *iov, int count, off_t off, ssize_t n,
                   size_t bytes, int saved, uint64_t word)
{
    struct iovec part[PARTS_MAX];
    size_t done = n > 0 ? (size_t)n : 0;
    ssize_t more;
    int parts;

    if (!nothing_queued(word) && (io->flags & RWF_NOWAIT) == 0 &&
        (n >= 0 ? stopped_early(io->fd, done, bytes) : errno == ENOSPC || errno == EDQUOT)) {
        struct io rest = *io;

        settle_all(WHY_space);
        rest.iov = iov;
        rest.count = count;
        write_next_piece(&rest, done, bytes, part, &parts);
        more = io->issue(io, part, parts, off + (off_t)done);
        if (more >= 0) {
            errno = saved;
            return (ssize_t)done + more;
        }
        if (n >= 0) {
            errno = saved;
            return n;
        }
    }
    return n;
}

/* The real call, inside the gate if there is one. Only that: whoever waits inside for a queued
 * range waits for the worker, which waits at the gate. */
static ssize_t issue_inside(const struct io *io, const struct iovec *iov, int count, off_t off,
                            struct rl_inode *gated)
{
    GATE_HOLD(hold);

    if (gated != NULL)
        gate_enter(&hold, gated, false);
    return io->issue(io, iov, count, off);
}

/* One kernel call, clear of what is queued, through the gate of `gated` unless that is NULL. tail:
 * the caller's. */
static ssize_t write_around(const struct io *io, const struct iovec *iov, int count, off_t off,
                            struct rl_inode *gated, const struct tail_member *tail)
{
    struct rl_inode *inode = file_active(io->fd);
    size_t bytes = io_bytes(iov, count);
    uint64_t word = state_word();
    int saved = errno; /* a success leaves it alone, also the second try's */
    struct rl_span range = {0, RL_FOREVER};
    bool known, append;
    uint32_t tails;
    ssize_t n;
    ANNOUNCEMENT(mine);
    SIGNALS(signals);
    TAIL_MEMBER(own);
    WHOLE_HOLD(whole);

    if (inode == NULL)
        return write_rest(io, iov, count, off, issue_inside(io, iov, count, off, gated), bytes,
                          saved, word);
    append = appends(io);
    if (!io->positional)
        signals_block(&signals);
    for (;;) {
        tails = rl_load_32(&file_state(inode)->tail_seq);
        known = write_range(io, inode, off, bytes, append, &range);
        announce(&mine, inode, known ? &range : NULL);
        if (!append || (!tail_busy(inode) && tails == rl_load_32(&file_state(inode)->tail_seq)))
            break;
        tail_give_back(inode); /* the kernel would append behind it */
        announce_over(&mine);
    }
    if ((io->flags & RWF_NOWAIT) != 0 && settle_asked(inode, range.start, range.end)) {
        errno = EAGAIN; /* as where the kernel would have to wait */
        return -1;
    }
    if (!known) {
        settle_inode(inode, WHY_position);
    } else if (rl_table_maybe(&inode->table, range.start, range.end)) {
        settle_range(inode, range.start, range.end, WHY_write);
        stat_add(STAT_write_waited, 1);
    }
    if (unlikely(whole_busy(inode)) && known) {
        if ((io->flags & RWF_NOWAIT) != 0) {
            errno = EAGAIN;
            return -1;
        }
        if (!signals.blocked)
            signals_block(&signals);
        whole_beside(&whole, inode, range.start, range.end);
    }
    if (unlikely(tail_busy(inode)) && tail->inode == NULL && known) {
        if ((io->flags & RWF_NOWAIT) != 0) {
            errno = EAGAIN;
            return -1;
        }
        if (!signals.blocked)
            signals_block(&signals);
        if (tail_enter(&own, inode, io->fd))
            tail = &own;
    }
    n = write_rest(io, iov, count, off, issue_inside(io, iov, count, off, gated), bytes, saved,
                   word);
    if (n > 0 && tail->inode != NULL)
        tail_wrote(tail, range.start + (uint64_t)n);
    return n;
}

static const struct tail_member no_tail;

ssize_t write_plain(const struct io *io)
{
    return write_around(io, io->iov, io->count, io->off, NULL, &no_tail);
}

/* No piece can be refused for a reason for which the kernel would have refused the whole:
 * alignment, and what it checks before it begins (offsets beyond the largest, memory that is not a
 * program's, and it does not cut an aligned call short by itself). */
static bool all_aligned(const struct io *io)
{
    uintptr_t bits = io->positional ? (uintptr_t)io->off : 0;
    size_t left = IO_BYTES_MAX;

    if (io->positional && (uint64_t)io->off > RL_FOREVER - IO_BYTES_MAX)
        return false;
    for (int i = 0; i < io->count; i++) {
        uintptr_t base = (uintptr_t)io->iov[i].iov_base;
        size_t len = io->iov[i].iov_len;

        if (len > left || base > USER_END - len)
            return false;
        left -= len;
        bits |= base | len;
    }
    return (bits & (SPLIT_ALIGN - 1)) == 0;
}

/* Does the write make the file longer, so that ext4 holds the inode lock exclusively throughout? */
static bool extends(const struct io *io, size_t bytes)
{
    struct stat st;

    return rl_raw(SYS_fstat, io->fd, &st) == 0 && io->off + (off_t)bytes > st.st_size;
}

/* A later piece met memory that is not there. What the kernel says to that differs from file system
 * to file system (ext4 and XFS: EFAULT for the whole, btrfs: a short count), so it is asked about
 * the whole. What was written already is the same bytes once more. */
static ssize_t write_undivided(const struct io *io, struct rl_inode *inode, size_t done)
{
    if (!io->positional)
        rl_raw(SYS_lseek, io->fd, -(off_t)done, SEEK_CUR);
    return write_around(io, io->iov, io->count, io->off, inode, &no_tail);
}

static ssize_t write_pieces(const struct io *io, struct rl_inode *inode, size_t bytes, size_t fixed,
                            const struct announcement *mine)
{
    struct file_state *fs = file_state(inode);
    bool extending = fs->kind == FILE_KIND_EXT4 + 1 && (tail_busy(inode) || extends(io, bytes));
    bool may_extend = extending && io->positional && fs->preextend != CFG_PREEXTEND_OFF;
    struct iovec part[PARTS_MAX];
    struct inflight_view view;
    int saved = errno;
    size_t done = 0;
    int parts;
    SIGNALS(signals);
    TAIL_MEMBER(tail);

    stat_add(STAT_write_split, 1);
    while (done < bytes) {
        uint64_t began_ns = rl_now_ns();
        bool crowded = pace_crowded(inode, began_ns, &view);
        size_t piece = fixed != 0 ? fixed
                                  : policy_piece(&(struct piece_facts){
                                        .rate_bytes_s = pace_rate(inode),
                                        .hold_target_ns = fs->hold_target_ns,
                                        .last_bytes = (size_t)rl_load_64(&fs->pace.piece),
                                        .least_bytes = (size_t)rl_load_64(&fs->pace.least),
                                        .crowded = crowded,
                                    });
        size_t len;
        ssize_t n;

        if (unlikely(tail_wanted(&tail))) {
            tail_leave(&tail);
            signals_back(&signals);
            may_extend = false; /* once a write: whoever wanted it back may want more */
        }
        if (may_extend && crowded && tail.inode == NULL) {
            execute_ask(io->fd, inode);
            signals_block(&signals);
            if (!tail_begin(&tail, inode, io->fd, (uint64_t)io->off + done,
                            (uint64_t)io->off + bytes, mine))
                signals_back(&signals);
        }
        if (extending && tail.inode == NULL && crowded && !pace_wait(inode, piece) && done != 0)
            pace_give_way(&view, fs->hold_target_ns / 8);
        began_ns = rl_now_ns();
        len = write_next_piece(io, done, piece, part, &parts);
        n = write_around(io, part, parts, io->off + (off_t)done, inode, &tail);
        if (n > 0 && (size_t)n == len)
            pace_passed(inode, len, began_ns, rl_now_ns());
        stat_add(STAT_write_pieces, 1);
        if (n < 0 && done == 0)
            return n;
        if (n < 0) { /* a short count is a success */
            bool fault = errno == EFAULT;

            errno = saved;
            if (!fault)
                break;
            tail_leave(&tail);
            return write_undivided(io, inode, done);
        }
        done += (size_t)n;
        stat_add(STAT_write_pieces_bytes, (uint64_t)n);
        if ((size_t)n < len)
            break;
    }
    return (ssize_t)done;
}

/* One write() cannot be interrupted by a handler that writes through the same descriptor; several
 * in a row must not be either. */
static ssize_t write_pieces_at_position(const struct io *io, struct rl_inode *inode, size_t bytes,
                                        size_t fixed)
{
    SIGNALS(signals);

    signals_block(&signals);
    return write_pieces(io, inode, bytes, fixed, NULL);
}

ssize_t execute_write(const struct io *io)
{
    size_t bytes = io_bytes(io->iov, io->count);
    struct rl_inode *inode = NULL;
    struct split_plan plan = {0};
    struct file_state *fs;
    int flags;

    if (bytes >= GATE_MIN_BYTES && (io->flags & RWF_NOWAIT) == 0 && state_works()) {
        flags = open_flags(io->fd);
        if (flags >= 0 && (flags & O_DIRECT) != 0) {
            state_direct();
            inode = file_inode(io->fd, true);
        } else if ((inode = execute_whole_file(io, bytes, flags)) != NULL) {
            return execute_whole(io, inode, bytes);
        }
    }
    if (inode == NULL)
        return write_plain(io);
    fs = file_state(inode);
    plan = policy_split(&(struct split_facts){
        .bytes = bytes,
        .aligned = all_aligned(io),
        .direct = true,
        .open_flags = flags,
        .rwf_flags = io->flags,
        .size_limited = write_size_limited(),
        /* write() keeps the file position locked for the whole call; pieces cannot. */
        .may_interleave = io->positional || file_claim_position(io->fd, false),
        .gate = fs->gate,
        .split_bytes = fs->split_bytes,
        .kind = (enum file_kind)(fs->kind - 1),
    });
    if (!plan.gate)
        return write_plain(io);
    /* Announced even while nothing is on: a file may be turned on within a long write. */
    ANNOUNCEMENT(mine);
    announce(&mine, inode,
             io->positional && io->off >= 0 && bytes <= RL_FOREVER - (uint64_t)io->off
                 ? &(struct rl_span){(uint64_t)io->off, (uint64_t)io->off + bytes}
                 : NULL);
    if (io->positional)
        inflight_land(io->leg); /* long, and announced: no file need wait for it to be turned on */
    if (plan.split)
        return io->positional ? write_pieces(io, inode, bytes, plan.piece_bytes, &mine)
                              : write_pieces_at_position(io, inode, bytes, plan.piece_bytes);

    return write_around(io, io->iov, io->count, io->off, inode, &no_tail);
}
