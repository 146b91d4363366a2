/* SPDX-License-Identifier: MIT */
/*
 * evict_loop: our two threads. No libc beyond mem* and str*, no thread-local variable, no lock; see
 * worker.h for why.
 *
 * The opener takes a descriptor table of its own, and then starts the closer, which shares it. It
 * answers questions, takes back references that their callers forgot, and leaves last.
 */
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/quota.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "evict_impl.h"
#include "policy_evict.h"

#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443 /* Linux 5.14; the same on every processor */
#endif
#define QUOTA_BLOCK_BYTES 1024u
#define CPU_WORDS         (8192 / (8 * sizeof(unsigned long))) /* the most that Linux can have */

#define IDLE_NS  200000000u
#define TICK_NS  100000000u
#define PAUSE_NS 20000000u /* pauses are taken in such pieces: somebody may be in a hurry */

static int pidfd;

/* --- the closer --- */

static struct evict_held *oldest(void)
{
    struct evict_held *first = NULL;

    for (int i = 0; i < EVICT_HELD; i++) {
        struct evict_held *h = &evict.held[i];

        if (rl_load_32(&h->state) == HELD_READY &&
            (first == NULL || (int32_t)(h->number - first->number) < 0))
            first = h;
    }
    return first;
}

static void pause_for(uint64_t ns)
{
    uint64_t end_ns = rl_now_ns() + ns;
    uint64_t now_ns;

    while (rl_load_32(&evict.hurry) == 0 && (now_ns = rl_now_ns()) < end_ns &&
           now_ns >= rl_load_64(&evict.progress->hurry_ns)) {
        struct timespec ts = {.tv_nsec = end_ns - now_ns < PAUSE_NS ? (long)(end_ns - now_ns)
                                                                    : (long)PAUSE_NS};

        rl_raw(SYS_nanosleep, &ts, NULL);
    }
}

/* It was made by whoever deleted first, which may be a real-time thread on a processor of its own:
 * freeing for a second with its priority, there, would be worse than in the call. */
static void be_ordinary(void)
{
    const struct sched_param none = {0};
    long policy = rl_raw(SYS_sched_getscheduler, 0) & ~(long)SCHED_RESET_ON_FORK;
    unsigned long cpus[CPU_WORDS];
    long bytes =
        rl_raw(SYS_sched_getaffinity, proc.pid, sizeof cpus, cpus); /* the first thread's */

    if (policy == SCHED_FIFO || policy == SCHED_RR)
        rl_raw(SYS_sched_setscheduler, 0, SCHED_OTHER, &none);
    if (bytes > 0)
        rl_raw(SYS_sched_setaffinity, 0, bytes, cpus);
}

static int close_loop(void *arg)
{
    (void)arg;
    be_ordinary();
    rl_raw(SYS_prctl, PR_SET_NAME, "rlshim-free");
    for (;;) {
        uint32_t posted = rl_load_32(&evict.posted);
        struct evict_held *h = oldest();
        uint64_t bytes, since_ns, began_ns;
        bool gone;

        if (h == NULL) {
            rl_store_64(&evict.oldest_ns, 0);
            if (rl_load_32(&evict.closer_leaves) != 0)
                return 0;
            rl_futex_wait(&evict.posted, posted, TICK_NS);
            continue;
        }
        bytes = h->bytes;
        since_ns = h->since_ns;
        gone = h->gone;
        rl_store_64(&evict.oldest_ns, since_ns);
        began_ns = rl_now_ns();
        rl_store_64(&evict.closing_ns, began_ns);
        rl_raw(SYS_close, h->fd); /* the freeing is over when it returns */
        rl_store_64(&evict.closing_ns, 0);
        if (gone)
            evict_cost_seen((uint32_t)(h->dev >> 32), (uint32_t)h->dev, bytes,
                            rl_now_ns() - began_ns);
        rl_store_32(&h->state, HELD_FREE);
        stat_peak(STAT_evict_hold_max_ns, rl_now_ns() - since_ns);
        evict_uncount(bytes);
        rl_add_32(&evict.progress->freed, 1);
        evict_freed_wake(evict.progress);
        pause_for(
            policy_evict_pause_ns(bytes, rl_now_ns() - began_ns, proc.settings.evict_rate_bytes));
    }
}

/* --- the opener --- */

static bool same(int fd, const struct evict_ask *a)
{
    struct statx stx;

    return rl_raw(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_INO, &stx) == 0 &&
           ((uint64_t)stx.stx_dev_major << 32 | stx.stx_dev_minor) == a->dev &&
           stx.stx_ino == a->ino;
}

static void least(uint64_t *left, uint64_t limit, uint64_t used)
{
    uint64_t rest = limit > used ? limit - used : 0;

    if (limit != 0 && rest < *left)
        *left = rest;
}

/* What the file's owner and group may still use, where quota is on and may be asked for. Not of a
 * project: statfs knows that one, in its directories. */
static void quota_left(int fd, const struct statx *stx, uint64_t *bytes, uint64_t *files)
{
    const uint32_t ids[] = {[USRQUOTA] = stx->stx_uid, [GRPQUOTA] = stx->stx_gid};

    for (int type = USRQUOTA; type <= GRPQUOTA; type++) {
        struct if_dqblk q = {0};

        if (rl_raw(SYS_quotactl_fd, fd, QCMD(Q_GETQUOTA, type), ids[type], &q) != 0)
            continue;
        least(bytes, q.dqb_bhardlimit * QUOTA_BLOCK_BYTES, q.dqb_curspace);
        least(bytes, q.dqb_bsoftlimit * QUOTA_BLOCK_BYTES, q.dqb_curspace);
        least(files, q.dqb_ihardlimit, q.dqb_curinodes);
        least(files, q.dqb_isoftlimit, q.dqb_curinodes);
    }
}

/* Room, and a file system that was tested. */
static bool may_be_held(int fd, const struct evict_ask *a)
{
    const struct settings *s = &proc.settings;
    enum file_kind kind = fs_kind_of(fd);
    uint64_t oldest_ns = rl_load_64(&evict.oldest_ns);
    uint64_t most = s->evict_files_max < EVICT_HELD ? s->evict_files_max : EVICT_HELD;
    uint64_t free_bytes, free_files;
    struct statfs fs;
    struct statx stx;

    fs_kind_learn((uint32_t)(a->dev >> 32), (uint32_t)a->dev, kind);
    if (kind == FILE_KIND_NONE || kind == FILE_KIND_TMPFS || rl_raw(SYS_fstatfs, fd, &fs) != 0 ||
        rl_raw(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_UID | STATX_GID, &stx) != 0)
        return false;
    free_bytes = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    free_files = fs.f_files != 0 ? (uint64_t)fs.f_ffree : UINT64_MAX;
    quota_left(fd, &stx, &free_bytes, &free_files);
    if (policy_evict_fits(
            &(struct evict_room){
                .files = rl_load_32(&evict.files),
                .files_max = (uint32_t)most,
                .bytes = rl_load_64(&evict.bytes),
                .bytes_max = s->evict_bytes_max == CFG_AUTO ? 0 : s->evict_bytes_max,
                .free_bytes = free_bytes,
                .free_files = free_files,
                .oldest_ns = oldest_ns != 0 ? rl_now_ns() - oldest_ns : 0,
                .hold_max_ns = a->hold_max_ns,
                .rate = s->evict_rate_bytes,
            },
            a->bytes))
        return true;
    stat_add(STAT_evict_over_budget, 1);
    return false;
}

/* The reference, or -1. */
static int reference(const struct evict_ask *a)
{
    int flags = O_PATH | O_CLOEXEC | (a->follow ? 0 : O_NOFOLLOW);
    int dir = a->dirfd;
    int fd;

    if (dir != AT_FDCWD && (dir = (int)rl_raw(SYS_pidfd_getfd, pidfd, dir, 0)) < 0)
        return -1;
    fd = (int)rl_raw(SYS_openat, dir, a->path, flags, 0);
    if (dir != AT_FDCWD)
        rl_raw(SYS_close, dir);
    if (fd >= 0 && same(fd, a))
        return fd;
    if (fd >= 0)
        rl_raw(SYS_close, fd);
    return -1;
}

static void answer(struct evict_ask *a)
{
    uint32_t asked = ASK_ASKED;
    int fd = -1;

    if (!rl_cas_32(&a->state, &asked, ASK_OPENING))
        return;
    if (rl_load_32(&evict.leave) == 0 && rl_load_32(&proc.ending) == 0) {
        fd = reference(a);
        if (fd < 0) {
            stat_add(STAT_evict_no_reference, 1);
        } else if (!may_be_held(fd, a)) {
            rl_raw(SYS_close, fd); /* the name is there still: frees nothing */
            fd = -1;
        }
    }
    if (fd >= 0)
        evict_count(a->bytes);
    a->fd = fd;
    a->ready_ns = rl_now_ns();
    rl_store_32(&a->state, fd >= 0 ? ASK_READY : ASK_REFUSED);
    rl_futex_wake(&a->state, INT32_MAX);
}

/* A caller that was jumped out of or cancelled comes back never; and one that runs in a handler may
 * be waiting for us to leave, above a call that it interrupted. */
static void take_back(struct evict_ask *a)
{
    uint32_t ready = ASK_READY;

    if ((rl_now_ns() - a->ready_ns < a->hold_max_ns && rl_load_32(&evict.leave) == 0) ||
        !rl_cas_32(&a->state, &ready, ASK_FILLING))
        return;
    rl_raw(SYS_close, a->fd);
    evict_uncount(a->bytes);
    rl_store_32(&a->state, ASK_FREE);
}

/* True if there is something that the opener is needed for. A question that is being filled in or
 * whose answer is being read is not: its owner may be below a handler that waits for us to leave.
 */
static bool look_round(void)
{
    bool any = false;

    for (int i = 0; i < EVICT_ASKS; i++) {
        struct evict_ask *a = &evict.ask[i];
        uint32_t state = rl_load_32(&a->state);

        if (state == ASK_ASKED)
            answer(a);
        if (rl_load_32(&a->state) == ASK_READY)
            take_back(a);
        any = any || state == ASK_ASKED || rl_load_32(&a->state) == ASK_READY;
    }
    return any || rl_load_32(&evict.files) != 0;
}

int evict_open_loop(void *arg)
{
    uint64_t used_ns = rl_now_ns();
    bool ready;

    (void)arg;
    rl_raw(SYS_prctl, PR_SET_NAME, "rlshim-evict");
    pidfd = -1;
    rl_store_32(&evict.closer_leaves, 0);
    ready = rl_raw(SYS_close_range, 0, ~0u, CLOSE_RANGE_UNSHARE) == 0 &&
            (pidfd = (int)rl_raw(SYS_pidfd_open, proc.pid, 0)) >= 0 &&
            raw_thread_start(&evict.closer, close_loop);
    if (!ready)
        rl_add_32(&evict.leave, 1); /* for good: nothing can be held here */
    for (;;) {
        uint32_t asked = rl_load_32(&evict.asked);
        bool leave;

        if (look_round())
            used_ns = rl_now_ns();
        leave = rl_load_32(&evict.leave) != 0 || rl_load_32(&proc.ending) != 0;
        if (rl_load_32(&evict.files) == 0 && (leave || rl_now_ns() - used_ns > IDLE_NS)) {
            rl_store_32(&evict.runs, EVICT_LEAVES);
            rl_fence(); /* pairs with the one in ask: we see the question, or it sees us leave */
            if (!look_round())
                break;
            rl_store_32(&evict.runs, EVICT_RUNS);
        }
        rl_futex_wait(&evict.asked, asked, leave ? TICK_NS / 10 : TICK_NS);
    }
    rl_store_32(&evict.closer_leaves, 1);
    if (ready) {
        rl_add_32(&evict.posted, 1);
        rl_futex_wake(&evict.posted, 1);
        raw_thread_gone(&evict.closer, NULL);
    }
    rl_raw(SYS_close, pidfd);
    return 0;
}
