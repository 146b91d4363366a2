/* SPDX-License-Identifier: MIT */
/* timeout: 60 */
/*
 * corners: what an attack on the core found once. Each case is right without the shim, was wrong
 * with it, and needs `share = private`, `punch_delay = 1s` and `split = 256K`.
 *
 *   corners DIR
 *
 * 0: all right; 1: not, and what. Cases that cannot be had here say so.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../include/rlshim/control.h"
#include "../../lockmgr/rawcall.h"

#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define BLOCK 4096
#define WHOLE ((size_t)1 << 20)
#define BIG   ((size_t)4 << 20)

static const char *dir;
static unsigned failures;
static char block[BLOCK] __attribute__((aligned(BLOCK)));

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

static void nap(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    rl_raw(SYS_nanosleep, &t, NULL);
}

/* A new file of WHOLE bytes, all of them 'x'. */
static int made(const char *name, char *path)
{
    static char buf[WHOLE];
    int fd;

    snprintf(path, 200, "%s/%s", dir, name);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    memset(buf, 'x', WHOLE);
    if (fd < 0 || pwrite(fd, buf, WHOLE, 0) != (ssize_t)WHOLE)
        not_ok("%s: %s", path, strerror(errno));
    return fd;
}

static bool is_deferred(int fd, off_t off)
{
    uint64_t before = rl_counter("punch_deferred");

    if (fallocate(fd, PUNCH, off, BLOCK) != 0)
        not_ok("a punch failed: %s", strerror(errno));
    return rl_counter("punch_deferred") != before;
}

/* Punches the first block until that is deferred; false where it is not. */
static bool defers(int fd)
{
    for (int i = 0; i < 500; i++) {
        if (is_deferred(fd, 0))
            return true;
        if (rl_counter("punch_calls") == 0) /* without the shim */
            return false;
        nap(2);
    }
    return false;
}

static char byte_at(int fd, off_t off)
{
    char c = '?';

    if (pread(fd, &c, 1, off) != 1)
        not_ok("a read failed: %s", strerror(errno));
    return c == 0 ? '0' : c;
}

/* --- ext4 refuses what lies beyond its largest offset --- */

static void a_punch_far_out_gets_the_kernels_answer(void)
{
    static const off_t offs[] = {1L << 40, 1L << 41, 1L << 43, (1L << 44) - 8192,
                                 1L << 44, 1L << 50, 1L << 62, 0x7fffffffffffe000};
    char path[200];
    int fd = made("far", path);

    defers(fd);
    for (unsigned i = 0; i < sizeof offs / sizeof *offs; i++) {
        long kernel = rl_raw(SYS_fallocate, fd, PUNCH, offs[i], (long)BLOCK);
        int ours;

        errno = 0;
        ours = fallocate(fd, PUNCH, offs[i], BLOCK) == 0 ? 0 : -errno;
        if (ours != kernel)
            not_ok("a punch at %lx: %d where the kernel says %ld", (unsigned long)offs[i], ours,
                   kernel);
    }
    if (fsync(fd) != 0 || close(fd) != 0)
        not_ok("%s: %s", path, strerror(errno));
    unlink(path);
}

/* --- a child of vfork puts another file at the number of a stream --- */

enum replace { BY_DUP, BY_OPEN, BY_CLONE };

static int replaces(void *arg)
{
    int *fds = arg;

    dup2(fds[0], fds[1]);
    _exit(0);
}

static void a_stream_stays_one_whatever_a_child_of_vfork_does(enum replace how)
{
    static char stack[64 * 1024] __attribute__((aligned(64)));
    char path[200];
    int fd = made("stream", path);
    int number = open(path, O_RDWR | O_CLOEXEC);
    int other = open("/dev/null", O_RDWR | O_CLOEXEC);
    FILE *stream = fdopen(number, "r+");
    int fds[2] = {other, number};
    pid_t pid;

    if (how == BY_CLONE) {
        pid = clone(replaces, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, fds);
    } else if ((pid = vfork()) == 0) {
        if (how == BY_DUP)
            dup2(other, number);
        else if (close(number) == 0 && open("/dev/null", O_RDWR) != number)
            _exit(1);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    nap(250); /* until deferral may begin again after a vfork */
    defers(fd);
    fallocate(fd, PUNCH, 2 * BLOCK, BLOCK);
    memset(block, 'W', BLOCK);
    if (stream == NULL || fseek(stream, 2 * BLOCK, SEEK_SET) != 0 ||
        fwrite(block, BLOCK, 1, stream) != 1 || fflush(stream) != 0)
        not_ok("the stream: %s", strerror(errno));
    fsync(fd);
    if (byte_at(fd, 2 * BLOCK) != 'W')
        not_ok("what a stream wrote was punched away (%d)", (int)how);
    fclose(stream);
    close(other);
    close(fd);
    unlink(path);
}

/* --- a handler whose stack lies above that of the thread --- */

static int direct;
static volatile int hits, slow_hits, writing;

static void punches(int signal)
{
    double began = now();

    (void)signal;
    if (!writing)
        return;
    fallocate(direct, PUNCH, 2 * (off_t)BIG, BLOCK);
    slow_hits += now() - began > 0.9;
    hits++;
}

static void *writes(void *arg)
{
    stack_t stack = {.ss_sp = arg, .ss_size = 64 * 1024};
    double end = now() + 3;
    sigset_t set;
    char *buf;

    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    if (sigaltstack(&stack, NULL) != 0 || posix_memalign((void **)&buf, BLOCK, BIG) != 0)
        return NULL;
    memset(buf, 'a', BIG);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    writing = 1;
    while (now() < end && hits < 10)
        if (pwrite(direct, buf, BIG, 0) != (ssize_t)BIG)
            break;
    writing = 0;
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    free(buf);
    return NULL;
}

static void a_handler_on_a_stack_above_does_not_wait_for_itself(void)
{
    struct sigaction action = {.sa_handler = punches, .sa_flags = SA_ONSTACK | SA_RESTART};
    struct itimerval every = {{0, 50000}, {0, 50000}}, never = {{0, 0}, {0, 0}};
    char path[200];
    pthread_t thread;
    sigset_t set;
    char *above;

    close(made("direct", path));
    direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (direct < 0) {
        printf("left out: no O_DIRECT in %s\n", dir);
        return;
    }
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sigaction(SIGALRM, &action, NULL);
    /* Before the thread's own stack is mapped: mappings go downwards. */
    above = mmap(NULL, 64 * 1024, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    setitimer(ITIMER_REAL, &every, NULL);
    pthread_create(&thread, NULL, writes, above);
    pthread_join(thread, NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    /* A gate that somebody left is forgotten after a second, and nearly every signal comes while the
     * thread is at its gate; a busy disk may take a second by itself, but not time after time. */
    if (slow_hits * 2 > hits)
        not_ok("%d of %d punches in a handler waited for a second", slow_hits, hits);
    munmap(above, 64 * 1024);
    close(direct);
    unlink(path);
}

/* --- a child in a pid namespace of its own, where its parent's pid is nobody's --- */

struct apart {
    const char *path;
    int go[2], done[2];
};

static int writes_apart(void *arg)
{
    struct apart *apart = arg;
    char c;
    int fd;

    if (read(apart->go[0], &c, 1) != 1 || (fd = open(apart->path, O_RDWR)) < 0)
        _exit(1);
    memset(block, 'W', BLOCK);
    if (pwrite(fd, block, BLOCK, 2 * BLOCK) != BLOCK || write(apart->done[1], "d", 1) != 1)
        _exit(2);
    _exit(0);
}

/* Stops the parent for a while, in which the child goes. */
static void stops(int wait, int go)
{
    pid_t parent = getppid();
    char c;

    if (read(wait, &c, 1) == 1 && kill(parent, SIGSTOP) == 0) {
        nap(20);
        if (write(go, "g", 1) != 1)
            nap(0);
        nap(300);
        kill(parent, SIGCONT);
    }
    _exit(0);
}

static void a_child_in_a_pid_namespace_waits_for_its_parent(void)
{
    static char stack[64 * 1024] __attribute__((aligned(64)));
    char path[200], c;
    struct apart apart = {.path = path};
    int wait[2], status = -1, fd = made("apart", path);
    pid_t child, helper;

    close(fd); /* no child may have it, or nothing is deferred */
    if (pipe(apart.go) != 0 || pipe(apart.done) != 0 || pipe(wait) != 0)
        not_ok("no pipe: %s", strerror(errno));
    child = clone(writes_apart, stack + sizeof stack, CLONE_NEWPID | SIGCHLD, &apart);
    if (child < 0) {
        printf("left out: no pid namespace\n");
        return;
    }
    if ((helper = fork()) == 0)
        stops(wait[0], apart.go[1]);
    fd = open(path, O_RDWR | O_CLOEXEC);
    defers(fd);
    fallocate(fd, PUNCH, 2 * BLOCK, BLOCK);
    if (write(wait[1], "w", 1) != 1 || read(apart.done[0], &c, 1) != 1)
        not_ok("the child did not answer");
    fsync(fd);
    if (byte_at(fd, 2 * BLOCK) != 'W')
        not_ok("what a child in another pid namespace wrote was punched away");
    if (waitpid(child, &status, 0) != child || status != 0 || waitpid(helper, NULL, 0) != helper)
        not_ok("the child ended with %x", status);
    for (int i = 0; i < 2; i++) {
        close(apart.go[i]);
        close(apart.done[i]);
        close(wait[i]);
    }
    close(fd);
    unlink(path);
}

/* --- a descriptor's number beyond a million --- */

static void a_high_number_is_a_descriptor_too(void)
{
    enum { HIGH = 1100000 };
    struct rlimit limit = {HIGH + 1, HIGH + 1};
    char path[200];
    int fd, high;

    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        printf("left out: no descriptors beyond a million\n");
        return;
    }
    fd = made("high", path);
    defers(fd);
    high = dup2(fd, HIGH);
    if (high == HIGH) {
        fallocate(fd, PUNCH, 2 * BLOCK, BLOCK);
        if (byte_at(high, 2 * BLOCK) != '0')
            not_ok("a high descriptor does not see a punch");
        memset(block, 'W', BLOCK);
        if (pwrite(high, block, BLOCK, 2 * BLOCK) != BLOCK)
            not_ok("a write: %s", strerror(errno));
        fsync(fd);
        if (byte_at(fd, 2 * BLOCK) != 'W')
            not_ok("what was written through a high descriptor was punched away");
        close(high);
    }
    close(fd);
    unlink(path);
}

/* --- a thread that has no thread-local variables of its own --- */

static volatile int bare_over, bare_runs;

static int bare(void *arg)
{
    (void)arg;
    bare_runs = 1;
    while (!bare_over)
        rl_raw(SYS_sched_yield);
    bare_runs = 0;
    rl_raw(SYS_exit, 0);
    return 0;
}

static void beside_a_bare_thread_nothing_is_deferred(void)
{
    static char stack[64 * 1024] __attribute__((aligned(64)));
    char path[200];
    int fd = made("bare", path);

    if (clone(bare, stack + sizeof stack,
              CLONE_VM | CLONE_FILES | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM,
              NULL) < 0)
        not_ok("no thread: %s", strerror(errno));
    while (!bare_runs)
        nap(1);
    for (int i = 0; i < 50; i++) {
        if (is_deferred(fd, 0)) {
            not_ok("a punch is deferred beside a thread whose calls are not counted");
            break;
        }
        nap(2);
    }
    bare_over = 1;
    while (bare_runs)
        nap(1);
    close(fd);
    unlink(path);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    dir = argv[1];
    a_punch_far_out_gets_the_kernels_answer();
    for (int how = BY_DUP; how <= BY_CLONE; how++)
        a_stream_stays_one_whatever_a_child_of_vfork_does((enum replace)how);
    a_handler_on_a_stack_above_does_not_wait_for_itself();
    a_child_in_a_pid_namespace_waits_for_its_parent();
    a_high_number_is_a_descriptor_too();
    printf("deferred %lu\n", (unsigned long)rl_counter("punch_deferred"));
    beside_a_bare_thread_nothing_is_deferred(); /* the last: nothing is deferred ever after */
    return failures != 0;
}
