/* SPDX-License-Identifier: MIT */
/*
 * check_system: what the kernel, the file system of the current directory and /proc offer. Things
 * are tried rather than looked up by version: kernels are patched and calls are filtered.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/magic.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cmd.h"
#include "fs_name.h"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif
#define INIT_PID_NAMESPACE "pid:[4026531836]" /* the first namespace's number is fixed in Linux */

static void check_kernel(void)
{
    struct utsname names;
    int major = 0, minor = 0;

    uname(&names);
    sscanf(names.release, "%d.%d", &major, &minor);
    if (major > 5 || (major == 5 && minor >= 9))
        say(GOOD, "Linux %s", names.release);
    else
        say(NOTE, "Linux %s: too old to defer punches (5.9); the gate and pieces work",
            names.release);
}

static void check_uring(void)
{
    unsigned char params[512] = {0};
    int fd = (int)syscall(SYS_io_uring_setup, 4, params);

    if (fd >= 0) {
        say(GOOD, "io_uring can be used");
        close(fd);
    } else {
        say(NOTE, "io_uring cannot be used (%s): punches are applied by plain system calls",
            errno == EPERM    ? "switched off by kernel.io_uring_disabled, or filtered"
            : errno == ENOSYS ? "this kernel does not have it, or a filter hides it"
                              : strerror(errno));
    }
}

/* What the worker needs to have a descriptor table of its own. */
static void check_worker(void)
{
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    int copy = self >= 0 ? (int)syscall(SYS_pidfd_getfd, self, self, 0) : -1;
    int error = errno;

    if (copy < 0)
        say(NOTE, "pidfd_getfd cannot be used (%s): no worker, punches are made in their callers",
            strerror(error));
    else if (syscall(SYS_close_range, 1u << 30, 1u << 30, 0) != 0)
        say(NOTE, "close_range cannot be used (%s): no worker, punches are made in their callers",
            strerror(errno));
    else
        say(GOOD, "pidfd_getfd and close_range can be used: a worker can be had");
    if (copy >= 0)
        close(copy);
    if (self >= 0)
        close(self);
}

/* share = auto needs to see who else has a file open. */
static void check_census(void)
{
    char ns[64] = "";
    ssize_t n = readlink("/proc/self/ns/pid", ns, sizeof ns - 1);

    if (access("/proc/self/fd", R_OK) != 0)
        say(NOTE, "/proc is not there: share = auto never finds evidence of sole use");
    else if (n <= 0 || strcmp(ns, INIT_PID_NAMESPACE) != 0)
        say(NOTE, "this is a PID namespace (a container): processes outside cannot be seen, so "
                  "share = auto may not find evidence of sole use");
    else if (access("/proc/1/stat", F_OK) != 0)
        say(NOTE, "/proc hides the processes of others (hidepid): share = auto may not find "
                  "evidence of sole use");
    else if (geteuid() != 0)
        say(NOTE, "all processes can be seen, but those of other users not looked into: share = "
                  "auto may not find evidence of sole use");
    else
        say(GOOD, "all processes can be seen: share = auto can find evidence of sole use");
}

/* -1: could not be tried, 0: errno, 1: works. A nameless file, so nothing stays behind. */
static int try_punch(void)
{
    int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    int worked = -1;
    static char block[8192];

    if (fd < 0)
        return -1;
    if (write(fd, block, sizeof block) == (ssize_t)sizeof block)
        worked = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
    if (worked == 0 && errno != EOPNOTSUPP)
        worked = -1;
    close(fd);
    return worked;
}

/* share = lease: the kernel gives a write lease, and tells of it. */
static void check_lease(void)
{
    int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0)
        return;
    if (fcntl(fd, F_SETLEASE, F_WRLCK) != 0)
        say(NOTE, "no file leases here (%s)", strerror(errno));
    else
        say(fcntl(fd, F_GETLEASE) == F_WRLCK ? GOOD : NOTE, "file leases %s here",
            fcntl(fd, F_GETLEASE) == F_WRLCK ? "work" : "are given, but mean nothing");
    close(fd);
}

/* Rings are charged to it before 5.12. */
static void check_memlock(void)
{
    struct rlimit limit;
    struct utsname names;
    int major = 0, minor = 0;

    uname(&names);
    sscanf(names.release, "%d.%d", &major, &minor);
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur < (64u << 10) &&
        (major < 5 || (major == 5 && minor < 12)))
        say(NOTE, "memory locking is limited to %llu bytes: no io_uring on this kernel",
            (unsigned long long)limit.rlim_cur);
}

static void check_seccomp(void)
{
    int mode = prctl(PR_GET_SECCOMP);

    if (mode > 0)
        say(NOTE,
            "system calls are filtered here (seccomp mode %d): what was tried above is what "
            "programs may do that are started from here",
            mode);
}

static void check_here(void)
{
    struct statfs fs;
    const char *name;
    int punch;

    if (statfs(".", &fs) != 0) {
        say(NOTE, "the file system of the current directory: %s", strerror(errno));
        return;
    }
    name = fs_name((long)fs.f_type);
    if (!fs_deferred((long)fs.f_type)) {
        say(NOTE,
            "the current directory is on %s (type 0x%lx), a file system where nothing is deferred; "
            "ext4, XFS, btrfs and tmpfs are known",
            name != NULL ? name : "something", (unsigned long)fs.f_type);
        return;
    }
    punch = try_punch();
    say(punch == 0 ? NOTE : GOOD, "the current directory is on %s%s", name,
        punch == 1   ? ", which punches holes"
        : punch == 0 ? ", but holes cannot be punched there"
                     : " (not tried: no file can be made there)");
}

/* --- every file system --- */

/* tests/preload/check_fs.sh holds it against what happens. */
static const char *what_is_on(const struct statfs *fs)
{
    switch ((uint32_t)fs->f_type) {
    case EXT4_SUPER_MAGIC:
        return "gate, split, preextend, punch, evict, truncate, fsync, writeback_window";
    case XFS_SUPER_MAGIC:
        return "gate, split, punch, evict, truncate, fsync, writeback_window";
    case BTRFS_SUPER_MAGIC:
        return "split, punch, evict, truncate, fsync, writeback_window";
    case TMPFS_MAGIC:
        return "punch; there is no disk to wait for";
    default:
        return fs_remote((long)fs->f_type) ? "create" : "nothing: calls go straight on";
    }
}

void check_mounts(void)
{
    FILE *f = setmntent("/proc/self/mounts", "re");
    dev_t seen[256];
    int nseen = 0;
    struct mntent *m;

    puts("file systems, and what can be on there");
    while (f != NULL && (m = getmntent(f)) != NULL) {
        struct statfs fs;
        struct stat st;
        int i = 0;

        /* A network server that is gone would hang whoever asks it: the name has to do. */
        if (strncmp(m->mnt_type, "nfs", 3) == 0 || strncmp(m->mnt_fsname, "//", 2) == 0 ||
            strcmp(m->mnt_type, "lustre") == 0 || strcmp(m->mnt_type, "ceph") == 0) {
            say(NOTE, "%s (%s): create", m->mnt_dir, m->mnt_type);
            continue;
        }
        /* Those that hold no files of users are left out. */
        if ((m->mnt_fsname[0] != '/' && strcmp(m->mnt_type, "tmpfs") != 0 &&
             strcmp(m->mnt_type, "overlay") != 0 && strncmp(m->mnt_type, "fuse.", 5) != 0) ||
            strcmp(m->mnt_type, "squashfs") == 0 || hasmntopt(m, MNTOPT_RO) != NULL ||
            stat(m->mnt_dir, &st) != 0 || !S_ISDIR(st.st_mode) || statfs(m->mnt_dir, &fs) != 0)
            continue;
        while (i < nseen && seen[i] != st.st_dev)
            i++;
        if (i < nseen || nseen == 256)
            continue;
        seen[nseen++] = st.st_dev;
        say(fs_deferred((long)fs.f_type) ? GOOD : NOTE, "%s (%s): %s", m->mnt_dir, m->mnt_type,
            what_is_on(&fs));
    }
    if (f != NULL)
        endmntent(f);
    if (nseen == 0)
        puts("        none was found");
}

static void check_library(void)
{
    char path[4096];

    if (!find_library(path, sizeof path)) {
        say(NOTE, "librlshim.so is neither beside this command nor in ../lib: 'rlshim run' needs "
                  "--library FILE");
        return;
    }
    if (strpbrk(path, " :") != NULL)
        say(NOTE, "%s has a blank or colon in its path, which LD_PRELOAD cannot hold", path);
    else
        say(GOOD, "%s", path);
}

void check_system(void)
{
    puts("system");
    check_library();
    check_kernel();
    check_uring();
    check_worker();
    check_census();
    check_here();
    check_lease();
    check_memlock();
    check_seccomp();
}
