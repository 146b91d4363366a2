/* SPDX-License-Identifier: MIT */
/* bench_work: what one process of `rlshim bench` does; see bench.h. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "../../include/rlshim/control.h"
#include "bench.h"
#include "cmd.h"

#define MIB        ((uint64_t)1 << 20)
#define BLOCK      4096
#define STALL_S    0.005 /* a read that takes longer stands still */
#define READ_BYTES (16 * MIB)
#define LOOPS_MAX  200000

double bench_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

void bench_put(const char *name, double value)
{
    printf("%s %.9g\n", name, value);
}

int bench_end(const char *what)
{
    fprintf(stderr, "%s: %s\n", what,
            errno == ENOSPC || errno == EDQUOT ? "the disk, or the quota, is full"
                                               : strerror(errno));
    return EXIT_FAILED;
}

void bench_count(const char *const *names)
{
    double n = 0;

    for (; *names != NULL; names++)
        n += (double)rl_counter(*names);
    bench_put("acted", n);
}

static void *buffer(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    memset(p, 'x', n);
    return p;
}

/* Written, on the disk, and no longer in memory. */
static int lay_out(const char *name, uint64_t bytes)
{
    static char piece[256 << 10];
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    memset(piece, 'd', sizeof piece);
    for (uint64_t at = 0; fd >= 0 && at < bytes; at += sizeof piece) {
        ssize_t n = pwrite(fd, piece, sizeof piece, (off_t)at);

        if (n != (ssize_t)sizeof piece) {
            if (n >= 0)
                errno = ENOSPC;
            close(fd);
            return -1;
        }
    }
    if (fd >= 0 && fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0)
        return fd;
    return -1;
}

/* --- reads beside punches and big appends ------------------------------------------------------
 */

static struct {
    int read_fd, punch_fd, append_fd;
    uint64_t punch_bytes, append_bytes, append_max;
    double until;
    atomic_int error;
    atomic_bool over;
    void *data;
    /* Each written by its thread only. */
    double reads, stalled_s, worst_s, read_s, punches, punch_s, appended, append_s;
} one;

static void *read_loop(void *unused)
{
    uint64_t random = 88172645463325252ull;
    double begin = bench_now(), before = begin;
    void *block = NULL;

    if (posix_memalign(&block, BLOCK, BLOCK) != 0)
        return unused;
    while (!atomic_load(&one.over) && before < one.until) {
        double after;

        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if (pread(one.read_fd, block, BLOCK, (off_t)(random % (READ_BYTES / BLOCK) * BLOCK)) !=
            BLOCK) {
            atomic_store(&one.error, errno != 0 ? errno : EIO);
            break;
        }
        after = bench_now();
        if (after - before >= STALL_S)
            one.stalled_s += after - before;
        if (after - before > one.worst_s)
            one.worst_s = after - before;
        one.reads++;
        before = after;
    }
    one.read_s = bench_now() - begin;
    free(block);
    return unused;
}

static void *punch_loop(void *unused)
{
    double begin = bench_now();

    for (uint64_t at = 0; at < one.punch_bytes && !atomic_load(&one.over); at += BLOCK) {
        if (fallocate(one.punch_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      (off_t)(READ_BYTES + at), BLOCK) != 0) {
            atomic_store(&one.error, errno);
            break;
        }
        one.punches++;
        if (bench_now() >= one.until)
            break;
    }
    one.punch_s = bench_now() - begin;
    return unused;
}

/* The file is cut back when the room is used up, so that a fast disk does not end the run. */
static void *append_loop(void *unused)
{
    uint64_t base = READ_BYTES + one.punch_bytes + MIB, at = 0;
    double begin = bench_now();

    while (bench_now() < one.until) {
        ssize_t n;

        if (at + one.append_bytes > one.append_max)
            break;
        n = pwrite(one.append_fd, one.data, one.append_bytes, (off_t)(base + at));
        if (n != (ssize_t)one.append_bytes) {
            atomic_store(&one.error, n < 0 ? errno : ENOSPC);
            break;
        }
        at += one.append_bytes;
    }
    one.append_s = bench_now() - begin;
    one.appended = (double)at;
    atomic_store(&one.over, true);
    return unused;
}

static int do_reads(const struct bench_size *size)
{
    static const char *const counters[] = {"write_split", "punch_deferred", "gate_entered", NULL};
    pthread_t thread[3];
    uint64_t rest = size->bytes - READ_BYTES - MIB;
    int fd;

    one.punch_bytes = rest / 4 < 256 * MIB ? rest / 4 / MIB * MIB : 256 * MIB;
    one.append_max = rest - one.punch_bytes;
    one.append_bytes = one.append_max / 4 < 128 * MIB ? one.append_max / 4 / MIB * MIB : 128 * MIB;
    one.data = buffer(one.append_bytes);
    if (one.data == NULL)
        return bench_end("memory for big writes");
    fd = lay_out("one", READ_BYTES + one.punch_bytes);
    if (fd < 0)
        return bench_end("laying out a file");
    one.punch_fd = open("one", O_RDWR | O_CLOEXEC);
    one.read_fd = open("one", O_RDONLY | O_DIRECT | O_CLOEXEC);
    one.append_fd = open("one", O_WRONLY | O_DIRECT | O_CLOEXEC);
    if (one.punch_fd < 0 || one.read_fd < 0 || one.append_fd < 0)
        return bench_end("direct I/O");
    close(fd);
    unlink("one");
    one.until = bench_now() + size->seconds;
    if (pthread_create(&thread[0], NULL, read_loop, NULL) != 0 ||
        pthread_create(&thread[1], NULL, punch_loop, NULL) != 0 ||
        pthread_create(&thread[2], NULL, append_loop, NULL) != 0)
        return bench_end("starting a thread");
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    errno = atomic_load(&one.error);
    if (errno != 0)
        return bench_end("reads beside punches and appends");
    bench_put("stalled", one.read_s > 0 ? one.stalled_s / one.read_s : 0);
    bench_put("worst_read", one.worst_s * 1e9);
    bench_put("punches", one.punch_s > 0 ? one.punches / one.punch_s : 0);
    bench_put("appended", one.append_s > 0 ? one.appended / (double)MIB / one.append_s : 0);
    bench_count(counters);
    return EXIT_WORKED;
}

/* --- deleting ----------------------------------------------------------------------------------
 */

/* The longest of what one call of each kind takes, with a file that is no longer in memory. */
static int do_delete(const struct bench_size *size)
{
    static const char *const counters[] = {"evict_files", NULL};
    uint64_t bytes = size->bytes / 3 < 1024 * MIB ? size->bytes / 3 / MIB * MIB : 1024 * MIB;
    double begin, unlink_s, rename_s, close_s;
    int a = lay_out("unlinked", bytes), b = lay_out("replaced", bytes), c = lay_out("open", bytes);
    int d = open("new", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (a < 0 || b < 0 || c < 0 || d < 0)
        return bench_end("laying out files to delete");
    close(a);
    close(b);
    close(d);
    begin = bench_now();
    if (unlink("unlinked") != 0)
        return bench_end("unlink");
    unlink_s = bench_now() - begin;
    begin = bench_now();
    if (rename("new", "replaced") != 0)
        return bench_end("rename");
    rename_s = bench_now() - begin;
    if (unlink("open") != 0)
        return bench_end("unlink");
    begin = bench_now();
    if (close(c) != 0)
        return bench_end("close");
    close_s = bench_now() - begin;
    bench_put("unlink", unlink_s * 1e9);
    bench_put("rename", rename_s * 1e9);
    bench_put("close", close_s * 1e9);
    bench_count(counters);
    return EXIT_WORKED;
}

/* --- truncating reopen -------------------------------------------------------------------------
 */

/* vfsmix of examples/, without checks: the file is empty when O_TRUNC meets it. */
static int reopen_once(void)
{
    int fd = open("mix", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    char *p;

    if (fd < 0 || lseek(fd, 4095, SEEK_SET) != 4095 || close(fd) != 0)
        return -1;
    fd = open("mix", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || pwrite(fd, "", 1, 4095) != 1)
        return -1;
    p = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return -1;
    memset(p, 'x', BLOCK);
    return munmap(p, BLOCK) == 0 && close(fd) == 0 ? unlink("mix") : -1;
}

static int do_reopen(const struct bench_size *size)
{
    static const char *const counters[] = {"truncate_elided", NULL};
    double begin = bench_now(), now = begin, worst = 0;
    unsigned loops = 0;

    while (now - begin < size->seconds && loops < LOOPS_MAX) {
        double before = now;

        if (reopen_once() != 0)
            return bench_end("truncating reopen");
        now = bench_now();
        if (now - before > worst)
            worst = now - before;
        loops++;
    }
    bench_put("reopens", loops / (now - begin));
    bench_count(counters);
    return EXIT_WORKED;
}

int bench_job(int argc, char **argv)
{
    static int (*const work[BENCH_JOBS])(const struct bench_size *) = {
        [BENCH_READS] = do_reads,    [BENCH_DELETE] = do_delete, [BENCH_COMMIT] = bench_commit,
        [BENCH_BURST] = bench_burst, [BENCH_REOPEN] = do_reopen, [BENCH_CREATE] = bench_create,
    };
    struct bench_size size;
    uint64_t job, ms;

    /* Whoever started this cleans up; without it nobody would. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGXFSZ, SIG_IGN);
    if (argc != 4 || !parse_number(argv[1], BENCH_JOBS - 1, &job) ||
        !parse_number(argv[2], INT64_MAX, &size.bytes) || !parse_number(argv[3], 600000, &ms))
        return misuse("bench", "this is what it starts itself");
    size.seconds = (double)ms / 1000;
    return work[job](&size);
}
