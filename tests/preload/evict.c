/* SPDX-License-Identifier: MIT */
/*
 * evict DIR [exact]: files that are deleted, replaced or closed for the last time, with and without
 * the shim. Every line on stdout is what any program may see, and must be the same in both runs;
 * stderr gets the counters ("held N: what") and, last, "held N". Exit 1 if something is wrong by
 * itself. exact: on this file system statvfs knows at once what unlink has freed.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../include/rlshim/control.h"

#define BIG   (96 << 20)
#define SLACK (8 << 20)

static char big[300], other[300];
static const char *dir;
static int dirfd_;
static uint64_t held_before, held_beside; /* beside: of many small files */
static int wrong, counts_at_once;

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static void make(const char *path, off_t bytes)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);

    if (fd < 0 || (bytes != 0 && fallocate(fd, 0, 0, bytes) != 0) || close(fd) != 0)
        die(path);
    held_before = rl_counter("evict_files");
}

static int descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

static void tell(const char *what, int r)
{
    int error = r == 0 ? 0 : errno;
    int lowest = dup(0);
    struct stat st;

    close(lowest);
    printf("%s: %d errno %d, big %s, other %s, lowest %d, descriptors %d\n", what, r, error,
           lstat(big, &st) == 0 ? "there" : "gone", lstat(other, &st) == 0 ? "there" : "gone",
           lowest, descriptors());
    fflush(stdout);
    fprintf(stderr, "held %llu: %s\n",
            (unsigned long long)(rl_counter("evict_files") - held_before), what);
    held_before = rl_counter("evict_files");
}

static void clear(void)
{
    unlink(big);
    unlink(other);
    held_before = rl_counter("evict_files");
}

static uint64_t free_bytes(void)
{
    struct statvfs s;

    if (statvfs(dir, &s) != 0)
        die("statvfs");
    return (uint64_t)s.f_bavail * s.f_frsize;
}

static void check(const char *what, int ok)
{
    printf("%s: %s\n", what, ok ? "yes" : "no");
    wrong |= !ok;
}

static void names(void)
{
    char path[400];
    int fd;

    make(big, BIG);
    tell("unlink", unlink(big));
    make(big, BIG);
    tell("unlinkat", unlinkat(dirfd_, "big", 0));
    make(big, BIG);
    tell("remove", remove(big));
    make(big, BIG);
    make(other, 0);
    tell("rename over", rename(other, big));
    clear();
    make(big, BIG);
    make(other, 0);
    tell("renameat over", renameat(dirfd_, "other", AT_FDCWD, big));
    clear();
    make(big, BIG);
    make(other, 0);
    tell("renameat2 over", renameat2(AT_FDCWD, other, dirfd_, "big", 0));
    clear();
    make(big, BIG);
    if (chdir(dir) != 0)
        die(dir);
    tell("unlink by a relative name", unlink("./../d/big"));

    /* nothing is to be freed, or it is not worth it */
    make(big, BIG);
    tell("unlinkat AT_REMOVEDIR", unlinkat(dirfd_, "big", AT_REMOVEDIR));
    if (link(big, other) != 0)
        die("link");
    held_before = rl_counter("evict_files");
    tell("one of two names", unlink(other));
    if (symlink(big, other) != 0)
        die("symlink");
    tell("a symbolic link", unlink(other));
    make(other, 0);
    tell("renameat2 RENAME_NOREPLACE", renameat2(AT_FDCWD, other, AT_FDCWD, big, RENAME_NOREPLACE));
    tell("renameat2 RENAME_EXCHANGE", renameat2(AT_FDCWD, other, AT_FDCWD, big, RENAME_EXCHANGE));
    clear();
    tell("no such file", unlink(big));
    make(big, 65536);
    tell("a small file", unlink(big));
    snprintf(path, sizeof path, "%s/sub", dir);
    mkdir(path, 0700);
    tell("a directory", unlink(path));
    tell("a directory, removed", remove(path));
    make(big, BIG);
    tell("rename to itself", rename(big, big));
    clear();

    /* held elsewhere: the contents stay as long as somebody has them */
    make(big, BIG);
    fd = open(big, O_RDWR);
    if (pwrite(fd, "text", 4, 0) != 4)
        die("pwrite");
    tell("open elsewhere", unlink(big));
    memset(path, 0, 5);
    printf("  still %zd %s\n", pread(fd, path, 4, 0), path);
    usleep(20000); /* looks at closing descriptors are rationed, and this program closes many */
    held_before = rl_counter("evict_files");
    tell("close of an unlinked file", close(fd));
    fd = open(dir, O_TMPFILE | O_RDWR, 0600);
    if (fd < 0 || fallocate(fd, 0, 0, BIG) != 0)
        die("O_TMPFILE");
    held_before = rl_counter("evict_files");
    tell("close of an O_TMPFILE file", close(fd));
    held_before = rl_counter("evict_files");
    tell("close of nothing", close(fd));
}

static int nameless(void)
{
    int fd = open(dir, O_TMPFILE | O_RDWR, 0600);

    if (fd < 0 || fallocate(fd, 0, 0, BIG) != 0)
        die("O_TMPFILE");
    usleep(20000);
    held_before = rl_counter("evict_files");
    return fd;
}

/* Every other way to close the last descriptor. */
static void last_closes(void)
{
    int two[2];
    FILE *f;
    int fd;

    fd = nameless();
    tell("dup2 over the last descriptor", dup2(0, fd) - fd);
    close(fd);
    fd = nameless();
    tell("dup3 over it", dup3(0, fd, O_CLOEXEC) - fd);
    close(fd);
    fd = nameless();
    tell("dup2 of nothing over it", dup2(-1, fd));
    close(fd);
    fd = nameless();
    tell("close_range", close_range((unsigned)fd, (unsigned)fd, 0));
    fd = nameless();
    tell("close_range that only marks it",
         close_range((unsigned)fd, (unsigned)fd, CLOSE_RANGE_CLOEXEC));
    close(fd);
    two[0] = nameless();
    two[1] = nameless();
    closefrom(two[0]);
    tell("closefrom, two of them", 0);
    f = fdopen(nameless(), "r+");
    held_before = rl_counter("evict_files");
    tell("fclose", fclose(f));
    f = fdopen(nameless(), "r+");
    held_before = rl_counter("evict_files");
    f = freopen("/dev/null", "r", f);
    tell("freopen", f == NULL);
    fclose(f);
}

static void *one_unlink(void *arg)
{
    (void)arg;
    return (void *)(intptr_t)unlink(big);
}

/* Without a free inode the next mkdir, which nobody makes once more, needs that of the big file. */
static void inodes(void)
{
    char many[300], path[400];
    int n = 0;

    snprintf(many, sizeof many, "%s/many", dir);
    mkdir(many, 0700);
    make(big, BIG);
    for (;; n++) {
        snprintf(path, sizeof path, "%s/%d", many, n);
        if (mknod(path, S_IFREG | 0600, 0) != 0)
            break;
    }
    check("no inode is left", errno == ENOSPC && n > 100);
    check("unlink without inodes", unlink(big) == 0);
    snprintf(path, sizeof path, "%s/new", dir);
    check("mkdir after it", mkdir(path, 0700) == 0);
    rmdir(path);
    while (n-- > 0) {
        snprintf(path, sizeof path, "%s/%d", many, n);
        unlink(path);
    }
    rmdir(many);
    held_before = rl_counter("evict_files");
}

static void space(void)
{
    static char buf[1 << 20];
    uint64_t before = free_bytes();
    uint64_t after;
    pthread_t t;
    int fd, n;

    make(big, BIG);
    after = free_bytes();
    unlink(big);
    if (counts_at_once) { /* else the kernel itself needs a while */
        check("the file takes space", after + BIG / 2 < before);
        check("statvfs shows the space at once", free_bytes() + SLACK >= before);
    }

    /* Full, then one big file goes: the next write has its space. */
    make(big, BIG);
    fd = open(other, O_RDWR | O_CREAT, 0600);
    while (fallocate(fd, 0, lseek(fd, 0, SEEK_END), 16 << 20) == 0)
        lseek(fd, 0, SEEK_END);
    for (n = 0; write(fd, buf, sizeof buf) == sizeof buf; n++)
        lseek(fd, 0, SEEK_END);
    fsync(fd);
    held_before = rl_counter("evict_files");
    unlink(big);
    for (n = 0; n < 64 && write(fd, buf, sizeof buf) == sizeof buf; n++)
        ;
    printf("after the unlink on a full disk %d MiB could be written\n", n);
    wrong |= n != 64;
    close(fd);
    unlink(other);

    if (counts_at_once)
        inodes();

    /* A child made right after keeps nothing alive, and neither does a thread. */
    before = free_bytes();
    make(big, BIG);
    pthread_create(&t, NULL, one_unlink, NULL);
    pthread_join(t, NULL);
    n = fork();
    if (n == 0) {
        pause();
        _exit(0);
    }
    if (counts_at_once)
        check("freed though a child lives", free_bytes() + SLACK >= before);
    kill(n, SIGKILL);
    waitpid(n, NULL, 0);
}

static void exhausted(void)
{
    struct rlimit old, limit;
    int fds[64], n = 0;

    getrlimit(RLIMIT_NOFILE, &old);
    limit = (struct rlimit){32, old.rlim_max};
    make(big, BIG);
    setrlimit(RLIMIT_NOFILE, &limit);
    while (n < 64 && (fds[n] = dup(0)) >= 0)
        n++;
    check("descriptors are exhausted", errno == EMFILE);
    errno = 0;
    check("unlink works with none left", unlink(big) == 0 && errno == 0);
    while (n > 0)
        close(fds[--n]);
    setrlimit(RLIMIT_NOFILE, &old);
    tell("unlink with descriptors exhausted", 0);
}

static void watched(void)
{
    char buf[4096] __attribute__((aligned(8)));
    struct pollfd p;
    uint32_t seen = 0;
    time_t began;

    make(big, BIG);
    p = (struct pollfd){inotify_init1(IN_NONBLOCK), POLLIN, 0};
    inotify_add_watch(p.fd, big, IN_DELETE_SELF | IN_ATTRIB);
    inotify_add_watch(p.fd, dir, IN_DELETE);
    unlink(big);
    check("IN_DELETE at once", poll(&p, 1, 0) == 1);
    for (began = time(NULL); (seen & IN_DELETE_SELF) == 0 && time(NULL) - began < 10;) {
        ssize_t n = poll(&p, 1, 1000) == 1 ? read(p.fd, buf, sizeof buf) : 0;

        for (char *at = buf; at < buf + n;) {
            struct inotify_event *e = (struct inotify_event *)at;

            seen |= e->mask;
            at += sizeof *e + e->len;
        }
    }
    check("IN_DELETE_SELF", (seen & IN_DELETE_SELF) != 0 && (seen & IN_DELETE) != 0);
    close(p.fd);
}

static int tasks(void)
{
    struct stat st;

    return stat("/proc/self/task", &st) == 0 ? (int)st.st_nlink - 2 : -1;
}

/* --- handlers, cancellation, other threads --- */

static volatile sig_atomic_t ticks;

/* What POSIX allows in a handler, above whatever it interrupts. */
static void on_tick(int sig)
{
    char path[340];
    int saved = errno, fd, n = ticks++;

    (void)sig;
    if (n % 8 == 0) {
        snprintf(path, sizeof path, "%s/tick%d", dir, n); /* formats no floating point */
        fd = open(path, O_RDWR | O_CREAT, 0600);
        if (fd >= 0) {
            fallocate(fd, 0, 0, 1 << 20);
            close(fd);
        }
        unlink(path);
    } else if (n % 8 == 4) {
        rmdir("/nonexistent/directory"); /* waits for what is held */
    } else if (n % 100 == 99) {
        wrong |= seteuid(geteuid()) != 0; /* waits for our threads */
    }
    errno = saved;
}

static void *unlinks(void *arg)
{
    char path[340];

    snprintf(path, sizeof path, "%s/file%ld", dir, (long)(intptr_t)arg);
    for (int i = 0; i < 400; i++) {
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);

        if (fd < 0 || fallocate(fd, 0, 0, 1 << 20) != 0 || close(fd) != 0 || unlink(path) != 0)
            die(path);
    }
    return NULL;
}

static void interrupted(void)
{
    struct sigaction act = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec every = {{0, 300000}, {0, 300000}};
    pthread_t t[3];
    timer_t timer;

    sigaction(SIGUSR1, &act, NULL);
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &every, NULL);
    for (int i = 0; i < 3; i++)
        pthread_create(&t[i], NULL, unlinks, (void *)(intptr_t)i);
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    timer_delete(timer);
    check("handlers ran", ticks > 10);
    held_beside = rl_counter("evict_files") - held_before;
    held_before = rl_counter("evict_files");
}

/* Pinned, and real-time where that is allowed. */
static void *unlinks_first(void *arg)
{
    struct sched_param high = {.sched_priority = 1};
    cpu_set_t one;

    (void)arg;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    pthread_setschedparam(pthread_self(), SCHED_FIFO, &high);
    make(big, BIG);
    unlink(big);
    return NULL;
}

/* 0: there is no such thread; 1: there is, and it is like the first one; -1: it is not. */
static int thread_that_frees(void)
{
    char path[400], name[32];
    cpu_set_t mine, its;
    struct dirent *e;
    int found = 0;
    DIR *d = opendir("/proc/self/task");

    sched_getaffinity(0, sizeof mine, &mine);
    while ((e = readdir(d)) != NULL) {
        FILE *f;

        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        if ((f = fopen(path, "r")) == NULL)
            continue;
        if (fgets(name, sizeof name, f) != NULL && strcmp(name, "rlshim-free\n") == 0)
            found = sched_getscheduler(atoi(e->d_name)) == SCHED_OTHER &&
                            sched_getaffinity(atoi(e->d_name), sizeof its, &its) == 0 &&
                            CPU_EQUAL(&mine, &its)
                        ? 1
                        : -1;
        fclose(f);
    }
    closedir(d);
    return found;
}

static void made_by_a_pinned_thread(void)
{
    int n = 100, found;
    pthread_t t;

    while (tasks() != 1 && n-- > 0)
        usleep(50000);
    pthread_create(&t, NULL, unlinks_first, NULL);
    pthread_join(t, NULL);
    for (n = 0; n < 100 && (found = thread_that_frees()) == 0; n++)
        usleep(2000);
    if (found != 0)
        fprintf(stderr, "the thread that frees was seen\n");
    check("what a pinned real-time thread deletes is freed by an ordinary one", found >= 0);
    held_before = rl_counter("evict_files");
}

static void *closes_cancelled(void *arg)
{
    pthread_cancel(pthread_self());
    close((int)(intptr_t)arg); /* a cancellation point: the descriptor stays open */
    return NULL;
}

static void cancelled(void)
{
    uint64_t before = free_bytes();
    int fd = open(dir, O_TMPFILE | O_RDWR, 0600);
    void *result;
    pthread_t t;

    if (fd < 0 || fallocate(fd, 0, 0, BIG) != 0)
        die("O_TMPFILE");
    usleep(20000);
    pthread_create(&t, NULL, closes_cancelled, (void *)(intptr_t)fd);
    pthread_join(t, &result);
    check("close was cancelled", result == PTHREAD_CANCELED && fcntl(fd, F_GETFD) >= 0);
    check("and then closed", close(fd) == 0);
    if (counts_at_once)
        check("nothing of it is kept", free_bytes() + SLACK >= before);
    held_before = rl_counter("evict_files");
}

int main(int argc, char **argv)
{
    int n = 100;

    if (argc < 2)
        return 2;
    counts_at_once = argc > 2;
    dir = argv[1];
    dirfd_ = open(dir, O_RDONLY | O_DIRECTORY);
    snprintf(big, sizeof big, "%s/big", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    clear();
    names();
    last_closes();
    space();
    exhausted();
    watched();
    cancelled();
    made_by_a_pinned_thread();
    interrupted();
    while (tasks() != 1 && n-- > 0)
        usleep(50000);
    check("no thread is left when it is quiet", tasks() == 1);
    /* The process may end at once, with something held. */
    make(big, BIG);
    unlink(big);
    fprintf(stderr, "held %llu\n", (unsigned long long)(rl_counter("evict_files") - held_beside));
    return wrong;
}
