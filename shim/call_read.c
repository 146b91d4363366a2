/* SPDX-License-Identifier: MIT */
/*
 * call_read: the read family.
 *
 * The hottest path of all: one look at the state word, the real call, a second look. If the word
 * moved meanwhile, a file was turned on while this call was in the kernel, and what it returned may
 * have to be made good (execute_read_late). Everything else is kept out of line.
 */
#include "call.h"

/* Not idle: something may be queued, or calls are counted, or nothing is initialised yet. */
static ssize_t read_busy(const struct io *io, uint64_t word)
{
    ssize_t n;

    state_enter(word);
    word = state_word();
    if ((word & WORD_COUNT) != 0)
        stat_add(STAT_calls_read, 1);
    if ((word & WORD_FILES) != 0)
        return execute_read(io);
    n = io->issue(io, io->iov, io->count, io->off);
    return state_word() == word ? n : execute_read_late(io, n);
}

/*
 * READS(name, parameters, arguments, piece, plan, refused)
 *   piece    arguments for a part of it: io, iov, count, off
 *   plan     the fields of struct io that differ
 *   refused  arguments that the kernel refuses as a whole: made plainly, whatever is queued
 */
#define READS(name, params, args, piece, plan, refused)                                            \
    static ssize_t name##_piece(const struct io *io, const struct iovec *iov, int count,           \
                                off_t off)                                                         \
    {                                                                                              \
        (void)io, (void)iov, (void)count, (void)off;                                               \
        return real.name piece;                                                                    \
    }                                                                                              \
    static __attribute__((noinline)) ssize_t name##_when_busy(uint64_t word, READ_PARAMS params)   \
    {                                                                                              \
        if (refused) {                                                                             \
            state_enter(word);                                                                     \
            return real.name args;                                                                 \
        }                                                                                          \
        return read_busy(&(struct io){.fd = fd, .issue = name##_piece, READ_PARAMS plan}, word);   \
    }                                                                                              \
    static __attribute__((noinline)) ssize_t name##_made_late(ssize_t done, READ_PARAMS params)    \
    {                                                                                              \
        return execute_read_late(&(struct io){.fd = fd, .issue = name##_piece, READ_PARAMS plan},  \
                                 done);                                                            \
    }                                                                                              \
    ssize_t name params                                                                            \
    {                                                                                              \
        uint64_t word = state_word();                                                              \
                                                                                                   \
        if (call_direct(word)) {                                                                   \
            ssize_t done = real.name args;                                                         \
                                                                                                   \
            call_counted(word, STAT_calls_read);                                                   \
            return likely(state_word() == word) ? done : name##_made_late(done, READ_PARAMS args); \
        }                                                                                          \
        return name##_when_busy(word, READ_PARAMS args);                                           \
    }
#define READ_PARAMS(...) __VA_ARGS__
#define UNUSED           __attribute__((unused))

#define ONE(buf, n) .iov = &(struct iovec){buf, n}, .count = 1
#define BAD(n)      ((ssize_t)(n) < 0)
#define BAD_IOV     !readable_vector(iov, count)

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
