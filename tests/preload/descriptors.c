/* SPDX-License-Identifier: MIT */
/* timeout: 60 */
/*
 * descriptors: numbers that are closed, reused, passed on and replaced, also by system calls that
 * no library sees, while punches of the files that they stood for are queued. Decoys, which nobody
 * ever punches, must keep every byte. Run by descriptors.sh, with and without the shim.
 *
 *   descriptors DIR SECONDS
 *
 * 0: all right; 1: not, and what; the last line is "deferred N".
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../include/rlshim/control.h"
#include "../../lockmgr/rawcall.h"

#define PUNCH   (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define HALF    32768
#define WHOLE   (2 * HALF)
#define THREADS 4

static const char *dir, *self;
static unsigned failures;
static double seconds;

__attribute__((format(printf, 1, 2))) static void not_ok(const char *format, ...)
{
    va_list args;

    if (__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED) > 20)
        return;
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

static void nap(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    rl_raw(SYS_nanosleep, &t, NULL);
}

static char *path_of(char path[200], const char *name, int number)
{
    snprintf(path, 200, "%s/%s%d", dir, name, number);
    return path;
}

static int raw_open(const char *path)
{
    return (int)rl_raw(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
}

static bool all(const char *p, size_t n, char c)
{
    return n == 0 || (p[0] == c && memcmp(p, p + 1, n - 1) == 0);
}

/* A file of WHOLE bytes, all of them c. */
static int make(const char *path, char c)
{
    char *bytes = malloc(WHOLE);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    memset(bytes, c, WHOLE);
    if (fd < 0 || pwrite(fd, bytes, WHOLE, 0) != WHOLE)
        not_ok("%s cannot be made: %s", path, strerror(errno));
    free(bytes);
    return fd;
}

static void punch(int fd, off_t off, off_t len)
{
    if (fallocate(fd, PUNCH, off, len) != 0)
        not_ok("a punch failed: %s", strerror(errno));
}

/* Until punches of fd's file are deferred, or it is clear that they are not. */
static bool until_deferred(int fd)
{
    uint64_t before = rl_counter("punch_deferred");

    for (int i = 0; i < 200 && rl_active(); i++) {
        punch(fd, 0, 4096);
        if (rl_counter("punch_deferred") != before)
            return true;
        nap(2);
    }
    return false;
}

/* --- the same numbers again and again --- */

enum { CLOSE, RAW_CLOSE, CLOSE_RANGE, DUP2_OVER, RAW_DUP2_OVER, WAYS };

static void check(int fd, const char *what, char first, char second, char *buf)
{
    long n = pread(fd, buf, WHOLE, 0);

    if (n != WHOLE || !all(buf, HALF, first) || !all(buf + HALF, HALF, second))
        not_ok("%s: %ld bytes, first %d, middle %d, instead of %d and %d", what, n, buf[0],
               buf[HALF], first, second);
}

static void *reuse(void *arg)
{
    int number = (int)(intptr_t)arg;
    unsigned seed = (unsigned)number + 1;
    char victim[200], decoy[200];
    char *buf = malloc(WHOLE), *bytes = malloc(WHOLE);
    double until = now() + seconds;
    long rounds = 0;
    int left;

    close(make(path_of(victim, "victim", number), 'v'));
    close(make(path_of(decoy, "decoy", number), 'D'));
    memset(bytes, 'v', WHOLE);
    for (; now() < until; rounds++) {
        int way = (int)(rand_r(&seed) >> 4) % WAYS;
        bool raw = (rand_r(&seed) & 16) != 0;
        int fd = open(victim, O_RDWR | O_CLOEXEC);
        int over = raw ? raw_open(decoy) : open(decoy, O_RDWR | O_CLOEXEC);
        int at;

        if (fd < 0 || over < 0) {
            not_ok("open: %s", strerror(errno));
            break;
        }
        if (pwrite(fd, bytes, WHOLE, 0) != WHOLE)
            not_ok("a write of the victim: %s", strerror(errno));
        punch(fd, 0, HALF / 2);
        punch(fd, HALF / 2, HALF / 2);
        switch (way) {
        case CLOSE:
            close(fd);
            break;
        case RAW_CLOSE:
            rl_raw(SYS_close, fd);
            break;
        case CLOSE_RANGE:
            close_range((unsigned)fd, (unsigned)fd, 0);
            break;
        case DUP2_OVER:
            dup2(over, fd);
            break;
        default:
            rl_raw(SYS_dup3, over, fd, O_CLOEXEC);
            break;
        }
        at = way >= DUP2_OVER ? fd : raw ? raw_open(decoy) : open(decoy, O_RDWR | O_CLOEXEC);
        check(at, "the decoy under a used number", 'D', 'D', buf);
        if ((rounds & 3) == 0 && pwrite(at, buf, WHOLE, 0) == WHOLE)
            check(at, "the decoy, written again", 'D', 'D', buf);
        if (raw)
            rl_raw(SYS_close, at);
        else
            close(at);
        close(over);
        /* Not by a raw call: what is read through a descriptor that nobody saw appear may be late.
         */
        fd = open(victim, O_RDWR | O_CLOEXEC);
        check(fd, "the punched file", 0, 'v', buf);
        close(fd);
    }
    rl_settle();
    nap(50);
    left = raw_open(decoy);
    if (rl_raw(SYS_pread64, left, buf, WHOLE, 0L) != WHOLE || !all(buf, WHOLE, 'D'))
        not_ok("the decoy lost bytes");
    rl_raw(SYS_close, left);
    free(buf);
    free(bytes);
    return (void *)(intptr_t)rounds;
}

static void numbers_are_reused_by_threads(void)
{
    pthread_t thread[THREADS];
    long rounds = 0;

    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, reuse, (void *)i);
    for (int i = 0; i < THREADS; i++) {
        void *r;

        pthread_join(thread[i], &r);
        rounds += (intptr_t)r;
    }
    printf("rounds %ld\n", rounds);
}

/* --- a helper that never saw the shim's tables: forked first, raw calls only --- */

struct order {
    char
        what; /* 'l' who has a lock on path; 'w' write 'C' at off through the fd that comes along */
    char path[200];
    off_t off;
};
static int helper;

static long helper_locks(const struct order *order)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = raw_open(order->path);
    long r = rl_raw(SYS_fcntl, fd, F_GETLK, &lock);

    rl_raw(SYS_close, fd);
    return r != 0 ? -1 : lock.l_type == F_UNLCK ? 0 : lock.l_pid;
}

static void run_helper(int socket)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct order order;
    struct iovec one = {&order, sizeof order};

    for (;;) {
        struct msghdr msg = {.msg_iov = &one,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
        static char bytes[4096];
        long r = 0;
        int fd;

        if (rl_raw(SYS_recvmsg, socket, &msg, 0) != (long)sizeof order)
            rl_raw(SYS_exit_group, 0);
        if (order.what == 'l') {
            r = helper_locks(&order);
        } else {
            memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
            memset(bytes, 'C', sizeof bytes);
            r = rl_raw(SYS_pwrite64, fd, bytes, sizeof bytes, order.off);
            rl_raw(SYS_close, fd);
        }
        rl_raw(SYS_write, socket, &r, sizeof r);
    }
}

static void start_helper(void)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        exit(3);
    if (fork() == 0) {
        rl_raw(SYS_close, ends[0]);
        run_helper(ends[1]);
    }
    close(ends[1]);
    helper = ends[0];
}

static long ask_helper(const struct order *order, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec one = {(void *)(uintptr_t)order, sizeof *order};
    struct msghdr msg = {.msg_iov = &one, .msg_iovlen = 1};
    long r = -1;

    if (fd >= 0) {
        msg.msg_control = &control;
        msg.msg_controllen = sizeof control;
        control.header = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    }
    if (sendmsg(helper, &msg, 0) < 0 || read(helper, &r, sizeof r) != (ssize_t)sizeof r)
        not_ok("the helper is gone: %s", strerror(errno));
    return r;
}

static void posix_locks_survive(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10};
    struct order order = {.what = 'l'};
    int fd = make(path_of(order.path, "locked", 0), 'v');

    if (fcntl(fd, F_SETLK, &lock) != 0)
        not_ok("F_SETLK: %s", strerror(errno));
    for (int round = 0; round < 40; round++) {
        until_deferred(fd);
        for (int i = 0; i < 4; i++)
            punch(fd, i * 8192, 4096);
        if (round % 4 == 1)
            fsync(fd);
        if (round % 4 == 2)
            nap(15); /* applied */
        if (round == 39)
            nap(400); /* the worker is gone */
        if (ask_helper(&order, -1) != getpid()) {
            not_ok("a lock was lost in round %d", round);
            break;
        }
    }
    close(fd);
    if (ask_helper(&order, -1) != 0)
        not_ok("a lock survived the close");
}

static void a_passed_descriptor_may_be_written_to(void)
{
    for (int round = 0; round < 20; round++) {
        struct order order = {.what = 'w', .off = 8192};
        char path[200], got[4096];
        int fd = make(path_of(path, "passed", round), 'v');

        until_deferred(fd);
        punch(fd, 0, HALF);
        if (ask_helper(&order, fd) != 4096)
            not_ok("the helper could not write");
        nap(round % 3 * 8);
        if (pread(fd, got, sizeof got, 8192) != 4096 || !all(got, sizeof got, 'C'))
            not_ok("what another process wrote into a punched range is gone (%d)", got[0]);
        rl_settle();
        rl_raw(SYS_pread64, fd, got, sizeof got, 8192L);
        if (!all(got, sizeof got, 'C'))
            not_ok("what another process wrote into a punched range was destroyed");
        close(fd);
    }
}

/* --- exec --- */

static int exec_child(int fd, int closed)
{
    char bytes[4096];

    memset(bytes, 'C', sizeof bytes);
    if (rl_raw(SYS_fcntl, closed, F_GETFD) != -EBADF)
        return 11;
    return rl_raw(SYS_pwrite64, fd, bytes, sizeof bytes, 8192L) == 4096 ? 10 : 12;
}

static void an_executed_child_may_write(void)
{
    for (int round = 0; round < 6; round++) {
        char path[200], fd_text[16], closed_text[16], got[4096];
        int closed = make(path_of(path, "closed", round), 'v'); /* O_CLOEXEC */
        int status = 0;
        int fd;
        pid_t pid;

        close(make(path_of(path, "inherited", round), 'v'));
        fd = open(path, O_RDWR);
        until_deferred(fd);
        until_deferred(closed);
        punch(fd, 0, HALF);
        punch(closed, 0, HALF);
        snprintf(fd_text, sizeof fd_text, "%d", fd);
        snprintf(closed_text, sizeof closed_text, "%d", closed);
        pid = fork();
        if (pid == 0) {
            execl(self, self, "--child", fd_text, closed_text, (char *)NULL);
            _exit(13);
        }
        punch(fd, 16384, 4096);
        if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 10)
            not_ok("the executed child ended with %x", (unsigned)status);
        nap(15);
        if (pread(fd, got, sizeof got, 8192) != 4096 || !all(got, sizeof got, 'C'))
            not_ok("what an executed child wrote into a punched range is gone");
        close(fd);
        close(closed);
    }
}

/* --- nothing of ours in the table --- */

static unsigned long long open_numbers(void)
{
    DIR *d = opendir("/proc/self/fd");
    unsigned long long set = 0;

    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.' && atoi(e->d_name) != dirfd(d))
            set |= 1ull << (atoi(e->d_name) & 63);
    closedir(d);
    return set;
}

static void the_table_is_as_without(void)
{
    unsigned long long before;
    char path[200];
    int fd = make(path_of(path, "table", 0), 'v');
    int next = dup(fd);

    close(next);
    before = open_numbers();
    until_deferred(fd);
    for (int round = 0; round < 200; round++) {
        int got;

        punch(fd, round % 8 * 4096, 4096);
        got = open(path, O_RDONLY | O_CLOEXEC);
        if (got != next)
            not_ok("open gave %d instead of %d", got, next);
        close(got);
        if (round % 20 == 0 && open_numbers() != before)
            not_ok("/proc/self/fd lists %llx instead of %llx", open_numbers(), before);
    }
    close(fd);
}

static void few_descriptors_are_enough(void)
{
    struct rlimit old, few;
    int got[16], n = 0, expected = 16;
    unsigned long long set = open_numbers();
    char path[200];
    int fd;

    getrlimit(RLIMIT_NOFILE, &old);
    few = old;
    few.rlim_cur = 16;
    for (int i = 0; i < 16; i++)
        expected -= (int)(set >> i & 1);
    setrlimit(RLIMIT_NOFILE, &few);
    fd = make(path_of(path, "few", 0), 'v');
    until_deferred(fd);
    punch(fd, 0, HALF);
    while (n < 16 && (got[n] = open(path, O_RDONLY | O_CLOEXEC)) >= 0)
        n++;
    if (n != expected - 1 || errno != EMFILE)
        not_ok("%d descriptors could be opened instead of %d: %s", n, expected - 1,
               strerror(errno));
    punch(fd, 4096, 4096);
    while (n > 0)
        close(got[--n]);
    {
        char *buf = malloc(WHOLE);

        check(fd, "a file with few descriptors", 0, 'v', buf);
        free(buf);
    }
    close(fd);
    setrlimit(RLIMIT_NOFILE, &old);
}

static void everything_is_closed(bool by_range)
{
    char *buf = malloc(WHOLE);

    for (int round = 0; round < 10; round++) {
        char victim[200], decoy[200];
        int keep = make(path_of(decoy, "after", round), 'D');
        int fd = make(path_of(victim, "before", round), 'v');
        int first = fd;

        close(keep);
        until_deferred(fd);
        punch(fd, 0, HALF);
        /* The helper's socket stands below. */
        if (by_range)
            close_range((unsigned)helper + 1, ~0u, 0);
        else
            closefrom(helper + 1);
        do
            fd = open(decoy, O_RDWR | O_CLOEXEC);
        while (fd < first);
        check(fd, "the decoy after all were closed", 'D', 'D', buf);
        punch(fd, HALF, HALF);
        check(fd, "the decoy after a punch of its own", 'D', 0, buf);
        fd = open(victim, O_RDWR | O_CLOEXEC);
        check(fd, "the file that was closed with all", 0, 'v', buf);
        close_range((unsigned)helper + 1, ~0u, 0);
    }
    free(buf);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--child") == 0)
        return exec_child(atoi(argv[2]), atoi(argv[3]));
    if (argc != 3)
        return 2;
    alarm(55);
    setvbuf(stdout, NULL, _IOLBF, 0);
    self = argv[0];
    dir = argv[1];
    seconds = atof(argv[2]);
    start_helper();
    the_table_is_as_without();
    few_descriptors_are_enough();
    everything_is_closed(false);
    everything_is_closed(true);
    posix_locks_survive();
    a_passed_descriptor_may_be_written_to();
    an_executed_child_may_write();
    numbers_are_reused_by_threads();
    printf("deferred %llu\n", (unsigned long long)rl_counter("punch_deferred"));
    return failures != 0;
}
