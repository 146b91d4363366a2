/* SPDX-License-Identifier: MIT */
/* See perform.h. */
#include "record.h"
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PARTS_MAX = 4 };

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

/* XFS refuses a direct read that meets delayed allocation ("Direct I/O collision with buffered
 * writes" in the kernel log), which buffered writers on the same file can bring about. */
static bool kernel_refused(const struct actor *a, unsigned slot, int64_t ret)
{
    return ret < 0 && errno == EIO && a->direct[slot] && a->subject->plan->mode == MODE_MIXED;
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
    struct op *o = record_begin(a, s, EFFECT_READ, s->off, s->len);

    switch (s->call) {
    case CALL_PREADV:
        ret = s->arg & 1 ? preadv(fd, iov, n, s->off) : preadv2(fd, iov, n, s->off, 0);
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
    record_end(a, o, ret);
    if (kernel_refused(a, s->slot, ret))
        return;
    o->whole = a->subject->whole_reads;
    record_seen(a, o, a->rbuf, ret, true);
    if (positioned)
        check_position(o, fd, s->off + ret);
    record_publish(a, o);
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
    struct op *o = record_begin(a, s, EFFECT_WRITE, s->off, s->len);

    o->pieces = a->direct[s->slot] && s->len >= SPLIT_BYTES;
    if (s->call == CALL_PWRITEV)
        ret = s->arg & 1 ? pwritev(fd, iov, n, s->off) : pwritev2(fd, iov, n, s->off, 0);
    else if (s->call == CALL_WRITE)
        ret = write(fd, a->wbuf, (size_t)s->len);
    else
        ret = pwrite(fd, a->wbuf, (size_t)s->len, s->off);
    record_end(a, o, ret);
    if (ret >= 0)
        o->len = ret;
    if (s->call == CALL_WRITE)
        check_position(o, fd, s->off + ret);
    record_publish(a, o);
}

/* Where an append lands is known only afterwards; histories with appends use nonce 0, with which
 * the bytes do not depend on the place. */
static void do_append(struct actor *a, const struct step *s)
{
    int fd = a->fd[s->slot];

    if (fd < 0)
        return;
    pattern_fill(a->wbuf, 0, (size_t)s->len, s->id, a->subject->arena->nonce);
    struct op *o = record_begin(a, s, EFFECT_APPEND, 0, s->len);
    int64_t ret = write(fd, a->wbuf, (size_t)s->len);

    record_end(a, o, ret);
    if (ret > 0) {
        o->len = ret;
        o->off = lseek(fd, 0, SEEK_CUR) - ret;
        if (o->off < 0)
            o->err = ERR_POSITION;
    }
    record_publish(a, o);
}

/* By descriptor, by path, or by opening with O_TRUNC. */
static int cut(const struct actor *a, const struct step *s)
{
    char path[64];
    int fd = a->fd[s->slot];

    if (s->arg % 4 == 0 && s->off == 0) {
        fd = subject_open(a->subject, fd, s->arg & 4, O_WRONLY | O_TRUNC);
        return fd < 0 ? -1 : close(fd);
    }
    if (s->arg % 4 == 1) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return truncate(path, s->off);
    }
    return ftruncate(fd, s->off);
}

static void do_space(struct actor *a, const struct step *s)
{
    int fd = a->fd[s->slot], ret;
    bool keep = s->arg & 1;
    struct op *o;

    switch (s->call) {
    case CALL_PUNCH:
        o = record_begin(a, s, EFFECT_ZERO, s->off, s->len);
        ret = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, s->off, s->len);
        break;
    case CALL_ZERO:
        o = record_begin(a, s, keep ? EFFECT_ZERO : EFFECT_ZERO_GROW, s->off, s->len);
        ret =
            fallocate(fd, FALLOC_FL_ZERO_RANGE | (keep ? FALLOC_FL_KEEP_SIZE : 0), s->off, s->len);
        break;
    case CALL_TRUNCATE:
        o = record_begin(a, s, EFFECT_TRUNCATE, s->off, 0);
        ret = cut(a, s);
        break;
    default:
        o = record_begin(a, s, keep ? EFFECT_NONE : EFFECT_GROW, s->off, s->len);
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
    record_end(a, o, ret);
    record_publish(a, o);
}

static void do_stat(struct actor *a, const struct step *s)
{
    int fd = a->fd[s->slot], ret;
    struct stat st = {0};
    struct statx sx = {0};
    struct op *o = record_begin(a, s, EFFECT_SIZE, 0, 0);

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
    record_end(a, o, ret);
    o->off = st.st_size;
    o->mtime_ns = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
    o->ctime_ns = st.st_ctim.tv_sec * 1000000000ll + st.st_ctim.tv_nsec;
    record_publish(a, o);
}

/* Nothing of this may show, but it moves data between the cache and the disk. */
static int advise(int fd, const struct step *s)
{
    switch (s->arg % 3) {
    case 0:
        errno = posix_fadvise(fd, s->off, s->len, POSIX_FADV_DONTNEED);
        return errno ? -1 : 0;
    case 1:
        return sync_file_range(fd, s->off, s->len,
                               SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    default:
        return (int)readahead(fd, s->off, (size_t)s->len);
    }
}

static void do_plain(struct actor *a, const struct step *s)
{
    int fd = a->fd[s->slot];
    struct op *o = record_begin(a, s, s->call == CALL_SEEKEND ? EFFECT_SIZE : EFFECT_NONE, 0, 0);
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
    case CALL_ADVISE:
        ret = advise(fd, s);
        break;
    default:
        ret = unlink(a->subject->path);
        if (ret && errno == ENOENT)
            ret = 0;
        break;
    }
    record_end(a, o, ret);
    record_publish(a, o);
}

static void do_mmap(struct actor *a, const struct step *s)
{
    int64_t from = s->off / BLOCK * BLOCK, size;
    struct stat st;

    if (fstat(a->fd[s->slot], &st) || st.st_size <= s->off)
        return;
    size = s->off + s->len < st.st_size ? s->len : st.st_size - s->off;
    struct op *o = record_begin(a, s, EFFECT_READ, s->off, size);
    unsigned char *m = mmap(NULL, (size_t)(s->off - from + size), PROT_READ,
                            s->arg & 1 ? MAP_SHARED : MAP_PRIVATE, a->fd[s->slot], from);

    if (m != MAP_FAILED)
        memcpy(a->rbuf, m + (s->off - from), (size_t)size);
    record_end(a, o, m == MAP_FAILED ? -1 : size);
    if (m != MAP_FAILED && !a->subject->checks_unlocked)
        o->effect = EFFECT_NONE;
    else
        record_seen(a, o, a->rbuf, m == MAP_FAILED ? -1 : size, false);
    record_publish(a, o);
    if (m != MAP_FAILED)
        munmap(m, (size_t)(s->off - from + size));
}

/* Copies inside the kernel out of the file, then looks at the copy. */
static void do_copy(struct actor *a, const struct step *s)
{
    off_t from = s->off, to = 0;

    if (a->direct[s->slot] || ftruncate(a->scratch, 0) || lseek(a->scratch, 0, SEEK_SET))
        return;
    struct op *o = record_begin(a, s, EFFECT_READ, s->off, s->len);
    int64_t ret;

    if (s->call == CALL_SENDFILE)
        ret = sendfile(a->scratch, a->fd[s->slot], &from, (size_t)s->len);
    else
        ret = copy_file_range(a->fd[s->slot], &from, a->scratch, &to, (size_t)s->len, 0);
    record_end(a, o, ret);
    if (ret > 0 && pread(a->scratch, a->rbuf, (size_t)ret, 0) != ret) {
        o->err = ERR_HELPER;
        o->effect = EFFECT_NONE;
    } else if (ret >= 0 && !a->subject->checks_unlocked) {
        o->effect = EFFECT_NONE;
    } else {
        record_seen(a, o, a->rbuf, ret, false);
    }
    record_publish(a, o);
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
    o = record_begin(a, s, s->id ? EFFECT_WRITE : EFFECT_READ, s->off, s->len);
    ret = s->id ? write(f->shared_fd, a->wbuf, (size_t)s->len)
                : read(f->shared_fd, a->rbuf, (size_t)s->len);
    record_end(a, o, ret);
    check_position(o, f->shared_fd, s->off + ret);
    o->pieces = s->id != 0 && f->shared_direct && s->len >= SPLIT_BYTES;
    pthread_mutex_unlock(&f->shared_lock);
    if (!s->id) {
        o->whole = f->whole_reads;
        record_seen(a, o, a->rbuf, ret, true);
    } else if (ret >= 0) {
        o->len = ret;
    }
    record_publish(a, o);
}

unsigned perform(struct actor *a, const struct step *s, unsigned left)
{
    /* A change that cannot be written down must not happen. */
    if (atomic_load(&a->subject->arena->nops[a->lane]) >= TRACE_OPS)
        return s->call == CALL_FORK ? 1 + (s->arg < left ? s->arg : left) : 1;
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
    case CALL_STREAM:
        do_stream(a, s);
        break;
    case CALL_FREAD:
    case CALL_FWRITE:
        do_stdio(a, s);
        break;
    case CALL_SPLICE:
        do_splice(a, s);
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
