/* SPDX-License-Identifier: MIT */
/*
 * call_exec: the process becomes another program, or ends.
 *
 * An exec kills the worker with all other threads: everything is applied before, and nothing can be
 * turned on between that and the kernel's doing it. It may fail, and then life goes on. In a child
 * of vfork, which runs in its parent's memory under another pid, neither concerns the parent, whose
 * queue and worker these are: nothing is done. But what was deleted before is free when a program
 * begins, whoever's child it is (evict.h).
 */
#include <alloca.h>

#include "call.h"

/* False: in a child of vfork. */
static bool ours(void)
{
    call_enter();
    if (rl_load_32(&proc.sandboxed) != 0)
        return false;
    return (uint32_t)rl_raw(SYS_getpid) == proc.pid;
}

static bool exec_begins(void)
{
    call_enter();
    if (rl_load_32(&proc.sandboxed) == 0)
        evict_before_exec();
    if (!ours())
        return false;
    rl_add_32(&proc.forking, 1);
    rl_fence(); /* as in settle_stop: pairs with the worker's, between turning on and looking again
                 */
    settle_end_all(WHY_exec);
    family_leave_all();
    return true;
}

/* Back here: it failed. */
static void exec_failed(bool *begun)
{
    if (*begun)
        fork_done();
}

#define EXEC bool begun_ __attribute__((cleanup(exec_failed), unused)) = exec_begins()

#define EXECS(name, params, args)                                                                  \
    int name params                                                                                \
    {                                                                                              \
        EXEC;                                                                                      \
        return real.name args;                                                                     \
    }
EXECS(execve, (const char *path, char *const argv[], char *const envp[]), (path, argv, envp))
EXECS(execv, (const char *path, char *const argv[]), (path, argv))
EXECS(execvp, (const char *file, char *const argv[]), (file, argv))
EXECS(execvpe, (const char *file, char *const argv[], char *const envp[]), (file, argv, envp))
EXECS(fexecve, (int fd, char *const argv[], char *const envp[]), (fd, argv, envp))
EXECS(execveat, (int dirfd, const char *path, char *const argv[], char *const envp[], int flags),
      (dirfd, path, argv, envp, flags))

/* Argument lists cannot be forwarded: they become a vector, on the stack because a child of vfork
 * or a signal handler may not allocate. */
static size_t list_length(const char *arg, va_list *rest)
{
    size_t n = 1;

    for (; arg != NULL; n++)
        arg = va_arg(*rest, const char *);
    return n; /* with the NULL at the end */
}

static void list_fill(char **vector, size_t n, const char *arg, va_list *rest)
{
    vector[0] = (char *)(uintptr_t)arg;
    for (size_t i = 1; i < n; i++)
        vector[i] = va_arg(*rest, char *);
}

/* After it, `rest` stands behind the NULL. */
#define LIST_TO_VECTOR(vector, arg, rest)                                                          \
    va_list rest;                                                                                  \
    va_start(rest, arg);                                                                           \
    const size_t length_ = list_length(arg, &rest);                                                \
    va_end(rest);                                                                                  \
    char **vector = alloca(length_ * sizeof *vector);                                              \
    va_start(rest, arg);                                                                           \
    list_fill(vector, length_, arg, &rest)

int execl(const char *path, const char *arg, ...)
{
    LIST_TO_VECTOR(argv, arg, rest);
    va_end(rest);
    EXEC;
    return real.execv(path, argv);
}

int execlp(const char *file, const char *arg, ...)
{
    LIST_TO_VECTOR(argv, arg, rest);
    va_end(rest);
    EXEC;
    return real.execvp(file, argv);
}

int execle(const char *path, const char *arg, ...)
{
    LIST_TO_VECTOR(argv, arg, rest);
    char *const *envp = va_arg(rest, char *const *);
    va_end(rest);
    EXEC;
    return real.execve(path, argv, envp);
}

/* --- the end --- */

/* Handlers and destructors run, and may do I/O as they like; process_ends comes after them. */
void exit(int status)
{
    if (ours())
        settle_end_all(WHY_exit);
    real.exit(status);
    __builtin_unreachable();
}

#define EXITS(name)                                                                                \
    void name(int status)                                                                          \
    {                                                                                              \
        if (ours())                                                                                \
            process_ends();                                                                        \
        real.name(status);                                                                         \
        __builtin_unreachable();                                                                   \
    }
EXITS(quick_exit)
EXITS(_exit)
EXITS(_Exit)
