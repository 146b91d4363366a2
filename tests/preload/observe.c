/* SPDX-License-Identifier: MIT */
/*
 * observe CASE DIR: a program whose slow calls are known, for observe.sh. Prints what the report
 * has to agree with. Exit 1: a call of its own failed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOW_BYTES ((size_t)16 << 20) /* through the page cache: milliseconds */

static char *data;
static char path[4096];

__attribute__((noreturn)) static void die(const char *what)
{
    fprintf(stderr, "observe: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int make(const char *dir, const char *name)
{
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        die(path);
    return fd;
}

/* The name and the line that the report has to find. */
__attribute__((noinline)) void writes_slowly(int fd);
__attribute__((noinline)) void writes_slowly(int fd)
{
    printf("%d\n", __LINE__ + 1);
    if (pwrite(fd, data, SLOW_BYTES, 0) != (ssize_t)SLOW_BYTES)
        die("pwrite");
    __asm__ volatile("" ::: "memory");
}

static void stall(const char *dir)
{
    int fd = make(dir, "stall");

    writes_slowly(fd);
}

/* COUNT files, each written, read, closed and deleted ROUNDS times. */
static void many(const char *dir, int count, int rounds)
{
    char name[32];

    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++) {
            int fd;

            snprintf(name, sizeof name, "many-%d", i);
            snprintf(path, sizeof path, "%s/%s", dir, name);
            fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
            if (fd < 0 || pwrite(fd, data, 64, 0) != 64 || pread(fd, data, 64, 0) != 64 ||
                close(fd) != 0)
                die(path);
        }
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/many-%d", dir, i);
        unlink(path);
    }
}

/* --- in handlers, on as little stack as there may be --- */

static int handler_fd;
static volatile sig_atomic_t handled;
static sigjmp_buf back;

static void writes_in_handler(int signal)
{
    int saved = errno;

    (void)signal;
    if (pwrite(handler_fd, data, SLOW_BYTES, 0) != (ssize_t)SLOW_BYTES)
        die("pwrite in a handler");
    handled++;
    errno = saved;
}

static void jumps(int signal)
{
    (void)signal;
    handled++;
    siglongjmp(back, 1);
}

static void handlers(const char *dir)
{
    struct sigaction on = {.sa_handler = writes_in_handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    stack_t own = {.ss_sp = malloc(8192), .ss_size = 8192};
    static const struct itimerval once = {.it_value = {0, 2000}};
    static const struct itimerval every = {{0, 700}, {0, 700}}, never;
    sigset_t mask, before;
    int state, fd = make(dir, "handlers");

    handler_fd = make(dir, "handled");
    sigaltstack(&own, NULL);
    sigaction(SIGALRM, &on, NULL);
    /* Armed anew by the loop: at an interval that is shorter than the handler's write, the next
     * signal would always be pending, and the loop never run again. */
    for (int armed = -1; handled < 20;) {
        if (armed != handled) {
            armed = handled;
            setitimer(ITIMER_REAL, &once, NULL);
        }
        if (pwrite(fd, data, 65536, 0) != 65536)
            die("pwrite");
    }
    setitimer(ITIMER_REAL, &never, NULL);
    printf("%d\n", (int)handled);

    /* Jumps out of whatever is under way: nothing may stay blocked, taken or switched off. */
    on.sa_handler = jumps;
    on.sa_flags = 0;
    sigaction(SIGALRM, &on, NULL);
    sigprocmask(SIG_BLOCK, NULL, &before);
    handled = 0;
    sigsetjmp(back, 1);
    setitimer(ITIMER_REAL, &every, NULL);
    while (handled < 300) {
        if (pwrite(fd, data, SLOW_BYTES / 16, 0) < 0)
            die("pwrite");
        close(make(dir, "jumped"));
    }
    setitimer(ITIMER_REAL, &never, NULL);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    if (memcmp(&mask, &before, sizeof mask) != 0)
        die("signals stayed blocked");
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    if (state != PTHREAD_CANCEL_ENABLE)
        die("cancellation stayed off");
    writes_slowly(fd);
}

static void forks(const char *dir)
{
    int fd = make(dir, "forks"), status;

    writes_slowly(fd);
    fflush(stdout);
    if (fork() == 0) {
        for (int i = 0; i < 3; i++)
            if (pread(fd, data, 100, 0) != 100)
                _exit(1);
        exit(0);
    }
    if (wait(&status) < 0 || status != 0)
        die("child");
}

static void *sleeps_then_writes(void *arg)
{
    usleep(60000);
    if (write(*(int *)arg, "x", 1) != 1)
        die("pipe");
    return NULL;
}

static void pipes(const char *dir)
{
    int fd[2], file = make(dir, "pipes");
    pthread_t thread;
    char c;

    if (pipe(fd) != 0 || pthread_create(&thread, NULL, sleeps_then_writes, &fd[1]) != 0)
        die("pipe");
    if (read(fd[0], &c, 1) != 1 || pread(file, &c, 1, 0) != 0)
        die("read");
    pthread_join(thread, NULL);
}

/* Waits until somebody has taken the file "go" away. */
static void waits(const char *dir)
{
    int fd = make(dir, "mine"), other = make(dir, "theirs"), go = make(dir, "go");

    if (pwrite(fd, "x", 1, 0) != 1 || pwrite(other, "x", 1, 0) != 1 || pwrite(go, "x", 1, 0) != 1)
        die("pwrite");
    puts("ready");
    fflush(stdout);
    while (access(path, F_OK) == 0)
        usleep(2000);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    data = malloc(SLOW_BYTES);
    memset(data, 'd', SLOW_BYTES);
    if (strcmp(argv[1], "stall") == 0)
        stall(argv[2]);
    else if (strcmp(argv[1], "many") == 0 && argc == 5)
        many(argv[2], atoi(argv[3]), atoi(argv[4]));
    else if (strcmp(argv[1], "handlers") == 0)
        handlers(argv[2]);
    else if (strcmp(argv[1], "forks") == 0)
        forks(argv[2]);
    else if (strcmp(argv[1], "pipes") == 0)
        pipes(argv[2]);
    else if (strcmp(argv[1], "waits") == 0)
        waits(argv[2]);
    else
        return 2;
    return 0;
}
