/* SPDX-License-Identifier: MIT */
/*
 * call_privilege: identities, roots, namespaces, sandboxes.
 *
 * The worker is a thread that libc does not know: it would keep the old identity, and its presence
 * makes unshare(CLONE_NEWUSER) fail and draws a seccomp filter's wrath. So everything is applied
 * and the worker gone before these, whether or not anything is queued.
 */
#include <sched.h>
#include <sys/prctl.h>

#include "call.h"
#include "create.h"

#define STOPS(name, params, args)                                                                  \
    int name params                                                                                \
    {                                                                                              \
        call_enter();                                                                              \
        settle_stop(WHY_privilege);                                                                \
        return real.name args;                                                                     \
    }
STOPS(setuid, (uid_t uid), (uid))
STOPS(setgid, (gid_t gid), (gid))
STOPS(seteuid, (uid_t uid), (uid))
STOPS(setegid, (gid_t gid), (gid))
STOPS(setreuid, (uid_t ruid, uid_t euid), (ruid, euid))
STOPS(setregid, (gid_t rgid, gid_t egid), (rgid, egid))
STOPS(setresuid, (uid_t ruid, uid_t euid, uid_t suid), (ruid, euid, suid))
STOPS(setresgid, (gid_t rgid, gid_t egid, gid_t sgid), (rgid, egid, sgid))
STOPS(setfsgid, (gid_t gid), (gid))
STOPS(setgroups, (size_t n, const gid_t *list), (n, list))
STOPS(initgroups, (const char *user, gid_t group), (user, group))
STOPS(capset, (void *header, const void *data), (header, data))
STOPS(chroot, (const char *path), (path))
STOPS(setns, (int fd, int type), (fd, type))

int setfsuid(uid_t uid)
{
    call_enter();
    create_fsuid();
    settle_stop(WHY_privilege);
    return real.setfsuid(uid);
}

int unshare(int flags)
{
    call_enter();
    /* A descriptor table of this thread's own: from now on a number is no longer one file. */
    if ((flags & CLONE_FILES) != 0)
        settle_foreign(WHY_privilege);
    settle_stop(WHY_privilege);
    return real.unshare(flags);
}

/* Four words may follow. Behind a filter a worker's calls would be the program's crimes: none will
 * be started any more. */
int prctl(int option, ...)
{
    unsigned long a, b, c, d;
    va_list args;

    va_start(args, option);
    a = va_arg(args, unsigned long);
    b = va_arg(args, unsigned long);
    c = va_arg(args, unsigned long);
    d = va_arg(args, unsigned long);
    va_end(args);

    call_enter();
    if (option == PR_SET_SECCOMP)
        settle_sandbox();
    return real.prctl(option, a, b, c, d);
}
