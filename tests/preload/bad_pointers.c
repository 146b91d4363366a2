/* SPDX-License-Identifier: MIT */
/* timeout: 60 */
/*
 * bad_pointers: every interposed call that takes a pointer, with pointers that lead nowhere, to a
 * page without rights, over the end of mapped memory, and to memory that cannot be written. Prints
 * what each call did; bad_pointers.sh compares that with a run without the shim.
 *
 *   bad_pointers DIR [queued]
 *
 * queued: a punch of the file is waiting when a call is made, if it can be made to wait. How many
 * times it did is what stands on stderr.
 * A call that crashes inside libc crashes there with the shim too: SEGV is an answer like others.
 */
#include <aio.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#include "../../include/rlshim/control.h"
#include "../../lockmgr/rawcall.h"

#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define BLOCK 4096
#define SIZE  (64 * BLOCK)
#define BIG   ((size_t)2 << 20)

static int fd, direct, pair[2];
static char *big; /* BIG bytes, of which the second half has no rights */
static sigjmp_buf out;

static void crashed(int signal)
{
    (void)signal;
    siglongjmp(out, 1);
}

static void nap(void)
{
    struct timespec t = {0, 1000000};

    rl_raw(SYS_nanosleep, &t, NULL);
}

/* A punch of the blocks 8 to 11 that waits. */
static bool queue(void)
{
    for (int i = 0; i < 60; i++) {
        uint64_t before = rl_counter("punch_deferred");

        if (fallocate(fd, PUNCH, 8 * BLOCK, 4 * BLOCK) != 0)
            return false;
        if (rl_counter("punch_deferred") != before)
            return true;
        if (rl_counter("punch_calls") == 0) /* without the shim, or with it switched off */
            return false;
        nap();
    }
    return false;
}

/* --- the calls: each with one bad pointer, p --- */

static long close_if(long r)
{
    if (r >= 0)
        rl_raw(SYS_close, (int)r);
    return r >= 0 ? 0 : r;
}

static struct iovec vector(void *p, size_t n)
{
    return (struct iovec){p, n};
}

static long message(void *p, int which, bool send)
{
    char byte = 'b';
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

    if (which == 0)
        m.msg_iov = p;
    if (which == 1) {
        m.msg_control = p;
        m.msg_controllen = 64;
    }
    if (which == 2)
        m.msg_name = p, m.msg_namelen = 16;
    if (!send && rl_raw(SYS_sendto, pair[1], &byte, (size_t)1, 0, NULL, 0) != 1)
        return -2;
    return send ? sendmsg(pair[0], &m, MSG_DONTWAIT) : recvmsg(pair[0], &m, MSG_DONTWAIT);
}

static int visited(const char *path, const struct stat *st, int kind)
{
    (void)path, (void)st, (void)kind;
    return 0;
}

#define VECTORS(X)                                                                                 \
    X(readv, readv(fd, p, 2))                                                                      \
    X(preadv, preadv(fd, p, 2, 0))                                                                 \
    X(preadv2, preadv2(fd, p, 2, 0, 0))                                                            \
    X(writev, writev(fd, p, 2))                                                                    \
    X(pwritev, pwritev(fd, p, 2, 0))                                                               \
    X(pwritev2, pwritev2(fd, p, 2, 0, 0))                                                          \
    X(pwritev_direct, pwritev(direct, p, 2, 0))                                                    \
    X(readv_buffer, readv(fd, (struct iovec[]){vector(p, 8192)}, 1))                               \
    X(preadv_buffer, preadv(fd, (struct iovec[]){vector(p, 8192)}, 1, 7 * BLOCK))                  \
    X(preadv2_buffer, preadv2(fd, (struct iovec[]){vector(p, 8192)}, 1, 7 * BLOCK, 0))             \
    X(writev_buffer, writev(fd, (struct iovec[]){vector(p, 8192)}, 1))                             \
    X(pwritev_buffer, pwritev(fd, (struct iovec[]){vector(p, 8192)}, 1, 7 * BLOCK))                \
    X(pwritev2_buffer, pwritev2(fd, (struct iovec[]){vector(p, 8192)}, 1, 7 * BLOCK, 0))

#define BUFFERS(X)                                                                                 \
    X(read, read(fd, p, 8192))                                                                     \
    X(pread, pread(fd, p, 8192, 7 * BLOCK))                                                        \
    X(pread_end, pread(fd, p, 8192, SIZE - 100))                                                   \
    X(pread_past, pread(fd, p, 8192, SIZE + 100))                                                  \
    X(pread_direct, pread(direct, p, BLOCK, 8 * BLOCK))                                            \
    X(write, write(fd, p, 8192))                                                                   \
    X(pwrite, pwrite(fd, p, 8192, 7 * BLOCK))                                                      \
    X(pwrite_direct, pwrite(direct, p, BLOCK, 8 * BLOCK))                                          \
    X(pwrite_big, pwrite(fd, p, BIG, 0))                                                           \
    X(pwrite_big_direct, pwrite(direct, p, BIG, 0))                                                \
    X(write_big_direct, write(direct, p, BIG))                                                     \
    X(pwritev_big_direct,                                                                          \
      pwritev(direct, (struct iovec[]){vector(big, BIG / 4), vector(p, BIG)}, 2, 0))               \
    X(copy_from, copy_file_range(fd, p, direct, NULL, 100, 0))                                     \
    X(copy_to, copy_file_range(fd, NULL, direct, p, 100, 0))                                       \
    X(sendfile, sendfile(pair[0], fd, p, 0))                                                       \
    X(splice, splice(fd, p, pair[0], NULL, 0, 0))                                                  \
    X(clone_range, ioctl(fd, FICLONERANGE, p))                                                     \
    X(dedupe, ioctl(fd, FIDEDUPERANGE, p))                                                         \
    X(extents, ioctl(fd, FS_IOC_FIEMAP, p))                                                        \
    X(get_flags, ioctl(fd, FS_IOC_GETFLAGS, p))                                                    \
    X(set_flags, ioctl(fd, FS_IOC_SETFLAGS, p))

#define PATHS(X)                                                                                   \
    X(open, close_if(open(p, O_RDWR)))                                                             \
    X(open_create, close_if(open(p, O_RDWR | O_CREAT, 0600)))                                      \
    X(open_cut, close_if(open(p, O_RDWR | O_TRUNC)))                                               \
    X(open_new, close_if(open(p, O_RDWR | O_CREAT | O_TRUNC, 0600)))                               \
    X(open_direct, close_if(open(p, O_RDWR | O_DIRECT)))                                           \
    X(openat, close_if(openat(AT_FDCWD, p, O_RDWR)))                                               \
    X(openat_cut, close_if(openat(AT_FDCWD, p, O_RDWR | O_TRUNC)))                                 \
    X(openat_bad, close_if(openat(-3, p, O_RDWR | O_TRUNC)))                                       \
    X(creat, close_if(creat(p, 0600)))                                                             \
    X(memfd, close_if(memfd_create(p, 0)))                                                         \
    X(truncate, truncate(p, 0))                                                                    \
    X(stat_path, stat(p, &(struct stat){0}))                                                       \
    X(lstat_path, lstat(p, &(struct stat){0}))                                                     \
    X(fstatat_path, fstatat(AT_FDCWD, p, &(struct stat){0}, 0))                                    \
    X(statx_path, statx(AT_FDCWD, p, 0, STATX_ALL, &(struct statx){0}))                            \
    X(ftw, ftw(p, visited, 4))                                                                     \
    X(unlink, unlink(p))                                                                           \
    X(unlinkat, unlinkat(AT_FDCWD, p, 0))                                                          \
    X(unlinkat_bad, unlinkat(-3, p, 0))                                                            \
    X(unlinkat_dir, unlinkat(AT_FDCWD, p, AT_REMOVEDIR))                                           \
    X(remove, remove(p))                                                                           \
    X(rmdir, rmdir(p))                                                                             \
    X(rename_from, rename(p, "nothing"))                                                           \
    X(rename_to, rename("other", p))                                                               \
    X(renameat_from, renameat(AT_FDCWD, p, AT_FDCWD, "nothing"))                                   \
    X(renameat_to, renameat(AT_FDCWD, "other", AT_FDCWD, p))                                       \
    X(renameat2_from, renameat2(AT_FDCWD, p, AT_FDCWD, "nothing", 0))                              \
    X(renameat2_to, renameat2(AT_FDCWD, "other", AT_FDCWD, p, 0))                                  \
    X(link_from, link(p, "nothing"))                                                               \
    X(link_to, link("other", p))                                                                   \
    X(linkat_from, linkat(AT_FDCWD, p, AT_FDCWD, "nothing", 0))                                    \
    X(linkat_to, linkat(AT_FDCWD, "other", AT_FDCWD, p, 0))                                        \
    X(utime_path, utime(p, NULL))                                                                  \
    X(utimes_path, utimes(p, NULL))                                                                \
    X(lutimes_path, lutimes(p, NULL))                                                              \
    X(futimesat_path, futimesat(AT_FDCWD, p, NULL))                                                \
    X(utimensat_path, utimensat(AT_FDCWD, p, NULL, 0))                                             \
    X(chmod, chmod(p, 0600))                                                                       \
    X(fchmodat, fchmodat(AT_FDCWD, p, 0600, 0))                                                    \
    X(chown, chown(p, (uid_t)-1, (gid_t)-1))                                                       \
    X(lchown, lchown(p, (uid_t)-1, (gid_t)-1))                                                     \
    X(fchownat, fchownat(AT_FDCWD, p, (uid_t)-1, (gid_t)-1, 0))                                    \
    X(setxattr, setxattr(p, "user.a", "v", 1, 0))                                                  \
    X(lsetxattr, lsetxattr(p, "user.a", "v", 1, 0))                                                \
    X(removexattr, removexattr(p, "user.a"))                                                       \
    X(lremovexattr, lremovexattr(p, "user.a"))                                                     \
    X(getxattr, getxattr(p, "user.a", NULL, 0))                                                    \
    X(lgetxattr, lgetxattr(p, "user.a", NULL, 0))                                                  \
    X(listxattr, listxattr(p, NULL, 0))                                                            \
    X(llistxattr, llistxattr(p, NULL, 0))                                                          \
    X(statfs, statfs(p, &(struct statfs){0}))                                                      \
    X(statvfs, statvfs(p, &(struct statvfs){0}))                                                   \
    X(umount, umount(p))                                                                           \
    X(umount2, umount2(p, 0))                                                                      \
    X(mount, mount(p, p, p, MS_BIND, NULL))                                                        \
    X(execve, execve(p, (char *[]){NULL}, NULL))                                                   \
    X(execv, execv(p, (char *[]){NULL}))                                                           \
    X(mkstemp, close_if(mkstemp(p)))

#define RESULTS(X)                                                                                 \
    X(stat, stat("other", p))                                                                      \
    X(lstat, lstat("other", p))                                                                    \
    X(stat_it, stat("file", p))                                                                    \
    X(fstat, fstat(fd, p))                                                                         \
    X(fstatat, fstatat(AT_FDCWD, "file", p, 0))                                                    \
    X(statx, statx(AT_FDCWD, "file", 0, STATX_ALL, p))                                             \
    X(statfs_result, statfs(".", p))                                                               \
    X(fstatfs, fstatfs(fd, p))                                                                     \
    X(statvfs_result, statvfs(".", p))                                                             \
    X(fstatvfs, fstatvfs(fd, p))                                                                   \
    X(utime, utime("other", p))                                                                    \
    X(utimes, utimes("other", p))                                                                  \
    X(futimes, futimes(fd, p))                                                                     \
    X(utimensat, utimensat(AT_FDCWD, "other", p, 0))                                               \
    X(futimens, futimens(fd, p))                                                                   \
    X(setxattr_value, fsetxattr(fd, "user.b", p, 10, 0))                                           \
    X(setxattr_name, fsetxattr(fd, p, "v", 1, 0))                                                  \
    X(getxattr_name, fgetxattr(fd, p, NULL, 0))                                                    \
    X(getxattr_value, fgetxattr(fd, "user.a", p, 10))                                              \
    X(listxattr_value, flistxattr(fd, p, 100))                                                     \
    X(removexattr_name, fremovexattr(fd, p))                                                       \
    X(fcntl_lock, fcntl(fd, F_SETLK, p))                                                           \
    X(fcntl_lock_ofd, fcntl(fd, F_OFD_SETLK, p))                                                   \
    X(fcntl_get, fcntl(fd, F_GETLK, p))                                                            \
    X(recvmsg, recvmsg(pair[0], p, MSG_DONTWAIT))                                                  \
    X(recvmsg_vector, message(p, 0, false))                                                        \
    X(recvmsg_control, message(p, 1, false))                                                       \
    X(recvmsg_name, message(p, 2, false))                                                          \
    X(recvmmsg, recvmmsg(pair[0], p, 2, MSG_DONTWAIT, NULL))                                       \
    X(msync, msync(p, BLOCK, MS_SYNC))                                                             \
    X(mmap_fixed, mmap(p, BLOCK, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)

/* These end deferral for good. */
#define LATE(X)                                                                                    \
    X(openat2_raw,                                                                                 \
      close_if(syscall(SYS_openat2, AT_FDCWD, p, &(struct open_how){.flags = O_RDWR | O_TRUNC},    \
                       sizeof(struct open_how))))                                                  \
    X(openat2_how, close_if(syscall(SYS_openat2, AT_FDCWD, "other", p, sizeof(struct open_how))))  \
    X(open_raw, close_if(syscall(SYS_openat, AT_FDCWD, p, O_RDWR | O_TRUNC)))                      \
    X(unlink_raw, syscall(SYS_unlink, p))                                                          \
    X(unlinkat_raw, syscall(SYS_unlinkat, AT_FDCWD, p, 0))                                         \
    X(rename_raw, syscall(SYS_rename, "other", p))                                                 \
    X(chroot, chroot(p))                                                                           \
    X(execveat, (int)syscall(SYS_execveat, AT_FDCWD, p, NULL, NULL, 0))                            \
    X(fopen, fopen(p, "r") != NULL)                                                                \
    X(fopen_new, fopen(p, "w") != NULL)                                                            \
    X(fopen_mode, fopen("other", p) != NULL)                                                       \
    X(opendir, opendir(p) != NULL)                                                                 \
    X(sendmsg, sendmsg(pair[0], p, MSG_DONTWAIT))                                                  \
    X(sendmsg_vector, message(p, 0, true))                                                         \
    X(sendmsg_control, message(p, 1, true))                                                        \
    X(sendmsg_name, message(p, 2, true))                                                           \
    X(sendmmsg, sendmmsg(pair[0], p, 2, MSG_DONTWAIT))                                             \
    X(read_raw, syscall(SYS_pread64, fd, p, 8192L, 7L * BLOCK))                                    \
    X(write_raw, syscall(SYS_pwrite64, fd, p, 8192L, 7L * BLOCK))                                  \
    X(aio_read, aio_read(p))                                                                       \
    X(aio_write, aio_write(p))                                                                     \
    X(aio_fsync, aio_fsync(O_SYNC, p))                                                             \
    X(lio_listio, lio_listio(LIO_NOWAIT, p, 1, NULL))                                              \
    X(capset, (int)syscall(SYS_capset, p, NULL))                                                   \
    X(setgroups, (int)syscall(SYS_setgroups, 3, p))                                                \
    X(io_setup, syscall(SYS_io_setup, 1, p))

#define CALLS(X) VECTORS(X) BUFFERS(X) PATHS(X) RESULTS(X) LATE(X)

#pragma GCC diagnostic ignored "-Wnonnull"
#define CALL(name, call)                                                                           \
    static long call_##name(void *p)                                                               \
    {                                                                                              \
        return (long)(call);                                                                       \
    }
CALLS(CALL)

static const struct call {
    const char *name;
    long (*make)(void *p);
} calls[] = {
#define ROW(name, call) {#name, call_##name},
    CALLS(ROW)};

int main(int argc, char **argv)
{
    bool queued = argc > 2 && strcmp(argv[2], "queued") == 0;
    struct {
        const char *name;
        char *p;
    } bad[5];
    unsigned waiting = 0;
    char *pages;

    if (argc < 2 || chdir(argv[1]) != 0)
        return 2;
    fd = open("file", O_RDWR | O_CREAT, 0600);
    direct = open("direct", O_RDWR | O_CREAT | O_DIRECT, 0600);
    pages = mmap(NULL, 16 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    big = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fd < 0 || direct < 0 || pages == MAP_FAILED || big == MAP_FAILED ||
        socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0)
        return 2;
    memset(big, 'd', BIG);
    memset(pages, 'p', 16 * (size_t)BLOCK);
    if (pwrite(fd, big, SIZE, 0) != SIZE || pwrite(direct, big, SIZE, 0) != SIZE ||
        close(open("other", O_RDWR | O_CREAT, 0600)) != 0)
        return 2;
    mprotect(big + BIG / 2, BIG / 2, PROT_NONE);
    mprotect(pages + BLOCK, BLOCK, PROT_NONE);
    mprotect(pages + 3 * BLOCK, BLOCK, PROT_READ);
    mprotect(pages + 5 * BLOCK, BLOCK, PROT_NONE);
    bad[0].name = "NULL", bad[0].p = NULL;
    bad[1].name = "no rights", bad[1].p = pages + BLOCK;
    bad[2].name = "over the end", bad[2].p = pages + BLOCK - 8;
    bad[3].name = "no address", bad[3].p = (char *)(uintptr_t)0x7ff0000000000008u;
    bad[4].name = "half", bad[4].p = big;
    signal(SIGSEGV, crashed);
    signal(SIGBUS, crashed);
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
        for (unsigned b = 0; b < sizeof bad / sizeof *bad; b++) {
            long r;
            int error;

            if (b == 4 && strstr(calls[i].name, "_big") == NULL)
                continue;
            rl_raw(SYS_lseek, fd, 7L * BLOCK, SEEK_SET);
            rl_raw(SYS_lseek, direct, 0L, SEEK_SET);
            memset(pages, 'p', BLOCK);
            waiting += queued && queue();
            errno = 4242;
            if (sigsetjmp(out, 1) == 0) {
                r = calls[i].make(bad[b].p);
                error = errno;
                printf("%s, %s: %ld, %d, at %ld\n", calls[i].name, bad[b].name, r, error,
                       (long)rl_raw(SYS_lseek,
                                    strstr(calls[i].name, "direct") != NULL ? direct : fd, 0L,
                                    SEEK_CUR));
            } else {
                printf("%s, %s: SEGV\n", calls[i].name, bad[b].name);
            }
            fflush(stdout);
        }
    fprintf(stderr, "%u\n", waiting);
    return 0;
}
