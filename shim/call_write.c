/* SPDX-License-Identifier: MIT */
/*
 * call_write: the write family.
 *
 * As call_read, with one more question on the way: a write of GATE_MIN_BYTES or more may have to go
 * through its inode's gate, idle or not. A vector has to be added up for that, and before that it
 * has to be known that it can be read (readable.h), so vectors go the short way only in a process
 * that has no O_DIRECT descriptor.
 */
#include "call_io.h"
#include "window.h"

static inline ssize_t write_now(const struct io *io)
{
    uint64_t word = state_word();
    ssize_t n;

    if ((word & (WORD_FILES | WORD_HELD)) != 0 ||
        (io_bytes(io->iov, io->count) >= GATE_MIN_BYTES && state_works()))
        n = execute_write(io);
    else
        n = io->issue(io, io->iov, io->count, io->off);
    if (window_wanted(word) && n > 0) {
        inflight_land(io->leg); /* the write is over, whatever comes now */
        window_wrote(io->fd, io->positional && (io->flags & RWF_APPEND) == 0 ? io->off : -1,
                     (size_t)n);
    }
    return n;
}

static __attribute__((noinline)) ssize_t write_timed_big(const struct io *io)
{
    TIMED_FD(ACT_write_big, io->fd);

    return write_now(io);
}

static inline ssize_t write_timed(const struct io *io)
{
    bool direct;
    uint32_t file = observe_file(io->fd, &direct);
    uint64_t bytes;

    if (unlikely(file == FILE_NOT))
        return write_now(io);
    bytes = io_bytes(io->iov, io->count);
    if (direct && bytes >= GATE_MIN_BYTES)
        return write_timed_big(io);
    TIMED_IO(ACT_write, io->fd, file, direct ? 0 : bytes);
    return write_now(io);
}

/* Not idle, or a big one. */
static ssize_t write_busy(const struct io *io, uint64_t word)
{
    state_enter(word);
    word = state_word();
    if ((word & WORD_COUNT) != 0)
        stat_add(STAT_calls_write, 1);
    return (word & WORD_TIME) != 0 ? write_timed(io) : write_now(io);
}

#define WRITES(...) IO_CALL(write, __VA_ARGS__)
#define BIG(n)      ((n) >= GATE_MIN_BYTES)
#define BIG_IOV     (rl_load_32(&proc.direct) != 0)

/* at the file position */
WRITES(write, (int fd, const void *buf, size_t n), (fd, buf, n),
       (io->fd, iov->iov_base, iov->iov_len), (ONE(buf, n)), BAD(n), BIG(n))
WRITES(__write, (int fd, const void *buf, size_t n), (fd, buf, n),
       (io->fd, iov->iov_base, iov->iov_len), (ONE(buf, n)), BAD(n), BIG(n))
WRITES(writev, (int fd, const struct iovec *iov, int count), (fd, iov, count), (io->fd, iov, count),
       (.iov = iov, .count = count), BAD_IOV, BIG_IOV)

/* at a given offset */
#define PWRITES(name)                                                                              \
    WRITES(name, (int fd, const void *buf, size_t n, off_t off), (fd, buf, n, off),                \
           (io->fd, iov->iov_base, iov->iov_len, off),                                             \
           (ONE(buf, n), .off = off, .positional = true), BAD(n) || off < 0, BIG(n))
PWRITES(pwrite)
PWRITES(pwrite64)
PWRITES(__pwrite64)

#define PWRITEVS(name)                                                                             \
    WRITES(name, (int fd, const struct iovec *iov, int count, off_t off), (fd, iov, count, off),   \
           (io->fd, iov, count, off),                                                              \
           (.iov = iov, .count = count, .off = off, .positional = true), BAD_IOV || off < 0,       \
           BIG_IOV)
PWRITEVS(pwritev)
PWRITEVS(pwritev64)

/* -1 means the file position here */
#define PWRITEV2S(name)                                                                            \
    WRITES(name, (int fd, const struct iovec *iov, int count, off_t off, int flags),               \
           (fd, iov, count, off, flags), (io->fd, iov, count, off, io->flags),                     \
           (.iov = iov, .count = count, .off = off, .flags = flags, .positional = off != -1),      \
           BAD_IOV || off < -1, BIG_IOV)
PWRITEV2S(pwritev2)
PWRITEV2S(pwritev64v2)
