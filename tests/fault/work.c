/* SPDX-License-Identifier: MIT */
/* timeout: 60 */
/*
 * work: the same calls in the same order every time, each result told in one line, and everything
 * read compared with a model that believes what the calls returned. Run by fault.sh and worker.sh
 * with one call made to fail.
 *
 *   work DIR plain          every kind of call, on a file with a name and on one without
 *   work DIR big            direct writes that the shim makes in pieces
 *   work DIR punches        a punch, then, once they are deferred, 64 more; waits; reads
 *   … DIR PHASE defer       waits for deferral after the first punch
 *   … DIR PHASE pieces      a failed big write may have been partly made
 *   … DIR PHASE retried     a failed or short write may have been made again, with success
 *
 * The lines are the output. 0: all that was read was right; 1: something was not (a line WRONG says
 * what); 77: DIR cannot do it. The last line is "hits N", and with the shim "deferred N" before it
 * on stderr.
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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../include/rlshim/control.h"
#include "../../lockmgr/rawcall.h"

#define PUNCH       (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define K           1024
#define MODEL_BYTES ((size_t)4096 * K)
#define LOG_BYTES   ((size_t)256 * K)
#define UNTOUCHED   4242 /* in errno before every call */

/* What the file must hold, by the results of the calls so far. */
struct file {
    char path[200];
    char *bytes; /* shared with children, as the file is */
    off_t *size;
    off_t at; /* file position */
};

static struct {
    size_t used;
    unsigned wrong;
    char text[LOG_BYTES];
} * told; /* shared with children */

static void (*arm)(bool on);
static unsigned long (*hits_of_library)(void);
static unsigned long hits_before, errors_seen;
static bool defer, pieces, retried;
static char stamp = 'a';
static char *buf, *got; /* MODEL_BYTES each, aligned for direct I/O */

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    told->used += (size_t)vsnprintf(told->text + told->used, LOG_BYTES - told->used, format, args);
    va_end(args);
    if (told->used >= LOG_BYTES)
        _exit(3);
}

__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...)
{
    va_list args;

    told->wrong++;
    say("WRONG: ");
    va_start(args, format);
    told->used += (size_t)vsnprintf(told->text + told->used, LOG_BYTES - told->used, format, args);
    va_end(args);
    say("\n");
}

static unsigned long hits(void)
{
    return hits_of_library != NULL ? hits_of_library() : 0;
}

static bool struck(void)
{
    return hits() != hits_before;
}

/* Around every call: `before()` then `after(…)`. */
static void before(void)
{
    hits_before = hits();
    errno = UNTOUCHED;
}

static long after(const char *call, long long off, size_t len, long r)
{
    int error = errno;

    say("%s %lld+%zu = %ld", call, off, len, r);
    if (error != UNTOUCHED)
        say(" %s", strerrorname_np(error));
    say("\n");
    if (r == -1 && error == EIO)
        errors_seen++;
    if (r >= 0 && error != UNTOUCHED)
        wrong("%s succeeded and touched errno", call);
    return r;
}
#define DO(name, off, len, ...) (before(), after(name, off, len, (long)(__VA_ARGS__)))

/* --- the model --- */

static void fill(size_t len)
{
    for (size_t i = 0; i < len; i++)
        buf[i] = (char)(stamp + (char)(i / 512 % 7));
    stamp = stamp == 'w' ? 'a' : (char)(stamp + 1);
}

static void grows(struct file *f, off_t to)
{
    if (to <= *f->size)
        return;
    memset(f->bytes + *f->size, 0, (size_t)(to - *f->size));
    *f->size = to;
}

static void wrote(struct file *f, off_t off, size_t asked, long n)
{
    bool whole = n == (long)asked;

    if (n < 0)
        return;
    grows(f, off + n);
    memcpy(f->bytes + off, buf, (size_t)n);
    if (!whole && !struck())
        wrong("a write of %zu made %ld though nothing failed", asked, n);
    if (whole && struck() && !retried)
        wrong("a write of %zu at %lld hides a failure", asked, (long long)off);
    if (pieces && struck() && n % 4096 != 0)
        wrong("a write in pieces ended inside a block: %ld", n);
}

static void read_it(struct file *f, off_t off, size_t asked, long n)
{
    long there = *f->size > off ? (long)(*f->size - off) : 0;

    if (n < 0)
        return;
    if (n != (there < (long)asked ? there : (long)asked) && !struck())
        wrong("a read of %zu at %lld got %ld", asked, (long long)off, n);
    for (long i = 0; i < n; i++)
        if (got[i] != f->bytes[off + i]) {
            wrong("byte %lld is %d instead of %d", (long long)off + i, got[i], f->bytes[off + i]);
            return;
        }
}

static void punched(struct file *f, off_t off, size_t len, long r)
{
    if (r == 0 && off < *f->size)
        memset(f->bytes + off, 0, off + (off_t)len < *f->size ? len : (size_t)(*f->size - off));
}

static void cut(struct file *f, off_t size, long r)
{
    if (r != 0)
        return;
    grows(f, size);
    *f->size = size;
}

static void check_position(const struct file *f, int fd)
{
    long at = rl_raw(SYS_lseek, fd, 0L, SEEK_CUR);

    if (at >= 0 && at != f->at)
        wrong("the file position is %ld instead of %lld", at, (long long)f->at);
}

/* --- calls --- */

/* In two buffers, the first of them the smaller. */
#define VECTOR(memory, len)                                                                        \
    (struct iovec[])                                                                               \
    {                                                                                              \
        {memory, (len) / 4},                                                                       \
        {                                                                                          \
            (memory) + (len) / 4, (len) - (len) / 4                                                \
        }                                                                                          \
    }

#define WRITES(name, ...)                                                                          \
    static void do_##name(struct file *f, int fd, off_t off, size_t len)                           \
    {                                                                                              \
        fill(len);                                                                                 \
        wrote(f, off, len, DO(#name, off, len, name(fd, __VA_ARGS__)));                            \
    }
WRITES(pwrite, buf, len, off)
WRITES(pwrite64, buf, len, off)
WRITES(pwritev, VECTOR(buf, len), 2, off)
WRITES(pwritev2, VECTOR(buf, len), 2, off, 0)

#define WRITES_HERE(name, ...)                                                                     \
    static void do_##name(struct file *f, int fd, size_t len)                                      \
    {                                                                                              \
        long n;                                                                                    \
                                                                                                   \
        fill(len);                                                                                 \
        n = DO(#name, f->at, len, name(fd, __VA_ARGS__));                                          \
        wrote(f, f->at, len, n);                                                                   \
        f->at += n > 0 ? n : 0;                                                                    \
        check_position(f, fd);                                                                     \
    }
WRITES_HERE(write, buf, len)
WRITES_HERE(writev, VECTOR(buf, len), 2)

#define READS(name, ...)                                                                           \
    static void do_##name(struct file *f, int fd, off_t off, size_t len)                           \
    {                                                                                              \
        memset(got, '#', len);                                                                     \
        read_it(f, off, len, DO(#name, off, len, name(fd, __VA_ARGS__)));                          \
    }
READS(pread, got, len, off)
READS(pread64, got, len, off)
READS(preadv, VECTOR(got, len), 2, off)

#define READS_HERE(name, ...)                                                                      \
    static void do_##name(struct file *f, int fd, size_t len)                                      \
    {                                                                                              \
        long n;                                                                                    \
                                                                                                   \
        memset(got, '#', len);                                                                     \
        n = DO(#name, f->at, len, name(fd, __VA_ARGS__));                                          \
        read_it(f, f->at, len, n);                                                                 \
        f->at += n > 0 ? n : 0;                                                                    \
        check_position(f, fd);                                                                     \
    }
READS_HERE(read, got, len)
READS_HERE(readv, VECTOR(got, len), 2)

static void nap(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    rl_raw(SYS_nanosleep, &t, NULL);
}

static void do_punch(struct file *f, int fd, off_t off, size_t len)
{
    punched(f, off, len, DO("punch", off, len, fallocate(fd, PUNCH, off, (off_t)len)));
}

/* The first of a file, after which the shim looks whether it may defer the next. */
static void do_first_punch(struct file *f, int fd, off_t off, size_t len)
{
    uint64_t granted = rl_counter("evidence_granted");
    uint64_t refused = rl_counter("evidence_refused");

    do_punch(f, fd, off, len);
    for (int ms = 0; defer && rl_active() && ms < 400; ms++) {
        if (rl_counter("evidence_granted") != granted || rl_counter("evidence_refused") != refused)
            break;
        nap(1);
    }
    /* Deferral begins with the punch after one that the kernel made some time after the evidence.
     */
    if (defer && rl_active() && rl_counter("evidence_granted") != granted) {
        nap(30);
        punched(f, off, len, fallocate(fd, PUNCH, off, (off_t)len));
    }
}

static void do_fallocate(struct file *f, int fd, int mode, off_t off, size_t len)
{
    long r = DO(mode == 0 ? "fallocate" : "zero", off, len, fallocate(fd, mode, off, (off_t)len));

    if (r == 0 && mode == 0)
        grows(f, off + (off_t)len);
    else if (r == 0)
        punched(f, off, len, r);
}

static void do_posix_fallocate(struct file *f, int fd, off_t off, off_t len)
{
    int error;

    before();
    error = posix_fallocate(fd, off, len); /* errno it leaves alone, or not */
    errno = error != 0 ? error : UNTOUCHED;
    if (after("posix_fallocate", off, (size_t)len, error != 0 ? -1 : 0) == 0)
        grows(f, off + len);
}

static void do_lseek(struct file *f, int fd, off_t to)
{
    long r = DO("lseek", to, 0, lseek(fd, to, SEEK_SET));

    if (r >= 0)
        f->at = r;
}

static int do_open(struct file *f, int flags)
{
    int fd = (int)DO("open", flags, 0, open(f->path, flags | O_CLOEXEC, 0600));

    if (fd >= 0 && (flags & O_TRUNC) != 0)
        *f->size = 0;
    f->at = 0;
    return fd;
}

static void do_fstat(struct file *f, int fd)
{
    struct stat st = {.st_size = -1};

    if (DO("fstat", 0, 0, fstat(fd, &st)) == 0 && st.st_size != *f->size)
        wrong("the size is %lld instead of %lld", (long long)st.st_size, (long long)*f->size);
}

static void do_map(struct file *f, int fd)
{
    size_t len = 16 * K;
    char *p;

    before();
    p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    after("mmap", 0, len, p == MAP_FAILED ? -1 : 0);
    if (p == MAP_FAILED)
        return;
    if ((size_t)*f->size >= len) {
        if (memcmp(p, f->bytes, len) != 0)
            wrong("the mapping holds something else");
        memset(p + 100, 'M', 100);
        memset(f->bytes + 100, 'M', 100);
    }
    DO("msync", 0, len, msync(p, len, MS_SYNC));
    munmap(p, len);
}

static void do_fork(struct file *f, int fd)
{
    int status, error;
    pid_t pid;

    before();
    pid = fork();
    if (pid == 0) {
        errors_seen = 0;
        hits_before = hits();
        do_pread(f, fd, 0, 128 * K);
        do_punch(f, fd, 20 * K, 8 * K);
        do_pwrite(f, fd, 22 * K, 1 * K);
        do_pread(f, fd, 16 * K, 32 * K);
        DO("close", 0, 0, close(fd));
        rl_raw(SYS_exit_group, 0);
    }
    error = errno;
    if (pid > 0 && (waitpid(pid, &status, 0) != pid || status != 0))
        wrong("the child ended with %d", status);
    errno = error;
    after("fork", 0, 0, pid > 0 ? 0 : pid);
}

/* --- phases --- */

static void check_all(struct file *f, int fd)
{
    long n;

    memset(got, '#', (size_t)*f->size);
    n = rl_raw(SYS_pread64, fd, got, MODEL_BYTES, 0L);
    if (fd >= 0 && n != *f->size)
        wrong("in the end %ld bytes instead of %lld", n, (long long)*f->size);
    if (n > 0 && memcmp(got, f->bytes, (size_t)n) != 0)
        wrong("in the end the file holds something else");
}

static void settle_and_check_all(struct file *f, int fd)
{
    if (fd < 0)
        return;
    rl_settle();
    check_all(f, fd);
}

static void plain(struct file *f, bool unlinked)
{
    int fd = do_open(f, O_RDWR | O_CREAT | O_TRUNC);
    int second = do_open(f, O_RDWR);
    int third;

    if (unlinked)
        DO("unlink", 0, 0, unlink(f->path));
    for (off_t i = 0; i < 12; i += 2) {
        do_pwrite(f, fd, i * 11 * K, 11 * K);
        do_pwrite64(f, second, (i + 1) * 11 * K, 11 * K);
    }
    do_write(f, fd, 3000);
    do_lseek(f, fd, 20 * K + 7);
    do_write(f, fd, 3000);
    do_writev(f, fd, 4000);
    do_read(f, fd, 5000);
    do_readv(f, fd, 5000);
    do_first_punch(f, fd, 8 * K, 8 * K);
    do_punch(f, second, 24 * K, 40 * K);
    do_punch(f, fd, 68 * K, 512);
    do_pread(f, fd, 0, 80 * K);
    do_pread64(f, second, 23 * K, 3 * K);
    do_preadv(f, fd, 7 * K, 30 * K);
    do_lseek(f, fd, 30 * K);
    do_read(f, fd, 8 * K);
    do_write(f, fd, 2 * K);
    do_readv(f, fd, 8 * K);
    do_pwritev(f, fd, 26 * K, 2 * K);
    do_punch(f, fd, 100 * K, 4 * K);
    do_pwritev2(f, second, 101 * K, 2 * K);
    do_pread(f, second, 0, 132 * K);
    do_fstat(f, fd);
    do_punch(f, fd, 120 * K, 400 * K);
    do_fallocate(f, fd, 0, 130 * K, 10 * K);
    do_fallocate(f, fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 4 * K, 8 * K);
    do_posix_fallocate(f, fd, 140 * K, 4 * K);
    do_punch(f, fd, 60 * K, 8 * K);
    cut(f, 62 * K, DO("ftruncate", 62 * K, 0, ftruncate(fd, 62 * K)));
    cut(f, 150 * K, DO("ftruncate", 150 * K, 0, ftruncate(second, 150 * K)));
    do_pread(f, fd, 32 * K, 128 * K);
    do_punch(f, fd, 64 * K, 4 * K);
    DO("fsync", 0, 0, fsync(fd));
    do_punch(f, fd, 32 * K, 4 * K);
    if (DO("fdatasync", 0, 0, fdatasync(second)) == 0)
        check_all(f, fd);
    third = (int)DO("dup", 0, 0, dup(fd));
    do_pread(f, third, 0, 10 * K);
    do_punch(f, third, 0, 4 * K);
    DO("close", 0, 0, close(third));
    third = (int)DO("dup2", 0, 0, dup2(fd, 50));
    do_pwrite(f, third, 2 * K, 10 * K);
    do_punch(f, third, 4 * K, 4 * K);
    DO("close", 0, 0, close(third));
    third = (int)DO("dupfd", 0, 0, fcntl(fd, F_DUPFD_CLOEXEC, 60));
    do_pread(f, third, 0, 10 * K);
    DO("close", 0, 0, close(third));
    do_fork(f, fd);
    do_map(f, fd);
    do_pread(f, fd, 0, 150 * K);
    DO("close", 0, 0, close(second));
    settle_and_check_all(f, fd);
    DO("close", 0, 0, close(fd));
    if (unlinked)
        return;
    fd = do_open(f, O_RDWR | O_TRUNC);
    do_pwrite(f, fd, 3 * K, 9 * K);
    do_punch(f, fd, 4 * K, 4 * K);
    cut(f, 10 * K, DO("truncate", 10 * K, 0, truncate(f->path, 10 * K)));
    do_pread(f, fd, 0, 16 * K);
    settle_and_check_all(f, fd);
    DO("close", 0, 0, close(fd));
    DO("unlink", 0, 0, unlink(f->path));
}

static void big(struct file *f, bool unlinked)
{
    int fd;

    fd = do_open(f, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT);
    if (unlinked)
        DO("unlink", 0, 0, unlink(f->path));
    do_pwrite(f, fd, 0, 1024 * K);
    do_pwrite64(f, fd, 1024 * K, 1024 * K);
    do_first_punch(f, fd, 256 * K, 128 * K);
    do_lseek(f, fd, 512 * K);
    do_write(f, fd, 1024 * K);
    do_punch(f, fd, 640 * K, 64 * K);
    do_writev(f, fd, 1024 * K);
    do_pread(f, fd, 512 * K, 1024 * K);
    do_punch(f, fd, 1536 * K, 256 * K);
    do_pwritev(f, fd, 1280 * K, 1024 * K);
    do_pread64(f, fd, 1024 * K, 1024 * K);
    do_lseek(f, fd, 0);
    do_read(f, fd, 1024 * K);
    do_read(f, fd, 1024 * K);
    cut(f, 2048 * K, DO("ftruncate", 0, 0, ftruncate(fd, 2048 * K)));
    DO("fsync", 0, 0, fsync(fd));
    settle_and_check_all(f, fd);
    DO("close", 0, 0, close(fd));
    if (!unlinked)
        DO("unlink", 0, 0, unlink(f->path));
}

/* Reads and writes here by vectors only: worker.sh makes every pwrite64 of the worker fail. */
static void punches(struct file *f, bool unlinked)
{
    int fd = do_open(f, O_RDWR | O_CREAT | O_TRUNC);

    if (unlinked)
        DO("unlink", 0, 0, unlink(f->path));
    for (off_t i = 0; i < 8; i++)
        do_pwritev(f, fd, i * 64 * K, 64 * K);
    do_first_punch(f, fd, 0, 4 * K);
    for (off_t i = 0; i < 64; i++)
        do_punch(f, fd, (i * 37 % 64 + 1) * 8 * K - 4 * K, 4 * K);
    do_preadv(f, fd, 0, 512 * K);
    nap(50); /* the worker is at it */
    do_preadv(f, fd, 0, 512 * K);
    do_pwritev(f, fd, 200 * K, 20 * K);
    do_preadv(f, fd, 0, 512 * K);
    DO("fsync", 0, 0, fsync(fd));
    do_punch(f, fd, 300 * K, 20 * K);
    do_preadv(f, fd, 0, 512 * K);
    rl_settle();
    DO("close", 0, 0, close(fd));
    /* With a descriptor that the shim has not yet seen: the file itself. */
    if (!unlinked) {
        fd = (int)rl_raw(SYS_openat, AT_FDCWD, f->path, O_RDONLY | O_CLOEXEC, 0);
        check_all(f, fd);
        rl_raw(SYS_close, fd);
        DO("unlink", 0, 0, unlink(f->path));
    }
}

static void *shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        _exit(3);
    return p;
}

static void make_file(struct file *f, const char *dir, const char *name)
{
    snprintf(f->path, sizeof f->path, "%s/%s", dir, name);
    f->bytes = shared(2 * MODEL_BYTES);
    f->size = shared(sizeof *f->size);
}

static bool direct_works(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    bool works = fd >= 0 && pwrite(fd, buf, 4096, 0) == 4096;

    close(fd);
    unlink(path);
    return works;
}

int main(int argc, char **argv)
{
    void (*phase)(struct file *, bool) = NULL;
    static struct file named, nameless;

    alarm(50);
    for (int i = 3; i < argc; i++) {
        defer |= strcmp(argv[i], "defer") == 0;
        pieces |= strcmp(argv[i], "pieces") == 0;
        retried |= strcmp(argv[i], "retried") == 0;
    }
    if (argc >= 3)
        phase = strcmp(argv[2], "plain") == 0     ? plain
                : strcmp(argv[2], "big") == 0     ? big
                : strcmp(argv[2], "punches") == 0 ? punches
                                                  : NULL;
    if (phase == NULL) {
        fputs("usage: work DIR plain|big|punches [defer] [pieces] [retried]\n", stderr);
        return 2;
    }
    told = shared(sizeof *told);
    buf = shared(MODEL_BYTES);
    got = shared(MODEL_BYTES);
    make_file(&named, argv[1], "work-named");
    make_file(&nameless, argv[1], "work-nameless");
    if (phase == big && !direct_works(named.path)) {
        puts("SKIP: no direct I/O here");
        return 77;
    }
    arm = (void (*)(bool))dlsym(RTLD_DEFAULT, "faulty_arm");
    hits_of_library = (unsigned long (*)(void))dlsym(RTLD_DEFAULT, "faulty_hits");
    if (arm != NULL)
        arm(true);
    phase(&named, false);
    phase(&nameless, true);
    if (arm != NULL)
        arm(false);
    /* Children count for themselves. In pieces, an error after the first is a short count. */
    if (!pieces && !retried && errors_seen > 0 && hits_of_library != NULL && errors_seen != hits())
        wrong("%lu calls failed, the program saw %lu", hits(), errors_seen);
    rl_raw(SYS_write, STDOUT_FILENO, told->text, told->used);
    printf("hits %lu\n", hits());
    fprintf(stderr, "deferred %llu\n", (unsigned long long)rl_counter("punch_deferred"));
    unlink(named.path);
    unlink(nameless.path);
    return told->wrong != 0 ? 1 : 0;
}
