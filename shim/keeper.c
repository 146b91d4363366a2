/* SPDX-License-Identifier: MIT */
/* keeper: the worker's side of it; see keeper.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include "keeper.h"
#include "keeper_impl.h"
#include "keeper_mark.h"
#include "log.h"
#include "report.h"
#include "state.h"
#include "stats.h"

#define ANSWER_NS UINT64_C(2000000000) /* a keeper that is slower is stopped, or frozen */
#define RETRY_NS  UINT64_C(1000000000) /* after one could not be had */

static struct {
    struct keeper_process process;
    uint32_t number; /* of the one that runs, 0 none; counts up */
    uint32_t last;
    bool told;
    uint64_t retry_ns;
    struct {
        uint32_t keeper; /* which one has it, 0 none */
        int mark;
    } file[KEEPER_FILES];
} keeper;

static bool ready(int fd, uint64_t timeout_ns)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct timespec ts = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                          .tv_nsec = (long)(timeout_ns % 1000000000u)};

    return rl_raw(SYS_ppoll, &p, 1, &ts, NULL, 8) > 0;
}

/* Kills what runs, and waits until its descriptors are closed. */
static void lose(void)
{
    rl_raw(SYS_pidfd_send_signal, keeper.process.pidfd, SIGKILL, NULL, 0);
    ready(keeper.process.pidfd, ANSWER_NS);
    rl_raw(SYS_close, keeper.process.pidfd);
    rl_raw(SYS_close, keeper.process.socket);
    keeper.number = 0;
}

/* Sends a packet, with a descriptor unless fd is -1, and waits for the answer. */
static int ask(const void *packet, size_t bytes, int fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {(void *)(uintptr_t)packet, bytes};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    int result;

    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
        msg.msg_control = &control;
        msg.msg_controllen = sizeof control;
    }
    if (rl_raw(SYS_sendmsg, keeper.process.socket, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) ==
            (long)bytes &&
        ready(keeper.process.socket, ANSWER_NS) &&
        rl_raw(SYS_recvfrom, keeper.process.socket, &result, sizeof result, MSG_DONTWAIT, NULL,
               NULL) == sizeof result)
        return result;
    stat_add(STAT_keeper_lost, 1);
    lose();
    return -EPIPE;
}

static void say_why(const char *step, int error)
{
    if (!keeper.told) /* once a process */
        log_line(CFG_LOG_INFO, LOG_S("no keeper process for named files ("), LOG_S(step),
                 LOG_S(": "), LOG_ERRNO(-error),
                 LOG_S("), so their punches stay inline; keeper = off defers them without one"));
    keeper.told = true;
}

/* Could not be had: not again at once, and never twice in the log. */
static bool refuse(const char *step, int error)
{
    say_why(step, error);
    keeper.retry_ns = rl_now_ns() + RETRY_NS;
    return false;
}

static bool start(void)
{
    static struct keeper_begin begin; /* the worker's stack is small */
    const char *step;
    int r;

    if (keeper.number != 0 && !ready(keeper.process.pidfd, 0))
        return true;
    if (keeper.number != 0) {
        stat_add(STAT_keeper_lost, 1);
        lose();
    }
    if (rl_now_ns() < keeper.retry_ns)
        return false;
    r = keeper_start(&keeper.process, &step);
    if (r != 0)
        return refuse(step, r);
    keeper.last = keeper.last + 1 != 0 ? keeper.last + 1 : 1;
    keeper.number = keeper.last;
    begin.act = KEEPER_BEGIN;
    begin.shm = proc.arena->shm;
    begin.nodes = proc.arena->pool.capacity;
    begin.program = proc.pid;
    begin.stats[0] = '\0';
    report_stats_path(begin.stats, sizeof begin.stats);
    r = ask(&begin, sizeof begin, -1);
    if (r != 0) {
        if (keeper.number != 0)
            lose();
        return refuse("it was made and did not get ready", r);
    }
    stat_add(STAT_keeper_started, 1);
    return true;
}

int keeper_open_again(int fd)
{
    char path[48] = "/proc/thread-self/fd/";
    size_t len = strlen(path);
    char digits[12];
    int n = 0;

    if (KEEPER_MUTANT(3))
        return (int)rl_raw(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0);
    /* A lease of the program: our open would break it. */
    if (rl_raw(SYS_fcntl, fd, F_GETLEASE) != F_UNLCK)
        return -EWOULDBLOCK;
    do
        digits[n++] = (char)('0' + fd % 10);
    while ((fd /= 10) != 0);
    while (n > 0)
        path[len++] = digits[--n];
    path[len] = '\0';
    return (int)rl_raw(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

bool keeper_take(int slot, const struct rl_inode *inode, uint32_t gen, uint32_t number,
                 uint64_t call_max_bytes, int fd)
{
    struct keeper_message m = {.act = KEEPER_TAKE,
                               .slot = (uint32_t)slot,
                               .index = rl_inode_index(&proc.arena->inodes, inode),
                               .gen = gen,
                               .number = number,
                               .dev = inode->dev,
                               .ino = inode->ino,
                               .call_max_bytes = call_max_bytes};
    int r;

    if (fd < 0) {
        say_why("opening the file once more", fd);
        return false;
    }
    if (!start())
        return false;
    m.mark = r = keeper_mark_make(m.dev, m.ino);
    if (r >= 0) {
        r = ask(&m, sizeof m, fd);
        if (r != 0)
            keeper_mark_remove(m.mark);
    } else {
        say_why("the semaphores of the file", r);
    }
    if (r != 0)
        return false;
    keeper.file[slot].keeper = keeper.number;
    keeper.file[slot].mark = m.mark;
    return true;
}

bool keeper_has(int slot)
{
    uint32_t number = keeper.file[slot].keeper;

    return number == 0 || KEEPER_MUTANT(6) ||
           (number == keeper.number && !ready(keeper.process.pidfd, 0));
}

void keeper_drop(int slot)
{
    struct keeper_message m = {.act = KEEPER_DROP, .slot = (uint32_t)slot};

    if (keeper.file[slot].keeper == 0)
        return;
    if (keeper.file[slot].keeper == keeper.number && !KEEPER_MUTANT(1))
        ask(&m, sizeof m, -1);
    keeper_mark_remove(keeper.file[slot].mark);
    keeper.file[slot].keeper = 0;
}

void keeper_leave(void)
{
    struct keeper_message m = {.act = KEEPER_BYE};

    if (keeper.number == 0)
        return;
    rl_raw(SYS_sendto, keeper.process.socket, &m, sizeof m, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0);
    rl_raw(SYS_close, keeper.process.socket);
    rl_raw(SYS_close, keeper.process.pidfd);
    keeper.number = 0;
}

void keeper_forked(void)
{
    memset(&keeper, 0, sizeof keeper);
    keeper_start_forked();
}

void keeper_opened(uint64_t dev, uint64_t ino)
{
    keeper_mark_wait(dev, ino);
}
