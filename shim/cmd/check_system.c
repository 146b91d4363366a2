/* SPDX-License-Identifier: MIT */
/*
 * check_system: what the kernel, the file system of the current directory and /proc offer. Things
 * are tried rather than looked up by version: kernels are patched and calls are filtered.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cmd.h"

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

static void check_here(void)
{
    static const struct {
        long magic;
        const char *name;
    } known[] = {
        {EXT4_SUPER_MAGIC, "ext4 (or ext2, ext3)"},
        {XFS_SUPER_MAGIC, "XFS"},
        {BTRFS_SUPER_MAGIC, "btrfs"},
        {TMPFS_MAGIC, "tmpfs"},
    };
    struct statfs fs;
    const char *name = NULL;
    int punch;

    if (statfs(".", &fs) != 0) {
        say(NOTE, "the file system of the current directory: %s", strerror(errno));
        return;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if ((long)fs.f_type == known[i].magic)
            name = known[i].name;
    if (name == NULL) {
        say(NOTE,
            "the current directory is on a file system (type 0x%lx) where nothing is deferred; "
            "ext4, XFS, btrfs and tmpfs are known",
            (unsigned long)fs.f_type);
        return;
    }
    punch = try_punch();
    say(punch == 0 ? NOTE : GOOD, "the current directory is on %s%s", name,
        punch == 1   ? ", which punches holes"
        : punch == 0 ? ", but holes cannot be punched there"
                     : " (not tried: no file can be made there)");
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
}
