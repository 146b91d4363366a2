/* SPDX-License-Identifier: MIT */
/*
 * image: the keeper process (../keeper.h). A static program without libc: raw calls, its own memory
 * only, the program's queue mapped read-only.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/sched.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "../../lockmgr/leftover.h"
#include "../keeper_impl.h"
#include "../state.h"
#include "../stats.h"
#include "../zeros.h"

#define MARK_KEEPER 1        /* semaphore */
#define LOOK_NS     1000000u /* how often, from the worker's end to the program's */

static struct held {
    int fd; /* -1: free */
    struct keeper_message of;
} held[KEEPER_FILES];

static const struct arena *arena;
static uint32_t nodes; /* in its pool */
static int shm;
static struct stats_page *page; /* NULL: nobody counts */
static struct rl_span *spans;
static size_t spans_most;

/* The compiler may ask for these by name. */
void *memset(void *to, int c, size_t n);
void *memcpy(void *restrict to, const void *restrict from, size_t n);

void *memset(void *to, int c, size_t n)
{
    volatile unsigned char *p = to; /* or this loop would become a call of itself */

    while (n-- > 0)
        *p++ = (unsigned char)c;
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    volatile unsigned char *p = to;
    const unsigned char *q = from;

    while (n-- > 0)
        *p++ = *q++;
    return to;
}

static __attribute__((noreturn)) void leave(int status)
{
    for (;;)
        rl_raw(SYS_exit_group, status);
}

static bool failed(long r)
{
    return r < 0 && r >= -4095;
}

static void count(enum stat_id id, uint64_t n)
{
    if (page != NULL)
        rl_add_64(&page->value[id], n);
}

/* --- the end of the program --- */

static long punch(int fd, uint64_t start, uint64_t end)
{
    long r;

    while ((r = rl_raw(SYS_fallocate, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, start,
                       end - start)) == -EINTR)
        ;
    return r == 0 ? 0 : zeros_write(fd, start, end);
}

static void finish(const struct held *h)
{
    const struct rl_inode *inode = &arena->inodes.inode[h->of.index];
    size_t n;

    if (rl_load_32(&inode->gen) == h->of.gen && rl_load_64(&inode->dev) == h->of.dev &&
        rl_load_64(&inode->ino) == h->of.ino &&
        (rl_load_32(&inode->table.act) >> 2) == (h->of.number & (UINT32_MAX >> 2))) {
        n = rl_leftover(&inode->table, &arena->pool, nodes, spans, spans_most);
        for (size_t i = 0; i < n; i++)
            for (uint64_t at = spans[i].start, to; at < spans[i].end; at = to) {
                to = spans[i].end - at > h->of.call_max_bytes ? at + h->of.call_max_bytes
                                                              : spans[i].end;
                count(punch(h->fd, at, to) == 0 ? STAT_keeper_bytes : STAT_keeper_dropped, to - at);
            }
        count(STAT_keeper_ranges, n);
    }
    rl_raw(SYS_close, h->fd);
    rl_raw(SYS_semctl, h->of.mark, 0, IPC_RMID, 0); /* who waits in an open goes on */
}

static __attribute__((noreturn)) void finish_all(void)
{
    for (int i = 0; i < KEEPER_FILES; i++)
        if (held[i].fd >= 0)
            finish(&held[i]);
    count(STAT_keeper_finished, 1);
    leave(0);
}

static bool program_is_dead(void)
{
    struct pollfd p = {.fd = KEEPER_FD_PIDFD, .events = POLLIN};
    struct timespec none = {0};

    return rl_raw(SYS_ppoll, &p, 1, &none, NULL, 8) > 0;
}

/* The queue is mapped by nobody but us: the memory it was in is gone, at an exec too. */
static bool memory_is_gone(void)
{
    struct shmid_ds ds;

    return rl_raw(SYS_shmctl, shm, IPC_STAT, &ds) == 0 && ds.shm_nattch <= 1;
}

/* The worker's end of the socket is closed, and it did not say goodbye. */
static __attribute__((noreturn)) void worker_is_gone(void)
{
    struct pollfd p = {.fd = KEEPER_FD_PIDFD, .events = POLLIN};
    struct timespec look = {.tv_nsec = LOOK_NS};
    bool any = false;

    for (int i = 0; i < KEEPER_FILES; i++)
        any = any || held[i].fd >= 0;
    if (!any || KEEPER_MUTANT(7))
        leave(0);
    while (!program_is_dead() && (!memory_is_gone() || KEEPER_MUTANT(8)))
        rl_raw(SYS_ppoll, &p, 1, &look, NULL, 8);
    finish_all();
}

/* --- what the worker asks for --- */

/* The next packet; its length, 0 at the end. *fd: what came with it, -1 nothing. */
static long receive(void *to, size_t bytes, int *fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {to, bytes};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof control};
    long n;

    *fd = -1;
    while ((n = rl_raw(SYS_recvmsg, KEEPER_FD_SOCKET, &msg, MSG_CMSG_CLOEXEC)) == -EINTR)
        ;
    if (n > 0 && msg.msg_controllen >= CMSG_LEN(sizeof(int)) &&
        control.head.cmsg_level == SOL_SOCKET && control.head.cmsg_type == SCM_RIGHTS)
        *fd = *(const int *)(const void *)CMSG_DATA(&control.head);
    return n > 0 ? n : 0;
}

static void answer(int result)
{
    rl_raw(SYS_sendto, KEEPER_FD_SOCKET, &result, sizeof result, MSG_NOSIGNAL, NULL, 0);
}

static int take(const struct keeper_message *m, int fd)
{
    struct sembuf raise = {MARK_KEEPER, 1, SEM_UNDO};
    struct stat st;
    long r;

    if (fd < 0 || m->slot >= KEEPER_FILES || held[m->slot].fd >= 0 || m->index >= RL_INODES ||
        m->call_max_bytes == 0)
        return -EINVAL;
    if ((r = rl_raw(SYS_fstat, fd, &st)) != 0)
        return (int)r;
    if (st.st_dev != m->dev || st.st_ino != m->ino)
        return -ESTALE;
    if (!KEEPER_MUTANT(2) && (r = rl_raw(SYS_semop, m->mark, &raise, 1)) != 0)
        return (int)r;
    held[m->slot] = (struct held){.fd = fd, .of = *m};
    return 0;
}

static int drop(const struct keeper_message *m)
{
    if (m->slot >= KEEPER_FILES || held[m->slot].fd < 0)
        return -EINVAL;
    rl_raw(SYS_close, held[m->slot].fd);
    held[m->slot].fd = -1;
    return 0;
}

static void serve(void)
{
    struct keeper_message m;
    int fd;
    long n = receive(&m, sizeof m, &fd);
    int r = -EINVAL;

    if (n == 0)
        worker_is_gone();
    if (n == sizeof m && m.act == KEEPER_TAKE)
        r = take(&m, fd);
    else if (n == sizeof m && m.act == KEEPER_DROP)
        r = drop(&m);
    else if (n == sizeof m && m.act == KEEPER_BYE)
        leave(0);
    if (fd >= 0 && (r != 0 || m.act != KEEPER_TAKE))
        rl_raw(SYS_close, fd);
    answer(r);
}

/* --- the beginning --- */

/* The counters outlive the program in a file of their own. */
static void map_stats(const char *path, uint32_t program)
{
    long fd, at;
    struct stat st;

    if (path[0] == '\0')
        return;
    fd = rl_raw(SYS_openat, AT_FDCWD, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    if (rl_raw(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) &&
        (size_t)st.st_size >= sizeof *page) {
        at = rl_raw(SYS_mmap, NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (!failed(at)) {
            struct stats_page *p = (struct stats_page *)at;

            if (p->magic == STATS_MAGIC && p->version == STATS_VERSION && p->bytes == sizeof *p &&
                p->pid == program)
                page = p;
            else
                rl_raw(SYS_munmap, at, sizeof *page);
        }
    }
    rl_raw(SYS_close, fd);
}

static int begin(void)
{
    static struct keeper_begin b; /* not on a stack of few pages */
    int fd;
    long at;

    rl_raw(SYS_prctl, PR_SET_NAME, "rlshim-keeper");
    for (int i = 0; i < KEEPER_FILES; i++)
        held[i].fd = -1;
    if (receive(&b, sizeof b, &fd) != sizeof b || b.act != KEEPER_BEGIN)
        leave(1);
    /* No terminal, no signal for its group, no directory that somebody may want to unmount. */
    if ((!KEEPER_MUTANT(5) && failed(at = rl_raw(SYS_setsid))) ||
        failed(at = rl_raw(SYS_chdir, "/")))
        return (int)at;
    b.stats[sizeof b.stats - 1] = '\0';
    map_stats(b.stats, b.program);
    shm = b.shm;
    nodes = b.nodes;
    at = rl_raw(SYS_shmat, shm, NULL, SHM_RDONLY);
    if (failed(at))
        return (int)at;
    arena = (const struct arena *)at;
    /* Now, not when memory may be short; touched when it is needed. */
    spans_most = (size_t)nodes + RL_TAILS;
    at = rl_raw(SYS_mmap, NULL, spans_most * sizeof *spans, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
    if (failed(at))
        return (int)at;
    spans = (struct rl_span *)at;
    return 0;
}

__attribute__((noreturn, used)) void image_main(void);

__attribute__((noreturn, used)) void image_main(void)
{
    struct pollfd p[2] = {{.fd = KEEPER_FD_SOCKET, .events = POLLIN},
                          {.fd = KEEPER_FD_PIDFD, .events = POLLIN}};
    int r;

    rl_raw(SYS_close_range, KEEPER_FD_PIDFD + 1, ~0u, 0);
    r = begin();
    answer(r);
    if (r != 0)
        leave(1);
    for (;;) {
        rl_raw(SYS_ppoll, p, 2, NULL, NULL, 8);
        if (p[1].revents != 0)
            finish_all();
        if (p[0].revents != 0)
            serve();
    }
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n"
        "    xorl %ebp, %ebp\n"
        "    andq $-16, %rsp\n"
        "    call image_main\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start:\n"
        "    mov x29, #0\n"
        "    bl image_main\n");
#else
#error "the keeper needs an entry for this processor: add one here"
#endif
