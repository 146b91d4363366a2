/* SPDX-License-Identifier: MIT */
/* timeout: 120 */
/*
 * flush: syncs of one file by many threads: shared ones serve those who came before, errors reach
 * whom they should, and nobody waits for somebody who is gone. Run by flush.sh.
 *
 *   flush share DIR          with lib/slowsync.so: what is shared, and all that may happen
 * meanwhile flush errors FILE N      FILE cannot be stored (lab_small): N syncs, each of which must
 * fail
 *
 * 0: all right; 1: not, and what; share prints "syncs N of M".
 */
#include <dlfcn.h>
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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/slowsync.h"

#define THREADS 16 /* ext4 shares among a dozen and more */
#define CALLS   10
#define BLOCK   4096
#define LIMIT_S 3.0 /* for what takes 40 ms; who is waited for in vain costs four seconds */

static struct slowsync *slow;
static char path[300];
static int fd;
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

static void nap(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static pthread_t run(void *(*what)(void *), void *arg)
{
    pthread_t t;

    if (pthread_create(&t, NULL, what, arg) != 0)
        abort();
    return t;
}

/* --- sharing --- */

static void *commits(void *arg)
{
    for (int i = 0; i < CALLS; i++) {
        errno = 17;
        if ((arg != NULL && i % 3 == 0 ? fsync(fd) : fdatasync(fd)) != 0)
            not_ok("a sync failed: %s", strerror(errno));
        else if (errno != 17)
            not_ok("a sync that succeeds changes errno to %d", errno);
    }
    return NULL;
}

static bool are_shared;

static void many_share_few(void)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        t[i] = run(commits, i == 0 ? &fd : NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    are_shared = slow->calls < THREADS * CALLS;
    printf("syncs %d of %d, %d at a time, full %d\n", slow->calls, THREADS * CALLS, slow->most,
           slow->full);
}

/* --- one leads, others wait --- */

struct one {
    pthread_t thread;
    int fd, result, error;
};

static void *syncs_once(void *arg)
{
    struct one *o = arg;

    o->result = fdatasync(o->fd);
    o->error = errno;
    return NULL;
}

/* A leader of its own round, and waiters for the next, all under way. */
static void board(struct one *o, int n, const int *fds)
{
    for (int i = 0; i < n; i++) {
        o[i].fd = fds[i];
        o[i].thread = run(syncs_once, &o[i]);
        nap(4);
    }
}

static void land(struct one *o, int n, const char *what)
{
    double began = now();

    for (int i = 0; i < n; i++)
        pthread_join(o[i].thread, NULL);
    if (now() - began > LIMIT_S)
        not_ok("%s: took %.1f s", what, now() - began);
}

static void a_failure_is_told_on_the_descriptor_that_met_it(void)
{
    int other = open(path, O_RDONLY);
    int fds[] = {fd, fd, fd, other};
    struct one o[4];

    slow->error = EIO;
    board(o, 4, fds);
    nap(10); /* the first round is over soon, and what follows fails once */
    slow->fail = 1;
    land(o, 4, "a failing sync");
    slow->error = 0;
    slow->fail = 0;
    int failed = 0;
    for (int i = 0; i < 3; i++)
        failed += o[i].result != 0 && o[i].error == EIO;
    if (failed == 0 && o[3].result == 0)
        not_ok("a sync failed and nobody heard of it");
    if (are_shared && o[1].result != o[2].result && o[3].result == 0)
        not_ok("two on one descriptor were served by one failed sync, and one was told");
    close(other);
}

static volatile sig_atomic_t handler_syncs;
static sigjmp_buf out;
static volatile bool jumps;

static void on_signal(int sig)
{
    (void)sig;
    if (jumps)
        siglongjmp(out, 1);
    if (fdatasync(fd) == 0)
        handler_syncs++;
}

static void a_handler_may_sync_what_its_thread_syncs(void)
{
    int fds[] = {fd, fd, fd};
    struct one o[3];

    handler_syncs = 0;
    board(o, 3, fds);
    for (int i = 0; i < 3; i++)
        pthread_kill(o[i].thread, SIGUSR1);
    land(o, 3, "a handler that syncs");
    if (handler_syncs < 1)
        not_ok("no handler synced");
}

static void *jumps_out(void *arg)
{
    struct one *o = arg;

    o->result = 0;
    if (sigsetjmp(out, 1) == 0)
        fdatasync(fd);
    o->result = fdatasync(fd);
    return NULL;
}

static void a_leader_that_is_jumped_out_of_holds_up_nobody(void)
{
    struct one leader, o[2];
    int fds[] = {fd, fd};

    jumps = true;
    leader.thread = run(jumps_out, &leader);
    nap(5);
    board(o, 2, fds);
    pthread_kill(leader.thread, SIGUSR1);
    land(&leader, 1, "a sync after a jump out of one");
    land(o, 2, "syncs beside one that was jumped out of");
    jumps = false;
    if (leader.result != 0 || o[0].result != 0 || o[1].result != 0)
        not_ok("a sync beside a jump failed");
}

static void a_cancelled_leader_serves_nobody_and_holds_up_nobody(void)
{
    int fds[] = {fd, fd, fd};
    struct one o[3];
    int before = slow->calls;

    board(o, 3, fds);
    pthread_cancel(o[0].thread);
    land(o, 3, "syncs beside a cancelled one");
    if (o[1].result != 0 || o[2].result != 0)
        not_ok("a sync beside a cancelled one failed");
    if (slow->calls - before < 2)
        not_ok("two callers believed a sync that was cancelled");
    atomic_store(&slow->running, 0); /* the cancelled one is still counted there */
}

static void a_child_begins_anew(void)
{
    int fds[] = {fd, fd, fd};
    struct one o[3];
    int status = -1;
    pid_t child;

    board(o, 2, fds);
    child = fork();
    if (child == 0) {
        atomic_store(&failures, 0);
        board(o, 3, fds);
        land(o, 3, "a child's syncs");
        _exit(o[0].result != 0 || o[1].result != 0 || o[2].result != 0 || failures != 0);
    }
    waitpid(child, &status, 0);
    land(o, 2, "syncs beside a fork");
    if (status != 0)
        not_ok("the child's syncs failed: %x", status);
}

static void a_descriptor_closed_meanwhile_is_bad_or_was_synced(void)
{
    int mine = open(path, O_RDWR), pipes[2];
    int fds[] = {fd, mine};
    struct one o[2];

    board(o, 2, fds);
    close(mine);
    if (pipe(pipes) != 0)
        abort();
    land(o, 2, "a sync of a descriptor that is closed");
    /* As if the call had come after: a bad descriptor, or the pipe that has its number now. */
    if (o[1].result != 0 && o[1].error != EBADF && o[1].error != EINVAL && o[1].error != ESPIPE)
        not_ok("a sync of a closed descriptor says %s", strerror(o[1].error));
    close(pipes[0]);
    close(pipes[1]);
}

static void *idles(void *arg)
{
    pthread_barrier_wait(arg);
    return NULL;
}

static int share(const char *dir)
{
    pthread_barrier_t end;
    pthread_t idler;
    struct sigaction act = {.sa_handler = on_signal};

    if ((slow = dlsym(RTLD_DEFAULT, "slowsync")) == NULL) {
        puts("lib/slowsync.so is not preloaded");
        return 2;
    }
    snprintf(path, sizeof path, "%s/flush-test", dir);
    if ((fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600)) < 0)
        return 2;
    sigaction(SIGUSR1, &act, NULL);
    pthread_barrier_init(&end, NULL, 2);
    idler = run(idles, &end); /* there is more than one thread all the time */
    many_share_few();
    a_failure_is_told_on_the_descriptor_that_met_it();
    a_handler_may_sync_what_its_thread_syncs();
    a_leader_that_is_jumped_out_of_holds_up_nobody();
    a_cancelled_leader_serves_nobody_and_holds_up_nobody();
    a_child_begins_anew();
    a_descriptor_closed_meanwhile_is_bad_or_was_synced();
    if (fdatasync(-1) != -1 || errno != EBADF)
        not_ok("a bad descriptor is not EBADF but %s", strerror(errno));
    pthread_barrier_wait(&end);
    pthread_join(idler, NULL);
    unlink(path);
    return failures != 0;
}

/* --- a device that cannot store what was written --- */

static atomic_bool written_all;

struct writer {
    pthread_t thread;
    unsigned number, seed;
    int calls;
    int fd;
    long lost;
};

/* Its own block, which the device cannot store: whoever writes it back, this description has not
 * seen that error yet, so this sync must fail. */
static void *writes_what_fails(void *arg)
{
    struct writer *w = arg;
    char block[BLOCK];

    for (int i = 0; i < w->calls; i++) {
        struct timespec t = {0, rand_r(&w->seed) % 3 == 0 ? rand_r(&w->seed) % 200000 : 0};
        off_t at = (off_t)(w->number * 64 + (unsigned)i % 64) * BLOCK;

        memset(block, 'a' + i % 26, sizeof block);
        if (pwrite(w->fd, block, BLOCK, at) != BLOCK) {
            not_ok("a write was refused: %s", strerror(errno));
            return NULL;
        }
        if (t.tv_nsec != 0)
            nanosleep(&t, NULL);
        errno = 0;
        if ((rand_r(&w->seed) % 2 ? fsync(w->fd) : fdatasync(w->fd)) == 0)
            w->lost++;
        else if (errno != ENOSPC && errno != EIO)
            not_ok("the error is %s", strerror(errno));
    }
    return NULL;
}

/* Has nothing of its own to lose, and meets all errors of the others: its syncs succeed where
 * theirs must not, and serve them. */
static void *syncs_only(void *arg)
{
    struct writer *w = arg;

    while (!atomic_load(&written_all)) {
        if (fdatasync(w->fd) != 0 && errno != ENOSPC && errno != EIO)
            not_ok("the error is %s", strerror(errno));
    }
    return NULL;
}

static int errors(const char *file, int schedules)
{
    struct writer w[THREADS] = {0}, only[2] = {0};
    int asleep = open(file, O_RDONLY);

    if (asleep < 0)
        return 2;
    for (int i = 0; i < 2; i++) {
        if ((only[i].fd = open(file, O_RDONLY)) < 0)
            return 2;
        only[i].thread = run(syncs_only, &only[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        w[i].number = i;
        w[i].seed = i + 1;
        w[i].calls = schedules / THREADS;
        w[i].fd = open(file, O_RDWR);
        if (w[i].fd < 0)
            return 2;
        w[i].thread = run(writes_what_fails, &w[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(w[i].thread, NULL);
        if (w[i].lost != 0)
            not_ok("thread %u: %ld errors of %d were lost", i, w[i].lost, w[i].calls);
    }
    atomic_store(&written_all, true);
    for (int i = 0; i < 2; i++)
        pthread_join(only[i].thread, NULL);
    if (fsync(asleep) == 0)
        not_ok("a description that never synced was not told");
    if (fsync(asleep) != 0)
        not_ok("it was told twice");
    return failures != 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 3 && strcmp(argv[1], "share") == 0)
        return share(argv[2]);
    if (argc == 4 && strcmp(argv[1], "errors") == 0)
        return errors(argv[2], atoi(argv[3]));
    fputs("usage: flush share DIR | errors FILE N\n", stderr);
    return 2;
}
