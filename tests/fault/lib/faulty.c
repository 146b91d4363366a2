/* SPDX-License-Identifier: MIT */
/*
 * faulty: a library that makes the Nth call of one libc function fail. Preloaded behind the shim
 * (LD_PRELOAD="librlshim.so faulty.so"), so that the shim's "real" calls are what fails; alone, the
 * program's own calls fail, which is what the first case must look like.
 *
 *   FAULT=NAME:ERRNO:N            the Nth call of NAME fails, the others are made
 *   FAULT=NAME:ERRNO:N:forever    and all after it
 *   FAULT=NAME:ERRNO:N:short      the Nth moves half of the bytes and succeeds (reads and writes)
 *
 * ERRNO is a name (EIO). Nothing fails until the program calls faulty_arm, so that start-up and
 * shut-down, which differ with a second library, are not counted. faulty_hits tells how often it
 * struck. close fails as in Linux: the descriptor is gone all the same.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

void faulty_arm(bool on);
unsigned long faulty_hits(void);

static char name[32];
static int error;
static unsigned long nth, calls, hits;
static bool forever, is_short, armed;

static const struct {
    const char *name;
    int number;
} errors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EINTR", EINTR},
              {"EDQUOT", EDQUOT}, {"EFBIG", EFBIG},   {"EROFS", EROFS},
              {"EAGAIN", EAGAIN}, {"EMFILE", EMFILE}, {"ENOMEM", ENOMEM},
              {"EACCES", EACCES}, {"EPERM", EPERM},   {"EOPNOTSUPP", EOPNOTSUPP}};

__attribute__((constructor)) static void read_fault(void)
{
    const char *fault = getenv("FAULT");
    char error_name[16], how[16] = "";

    if (fault == NULL)
        return;
    if (sscanf(fault, "%31[^:]:%15[^:]:%lu:%15s", name, error_name, &nth, how) < 3)
        abort();
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(error_name, errors[i].name) == 0)
            error = errors[i].number;
    forever = strcmp(how, "forever") == 0;
    is_short = strcmp(how, "short") == 0;
    if (error == 0 || (how[0] != '\0' && !forever && !is_short))
        abort();
}

void faulty_arm(bool on)
{
    armed = on;
}

unsigned long faulty_hits(void)
{
    return hits;
}

static bool strikes(const char *function)
{
    if (!armed || strcmp(name, function) != 0)
        return false;
    calls++;
    if (calls != nth && !(forever && calls > nth))
        return false;
    hits++;
    return true;
}

/* Half of it; of what direct I/O can move, whole blocks. */
static size_t half(size_t n)
{
    return n > 8192 ? n / 2 & ~(size_t)4095 : n / 2;
}

static void *next(const char *function)
{
    return dlsym(RTLD_NEXT, function);
}

/* The call fails without being made. */
#define FAILS(ret, function, params, args)                                                         \
    ret function params                                                                            \
    {                                                                                              \
        static ret(*real) params;                                                                  \
                                                                                                   \
        if (real == NULL)                                                                          \
            *(void **)&real = next(#function);                                                     \
        if (strikes(#function)) {                                                                  \
            errno = error;                                                                         \
            return (ret)-1;                                                                        \
        }                                                                                          \
        return real args;                                                                          \
    }
/* Fails, or moves less. `less` is a statement that makes it so. */
#define MOVES(function, params, args, less)                                                        \
    ssize_t function params                                                                        \
    {                                                                                              \
        static ssize_t(*real) params;                                                              \
        struct iovec one;                                                                          \
                                                                                                   \
        if (real == NULL)                                                                          \
            *(void **)&real = next(#function);                                                     \
        if (strikes(#function)) {                                                                  \
            if (!is_short) {                                                                       \
                errno = error;                                                                     \
                return -1;                                                                         \
            }                                                                                      \
            (void)one;                                                                             \
            less;                                                                                  \
        }                                                                                          \
        return real args;                                                                          \
    }

#define OPENS(function)                                                                            \
    int function(const char *path, int flags, ...)                                                 \
    {                                                                                              \
        static int (*real)(const char *path, int flags, ...);                                      \
        va_list args;                                                                              \
        unsigned mode;                                                                             \
                                                                                                   \
        va_start(args, flags);                                                                     \
        mode = va_arg(args, unsigned);                                                             \
        va_end(args);                                                                              \
        if (real == NULL)                                                                          \
            *(void **)&real = next(#function);                                                     \
        if (strikes(#function)) {                                                                  \
            errno = error;                                                                         \
            return -1;                                                                             \
        }                                                                                          \
        return real(path, flags, mode);                                                            \
    }
OPENS(open)
OPENS(open64)

int fcntl(int fd, int command, ...)
{
    static int (*real)(int fd, int command, ...);
    va_list args;
    void *arg;

    va_start(args, command);
    arg = va_arg(args, void *);
    va_end(args);
    if (real == NULL)
        *(void **)&real = next("fcntl");
    if (strikes("fcntl")) {
        errno = error;
        return -1;
    }
    return real(fd, command, arg);
}

int close(int fd)
{
    static int (*real)(int fd);
    int r;

    if (real == NULL)
        *(void **)&real = next("close");
    r = real(fd);
    if (strikes("close")) {
        errno = error;
        return -1;
    }
    return r;
}

int posix_fallocate(int fd, off_t off, off_t len)
{
    static int (*real)(int fd, off_t off, off_t len);

    if (real == NULL)
        *(void **)&real = next("posix_fallocate");
    return strikes("posix_fallocate") ? error : real(fd, off, len);
}

/* The first buffer of a vector alone, and half of that. */
#define LESS_OF_VECTOR                                                                             \
    one = (struct iovec){iov->iov_base, half(iov->iov_len)};                                       \
    iov = &one;                                                                                    \
    count = 1

MOVES(read, (int fd, void *buf, size_t n), (fd, buf, n), n = half(n))
MOVES(pread, (int fd, void *buf, size_t n, off_t off), (fd, buf, n, off), n = half(n))
MOVES(pread64, (int fd, void *buf, size_t n, off_t off), (fd, buf, n, off), n = half(n))
MOVES(write, (int fd, const void *buf, size_t n), (fd, buf, n), n = half(n))
MOVES(pwrite, (int fd, const void *buf, size_t n, off_t off), (fd, buf, n, off), n = half(n))
MOVES(pwrite64, (int fd, const void *buf, size_t n, off_t off), (fd, buf, n, off), n = half(n))
MOVES(readv, (int fd, const struct iovec *iov, int count), (fd, iov, count), LESS_OF_VECTOR)
MOVES(writev, (int fd, const struct iovec *iov, int count), (fd, iov, count), LESS_OF_VECTOR)
MOVES(preadv, (int fd, const struct iovec *iov, int count, off_t off), (fd, iov, count, off),
      LESS_OF_VECTOR)
MOVES(pwritev, (int fd, const struct iovec *iov, int count, off_t off), (fd, iov, count, off),
      LESS_OF_VECTOR)
MOVES(pwritev2, (int fd, const struct iovec *iov, int count, off_t off, int flags),
      (fd, iov, count, off, flags), LESS_OF_VECTOR)

FAILS(int, fallocate, (int fd, int mode, off_t off, off_t len), (fd, mode, off, len))
FAILS(int, ftruncate, (int fd, off_t len), (fd, len))
FAILS(int, truncate, (const char *path, off_t len), (path, len))
FAILS(int, fsync, (int fd), (fd))
FAILS(int, fdatasync, (int fd), (fd))
FAILS(int, dup, (int fd), (fd))
FAILS(int, dup2, (int fd, int to), (fd, to))
FAILS(off_t, lseek, (int fd, off_t off, int whence), (fd, off, whence))
FAILS(int, fstat, (int fd, struct stat *st), (fd, st))
FAILS(int, unlink, (const char *path), (path))
FAILS(pid_t, fork, (void), ())
FAILS(void *, mmap, (void *at, size_t len, int prot, int flags, int fd, off_t off),
      (at, len, prot, flags, fd, off))
FAILS(int, msync, (void *at, size_t len, int flags), (at, len, flags))

/* With it the shim makes its worker. */
int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
    static int (*real)(int (*fn)(void *), void *stack, int flags, void *arg, ...);
    void *parent_tid, *tls, *child_tid;
    va_list args;

    va_start(args, arg);
    parent_tid = va_arg(args, void *);
    tls = va_arg(args, void *);
    child_tid = va_arg(args, void *);
    va_end(args);
    if (real == NULL)
        *(void **)&real = next("clone");
    if (strikes("clone")) {
        errno = error;
        return -1;
    }
    return real(fn, stack, flags, arg, parent_tid, tls, child_tid);
}
