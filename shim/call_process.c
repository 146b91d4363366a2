/* SPDX-License-Identifier: MIT */
/*
 * call_process: children, new programs, and the end.
 *
 * fork, forkpty and daemon run the handlers of pthread_atfork (init.c), also when libc calls fork
 * inside; every other way to make a child is announced here. In a child of vfork, which runs in its
 * parent's memory under another pid, exec and _exit concern the child alone: nothing is done.
 */
#include <sched.h>

#include "call.h"

/* --- children --- */

pid_t fork(void)
{
    call_enter();
    return real.fork();
}

pid_t __fork(void)
{
    call_enter();
    return real.__fork();
}

/* Without the handlers. */
pid_t _Fork(void)
{
    pid_t pid;

    call_enter();
    fork_announce();
    pid = real._Fork();
    if (pid == 0)
        fork_child();
    else
        fork_done();
    return pid;
}

/* In the child the standard descriptors were replaced inside libc. */
static int stdio_replaced(int r, bool child)
{
    if (child)
        file_forget_range(0, CALL_STDIO_LAST);
    return r;
}

int daemon(int nochdir, int noclose)
{
    int r;

    call_enter();
    r = real.daemon(nochdir, noclose);
    return stdio_replaced(r, r == 0);
}

pid_t forkpty(int *master, char *name, const struct termios *termp, const struct winsize *winp)
{
    pid_t pid;

    call_enter();
    pid = real.forkpty(master, name, termp, winp);
    return stdio_replaced(pid, pid == 0);
}

/*
 * vfork: the child returns first, on the parent's stack, and calls on. A C function's frame and
 * return address would be overwritten by the time the parent returns, so there must be none: these
 * do what is to be done, put everything back, and jump into the real one as if it had been called
 * itself (it keeps the return address in a register).
 */
void *shim_vfork_announce(void) __attribute__((used, visibility("hidden")));
void *shim___vfork_announce(void) __attribute__((used, visibility("hidden")));

void *shim_vfork_announce(void)
{
    call_enter();
    fork_announce_vfork();
    file_vfork();
    return (void *)real.vfork;
}

void *shim___vfork_announce(void)
{
    shim_vfork_announce();
    return (void *)real.__vfork;
}

#if defined(__x86_64__)
#define VFORKS(name)                                                                               \
    __asm__(".text\n"                                                                              \
            ".balign 16\n"                                                                         \
            ".globl " #name "\n"                                                                   \
            ".type " #name ", @function\n" #name ":\n"                                             \
            ".cfi_startproc\n"                                                                     \
            "    endbr64\n"                                                                        \
            "    subq $8, %rsp\n"                                                                  \
            ".cfi_adjust_cfa_offset 8\n"                                                           \
            "    call shim_" #name "_announce\n"                                                   \
            "    addq $8, %rsp\n"                                                                  \
            ".cfi_adjust_cfa_offset -8\n"                                                          \
            "    jmp *%rax\n"                                                                      \
            ".cfi_endproc\n"                                                                       \
            ".size " #name ", . - " #name "\n");
#elif defined(__aarch64__)
#define VFORKS(name)                                                                               \
    __asm__(".text\n"                                                                              \
            ".balign 16\n"                                                                         \
            ".globl " #name "\n"                                                                   \
            ".type " #name ", %function\n" #name ":\n"                                             \
            ".cfi_startproc\n"                                                                     \
            "    hint #34\n" /* bti c */                                                           \
            "    stp x29, x30, [sp, #-16]!\n"                                                      \
            ".cfi_def_cfa_offset 16\n"                                                             \
            ".cfi_offset 29, -16\n"                                                                \
            ".cfi_offset 30, -8\n"                                                                 \
            "    bl shim_" #name "_announce\n"                                                     \
            "    ldp x29, x30, [sp], #16\n"                                                        \
            ".cfi_def_cfa_offset 0\n"                                                              \
            ".cfi_restore 29\n"                                                                    \
            ".cfi_restore 30\n"                                                                    \
            "    mov x16, x0\n"                                                                    \
            "    br x16\n"                                                                         \
            ".cfi_endproc\n"                                                                       \
            ".size " #name ", . - " #name "\n");
#else
#error "rlshim needs a vfork stub for this processor: add one here"
#endif
VFORKS(vfork)
VFORKS(__vfork)

/* clone: a thread, a sort of vfork, or a sort of fork, by its flags. */
struct clone_start {
    int (*fn)(void *);
    void *arg;
};

/* On the child's stack, in its copy of our memory. */
static int clone_begins(void *arg)
{
    struct clone_start start = *(struct clone_start *)arg;

    fork_child();
    return start.fn(start.arg);
}

static void clone_prepare(int flags)
{
    call_enter();
    /* A thread without thread-local variables of its own uses our record of what it is doing. */
    if ((flags & (CLONE_VM | CLONE_SETTLS | CLONE_VFORK)) == CLONE_VM)
        settle_foreign(WHY_fork);
    /* Descriptors without the memory that says what they are, or the other way round: the tables
     * cannot be right for both sides. A sort of vfork is over before it matters. */
    if (((flags & CLONE_VM) == 0) != ((flags & CLONE_FILES) == 0) && (flags & CLONE_VFORK) == 0)
        settle_foreign(WHY_fork);
    if ((flags & CLONE_THREAD) == 0)
        fork_announce();
    if ((flags & CLONE_VM) != 0)
        file_vfork();
}

#define CLONES(name)                                                                               \
    int name(int (*fn)(void *), void *stack, int flags, void *arg, ...)                            \
    {                                                                                              \
        struct clone_start start = {fn, arg};                                                      \
        void *parent_tid, *tls, *child_tid;                                                        \
        va_list args;                                                                              \
        int pid;                                                                                   \
                                                                                                   \
        va_start(args, arg);                                                                       \
        parent_tid = va_arg(args, void *);                                                         \
        tls = va_arg(args, void *);                                                                \
        child_tid = va_arg(args, void *);                                                          \
        va_end(args);                                                                              \
                                                                                                   \
        clone_prepare(flags);                                                                      \
        if ((flags & CLONE_VM) == 0 && fn != NULL)                                                 \
            pid = real.name(clone_begins, stack, flags, &start, parent_tid, tls, child_tid);       \
        else                                                                                       \
            pid = real.name(fn, stack, flags, arg, parent_tid, tls, child_tid);                    \
        if ((flags & CLONE_THREAD) == 0)                                                           \
            fork_done();                                                                           \
        return pid;                                                                                \
    }
CLONES(clone)
CLONES(__clone)

/* libc makes these children without telling: announced around the whole call. system and wordexp
 * return when their child is gone. */
int system(const char *command)
{
    CALL_FORKS;
    return real.system(command);
}

int wordexp(const char *words, void *result, int flags)
{
    CALL_FORKS;
    return real.wordexp(words, result, flags);
}

#define SPAWNS(name, pid_type)                                                                     \
    int name(pid_type *pid, const char *path, const posix_spawn_file_actions_t *actions,           \
             const posix_spawnattr_t *attr, char *const argv[], char *const envp[])                \
    {                                                                                              \
        CALL_FORKS;                                                                                \
        return SPAWN_NEXT(name)(pid, path, actions, attr, argv, envp);                             \
    }
#define SPAWN_NEXT(name) real.name
SPAWNS(posix_spawn, pid_t)
SPAWNS(posix_spawnp, pid_t)
#undef SPAWN_NEXT

/* A libc that has no such function lets nobody call it but by our export. */
static int no_spawn(int *pidfd, const char *path, const posix_spawn_file_actions_t *actions,
                    const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
    (void)pidfd, (void)path, (void)actions, (void)attr, (void)argv, (void)envp;
    return ENOSYS;
}
#define SPAWN_NEXT(name) (real.name != NULL ? real.name : no_spawn)
SPAWNS(pidfd_spawn, int)
SPAWNS(pidfd_spawnp, int)

/* The descriptor goes to a child, close-on-exec or not. */
int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int fd, int to)
{
    call_enter();
    call_mark(fd, FILE_PASSED, WHY_pass);
    return real.posix_spawn_file_actions_adddup2(actions, fd, to);
}

#define ACTIONS(name, params, args)                                                                \
    int posix_spawn_file_actions_##name params                                                     \
    {                                                                                              \
        call_enter();                                                                              \
        return real.posix_spawn_file_actions_##name args;                                          \
    }
ACTIONS(addopen,
        (posix_spawn_file_actions_t * actions, int fd, const char *path, int flags, mode_t mode),
        (actions, fd, path, flags, mode))
ACTIONS(addclose, (posix_spawn_file_actions_t * actions, int fd), (actions, fd))
ACTIONS(addclosefrom_np, (posix_spawn_file_actions_t * actions, int from), (actions, from))
