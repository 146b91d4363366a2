/* SPDX-License-Identifier: MIT */
/* timeout: 110 */
/*
 * cancel: threads that are cancelled, jumped out of and interrupted inside reads, big direct writes
 * and punches; processes that end in odd ways. Afterwards the file must be usable at once and hold
 * what it should. Run by cancel.sh, with and without the shim.
 *
 *   cancel DIR
 *
 * 0: all right; 1: not, and what; the last line is "deferred N split N".
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../include/rlshim/control.h"
#include "../../lockmgr/rawcall.h"

#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define BLOCK 4096
#define BIG   ((size_t)4 << 20)
#define HOLE  ((size_t)1 << 20)
#define LIMIT_S                                                                                    \
    5.0 /* for what takes milliseconds: a gate that was left heals within one second               \
         */

static const char *dir, *self;
static unsigned failures;
static int fd;
static char *data, *got; /* BIG each, aligned */
static char path[200];

__attribute__((format(printf, 1, 2))) static void not_ok(const char *format, ...)
{
    va_list args;

    failures++;
    va_start(args, format);
    fputs("not ok: ", stdout);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void nap(long us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};

    rl_raw(SYS_nanosleep, &t, NULL);
}

static int open_it(int more)
{
    int r = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC | more, 0600);

    return r >= 0 ? r : open(path, O_RDWR | O_CREAT | O_CLOEXEC | more, 0600);
}

/* Every block is of one kind: one of the two, or a hole. */
static void check_blocks(const char *what, char one, char other, bool holes)
{
    long n = rl_raw(SYS_pread64, fd, got, BIG, 0L);

    for (long at = 0; at + BLOCK <= n; at += BLOCK) {
        char c = got[at];

        if ((c != one && c != other && !(holes && c == 0)) ||
            memcmp(got + at, got + at + 1, BLOCK - 1) != 0) {
            not_ok("%s: at %ld the file holds %d", what, at, c);
            return;
        }
    }
}

/* A punch, a big write and a read, right and without waiting for somebody who is gone. */
static void usable_after(const char *what)
{
    double began = now();

    if (fallocate(fd, PUNCH, (off_t)HOLE, (off_t)HOLE) != 0)
        not_ok("%s: a punch failed: %s", what, strerror(errno));
    memset(data, 'u', BIG);
    if (pwrite(fd, data, BIG, 0) != (ssize_t)BIG)
        not_ok("%s: a write failed: %s", what, strerror(errno));
    if (fallocate(fd, PUNCH, (off_t)HOLE, (off_t)HOLE) != 0)
        not_ok("%s: a punch failed: %s", what, strerror(errno));
    memset(data + HOLE, 0, HOLE);
    if (pread(fd, got, BIG, 0) != (ssize_t)BIG || memcmp(got, data, BIG) != 0)
        not_ok("%s: the file holds something else than it should", what);
    if (now() - began > LIMIT_S)
        not_ok("%s: using the file again took %.1f s", what, now() - began);
}

/* --- cancellation --- */

enum call { WRITES, READS, PUNCHES, CALLS };
static const char *const call_names[] = {"write", "read", "punch"};
static enum call call;
static bool async;
static char *thread_data;

static void do_call(enum call which, int i, char *buf)
{
    switch (which) {
    case WRITES:
        (void)!pwrite(fd, buf, BIG, 0);
        break;
    case READS:
        (void)!pread(fd, buf, BIG, 0);
        break;
    default:
        for (size_t at = 0; at < BIG; at += (size_t)BLOCK * 8)
            fallocate(fd, PUNCH, (off_t)at + i % 4 * BLOCK, BLOCK);
        break;
    }
}

static void *victim(void *arg)
{
    int old;

    (void)arg;
    pthread_setcanceltype(async ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED, &old);
    for (int i = 0;; i++)
        do_call(call, i, thread_data);
    return NULL;
}

static void a_cancelled_thread_leaves_nothing_behind(void)
{
    for (int round = 0; round < 48; round++) {
        struct timespec limit;
        pthread_t thread;
        char what[64];
        void *r = NULL;

        call = (enum call)(round % CALLS);
        async = round / CALLS % 2 != 0;
        snprintf(what, sizeof what, "a %s, cancelled %s", call_names[call],
                 async ? "asynchronously" : "where it may be");
        memset(thread_data, 'c', BIG);
        pthread_create(&thread, NULL, victim, NULL);
        nap(500 + round * 331 % 9000);
        pthread_cancel(thread);
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += 20;
        if (pthread_timedjoin_np(thread, &r, &limit) != 0) {
            not_ok("%s: the thread does not end", what);
            exit(1);
        }
        if (r != PTHREAD_CANCELED)
            not_ok("%s: the thread was not cancelled", what);
        check_blocks(what, 'c', 'u', true);
        usable_after(what);
    }
}

/* --- jumping out --- */

static sigjmp_buf back;

static void jumps(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

static void timer(long us, long again_us)
{
    struct itimerval t = {.it_value = {0, us}, .it_interval = {0, again_us}};

    setitimer(ITIMER_REAL, &t, NULL);
}

static void a_handler_may_jump_out_of_a_call(void)
{
    struct sigaction jump = {.sa_handler = jumps}, old;

    sigaction(SIGALRM, &jump, &old);
    for (volatile int round = 0; round < 45; round++) {
        char what[64];

        snprintf(what, sizeof what, "a %s, jumped out of", call_names[round % CALLS]);
        memset(thread_data, 'j', BIG);
        if (sigsetjmp(back, 1) == 0) {
            timer(300 + round * 271 % 8000, 0);
            for (int i = 0;; i++)
                do_call((enum call)(round % CALLS), i, thread_data);
        }
        check_blocks(what, 'j', 'u', true);
        usable_after(what);
    }
    sigaction(SIGALRM, &old, NULL);
}

/* --- handlers that do I/O on the same file --- */

static volatile sig_atomic_t handled, handler_failed;
static char *handler_data, *handler_got;

/* In its own place, behind what the others use. */
static void uses_the_file(int signal)
{
    int saved = errno;
    off_t at = (off_t)BIG + (handled % 16) * 2 * BLOCK;
    int other;

    (void)signal;
    if (pwrite(fd, handler_data, 2 * BLOCK, at) != 2 * BLOCK ||
        fallocate(fd, PUNCH, at, BLOCK) != 0 || fsync(fd) != 0 ||
        pread(fd, handler_got, 2 * BLOCK, at) != 2 * BLOCK || handler_got[0] != 0 ||
        handler_got[BLOCK] != 'h')
        handler_failed = 1;
    other = open(path, O_RDWR | O_CLOEXEC);
    if (other < 0 || close(other) != 0)
        handler_failed = 1;
    handled++;
    errno = saved;
}

static void a_handler_may_use_the_file(void)
{
    struct sigaction use = {.sa_handler = uses_the_file, .sa_flags = SA_RESTART}, old;
    double until = now() + 3;

    memset(handler_data, 'h', 2 * BLOCK);
    memset(thread_data, 's', BIG);
    sigaction(SIGALRM, &use, &old);
    timer(1000, 7000);
    for (int i = 0; now() < until; i++)
        do_call((enum call)(i % CALLS), i, thread_data);
    timer(0, 0);
    sigaction(SIGALRM, &old, NULL);
    if (handled < 3 || handler_failed)
        not_ok("a handler inside writes and punches: %d were run, %s", (int)handled,
               handler_failed ? "one failed" : "none failed");
    memset(thread_data, 's', BIG);
    usable_after("handlers that use the file");
}

/* --- ends --- */

/* Writes 'k' everywhere, punches the second block of every four, and writes 'K' over every second
 * hole. Nothing is synced. */
static void leave_traces(void)
{
    memset(data, 'k', BIG);
    if (pwrite(fd, data, BIG, 0) != (ssize_t)BIG)
        _exit(3);
    for (int pass = 0; pass < 2; pass++) { /* in the second, punches are deferred */
        for (size_t at = 0; at < BIG; at += 4 * BLOCK)
            fallocate(fd, PUNCH, (off_t)at, BLOCK);
        if (pass == 0)
            nap(30000);
    }
    memset(data, 'K', BLOCK);
    for (size_t at = 0; at < BIG; at += 8 * BLOCK)
        if (pwrite(fd, data, BLOCK, (off_t)at) != BLOCK)
            _exit(3);
}

static void *last_thread(void *arg)
{
    nap(30000);
    fallocate(fd, PUNCH, 0, BLOCK);
    if (strcmp(arg, "exit7") == 0)
        exit(7);
    return NULL;
}

static int end_like(const char *how)
{
    pthread_t thread;

    alarm(20);
    leave_traces();
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(how, "return") == 0)
        return 5;
    if (strcmp(how, "_exit") == 0)
        _exit(6);
    pthread_create(&thread, NULL, last_thread, (void *)(uintptr_t)how);
    pthread_detach(thread);
    fallocate(fd, PUNCH, 4 * BLOCK, BLOCK);
    pthread_exit(NULL); /* how is "thread" or "exit7" */
}

static void check_traces(const char *how, bool punched)
{
    fd = open_it(0);
    if (rl_raw(SYS_pread64, fd, got, BIG, 0L) != (long)BIG)
        not_ok("after %s the file is short", how);
    for (size_t at = 0; at < BIG; at += BLOCK) {
        char expected = at % (4 * BLOCK) != 0 ? 'k' : at % (8 * BLOCK) != 0 ? 0 : 'K';

        if (at == 0 && expected != got[at] && got[at] == 0)
            continue; /* the last thread's punch */
        if (got[at] != expected && !(expected == 0 && !punched && got[at] == 'k')) {
            not_ok("after %s block %zu holds %d instead of %d", how, at / BLOCK, got[at], expected);
            break;
        }
    }
    close(fd);
}

static void a_process_may_end_in_any_way(void)
{
    static const struct {
        const char *how;
        int status;   /* as wait has it */
        bool punched; /* all that was answered must have happened */
    } ends[] = {{"thread", 0, true},     {"exit7", 7 << 8, true},   {"return", 5 << 8, true},
                {"_exit", 6 << 8, true}, {"abort", SIGABRT, false}, {"kill", SIGKILL, false}};

    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
            double until = now() + 15;
            int status = -1;
            pid_t pid = fork();

            if (pid == 0) {
                execl(self, self, "--end", dir, ends[i].how, (char *)NULL);
                _exit(9);
            }
            while (waitpid(pid, &status, WNOHANG) == 0 && now() < until)
                nap(2000);
            if (now() >= until) {
                kill(pid, SIGKILL);
                waitpid(pid, &status, 0);
                not_ok("a process that ends by %s does not end", ends[i].how);
            }
            if ((status & ~0x80) != ends[i].status)
                not_ok("a process that ends by %s ended with %#x", ends[i].how, (unsigned)status);
            check_traces(ends[i].how, ends[i].punched);
        }
}

static char *aligned(size_t bytes)
{
    void *p;

    if (posix_memalign(&p, BLOCK, bytes) != 0)
        exit(3);
    return p;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    self = argv[0];
    data = aligned(BIG);
    got = aligned(BIG);
    thread_data = aligned(BIG);
    handler_data = aligned(2 * BLOCK);
    handler_got = aligned(2 * BLOCK);
    dir = argc == 4 ? argv[2] : argc == 2 ? argv[1] : "";
    snprintf(path, sizeof path, "%s/cancel", dir);
    fd = open_it(0);
    if (fd < 0) {
        fprintf(stderr, "cancel: %s: %s\n", path, strerror(errno));
        return 2;
    }
    if (argc == 4)
        return end_like(argv[3]);
    rl_active(); /* handlers may ask from now on */
    memset(data, 'u', BIG);
    if (pwrite(fd, data, BIG, 0) != (ssize_t)BIG)
        return 3;
    a_cancelled_thread_leaves_nothing_behind();
    a_handler_may_jump_out_of_a_call();
    a_handler_may_use_the_file();
    close(fd);
    a_process_may_end_in_any_way();
    unlink(path);
    printf("deferred %llu split %llu\n", (unsigned long long)rl_counter("punch_deferred"),
           (unsigned long long)rl_counter("write_split"));
    return failures != 0;
}
