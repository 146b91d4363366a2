/* SPDX-License-Identifier: MIT */
/*
 * call_open: everything that makes a descriptor of a path, except streams.
 *
 * An open does four things more than the kernel's: the descriptor's old identity is forgotten
 * (file_opened), a truncating one passes the inode's gate, one with O_CREAT may be helped
 * (create.h), and the family hears of it. The mode is there for O_CREAT and for O_TMPFILE, which is
 * more than one bit.
 */
#include "call.h"
#include "create.h"

#define HAS_MODE(flags) (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE)

#define FETCH_MODE(mode, flags)                                                                    \
    mode_t mode = 0;                                                                               \
    if (HAS_MODE(flags)) {                                                                         \
        va_list args_;                                                                             \
        va_start(args_, flags);                                                                    \
        mode = va_arg(args_, mode_t);                                                              \
        va_end(args_);                                                                             \
    }

/* No mode, nothing to cut, nothing to remember but that it was an open of ours. */
#define PLAIN(flags) (((flags) & (O_CREAT | O_TRUNC | O_DIRECT | O_TMPFILE)) == 0)

/* `call` opens AT, which is `path`, or what a look at it has found, with flags_. One that would
 * truncate an empty file is made without O_TRUNC, by its path: the name is known to exist. Neither,
 * unless `may`. */
#define AT create_path(&create)
#define OPEN_IF(may, dirfd, path, flags, call)                                                     \
    int flags_ = (flags);                                                                          \
    enum elide elide_ = ELIDE_NO;                                                                  \
    int fd_;                                                                                       \
                                                                                                   \
    TIMED_OPEN(flags_, dirfd, path);                                                               \
    call_seen(STAT_calls_open);                                                                    \
    CALL_CUTS((flags_ & O_TRUNC) != 0, dirfd, path);                                               \
    CREATE_HOLD(create, path);                                                                     \
    if (unlikely((flags_ & O_TRUNC) != 0) && (may))                                                \
        elide_ = elide_open(dirfd, path, flags_);                                                  \
    if (elide_ == ELIDE_YES) {                                                                     \
        int saved_ = errno;                                                                        \
                                                                                                   \
        flags_ &= ~O_TRUNC;                                                                        \
        fd_ = call;                                                                                \
        if (fd_ >= 0 && elide_opened(fd_))                                                         \
            return TIMED_OPENED(call_opened_with(fd_, flags_));                                    \
        if (fd_ >= 0)                                                                              \
            rl_raw(SYS_close, fd_);                                                                \
        errno = saved_;                                                                            \
        flags_ |= O_TRUNC;                                                                         \
    }                                                                                              \
    CREATE_LOOK(create, may, dirfd, path, flags_);                                                 \
    do                                                                                             \
        fd_ = unlikely(create.interrupted) ? -1 : CALL_WITH_SPACE(call);                           \
    while (create_again(&create, fd_));                                                            \
    if (fd_ >= 0 && elide_ == ELIDE_LEARN)                                                         \
        elide_learn(fd_);                                                                          \
    return TIMED_OPENED(call_opened_with(fd_, flags_))
#define OPEN(dirfd, path, flags, call) OPEN_IF(true, dirfd, path, flags, call)

#define OPENS(name)                                                                                \
    static __attribute__((noinline)) int name##_more(const char *path, int flags, mode_t mode)     \
    {                                                                                              \
        OPEN(AT_FDCWD, path, flags, real.name(AT, flags_, mode));                                  \
    }                                                                                              \
    FREQUENT int name(const char *path, int flags, ...)                                            \
    {                                                                                              \
        if (likely(PLAIN(flags)) && state_idle(state_word()))                                      \
            return call_opened(real.name(path, flags));                                            \
        FETCH_MODE(mode, flags)                                                                    \
        return name##_more(path, flags, mode);                                                     \
    }
OPENS(open)
OPENS(open64)
OPENS(__open)
OPENS(__open64)

#define OPENS_AT(name)                                                                             \
    static __attribute__((noinline)) int name##_more(int dirfd, const char *path, int flags,       \
                                                     mode_t mode)                                  \
    {                                                                                              \
        OPEN(dirfd, path, flags, real.name(dirfd, AT, flags_, mode));                              \
    }                                                                                              \
    FREQUENT int name(int dirfd, const char *path, int flags, ...)                                 \
    {                                                                                              \
        if (likely(PLAIN(flags)) && state_idle(state_word()))                                      \
            return call_opened(real.name(dirfd, path, flags));                                     \
        FETCH_MODE(mode, flags)                                                                    \
        return name##_more(dirfd, path, flags, mode);                                              \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

/* Fortified: flags that are not constant, and no mode. The real ones abort if one was needed. */
#define OPENS_CHECKED(name)                                                                        \
    int name(const char *path, int flags)                                                          \
    {                                                                                              \
        OPEN(AT_FDCWD, path, flags, real.name(AT, flags_));                                        \
    }
OPENS_CHECKED(__open_2)
OPENS_CHECKED(__open64_2)

#define OPENS_AT_CHECKED(name)                                                                     \
    int name(int dirfd, const char *path, int flags)                                               \
    {                                                                                              \
        OPEN(dirfd, path, flags, real.name(dirfd, AT, flags_));                                    \
    }
OPENS_AT_CHECKED(__openat_2)
OPENS_AT_CHECKED(__openat64_2)

#define CREATES(name)                                                                              \
    int name(const char *path, mode_t mode)                                                        \
    {                                                                                              \
        OPEN(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC,                                         \
             (flags_ & O_TRUNC) != 0 ? real.name(AT, mode) : real.open(AT, flags_, mode));         \
    }
CREATES(creat)
CREATES(creat64)

/* With O_TRUNC left out, if flags says so: then *how is of the size that we know. A libc without
 * openat2 lets nobody call it but by our export: then the system call is right. */
static int openat2_as(int dirfd, const char *path, const void *how, size_t size, int flags)
{
    struct open_how own;

    if ((flags & O_TRUNC) == 0 && (call_how_flags(how, size) & O_TRUNC) != 0) {
        own = *(const struct open_how *)how;
        own.flags &= ~(uint64_t)O_TRUNC;
        how = &own;
    }
    return real.openat2 != NULL ? real.openat2(dirfd, path, how, size)
                                : (int)real.syscall(SYS_openat2, dirfd, path, how, size);
}

int call_openat2(int dirfd, const char *path, const void *how, size_t size)
{
    /* RESOLVE_* may find another file than a look would. */
    OPEN_IF(size == sizeof(struct open_how) && ((const struct open_how *)how)->resolve == 0, dirfd,
            path, call_how_flags(how, size), openat2_as(dirfd, AT, how, size, flags_));
}

int openat2(int dirfd, const char *path, const void *how, size_t size)
{
    return call_openat2(dirfd, path, how, size);
}

int open_by_handle_at(int mount_fd, struct file_handle *handle, int flags)
{
    TIMED_OPEN(flags, AT_FDCWD, NULL);
    call_seen(STAT_calls_open);
    return TIMED_OPENED(call_opened_with(real.open_by_handle_at(mount_fd, handle, flags), flags));
}

/* New files: there is nothing to cut. */
#define OPENS_NEW(name, params, args)                                                              \
    int name params                                                                                \
    {                                                                                              \
        TIMED_PATH(ACT_open, AT_FDCWD, NULL);                                                      \
        call_seen(STAT_calls_open);                                                                \
        return TIMED_OPENED(call_opened(real.name args));                                          \
    }
OPENS_NEW(mkstemp, (char *template), (template))
OPENS_NEW(mkstemp64, (char *template), (template))
OPENS_NEW(mkostemp, (char *template, int flags), (template, flags))
OPENS_NEW(mkostemp64, (char *template, int flags), (template, flags))
OPENS_NEW(mkstemps, (char *template, int suffix_len), (template, suffix_len))
OPENS_NEW(mkstemps64, (char *template, int suffix_len), (template, suffix_len))
OPENS_NEW(mkostemps, (char *template, int suffix_len, int flags), (template, suffix_len, flags))
OPENS_NEW(mkostemps64, (char *template, int suffix_len, int flags), (template, suffix_len, flags))

int memfd_create(const char *name, unsigned flags)
{
    call_seen(STAT_calls_open);
    return call_opened_with(real.memfd_create(name, flags), O_TMPFILE);
}

/* Its path is libc's secret, so a cut here passes no gate; what is queued for a file of that name
 * is settled with everything else. */
int shm_open(const char *name, int flags, mode_t mode)
{
    call_seen(STAT_calls_open);
    if ((flags & O_TRUNC) != 0)
        SETTLE_ALL(WHY_truncate);
    return call_opened(real.shm_open(name, flags, mode));
}
