/* SPDX-License-Identifier: MIT */
/*
 * One history: the file is made and opened, the threads perform the plan, then everything is quiet
 * and the file must be the same from inside, from outside, and by the model. See stage.h.
 */
#include "auditor.h"
#include "pattern.h"
#include "stage.h"
#include "../../include/rlshim/control.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LATE_MS = 15, WARM_US = 1000, WARM_TRIES = 100 };
static const struct timespec SET_TIME = {1234567890, 987654321};

struct player {
    struct actor actor;
    const struct step *step;
    unsigned steps;
    pthread_barrier_t *start;
    pthread_t thread;
    _Atomic int *done;
};

struct show {
    struct stage *st;
    struct subject subject;
    struct player player[PLAN_THREADS];
    struct actor main;
    pthread_barrier_t start;
    _Atomic int done; /* threads that have performed all their steps */
    struct finding *f;
    bool bad;
};

static bool wrong(struct show *sh, const char *rule, const char *why, int err)
{
    if (!sh->bad) {
        sh->f->rule = rule;
        sh->f->off = sh->f->len = 0;
        sh->f->culprit = NULL;
        snprintf(sh->f->why, sizeof(sh->f->why), "%.150s%s%s", why, err ? ": " : "",
                 err ? strerror(err) : "");
    }
    sh->bad = true;
    return false;
}

static bool plan_has(const struct plan *p, unsigned call)
{
    for (int t = 0; t < p->threads; t++)
        for (unsigned i = 0; i < p->steps[t]; i++)
            if (p->step[t][i].call == call)
                return true;
    return false;
}

static int direct_flag(const struct plan *p, int thread, int slot)
{
    return p->direct[thread] & (1 << slot) ? O_DIRECT : 0;
}

static bool make_file(struct show *sh)
{
    struct subject *f = &sh->subject;
    const struct plan *p = f->plan;
    int direct = p->mode == MODE_DIRECT ? O_DIRECT : 0;

    snprintf(f->path, sizeof(f->path), "%s/model-%d-%llu", sh->st->dir, (int)getpid(),
             (unsigned long long)sh->st->histories);
    snprintf(f->stream_path, sizeof(f->stream_path), "%s/model-stream-%d", sh->st->dir,
             (int)getpid());
    if (p->kind == FILE_TMPFILE)
        f->base_fd = open(sh->st->dir, O_TMPFILE | O_RDWR | direct, 0600);
    else
        f->base_fd = open(f->path, O_CREAT | O_EXCL | O_RDWR | direct, 0600);
    if (f->base_fd < 0)
        return wrong(sh, "the file can be made", f->path, errno);
    sh->main.fd[0] = sh->main.fd[1] = f->base_fd;
    for (int i = 0; i < p->inits; i++)
        perform(&sh->main, &p->init[i], 0);
    if (p->sync_init)
        fdatasync(f->base_fd);
    if (p->kind == FILE_UNLINKED && !p->unlink_late)
        unlink(f->path);
    return true;
}

static bool open_slots(struct show *sh)
{
    struct subject *f = &sh->subject;
    const struct plan *p = f->plan;

    for (int t = 0; t < p->threads; t++) {
        struct actor *a = &sh->player[t].actor;

        for (int s = 0; s < PLAN_SLOTS; s++) {
            int flags = O_RDWR | direct_flag(p, t, s) | (s == 2 ? O_APPEND : 0);

            a->direct[s] = flags & O_DIRECT;
            /* Half of the second slots share the description of the first. */
            if (s == 1 && a->direct[0] == a->direct[1] && (p->seed + (unsigned)t) % 2)
                a->fd[s] = dup(a->fd[0]);
            else if (s < 2 || plan_has(p, CALL_APPEND))
                a->fd[s] = subject_open(f, f->base_fd, (p->seed + (unsigned)t) % 3, flags);
            else
                continue;
            if (a->fd[s] < 0)
                return wrong(sh, "the file can be opened again", f->path, errno);
        }
    }
    if (plan_has(p, CALL_STREAM)) {
        f->stream_fd = open(f->stream_path, O_CREAT | O_EXCL | O_RDWR | direct_flag(p, 0, 0), 0600);
        unlink(f->stream_path);
        if (f->stream_fd < 0)
            return wrong(sh, "the file can be made", f->stream_path, errno);
    }
    if (p->signals && !signals_start(f))
        return wrong(sh, "the file can be opened again", f->path, errno);
    if (plan_has(p, CALL_SHARED)) {
        f->shared_fd = subject_open(f, f->base_fd, false, O_RDWR | direct_flag(p, 0, 0));
        if (f->shared_fd < 0)
            return wrong(sh, "the file can be opened again", f->path, errno);
    }
    if (p->kind == FILE_UNLINKED && p->unlink_late)
        unlink(f->path);
    if (p->drop_base) {
        close(f->base_fd);
        f->base_fd = -1;
    }
    return true;
}

/* The library applies the first punch of a file at once and finds out meanwhile whether later ones
 * can be put off, which on a busy machine takes longer than a whole history: until it has, or has
 * said no. */
static bool warm_up(struct show *sh)
{
    const struct plan *p = sh->subject.plan;
    struct step s = {.call = CALL_PUNCH, .off = p->base[0], .len = BLOCK};
    uint64_t deferred = rl_counter("punch_deferred");
    uint64_t refused = rl_counter("evidence_refused");

    sh->main.fd[0] = sh->main.fd[1] = sh->player[0].actor.fd[0];
    for (int i = 0; p->warm && i < WARM_TRIES; i++) {
        perform(&sh->main, &s, 0);
        if (i > 0 && (!rl_active() || rl_counter("punch_deferred") != deferred ||
                      rl_counter("evidence_refused") != refused))
            break;
        usleep(WARM_US);
    }
    return true;
}

static void *play(void *arg)
{
    struct player *pl = arg;

    signals_join(pl->actor.subject, pl->actor.lane - 1);
    pthread_barrier_wait(pl->start);
    for (unsigned i = 0; i < pl->steps;)
        i += perform(&pl->actor, &pl->step[i], pl->steps - i - 1);
    perform_reap(&pl->actor);
    atomic_fetch_add(pl->done, 1);
    return NULL;
}

static bool play_all(struct show *sh)
{
    const struct plan *p = sh->subject.plan;

    pthread_barrier_init(&sh->start, NULL, p->threads);
    for (int t = 0; t < p->threads; t++) {
        struct player *pl = &sh->player[t];
        int err = pthread_create(&pl->thread, NULL, play, pl);

        if (err) {
            fprintf(stderr, "model: cannot start a thread: %s\n", strerror(err));
            _exit(1); /* those started wait at the barrier for ever */
        }
    }
    for (unsigned k = 0; p->signals && atomic_load(&sh->done) < p->threads; k++) {
        usleep(300);
        signals_tick(sh->player[k % p->threads].thread);
    }
    for (int t = 0; t < p->threads; t++)
        pthread_join(sh->player[t].thread, NULL);
    pthread_barrier_destroy(&sh->start);
    return true;
}

/* The islands in pieces of at most IO_MAX, and the bytes right behind each. */
static int quiet_ranges(const struct plan *p, int64_t *off, int64_t *len)
{
    int n = 0;

    for (int i = 0; i < p->islands; i++) {
        int64_t at = p->base[i], end = at + p->island_len + BLOCK;

        while (at < end && n < PLAN_ISLANDS * 4) {
            off[n] = at;
            len[n] = end - at < IO_MAX ? end - at : IO_MAX;
            at += len[n++];
        }
    }
    return n;
}

static void look_inside(struct show *sh)
{
    int64_t off[PLAN_ISLANDS * 4], len[PLAN_ISLANDS * 4];
    int n = quiet_ranges(sh->subject.plan, off, len);
    struct step s = {.call = CALL_STAT, .arg = 2};

    for (int i = 0; i < n; i++) {
        struct step r = {.call = CALL_PREAD, .off = off[i], .len = len[i]};

        perform(&sh->main, &r, 0);
    }
    perform(&sh->main, &s, 0);
}

/* Quiet now: what is called a hole must read as zeros, from where SEEK_HOLE says to where
 * SEEK_DATA says. Asking settles. */
static bool holes_are_zero(struct show *sh)
{
    const struct plan *p = sh->subject.plan;
    int fd = sh->main.fd[0];

    for (int i = 0; i < p->islands; i++) {
        int64_t at = p->base[i], end = at + p->island_len;

        while (at < end) {
            int64_t hole = lseek(fd, at, SEEK_HOLE);
            int64_t data = hole < 0 ? -1 : lseek(fd, hole, SEEK_DATA);

            if (hole < 0 || hole >= end)
                break;
            if (data < 0 || data > end)
                data = end;
            int64_t from = hole / BLOCK * BLOCK, len = data - from < IO_MAX ? data - from : IO_MAX;
            int64_t got =
                pread(fd, sh->main.rbuf, (size_t)((len + BLOCK - 1) / BLOCK * BLOCK), from);

            for (int64_t k = hole - from; k < got && k < len; k++)
                if (sh->main.rbuf[k])
                    return wrong(sh, "a hole reads as zeros", "SEEK_HOLE named a place with data",
                                 0);
            at = data;
        }
    }
    return true;
}

static bool settle(struct show *sh)
{
    const struct plan *p = sh->subject.plan;
    int fd = sh->main.fd[0], ret = 0;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct timespec times[2] = {SET_TIME, SET_TIME};
    void *m;

    switch (p->settle) {
    case SETTLE_FSYNC:
        ret = fsync(fd);
        break;
    case SETTLE_FDATASYNC:
        ret = fdatasync(fd);
        break;
    case SETTLE_FLOCK:
        ret = flock(fd, LOCK_EX) || flock(fd, LOCK_UN);
        break;
    case SETTLE_FCNTL:
        ret = fcntl(fd, F_SETLK, &lock);
        lock.l_type = F_UNLCK;
        ret = ret || fcntl(fd, F_SETLK, &lock);
        break;
    case SETTLE_LOCKF:
        lseek(fd, 0, SEEK_SET);
        ret = lockf(fd, F_TLOCK, 0) || lockf(fd, F_ULOCK, 0);
        break;
    case SETTLE_MMAP:
        m = mmap(NULL, BLOCK, PROT_READ, MAP_SHARED, fd, 0);
        ret = m == MAP_FAILED ? -1 : munmap(m, BLOCK);
        break;
    case SETTLE_CHMOD:
        ret = fchmod(fd, 0640);
        break;
    case SETTLE_UTIMES:
        ret = futimens(fd, times);
        break;
    case SETTLE_SEEK:
        ret = lseek(fd, 0, SEEK_HOLE) < 0 && errno != ENXIO;
        break;
    default: /* sending and closing settle by themselves */
        break;
    }
    return ret ? wrong(sh, "the last phase's calls succeed", plan_settle_name(p->settle), errno)
               : true;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_all(struct show *sh)
{
    for (int t = 0; t < PLAN_THREADS; t++)
        for (int s = 0; s < PLAN_SLOTS; s++)
            close_fd(&sh->player[t].actor.fd[s]);
    close_fd(&sh->subject.base_fd);
    close_fd(&sh->subject.shared_fd);
    if (sh->subject.plan->signals)
        signals_stop();
}

static bool audit(struct show *sh)
{
    const struct plan *p = sh->subject.plan;
    struct ask q = {.how = ASK_BY_NUMBER, .fd = sh->main.fd[0], .pid = getpid()};
    struct answer a;

    q.ranges = quiet_ranges(p, q.off, q.len);
    if (p->settle == SETTLE_SENDFD) {
        q.how = ASK_SENT;
    } else if (p->settle == SETTLE_CLOSE) {
        close_all(sh);
        q.how = ASK_BY_NAME;
        memcpy(q.path, sh->subject.path, sizeof(q.path));
    }
    if (auditor_ask(sh->st->auditor, &q, &a))
        return wrong(sh, "the auditor can read the file", sh->subject.path, errno);
    if (!a.decoy_intact)
        return wrong(sh, "no other file is touched", "the decoy file was changed", 0);
    if (p->settle != SETTLE_UTIMES)
        return true;
    int64_t want = SET_TIME.tv_sec * 1000000000ll + SET_TIME.tv_nsec;

    if (a.mtime_ns != want)
        return wrong(sh, "a time that was set stays", "mtime moved after futimens", 0);
    if (!p->check_late)
        return true;
    usleep(LATE_MS * 1000);
    q.ranges = 0;
    if (auditor_ask(sh->st->auditor, &q, &a))
        return wrong(sh, "the auditor can read the file", sh->subject.path, errno);
    return a.mtime_ns == want ? true
                              : wrong(sh, "a time that was set stays", "mtime moved by itself", 0);
}

static bool last_phase(struct show *sh)
{
    const struct plan *p = sh->subject.plan;

    /* Mixed: through a buffered description, since a direct read may be refused there. */
    if (p->mode == MODE_MIXED && sh->subject.base_fd < 0)
        sh->subject.base_fd = subject_open(&sh->subject, sh->player[0].actor.fd[0], false, O_RDWR);
    sh->main.fd[0] = sh->main.fd[1] =
        p->mode == MODE_MIXED ? sh->subject.base_fd : sh->player[0].actor.fd[0];
    if (sh->main.fd[0] < 0)
        return wrong(sh, "the file can be opened again", "a thread lost its descriptor", 0);
    look_inside(sh);
    for (int i = 0; i < p->lasts; i++)
        perform(&sh->main, &p->last[i], 0);
    if (!settle(sh) || !audit(sh))
        return false;
    if (p->settle == SETTLE_SEEK && !holes_are_zero(sh))
        return false;
    if (p->settle != SETTLE_CLOSE && p->settle != SETTLE_UTIMES)
        look_inside(sh);
    return true;
}

static int64_t clock_gap_ns(void)
{
    struct timespec r, m;

    clock_gettime(CLOCK_REALTIME, &r);
    clock_gettime(CLOCK_MONOTONIC, &m);
    return (r.tv_sec - m.tv_sec) * 1000000000ll + r.tv_nsec - m.tv_nsec;
}

/* A call that failed is a finding of its own, unless the disk was full: then there is none. */
static enum outcome errors(const struct trace *t, struct finding *f)
{
    for (size_t i = 0; i < t->nops; i++) {
        const struct op *o = t->ops[i];

        if (o->err == ENOSPC || o->err == EDQUOT || o->err == ENOMEM)
            return OUTCOME_FULL;
        if (!o->err)
            continue;
        *f = (struct finding){.rule = "every call succeeds and keeps its promises",
                              .off = o->off,
                              .len = o->len,
                              .culprit = o};
        snprintf(f->why, sizeof(f->why), "%s failed with %d", plan_call_name(o->call), o->err);
        return OUTCOME_BAD;
    }
    return OUTCOME_GOOD;
}

static enum outcome judge(struct show *sh, struct trace *t, bool clock_steady)
{
    struct stage *st = sh->st;
    const char *stream_bad;
    enum outcome r;
    enum check c;

    trace_from_arena(t, st->arena);
    st->histories++;
    st->calls += t->nops;
    for (size_t i = 0; i < t->nops; i++) {
        if (t->ops[i]->effect == EFFECT_READ) {
            st->reads++;
            st->bytes_checked += (uint64_t)t->ops[i]->ret;
        }
        st->forks += t->ops[i]->call == CALL_FORK && t->ops[i]->ret > 0;
    }
    r = errors(t, sh->f);
    if (r == OUTCOME_FULL)
        st->full++;
    if (r != OUTCOME_GOOD)
        return r;
    stream_bad = sh->subject.stream_fd < 0 ? NULL : stream_check(&sh->subject, t, sh->main.rbuf);
    if (stream_bad)
        wrong(sh, "writes to a shared position stay whole", stream_bad, 0);
    if (sh->bad)
        return OUTCOME_BAD;
    c = check_bytes(t, sh->f);
    if (c == CHECK_UNDECIDED)
        st->undecided++;
    if (c == CHECK_BAD || check_whole_reads(t, sh->f) == CHECK_BAD)
        return OUTCOME_BAD;
    if (clock_steady && check_times(t, st->punch_moves_mtime, sh->f) == CHECK_BAD)
        return OUTCOME_BAD;
    return OUTCOME_GOOD;
}

static void cast(struct show *sh, struct stage *st, const struct plan *p)
{
    struct subject *f = &sh->subject;

    f->plan = p;
    f->arena = st->arena;
    f->arena_fd = st->arena_fd;
    f->self = st->self;
    f->base_fd = f->shared_fd = f->stream_fd = -1;
    f->decoy_path = st->decoy_path;
    f->decoy_fd = st->decoy_fd;
    f->decoy = st->decoy;
    f->whole_reads = st->reads_are_whole && p->mode == MODE_BUFFERED;
    f->checks_unlocked = st->unlocked_are_checked;
    pthread_mutex_init(&f->shared_lock, NULL);
    for (int t = 0; t <= PLAN_THREADS; t++) {
        struct actor *a = t < PLAN_THREADS ? &sh->player[t].actor : &sh->main;

        *a = (struct actor){.subject = f,
                            .lane = t < PLAN_THREADS ? (unsigned)t + 1 : 0,
                            .fd = {-1, -1, -1},
                            .wbuf = st->buf[t][0],
                            .rbuf = st->buf[t][1],
                            .scratch = st->scratch[t]};
        if (t < PLAN_THREADS) {
            sh->player[t].step = p->step[t];
            sh->player[t].steps = p->steps[t];
            sh->player[t].start = &sh->start;
            sh->player[t].done = &sh->done;
        }
    }
}

static void clear(struct arena *ar, const struct plan *p)
{
    atomic_store(&ar->ticket, 1);
    atomic_store(&ar->runs_used, 0);
    atomic_store(&ar->lanes_used, PLAN_THREADS + 1);
    for (int i = 0; i < TRACE_LANES; i++)
        atomic_store(&ar->nops[i], 0);
    ar->nonce = plan_has(p, CALL_APPEND) ? 0 : (p->seed + 1) * 0x9e3779b97f4a7c15u;
}

enum outcome stage_run(struct stage *st, const struct plan *p, struct trace *t, struct finding *f)
{
    struct show sh = {.st = st, .f = f};
    int64_t gap = clock_gap_ns();

    clear(st->arena, p);
    cast(&sh, st, p);
    if (make_file(&sh) && open_slots(&sh) && warm_up(&sh) && play_all(&sh))
        last_phase(&sh);
    close_all(&sh);
    if (p->kind != FILE_TMPFILE)
        unlink(sh.subject.path);
    pthread_mutex_destroy(&sh.subject.shared_lock);
    /* A clock set back by an administrator is nobody's fault here. */
    enum outcome r = judge(&sh, t, clock_gap_ns() - gap > -1000000);

    close_fd(&sh.subject.stream_fd);
    return r;
}
