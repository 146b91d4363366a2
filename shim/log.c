/* SPDX-License-Identifier: MIT */
/* log: see log.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>

#include "../lockmgr/sync.h"
#include "log.h"
#include "state.h"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

EARLY uint32_t log_level;

EARLY static struct {
    uint64_t dev, ino; /* of stderr at program start; ino 0: it was closed */
    bool known;
    bool to_file; /* log_file */
} place;
static char log_file[2 * CFG_PATH_BYTES];
static uint32_t worker_tid;
static uint32_t complained; /* the log file could not be written: said once */

/* struct statx is the one stat layout that is the same on every processor. */
static bool identity(int fd, struct statx *stx)
{
    return rl_raw(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO | STATX_SIZE, stx) == 0;
}

static uint64_t device(const struct statx *stx)
{
    return (uint64_t)stx->stx_dev_major << 32 | stx->stx_dev_minor;
}

void log_start(const struct settings *s, const char *cwd)
{
    struct statx stx;

    if (!place.known) {
        if (identity(2, &stx)) {
            place.dev = device(&stx);
            place.ino = stx.stx_ino;
        }
        place.known = true;
    }
    place.to_file = false;
    log_level = s != NULL ? (uint32_t)s->log : CFG_LOG_OFF;
    if (s != NULL && s->log_path[0] != '\0') {
        struct cfg_text path = cfg_text_in(log_file, sizeof log_file);

        place.to_file = true;
        if (s->log_path[0] != '/' && cwd != NULL && cwd[0] == '/') {
            cfg_text_add(&path, cwd);
            cfg_text_add(&path, "/");
        }
        cfg_text_add(&path, s->log_path);
    }
}

void log_worker(uint32_t tid)
{
    rl_store_32(&worker_tid, tid);
}

/* False if a write of n more bytes would meet RLIMIT_FSIZE, which would raise SIGXFSZ. */
static bool fits_limit(const struct statx *stx, size_t n)
{
    struct {
        uint64_t soft, hard;
    } limit = {0, 0};

    if ((stx->stx_mode & S_IFMT) != S_IFREG)
        return true;
    if (rl_raw(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit) != 0)
        return false;
    return limit.soft == UINT64_MAX || stx->stx_size + n <= limit.soft;
}

/* One write with every signal of this thread held back; a SIGPIPE of our making is taken away. */
static long write_quietly(int fd, const char *line, size_t n)
{
    uint64_t all = UINT64_MAX, pipe_only = (uint64_t)1 << (SIGPIPE - 1), old = 0, pending = 0;
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    struct timespec wait = {.tv_nsec = LOG_WAIT_MS * 1000000l};
    struct timespec now = {0};
    long ret;

    rl_raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, sizeof old);
    ret = rl_raw(SYS_ppoll, &ready, 1, &wait, NULL, 0);
    if (ret != 1) {
        ret = -EAGAIN;
    } else {
        rl_raw(SYS_rt_sigpending, &pending, sizeof pending);
        ret = rl_raw(SYS_write, fd, line, n);
        if (ret == -EPIPE && (pending & pipe_only) == 0)
            rl_raw(SYS_rt_sigtimedwait, &pipe_only, NULL, &now, sizeof pipe_only);
    }
    rl_raw(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, sizeof old);
    return ret;
}

static void to_stderr(const char *line, size_t n)
{
    uint32_t worker = rl_load_32(&worker_tid);
    int fd = 2;
    struct statx stx;

    if (!place.known || place.ino == 0)
        return;
    if (worker != 0 && worker == (uint32_t)rl_raw(SYS_gettid)) {
        long self = rl_raw(SYS_pidfd_open, rl_raw(SYS_getpid), 0);

        if (self < 0)
            return;
        fd = (int)rl_raw(SYS_pidfd_getfd, self, 2, 0);
        rl_raw(SYS_close, self);
        if (fd < 0)
            return;
    }
    if (identity(fd, &stx) && device(&stx) == place.dev && stx.stx_ino == place.ino &&
        fits_limit(&stx, n))
        write_quietly(fd, line, n);
    if (fd != 2)
        rl_raw(SYS_close, fd);
}

static long to_file(const char *line, size_t n)
{
    /* O_NONBLOCK: a FIFO without a reader is refused, not waited for. */
    int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    long fd = rl_raw(SYS_openat, AT_FDCWD, log_file, flags, 0644);
    struct statx stx;
    long ret;

    if (fd < 0)
        return fd;
    if (!identity((int)fd, &stx) || !fits_limit(&stx, n))
        ret = -EFBIG;
    else
        ret = write_quietly((int)fd, line, n);
    rl_raw(SYS_close, fd);
    return ret;
}

static void begin(struct cfg_text *t)
{
    cfg_text_add(t, "rlshim[");
    cfg_text_number(t, (uint64_t)rl_raw(SYS_getpid));
    cfg_text_add(t, "]: ");
}

static void complain(int error)
{
    char line[LOG_LINE_BYTES];
    struct cfg_text t = cfg_text_in(line, sizeof line);

    if (rl_swap_32(&complained, 1) != 0)
        return;
    begin(&t);
    cfg_text_add(&t, "the log file ");
    text_safe(&t, log_file, strlen(log_file));
    cfg_text_add(&t, " cannot be written: ");
    text_errno(&t, error);
    cfg_text_add(&t, "; name another one with log = LEVEL:FILE. Messages are lost.\n");
    to_stderr(line, t.len);
}

/* t has room for the newline: callers build in one byte less. */
static void emit(enum cfg_log level, char *line, size_t len)
{
    long ret;

    line[len++] = '\n';
    if (level == CFG_LOG_OFF || !place.to_file) {
        to_stderr(line, len);
        return;
    }
    ret = to_file(line, len);
    if (ret < 0 && ret != -EAGAIN)
        complain((int)-ret);
}

void log_pieces(enum cfg_log level, const struct log_piece *pieces, size_t count)
{
    char line[LOG_LINE_BYTES];
    struct cfg_text t = cfg_text_in(line, sizeof line - 1);

    if (!log_wanted(level))
        return;
    begin(&t);
    for (size_t i = 0; i < count; i++) {
        const struct log_piece *p = &pieces[i];

        switch (p->kind) {
        case LOG_KIND_TEXT:
            text_safe(&t, p->text, strlen(p->text));
            break;
        case LOG_KIND_ID:
            cfg_text_number(&t, p->number);
            break;
        case LOG_KIND_NUMBER:
            text_grouped(&t, p->number);
            break;
        case LOG_KIND_SIZE:
            text_size(&t, p->number);
            break;
        case LOG_KIND_TIME:
            text_time(&t, p->number);
            break;
        case LOG_KIND_ERRNO:
            text_errno(&t, (int)(int64_t)p->number);
            break;
        }
    }
    emit(level, line, t.len);
}
