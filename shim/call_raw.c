/* SPDX-License-Identifier: MIT */
/*
 * call_raw: syscall(2).
 *
 * A program that makes system calls by number on files goes around everything here, so what is
 * queued is applied and, where the call could write, open, close or copy, deferral is off for good.
 * A few numbers that stand for calls libc had no function for in its time are done as such.
 *
 * Some calls return twice (vfork, clone with a stack), so no frame of ours may be on the stack
 * while the real syscall runs. The exported function is a stub in assembly: it saves the arguments,
 * asks raw_target who is to have them, and jumps there as if that had been called. For nearly all
 * numbers that is libc's syscall itself.
 */
#include <linux/close_range.h>
#include <linux/magic.h>
#include <linux/sched.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/vfs.h>

#include "call.h"
#include "create.h"

/* In headers newer than this libc's. The same on every processor. */
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup    425
#define SYS_io_uring_enter    426
#define SYS_io_uring_register 427
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif
#ifndef SYS_fsconfig
#define SYS_fsconfig 431
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

typedef long raw_fn(long number, long a, long b, long c, long d, long e, long f);

/* --- numbers that are done here rather than passed on; each with the signature of syscall --- */

#define ALL number, a, b, c, d, e, f

/* Every descriptor that comes from an open is known as such. */
static long raw_open(long number, long a, long b, long c, long d, long e, long f)
{
    if (number == SYS_openat2)
        return call_openat2((int)a, (const char *)b, (const void *)c, (size_t)d);
    return call_opened((int)real.syscall(ALL));
}

static long raw_receive(long number, long a, long b, long c, long d, long e, long f)
{
    return call_received((int)real.syscall(ALL));
}

/* A sort of fork: the child has a copy of our memory, and no handler has run in it. */
static long raw_fork(long number, long a, long b, long c, long d, long e, long f)
{
    long pid;

    fork_announce();
    pid = real.syscall(ALL);
    if (pid == 0)
        fork_child();
    else
        fork_done();
    return pid;
}

/* As in call_exec.c. */
static long raw_exec(long number, long a, long b, long c, long d, long e, long f)
{
    long r;

    if (rl_load_32(&proc.sandboxed) == 0)
        evict_before_exec();
    if ((uint32_t)rl_raw(SYS_getpid) != proc.pid)
        return real.syscall(ALL);
    rl_add_32(&proc.forking, 1);
    rl_fence();
    settle_end_all(WHY_exec);
    family_leave_all();
    r = real.syscall(ALL);
    fork_done();
    return r;
}

/* --- children by number --- */

/* With a stack of its own the child comes out of the system call on it, with shared memory on ours:
 * both must find no frame, so these pass through after the announcement. */
static raw_fn *clone_target(uint64_t flags, uint64_t stack)
{
    if ((flags & CLONE_THREAD) != 0)
        return NULL;
    settle_foreign(WHY_fork);
    if ((flags & CLONE_VM) == 0 && stack == 0)
        return raw_fork;
    fork_announce_vfork();
    return NULL;
}

static raw_fn *clone3_target(const struct clone_args *args, size_t size)
{
    if (size < CLONE_ARGS_SIZE_VER0 || !readable(args, CLONE_ARGS_SIZE_VER0))
        return NULL; /* the kernel refuses it */
    return clone_target(args->flags, args->stack);
}

/* --- the stat family by number: the size is the program's (tail.h) --- */

static long raw_stat(long number, long a, long b, long c, long d, long e, long f)
{
    (void)f;
    switch (number) {
#ifdef SYS_stat
    case SYS_stat:
        return stat((const char *)a, (struct stat *)b);
    case SYS_lstat:
        return lstat((const char *)a, (struct stat *)b);
#endif
    case SYS_fstat:
        return fstat((int)a, (struct stat *)b);
    case SYS_newfstatat:
        return fstatat((int)a, (const char *)b, (struct stat *)c, (int)d);
    default:
        return statx((int)a, (const char *)b, (int)c, (unsigned)d, (struct statx *)e);
    }
}

/* --- what allocators look up by number before main (jemalloc: open, read, close) --- */

/* Opened to be read, below /proc or /sys. */
static bool lookup_path(const char *path, int flags)
{
    return (flags & (O_ACCMODE | O_CREAT | O_TRUNC)) == O_RDONLY && readable(path, 6) &&
           (strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/sys/", 5) == 0);
}

/* Nothing is put off for files of procfs and sysfs. A name there that leads elsewhere
 * (/proc/self/fd/N) gives a descriptor of the file it leads to, which is not on them. */
static bool lookup_fd(long fd)
{
    struct statfs fs;

    return rl_load_32(&proc.foreign) == 0 && rl_raw(SYS_fstatfs, (int)fd, &fs) == 0 &&
           (fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC);
}

/* --- who gets the call --- */

static raw_fn *target_of(const long *arg)
{
    switch (arg[0]) {
    case SYS_openat2:
    case SYS_memfd_create:
        return raw_open;
    case SYS_pidfd_getfd:
        return raw_receive;

        /* Data and descriptors behind our back: from now on nothing is deferred in this process. */
#ifdef SYS_open /* aarch64 has only the -at family */
    case SYS_open:
        if (lookup_path((const char *)arg[1], (int)arg[2]))
            return raw_open;
        settle_foreign(WHY_raw);
        break;
    case SYS_creat:
    case SYS_unlink:
    case SYS_rename:
    case SYS_link:
    case SYS_sendfile:
#endif
    case SYS_open_by_handle_at:
    case SYS_renameat2:
    case SYS_linkat:
    case SYS_pread64:
    case SYS_readv:
    case SYS_preadv:
    case SYS_preadv2:
    case SYS_write:
    case SYS_pwrite64:
    case SYS_writev:
    case SYS_pwritev:
    case SYS_pwritev2:
    case SYS_copy_file_range:
    case SYS_splice:
    case SYS_vmsplice:
    case SYS_fallocate:
    case SYS_truncate:
    case SYS_ftruncate:
    case SYS_lseek:
    case SYS_fcntl:
    case SYS_flock:
    case SYS_sendmsg:
    case SYS_sendmmsg:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_dup:
    case SYS_io_setup:
    case SYS_io_submit:
    case SYS_io_uring_setup:
    case SYS_io_uring_enter:
    case SYS_io_uring_register:
    case SYS_swapon:
    case SYS_acct:
        settle_foreign(WHY_raw);
        break;
    case SYS_openat:
        if (lookup_path((const char *)arg[2], (int)arg[3]))
            return raw_open;
        settle_foreign(WHY_raw);
        break;
    case SYS_read:
        if (!lookup_fd(arg[1]))
            settle_foreign(WHY_raw);
        break;
#ifdef SYS_renameat
    case SYS_renameat:
        settle_foreign(WHY_raw);
        break;
#endif
    case SYS_ioctl:
        settle_foreign(WHY_raw);
        call_ioctl_space((unsigned long)arg[2]);
        break;
    case SYS_unlinkat:
        settle_foreign(WHY_raw);
        if ((arg[3] & AT_REMOVEDIR) != 0)
            evict_drain(WHY_raw);
        break;
    case SYS_mmap:
        if ((arg[4] & MAP_ANONYMOUS) == 0)
            settle_foreign(WHY_raw);
        break;

    /* The same, and numbers become free. */
    case SYS_close:
        if (!lookup_fd(arg[1]))
            settle_foreign(WHY_raw);
        file_forget((int)arg[1]);
        break;
#ifdef SYS_dup2
    case SYS_dup2:
#endif
    case SYS_dup3:
        settle_foreign(WHY_raw);
        if (arg[1] != arg[2])
            file_forget((int)arg[2]);
        break;
    case SYS_close_range:
        settle_foreign(WHY_raw);
        if ((arg[3] & CLOSE_RANGE_CLOEXEC) == 0 && (unsigned)arg[1] <= (unsigned)arg[2])
            file_forget_range((unsigned)arg[1], (unsigned)arg[2]);
        break;

        /* Calls that look at files, or at what is free, or hand over. */
#ifdef SYS_stat
    case SYS_stat:
    case SYS_lstat:
#endif
    case SYS_fstat:
    case SYS_newfstatat:
    case SYS_statx:
        settle_all(WHY_raw);
        return raw_stat;
#ifdef SYS_stat
    case SYS_chmod:
    case SYS_chown:
    case SYS_lchown:
    case SYS_utime:
    case SYS_utimes:
    case SYS_futimesat:
#endif
    case SYS_fchmod:
    case SYS_fchmodat:
    case SYS_fchown:
    case SYS_fchownat:
    case SYS_utimensat:
    case SYS_setxattr:
    case SYS_lsetxattr:
    case SYS_fsetxattr:
    case SYS_removexattr:
    case SYS_lremovexattr:
    case SYS_fremovexattr:
    case SYS_getxattr:
    case SYS_lgetxattr:
    case SYS_fgetxattr:
    case SYS_listxattr:
    case SYS_llistxattr:
    case SYS_flistxattr:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_sync_file_range:
    case SYS_syncfs:
    case SYS_sync:
    case SYS_msync:
        settle_all(WHY_raw);
        break;
#ifdef SYS_rmdir
    case SYS_rmdir:
#endif
    case SYS_statfs:
    case SYS_fstatfs:
    case SYS_quotactl:
    case SYS_quotactl_fd:
    case SYS_mount:
    case SYS_mount_setattr:
    case SYS_fsconfig:
    case SYS_umount2:
        evict_drain(WHY_raw);
        settle_all(WHY_raw);
        break;

        /* Children, programs, the end. */
#ifdef SYS_fork
    case SYS_vfork:
        settle_foreign(WHY_fork);
        fork_announce_vfork();
        break;
    case SYS_fork:
        settle_foreign(WHY_fork);
        return raw_fork;
#endif
    case SYS_clone:
        return clone_target((uint64_t)arg[1], (uint64_t)arg[2]);
    case SYS_clone3:
        return clone3_target((const struct clone_args *)arg[1], (size_t)arg[2]);
    case SYS_execve:
    case SYS_execveat:
        return raw_exec;
    case SYS_exit_group:
        if ((uint32_t)rl_raw(SYS_getpid) == proc.pid)
            process_ends();
        break;

    /* Identities, roots, namespaces, sandboxes: see call_privilege.c. */
    case SYS_unshare:
        if ((arg[1] & CLONE_FILES) != 0)
            settle_foreign(WHY_privilege);
        settle_stop(WHY_privilege);
        break;
    case SYS_setfsuid:
        create_fsuid();
        settle_stop(WHY_privilege);
        break;
    case SYS_setuid:
    case SYS_setgid:
    case SYS_setreuid:
    case SYS_setregid:
    case SYS_setresuid:
    case SYS_setresgid:
    case SYS_setfsgid:
    case SYS_setgroups:
    case SYS_capset:
    case SYS_chroot:
    case SYS_pivot_root:
    case SYS_setns:
        settle_stop(WHY_privilege);
        break;
    case SYS_prctl:
        if (arg[1] != PR_SET_SECCOMP)
            break;
        settle_sandbox();
        break;
    case SYS_landlock_restrict_self:
        rl_store_32(&proc.sandbox, 1);
        break;
    case SYS_seccomp:
        settle_sandbox();
        break;
    default:
        break;
    }
    return NULL;
}

/* arg: number and the first five arguments, as the stub saved them. */
void *shim_raw_target(const long *arg) __attribute__((used, visibility("hidden")));

void *shim_raw_target(const long *arg)
{
    raw_fn *target;

    call_enter();
    target = target_of(arg);
    return target != NULL ? (void *)target : (void *)real.syscall;
}

#if defined(__x86_64__)
__asm__(".text\n"
        ".balign 16\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        ".cfi_startproc\n"
        "    endbr64\n"
        "    subq $56, %rsp\n" /* six words, and the alignment that a call needs */
        ".cfi_adjust_cfa_offset 56\n"
        "    movq %rdi, (%rsp)\n"
        "    movq %rsi, 8(%rsp)\n"
        "    movq %rdx, 16(%rsp)\n"
        "    movq %rcx, 24(%rsp)\n"
        "    movq %r8, 32(%rsp)\n"
        "    movq %r9, 40(%rsp)\n"
        "    movq %rsp, %rdi\n"
        "    call shim_raw_target\n"
        "    movq (%rsp), %rdi\n"
        "    movq 8(%rsp), %rsi\n"
        "    movq 16(%rsp), %rdx\n"
        "    movq 24(%rsp), %rcx\n"
        "    movq 32(%rsp), %r8\n"
        "    movq 40(%rsp), %r9\n"
        "    addq $56, %rsp\n"
        ".cfi_adjust_cfa_offset -56\n"
        "    jmp *%rax\n" /* the sixth argument is on the stack, where it was */
        ".cfi_endproc\n"
        ".size syscall, . - syscall\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".balign 16\n"
        ".globl syscall\n"
        ".type syscall, %function\n"
        "syscall:\n"
        ".cfi_startproc\n"
        "    hint #34\n" /* bti c */
        "    stp x29, x30, [sp, #-80]!\n"
        ".cfi_def_cfa_offset 80\n"
        ".cfi_offset 29, -80\n"
        ".cfi_offset 30, -72\n"
        "    stp x0, x1, [sp, #16]\n"
        "    stp x2, x3, [sp, #32]\n"
        "    stp x4, x5, [sp, #48]\n"
        "    str x6, [sp, #64]\n"
        "    add x0, sp, #16\n"
        "    bl shim_raw_target\n"
        "    mov x16, x0\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x2, x3, [sp, #32]\n"
        "    ldp x4, x5, [sp, #48]\n"
        "    ldr x6, [sp, #64]\n"
        "    ldp x29, x30, [sp], #80\n"
        ".cfi_def_cfa_offset 0\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        "    br x16\n"
        ".cfi_endproc\n"
        ".size syscall, . - syscall\n");
#else
#error "rlshim needs a syscall stub for this processor: add one here"
#endif
