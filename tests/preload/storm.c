/* SPDX-License-Identifier: MIT */
/* timeout: 60 */
/*
 * storm: threads that punch, write and read blocks of one file, each its own, and know what every
 * block holds, while
 *   signals   a thousand signals a second run a handler that writes, reads, punches, opens, dups,
 *             closes and unlinks, in whatever call it interrupts
 *   jumps     the same, and the handler often jumps out of the call that it interrupted
 *   forks     children are made by fork, vfork, posix_spawn and clone, that look at the file and
 *             write to it; and threads come and go
 *
 *   storm DIR signals|jumps|forks SECONDS
 *
 * 0: all blocks held what they should, always; 1: not, and what; the last line is "deferred N".
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../include/rlshim/control.h"
#include "../../lockmgr/rawcall.h"

#define PUNCH   (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define BLOCK   4096
#define WORKERS 3
#define OWN     64 /* blocks of each worker; the last ones are the handler's and the children's */
#define SIZE    ((WORKERS + 2) * OWN * BLOCK)

static const char *dir;
static char path[200], scratch[200];
static int file; /* every worker also opens its own */
static volatile int over;
static unsigned failures;
static bool jumping;

/* Jumps only out of what a worker marked: what it was doing then is done again, or not known. */
static __thread sigjmp_buf back;
static __thread volatile sig_atomic_t may_jump;

__attribute__((format(printf, 1, 2))) static void not_ok(const char *format, ...)
{
    char line[300];
    va_list args;
    int n = 8;

    __atomic_fetch_add(&failures, 1, __ATOMIC_SEQ_CST);
    memcpy(line, "not ok: ", 8);
    va_start(args, format);
    n += vsnprintf(line + n, sizeof line - 9, format, args);
    va_end(args);
    line[n++] = '\n';
    rl_raw(SYS_write, 1, line, (size_t)n);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void nap(long us)
{
    struct timespec t = {0, us * 1000};

    rl_raw(SYS_nanosleep, &t, NULL);
}

static unsigned next(unsigned *seed)
{
    return *seed = *seed * 1103515245u + 12345u, *seed >> 16;
}

static bool is_full_of(int fd, off_t off, int c, char *got)
{
    if (pread(fd, got, BLOCK, off) != BLOCK)
        return false;
    return got[0] == (char)c && memcmp(got, got + 1, BLOCK - 1) == 0;
}

/* --- the workers --- */

static void *worker(void *arg)
{
    int id = (int)(intptr_t)arg;
    off_t base = (off_t)id * OWN * BLOCK;
    volatile unsigned char holds[OWN]; /* 0: a hole */
    static char bufs[WORKERS][2][BLOCK];
    char *buf = bufs[id][0], *got = bufs[id][1];
    static unsigned seeds[WORKERS];
    unsigned *seed = &seeds[id];
    int fd = open(path, O_RDWR | O_CLOEXEC);

    *seed = (unsigned)id + 1;
    memset((void *)(uintptr_t)holds, 'i', sizeof holds);
    for (volatile unsigned n = 0; !over && failures < 5; n++) {
        volatile unsigned block = next(seed) % OWN;
        off_t off = base + (off_t)block * BLOCK;
        volatile int what = (int)(next(seed) % 8);
        int c = 1 + (int)(next(seed) % 250);

        if (sigsetjmp(back, 1) != 0) {
            /* It happened or not, or in part: made once more, undisturbed. */
            c = 'j';
            memset(buf, c, BLOCK);
            if (pwrite(fd, buf, BLOCK, base + (off_t)block * BLOCK) != BLOCK)
                not_ok("worker %d: a write failed: %s", id, strerror(errno));
            holds[block] = (unsigned char)c;
            continue;
        }
        if (jumping)
            may_jump = 1;
        if (what < 4) {
            if (fallocate(fd, PUNCH, off, BLOCK) != 0)
                not_ok("worker %d: a punch failed: %s", id, strerror(errno));
            may_jump = 0;
            holds[block] = 0;
        } else if (what < 6) {
            memset(buf, c, BLOCK);
            if (pwrite(fd, buf, BLOCK, off) != BLOCK)
                not_ok("worker %d: a write failed: %s", id, strerror(errno));
            may_jump = 0;
            holds[block] = (unsigned char)c;
        }
        may_jump = 0;
        block = next(seed) % OWN;
        if (!is_full_of(fd, base + (off_t)block * BLOCK, holds[block], got))
            not_ok("worker %d, round %u: block %u holds %d, not %d", id, n, block, got[0],
                   holds[block]);
    }
    for (unsigned block = 0; block < OWN; block++)
        if (!is_full_of(fd, base + (off_t)block * BLOCK, holds[block], got))
            not_ok("worker %d, at the end: block %u holds %d, not %d", id, block, got[0],
                   holds[block]);
    close(fd);
    return NULL;
}

/* --- signals --- */

#define HANDLER_AT ((off_t)WORKERS * OWN * BLOCK)

static void handle(int signal)
{
    static int busy;
    static unsigned seed = 7, runs;
    static unsigned char holds[OWN];
    static char buf[BLOCK], got[BLOCK];
    int none = 0, saved = errno, fd;
    unsigned block;
    off_t off;

    (void)signal;
    if (!__atomic_compare_exchange_n(&busy, &none, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return;
    if (runs++ == 0)
        memset(holds, 'i', sizeof holds);
    block = next(&seed) % OWN;
    off = HANDLER_AT + (off_t)block * BLOCK;
    switch (next(&seed) % 6) {
    case 0:
        if (fallocate(file, PUNCH, off, BLOCK) == 0)
            holds[block] = 0;
        break;
    case 1:
        memset(buf, 'h', BLOCK);
        if (pwrite(file, buf, BLOCK, off) == BLOCK)
            holds[block] = 'h';
        break;
    case 2:
        fd = open(scratch, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, buf, 100) != 100 || close(fd) != 0 || unlink(scratch) != 0)
            not_ok("in a handler: %s", strerror(errno));
        break;
    case 3:
        fd = dup(file);
        if (fd < 0 || close(fd) != 0)
            not_ok("in a handler: dup: %s", strerror(errno));
        break;
    case 4:
        if (runs % 16 == 0)
            fdatasync(file);
        break;
    default:
        break;
    }
    if (!is_full_of(file, off, holds[block], got))
        not_ok("in a handler: block %u holds %d, not %d", block, got[0], holds[block]);
    __atomic_store_n(&busy, 0, __ATOMIC_SEQ_CST);
    errno = saved;
    if (may_jump && next(&seed) % 4 == 0) {
        may_jump = 0;
        siglongjmp(back, 1);
    }
}

static void storm_of_signals(double seconds)
{
    double end = now() + seconds;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    struct itimerspec each = {{0, 1000000}, {0, 1000000}};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    timer_t timer;

    sigaction(SIGRTMIN, &action, NULL);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, 0, &each, NULL) != 0)
        not_ok("no timer: %s", strerror(errno));
    while (now() < end && failures < 5)
        nap(5000);
    timer_delete(timer);
}

/* --- forks --- */

#define CHILD_AT ((off_t)(WORKERS + 1) * OWN * BLOCK)

static char child_buf[BLOCK], child_got[BLOCK];

/* Sees what the parent saw, and writes a block that the parent punched. */
static int child(void *arg)
{
    int mine = open(path, O_RDWR | O_CLOEXEC);
    int c = *(int *)arg;

    if (mine < 0 || !is_full_of(file, CHILD_AT, 0, child_got) ||
        !is_full_of(mine, CHILD_AT + BLOCK, 'f', child_got))
        _exit(1);
    memset(child_buf, c, BLOCK);
    _exit(pwrite(mine, child_buf, BLOCK, CHILD_AT) == BLOCK && close(mine) == 0 ? 0 : 2);
}

static void *comes_and_goes(void *arg)
{
    char buf[64];

    (void)arg;
    if (pread(file, buf, sizeof buf, CHILD_AT) != (ssize_t)sizeof buf)
        not_ok("a read of a new thread failed: %s", strerror(errno));
    return NULL;
}

/* Waits for it, if it can be had. */
static void punches_are_deferred(void)
{
    uint64_t before = rl_counter("punch_deferred");

    for (int i = 0; i < 100 && rl_counter("punch_deferred") == before; i++)
        nap(10000);
}

static void storm_of_forks(double seconds)
{
    static char stack[64 * 1024] __attribute__((aligned(64)));
    char *const argv[] = {(char *)(uintptr_t) "true", NULL};
    double end = now() + seconds;
    char *const none[] = {NULL};

    for (unsigned i = 0; now() < end && failures < 5; i++) {
        int c = 1 + (int)(i % 200);
        volatile bool writes = true;
        int status = -1;
        pthread_t thread;
        pid_t pid = -1;

        if (i % 4 == i / 4 % 4)
            punches_are_deferred();
        memset(child_buf, 'f', BLOCK);
        if (pwrite(file, child_buf, BLOCK, CHILD_AT + BLOCK) != BLOCK ||
            fallocate(file, PUNCH, CHILD_AT, BLOCK) != 0)
            not_ok("before child %u: %s", i, strerror(errno));
        switch (i % 4) {
        case 0:
            if ((pid = fork()) == 0)
                child(&c);
            break;
        case 1:
            if ((pid = clone(child, stack + sizeof stack, SIGCHLD, &c)) == 0)
                _exit(9);
            break;
        case 2:
            writes = false;
            if ((pid = vfork()) == 0) {
                close(file);
                _exit(0);
            }
            break;
        default:
            writes = false;
            if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, none) != 0)
                pid = -1;
        }
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        if (status != 0)
            not_ok("child %u (%u): status %x", i, i % 4, status);
        else if (!is_full_of(file, CHILD_AT, writes ? c : 0, child_got))
            not_ok("after child %u (%u): the block holds %d, not %d", i, i % 4, child_got[0],
                   writes ? c : 0);
        if (pthread_create(&thread, NULL, comes_and_goes, NULL) == 0)
            pthread_join(thread, NULL);
    }
}

int main(int argc, char **argv)
{
    pthread_t threads[WORKERS];
    char buf[BLOCK];

    if (argc != 4)
        return 2;
    dir = argv[1];
    snprintf(path, sizeof path, "%s/file", dir);
    snprintf(scratch, sizeof scratch, "%s/scratch", dir);
    file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    memset(buf, 'i', BLOCK);
    for (off_t off = 0; off < SIZE; off += BLOCK)
        if (pwrite(file, buf, BLOCK, off) != BLOCK)
            return 2;
    for (int i = 0; i < WORKERS; i++)
        pthread_create(&threads[i], NULL, worker, (void *)(intptr_t)i);
    jumping = strcmp(argv[2], "jumps") == 0;
    if (strcmp(argv[2], "forks") == 0)
        storm_of_forks(atof(argv[3]));
    else
        storm_of_signals(atof(argv[3]));
    over = 1;
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    printf("deferred %lu\n", (unsigned long)rl_counter("punch_deferred"));
    return failures != 0;
}
