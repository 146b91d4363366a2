/* SPDX-License-Identifier: MIT */
/*
 * call_stat: the file position, the stat family, and walks over trees that call it inside libc.
 */
#include <sys/sysmacros.h>

#include "call.h"
#include "stat_times.h"
#include "tail.h"

/* SEEK_DATA and SEEK_HOLE show what is punched, and SEEK_END how long the file is. All move the
 * position. */
static off_t seek_busy(uint64_t word, int fd, off_t off, int whence)
{
    struct rl_inode *inode;
    ANNOUNCEMENT(mine);

    state_enter(word);
    inode = file_active(fd);
    if (inode != NULL && (whence == SEEK_DATA || whence == SEEK_HOLE || whence == SEEK_END)) {
        announce(&mine, inode, NULL); /* so that no tail begins */
        if (whence == SEEK_END)
            tail_give_back(inode);
        else
            settle_inode(inode, WHY_seek);
    }
    file_claim_position(fd, true);
    return real.lseek(fd, off, whence);
}

#define SEEKS(name, fallback)                                                                      \
    off_t name(int fd, off_t off, int whence)                                                      \
    {                                                                                              \
        TIMED_FD(ACT_seek, fd);                                                                    \
        INFLIGHT(leg, fd);                                                                         \
        uint64_t word = state_word();                                                              \
                                                                                                   \
        if (!state_idle(word))                                                                     \
            return seek_busy(word, fd, off, whence);                                               \
        return (fallback) ? real.lseek(fd, off, whence) : real.name(fd, off, whence);              \
    }
SEEKS(lseek, false)
SEEKS(lseek64, false)
SEEKS(__lseek, false)
SEEKS(llseek, real.llseek == NULL) /* libc has it only for programs linked long ago */

/* --- stat --- */

#define SEE(view, st)                                                                              \
    do {                                                                                           \
        (view)->dev = (st)->st_dev;                                                                \
        (view)->ino = (st)->st_ino;                                                                \
        (view)->mode = (st)->st_mode;                                                              \
        (view)->mtime = (st)->st_mtim;                                                             \
        (view)->ctime = (st)->st_ctim;                                                             \
        (view)->size = (uint64_t)(st)->st_size;                                                    \
    } while (0)

/* One after the real call: busy, and it succeeded. `again` makes it once more. */
#define STATS(name, type, params, args)                                                            \
    static __attribute__((noinline)) int name##_busy(uint64_t word, type *st, STAT_PARAMS params)  \
    {                                                                                              \
        TIMED_PATH(ACT_stat, AT_FDCWD, NULL);                                                      \
        struct stat_view view = {.looks = 0};                                                      \
                                                                                                   \
        state_enter(word);                                                                         \
        do {                                                                                       \
            int r;                                                                                 \
                                                                                                   \
            stat_begins(&view);                                                                    \
            r = real.name args;                                                                    \
            if (r != 0 || stat_alone(&view))                                                       \
                return r;                                                                          \
            SEE(&view, st);                                                                        \
        } while (stat_again(&view));                                                               \
        if (stat_times(&view)) {                                                                   \
            st->st_mtim = view.mtime;                                                              \
            st->st_ctim = view.ctime;                                                              \
            st->st_size = (off_t)view.size;                                                        \
        }                                                                                          \
        return 0;                                                                                  \
    }
#define STAT_PARAMS(...) __VA_ARGS__

#define STATS_PATH(name, type)                                                                     \
    STATS(name, type, (const char *path), (path, st))                                              \
    int name(const char *path, type *st)                                                           \
    {                                                                                              \
        uint64_t word = state_word();                                                              \
                                                                                                   \
        return state_idle(word) ? real.name(path, st) : name##_busy(word, st, path);               \
    }
STATS_PATH(stat, struct stat)
STATS_PATH(stat64, struct stat64)
STATS_PATH(lstat, struct stat)
STATS_PATH(lstat64, struct stat64)

#define STATS_FD(name, type)                                                                       \
    STATS(name, type, (int fd), (fd, st))                                                          \
    int name(int fd, type *st)                                                                     \
    {                                                                                              \
        uint64_t word = state_word();                                                              \
                                                                                                   \
        return state_idle(word) ? real.name(fd, st) : name##_busy(word, st, fd);                   \
    }
STATS_FD(fstat, struct stat)
STATS_FD(fstat64, struct stat64)

#define STATS_AT(name, type)                                                                       \
    STATS(name, type, (int dirfd, const char *path, int flags), (dirfd, path, st, flags))          \
    int name(int dirfd, const char *path, type *st, int flags)                                     \
    {                                                                                              \
        uint64_t word = state_word();                                                              \
                                                                                                   \
        return state_idle(word) ? real.name(dirfd, path, st, flags)                                \
                                : name##_busy(word, st, dirfd, path, flags);                       \
    }
STATS_AT(fstatat, struct stat)
STATS_AT(fstatat64, struct stat64)

/* What programs linked before glibc 2.33 call. */
#define XSTATS_PATH(name, type)                                                                    \
    STATS(name, type, (int version, const char *path), (version, path, st))                        \
    int name(int version, const char *path, type *st)                                              \
    {                                                                                              \
        uint64_t word = state_word();                                                              \
                                                                                                   \
        return state_idle(word) ? real.name(version, path, st)                                     \
                                : name##_busy(word, st, version, path);                            \
    }
XSTATS_PATH(__xstat, struct stat)
XSTATS_PATH(__xstat64, struct stat64)
XSTATS_PATH(__lxstat, struct stat)
XSTATS_PATH(__lxstat64, struct stat64)

#define XSTATS_FD(name, type)                                                                      \
    STATS(name, type, (int version, int fd), (version, fd, st))                                    \
    int name(int version, int fd, type *st)                                                        \
    {                                                                                              \
        uint64_t word = state_word();                                                              \
                                                                                                   \
        return state_idle(word) ? real.name(version, fd, st) : name##_busy(word, st, version, fd); \
    }
XSTATS_FD(__fxstat, struct stat)
XSTATS_FD(__fxstat64, struct stat64)

#define XSTATS_AT(name, type)                                                                      \
    STATS(name, type, (int version, int dirfd, const char *path, int flags),                       \
          (version, dirfd, path, st, flags))                                                       \
    int name(int version, int dirfd, const char *path, type *st, int flags)                        \
    {                                                                                              \
        uint64_t word = state_word();                                                              \
                                                                                                   \
        return state_idle(word) ? real.name(version, dirfd, path, st, flags)                       \
                                : name##_busy(word, st, version, dirfd, path, flags);              \
    }
XSTATS_AT(__fxstatat, struct stat)
XSTATS_AT(__fxstatat64, struct stat64)

/* --- statx: the same in other fields, of which the caller may not have asked for all --- */

#define STATX_NEEDED (STATX_INO | STATX_TYPE | STATX_MODE)

static struct timespec from_statx(const struct statx_timestamp *t)
{
    return (struct timespec){t->tv_sec, t->tv_nsec};
}

static void to_statx(struct statx_timestamp *t, const struct timespec *from)
{
    t->tv_sec = from->tv_sec;
    t->tv_nsec = (uint32_t)from->tv_nsec;
}

static void see_statx(struct stat_view *view, const struct statx *stx)
{
    view->dev = makedev(stx->stx_dev_major, stx->stx_dev_minor);
    view->ino = stx->stx_ino;
    view->mode = stx->stx_mode;
    view->mtime = from_statx(&stx->stx_mtime);
    view->ctime = from_statx(&stx->stx_ctime);
    view->size = stx->stx_size;
}

int statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *stx)
{
    TIMED_PATH(ACT_stat, AT_FDCWD, NULL);
    struct stat_view view = {.looks = 0};

    call_enter();
    do {
        int r;

        stat_begins(&view);
        r = real.statx(dirfd, path, flags, mask, stx);
        if (r != 0 || stat_alone(&view) || (stx->stx_mask & STATX_NEEDED) != STATX_NEEDED)
            return r;
        see_statx(&view, stx);
    } while (stat_again(&view));
    if (stat_times(&view)) {
        if ((stx->stx_mask & STATX_SIZE) != 0)
            stx->stx_size = view.size;
        if ((stx->stx_mask & STATX_MTIME) != 0)
            to_statx(&stx->stx_mtime, &view.mtime);
        if ((stx->stx_mask & STATX_CTIME) != 0)
            to_statx(&stx->stx_ctime, &view.ctime);
    }
    return 0;
}

/* --- walks: libc's own stat calls are out of reach, so everything is applied first --- */

#define WALKS(ret, name, params, args)                                                             \
    ret name params                                                                                \
    {                                                                                              \
        SETTLE_ALL(WHY_stat);                                                                      \
        return real.name args;                                                                     \
    }
WALKS(int, ftw, (const char *dir, __ftw_func_t fn, int fds), (dir, fn, fds))
WALKS(int, ftw64, (const char *dir, __ftw64_func_t fn, int fds), (dir, fn, fds))
WALKS(int, nftw, (const char *dir, __nftw_func_t fn, int fds, int flags), (dir, fn, fds, flags))
WALKS(int, nftw64, (const char *dir, __nftw64_func_t fn, int fds, int flags), (dir, fn, fds, flags))
WALKS(void *, fts_read, (void *fts), (fts))
WALKS(void *, fts64_read, (void *fts), (fts))
WALKS(void *, fts_children, (void *fts, int options), (fts, options))
WALKS(void *, fts64_children, (void *fts, int options), (fts, options))
