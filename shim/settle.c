/* SPDX-License-Identifier: MIT */
/* settle: see settle.h. The worker does the work; here is who waits for what. */
#include "evict.h"
#include "settle.h"
#include "tail.h"
#include "whole.h"
#include "worker.h"

#define RELEASE_WAIT_NS 10000000u
#define QUIET_NS        200000000u
#define WAIT_NS         100000000u /* then look again and knock again: a lost wake-up costs this, once */

static bool is_on(const struct rl_inode *inode)
{
    return (rl_load_32(&inode->table.act) & RL_ACT_STATE) != RL_ACT_OFF;
}

/* Sleeps until done(inode, arg) or the table is off. */
static void wait_until(struct rl_inode *inode, enum why why,
                       bool (*done)(struct rl_inode *inode, uint64_t a, uint64_t b), uint64_t a,
                       uint64_t b)
{
    uint64_t began_ns = rl_now_ns();
    uint64_t took_ns;

    while (is_on(inode)) {
        uint32_t seq = rl_load_32(&inode->table.done_seq);

        if (done(inode, a, b))
            break;
        worker_wake();
        rl_futex_wait(&inode->table.done_seq, seq, WAIT_NS);
    }
    took_ns = rl_now_ns() - began_ns;
    stat_add(STAT_settles, 1);
    rl_add_64(&stats->settled[why], 1);
    stat_add(STAT_settle_wait_ns, took_ns);
    stat_peak(STAT_settle_wait_max_ns, took_ns);
}

/* Everything queued before pass `a` began is applied. */
static bool pass_is_done(struct rl_inode *inode, uint64_t a, uint64_t b)
{
    (void)b;
    if ((int32_t)(rl_load_32(&inode->table.pass_done) - (uint32_t)a) >= 0)
        return true;
    rl_store_32(&inode->table.want_all, 1);
    return rl_table_empty(&inode->table);
}

static bool range_is_clear(struct rl_inode *inode, uint64_t a, uint64_t b)
{
    struct rl_span one;

    if (rl_table_overlaps(&inode->table, &proc.arena->pool, a, b, &one, 1) == 0)
        return true;
    rl_table_want(&inode->table, a, b);
    return false;
}

static bool table_is_off(struct rl_inode *inode, uint64_t a, uint64_t b)
{
    (void)b;
    return rl_load_32(&inode->table.act) >> 2 != a; /* off by now is seen by wait_until */
}

/* Flushing does not care how long a file is, stat knows without (tail_shown), and a write that
 * looks for space or for its place may be what the tail waits for. */
static bool size_matters(enum why why)
{
    switch (why) {
    case WHY_fsync:
    case WHY_syncfs:
    case WHY_msync:
    case WHY_stat:
    case WHY_statfs:
    case WHY_space:
    case WHY_write:
    case WHY_read:
        return false;
    default:
        return true;
    }
}

void settle_inode(struct rl_inode *inode, enum why why)
{
    if (inode == NULL || !is_on(inode))
        return;
    if (unlikely(tail_busy(inode) || whole_busy(inode)) && size_matters(why)) {
        tail_give_back(inode);
        whole_wait(inode);
    }
    if (rl_table_empty(&inode->table))
        return;
    wait_until(inode, why, pass_is_done, (uint64_t)rl_load_32(&inode->table.pass_begun) + 1, 0);
}

bool settle_asked(struct rl_inode *inode, uint64_t start, uint64_t end)
{
    if (!is_on(inode) || !rl_table_maybe(&inode->table, start, end))
        return false;
    if (range_is_clear(inode, start, end))
        return false;
    worker_wake();
    return true;
}

void settle_range(struct rl_inode *inode, uint64_t start, uint64_t end, enum why why)
{
    struct rl_span one;

    if (start >= end || !is_on(inode) ||
        rl_table_overlaps(&inode->table, &proc.arena->pool, start, end, &one, 1) == 0)
        return;
    wait_until(inode, why, range_is_clear, start, end);
}

void settle_fd(int fd, enum why why)
{
    settle_inode(file_active(fd), why);
}

static struct rl_inode *worker_inode(int i)
{
    uint32_t index = rl_load_32(&worker_files[i]);

    return index != 0 && proc.arena != NULL ? &proc.arena->inodes.inode[index - 1] : NULL;
}

/* Deleted files that are held are space to come: only who asks for that waits for them. */
static bool asks_for_space(enum why why)
{
    return why == WHY_statfs || why == WHY_space || why == WHY_control;
}

void settle_all(enum why why)
{
    if (asks_for_space(why))
        evict_drain(why);
    for (int i = 0; i < WORKER_FILES; i++)
        settle_inode(worker_inode(i), why);
}

/* The worker's reference to the file goes a moment after its table is off. Whoever ends deferral
 * may need it gone: it holds flock locks, keeps an unlinked file's space and a file system busy. */
static void wait_until_released(struct rl_inode *inode)
{
    uint32_t entry = rl_inode_index(&proc.arena->inodes, inode) + 1;

    for (int i = 0; i < WORKER_FILES; i++)
        while (rl_load_32(&worker_files[i]) == entry) {
            uint32_t seq = rl_load_32(&inode->table.done_seq);

            if (rl_load_32(&worker_files[i]) != entry || is_on(inode))
                break;
            rl_futex_wait(&inode->table.done_seq, seq, RELEASE_WAIT_NS);
        }
}

void settle_end_inode(struct rl_inode *inode, enum why why)
{
    uint32_t act;

    if (inode == NULL)
        return;
    if (!is_on(inode)) {
        wait_until_released(inode);
        return;
    }
    act = rl_load_32(&inode->table.act);
    if (rl_table_close(&inode->table, act))
        stat_add(STAT_evidence_ended, 1);
    tail_give_back(inode); /* the door is shut: no other begins */
    whole_wait(inode);
    wait_until(inode, why, table_is_off, act >> 2, 0);
    wait_until_released(inode);
}

void settle_end_fd(int fd, enum why why)
{
    settle_end_inode(file_inode(fd, false), why); /* also one that was turned off this moment */
}

void settle_end_all(enum why why)
{
    if (proc.arena == NULL)
        return;
    for (int i = 0; i < WORKER_FILES; i++) {
        struct rl_inode *inode = worker_inode(i);

        /* All doors shut first, then one wait for all: the worker drains them side by side. */
        if (inode != NULL && rl_table_close(&inode->table, rl_load_32(&inode->table.act)))
            stat_add(STAT_evidence_ended, 1);
    }
    for (int i = 0; i < WORKER_FILES; i++)
        settle_end_inode(worker_inode(i), why);
}

void settle_never_fd(int fd, enum why why, enum stat_id never)
{
    struct rl_inode *inode = file_inode(fd, true);

    file_mark(fd, FILE_STREAM);
    if (inode == NULL)
        return;
    rl_store_32(&file_state(inode)->never, never);
    settle_end_inode(inode, why);
}

void settle_foreign(enum why why)
{
    rl_store_32(&proc.foreign, 1);
    state_direct(); /* for all we know */
    rl_fence(); /* pairs with the one in the worker between turning a file on and looking again */
    settle_end_all(why);
}

void settle_stop(enum why why)
{
    rl_add_32(&proc.forking, 1); /* nothing is turned on meanwhile */
    rl_fence();                  /* as in settle_foreign */
    settle_end_all(why);
    worker_stop();
    evict_stop();
    /* The caller's own system call comes right after this: until then no other thread may start a
     * new worker. */
    rl_store_64(&proc.quiet_ns, rl_now_ns() + QUIET_NS);
    rl_add_32(&proc.forking, (uint32_t)-1);
}

void settle_sandbox(void)
{
    settle_foreign(WHY_privilege);
    settle_stop(WHY_privilege);
    rl_store_32(&proc.sandboxed, 1);
}
