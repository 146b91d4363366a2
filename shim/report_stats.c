/* SPDX-License-Identifier: MIT */
/*
 * report_stats: the live counters in DIR/rlshim-PID.stats, a shared mapping of struct stats_page.
 *
 * Stores to a mapped file must never fail later: on a full disk they would raise SIGBUS in the
 * middle of the program. So the blocks are allocated first (without copy-on-write, where a store
 * may need a new block each time) and every page is made writable once, which shows errors as such.
 * On a disk file system a store may still have to wait for write-back; hence the advice to use a
 * directory in memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>

#include "log.h"
#include "report.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static struct {
    uint32_t pid;              /* whose file it is, 0 none */
    char base[CFG_PATH_BYTES]; /* working directory at the first call, for the children too */
    char path[2 * CFG_PATH_BYTES + 64];
} live;

static bool put_path(const char *dir, uint32_t pid)
{
    struct cfg_text t = cfg_text_in(live.path, sizeof live.path);

    if (live.base[0] == '\0' &&
        (rl_raw(SYS_getcwd, live.base, sizeof live.base) <= 0 || live.base[0] != '/'))
        live.base[0] = '\0';
    if (dir[0] != '/') {
        if (live.base[0] == '\0')
            return false;
        cfg_text_add(&t, live.base);
        cfg_text_add(&t, "/");
    }
    cfg_text_add(&t, dir);
    cfg_text_add(&t, "/rlshim-");
    cfg_text_number(&t, pid);
    cfg_text_add(&t, ".stats");
    return text_room(&t) != 0;
}

/* Room for the page in the open file fd. 0 or -errno. */
static long reserve(long fd, size_t bytes)
{
    static const char zeros[512];
    uint64_t limit[2] = {0, 0};
    int nocow[2] = {FS_NOCOW_FL}; /* a long by its number, which FUSE copies; an int to others */
    long ret;

    if (rl_raw(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, limit) == 0 && limit[0] < bytes)
        return -EFBIG;
    rl_raw(SYS_ioctl, fd, FS_IOC_SETFLAGS, nocow); /* only btrfs knows it, and empty files only */
    ret = rl_raw(SYS_fallocate, fd, 0, 0, bytes);
    if (ret != -EOPNOTSUPP)
        return ret;
    for (size_t at = 0; at < bytes; at += (size_t)ret) {
        size_t n = bytes - at < sizeof zeros ? bytes - at : sizeof zeros;

        ret = rl_raw(SYS_pwrite64, fd, zeros, n, at);
        if (ret <= 0)
            return ret < 0 ? ret : -EIO;
    }
    return 0;
}

static long map(long fd, size_t bytes)
{
    long at, ret = reserve(fd, bytes);

    if (ret < 0)
        return ret;
    at = rl_raw(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at < 0 && at >= -4095)
        return at;
    ret = rl_raw(SYS_madvise, at, (bytes + 4095) & ~(size_t)4095, MADV_POPULATE_WRITE);
    if (ret < 0 && ret != -EINVAL) { /* EINVAL: kernels before 5.14 */
        rl_raw(SYS_munmap, at, bytes);
        return ret;
    }
    return at;
}

struct stats_page *report_map_stats(const char *dir, uint32_t pid, uint64_t started_ns,
                                    const char *program)
{
    int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY;
    struct stats_page *page = NULL;
    struct statfs fs;
    long fd, at;

    live.pid = 0;
    if (!put_path(dir, pid)) {
        at = -ENAMETOOLONG;
    } else {
        fd = rl_raw(SYS_openat, AT_FDCWD, live.path, flags, 0600);
        if (fd == -EEXIST) { /* left by a killed process that had our number */
            rl_raw(SYS_unlinkat, AT_FDCWD, live.path, 0);
            fd = rl_raw(SYS_openat, AT_FDCWD, live.path, flags, 0600);
        }
        at = fd;
        if (fd >= 0) {
            at = map(fd, sizeof *page);
            if (at < 0 && at >= -4095)
                rl_raw(SYS_unlinkat, AT_FDCWD, live.path, 0);
            else if (rl_raw(SYS_fstatfs, fd, &fs) == 0 && fs.f_type != TMPFS_MAGIC)
                log_line(CFG_LOG_INFO, LOG_S("stats = "), LOG_S(dir),
                         LOG_S(" is on a disk, so counting may have to wait for it; a directory "
                               "in memory, such as /dev/shm, is better."));
            rl_raw(SYS_close, fd);
        }
    }
    if (at < 0 && at >= -4095) {
        log_line(CFG_LOG_OFF, LOG_S("no live counters in "), LOG_S(dir), LOG_S(": "),
                 LOG_ERRNO(-at),
                 LOG_S("; set stats = an existing directory you can write to, best in /dev/shm."));
        return NULL;
    }
    page = (struct stats_page *)at;
    stats_page_init(page, pid, started_ns, program);
    live.pid = pid;
    return page;
}

void report_stats_path(char *path, size_t bytes)
{
    if (live.pid == (uint32_t)rl_raw(SYS_getpid) && strlen(live.path) < bytes)
        strcpy(path, live.path);
}

void report_unmap_stats(void)
{
    if (live.pid == 0 || live.pid != (uint32_t)rl_raw(SYS_getpid))
        return;
    live.pid = 0;
    rl_raw(SYS_unlinkat, AT_FDCWD, live.path, 0);
}
