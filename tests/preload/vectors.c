/* SPDX-License-Identifier: MIT */
/* timeout: 60 */
/*
 * vectors: reads and writes that the kernel refuses, or does only in part, because of where their
 * vectors and buffers lie or how long they are said to be; and RWF_NOWAIT. Each line says what came
 * back. vectors.sh runs it with and without the shim and compares.
 *
 *   vectors FILE         prints what each call returned
 *   vectors FILE queued  the same while punches of the file are deferred; and checks that
 *                        RWF_NOWAIT is answered with EAGAIN where something would be waited for
 *
 * 77: no punch was ever queued.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "../../include/rlshim/control.h"

#define BLOCK      4096
#define BIG        (2 << 20)
#define FILE_BYTES (8 << 20)
#define SPANS      40 /* more than one read is combined with */

static int fd, reader;
static char *buffer; /* BIG bytes, aligned */
static char *edge;   /* the first byte of a page without access, behind one with */
static char *closed; /* another one */

#define SAY(call)                                                                                  \
    do {                                                                                           \
        long r_;                                                                                   \
        errno = 0;                                                                                 \
        r_ = (long)(call);                                                                         \
        printf("%s = %ld, errno %d\n", #call, r_, errno);                                          \
    } while (0)

static void nap(void)
{
    nanosleep(&(struct timespec){0, 10000000}, NULL);
}

static struct iovec *at(char *place, size_t first, size_t second, void *second_base)
{
    struct iovec *v = (struct iovec *)(void *)place;

    v[0] = (struct iovec){buffer, first};
    v[1] = (struct iovec){second_base, second};
    return v;
}

static void arrays(void)
{
    struct iovec *whole = at(edge - 2 * sizeof *whole, BLOCK, BLOCK, buffer + BLOCK);
    struct iovec *half = (struct iovec *)(void *)(edge - sizeof *half);
    struct iovec *none = (struct iovec *)(void *)edge;
    struct iovec *shut = (struct iovec *)(void *)closed;
    struct iovec *kernel = (struct iovec *)(void *)(intptr_t)-4096;

    SAY(pwritev(fd, whole, 2, 0));
    SAY(preadv(fd, whole, 2, 0));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(writev(fd, whole, 2));
    SAY(readv(fd, whole, 2));
    SAY(pwritev(fd, half + 1, 1, 0));
    SAY(pwritev(fd, half, 2, 0));
    SAY(preadv(fd, half, 2, 0));
    SAY(pwritev(fd, none, 1, 0));
    SAY(preadv(fd, none, 1, 0));
    SAY(writev(fd, none, 1));
    SAY(readv(fd, none, 1));
    SAY(pwritev2(fd, none, 1, 0, 0));
    SAY(preadv2(fd, none, 1, -1, 0));
    SAY(pwritev(fd, shut, 1, 0));
    SAY(preadv(fd, shut, 1, 0));
    SAY(pwritev(fd, kernel, 1, 0));
    SAY(preadv(fd, kernel, 1, 0));
    SAY(pwritev(fd, none, IOV_MAX, 0));
    SAY(pwritev(fd, none, IOV_MAX + 1, 0));
    SAY(pwritev(fd, none, 0, 0));
    SAY(writev(reader, none, 1));
}

/* What comes first is good, and must not be written when the kernel refuses the whole. */
static void lengths(void)
{
    struct iovec *v = at(edge - 2 * sizeof *v, BIG, (size_t)-BLOCK, buffer);
    volatile size_t huge = (size_t)1 << 50, most = (size_t)SSIZE_MAX, more = (size_t)1 << 63;
    volatile off_t last = (off_t)(((uint64_t)1 << 63) - BIG);

    SAY(pwritev(fd, v, 2, 0));
    SAY(preadv(fd, v, 2, 0));
    at((char *)v, BIG, BLOCK, (void *)(intptr_t)-BLOCK);
    SAY(pwritev(fd, v, 2, 0));
    at((char *)v, BIG, (size_t)SSIZE_MAX, buffer);
    SAY(pwritev(fd, v, 2, 0));
    SAY(pread(fd, buffer, huge, 0));
    SAY(pread(fd, buffer, most, 0));
    SAY(pread(fd, buffer, more, 0));
    SAY(pwrite(fd, buffer, huge, 0));
    SAY(pwrite(fd, buffer, most, 0));
    SAY(pwrite(fd, buffer, more, 0));
    SAY(read(fd, buffer, huge));
    SAY(write(fd, buffer, more));
    SAY(pwrite(fd, buffer, BIG, last));
    SAY(pwrite(fd, buffer, BIG, last + BLOCK));
    SAY(pread(fd, buffer, BIG, last + BLOCK));
}

/* Other calls whose arguments we look at. */
static void others(void)
{
    int pair[2];
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.header = {(size_t)1 << 40, SOL_SOCKET, SCM_RIGHTS}};
    struct iovec one = {buffer, 1};
    struct msghdr msg = {.msg_iov = &one, .msg_iovlen = 1};

    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0)
        return;
    SAY(sendmsg(pair[0], (struct msghdr *)(void *)edge, 0));
    SAY(sendmsg(pair[0], (struct msghdr *)(void *)(edge - 8), 0));
    SAY(sendmmsg(pair[0], (struct mmsghdr *)(void *)edge, 1, 0));
    msg.msg_control = edge - 8;
    msg.msg_controllen = sizeof control;
    SAY(sendmsg(pair[0], &msg, 0));
    msg.msg_control = &control;
    SAY(sendmsg(pair[0], &msg, 0));
    SAY(syscall(SYS_openat2, AT_FDCWD, "/", edge, sizeof(struct open_how)));
    SAY(syscall(SYS_openat2, AT_FDCWD, "/", edge - 8, sizeof(struct open_how)));
    close(pair[0]), close(pair[1]);
}

static bool punch(off_t where)
{
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, where, BLOCK) == 0;
}

static bool queue_one(off_t where)
{
    unsigned long before = rl_queued();

    for (int i = 0; i < 300; i++) {
        if (!punch(where))
            return false;
        if (rl_queued() > before)
            return true;
        nap();
    }
    return false;
}

static bool drained(void)
{
    for (int i = 0; i < 500 && rl_queued() != 0; i++)
        nap();
    return rl_queued() == 0;
}

/* EAGAIN at once, nothing waited for, and what was in the way is on its way out. */
static bool refuses(const char *what, ssize_t r, uint64_t settles)
{
    bool good = r == -1 && errno == EAGAIN && rl_counter("settles") == settles;

    if (!good)
        printf("%s: %ld, errno %d, %lu settles more\n", what, (long)r, errno,
               (unsigned long)(rl_counter("settles") - settles));
    if (!drained()) {
        printf("%s: what it met is still queued\n", what);
        good = false;
    }
    return good;
}

static bool never_waits(void)
{
    struct iovec one = {buffer, BLOCK}, all = {buffer, 2 * SPANS * BLOCK};
    uint64_t settles;
    bool good = true;
    ssize_t r;

    if (!drained() || !queue_one(0))
        return false;
    settles = rl_counter("settles");
    r = pwritev2(fd, &one, 1, 0, RWF_NOWAIT);
    good &= refuses("pwritev2 into a queued range", r, settles);
    for (off_t i = 0; i < SPANS; i++)
        if (!queue_one(2 * i * BLOCK))
            return false;
    settles = rl_counter("settles");
    r = preadv2(fd, &all, 1, 0, RWF_NOWAIT);
    good &= refuses("preadv2 across many queued ranges", r, settles);
    dup(fd); /* the position is anybody's */
    if (!queue_one(0))
        return false;
    settles = rl_counter("settles");
    r = preadv2(fd, &one, 1, -1, RWF_NOWAIT);
    good &= refuses("preadv2 at a shared position", r, settles);
    return good;
}

int main(int argc, char **argv)
{
    bool queued = argc > 2;
    char *two;

    if (argc < 2)
        return 2;
    fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    if (fd < 0)
        fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    reader = open(argv[1], O_RDONLY);
    buffer = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    two = mmap(NULL, 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    closed = mmap(NULL, BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fd < 0 || reader < 0 || buffer == MAP_FAILED || two == MAP_FAILED || closed == MAP_FAILED)
        return 2;
    mprotect(two + BLOCK, BLOCK, PROT_NONE); /* unmapped, it could become somebody's */
    edge = two + BLOCK;
    memset(buffer, 'x', BIG);
    for (off_t done = 0; done < FILE_BYTES; done += BIG)
        if (pwrite(fd, buffer, BIG, done) != BIG)
            return 2;
    if (queued && !queue_one(FILE_BYTES - BLOCK))
        return 77;
    arrays();
    lengths();
    others();
    if (!queued)
        return 0;
    if (rl_counter("punch_deferred") == 0 || !never_waits()) {
        printf("not as it should be with punches queued\n");
        return 1;
    }
    return 0;
}
