/* SPDX-License-Identifier: MIT */
/*
 * call_name: calls that make and remove names. They happen at once and in order; what is queued
 * belongs to the inode, whatever it is called. The space of a big file comes later (evict.h).
 */
#include "call.h"

#define NAMES(name, params, args)                                                                  \
    FREQUENT int name params                                                                       \
    {                                                                                              \
        TIMED_PATH(ACT_unlink, AT_FDCWD, NULL);                                                    \
        call_seen(STAT_calls_name);                                                                \
        return real.name args;                                                                     \
    }
NAMES(shm_unlink, (const char *name), (name))

/* A directory's space is asked for next, by who removes it: what was in it is freed first. */
static void directory_goes(void)
{
    if (evict_held())
        settle_all(WHY_statfs);
}

int rmdir(const char *path)
{
    TIMED_PATH(ACT_name, AT_FDCWD, NULL);
    call_seen(STAT_calls_name);
    directory_goes();
    return real.rmdir(path);
}

/* Not answered from a look, though that would spare a slow server the directory's lock: mkdir asks
 * the server whether the name is still there, and a look takes the kernel's cached word for it. */
#define MAKES(name, dirfd, params, args)                                                           \
    int name params                                                                                \
    {                                                                                              \
        TIMED_PATH(ACT_name, dirfd, path);                                                         \
        call_seen(STAT_calls_name);                                                                \
        return CALL_WITH_SPACE(real.name args);                                                    \
    }
MAKES(mkdir, AT_FDCWD, (const char *path, mode_t mode), (path, mode))
MAKES(mkdirat, dirfd, (int dirfd, const char *path, mode_t mode), (dirfd, path, mode))

/* A file may lose its last name: `begin` looks which. */
#define TAKES(name, act, dirfd, path, params, args, begin)                                         \
    int name params                                                                                \
    {                                                                                              \
        TIMED_PATH(act, dirfd, path);                                                              \
        EVICT_HOLD(hold);                                                                          \
        int r;                                                                                     \
                                                                                                   \
        call_seen(STAT_calls_name);                                                                \
        begin;                                                                                     \
        r = CALL_WITH_SPACE(real.name args);                                                       \
        if (hold.slot != EVICT_NOTHING)                                                            \
            evict_end(&hold, r == 0);                                                              \
        return r;                                                                                  \
    }
TAKES(unlink, ACT_unlink, AT_FDCWD, path, (const char *path), (path),
      evict_begin(AT_FDCWD, path, &hold))
TAKES(unlinkat, ACT_unlink, dirfd, path, (int dirfd, const char *path, int flags),
      (dirfd, path, flags), if (flags == 0) evict_begin(dirfd, path, &hold);
      else directory_goes())
TAKES(rename, ACT_rename, AT_FDCWD, to, (const char *from, const char *to), (from, to),
      evict_begin_rename(AT_FDCWD, from, AT_FDCWD, to, &hold))
TAKES(renameat, ACT_rename, tofd, to, (int fromfd, const char *from, int tofd, const char *to),
      (fromfd, from, tofd, to), evict_begin_rename(fromfd, from, tofd, to, &hold))
TAKES(renameat2, ACT_rename, tofd, to,
      (int fromfd, const char *from, int tofd, const char *to, unsigned flags),
      (fromfd, from, tofd, to, flags),
      if (flags == 0) evict_begin_rename(fromfd, from, tofd, to, &hold))

static bool is_directory(const char *path)
{
    struct stat st;

    return rl_raw(SYS_newfstatat, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode);
}

TAKES(remove, ACT_unlink, AT_FDCWD, path, (const char *path), (path),
      if (evict_held() && is_directory(path)) directory_goes();
      else evict_begin(AT_FDCWD, path, &hold))

/* A file without a name may get one here (O_TMPFILE), and with it strangers: that it had none was
 * the evidence. Turned on while the link was being made: ended afterwards. */
#define LINKS(name, params, args)                                                                  \
    FREQUENT int name params                                                                       \
    {                                                                                              \
        TIMED_PATH(ACT_name, AT_FDCWD, NULL);                                                      \
        int r;                                                                                     \
                                                                                                   \
        call_seen(STAT_calls_name);                                                                \
        state_doubt();                                                                             \
        WHEN_BUSY(settle_end_all(WHY_link));                                                       \
        r = real.name args;                                                                        \
        state_doubt();                                                                             \
        WHEN_BUSY(settle_end_all(WHY_link));                                                       \
        return r;                                                                                  \
    }
LINKS(link, (const char *from, const char *to), (from, to))
LINKS(linkat, (int fromfd, const char *from, int tofd, const char *to, int flags),
      (fromfd, from, tofd, to, flags))
