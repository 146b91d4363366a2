/* SPDX-License-Identifier: MIT */
/*
 * tail DIR SECONDS|full [NAME]: what is seen of a file that is extended ahead of big direct writes.
 *
 * One appender writes blocks that each hold their own number, so that whoever reads one knows
 * whether it is the right one. Meanwhile, each with a descriptor of its own:
 *   - readers go by fstat, statx or SEEK_END: what is below that size must be there, and a read
 *     ends where the written blocks end;
 *   - a puncher keeps punching the head of the file, which nobody reads;
 *   - disturbers do what takes the extension back: O_APPEND, copies, a fork whose child looks;
 *     or write beside the appender, into places of their own behind it.
 * Two rounds: readers alone, then with disturbers. At the end every block must be there and the
 * size must be what was written. full: one round, until the disk is full. With NAME the file keeps
 * its name (share = private).
 *
 * Prints "ok: ..." and exits with 0, or says what was seen and exits with 1; 77: no O_DIRECT here.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCK  4096u
#define HEAD   (256u * BLOCK) /* for the puncher */
#define APPEND (8u << 20)
#define BESIDE (60u * BLOCK)
#define MOST   ((uint64_t)1 << 30) /* of one round */

static char path[4096];
static int origin;
static atomic_ullong placed; /* where the next write goes */
static atomic_bool over;
static atomic_int failed;
static atomic_ulong looks, children;

static void wrong(const char *what, uint64_t at, uint64_t got)
{
    if (atomic_fetch_add(&failed, 1) < 5)
        printf("not ok: %s: at %llu: %llu\n", what, (unsigned long long)at,
               (unsigned long long)got);
    atomic_store(&over, true);
}

static int reopen(int flags)
{
    char name[64];
    int fd;

    snprintf(name, sizeof name, "/proc/self/fd/%d", origin);
    fd = open(name, flags | O_CLOEXEC);
    if (fd < 0) {
        perror("open");
        exit(1);
    }
    return fd;
}

static void *blocks(size_t bytes)
{
    void *p = NULL;

    if (posix_memalign(&p, BLOCK, bytes) != 0)
        exit(1);
    return p;
}

static void stamp(char *buf, size_t bytes, uint64_t at)
{
    for (size_t i = 0; i < bytes; i += BLOCK) {
        uint64_t *block = (uint64_t *)(void *)(buf + i);

        for (size_t w = 0; w < BLOCK / sizeof *block; w++)
            block[w] = at + i;
    }
}

/* The first block that is not as stamped, or bytes. */
static size_t compare(const char *buf, size_t bytes, uint64_t at)
{
    for (size_t i = 0; i < bytes; i += BLOCK) {
        const uint64_t *block = (const uint64_t *)(const void *)(buf + i);
        size_t words = (bytes - i < BLOCK ? bytes - i : BLOCK) / sizeof *block;

        for (size_t w = 0; w < words; w++)
            if (block[w] != at + i)
                return i;
    }
    return bytes;
}

static void put(int fd, char *buf, size_t bytes, uint64_t at)
{
    ssize_t n;

    stamp(buf, bytes, at);
    n = pwrite(fd, buf, bytes, (off_t)at);
    if (n != (ssize_t)bytes)
        wrong("a write came short", at, (uint64_t)n);
}

static void *appender(void *arg)
{
    int fd = reopen(O_WRONLY | O_DIRECT);
    char *buf = blocks(APPEND);

    (void)arg;
    while (!atomic_load(&over)) {
        uint64_t at = atomic_fetch_add(&placed, APPEND);

        if (at + APPEND > MOST)
            break;
        put(fd, buf, APPEND, at);
    }
    free(buf);
    close(fd);
    return NULL;
}

/* Into places behind the appender's, which it is about to reach with its size. */
static void *beside(void *arg)
{
    int fd = reopen(O_WRONLY | O_DIRECT);
    char *buf = blocks(BESIDE);

    (void)arg;
    while (!atomic_load(&over)) {
        uint64_t at = atomic_fetch_add(&placed, BESIDE);

        if (at + BESIDE > MOST)
            break;
        put(fd, buf, BESIDE, at);
        usleep(at / BESIDE % 7 * 500);
    }
    free(buf);
    close(fd);
    return NULL;
}

static off_t size_by(int fd, unsigned how)
{
    struct statx stx;
    struct stat st;

    switch (how % 3) {
    case 0:
        return fstat(fd, &st) == 0 ? st.st_size : -1;
    case 1:
        return statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &stx) == 0 ? (off_t)stx.stx_size
                                                                          : -1;
    default:
        return lseek(fd, 0, SEEK_END);
    }
}

/* Alone with one appender: what is below the size is there. */
static void *reader(void *arg)
{
    bool direct = arg != NULL;
    int fd = reopen(O_RDONLY | (direct ? O_DIRECT : 0));
    char *buf = blocks(64 * BLOCK);
    off_t last = 0;

    for (unsigned i = 0; !atomic_load(&over); i++) {
        /* SEEK_END has the tail given back: now and then only. */
        off_t size = size_by(fd, i % 64 == 63 ? 2 : i % 2);
        off_t from;
        ssize_t n;

        if (size < last)
            wrong("the size ran backwards", (uint64_t)last, (uint64_t)size);
        last = size;
        if (size % BLOCK != 0)
            wrong("a size that no write made", (uint64_t)size, 0);
        if (size < (off_t)HEAD + 8 * (off_t)BLOCK)
            continue;
        from = size - 8 * (off_t)BLOCK;
        if (i % 3 == 0)
            n = preadv(fd, (struct iovec[]){{buf, 3 * BLOCK}, {buf + 3 * BLOCK, 61 * BLOCK}}, 2,
                       from);
        else
            n = pread(fd, buf, 64 * BLOCK, from);
        if (n < 8 * (ssize_t)BLOCK) {
            wrong("a read ends before the size that was shown", (uint64_t)from, (uint64_t)n);
        } else {
            size_t good = compare(buf, (size_t)n, (uint64_t)from);

            if (good != (size_t)n)
                wrong("a read gave what nobody wrote", (uint64_t)from + good,
                      *(uint64_t *)(void *)(buf + good));
        }
        atomic_fetch_add(&looks, 1);
    }
    free(buf);
    close(fd);
    return NULL;
}

static void *puncher(void *arg)
{
    int fd = reopen(O_RDWR);

    (void)arg;
    for (unsigned i = 0; !atomic_load(&over); i++) {
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      (off_t)(i % (HEAD / BLOCK)) * BLOCK, BLOCK) != 0)
            wrong("a punch failed", i, (uint64_t)errno);
        usleep(200);
    }
    close(fd);
    return NULL;
}

/* Everything that needs the true size, one after the other. */
static void *disturber(void *arg)
{
    int fd = reopen(O_RDWR);
    char *buf = blocks(BLOCK);
    struct stat st;

    (void)arg;
    for (unsigned i = 0; !atomic_load(&over); i++) {
        off_t size;
        pid_t pid;

        switch (i % 4) {
        case 0:
            size = lseek(fd, 0, SEEK_END);
            if (size < 0 || size % BLOCK != 0)
                wrong("SEEK_END shows a size that no write made", (uint64_t)size, 0);
            break;
        case 1:
            size = lseek(fd, HEAD, SEEK_DATA);
            if (size < (off_t)HEAD && errno != ENXIO) /* nothing was written yet */
                wrong("SEEK_DATA failed", HEAD, (uint64_t)errno);
            break;
        case 2: /* a child sees the file as it is, in its own process */
            if (i % 16 != 2)
                break;
            pid = fork();
            if (pid == 0)
                _exit(fstat(fd, &st) == 0 && st.st_size % BLOCK == 0 ? 0 : 1);
            if (pid > 0) {
                int status = 0;

                waitpid(pid, &status, 0);
                if (status != 0)
                    wrong("a child saw a size that no write made", i, 0);
                atomic_fetch_add(&children, 1);
            }
            break;
        default:
            if (fdatasync(fd) != 0)
                wrong("fdatasync failed", i, (uint64_t)errno);
        }
        usleep(2000);
    }
    free(buf);
    close(fd);
    return NULL;
}

/* Until the disk is full. A write that fails in the middle leaves what it said, and no more. */
static void *filler(void *arg)
{
    int fd = reopen(O_WRONLY | O_DIRECT);
    char *buf = blocks(APPEND);
    uint64_t at = HEAD;

    (void)arg;
    for (;;) {
        ssize_t n;

        stamp(buf, APPEND, at);
        n = pwrite(fd, buf, APPEND, (off_t)at);
        if (n < 0 && errno != ENOSPC)
            wrong("a full disk says something else", at, (uint64_t)errno);
        if (n <= 0)
            break;
        at += (uint64_t)n;
    }
    atomic_store(&placed, at);
    atomic_store(&over, true);
    free(buf);
    close(fd);
    return NULL;
}

static void round_of(const char *name, unsigned seconds, void *(*const *body)(void *),
                     void *const *args, int n)
{
    pthread_t thread[16];
    struct timespec t = {seconds, 0};
    uint64_t end;
    char *buf = blocks(APPEND);
    struct stat st;

    if (ftruncate(origin, 0) != 0 || ftruncate(origin, HEAD) != 0)
        exit(1);
    atomic_store(&placed, HEAD);
    atomic_store(&over, false);
    for (int i = 0; i < n; i++)
        if (pthread_create(&thread[i], NULL, body[i], args[i]) != 0)
            exit(1);
    for (unsigned i = 0; i < seconds * 20 && !atomic_load(&over); i++) {
        t = (struct timespec){0, 50000000};
        nanosleep(&t, NULL);
    }
    atomic_store(&over, true);
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    if (fstat(origin, &st) != 0)
        exit(1);
    end = atomic_load(&placed);
    if (end > MOST)
        end = (uint64_t)st.st_size; /* the last ones did not take their places */
    if ((uint64_t)st.st_size != end)
        wrong("the size at the end", end, (uint64_t)st.st_size);
    for (uint64_t at = HEAD; at < end && atomic_load(&failed) == 0; at += APPEND) {
        size_t len = end - at < APPEND ? (size_t)(end - at) : APPEND;
        ssize_t r = pread(origin, buf, len, (off_t)at);
        size_t good = r > 0 ? compare(buf, (size_t)r, at) : 0;

        if (r != (ssize_t)len || good != len)
            wrong("lost", at + good,
                  r < 0 ? 0 : *(uint64_t *)(void *)(buf + (good < len ? good : 0)));
    }
    free(buf);
    if (atomic_load(&failed) == 0)
        printf("ok: %s: %llu MiB, all there\n", name, (unsigned long long)(end >> 20));
}

int main(int argc, char **argv)
{
    static void *(*const alone[])(void *) = {appender, reader, reader, puncher};
    static void *(*const company[])(void *) = {appender, beside, beside, puncher, disturber};
    static void *(*const full[])(void *) = {filler, reader, reader, puncher};
    static void *const direct[] = {NULL, NULL, "direct", NULL};
    static void *const nothing[5];

    if (argc < 3)
        return 2;
    snprintf(path, sizeof path, "%s/tail.%d", argv[1], (int)getpid());
    origin = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (origin < 0) {
        perror(path);
        return 1;
    }
    if (argc < 4)
        unlink(path);
    if (strcmp(argv[2], "full") == 0) {
        round_of("until the disk is full", 60, full, direct, 4);
        return atomic_load(&failed) != 0;
    }
    round_of("one appender, its readers", (unsigned)atoi(argv[2]), alone, direct, 4);
    if (atomic_load(&failed) == 0)
        round_of("writers, and calls that need the true size", (unsigned)atoi(argv[2]), company,
                 nothing, 5);
    if (argc >= 4)
        unlink(path);
    fprintf(stderr, "%lu looks, %lu children\n", atomic_load(&looks), atomic_load(&children));
    return atomic_load(&failed) != 0;
}
