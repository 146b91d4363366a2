/* SPDX-License-Identifier: MIT */
/*
 * A stranger gets at the file in every way there is, and reads and writes where the program under
 * test punches.
 *
 *   strangers DIR WAY TRIES
 *
 * The stranger is made first and has no part in the library: it is no child of the program under
 * test, which is this program again, run with LD_PRELOAD from STRANGERS_SO. Both speak over a
 * socket. The program creates a file, fills it, does what WAY says, punches until punches are
 * deferred if they ever are, then for TRIES blocks: punches, has the stranger read the block (not
 * zeros: stale) and write it (gone later: lost).
 *
 *   alone    no stranger; the file is unlinked: shows that punches are deferred here at all
 *   named    opened by name, late
 *   before   opened by name before the file is unlinked
 *   mapped   the same, mapped and closed
 *   passed   unlinked; the descriptor is sent, late (SCM_RIGHTS)
 *   space    as before, the stranger in a pid namespace of its own
 *   fd       unlinked; opened through /proc/PID/fd, late
 *   taken    unlinked; taken with pidfd_getfd, late
 *
 * Prints "WAY: N tries, L lost, S stale"; exit 1 if any.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCK  4096
#define BLOCKS 256
#define PUNCH  (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

enum { OPEN, MAP, RECEIVE, PROC_FD, GETFD, READ, WRITE };

struct word {
    int what, number, pid, answer;
    char path[3000];
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(2);
}

/* --- the stranger --- */

static int fd = -1;
static unsigned char *map;

static int receive_fd(int from)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof control};
    int got = -1;

    if (recvmsg(from, &msg, 0) == 1 && msg.msg_controllen != 0)
        memcpy(&got, CMSG_DATA(&control.head), sizeof got);
    return got;
}

static int obey(int from, struct word *w)
{
    unsigned char buf[BLOCK];
    off_t at = (off_t)(w->number % BLOCKS) * BLOCK;
    char path[64];

    switch (w->what) {
    case OPEN:
        return fd = open(w->path, O_RDWR);
    case MAP:
        fd = open(w->path, O_RDWR);
        map = mmap(NULL, BLOCKS * BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        return map == MAP_FAILED ? -1 : 0;
    case RECEIVE:
        return fd = receive_fd(from);
    case PROC_FD:
        snprintf(path, sizeof path, "/proc/%d/fd/%d", w->pid, w->number);
        return fd = open(path, O_RDWR);
    case GETFD:
        return fd = (int)syscall(SYS_pidfd_getfd, (int)syscall(SYS_pidfd_open, w->pid, 0),
                                 w->number, 0);
    case READ:
        if (map != NULL)
            return map[at];
        return pread(fd, buf, BLOCK, at) == BLOCK ? buf[0] : -1;
    default:
        memset(buf, w->number % 255 + 1, sizeof buf);
        if (map != NULL)
            memcpy(map + at, buf, BLOCK);
        return map != NULL || pwrite(fd, buf, BLOCK, at) == BLOCK ? 0 : -1;
    }
}

static void stranger(int from)
{
    struct word w;

    while (recv(from, &w, sizeof w, 0) == sizeof w) {
        w.answer = obey(from, &w);
        send(from, &w, sizeof w, 0);
    }
    _exit(0);
}

/* --- the program under test --- */

static int to;
static struct word w;

static int tell(int what, int number)
{
    w.what = what;
    w.number = number;
    w.pid = getpid();
    if (send(to, &w, sizeof w, 0) != sizeof w || recv(to, &w, sizeof w, 0) != sizeof w)
        die("the stranger is gone");
    return w.answer;
}

static void must(int what, int number, const char *doing)
{
    if (tell(what, number) < 0)
        die(doing);
}

static void send_fd(int file)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.head = {.cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS,
                          .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct iovec iov = {(char[]){0}, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof control};

    memcpy(CMSG_DATA(&control.head), &file, sizeof file);
    w.what = RECEIVE;
    if (send(to, &w, sizeof w, 0) != sizeof w || sendmsg(to, &msg, 0) != 1 ||
        recv(to, &w, sizeof w, 0) != sizeof w || w.answer < 0)
        die("sendmsg");
}

static int under_test(const char *dir, const char *way, int tries)
{
    bool alone = strcmp(way, "alone") == 0;
    int lost = 0, stale = 0, file;
    unsigned char buf[BLOCK];

    snprintf(w.path, sizeof w.path, "%s/strangers.dat", dir);
    file = open(w.path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0)
        die(w.path);
    memset(buf, 7, sizeof buf);
    for (int i = 0; i < BLOCKS; i++)
        if (pwrite(file, buf, BLOCK, (off_t)i * BLOCK) != BLOCK)
            die("pwrite");
    if (strcmp(way, "before") == 0 || strcmp(way, "space") == 0)
        must(OPEN, 0, "open before");
    if (strcmp(way, "mapped") == 0)
        must(MAP, 0, "map before");
    if (strcmp(way, "named") != 0)
        unlink(w.path);
    for (int i = 0; i < 100; i++) {
        if (fallocate(file, PUNCH, 0, BLOCK) != 0)
            die("fallocate");
        nanosleep(&(struct timespec){0, 3000000}, NULL);
    }
    if (strcmp(way, "named") == 0)
        must(OPEN, 0, "open late");
    if (strcmp(way, "passed") == 0)
        send_fd(file);
    if (strcmp(way, "fd") == 0)
        must(PROC_FD, file, "open through /proc");
    if (strcmp(way, "taken") == 0)
        must(GETFD, file, "pidfd_getfd");
    for (int n = 0; n < tries; n++) {
        if (fallocate(file, PUNCH, (off_t)(n % BLOCKS) * BLOCK, BLOCK) != 0)
            die("fallocate");
        if (alone)
            continue;
        stale += tell(READ, n) != 0;
        must(WRITE, n, "write");
        if (n >= BLOCKS / 2) { /* written a while ago: what was queued then has been applied */
            int old = n - BLOCKS / 2;

            if (pread(file, buf, BLOCK, (off_t)(old % BLOCKS) * BLOCK) != BLOCK)
                die("pread");
            lost += buf[0] != old % 255 + 1;
        }
    }
    if (strcmp(way, "named") == 0)
        unlink(w.path);
    printf("%s: %d tries, %d lost, %d stale\n", way, tries, lost, stale);
    return lost + stale != 0;
}

int main(int argc, char **argv)
{
    int pair[2];
    int status = 0;
    pid_t pid;

    if (argc == 5) {
        to = atoi(argv[4]);
        return under_test(argv[1], argv[2], atoi(argv[3]));
    }
    if (argc != 4)
        return 2;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0)
        die("socketpair");
    if (strcmp(argv[2], "space") == 0 && unshare(CLONE_NEWPID) != 0) {
        printf("space: no pid namespace to be had\n");
        return 77;
    }
    pid = fork();
    if (pid == 0) {
        close(pair[1]);
        stranger(pair[0]);
    }
    close(pair[0]);
    /* Not the process that unshared: its children would be in the stranger's namespace. */
    if (pid > 0) {
        char number[12];

        snprintf(number, sizeof number, "%d", pair[1]);
        setenv("LD_PRELOAD", getenv("STRANGERS_SO"), 1);
        execl("/proc/self/exe", argv[0], argv[1], argv[2], argv[3], number, (char *)NULL);
    }
    die("fork or exec");
    return status;
}
