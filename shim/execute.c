/* SPDX-License-Identifier: MIT */
/* execute: see execute.h; the reader's and the writer's protocol are explained in
 * lockmgr/range_table.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>

#include "execute.h"
#include "policy_punch.h"
#include "policy_split.h"
#include "real.h"
#include "worker.h"

#define SPANS_MAX   32 /* queued ranges one read can be combined with; more: apply them first */
#define READ_TRIES  4
#define PARTS_MAX   64 /* iovecs in one piece */
#define REFUSE_NS   100000000u /* first time until evidence is asked for again; doubles */
#define REFUSE_STEPS 5
#define WORKER_RETRY_NS 10000000u

static size_t iov_bytes(const struct iovec *iov, int count)
{
    size_t bytes = 0;

    for (int i = 0; i < count; i++)
        bytes += iov[i].iov_len;
    return bytes;
}

static int open_flags(int fd)
{
    return (int)rl_raw(SYS_fcntl, fd, F_GETFL);
}

static off_t position(int fd)
{
    return (off_t)rl_raw(SYS_lseek, fd, 0L, SEEK_CUR);
}

/* --- gate --- */

struct gate_hold {
    struct rl_gate *gate; /* NULL: not inside */
    rl_ticket ticket;
    bool exclusive;
};

static void gate_enter(struct gate_hold *hold, struct rl_inode *inode, bool exclusive)
{
    uint64_t waited_ns;

    hold->exclusive = exclusive;
    hold->ticket = exclusive ? rl_gate_enter_exclusive(&inode->gate, &waited_ns)
                             : rl_gate_enter_shared(&inode->gate, &waited_ns);
    hold->gate = &inode->gate;
    stat_add(STAT_gate_entered, 1);
    if (waited_ns != 0) {
        stat_add(STAT_gate_waited, 1);
        stat_add(STAT_gate_wait_ns, waited_ns);
        stat_peak(STAT_gate_wait_max_ns, waited_ns);
    }
}

/* Also runs when a cancelled thread unwinds through the real call (-fexceptions). */
static void gate_leave(struct gate_hold *hold)
{
    if (hold->gate == NULL)
        return;
    if (hold->exclusive)
        rl_gate_leave_exclusive(hold->gate, hold->ticket);
    else
        rl_gate_leave_shared(hold->gate, hold->ticket);
    hold->gate = NULL;
}

#define GATE_HOLD(name)                                                                            \
    struct gate_hold name __attribute__((cleanup(gate_leave))) = {.gate = NULL}

/* --- reads --- */

/* Zeros what the spans cover of the first n bytes of the buffers, whose first byte is at `start`. */
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

/* A read at a known offset. seek_back: the file position must be put back before another try. */
static ssize_t read_around(const struct io *io, struct rl_inode *inode, off_t off, bool seek_back)
{
    uint64_t start = (uint64_t)off;
    uint64_t end = start + iov_bytes(io->iov, io->count);
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
    settle_range(inode, start, end, WHY_read);
    return io->issue(io, io->iov, io->count, off);
}

ssize_t execute_read_late(const struct io *io, ssize_t n)
{
    struct rl_inode *inode;
    off_t start = io->off;
    struct iovec part[1];
    int saved = errno;

    if (n <= 0 || (inode = file_active(io->fd)) == NULL) {
        errno = saved;
        return n;
    }
    if (!io->positional) {
        start = position(io->fd) - n;
        settle_inode(inode, WHY_position);
        if (start < 0 || io->count != 1)
            return n;
        /* What was queued while we read is applied now: read the same bytes once more. Only that
         * many, so that the result still fits the position. */
        part[0] = (struct iovec){io->iov[0].iov_base, (size_t)n};
        if (rl_raw(SYS_pread64, io->fd, part[0].iov_base, part[0].iov_len, start) < 0)
            errno = saved;
        return n;
    }
    return read_around(io, inode, start, false);
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
        if (n > 0 && position(io->fd) != at + n) {
            /* Another thread, already inside its call when the file was turned on, moved it. */
            settle_inode(inode, WHY_position);
            execute_read_late(io, n);
        }
        return n;
    }
    settle_inode(inode, WHY_position);
    return io->issue(io, io->iov, io->count, io->off);
}

/* --- writes --- */

/*
 * Writes under way are announced before they look at the queue; a punch looks at them after it was
 * queued. Otherwise a punch that was queued while a write was under way could be applied after the
 * write landed, and destroy it, although somebody saw in between (by the file's size, or by other
 * bytes of the same write) that the punch came first.
 */
static void mark_write(struct write_mark *mark, struct file_state *fs, const struct rl_span *range)
{
    mark->fs = fs;
    mark->packed = range != NULL ? rl_range_pack(range->start, range->end) : 0;
    for (mark->slot = 0; mark->packed != 0 && mark->slot < FILE_WRITING; mark->slot++) {
        uint64_t none = 0;

        if (rl_cas_64(&fs->writing[mark->slot], &none, mark->packed))
            return;
    }
    mark->slot = -1;
    rl_add_32(&fs->writing_anywhere, 1);
}

/* Also runs when a cancelled thread unwinds through the real call. */
static void unmark_write(struct write_mark *mark)
{
    if (mark->fs == NULL)
        return;
    if (mark->slot >= 0)
        rl_cas_64(&mark->fs->writing[mark->slot], &mark->packed, 0);
    else
        rl_add_32(&mark->fs->writing_anywhere, (uint32_t)-1);
    mark->fs = NULL;
}

#define WRITE_MARK(name)                                                                           \
    struct write_mark name __attribute__((cleanup(unmark_write))) = {.fs = NULL}

static bool meets_a_write(const struct file_state *fs, uint64_t start, uint64_t end)
{
    if (rl_load_32(&fs->writing_anywhere) != 0)
        return true;
    for (int i = 0; i < FILE_WRITING; i++) {
        uint64_t packed = rl_load_64(&fs->writing[i]);

        if (packed != 0 && rl_range_unpack(packed).start < end &&
            rl_range_unpack(packed).end > start)
            return true;
    }
    return false;
}

void execute_change_begins(int fd, enum why why, struct write_mark *mark)
{
    struct rl_inode *inode = file_active(fd);

    mark->fs = NULL;
    if (inode == NULL)
        return;
    mark_write(mark, file_state(inode), NULL);
    settle_inode(inode, why);
}

void execute_change_ends(struct write_mark *mark)
{
    unmark_write(mark);
}

/* Where a write will land, as far as the queue must be clear. False: not known. */
static bool write_range(const struct io *io, off_t off, size_t bytes, struct rl_span *range)
{
    int flags = open_flags(io->fd);
    struct stat st;

    if ((flags >= 0 && (flags & O_APPEND) != 0) || (io->flags & RWF_APPEND) != 0) {
        /* At the end of the file, wherever that is by then: nothing queued may lie behind it. */
        if (rl_raw(SYS_fstat, io->fd, &st) != 0)
            return false;
        *range = (struct rl_span){(uint64_t)st.st_size, RL_FOREVER};
        return true;
    }
    if (!io->positional) {
        if (!file_claim_position(io->fd) || (off = position(io->fd)) < 0)
            return false;
    }
    if (off < 0 || bytes == 0 || (uint64_t)off + bytes > RL_FOREVER)
        return false;
    *range = (struct rl_span){(uint64_t)off, (uint64_t)off + bytes};
    return true;
}

/* The position moved under us between looking and writing (see execute_read): the data may have
 * landed on a queued range. Once that is applied, put the data there again. */
static void write_again(const struct io *io, struct rl_inode *inode, const struct iovec *iov,
                        int count, size_t n)
{
    off_t at = position(io->fd) - (off_t)n;

    settle_inode(inode, WHY_position);
    for (int i = 0; i < count && n > 0 && at >= 0; i++) {
        size_t len = iov[i].iov_len < n ? iov[i].iov_len : n;

        rl_raw(SYS_pwrite64, io->fd, iov[i].iov_base, len, at);
        at += (off_t)len;
        n -= len;
    }
}

/* One kernel call, clear of what is queued. */
static ssize_t write_around(const struct io *io, const struct iovec *iov, int count, off_t off)
{
    uint64_t word = state_word();
    struct rl_inode *inode = file_active(io->fd);
    size_t bytes = iov_bytes(iov, count);
    struct rl_span range;
    ssize_t n;

    if (inode == NULL) {
        n = io->issue(io, iov, count, off);
        if (unlikely(state_word() != word))
            execute_write_late(io, n);
        return n;
    }
    WRITE_MARK(mark);
    if (!write_range(io, off, bytes, &range)) {
        mark_write(&mark, file_state(inode), NULL);
        settle_inode(inode, WHY_position);
        n = io->issue(io, iov, count, off);
        if (n > 0)
            settle_inode(inode, WHY_position);
        return n;
    }
    mark_write(&mark, file_state(inode), &range);
    if (rl_table_maybe(&inode->table, range.start, range.end)) {
        settle_range(inode, range.start, range.end, WHY_write);
        stat_add(STAT_write_waited, 1);
    }
    n = io->issue(io, iov, count, off);
    if (n <= 0)
        return n;
    settle_range(inode, range.start, range.end, WHY_write);
    if (!io->positional && range.end != RL_FOREVER &&
        position(io->fd) != (off_t)range.start + n)
        write_again(io, inode, iov, count, (size_t)n);
    return n;
}

void execute_write_late(const struct io *io, ssize_t n)
{
    struct rl_inode *inode;
    int saved = errno;

    /* Everything that was queued while we wrote has to be gone before we return; which bytes they
     * were does not matter for a thing that happens once per file. */
    if (n > 0 && (inode = file_active(io->fd)) != NULL)
        settle_inode(inode, WHY_write);
    errno = saved;
}

static bool all_aligned(const struct io *io)
{
    uintptr_t bits = io->positional ? (uintptr_t)io->off : 0;

    for (int i = 0; i < io->count; i++)
        bits |= (uintptr_t)io->iov[i].iov_base | io->iov[i].iov_len;
    return (bits & (SPLIT_ALIGN - 1)) == 0;
}

static bool size_limited(void)
{
    struct rlimit limit;

    return rl_raw(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit) != 0 ||
           limit.rlim_cur != RLIM_INFINITY;
}

/* The next piece of at most max bytes, from byte `done` on. Returns its length. */
static size_t next_piece(const struct io *io, size_t done, size_t max, struct iovec *part, int *parts)
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

static ssize_t write_pieces(const struct io *io, struct rl_inode *inode, size_t bytes, size_t piece)
{
    struct iovec part[PARTS_MAX];
    int saved = errno;
    size_t done = 0;
    int parts;

    stat_add(STAT_write_split, 1);
    while (done < bytes) {
        size_t len = next_piece(io, done, piece, part, &parts);
        ssize_t n;

        GATE_HOLD(hold);
        gate_enter(&hold, inode, false);
        n = write_around(io, part, parts, io->off + (off_t)done);
        gate_leave(&hold);
        stat_add(STAT_write_pieces, 1);
        if (n < 0 && done == 0)
            return n;
        if (n < 0) { /* a short count is a success */
            errno = saved;
            break;
        }
        done += (size_t)n;
        if ((size_t)n < len)
            break;
    }
    return (ssize_t)done;
}

ssize_t execute_write(const struct io *io)
{
    size_t bytes = iov_bytes(io->iov, io->count);
    struct rl_inode *inode = NULL;
    struct split_plan plan = {0};
    struct file_state *fs;
    int flags;

    if (bytes >= GATE_MIN_BYTES && bytes <= SSIZE_MAX && state_works()) {
        flags = open_flags(io->fd);
        if (flags >= 0 && (flags & O_DIRECT) != 0)
            inode = file_inode(io->fd, true);
    }
    if (inode == NULL)
        return write_around(io, io->iov, io->count, io->off);
    fs = file_state(inode);
    plan = policy_split(&(struct split_facts){
        .bytes = bytes,
        .aligned = all_aligned(io),
        .direct = true,
        .open_flags = flags,
        .rwf_flags = io->flags,
        .size_limited = size_limited(),
        /* write() keeps the file position locked for the whole call; pieces cannot. */
        .may_interleave = io->positional || __libc_single_threaded,
        .gate = fs->gate,
        .split_bytes = fs->split_bytes,
        .kind = (enum file_kind)(fs->kind - 1),
    });
    if (!plan.gate)
        return write_around(io, io->iov, io->count, io->off);
    if (plan.piece_bytes != 0)
        return write_pieces(io, inode, bytes, plan.piece_bytes);

    GATE_HOLD(hold);
    gate_enter(&hold, inode, false);
    return write_around(io, io->iov, io->count, io->off);
}

/* --- calls that drain direct I/O --- */

static int drain_gated(const struct drain_call *call, struct rl_inode *inode)
{
    GATE_HOLD(hold);

    if (policy_drain_gated(file_state(inode)->gate, (enum file_kind)(file_state(inode)->kind - 1)))
        gate_enter(&hold, inode, true);
    return call->issue(call);
}

static bool queue_punch(const struct drain_call *call, struct rl_inode *inode, uint32_t act,
                        enum stat_id *reason)
{
    struct file_state *fs = file_state(inode);
    uint64_t start = (uint64_t)call->off;
    bool first = rl_load_64(&inode->table.first_ns) == 0;
    struct timespec now;
    enum rl_put put;

    *reason = STAT_punch_no_evidence_yet;
    if (rl_load_32(&fs->armed) == 0)
        return false;
    *reason = STAT_punch_no_origin;
    if ((file_flags(call->fd) & FILE_WRITES) == 0) {
        int flags = open_flags(call->fd);

        if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || (flags & O_PATH) != 0)
            return false; /* the kernel has the right error for it */
        file_mark(call->fd, FILE_WRITES);
    }
    if ((file_flags(call->fd) & (FILE_OPENED | FILE_PASSED | FILE_STREAM)) != FILE_OPENED)
        return false;
    /* Once per batch rather than per punch (1.2 us against 0.1): a descriptor replaced behind our
     * back within punch_delay would have to have been replaced by a call that nobody can see. */
    if (first && !file_verify(call->fd, inode)) {
        file_forget(call->fd);
        return false;
    }
    clock_gettime(CLOCK_REALTIME_COARSE, &now); /* what the kernel would have put into mtime */
    put = rl_table_put(&inode->table, &proc.arena->pool, act, start, start + (uint64_t)call->len,
                       first ? rl_now_ns() : rl_load_64(&inode->table.first_ns));
    if (put == RL_PUT_FULL)
        *reason = STAT_punch_no_backlog;
    if (put == RL_PUT_CLOSED)
        *reason = STAT_punch_no_evidence_yet;
    if (put == RL_PUT_FULL || put == RL_PUT_CLOSED) {
        worker_wake();
        return false;
    }
    rl_store_64(&fs->queued_at_ns, (uint64_t)now.tv_nsec);
    rl_store_64(&fs->queued_at_s, (uint64_t)now.tv_sec);
    stat_add(STAT_punch_deferred, 1);
    if (put == RL_PUT_MERGED)
        stat_add(STAT_punch_merged, 1);
    if (first)
        worker_wake();
    if (unlikely(meets_a_write(fs, start, start + (uint64_t)call->len)))
        settle_range(inode, start, start + (uint64_t)call->len, WHY_write);
    return true;
}

static void refuse(struct file_state *fs, enum stat_id reason)
{
    uint32_t step = fs->refusals < REFUSE_STEPS ? fs->refusals : REFUSE_STEPS;

    fs->refusals = fs->refusals + 1;
    rl_store_64(&fs->refused_ns, rl_now_ns() + ((uint64_t)REFUSE_NS << step));
    rl_store_32(&fs->refusal, reason);
}

static void ask_for_evidence(const struct drain_call *call, struct rl_inode *inode)
{
    struct file_state *fs = file_state(inode);
    uint32_t gen = rl_load_32(&inode->gen);
    uint32_t none = 0;
    struct stat st;

    if (!rl_cas_32(&fs->asked, &none, 1))
        return;
    if (rl_raw(SYS_fstat, call->fd, &st) != 0 || st.st_dev != inode->dev || st.st_ino != inode->ino) {
        rl_store_32(&fs->asked, 0);
        return;
    }
    if (fs->share != CFG_SHARE_PRIVATE && st.st_nlink != 0) {
        refuse(fs, STAT_punch_no_name);
        rl_store_32(&fs->asked, 0);
        return;
    }
    if (!worker_start()) { /* for instance while the last one is leaving: that takes no time */
        rl_store_64(&fs->refused_ns, rl_now_ns() + WORKER_RETRY_NS);
        rl_store_32(&fs->refusal, STAT_punch_no_worker);
        rl_store_32(&fs->asked, 0);
        return;
    }
    worker_ask(inode, gen, call->fd);
}

static int execute_punch(const struct drain_call *call, struct rl_inode *inode)
{
    struct file_state *fs = file_state(inode);
    uint32_t act = rl_load_32(&inode->table.act);
    uint64_t now_ns = 0;
    struct punch_plan plan;
    enum stat_id reason;
    int r;

    stat_add(STAT_punch_calls, 1);
    if (fs->refusal != 0 || proc.quiet_ns != 0)
        now_ns = rl_now_ns();
    plan = policy_punch(&(struct punch_facts){
        .works = state_works(),
        .defer = fs->punch == CFG_PUNCH_DEFER,
        .private_ = fs->share == CFG_SHARE_PRIVATE,
        .known_fs = fs->kind > FILE_KIND_NONE + 1,
        .whole = call->off >= 0 && call->len > 0 && call->off <= (off_t)RL_FOREVER - call->len,
        .long_ = (uint64_t)call->len / PUNCH_CALLS_MAX > fs->punch_call_max_bytes,
        .on = (act & RL_ACT_STATE) == RL_ACT_ON,
        .asked = rl_load_32(&fs->asked) != 0 || (act & RL_ACT_STATE) != RL_ACT_OFF,
        .quiet = rl_load_32(&proc.forking) != 0 || now_ns < rl_load_64(&proc.quiet_ns),
        .foreign = rl_load_32(&proc.foreign) != 0,
        .never = rl_load_32(&fs->never),
        .refusal = rl_load_32(&fs->refusal),
        .refusal_holds = fs->refusal != 0 && now_ns < rl_load_64(&fs->refused_ns),
    });
    reason = plan.reason;
    if (plan.act == PUNCH_DEFER) {
        pthread_testcancel(); /* fallocate is a cancellation point */
        if (queue_punch(call, inode, act, &reason))
            return 0;
    }
    stat_add(STAT_punch_inline, 1);
    stat_add(reason, 1);
    r = drain_gated(call, inode);
    if (plan.act == PUNCH_INLINE_AND_ASK && r == 0)
        ask_for_evidence(call, inode);
    /* The table was on before this call, so every write that is not announced began before it, and
     * the kernel made this punch wait for those. */
    if (plan.act == PUNCH_DEFER && r == 0 && rl_load_32(&inode->table.act) == act)
        rl_store_32(&fs->armed, 1);
    return r;
}

int execute_fallocate(const struct drain_call *call)
{
    bool punch = call->mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
    struct rl_inode *inode;
    int r;

    stat_add(STAT_calls_space, 1);
    if (proc.arena == NULL || (inode = file_inode(call->fd, punch)) == NULL)
        return call->issue(call);
    if (punch)
        return execute_punch(call, inode);
    WRITE_MARK(mark);
    mark_write(&mark, file_state(inode), NULL);
    settle_inode(inode, WHY_fallocate);
    r = drain_gated(call, inode);
    settle_inode(inode, WHY_fallocate); /* punches queued meanwhile: as after a write */
    return r;
}

int execute_truncate(const struct drain_call *call)
{
    struct rl_inode *inode;
    int r;

    stat_add(STAT_calls_space, 1);
    if (proc.arena == NULL || rl_load_32(&proc.entries) == 0 ||
        (inode = file_inode(call->fd, false)) == NULL)
        return call->issue(call);
    WRITE_MARK(mark);
    mark_write(&mark, file_state(inode), NULL);
    settle_inode(inode, WHY_truncate);
    r = drain_gated(call, inode);
    settle_inode(inode, WHY_truncate);
    return r;
}

void execute_hold_path(int dirfd, const char *path, struct drain_hold *hold)
{
    struct rl_inode *inode;
    uint64_t waited_ns;
    struct stat st;

    hold->inode = NULL;
    if (proc.arena == NULL || rl_load_32(&proc.entries) == 0 ||
        rl_raw(SYS_newfstatat, dirfd, path, &st, 0) != 0 || !S_ISREG(st.st_mode))
        return;
    inode = file_by_identity(st.st_dev, st.st_ino);
    if (inode == NULL)
        return;
    mark_write(&hold->mark, file_state(inode), NULL);
    settle_inode(inode, WHY_truncate);
    hold->inode = inode;
    hold->ticket = rl_gate_enter_exclusive(&inode->gate, &waited_ns);
    stat_add(STAT_gate_entered, 1);
}

void execute_release(struct drain_hold *hold)
{
    if (hold->inode == NULL)
        return;
    rl_gate_leave_exclusive(&hold->inode->gate, hold->ticket);
    settle_inode(hold->inode, WHY_truncate);
    unmark_write(&hold->mark);
    hold->inode = NULL;
}
