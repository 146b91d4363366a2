/* SPDX-License-Identifier: MIT */
/* call_read: the read family. */
#include "call_io.h"

static inline ssize_t read_now(const struct io *io)
{
    if ((state_word() & WORD_FILES) != 0)
        return execute_read(io);
    return io->issue(io, io->iov, io->count, io->off);
}

static inline ssize_t read_timed(const struct io *io)
{
    bool direct;
    uint32_t file = observe_file(io->fd, &direct);

    if (unlikely(file == FILE_NOT))
        return read_now(io);
    TIMED_IO(ACT_read, io->fd, file, 0);
    return read_now(io);
}

/* Not idle: something may be queued, or nothing is initialised yet, or calls are timed. */
static ssize_t read_busy(const struct io *io, uint64_t word)
{
    state_enter(word);
    word = state_word();
    if ((word & WORD_COUNT) != 0)
        stat_add(STAT_calls_read, 1);
    return (word & WORD_TIME) != 0 ? read_timed(io) : read_now(io);
}

#define READS(...) IO_CALL(read, __VA_ARGS__, false)

/* at the file position */
READS(read, (int fd, void *buf, size_t n), (fd, buf, n), (io->fd, iov->iov_base, iov->iov_len),
      (ONE(buf, n)), BAD(n))
READS(__read, (int fd, void *buf, size_t n), (fd, buf, n), (io->fd, iov->iov_base, iov->iov_len),
      (ONE(buf, n)), BAD(n))
READS(readv, (int fd, const struct iovec *iov, int count), (fd, iov, count), (io->fd, iov, count),
      (.iov = iov, .count = count), BAD_IOV)

/* at a given offset */
#define PREADS(name)                                                                               \
    READS(name, (int fd, void *buf, size_t n, off_t off), (fd, buf, n, off),                       \
          (io->fd, iov->iov_base, iov->iov_len, off),                                              \
          (ONE(buf, n), .off = off, .positional = true), BAD(n) || off < 0)
PREADS(pread)
PREADS(pread64)
PREADS(__pread64)

#define PREADVS(name)                                                                              \
    READS(name, (int fd, const struct iovec *iov, int count, off_t off), (fd, iov, count, off),    \
          (io->fd, iov, count, off), (.iov = iov, .count = count, .off = off, .positional = true), \
          BAD_IOV || off < 0)
PREADVS(preadv)
PREADVS(preadv64)

/* -1 means the file position here */
#define PREADV2S(name)                                                                             \
    READS(name, (int fd, const struct iovec *iov, int count, off_t off, int flags),                \
          (fd, iov, count, off, flags), (io->fd, iov, count, off, io->flags),                      \
          (.iov = iov, .count = count, .off = off, .flags = flags, .positional = off != -1),       \
          BAD_IOV || off < -1)
PREADV2S(preadv2)
PREADV2S(preadv64v2)

/* Fortified: the real one aborts when the buffer is smaller than what is asked for, so that case
 * counts as refused. */
READS(__read_chk, (int fd, void *buf, size_t n, UNUSED size_t size), (fd, buf, n, size),
      (io->fd, iov->iov_base, iov->iov_len, iov->iov_len), (ONE(buf, n)), BAD(n) || n > size)

#define PREADS_CHECKED(name)                                                                       \
    READS(name, (int fd, void *buf, size_t n, off_t off, UNUSED size_t size),                      \
          (fd, buf, n, off, size), (io->fd, iov->iov_base, iov->iov_len, off, iov->iov_len),       \
          (ONE(buf, n), .off = off, .positional = true), BAD(n) || n > size || off < 0)
PREADS_CHECKED(__pread_chk)
PREADS_CHECKED(__pread64_chk)
