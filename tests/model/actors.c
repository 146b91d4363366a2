/* SPDX-License-Identifier: MIT */
/* Steps about descriptors and processes: opening again, the decoy, children, programs. */
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

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

void do_reopen(struct actor *a, const struct step *s)
{
    struct op *o = record_begin(a, s, EFFECT_NONE, 0, 0);
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
        a->fd[0] =
            subject_open(a->subject, a->fd[1], s->arg & 8, O_RDWR | (a->direct[0] ? O_DIRECT : 0));
        if (a->fd[0] < 0)
            ret = -1;
    }
    record_end(a, o, ret);
    record_publish(a, o);
}

/* The number of a descriptor that may have work queued becomes another file's, which must not
 * notice: not in what is read through it, not in what it holds at the end. */
void do_decoy(struct actor *a, const struct step *s)
{
    const struct subject *f = a->subject;
    struct op *o = record_begin(a, s, EFFECT_NONE, s->off, s->len);
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
        if (pread(n, a->rbuf, (size_t)len, at) != len ||
            memcmp(a->rbuf, f->decoy + at, (size_t)len))
            err = ERR_DECOY;
    }
    a->fd[1] = again(a, s->arg, n);
    if (a->fd[1] < 0 && !err)
        err = errno;
    record_end(a, o, 0);
    o->err = err;
    record_publish(a, o);
}

void do_fork(struct actor *a, const struct step *s, unsigned left)
{
    struct arena *ar = a->subject->arena;
    unsigned n = s->arg < left ? s->arg : left;
    uint32_t lane = atomic_fetch_add(&ar->lanes_used, 1);

    if (lane >= TRACE_LANES || a->kids == KIDS_MAX)
        return;
    struct op *o = record_begin(a, s, EFFECT_NONE, 0, 0);
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
    record_end(a, o, pid);
    record_publish(a, o);
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
        struct op *o = record_begin(a, &none, EFFECT_NONE, 0, 0);
        int status = wait_for(a->kid[i]);

        record_end(a, o, 0);
        if (status) {
            o->err = ERR_HELPER;
            o->ret = status;
        }
        record_publish(a, o);
    }
    a->kids = 0;
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
void do_exec(struct actor *a, const struct step *s)
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
    struct op *o = record_begin(a, s, EFFECT_READ, s->off, s->len);
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
    record_publish(a, o);
    close(fd);
}
