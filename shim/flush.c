/* SPDX-License-Identifier: MIT */
/* flush: see flush.h. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/single_threaded.h>

#include "flush.h"
#include "nested.h"
#include "policy_flush.h"
#include "real.h"
#include "stats.h"

/* Behind the last byte that any file may have: no page there is ever under way, so nothing is
 * waited for. 0 would do as well for a log, but not for a file whose head is rewritten. */
#define NOWHERE (INT64_MAX - 1)

/* The flight that this thread leads or waits in, and where on its stack. A handler that syncs the
 * same file would wait for the very thread it interrupted. An address below the caller's was jumped
 * out of. */
static __thread struct rl_flight *mine;
static __thread const void *mine_at;
static __thread struct rl_flight_seat mine_led; /* round 0: does not lead */

struct sync {
    int fd;
    enum flush_kind kind;
    struct rl_inode *inode;
    uint32_t inode_gen, fd_gen;
    uint32_t pid; /* 0: did not get as far as the flight */
    struct rl_flight_seat seat;
    bool leads;
    enum rl_flight_outcome outcome;
    uint32_t said;
};

#define SAID(error, fd) ((uint32_t)(error) << 20 | ((uint32_t)(fd)&0xfffff))
#define SAID_ERROR(s)   ((int)((s) >> 20))
#define SAID_FD(s)      ((int)((s)&0xfffff))

static int real_sync(int fd, enum flush_kind kind)
{
    return kind == FLUSH_ALL ? real.fsync(fd) : real.fdatasync(fd);
}

static void counted_end(struct file_state **fs)
{
    rl_add_32(&(*fs)->flush.syncing, (uint32_t)-1);
}

/* Counted by file, also when the thread is cancelled inside. */
static int counted_sync(const struct sync *s, enum flush_kind kind)
{
    struct file_state *fs __attribute__((cleanup(counted_end))) = file_state(s->inode);

    stat_peak(STAT_flush_running_max, rl_add_32(&fs->flush.syncing, 1) + 1);
    return real_sync(s->fd, kind);
}

/* Neither the entry nor the descriptor has become another file's since. */
static bool same_as_before(const struct sync *s)
{
    return rl_load_32(&s->inode->gen) == s->inode_gen && file_generation(s->fd) == s->fd_gen;
}

/* The kernel is asked too: descriptors may be closed and reused behind our back. */
static bool is_that_file(const struct sync *s)
{
    return file_verify(s->fd, s->inode) && same_as_before(s);
}

/* A handler may have forked: the child's flights are new ones. */
static void leave(struct sync *s)
{
    if (s->pid == 0)
        return;
    if (s->leads && s->pid == proc.pid)
        rl_flight_end(&s->inode->flight, &s->seat, s->outcome, s->said);
    mine = NULL;
    mine_led.round = 0;
}

/* Whoever waits for this round is served only if the descriptor is the file they mean. */
static int lead(struct sync *s)
{
    bool others = s->seat.waiting != 0;
    int r;

    s->leads = true;
    s->outcome = RL_FLIGHT_LOST; /* until we are back: cancelled inside, it serves nobody */
    mine_led = s->seat;
    if (others && !is_that_file(s))
        return counted_sync(s, s->kind);
    r = counted_sync(s, s->seat.full ? FLUSH_ALL : s->kind);
    if (!others)
        return r;
    if (r == 0 && is_that_file(s)) {
        s->outcome = RL_FLIGHT_OK;
        stat_add(STAT_flush_led, 1);
    } else if (r != 0 && policy_flush_is_about_data(errno) && is_that_file(s)) {
        s->outcome = RL_FLIGHT_BROKE;
        s->said = SAID(errno, s->fd);
    }
    return r;
}

static int own(const struct sync *s)
{
    stat_add(STAT_flush_own, 1);
    return counted_sync(s, s->kind);
}

static int told(int error)
{
    stat_add(STAT_flush_errors, 1);
    errno = error;
    return -1;
}

static int served(const struct sync *s)
{
    long r;

    pthread_testcancel(); /* before an error is consumed that nobody would get */
    if (!same_as_before(s))
        return own(s);
    r = rl_raw(SYS_sync_file_range, s->fd, NOWHERE, 1L, SYNC_FILE_RANGE_WAIT_BEFORE);
    if (r < 0)
        return policy_flush_is_about_data((int)-r) ? told((int)-r) : own(s);
    stat_add(STAT_flush_shared, 1);
    return 0;
}

static int share(struct sync *s)
{
    enum rl_flight_role role = RL_FLIGHT_LEAD;

    if (!rl_flight_lead(&s->inode->flight, s->kind == FLUSH_ALL, &s->seat)) {
        pthread_testcancel();
        if (!is_that_file(s))
            return own(s);
        role = rl_flight_join(&s->inode->flight, s->kind == FLUSH_ALL, &s->seat);
        stat_add(STAT_flush_wait_ns, s->seat.waited_ns);
    }
    switch (role) {
    case RL_FLIGHT_LEAD:
        return lead(s);
    case RL_FLIGHT_SERVED:
        return served(s);
    case RL_FLIGHT_FAILED:
        if (same_as_before(s) && policy_flush_told(SAID_FD(s->seat.said), s->fd & 0xfffff))
            return told(SAID_ERROR(s->seat.said));
        return own(s);
    default:
        return own(s);
    }
}

/* Is the thread inside a shared sync already? One that was jumped out of is ended first: else its
 * next call would wait for itself until somebody's patience is over. */
static bool is_inside(const void *here)
{
    if (mine == NULL)
        return false;
    if (nested_in(mine_at, here))
        return true;
    if (mine_led.round != 0)
        rl_flight_end(mine, &mine_led, RL_FLIGHT_LOST, 0);
    mine = NULL;
    mine_led.round = 0;
    return false;
}

/* How many callers there were at one time lately, `here` being there now. Racing updates may lose
 * one. */
static uint32_t crowd(struct flushes *f, uint32_t here)
{
    uint32_t most = rl_load_32(&f->crowd[0]), before = rl_load_32(&f->crowd[1]);

    if (here > most) {
        rl_store_32(&f->crowd[0], here);
        most = here;
    }
    return most > before ? most : before;
}

/* The thread that ends a stretch: `calls` of one way are over, or enough of a trial. */
static void end_stretch(struct flushes *f, bool shared, uint32_t calls)
{
    uint64_t mean_ns = rl_load_64(&f->sum_ns[shared]) / calls;
    uint32_t most = rl_load_32(&f->crowd[0]);

    if (calls < FLUSH_STRETCH && !policy_flush_gives_up(&f->choice, shared, mean_ns))
        return;
    rl_store_32(&f->way, policy_flush_learn(&f->choice, shared, mean_ns, most));
    rl_store_32(&f->crowd[1], most);
    rl_store_32(&f->crowd[0], 1);
    for (int way = 0; way < 2; way++) {
        rl_store_64(&f->sum_ns[way], 0);
        rl_store_32(&f->calls[way], 0);
    }
}

/* A call beside others is over. What is counted while a stretch is ended may be lost. */
static void learn(struct flushes *f, bool shared, uint64_t took_ns)
{
    uint32_t calls, idle = 0;

    rl_add_64(&f->sum_ns[shared], took_ns);
    calls = rl_add_32(&f->calls[shared], 1) + 1;
    if ((calls == FLUSH_STRETCH || calls == FLUSH_GLIMPSE) && rl_cas_32(&f->learning, &idle, 1)) {
        end_stretch(f, shared, calls);
        rl_store_32(&f->learning, 0);
    }
}

/* A caller that was jumped out of stays counted: then the file is taken for more crowded than it
 * is, which costs time and nothing else. */
static void crowd_leave(struct file_state **fs)
{
    if (*fs != NULL)
        rl_add_32(&(*fs)->flush.callers, (uint32_t)-1);
}

int flush_file(int fd, enum flush_kind kind)
{
    struct sync s __attribute__((cleanup(leave))) = {.fd = fd, .kind = kind};
    struct file_state *fs __attribute__((cleanup(crowd_leave))) = NULL;
    uint64_t began_ns = 0;
    uint32_t here;
    bool shares;
    int r;

    if (__libc_single_threaded || !state_works())
        return real_sync(fd, kind);
    s.fd_gen = file_generation(fd);
    s.inode = file_inode(fd, true);
    if (s.inode == NULL)
        return real_sync(fd, kind);
    s.inode_gen = rl_load_32(&s.inode->gen);
    fs = file_state(s.inode);
    here = rl_add_32(&fs->flush.callers, 1) + 1;
    shares = policy_flush_shares(&(struct flush_facts){
        .share = fs->fsync_mode == CFG_FSYNC_SHARE,
        .inside = is_inside(&s),
        .kind = (enum file_kind)(fs->kind - 1),
        .way = (enum flush_way)rl_load_32(&fs->flush.way),
        .crowd = crowd(&fs->flush, here),
    });
    if (here > 1 && fs->fsync_mode == CFG_FSYNC_SHARE)
        began_ns = rl_now_ns();
    if (shares) {
        s.pid = proc.pid;
        mine = &s.inode->flight;
        mine_at = &s;
        r = share(&s);
    } else {
        r = real_sync(fd, kind);
    }
    if (began_ns != 0 && r == 0)
        learn(&fs->flush, shares, rl_now_ns() - began_ns);
    return r;
}
