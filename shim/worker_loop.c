/* SPDX-License-Identifier: MIT */
/*
 * worker_loop: what the worker thread does. No libc beyond mem* and str*, no thread-local variable,
 * no lock; see worker.h for why.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "control.h"
#include "evidence.h"
#include "family.h"
#include "inflight.h"
#include "keeper.h"
#include "keeper_impl.h"
#include "log.h"
#include "policy_split.h"
#include "ring.h"
#include "tail.h"
#include "whole.h"
#include "worker_impl.h"

#define GATE_LIMIT_NS  1000000000u /* longest wait for pieces: a limit may stop one for 0.1 s */
#define URGENT_GATE_NS 5000000u    /* this long: its caller may be a handler inside such a piece */
#define GATE_POLL_NS   1000000u
#define LOOK_FIRST_NS  50000u /* between looks at calls that began before a file was on; doubles */
#define LOOK_MOST_NS   5000000u
#define SLEEP_MAX_NS   50000000u /* orders from outside (rlshim off, the family) wake nobody */

static struct job jobs[WORKER_FILES];
_Static_assert(WORKER_FILES == KEEPER_FILES, "a keeper has room for all");
static int pidfd;

void worker_loop_forked(void)
{
    memset(jobs, 0, sizeof jobs);
    worker_apply_forked();
    keeper_forked();
}

static uint64_t act_of(const struct job *job)
{
    return rl_load_32(&job->inode->table.act) & RL_ACT_STATE;
}

/* A write that others know of only while the file is on. */
static bool under_way(const struct job *job)
{
    return tail_busy(job->inode) || whole_busy(job->inode);
}

static bool nothing_may_be_on(void)
{
    return rl_load_32(&proc.foreign) != 0 || rl_load_32(&proc.forking) != 0 ||
           rl_load_32(&proc.ending) != 0 || rl_load_32(&rl_control) != 0 ||
           rl_now_ns() < rl_load_64(&proc.quiet_ns);
}

static void turn_on(int slot, struct rl_inode *inode, struct file_state *fs, uint32_t gen,
                    uint32_t doubts, int fd)
{
    jobs[slot] = (struct job){.inode = inode,
                              .fs = fs,
                              .dev = inode->dev,
                              .ino = inode->ino,
                              .fd = fd,
                              .used_ns = rl_now_ns(),
                              .gate_moved_ns = rl_now_ns()};
    rl_store_32(&worker_files[slot], rl_inode_index(&proc.arena->inodes, inode) + 1);
    rl_store_32(&fs->armed, 0);
    state_file_on(); /* the word first: whoever reads it idle from now on started before */
    rl_drain_open(&inode->table, &proc.arena->pool);
    stat_add(STAT_evidence_granted, 1);
    rl_fence(); /* pairs with those in settle_foreign and settle_stop: they see the file on, or we
                 * see their mark */
    /* An idle entry may have been given to another inode while we looked. */
    if (nothing_may_be_on() || rl_load_32(&fs->never) != 0 || rl_load_32(&inode->gen) != gen ||
        rl_load_32(&proc.doubts) != doubts || !inflight_barrier()) {
        rl_table_close(&inode->table, rl_load_32(&inode->table.act));
        return;
    }
    jobs[slot].since = inflight_look();
    jobs[slot].look_after_ns = LOOK_FIRST_NS;
}

/* Lets punches in as soon as no call is left that began before the file was on. */
static void arm(struct job *job, uint64_t now_ns)
{
    if (job->since == 0 || now_ns < job->look_ns)
        return;
    inflight_look();
    if (inflight_over(job->dev, job->ino, job->since)) {
        job->since = 0;
        rl_store_32(&job->fs->armed, 1);
        return;
    }
    job->look_ns = now_ns + job->look_after_ns;
    if (job->look_after_ns < LOOK_MOST_NS)
        job->look_after_ns *= 2;
}

static void turn_off(int slot)
{
    struct job *job = &jobs[slot];

    /* The entry may belong to another inode by now: it is idle. */
    keeper_drop(slot);
    rl_raw(SYS_close, job->fd);
    family_leave(job->dev, job->ino);
    rl_store_32(&worker_files[slot], 0);
    state_file_off();
    rl_add_32(&job->inode->table.done_seq, 1);
    rl_futex_wake(&job->inode->table.done_seq, INT32_MAX);
    job->inode = NULL;
}

/* A file with a name is not deferred before a keeper has it. EVIDENCE_OK: one has, or need not.
 * *fd is our reference, and becomes one that shares nothing with the program's. */
static enum stat_id keep(int slot, const struct rl_inode *inode, const struct file_state *fs,
                         uint32_t gen, int *fd)
{
    struct stat st;
    int again;

    if (rl_raw(SYS_fstat, *fd, &st) == 0 && st.st_nlink == 0)
        return EVIDENCE_OK;
    again = keeper_open_again(*fd);
    /* turn_on opens the table, which counts its activations. */
    if (proc.settings.keeper &&
        (!proc.keeper || !keeper_take(slot, inode, gen, (rl_load_32(&inode->table.act) >> 2) + 1,
                                      fs->punch_call_max_bytes, again))) {
        if (again >= 0)
            rl_raw(SYS_close, again);
        return STAT_punch_no_keeper;
    }
    if (proc.settings.keeper)
        stat_add(STAT_keeper_files, 1);
    if (again >= 0) {
        rl_raw(SYS_close, *fd);
        *fd = again;
    }
    return EVIDENCE_OK;
}

static void answer(uint64_t ask)
{
    struct rl_inode *inode = &proc.arena->inodes.inode[(ask >> 32) - 1];
    struct file_state *fs = file_state(inode);
    enum stat_id refusal = STAT_punch_no_backlog;
    uint32_t gen = rl_load_32(&inode->gen); /* evidence_gather compares the identity after this */
    uint32_t doubts = rl_load_32(&proc.doubts);
    int slot = 0;
    int own = -1;

    while (slot < WORKER_FILES && jobs[slot].inode != NULL)
        slot++;
    if (nothing_may_be_on()) {
        refusal = STAT_punch_no_evidence_yet;
    } else if (slot < WORKER_FILES && act_of(&(struct job){.inode = inode}) == RL_ACT_OFF) {
        /* Entered before looking: a member of the family that opens the file after our look finds
         * the entry and waits. */
        refusal = STAT_punch_no_sole;
        if (family_enter(inode->dev, inode->ino))
            refusal = evidence_gather(inode, fs, (int)(uint32_t)ask, pidfd, &own);
        if (refusal == EVIDENCE_OK) {
            refusal = keep(slot, inode, fs, gen, &own);
            if (refusal != EVIDENCE_OK)
                rl_raw(SYS_close, own);
        }
        if (refusal != EVIDENCE_OK)
            family_leave(inode->dev, inode->ino);
    }
    if (refusal == EVIDENCE_OK) {
        fs->refusals = 0;
        rl_store_32(&fs->refusal, 0);
        turn_on(slot, inode, fs, gen, doubts, own);
    } else {
        file_refuse(fs, refusal);
        stat_add(STAT_evidence_refused, 1);
    }
    rl_store_32(&fs->asked, 0);
}

static bool has_wants(const struct rl_table *t)
{
    for (int i = 0; i < RL_WANTS; i++)
        if (rl_load_64(&t->want[i]) != 0)
            return true;
    return false;
}

/* When a pass over this file should begin: now or earlier means at once, 0 never. */
static uint64_t pass_due_ns(const struct job *job)
{
    const struct rl_table *t = &job->inode->table;
    uint64_t first_ns = rl_load_64(&t->first_ns);

    if (rl_load_32(&t->want_all) != 0)
        return 1;
    if (act_of(job) == RL_ACT_DRAINING && !(under_way(job) && rl_table_empty(t)))
        return 1; /* otherwise its end wakes us */
    if (rl_load_32(&proc.arena->pool.used) > rl_load_32(&proc.arena->pool.limit) / 2)
        return 1;
    /* Half of the delay for waiting, the other half for getting it done. */
    return first_ns != 0 ? first_ns + job->fs->punch_delay_ns / 2 : 0;
}

static void watch_gate(struct job *job, uint64_t now_ns)
{
    uint32_t seq = rl_load_32(&job->inode->gate.seq);

    /* An idle gate does not move either. */
    if (seq != job->gate_seq || rl_gate_idle(&job->inode->gate)) {
        job->gate_seq = seq;
        job->gate_moved_ns = now_ns;
    }
}

/* Fetches the next stretch of a file that has none out. */
static void fetch(struct job *job, uint64_t now_ns)
{
    struct rl_table *t = &job->inode->table;
    struct rl_pool *pool = &proc.arena->pool;
    uint64_t most = job->fs->punch_call_max_bytes;
    uint64_t due_ns;

    if (job->retry_ns > now_ns)
        return;
    job->urgent = rl_drain_next_wanted(t, pool, most, &job->span);
    job->out = job->urgent;
    if (!job->out && !job->in_pass) {
        due_ns = pass_due_ns(job);
        if (due_ns != 0 && due_ns <= now_ns) {
            if (rl_load_64(&t->first_ns) != 0)
                stat_peak(STAT_punch_delay_max_ns, now_ns - rl_load_64(&t->first_ns));
            if (!evidence_holds(job->fs, job->fd) || !keeper_has((int)(job - jobs)))
                rl_table_close(t, rl_load_32(&t->act));
            job->hurried = rl_load_32(&t->want_all) != 0 || act_of(job) == RL_ACT_DRAINING;
            rl_drain_begin(t, pool);
            job->in_pass = true;
        }
    }
    if (!job->out && job->in_pass) {
        job->out = rl_drain_next(t, pool, most, &job->span);
        if (!job->out) {
            if (job->postponed)
                rl_store_32(&t->want_all, 1); /* whoever waits for this pass waits for the next */
            else
                rl_drain_end(t);
            job->in_pass = job->postponed = false;
        }
    }
    if (job->out) {
        job->used_ns = now_ns;
        job->gate_ns = now_ns;
        watch_gate(job, now_ns);
        job->requested = policy_drain_gated(job->fs->gate, (enum file_kind)(job->fs->kind - 1));
        if (job->requested)
            rl_gate_request(&job->inode->gate, &job->ticket);
    }
}

/* May this stretch go to the kernel now? */
static bool through_gate(struct job *job, uint64_t now_ns)
{
    struct rl_gate *gate = &job->inode->gate;
    uint64_t most_ns = job->urgent || job->hurried ? URGENT_GATE_NS : GATE_LIMIT_NS;

    if (!job->requested)
        return true;
    if (rl_gate_try_requested(gate, &job->ticket)) {
        job->inside = true;
        job->requested = false;
        return true;
    }
    watch_gate(job, now_ns);
    /* A gate that stood still through a whole wait is held by somebody who will not leave it soon
     * (a handler inside a piece, waiting for us) or ever (a jump out of one): once is enough. */
    if (now_ns - job->gate_ns < most_ns && now_ns - job->gate_moved_ns < most_ns)
        return false;
    rl_gate_withdraw(gate, job->ticket);
    if (now_ns - job->gate_moved_ns > RL_GATE_PATIENCE_NS) {
        rl_gate_renew(gate);
        job->gate_moved_ns = now_ns;
    }
    job->gate_seq = rl_load_32(&gate->seq); /* our own doing is no movement */
    job->requested = false;
    return true;
}

static void look_for_orders(void)
{
    uint64_t dev, ino;

    for (int i = 0; i < WORKER_ASKS; i++) {
        uint64_t ask = rl_load_64(&worker.ask[i]);

        if (ask != 0) {
            answer(ask);
            rl_store_64(&worker.ask[i], 0);
        }
    }
    if (family_asked(&dev, &ino)) {
        struct rl_inode *inode = file_by_identity(dev, ino);

        if (inode != NULL)
            rl_table_close(&inode->table, rl_load_32(&inode->table.act));
        if (inode == NULL || (rl_load_32(&inode->table.act) & RL_ACT_STATE) == RL_ACT_OFF)
            family_leave(dev, ino);
    }
}

/* For who looks from outside (rlshim stat). */
static void show_queue(void)
{
    uint64_t ranges = rl_load_32(&proc.arena->pool.used), since_ns = 0;

    for (int i = 0; i < WORKER_FILES; i++) {
        const struct rl_table *t = jobs[i].inode != NULL ? &jobs[i].inode->table : NULL;
        uint64_t first_ns = t != NULL ? rl_load_64(&t->first_ns) : 0;

        for (int k = 0; t != NULL && k < RL_TAILS; k++)
            ranges += rl_load_64(&t->tail[k]) != 0;
        if (first_ns != 0 && (since_ns == 0 || first_ns < since_ns))
            since_ns = first_ns;
    }
    stat_gauge(GAUGE_punch_ranges, ranges);
    stat_gauge(GAUGE_punch_since_ns, since_ns);
}

/* One round over all files. Returns true if something was applied; *wake_ns: when to look again. */
static bool work(uint64_t now_ns, uint64_t *wake_ns, struct rl_gate **gate)
{
    struct job *ready[RING_BATCH];
    bool quiet = nothing_may_be_on();
    int n = 0;

    *wake_ns = 0;
    *gate = NULL;
    for (int i = 0; i < WORKER_FILES; i++) {
        struct job *job = &jobs[i];
        uint64_t due_ns;

        if (job->inode == NULL)
            continue;
        if (under_way(job))
            job->used_ns = now_ns;
        if (quiet || (now_ns - job->used_ns > WORKER_IDLE_NS && rl_table_empty(&job->inode->table)))
            rl_table_close(&job->inode->table, rl_load_32(&job->inode->table.act));
        arm(job, now_ns);
        if (!job->out)
            fetch(job, now_ns);
        if (job->out && n < RING_BATCH && through_gate(job, now_ns))
            ready[n++] = job;
        else if (job->out)
            *gate = &job->inode->gate;
        if (!job->out && !job->in_pass && !under_way(job) && rl_drain_close(&job->inode->table)) {
            turn_off(i);
            continue;
        }
        due_ns = job->retry_ns > now_ns ? job->retry_ns : pass_due_ns(job);
        if (job->since != 0 && (due_ns == 0 || job->look_ns < due_ns))
            due_ns = job->look_ns;
        if (due_ns != 0 && (*wake_ns == 0 || due_ns < *wake_ns))
            *wake_ns = due_ns;
    }
    if (n > 0)
        worker_apply(ready, n);
    show_queue();
    control_quiet();
    return n > 0;
}

static bool has_files(void)
{
    for (int i = 0; i < WORKER_FILES; i++)
        if (jobs[i].inode != NULL)
            return true;
    return false;
}

static bool has_asks(void)
{
    for (int i = 0; i < WORKER_ASKS; i++)
        if (rl_load_64(&worker.ask[i]) != 0)
            return true;
    return false;
}

static bool has_urgent_work(uint64_t now_ns)
{
    for (int i = 0; i < WORKER_FILES; i++) {
        uint64_t due_ns;

        if (jobs[i].inode == NULL)
            continue;
        if (has_wants(&jobs[i].inode->table) && jobs[i].retry_ns <= now_ns)
            return true;
        due_ns = jobs[i].retry_ns > now_ns ? jobs[i].retry_ns : pass_due_ns(&jobs[i]);
        if (due_ns != 0 && due_ns <= now_ns)
            return true;
    }
    return has_asks();
}

static void sleep_until(uint64_t wake_ns)
{
    uint32_t seq = rl_load_32(&worker.seq);
    uint64_t now_ns = rl_now_ns();
    uint64_t most_ns = SLEEP_MAX_NS;

    rl_store_32(&worker.asleep, 1);
    rl_fence(); /* pairs with the one in worker_wake */
    if (wake_ns != 0 && wake_ns <= now_ns)
        most_ns = 0;
    else if (wake_ns != 0 && wake_ns - now_ns < most_ns)
        most_ns = wake_ns - now_ns;
    if (most_ns != 0 && !has_urgent_work(now_ns))
        rl_futex_wait(&worker.seq, seq, most_ns);
    rl_store_32(&worker.asleep, 0);
}

/* True if the worker may go: nothing on, nothing asked, or told to. */
static bool time_to_go(uint64_t idle_since_ns)
{
    uint32_t runs = WORKER_RUNS;

    if (has_files())
        return false;
    if (rl_load_32(&worker.leave) == 0 && rl_now_ns() - idle_since_ns < WORKER_IDLE_NS)
        return false;
    rl_cas_32(&worker.state, &runs, WORKER_LEAVES);
    rl_fence(); /* pairs with worker_start and worker_ask: a late question finds us, or is found */
    if (rl_load_32(&worker.leave) == 0 && has_asks()) {
        rl_store_32(&worker.state, WORKER_RUNS);
        return false;
    }
    return true;
}

int worker_main(void *arg)
{
    uint64_t idle_since_ns = rl_now_ns();

    (void)arg;
    rl_raw(SYS_prctl, PR_SET_NAME, "rlshim-worker");
    /* From 5.11 on the kernel leaves out what is to be closed when it copies the table: no file of
     * the program is ever referenced by the copy. */
    if (rl_raw(SYS_close_range, 0, ~0u, CLOSE_RANGE_UNSHARE) != 0) {
        pidfd = -1;
        rl_store_32(&proc.foreign, 1); /* no table of our own: never touch the program's */
    } else {
        pidfd = (int)rl_raw(SYS_pidfd_open, proc.pid, 0);
        log_worker((uint32_t)rl_raw(SYS_gettid));
        worker_apply_starts();
    }
    do {
        struct rl_gate *gate;
        uint64_t wake_ns;

        look_for_orders();
        if (work(rl_now_ns(), &wake_ns, &gate)) {
            idle_since_ns = rl_now_ns();
            continue;
        }
        if (has_files())
            idle_since_ns = rl_now_ns();
        if (gate != NULL)
            rl_futex_wait(&gate->seq, rl_load_32(&gate->seq), GATE_POLL_NS);
        else
            sleep_until(wake_ns);
    } while (!time_to_go(idle_since_ns));
    /* Whoever asked between the last look and now is answered by nobody: let them ask again. */
    for (int i = 0; i < WORKER_ASKS; i++) {
        uint64_t ask = rl_swap_64(&worker.ask[i], 0);

        if (ask != 0)
            rl_store_32(&file_state(&proc.arena->inodes.inode[(ask >> 32) - 1])->asked, 0);
    }
    keeper_leave();
    log_worker(0);
    worker_apply_ends();
    rl_raw(SYS_close, pidfd);
    return 0;
}
