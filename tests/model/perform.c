/* SPDX-License-Identifier: MIT */
/* See perform.h. */
#include "perform.h"
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PARTS_MAX = 4 };

extern char **environ;

static int64_t coarse_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME_COARSE, &ts);
    return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static struct op *begin(struct actor *a, const struct step *s, enum effect e, int64_t off,
                        int64_t len)
{
    struct arena *ar = a->subject->arena;
    unsigned n = atomic_load_explicit(&ar->nops[a->lane], memory_order_relaxed);
    /* A full lane has its last record used again and again, and never counted. */
    struct op *o = &ar->ops[a->lane][n < TRACE_OPS ? n : TRACE_OPS - 1];

    memset(o, 0, sizeof(*o));
    o->off = off;
    o->len = len;
    o->effect = (uint8_t)e;
    o->call = s->call;
    o->lane = (uint8_t)a->lane;
    o->id = s->id;
    o->wall_inv_ns = coarse_ns();
    o->inv = atomic_fetch_add(&ar->ticket, 1);
    return o;
}

/* Takes the result right after the call, before anything else can touch errno or the clock. */
static void end(struct actor *a, struct op *o, int64_t ret)
{
    int err = errno;

    o->res = atomic_fetch_add(&a->subject->arena->ticket, 1);
    o->wall_res_ns = coarse_ns();
    o->ret = ret;
    if (ret < 0) {
        o->err = err;
        o->effect = EFFECT_NONE;
    }
}

static void publish(struct actor *a, const struct op *o)
{
    struct arena *ar = a->subject->arena;
    unsigned n = atomic_load_explicit(&ar->nops[a->lane], memory_order_relaxed);

    if (n < TRACE_OPS && o == &ar->ops[a->lane][n])
        atomic_store(&ar->nops[a->lane], n + 1);
}

static void keep_runs(struct arena *ar, struct op *o, const void *buf, int64_t got)
{
    struct run local[TRACE_RUNS_READ];
    unsigned n = pattern_runs(buf, o->off, (size_t)got, ar->nonce, local, TRACE_RUNS_READ);

    if (n > TRACE_RUNS_READ) {
        o->err = ERR_CONTENT;
        o->effect = EFFECT_NONE;
        return;
    }
    unsigned first = atomic_fetch_add(&ar->runs_used, n);

    if (first + n > TRACE_RUNS) {
        o->effect = EFFECT_NONE; /* no room: a read not checked is no divergence */
        return;
    }
    memcpy(&ar->runs[first], local, n * sizeof(*local));
    o->run = first;
    o->runs = n;
}

static void saw(struct actor *a, struct op *o, const void *buf, int64_t ret, bool eof_if_short)
{
    if (ret < 0)
        return;
    if (ret < o->len) {
        o->eof = eof_if_short;
        if (!eof_if_short)
            o->len = ret;
    }
    keep_runs(a->subject->arena, o, buf, ret);
}

static int split_iov(const struct step *s, void *buf, struct iovec *iov, bool aligned)
{
    int n = 2 + s->arg % (PARTS_MAX - 1);
    int64_t done = 0, grain = aligned ? BLOCK : 1, part = s->len / n / grain * grain;

    for (int i = 0; i < n; i++) {
        int64_t len = i == n - 1 ? s->len - done : part;

        iov[i] = (struct iovec){(char *)buf + done, (size_t)len};
        done += len;
    }
    return n;
}

static void check_position(struct op *o, int fd, int64_t want)
{
    if (o->ret >= 0 && lseek(fd, 0, SEEK_CUR) != want)
        o->err = ERR_POSITION;
}

static void do_read(struct actor *a, const struct step *s)
{
    int fd = a->fd[s->slot];
    struct iovec iov[PARTS_MAX];
    int n = split_iov(s, a->rbuf, iov, a->subject->plan->mode != MODE_BUFFERED);
    bool positioned = s->call == CALL_READ || s->call == CALL_READV;
    int64_t ret;

    if (positioned)
        lseek(fd, s->off, SEEK_SET);
    struct op *o = begin(a, s, EFFECT_READ, s->off, s->len);

    switch (s->call) {
    case CALL_PREADV:
        ret = preadv(fd, iov, n, s->off);
        break;
    case CALL_READ:
        ret = read(fd, a->rbuf, (size_t)s->len);
        break;
    case CALL_READV:
        ret = readv(fd, iov, n);
        break;
    default:
        ret = pread(fd, a->rbuf, (size_t)s->len, s->off);
        break;
    }
    end(a, o, ret);
    o->whole = a->subject->whole_reads;
    saw(a, o, a->rbuf, ret, true);
    if (positioned)
        check_position(o, fd, s->off + ret);
    publish(a, o);
}

static void do_write(struct actor *a, const struct step *s)
{
    int fd = a->fd[s->slot];
    struct iovec iov[PARTS_MAX];
    int n = split_iov(s, a->wbuf, iov, a->subject->plan->mode != MODE_BUFFERED);
    int64_t ret;

    pattern_fill(a->wbuf, s->off, (size_t)s->len, s->id, a->subject->arena->nonce);
    if (s->call == CALL_WRITE)
        lseek(fd, s->off, SEEK_SET);
    struct op *o = begin(a, s, EFFECT_WRITE, s->off, s->len);

    if (s->call == CALL_PWRITEV)
        ret = pwritev(fd, iov, n, s->off);
    else if (s->call == CALL_WRITE)
        ret = write(fd, a->wbuf, (size_t)s->len);
    else
        ret = pwrite(fd, a->wbuf, (size_t)s->len, s->off);
    end(a, o, ret);
    if (ret >= 0)
        o->len = ret;
    if (s->call == CALL_WRITE)
        check_position(o, fd, s->off + ret);
    publish(a, o);
}

/* Where an append lands is known only afterwards; histories with appends use nonce 0, with which
 * the bytes do not depend on the place. */
static void do_append(struct actor *a, const struct step *s)
{
    int fd = a->fd[s->slot];

    if (fd < 0)
        return;
    pattern_fill(a->wbuf, 0, (size_t)s->len, s->id, a->subject->arena->nonce);
    struct op *o = begin(a, s, EFFECT_APPEND, 0, s->len);
    int64_t ret = write(fd, a->wbuf, (size_t)s->len);

    end(a, o, ret);
    if (ret > 0) {
        o->len = ret;
        o->off = lseek(fd, 0, SEEK_CUR) - ret;
        if (o->off < 0)
            o->err = ERR_POSITION;
    }
    publish(a, o);
}

static void do_space(struct actor *a, const struct step *s)
{
    int fd = a->fd[s->slot], ret;
    bool keep = s->arg & 1;
    struct op *o;

    switch (s->call) {
    case CALL_PUNCH:
        o = begin(a, s, EFFECT_ZERO, s->off, s->len);
        ret = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, s->off, s->len);
        break;
    case CALL_ZERO:
        o = begin(a, s, keep ? EFFECT_ZERO : EFFECT_ZERO_GROW, s->off, s->len);
        ret = fallocate(fd, FALLOC_FL_ZERO_RANGE | (keep ? FALLOC_FL_KEEP_SIZE : 0), s->off, s->len);
        break;
    case CALL_TRUNCATE:
        o = begin(a, s, EFFECT_TRUNCATE, s->off, 0);
        ret = ftruncate(fd, s->off);
        break;
    default:
        o = begin(a, s, keep ? EFFECT_NONE : EFFECT_GROW, s->off, s->len);
        if (keep) {
            ret = fallocate(fd, FALLOC_FL_KEEP_SIZE, s->off, s->len);
        } else if (s->arg & 2) {
            errno = posix_fallocate(fd, s->off, s->len);
            ret = errno ? -1 : 0;
        } else {
            ret = fallocate(fd, 0, s->off, s->len);
        }
        break;
    }
    end(a, o, ret);
    publish(a, o);
}

static void do_stat(struct actor *a, const struct step *s)
{
    int fd = a->fd[s->slot], ret;
    struct stat st = {0};
    struct statx sx = {0};
    struct op *o = begin(a, s, EFFECT_SIZE, 0, 0);

    switch (s->arg % 3) {
    case 0:
        ret = statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &sx);
        st.st_size = (off_t)sx.stx_size;
        st.st_mtim = (struct timespec){sx.stx_mtime.tv_sec, sx.stx_mtime.tv_nsec};
        st.st_ctim = (struct timespec){sx.stx_ctime.tv_sec, sx.stx_ctime.tv_nsec};
        break;
    case 1:
        ret = fstatat(fd, "", &st, AT_EMPTY_PATH);
        break;
    default:
        ret = fstat(fd, &st);
        break;
    }
    end(a, o, ret);
    o->off = st.st_size;
    o->mtime_ns = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
    o->ctime_ns = st.st_ctim.tv_sec * 1000000000ll + st.st_ctim.tv_nsec;
    publish(a, o);
}

static void do_plain(struct actor *a, const struct step *s)
{
    int fd = a->fd[s->slot];
    struct op *o = begin(a, s, s->call == CALL_SEEKEND ? EFFECT_SIZE : EFFECT_NONE, 0, 0);
    int64_t ret;

    switch (s->call) {
    case CALL_SEEKEND:
        o->off = ret = lseek(a->fd[0], 0, SEEK_END);
        break;
    case CALL_FSYNC:
        ret = fsync(fd);
        break;
    case CALL_FDATASYNC:
        ret = fdatasync(fd);
        break;
    default:
        ret = unlink(a->subject->path);
        if (ret && errno == ENOENT)
            ret = 0;
        break;
    }
    end(a, o, ret);
    publish(a, o);
}

static void do_mmap(struct actor *a, const struct step *s)
{
    int64_t from = s->off / BLOCK * BLOCK, size;
    struct stat st;

    if (fstat(a->fd[s->slot], &st) || st.st_size <= s->off)
        return;
    size = s->off + s->len < st.st_size ? s->len : st.st_size - s->off;
    struct op *o = begin(a, s, EFFECT_READ, s->off, size);
    unsigned char *m = mmap(NULL, (size_t)(s->off - from + size), PROT_READ,
                            s->arg & 1 ? MAP_SHARED : MAP_PRIVATE, a->fd[s->slot], from);

    if (m != MAP_FAILED)
        memcpy(a->rbuf, m + (s->off - from), (size_t)size);
    end(a, o, m == MAP_FAILED ? -1 : size);
    saw(a, o, a->rbuf, m == MAP_FAILED ? -1 : size, false);
    publish(a, o);
    if (m != MAP_FAILED)
        munmap(m, (size_t)(s->off - from + size));
}

/* Copies inside the kernel out of the file, then looks at the copy. */
static void do_copy(struct actor *a, const struct step *s)
{
    off_t from = s->off, to = 0;

    if (a->direct[s->slot] || ftruncate(a->scratch, 0) || lseek(a->scratch, 0, SEEK_SET))
        return;
    struct op *o = begin(a, s, EFFECT_READ, s->off, s->len);
    int64_t ret;

    if (s->call == CALL_SENDFILE)
        ret = sendfile(a->scratch, a->fd[s->slot], &from, (size_t)s->len);
    else
        ret = copy_file_range(a->fd[s->slot], &from, a->scratch, &to, (size_t)s->len, 0);
    end(a, o, ret);
    if (ret > 0 && pread(a->scratch, a->rbuf, (size_t)ret, 0) != ret) {
        o->err = ERR_HELPER;
        o->effect = EFFECT_NONE;
    } else {
        saw(a, o, a->rbuf, ret, false);
    }
    publish(a, o);
}

static void do_shared(struct actor *a, const struct step *s)
{
    struct subject *f = a->subject;
    int64_t ret;
    struct op *o;

    if (s->id)
        pattern_fill(a->wbuf, s->off, (size_t)s->len, s->id, f->arena->nonce);
    pthread_mutex_lock(&f->shared_lock);
    lseek(f->shared_fd, s->off, SEEK_SET);
    o = begin(a, s, s->id ? EFFECT_WRITE : EFFECT_READ, s->off, s->len);
    ret = s->id ? write(f->shared_fd, a->wbuf, (size_t)s->len)
                : read(f->shared_fd, a->rbuf, (size_t)s->len);
    end(a, o, ret);
    check_position(o, f->shared_fd, s->off + ret);
    pthread_mutex_unlock(&f->shared_lock);
    if (!s->id) {
        o->whole = f->whole_reads;
        saw(a, o, a->rbuf, ret, true);
    } else if (ret >= 0) {
        o->len = ret;
    }
    publish(a, o);
}

int subject_open(const struct subject *f, int of, bool by_name, int flags)
{
    char proc[64];
    int fd = -1;

    if (by_name && f->plan->kind == FILE_NAMED)
        fd = open(f->path, flags);
    if (fd >= 0 || (by_name && f->plan->kind == FILE_NAMED && errno != ENOENT))
        return fd;
    snprintf(proc, sizeof(proc), "/proc/self/fd/%d", of);
    return open(proc, flags);
}

/* Gives the second slot a new descriptor of the file, in the place of `old` if that is not -1. */
static int again(const struct actor *a, unsigned how, int old)
{
    int flags = O_RDWR | (a->direct[1] ? O_DIRECT : 0) | (how & 1 ? O_CLOEXEC : 0), fd;

    if (a->direct[0] != a->direct[1] || how % 7 < 3) {
        fd = subject_open(a->subject, a->fd[0], how & 8, flags);
        if (old < 0 || fd < 0)
            return fd;
        dup2(fd, old);
        close(fd);
        return old;
    }
    if (old >= 0)
        return how & 2 ? dup2(a->fd[0], old) : dup3(a->fd[0], old, O_CLOEXEC);
    switch (how % 3) {
    case 0:
        return dup(a->fd[0]);
    case 1:
        return fcntl(a->fd[0], F_DUPFD, 0);
    default:
        return fcntl(a->fd[0], F_DUPFD_CLOEXEC, 100);
    }
}

static void do_reopen(struct actor *a, const struct step *s)
{
    struct op *o = begin(a, s, EFFECT_NONE, 0, 0);
    int ret = 0;

    if (s->arg & 16) {
        a->fd[1] = ret = again(a, s->arg, a->fd[1]);
    } else if (s->arg & 32) {
        ret = close(a->fd[1]);
        a->fd[1] = again(a, s->arg, -1);
        if (a->fd[1] < 0)
            ret = -1;
    } else {
        /* The own description goes; the second slot keeps the file reachable. */
        ret = close(a->fd[0]);
        a->fd[0] = subject_open(a->subject, a->fd[1], s->arg & 8,
                                O_RDWR | (a->direct[0] ? O_DIRECT : 0));
        if (a->fd[0] < 0)
            ret = -1;
    }
    end(a, o, ret);
    publish(a, o);
}

/* The number of a descriptor that may have work queued becomes another file's, which must not
 * notice: not in what is read through it, not in what it holds at the end. */
static void do_decoy(struct actor *a, const struct step *s)
{
    const struct subject *f = a->subject;
    struct op *o = begin(a, s, EFFECT_NONE, s->off, s->len);
    int64_t at = s->off % DECOY_BYTES / BLOCK * BLOCK, len = DECOY_BYTES - at;
    int n = a->fd[1], err = 0;

    if (len > s->len)
        len = s->len;
    if (s->arg & 1) {
        n = dup2(f->decoy_fd, n);
    } else {
        close(n);
        n = open(f->decoy_path, O_RDWR);
    }
    if (n < 0) {
        err = errno;
    } else {
        if (s->arg & 2 && pwrite(n, f->decoy + at, (size_t)len, at) != len)
            err = errno;
        if (pread(n, a->rbuf, (size_t)len, at) != len || memcmp(a->rbuf, f->decoy + at, (size_t)len))
            err = ERR_DECOY;
    }
    a->fd[1] = again(a, s->arg, n);
    if (a->fd[1] < 0 && !err)
        err = errno;
    end(a, o, 0);
    o->err = err;
    publish(a, o);
}

static void do_fork(struct actor *a, const struct step *s, unsigned left)
{
    struct arena *ar = a->subject->arena;
    unsigned n = s->arg < left ? s->arg : left;
    uint32_t lane = atomic_fetch_add(&ar->lanes_used, 1);

    if (lane >= TRACE_LANES || a->kids == KIDS_MAX)
        return;
    struct op *o = begin(a, s, EFFECT_NONE, 0, 0);
    pid_t pid = fork();

    if (!pid) {
        struct actor child = *a;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        child.lane = lane;
        child.kids = 0;
        for (unsigned i = 0; i < n; i++)
            perform(&child, s + 1 + i, 0);
        _exit(0);
    }
    end(a, o, pid);
    publish(a, o);
    if (pid > 0)
        a->kid[a->kids++] = pid;
}

static int wait_for(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return status;
}

void perform_reap(struct actor *a)
{
    const struct step none = {.call = CALL_FORK};

    for (unsigned i = 0; i < a->kids; i++) {
        struct op *o = begin(a, &none, EFFECT_NONE, 0, 0);
        int status = wait_for(a->kid[i]);

        end(a, o, 0);
        if (status) {
            o->err = ERR_HELPER;
            o->ret = status;
        }
        publish(a, o);
    }
    a->kids = 0;
}

void reader_fill(struct arena *arena, struct op *o, int fd, unsigned char *buf)
{
    int64_t ret = pread(fd, buf, (size_t)o->len, o->off);

    o->ret = ret;
    if (ret < 0) {
        o->err = errno;
        o->effect = EFFECT_NONE;
        return;
    }
    o->eof = ret < o->len;
    keep_runs(arena, o, buf, ret);
}

static pid_t start(int how, char **argv)
{
    pid_t pid;

    if (how == 0)
        return posix_spawn(&pid, argv[0], NULL, NULL, argv, environ) ? -1 : pid;
    pid = how == 1 ? vfork() : fork();
    if (!pid) {
        execv(argv[0], argv);
        _exit(127);
    }
    return pid;
}

/* A program is started that inherits one descriptor and reads through it. */
static void do_exec(struct actor *a, const struct step *s)
{
    char lane[16], index[16], fd_text[16], arena_fd[16];
    int fd = dup(a->fd[0]), status;
    unsigned n = atomic_load(&a->subject->arena->nops[a->lane]);

    if (fd < 0 || n >= TRACE_OPS) {
        if (fd >= 0)
            close(fd);
        return;
    }
    snprintf(lane, sizeof(lane), "%u", a->lane);
    snprintf(index, sizeof(index), "%u", n);
    snprintf(fd_text, sizeof(fd_text), "%d", fd);
    snprintf(arena_fd, sizeof(arena_fd), "%d", a->subject->arena_fd);
    char *argv[] = {(char *)a->subject->self, "--reader", arena_fd, lane, index, fd_text, NULL};
    struct op *o = begin(a, s, EFFECT_READ, s->off, s->len);
    pid_t pid;

    o->ret = -1;
    pid = start(s->arg % 3, argv);
    status = pid > 0 ? wait_for(pid) : -1;
    o->res = atomic_fetch_add(&a->subject->arena->ticket, 1);
    if (status) {
        o->err = ERR_HELPER;
        o->ret = status;
        o->effect = EFFECT_NONE;
    }
    publish(a, o);
    close(fd);
}

unsigned perform(struct actor *a, const struct step *s, unsigned left)
{
    if (s->len > IO_MAX && s->call != CALL_PUNCH && s->call != CALL_ALLOC && s->call != CALL_ZERO)
        return 1;
    switch (s->call) {
    case CALL_PREAD:
    case CALL_PREADV:
    case CALL_READ:
    case CALL_READV:
        do_read(a, s);
        break;
    case CALL_PWRITE:
    case CALL_PWRITEV:
    case CALL_WRITE:
        do_write(a, s);
        break;
    case CALL_APPEND:
        do_append(a, s);
        break;
    case CALL_PUNCH:
    case CALL_ZERO:
    case CALL_ALLOC:
    case CALL_TRUNCATE:
        do_space(a, s);
        break;
    case CALL_STAT:
        do_stat(a, s);
        break;
    case CALL_MMAP:
        do_mmap(a, s);
        break;
    case CALL_SENDFILE:
    case CALL_COPY:
        do_copy(a, s);
        break;
    case CALL_REOPEN:
        do_reopen(a, s);
        break;
    case CALL_DECOY:
        do_decoy(a, s);
        break;
    case CALL_FORK:
        do_fork(a, s, left);
        return 1 + (s->arg < left ? s->arg : left);
    case CALL_EXEC:
        do_exec(a, s);
        break;
    case CALL_SHARED:
        do_shared(a, s);
        break;
    case CALL_PAUSE:
        usleep(20u * s->arg % 3000);
        break;
    default:
        do_plain(a, s);
        break;
    }
    return 1;
}
