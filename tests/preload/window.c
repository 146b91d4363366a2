/* SPDX-License-Identifier: MIT */
/* timeout: 120 */
/*
 * window: buffered writers with a writeback_window (window.h). Run by window.sh, with and without.
 *
 *   window contents DIR     every way to write: what is in the files is what was written
 *   window bound DIR KIB    64 MiB in calls of KIB: prints the most that the kernel saw dirty
 *   window many DIR N       N threads, each a file of 16 MiB: the same, over all
 *   window one DIR N        N threads append to one file: prints the most that was dirty
 *   window left DIR         what has to be left alone: direct, synchronous, deleted, mapped
 *   window handlers DIR     signal handlers write the same file, and jump out
 *   window errors FILE N    FILE cannot be stored (lab_small): every descriptor's fsync must say so
 *   window without-cachestat CMD...  runs CMD where the kernel has no cachestat(2)
 *
 * 0: all right; 1: not, and what.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

#define MIB        ((size_t)1 << 20)
#define PIECE      ((size_t)24 << 10) /* not a divisor of a window */
#define FILE_BYTES (12 * MIB)

static char path[400];
static const char *dir;
static atomic_uint failures;

__attribute__((format(printf, 1, 2))) static void not_ok(const char *format, ...)
{
    va_list args;

    atomic_fetch_add(&failures, 1);
    va_start(args, format);
    fputs("not ok: ", stdout);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

static int file(const char *name, int flags)
{
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | flags, 0600);
    if (fd < 0) {
        not_ok("%s: %s", path, strerror(errno));
        exit(1);
    }
    return fd;
}

/* Pages of the file that are not on the disk, as the kernel has it; -1 it does not say. */
static long dirty_pages(int fd)
{
    uint64_t range[2] = {0, 0}, counts[5];

    return syscall(SYS_cachestat, fd, range, counts, 0) == 0 ? (long)(counts[1] + counts[2]) : -1;
}

/* --- contents --- */

static unsigned char at_byte(uint64_t at, unsigned salt)
{
    return (unsigned char)((at * 2654435761u >> 13) + salt) | 1; /* never NUL */
}

static void fill(char *buf, uint64_t at, size_t n, unsigned salt)
{
    for (size_t i = 0; i < n; i++)
        buf[i] = (char)at_byte(at + i, salt);
}

static void check(const char *name, uint64_t bytes, unsigned salt)
{
    static char buf[MIB];
    uint64_t at = 0;
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_RDONLY);
    while ((n = read(fd, buf, sizeof buf)) > 0)
        for (ssize_t i = 0; i < n; i++, at++)
            if ((unsigned char)buf[i] != at_byte(at, salt)) {
                not_ok("%s: byte %llu is wrong", name, (unsigned long long)at);
                close(fd);
                return;
            }
    if (at != bytes)
        not_ok("%s: %llu bytes instead of %llu", name, (unsigned long long)at,
               (unsigned long long)bytes);
    close(fd);
}

static char piece[PIECE];

static ssize_t by_write(int fd, off_t at)
{
    (void)at;
    return write(fd, piece, PIECE);
}
static ssize_t by_pwrite(int fd, off_t at)
{
    return pwrite(fd, piece, PIECE, at);
}
#define HALVES                                                                                     \
    const struct iovec iov[2] = {{piece, PIECE / 2}, {piece + PIECE / 2, PIECE - PIECE / 2}}
static ssize_t by_writev(int fd, off_t at)
{
    HALVES;
    (void)at;
    return writev(fd, iov, 2);
}
static ssize_t by_pwritev(int fd, off_t at)
{
    HALVES;
    return pwritev(fd, iov, 2, at);
}
static ssize_t by_pwritev2(int fd, off_t at)
{
    HALVES;
    return pwritev2(fd, iov, 2, at, 0);
}
static ssize_t by_pwritev2_here(int fd, off_t at)
{
    HALVES;
    (void)at;
    return pwritev2(fd, iov, 2, -1, 0);
}
static ssize_t by_dprintf(int fd, off_t at)
{
    (void)at;
    return dprintf(fd, "%.*s", (int)PIECE, piece);
}

static void each_way_writes_what_it_should(void)
{
    static const struct {
        const char *name;
        ssize_t (*put)(int fd, off_t at);
        int flags;
    } ways[] = {
        {"write", by_write, 0},       {"append", by_write, O_APPEND},
        {"pwrite", by_pwrite, 0},     {"pwrite-append", by_pwrite, O_APPEND},
        {"writev", by_writev, 0},     {"pwritev", by_pwritev, 0},
        {"pwritev2", by_pwritev2, 0}, {"pwritev2-here", by_pwritev2_here, 0},
        {"dprintf", by_dprintf, 0},
    };

    for (unsigned w = 0; w < sizeof ways / sizeof *ways; w++) {
        int fd = file(ways[w].name, ways[w].flags);
        uint64_t at = 0;

        while (at < FILE_BYTES) {
            ssize_t n;

            fill(piece, at, PIECE, w);
            errno = 17;
            n = ways[w].put(fd, (off_t)at);
            if (n != (ssize_t)PIECE || errno != 17) {
                not_ok("%s: %zd, errno %d", ways[w].name, n, errno);
                break;
            }
            at += PIECE;
        }
        close(fd);
        check(ways[w].name, at, w);
        unlink(path);
    }
}

static void streams_write_what_they_should(void)
{
    FILE *stream;
    uint64_t at = 0;

    snprintf(path, sizeof path, "%s/stream", dir);
    stream = fopen(path, "w");
    while (at < FILE_BYTES) {
        fill(piece, at, PIECE, 99);
        errno = 17;
        if (fwrite(piece, 1, PIECE, stream) != PIECE || errno != 17)
            not_ok("fwrite: errno %d", errno);
        at += PIECE;
    }
    if (fclose(stream) != 0)
        not_ok("fclose: %s", strerror(errno));
    check("stream", at, 99);
    unlink(path);
}

/* Pages in an order of their own, many of them twice. */
static void here_and_there(void)
{
    const unsigned pages = 4096, writes = 6000;
    static unsigned newest[4096];
    char page[4096];
    int fd = file("random", 0);
    unsigned rng = 12345;

    for (unsigned i = 1; i <= writes; i++) {
        unsigned p = (rng = rng * 1103515245 + 12345) / 65536 % pages;

        memset(page, 0, sizeof page);
        memcpy(page, &i, sizeof i);
        if (i % 2 != 0 ? pwrite(fd, page, sizeof page, (off_t)p * 4096) != sizeof page
                       : lseek(fd, (off_t)p * 4096, SEEK_SET) < 0 ||
                             write(fd, page, sizeof page) != sizeof page)
            not_ok("here and there: %s", strerror(errno));
        newest[p] = i;
    }
    for (unsigned p = 0; p < pages; p++) {
        unsigned got = 0;

        if (newest[p] != 0 &&
            (pread(fd, &got, sizeof got, (off_t)p * 4096) != sizeof got || got != newest[p]))
            not_ok("here and there: page %u holds write %u instead of %u", p, got, newest[p]);
    }
    close(fd);
    unlink(path);
}

/* --- bounds --- */

static void bound(size_t call_bytes)
{
    char *buf = malloc(call_bytes);
    int fd = file("bound", 0);
    long most = 0;

    memset(buf, 'b', call_bytes);
    for (size_t n = 0; n < 64 * MIB; n += call_bytes) {
        long now;

        if (write(fd, buf, call_bytes) != (ssize_t)call_bytes)
            not_ok("bound: %s", strerror(errno));
        now = dirty_pages(fd);
        most = now < 0 || most < 0 ? -1 : now > most ? now : most;
    }
    if (most < 0)
        puts("most unknown");
    else
        printf("most %ld KiB\n", most * 4);
    close(fd);
    unlink(path);
    free(buf);
}

static int shared_fd;
static atomic_long most_dirty;

static void *own_file(void *arg)
{
    static char block[64 << 10];
    int fd = *(int *)arg;

    for (size_t n = 0; n < 16 * MIB; n += sizeof block)
        if (write(fd, block, sizeof block) != (ssize_t)sizeof block)
            not_ok("many: %s", strerror(errno));
    return NULL;
}

static void *appends(void *arg)
{
    static char block[64 << 10];

    (void)arg;
    for (size_t n = 0; n < 16 * MIB; n += sizeof block) {
        long now;

        if (write(shared_fd, block, sizeof block) != (ssize_t)sizeof block)
            not_ok("one: %s", strerror(errno));
        now = dirty_pages(shared_fd);
        for (long seen = atomic_load(&most_dirty);
             now > seen && !atomic_compare_exchange_weak(&most_dirty, &seen, now);)
            ;
    }
    return NULL;
}

static void many(int n)
{
    pthread_t t[64];
    int fd[64];

    for (int i = 0; i < n; i++) {
        char name[20];

        snprintf(name, sizeof name, "many.%d", i);
        fd[i] = file(name, 0);
    }
    for (int i = 0; i < n; i++)
        pthread_create(&t[i], NULL, own_file, &fd[i]);
    for (int i = 0; i < n; i++) {
        pthread_join(t[i], NULL);
        close(fd[i]);
    }
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/many.%d", dir, i);
        unlink(path);
    }
}

static void one(int n)
{
    pthread_t t[64];
    off_t size;

    shared_fd = file("one", O_APPEND);
    for (int i = 0; i < n; i++)
        pthread_create(&t[i], NULL, appends, NULL);
    for (int i = 0; i < n; i++)
        pthread_join(t[i], NULL);
    size = lseek(shared_fd, 0, SEEK_END);
    if (size != (off_t)(16 * MIB) * n)
        not_ok("one: %lld bytes", (long long)size);
    printf("most %ld KiB\n", atomic_load(&most_dirty) * 4);
    close(shared_fd);
    unlink(path);
}

/* --- what is left alone --- */

static void left_alone(void)
{
    char *block;
    char *map;
    int fd;

    if (posix_memalign((void **)&block, 4096, 64 << 10) != 0)
        exit(1);
    memset(block, 'd', 64 << 10);
    fd = file("direct", O_DIRECT);
    for (int i = 0; i < 64; i++)
        if (pwrite(fd, block, 64 << 10, (off_t)i << 16) != 64 << 10)
            not_ok("direct: %s", strerror(errno));
    close(fd);
    unlink(path);
    fd = file("dsync", O_DSYNC);
    for (int i = 0; i < 64; i++)
        if (write(fd, block, 64 << 10) != 64 << 10)
            not_ok("dsync: %s", strerror(errno));
    close(fd);
    unlink(path);
    fd = file("deleted", 0);
    unlink(path);
    for (int i = 0; i < 256; i++)
        if (write(fd, block, 64 << 10) != 64 << 10)
            not_ok("deleted: %s", strerror(errno));
    close(fd);
    fd = open(dir, O_TMPFILE | O_RDWR, 0600);
    for (int i = 0; fd >= 0 && i < 256; i++)
        if (write(fd, block, 64 << 10) != 64 << 10)
            not_ok("no name: %s", strerror(errno));
    close(fd);
    fd = file("mapped", 0);
    if (ftruncate(fd, 16 * MIB) != 0 ||
        (map = mmap(NULL, 16 * MIB, PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
        exit(1);
    memset(map, 'm', 16 * MIB);
    munmap(map, 16 * MIB);
    close(fd);
    unlink(path);
}

/* --- handlers --- */

static int handled_fd;
static sigjmp_buf out;
static volatile sig_atomic_t jumps, handled;

static void writes_in_handler(int sig)
{
    static char block[96 << 10];

    (void)sig;
    if (write(handled_fd, block, sizeof block) != (ssize_t)sizeof block)
        not_ok("a handler cannot write");
    handled++;
    if (jumps)
        siglongjmp(out, 1);
}

static void handlers(void)
{
    const struct itimerval often = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = writes_in_handler, .sa_flags = SA_RESTART};
    static char block[64 << 10];
    volatile int left = 600;

    handled_fd = file("handled", O_APPEND);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    while (left > 0) {
        if (left < 300)
            jumps = 1;
        if (sigsetjmp(out, 1) == 0)
            if (write(handled_fd, block, sizeof block) != (ssize_t)sizeof block)
                not_ok("a write beside a handler: %s", strerror(errno));
        left--;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    if (handled == 0)
        not_ok("no handler ran");
    close(handled_fd);
    unlink(path);
}

/* --- errors --- */

static int dirty(int fd, int block_no)
{
    static char block[64 << 10];

    memset(block, 'e', sizeof block);
    return pwrite(fd, block, sizeof block, (off_t)block_no * (off_t)sizeof block) ==
                   (ssize_t)sizeof block
               ? 0
               : errno;
}

/* Every description that was open when the writeback failed hears of it once. */
static void errors(const char *name, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        int writer = open(name, O_RDWR), other = open(name, O_RDWR), copy = dup(writer);
        int first, second, third, again;

        if (writer < 0 || other < 0 || copy < 0) {
            not_ok("%s: %s", name, strerror(errno));
            return;
        }
        for (int b = 0; b < 32; b++)
            if (dirty(writer, (i * 32 + b) % 120) != 0)
                not_ok("round %d: a buffered write is refused", i);
        first = (i % 2 != 0 ? fsync(writer) : fdatasync(writer)) != 0 ? errno : 0;
        second = fsync(other) != 0 ? errno : 0;
        third = fsync(copy) != 0 ? errno : 0; /* the writer's description, told already */
        again = fsync(writer) != 0 ? errno : 0;
        if (first == 0 || second == 0)
            not_ok("round %d: writeback failed, but fsync says %d on the writer's descriptor and "
                   "%d on another",
                   i, first, second);
        if (third != 0 || again != 0)
            not_ok("round %d: an error is told twice: %d, then %d", i, third, again);
        /* And one that is opened after it failed, before anybody was told. */
        for (int b = 0; b < 32; b++)
            dirty(writer, b);
        close(copy);
        close(other);
        close(writer);
    }
}

/* A failure that nobody was told of waits for who opens the file next. */
static void untold(const char *name)
{
    int fd = open(name, O_RDWR), r;

    for (int b = 0; b < 64; b++)
        dirty(fd, b);
    while (dirty_pages(fd) > 0 && sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) == 0)
        usleep(1000);
    close(fd);
    fd = open(name, O_RDWR);
    r = fsync(fd);
    if (r == 0)
        not_ok("writeback failed untold, and an fsync by who opened the file afterwards succeeds");
    close(fd);
}

static int without_cachestat(char **argv)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_cachestat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return 77;
    execvp(argv[0], argv);
    return 127;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int n = argc > 3 ? atoi(argv[3]) : 0;

    if (argc < 3)
        return 2;
    if (strcmp(what, "without-cachestat") == 0)
        return without_cachestat(argv + 2);
    dir = argv[2];
    if (strcmp(what, "contents") == 0) {
        each_way_writes_what_it_should();
        streams_write_what_they_should();
        here_and_there();
    } else if (strcmp(what, "bound") == 0 && n > 0) {
        bound((size_t)n << 10);
    } else if (strcmp(what, "many") == 0 && n > 0 && n <= 64) {
        many(n);
    } else if (strcmp(what, "one") == 0 && n > 0 && n <= 64) {
        one(n);
    } else if (strcmp(what, "left") == 0) {
        left_alone();
    } else if (strcmp(what, "handlers") == 0) {
        handlers();
    } else if (strcmp(what, "errors") == 0 && n > 0) {
        errors(dir, n);
    } else if (strcmp(what, "untold") == 0) {
        untold(dir);
    } else {
        return 2;
    }
    return atomic_load(&failures) != 0;
}
