/* SPDX-License-Identifier: MIT */
/* execute_space: punches, queued or made; and the other calls that drain direct I/O. */
#include <errno.h>
#include <pthread.h>

#include "evict.h"
#include "execute_impl.h"
#include "policy_punch.h"
#include "policy_split.h"
#include "tail.h"
#include "whole.h"
#include "worker.h"

#define WORKER_RETRY_NS 10000000u

__thread struct rl_gate *gate_mine;
__thread const void *gate_mine_at;

void execute_beside_begins(int fd, enum why why, struct announcement *mine)
{
    struct rl_inode *inode = file_active(fd);

    mine->fs = NULL;
    if (inode == NULL)
        return;
    file_claim_position(fd, true); /* it may move it */
    announce(mine, inode, NULL);
    settle_inode(inode, why);
}

void execute_beside_ends(struct announcement *mine)
{
    announce_over(mine);
}

static bool drains_gated(const struct rl_inode *inode)
{
    const struct file_state *fs = file_state(inode);

    return policy_drain_gated(fs->gate, (enum file_kind)(fs->kind - 1));
}

static int drain_gated(const struct drain_call *call, struct rl_inode *inode)
{
    SIGNALS(signals);
    WHOLE_HOLD(whole);
    GATE_HOLD(hold);

    if (unlikely(whole_busy(inode)) && call->off >= 0 && call->len > 0) {
        signals_block(&signals);
        whole_beside(&whole, inode, (uint64_t)call->off, (uint64_t)call->off + (uint64_t)call->len);
    }
    if (drains_gated(inode))
        gate_enter(&hold, inode, true);
    return call->issue(call);
}

/* Space that queued punches hold: see write_rest. posix_fallocate returns its error. */
static int space_again(const struct drain_call *call, struct rl_inode *inode, int r, uint64_t word,
                       int saved)
{
    int error = r < 0 ? errno : r;

    if ((error != ENOSPC && error != EDQUOT) ||
        (!state_files_on() && (word & WORD_HELD) == 0 && !evict_held()))
        return r;
    settle_all(WHY_space);
    r = inode != NULL ? drain_gated(call, inode) : call->issue(call);
    if (r == 0)
        errno = saved;
    return r;
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
        if ((flags & (O_SYNC | O_DSYNC)) != 0)
            return false; /* durable when it returns */
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
    if (!announce_put_begins(fs, start, start + (uint64_t)call->len)) {
        *reason = STAT_punch_no_moment;
        return false;
    }
    put = rl_table_put(&inode->table, &proc.arena->pool, act, start, start + (uint64_t)call->len,
                       first ? rl_now_ns() : rl_load_64(&inode->table.first_ns));
    announce_put_ends(fs);
    if (put == RL_PUT_FULL)
        *reason = STAT_punch_no_backlog;
    if (put == RL_PUT_CLOSED)
        *reason = STAT_punch_no_evidence_yet;
    if (put == RL_PUT_FULL || put == RL_PUT_CLOSED) {
        worker_wake();
        return false;
    }
    rl_store_64(&fs->queued_at_ns, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    stat_add(STAT_punch_deferred, 1);
    if (put == RL_PUT_MERGED)
        stat_add(STAT_punch_merged, 1);
    if (first)
        worker_wake();
    return true;
}

static void ask_for_evidence(int fd, struct rl_inode *inode)
{
    struct file_state *fs = file_state(inode);
    uint32_t gen = rl_load_32(&inode->gen);
    uint32_t none = 0;
    struct stat st;

    if (!rl_cas_32(&fs->asked, &none, 1))
        return;
    if (rl_raw(SYS_fstat, fd, &st) != 0 || st.st_dev != inode->dev || st.st_ino != inode->ino) {
        rl_store_32(&fs->asked, 0);
        return;
    }
    file_settings(fd, inode); /* the number may belong to another file by now */
    if (fs->share != CFG_SHARE_PRIVATE && st.st_nlink != 0) {
        file_refuse(fs, STAT_punch_no_name);
        rl_store_32(&fs->asked, 0);
        return;
    }
    if (!worker_start()) { /* for instance while the last one is leaving: that takes no time */
        rl_store_64(&fs->refused_ns, rl_now_ns() + WORKER_RETRY_NS);
        rl_store_32(&fs->refusal, STAT_punch_no_worker);
        rl_store_32(&fs->asked, 0);
        return;
    }
    worker_ask(inode, gen, fd);
}

/* What is to be known about the file for a punch that is nothing special. */
static struct punch_facts facts_of(const struct rl_inode *inode)
{
    const struct file_state *fs = file_state(inode);
    uint32_t act = rl_load_32(&inode->table.act);
    uint64_t now_ns = fs->refusal != 0 || proc.quiet_ns != 0 ? rl_now_ns() : 0;

    return (struct punch_facts){
        .works = state_works(),
        .defer = true,
        .known_fs = fs->kind > FILE_KIND_NONE + 1,
        .whole = true,
        .on = (act & RL_ACT_STATE) == RL_ACT_ON,
        .asked = rl_load_32(&fs->asked) != 0 || (act & RL_ACT_STATE) != RL_ACT_OFF,
        .quiet = rl_load_32(&proc.forking) != 0 || now_ns < rl_load_64(&proc.quiet_ns),
        .foreign = rl_load_32(&proc.foreign) != 0,
        .never = rl_load_32(&fs->never),
        .refusal = rl_load_32(&fs->refusal),
        .refusal_holds = fs->refusal != 0 && now_ns < rl_load_64(&fs->refused_ns),
    };
}

void execute_ask(int fd, struct rl_inode *inode)
{
    struct punch_facts facts = facts_of(inode);

    if (policy_punch(&facts).act == PUNCH_INLINE_AND_ASK)
        ask_for_evidence(fd, inode);
}

static bool punch_far(const struct file_state *fs, const struct drain_call *call)
{
    return policy_punch_far((enum file_kind)(fs->kind - 1),
                            (uint64_t)call->off + (uint64_t)call->len, rl_load_64(&fs->reach));
}

/* The kernel took one. A file may as well be as long as it is. */
static void punch_reached(struct file_state *fs, const struct drain_call *call)
{
    uint64_t end = (uint64_t)call->off + (uint64_t)call->len;
    struct stat st;

    if (rl_raw(SYS_fstat, call->fd, &st) == 0 && (uint64_t)st.st_size > end)
        end = (uint64_t)st.st_size;
    rl_store_64(&fs->reach, end);
}

static int execute_punch(const struct drain_call *call, struct rl_inode *inode)
{
    struct file_state *fs = file_state(inode);
    uint32_t act = rl_load_32(&inode->table.act);
    struct punch_facts facts = facts_of(inode);
    struct punch_plan plan;
    enum stat_id reason;
    int r;

    stat_add(STAT_punch_calls, 1);
    facts.defer = fs->punch == CFG_PUNCH_DEFER;
    facts.whole = call->off >= 0 && call->len > 0 && call->off <= (off_t)RL_FOREVER - call->len;
    facts.far = facts.whole && punch_far(fs, call);
    facts.long_ = (uint64_t)call->len / PUNCH_CALLS_MAX > fs->punch_call_max_bytes;
    plan = policy_punch(&facts);
    reason = plan.reason;
    if (plan.act == PUNCH_DEFER) {
        pthread_testcancel(); /* fallocate is a cancellation point */
        if (queue_punch(call, inode, act, &reason))
            return 0;
    }
    stat_add(STAT_punch_inline, 1);
    stat_add(reason, 1);
    r = drain_gated(call, inode);
    if (r == 0 && facts.far)
        punch_reached(fs, call);
    if (plan.act == PUNCH_INLINE_AND_ASK && r == 0)
        ask_for_evidence(call->fd, inode);
    return r;
}

int execute_fallocate(const struct drain_call *call)
{
    bool punch = call->mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
    INFLIGHT(leg, call->fd);
    uint64_t word = state_word();
    int saved = errno;
    struct rl_inode *inode;

    stat_add(STAT_calls_space, 1);
    if (proc.works == 0 || proc.sandboxed != 0 || (inode = file_inode(call->fd, punch)) == NULL) {
        if (punch) {
            stat_add(STAT_punch_calls, 1);
            stat_add(STAT_punch_inline, 1);
            stat_add(proc.works == 0 ? STAT_punch_no_setting : STAT_punch_no_fs, 1);
        }
        return space_again(call, NULL, call->issue(call), word, saved);
    }
    if (punch)
        return execute_punch(call, inode);
    ANNOUNCEMENT(mine);
    announce(&mine, inode, NULL);
    settle_inode(inode, WHY_fallocate);
    return space_again(call, inode, drain_gated(call, inode), word, saved);
}

int execute_truncate(const struct drain_call *call)
{
    INFLIGHT(leg, call->fd);
    enum elide elide = ELIDE_NO;
    struct rl_inode *inode;
    int r;

    stat_add(STAT_calls_space, 1);
    inode = proc.arena == NULL || proc.sandboxed != 0 || rl_load_32(&proc.entries) == 0
                ? NULL
                : file_inode(call->fd, false);
    if (inode == NULL || (rl_table_empty(&inode->table) && !tail_busy(inode)))
        elide = elide_truncate(call->fd, call->len);
    if (elide == ELIDE_YES)
        return 0;
    ANNOUNCEMENT(mine);
    if (inode != NULL) {
        announce(&mine, inode, NULL);
        settle_inode(inode, WHY_truncate);
    }
    r = inode != NULL ? drain_gated(call, inode) : call->issue(call);
    if (elide == ELIDE_LEARN && r == 0)
        elide_learn(call->fd);
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
    announce(&hold->mine, inode, NULL);
    settle_inode(inode, WHY_truncate);
    hold->inode = inode;
    hold->gated = drains_gated(inode);
    if (!hold->gated)
        return;
    hold->ticket = rl_gate_enter_exclusive(&inode->gate, &waited_ns);
    stat_add(STAT_gate_entered, 1);
}

void execute_release(struct drain_hold *hold)
{
    if (hold->inode == NULL)
        return;
    if (hold->gated)
        rl_gate_leave_exclusive(&hold->inode->gate, hold->ticket);
    announce_over(&hold->mine);
    hold->inode = NULL;
}
