/* SPDX-License-Identifier: MIT */
/*
 * keeper_start: makes the keeper process, on the worker thread.
 *
 * Two children, one of the other, each sharing all memory with its maker, which sleeps meanwhile
 * (as with vfork: a copy of the page tables of a big program would take long, and its pages would
 * have to be copied at their next change). The one in between also shares the worker's descriptor
 * table, so that the keeper's pidfd lands there. Both run on the worker's stack, below the frame
 * of their maker, in functions that never return.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "keeper.h"
#include "keeper_impl.h"
#include "state.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x10u
#endif
#define FIRST_FREE 10 /* beyond the numbers that the keeper begins with */

/* keeper/image.c */
extern const char keeper_image[] __attribute__((visibility("hidden")));
extern const char keeper_image_end[] __attribute__((visibility("hidden")));
__asm__(".section .rodata\n"
        ".balign 16\n"
        ".globl keeper_image\n.hidden keeper_image\n"
        "keeper_image: .incbin \"" KEEPER_IMAGE "\"\n"
        ".globl keeper_image_end\n.hidden keeper_image_end\n"
        "keeper_image_end:\n"
        ".previous\n");

/* The child in between: its pid while there may be one, 0 none, 1 about to be made. And the one
 * that a wait of the program's got before ours; set before the other is cleared. */
static uint32_t between, taken, births;

struct birth {
    int socket, pidfd, image; /* the keeper's socket, the program's pidfd, what to run */
    int keeper;               /* the keeper's pidfd */
    int error;
    char pid[12]; /* of the program: what ps shows */
};

static long fork_sharing(uint64_t flags, void *word)
{
    return rl_raw(SYS_clone, flags | CLONE_VM | CLONE_VFORK | CLONE_UNTRACED, 0, word, 0, 0);
}

static __attribute__((noreturn)) void leave(void)
{
    for (;;)
        rl_raw(SYS_exit, 0);
}

static __attribute__((noreturn, noinline)) void become_keeper(struct birth *birth)
{
    char *const argv[] = {(char *)(uintptr_t) "rlshim-keeper", birth->pid, NULL};
    char *const envp[] = {NULL};
    long socket = rl_raw(SYS_fcntl, birth->socket, F_DUPFD, FIRST_FREE);
    long pidfd = rl_raw(SYS_fcntl, birth->pidfd, F_DUPFD, FIRST_FREE);
    long image = rl_raw(SYS_fcntl, birth->image, F_DUPFD_CLOEXEC, FIRST_FREE);
    long r = -EMFILE;

    if (socket >= 0 && pidfd >= 0 && image >= 0 &&
        rl_raw(SYS_dup3, socket, KEEPER_FD_SOCKET, 0) >= 0 &&
        rl_raw(SYS_dup3, pidfd, KEEPER_FD_PIDFD, 0) >= 0)
        r = rl_raw(SYS_execveat, image, "", argv, envp, AT_EMPTY_PATH);
    birth->error = (int)r;
    leave();
}

static __attribute__((noreturn, noinline)) void be_between(struct birth *birth)
{
    long r = fork_sharing(CLONE_PIDFD, &birth->keeper);

    if (r == 0)
        become_keeper(birth);
    if (r < 0)
        birth->error = (int)r;
    leave();
}

static bool same_link(const char *a, const char *b)
{
    char at[64], bt[64];
    long n = rl_raw(SYS_readlinkat, AT_FDCWD, a, at, sizeof at);

    return n > 0 && n == rl_raw(SYS_readlinkat, AT_FDCWD, b, bt, sizeof bt) &&
           memcmp(at, bt, (size_t)n) == 0;
}

static long open_image(void)
{
    size_t bytes = (uintptr_t)keeper_image_end - (uintptr_t)keeper_image;
    long fd = rl_raw(SYS_memfd_create, "rlshim-keeper", MFD_CLOEXEC | MFD_EXEC);
    size_t done = 0;

    if (fd == -EINVAL) /* before 6.3 every one may be run */
        fd = rl_raw(SYS_memfd_create, "rlshim-keeper", MFD_CLOEXEC);
    while (fd >= 0 && done < bytes) {
        long n = rl_raw(SYS_write, fd, keeper_image + done, bytes - done);

        if (n == -EINTR)
            continue;
        if (n <= 0) {
            rl_raw(SYS_close, fd);
            return n < 0 ? n : -EIO;
        }
        done += (size_t)n;
    }
    return fd;
}

static void put_number(char *to, uint32_t n)
{
    char digits[12];
    int have = 0;

    do
        digits[have++] = (char)('0' + n % 10);
    while ((n /= 10) != 0);
    while (have > 0)
        *to++ = digits[--have];
    *to = '\0';
}

/* Makes both, and reaps the first. */
static long give_birth(struct birth *birth)
{
    long pid, r;

    rl_store_32(&between, 1);
    rl_add_32(&births, 1);
    pid = fork_sharing(CLONE_FILES | CLONE_PARENT_SETTID, &between);
    if (pid == 0)
        be_between(birth);
    while (pid > 0 && !KEEPER_MUTANT(4) && (r = rl_raw(SYS_wait4, pid, NULL, __WALL, NULL)) != pid)
        if (r != -EINTR) {
            rl_store_32(&taken, (uint32_t)pid);
            break;
        }
    rl_store_32(&between, 0);
    rl_futex_wake(&between, INT32_MAX);
    return pid < 0 ? pid : birth->error;
}

int keeper_start(struct keeper_process *made, const char **step)
{
    struct birth birth = {.keeper = -1};
    int reaper = 0;
    int pair[2];
    long r;

    *step = "the program is process 1, or reaps orphans: the keeper would be its child";
    if (proc.pid == 1 || rl_raw(SYS_prctl, PR_GET_CHILD_SUBREAPER, &reaper) != 0 || reaper != 0)
        return -ECHILD;
    *step = "its children live in another pid namespace, or /proc cannot be read";
    if (!same_link("/proc/thread-self/ns/pid", "/proc/thread-self/ns/pid_for_children"))
        return -ECHILD;
    *step = "System V shared memory";
    if (proc.arena->shm < 0)
        return proc.arena->shm;
    *step = "socketpair";
    r = rl_raw(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
    if (r != 0)
        return (int)r;
    birth.socket = pair[1];
    *step = "pidfd_open";
    r = birth.pidfd = (int)rl_raw(SYS_pidfd_open, proc.pid, 0);
    if (r >= 0) {
        *step = "memfd_create";
        r = birth.image = (int)open_image();
        if (r >= 0) {
            *step = "clone or execveat";
            put_number(birth.pid, proc.pid);
            r = give_birth(&birth);
            rl_raw(SYS_close, birth.image);
        }
        rl_raw(SYS_close, birth.pidfd);
    }
    rl_raw(SYS_close, pair[1]);
    if (r == 0) {
        *made = (struct keeper_process){.socket = pair[0], .pidfd = birth.keeper};
        return 0;
    }
    if (birth.keeper >= 0)
        rl_raw(SYS_close, birth.keeper);
    rl_raw(SYS_close, pair[0]);
    return (int)r;
}

void keeper_start_forked(void)
{
    between = taken = 0;
}

uint32_t keeper_apart(void)
{
    uint32_t now = rl_load_32(&births); /* before the look: one that begins after it is counted */
    uint32_t seen;

    while ((seen = rl_load_32(&between)) != 0)
        rl_futex_wait(&between, seen, 10000000u);
    return now;
}

bool keeper_between(int pid, uint32_t births_before)
{
    uint32_t mine = (uint32_t)pid;

    if (pid == 0) /* children, but none that has ended: it may have been that one */
        return rl_load_32(&births) != births_before;
    if (pid <= 1 || (rl_load_32(&between) != mine && rl_load_32(&taken) != mine))
        return false;
    keeper_apart();
    rl_cas_32(&taken, &mine, 0);
    return true;
}
