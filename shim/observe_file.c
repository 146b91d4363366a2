/* SPDX-License-Identifier: MIT */
/*
 * observe_file: which file a call is about, and what it is called.
 *
 * The answer for a descriptor is kept in a direct-mapped cache; a word of it:
 *   bits 0-15   index in the table of files, or FILE_NOT
 *   bit  16     O_DIRECT at the first look
 *   bits 20-31  generation of the descriptor (file.h): moves with every open and close of it
 *   bits 32-63  descriptor + 1
 * Descriptors that move behind our back keep their old file here until they are opened or closed.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "file.h"
#include "observe_impl.h"
#include "text.h"

#define PROBES    64u
#define DIRECT    ((uint64_t)1 << 16)
#define GEN_SHIFT 20
#define GEN_MASK  0xfffu
#define LOOK_MASK (STATX_TYPE | STATX_NLINK | STATX_INO | STATX_SIZE | STATX_BLOCKS)
#define SECTOR    512u

static uint64_t mix(uint64_t dev, uint64_t ino)
{
    uint64_t h = (ino ^ dev << 32 ^ dev >> 32) * 0x9e3779b97f4a7c15u;

    return h ^ h >> 29;
}

static bool is(uint32_t index, uint64_t dev, uint64_t ino)
{
    const struct observed_file *f = &observation->file[index];

    return __atomic_load_n(&f->state, __ATOMIC_ACQUIRE) == READY && f->dev == dev && f->ino == ino;
}

static uint32_t file_new(uint64_t dev, uint64_t ino)
{
    uint64_t index = rl_load_64(&observation->files_used);
    struct observed_file *f;

    if (index >= FILES_MAX || (index = rl_add_64(&observation->files_used, 1)) >= FILES_MAX)
        return FILE_OTHERS;
    f = &observation->file[index];
    f->dev = dev;
    f->ino = ino;
    __atomic_store_n(&f->state, READY, __ATOMIC_RELEASE);
    return (uint32_t)index;
}

static uint32_t find(uint64_t dev, uint64_t ino, bool make)
{
    uint32_t at = (uint32_t)mix(dev, ino);
    uint32_t made = FILE_OTHERS;

    for (uint32_t i = 0; i < PROBES; i++) {
        uint32_t *slot = &observation->slots[(at + i) % FILE_SLOTS];
        uint32_t index = __atomic_load_n(slot, __ATOMIC_ACQUIRE);

        if (index == 0) {
            if (!make)
                return FILE_NOT;
            if (made == FILE_OTHERS && (made = file_new(dev, ino)) == FILE_OTHERS)
                return FILE_OTHERS;
            /* The loser of a race leaves an entry that nobody counts in. */
            if (__atomic_compare_exchange_n(slot, &index, made, false, __ATOMIC_ACQ_REL,
                                            __ATOMIC_ACQUIRE))
                return made;
        }
        if (is(index, dev, ino))
            return index;
    }
    return make ? FILE_OTHERS : FILE_NOT;
}

uint32_t observe_file_at(uint64_t dev, uint64_t ino)
{
    return find(dev, ino, true);
}

uint32_t observe_file_known(uint64_t dev, uint64_t ino)
{
    return find(dev, ino, false);
}

static __attribute__((noinline)) uint64_t ask(int fd, uint64_t tag)
{
    struct stat st;
    uint64_t word;
    long flags;

    if (!observe_may_ask())
        return FILE_NOT;
    if (rl_raw(SYS_fstat, fd, &st) != 0)
        return FILE_NOT; /* not kept: the number may be opened behind our back */
    if (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)) {
        uint32_t index =
            S_ISREG(st.st_mode) ? find(st.st_dev, st.st_ino, true) : find(st.st_rdev, 0, true);
        struct observed_file *f = &observation->file[index];

        flags = rl_raw(SYS_fcntl, fd, F_GETFL);
        word = tag | index | (flags >= 0 && (flags & O_DIRECT) != 0 ? DIRECT : 0);
        if (index != FILE_OTHERS) {
            f->nameless = S_ISREG(st.st_mode) && st.st_nlink == 0;
            if ((file_flags(fd) & FILE_PASSED) != 0)
                f->received = 1;
        }
    } else {
        word = tag | FILE_NOT;
    }
    rl_store_64(&observation->fds[(unsigned)fd % FD_SLOTS], word);
    return word;
}

uint32_t observe_file(int fd, bool *direct)
{
    uint64_t tag, word;

    if (unlikely(fd < 0))
        return FILE_NOT;
    tag = (uint64_t)((uint32_t)fd + 1) << 32 | (uint64_t)(file_generation(fd) & GEN_MASK)
                                                   << GEN_SHIFT;
    word = rl_load_64(&observation->fds[(unsigned)fd % FD_SLOTS]);
    if (unlikely(word >> GEN_SHIFT != tag >> GEN_SHIFT))
        word = ask(fd, tag);
    *direct = (word & DIRECT) != 0;
    return (uint32_t)(word & 0xffff);
}

/* --- names --- */

static void name_is(uint32_t file, const char *path, size_t n)
{
    struct observed_file *f = &observation->file[file];
    uint32_t none = 0;

    /* Two threads may come at once; the text of one is then lost in the pool. */
    rl_cas_32(&f->path, &none, observe_keep(path, n));
}

static void name_by_fd(uint32_t file, int fd)
{
    static const char gone[] = " (deleted)";
    char link[64], *path;
    struct cfg_text t = cfg_text_in(link, sizeof link);
    long n;

    if ((path = observe_scratch()) == NULL)
        return;
    cfg_text_add(&t, "/proc/thread-self/fd/");
    cfg_text_number(&t, (uint64_t)fd);
    n = rl_raw(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX);
    if ((size_t)n > sizeof gone - 1 &&
        memcmp(path + n - (sizeof gone - 1), gone, sizeof gone - 1) == 0 &&
        observation->file[file].nameless)
        n -= (long)sizeof gone - 1;
    if (n > 0)
        name_is(file, path, (size_t)n);
    observe_scratch_back(path);
}

static void name_by_path(uint32_t file, int dirfd, const char *path)
{
    char *whole = observe_scratch();
    size_t n = strlen(path);
    long have = 0;

    if (whole == NULL)
        return;
    if (path[0] != '/' && dirfd == AT_FDCWD) {
        have = rl_raw(SYS_getcwd, whole, PATH_MAX) - 1;
        if (have <= 0 || (size_t)have + 1 + n > PATH_MAX)
            have = 0;
        else
            whole[have++] = '/';
    }
    if ((size_t)have + n <= PATH_MAX) {
        memcpy(whole + have, path, n);
        name_is(file, whole, (size_t)have + n);
    }
    observe_scratch_back(whole);
}

static bool nameless_yet(uint32_t file)
{
    return file != FILE_OTHERS && file < FILES_MAX && observe_may_ask() &&
           rl_load_32(&observation->file[file].path) == 0;
}

void observe_name_fd(uint32_t file, int fd)
{
    uint64_t mask;

    if (!nameless_yet(file))
        return;
    observe_aside_begins(&mask);
    name_by_fd(file, fd);
    observe_aside_ends(&mask);
}

void observe_name_path(uint32_t file, int dirfd, const char *path)
{
    uint64_t mask;

    if (!nameless_yet(file))
        return;
    observe_aside_begins(&mask);
    name_by_path(file, dirfd, path);
    observe_aside_ends(&mask);
}

void observe_name_open(void)
{
    for (uint32_t i = 0; i < FD_SLOTS; i++) {
        uint64_t word = rl_load_64(&observation->fds[i]);
        uint32_t file = (uint32_t)(word & 0xffff);
        int fd = (int)(word >> 32) - 1;
        bool direct;

        if (file < FILES_MAX && file != FILE_OTHERS && fd >= 0 && observe_file(fd, &direct) == file)
            observe_name_fd(file, fd);
    }
}

bool observe_before(int dirfd, const char *path, bool follow, struct timed_before *b)
{
    int flags =
        AT_NO_AUTOMOUNT | (path == NULL ? AT_EMPTY_PATH : 0) | (follow ? 0 : AT_SYMLINK_NOFOLLOW);
    struct statx stx;

    if (!observe_may_ask() ||
        rl_raw(SYS_statx, dirfd, path != NULL ? path : "", flags, LOOK_MASK, &stx) != 0 ||
        !S_ISREG(stx.stx_mode))
        return false;
    *b = (struct timed_before){.dev = makedev(stx.stx_dev_major, stx.stx_dev_minor),
                               .ino = stx.stx_ino,
                               .bytes = stx.stx_size,
                               .blocks_bytes = stx.stx_blocks * SECTOR,
                               .links = stx.stx_nlink,
                               .major = stx.stx_dev_major,
                               .minor = stx.stx_dev_minor,
                               .known = true};
    return true;
}

/* Of the directory that a path is in: the name itself may be gone. */
static enum file_kind kind_at(int dirfd, const char *path)
{
    enum file_kind kind = FILE_KIND_NONE;
    const char *slash = strrchr(path, '/');
    size_t n = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    uint64_t mask;
    char *dir;
    long fd = -1;

    observe_aside_begins(&mask);
    dir = n < PATH_MAX ? observe_scratch() : NULL;
    if (dir != NULL) {
        memcpy(dir, path, n);
        strcpy(dir + n, ".");
        fd = rl_raw(SYS_openat, dirfd, dir, O_PATH | O_CLOEXEC | O_DIRECTORY);
        observe_scratch_back(dir);
    }
    if (fd >= 0) {
        kind = fs_kind_of((int)fd);
        rl_raw(SYS_close, fd);
    }
    observe_aside_ends(&mask);
    return kind;
}

enum file_kind observe_kind(uint32_t file, int fd, int dirfd, const char *path)
{
    struct observed_file *f = &observation->file[file];
    enum file_kind kind;

    if (f->kind != 0)
        return (enum file_kind)(f->kind - 1);
    if (!observe_may_ask() || (fd < 0 && path == NULL))
        return FILE_KIND_NONE;
    kind = fd >= 0 ? fs_kind_of(fd) : kind_at(dirfd, path);
    f->kind = (uint8_t)(kind + 1);
    return kind;
}
