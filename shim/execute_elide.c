/* SPDX-License-Identifier: MIT */
/* execute_elide: truncations that change nothing but times (policy_truncate.h) are made as that. */
#include <errno.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/prctl.h>
#include <sys/sysinfo.h>

#include "execute_impl.h"
#include "policy_truncate.h"

#define LOOK_MASK (STATX_TYPE | STATX_MODE | STATX_INO | STATX_SIZE | STATX_BLOCKS)

/* Asks for no times: one who asks makes the kernel take the next ones from a finer clock. */
static bool look(int fd, const char *path, int flags, struct statx *stx)
{
    return rl_raw(SYS_statx, fd, path, flags, LOOK_MASK, stx) == 0 &&
           (stx->stx_mask & LOOK_MASK) == LOOK_MASK;
}

static bool swap_space(void)
{
    struct sysinfo info;

    return rl_raw(SYS_sysinfo, &info) != 0 || info.totalswap != 0;
}

static bool decide(const struct statx *stx, uint64_t wanted, int kind, enum cut *cut)
{
    *cut = policy_cut(&(struct cut_facts){
        .works = state_works() && rl_load_32(&proc.sandbox) == 0,
        .elides = true,
        .kind = kind,
        .regular = S_ISREG(stx->stx_mode),
        .mode = stx->stx_mode,
        .append_only = (stx->stx_attributes_mask & STATX_ATTR_APPEND) == 0 ||
                       (stx->stx_attributes & STATX_ATTR_APPEND) != 0,
        .size = stx->stx_size,
        .blocks = stx->stx_blocks,
        .wanted = wanted,
        .maps = rl_load_32(&proc.maps) != 0 || rl_load_32(&proc.foreign) != 0,
        .swaps = stx->stx_size >= CUT_SWAP_MIN_BYTES && stx->stx_size == wanted && swap_space(),
    });
    return *cut != CUT_REAL;
}

/* A sandbox made by Landlock can allow to write and forbid to truncate, per directory, and cannot
 * be asked. Whoever enters one has this bit set, or is privileged. Where truncation is forbidden on
 * all of a file system nothing is ever learned, since that takes one that succeeded. */
static bool may_be_sandboxed(void)
{
    static uint32_t answer; /* 1 no, 2 yes: it stays, but for what proc.sandbox tells */
    uint32_t known = rl_load_32(&answer);

    if (known == 0) {
        known = rl_raw(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 0 ? 2 : 1;
        rl_store_32(&answer, known);
    }
    return known == 2;
}

static bool has_capabilities(int fd)
{
    return rl_raw(SYS_fgetxattr, fd, "security.capability", NULL, (size_t)0) != -ENODATA;
}

static bool none_past(int fd, const struct statx *stx)
{
    uint64_t block = stx->stx_blksize != 0 ? stx->stx_blksize : 4096;
    struct fiemap map = {.fm_start = (stx->stx_size + block - 1) / block * block,
                         .fm_length = INT64_MAX}; /* no room for extents: they are counted */

    return rl_raw(SYS_ioctl, fd, FS_IOC_FIEMAP, &map) == 0 && map.fm_mapped_extents == 0;
}

/* mtime and ctime, both now: what a truncation moves, and watchers hear the same. */
static bool move_times(int fd)
{
    static const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};

    if (rl_raw(SYS_utimensat, fd, NULL, times, 0) != 0)
        return false;
    stat_add(STAT_truncate_elided, 1);
    return true;
}

static bool writable(int fd)
{
    /* Not what was remembered of the open: a child of vfork may have used the number. */
    int flags = open_flags(fd);
    int access = flags & O_ACCMODE;

    return flags >= 0 && (access == O_WRONLY || access == O_RDWR);
}

void elide_learn(int fd)
{
    struct statx stx;

    if (look(fd, "", AT_EMPTY_PATH, &stx))
        fs_kind_learn(stx.stx_dev_major, stx.stx_dev_minor, fs_kind_of(fd));
}

/* YES if the policy says so for the file system that is known to be there. */
static enum elide judge(const struct statx *stx, uint64_t wanted, enum cut *cut)
{
    int kind = fs_kind_known(stx->stx_dev_major, stx->stx_dev_minor);

    if (kind >= 0)
        return decide(stx, wanted, kind, cut) && !may_be_sandboxed() ? ELIDE_YES : ELIDE_NO;
    return stx->stx_size == wanted && S_ISREG(stx->stx_mode) ? ELIDE_LEARN : ELIDE_NO;
}

static bool elides_at(int dirfd, const char *path)
{
    struct file_rules rules;

    return file_rules_at(dirfd, path, &rules) && rules.truncate_mode != CFG_TRUNCATE_SYNC;
}

/* A look costs as much as any system call. A program whose truncating opens find nothing to leave
 * out pays for one in LOOK_STRIDE. */
#define MISSES_MAX  8u
#define LOOK_STRIDE 32u

static uint32_t misses;

static bool worth_a_look(void)
{
    uint32_t n = rl_load_32(&misses);

    if (n < MISSES_MAX)
        return true;
    rl_add_32(&misses, 1);
    return n % LOOK_STRIDE == 0;
}

enum elide elide_open(int dirfd, const char *path, int flags)
{
    enum elide elide = ELIDE_NO;
    struct statx stx;
    enum cut cut;

    if (!state_works() || !policy_cut_flags(flags) || !worth_a_look())
        return ELIDE_NO;
    /* The look first: a path that the kernel can read is one that may be read here. */
    if (look(dirfd, path, (flags & O_NOFOLLOW) != 0 ? AT_SYMLINK_NOFOLLOW : 0, &stx) &&
        elides_at(dirfd, path))
        elide = judge(&stx, 0, &cut);
    if (elide == ELIDE_YES)
        rl_store_32(&misses, 0);
    else if (elide == ELIDE_NO && rl_load_32(&misses) < MISSES_MAX)
        rl_add_32(&misses, 1);
    return elide;
}

bool elide_opened(int fd)
{
    struct statx stx;
    enum cut cut;

    /* Looked at again: it may be another file than the one before the open, or not empty any more.
     * The kernel too opens first and truncates then. */
    if (look(fd, "", AT_EMPTY_PATH, &stx) && judge(&stx, 0, &cut) == ELIDE_YES &&
        !has_capabilities(fd) && move_times(fd))
        return true;
    stat_add(STAT_truncate_late, 1);
    return rl_raw(SYS_ftruncate, fd, 0L) == 0;
}

enum elide elide_truncate(int fd, off_t len)
{
    struct file_rules rules;
    enum elide elide;
    struct statx stx;
    enum cut cut;

    if (len < 0 || !state_works() || !look(fd, "", AT_EMPTY_PATH, &stx) ||
        stx.stx_size != (uint64_t)len)
        return ELIDE_NO;
    file_rules_of(fd, &rules);
    if (rules.truncate_mode == CFG_TRUNCATE_SYNC)
        return ELIDE_NO;
    elide = judge(&stx, (uint64_t)len, &cut);
    if (elide != ELIDE_YES)
        return elide;
    if (!writable(fd) || has_capabilities(fd) ||
        (cut == CUT_TIMES_IF_NONE_PAST && !none_past(fd, &stx)) || !move_times(fd))
        return ELIDE_NO;
    return ELIDE_YES;
}
