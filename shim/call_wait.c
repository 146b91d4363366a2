/* SPDX-License-Identifier: MIT */
/*
 * call_wait: waits for children of any kind.
 *
 * The keeper is made through a child in between (keeper.h), which lives for a millisecond, sends no
 * signal at its end and is of the sort that only __WALL and __WCLONE find (tracers, container
 * managers). Such a wait begins when none is about; one that was under way by then and got it, or
 * was told to come back later because of it, goes on as if it had not. All others pass.
 */
#include <sys/wait.h>

#include "call.h"
#include "keeper.h"

static inline bool any_kind(int options)
{
    return unlikely((options & (__WALL | __WCLONE)) != 0);
}

static uint32_t wait_plainly(void)
{
    call_enter();
    return keeper_apart();
}

#define WAITS(name)                                                                                \
    pid_t name(pid_t pid, int *status, int options)                                                \
    {                                                                                              \
        uint32_t births;                                                                           \
        int got = 0;                                                                               \
        pid_t r;                                                                                   \
                                                                                                   \
        if (!any_kind(options))                                                                    \
            return real.name(pid, status, options);                                                \
        do {                                                                                       \
            births = wait_plainly();                                                               \
            r = real.name(pid, status != NULL ? &got : NULL, options);                             \
        } while (keeper_between(r, births));                                                       \
        if (r > 0 && status != NULL)                                                               \
            *status = got;                                                                         \
        return r;                                                                                  \
    }
WAITS(waitpid)
WAITS(__waitpid)

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
    struct rusage used;
    uint32_t births;
    int got = 0;
    pid_t r;

    if (!any_kind(options))
        return real.wait4(pid, status, options, usage);
    do {
        births = wait_plainly();
        r = real.wait4(pid, status != NULL ? &got : NULL, options, usage != NULL ? &used : NULL);
    } while (keeper_between(r, births));
    if (r > 0 && status != NULL)
        *status = got;
    if (r > 0 && usage != NULL)
        *usage = used;
    return r;
}

pid_t wait3(int *status, int options, struct rusage *usage)
{
    if (!any_kind(options))
        return real.wait3(status, options, usage);
    return wait4(-1, status, options, usage);
}

int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    uint32_t births;
    siginfo_t got;
    int r;

    if (!any_kind(options))
        return real.waitid(type, id, info, options);
    do {
        births = wait_plainly();
        got = (siginfo_t){.si_pid = 0};
        r = real.waitid(type, id, &got, options);
    } while (r == 0 && keeper_between(got.si_pid, births));
    if (r == 0 && info != NULL)
        *info = got;
    return r;
}
