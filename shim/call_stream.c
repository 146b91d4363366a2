/* SPDX-License-Identifier: MIT */
/*
 * call_stream: stdio and directory streams.
 *
 * libc reads and writes a stream by calls that nobody can interpose. So nothing is ever queued for
 * a file while a stream is open on it: the descriptor is marked, and what was queued is applied.
 */
#include <string.h>

#include "call.h"
#include "create.h"
#include "policy_truncate.h"
#include "window.h"

/* fileno, which is allowed to set errno. */
static int stream_fd(FILE *stream)
{
    int saved = errno;
    int fd = fileno(stream);

    errno = saved;
    return fd;
}

static FILE *stream_opened(FILE *stream)
{
    int fd;

    if (stream != NULL && (fd = stream_fd(stream)) >= 0) {
        call_opened(fd);
        call_mark(fd, FILE_STREAM, WHY_stream);
    }
    return stream;
}

/* An empty file is opened without truncation, as in call_open.c. NULL: not this way. */
static FILE *stream_elided(const char *path, const char *mode, enum elide *elide)
{
    int flags = policy_cut_mode(mode);
    FILE *stream = NULL;
    int saved = errno;
    int fd;

    *elide = flags >= 0 ? elide_open(AT_FDCWD, path, flags) : ELIDE_NO;
    if (*elide != ELIDE_YES)
        return NULL;
    fd = real.open(path, flags & ~O_TRUNC, 0666);
    if (fd >= 0 && elide_opened(fd))
        stream = real.fdopen(fd, mode);
    if (stream == NULL && fd >= 0)
        rl_raw(SYS_close, fd);
    if (stream == NULL)
        errno = saved;
    return stream;
}

/* What a mode has to do with O_CREAT. Not for freopen: its failures close the stream, so it cannot
 * be tried twice. */
static int stream_flags(const char *mode)
{
    if ((mode[0] != 'w' && mode[0] != 'a') || strchr(mode, 'x') != NULL)
        return 0;
    return O_WRONLY | O_CREAT | (mode[0] == 'w' ? O_TRUNC : 0);
}

/* Another file than was asked for, by a descriptor that changed under us, goes again. */
static bool stream_again(struct create_hold *create, FILE *stream)
{
    if (create->place == NULL || !create_more(create, stream != NULL ? stream_fd(stream) : -1))
        return false;
    if (stream != NULL)
        real.fclose(stream);
    return true;
}

#define FOPENS(name)                                                                               \
    FILE *name(const char *path, const char *mode)                                                 \
    {                                                                                              \
        TIMED_PATH(mode[0] == 'w' ? ACT_open_cut : ACT_open, AT_FDCWD, path);                      \
        FILE *stream;                                                                              \
                                                                                                   \
        call_seen(STAT_calls_open);                                                                \
        CALL_CUTS(mode[0] == 'w', AT_FDCWD, path);                                                 \
        enum elide elide = ELIDE_NO;                                                               \
        CREATE_HOLD(create, path);                                                                 \
        stream = mode[0] == 'w' ? stream_elided(path, mode, &elide) : NULL;                        \
        if (stream != NULL)                                                                        \
            return stream_opened(stream);                                                          \
        CREATE_LOOK(create, true, AT_FDCWD, path, stream_flags(mode));                             \
        do                                                                                         \
            stream = create.interrupted ? NULL : real.name(create_path(&create), mode);            \
        while (stream_again(&create, stream));                                                     \
        if (stream != NULL && elide == ELIDE_LEARN)                                                \
            elide_learn(stream_fd(stream));                                                        \
        return stream_opened(stream);                                                              \
    }
FOPENS(fopen)
FOPENS(fopen64)
FOPENS(_IO_fopen)

/* The new file may keep the old number (libc moves it there), or not. */
#define FREOPENS(name)                                                                             \
    FILE *name(const char *path, const char *mode, FILE *stream)                                   \
    {                                                                                              \
        EVICT_HOLD(hold);                                                                          \
        int old = stream_fd(stream);                                                               \
                                                                                                   \
        call_seen(STAT_calls_open);                                                                \
        CALL_CUTS(mode[0] == 'w' && path != NULL, AT_FDCWD, path);                                 \
        WHEN_BUSY(settle_end_fd(old, WHY_close));                                                  \
        if (unlikely(rl_load_32(&proc.nameless) != 0))                                             \
            evict_begin_close(old, &hold);                                                         \
        file_forget(old);                                                                          \
        stream = real.name(path, mode, stream);                                                    \
        if (unlikely(hold.slot != EVICT_NOTHING))                                                  \
            evict_end(&hold, true);                                                                \
        return stream_opened(stream);                                                              \
    }
FREOPENS(freopen)
FREOPENS(freopen64)

#define TMPFILES(name)                                                                             \
    FILE *name(void)                                                                               \
    {                                                                                              \
        evict_nameless();                                                                          \
        call_seen(STAT_calls_open);                                                                \
        return stream_opened(real.name());                                                         \
    }
TMPFILES(tmpfile)
TMPFILES(tmpfile64)

/* The descriptor stays what it was, only used by stdio from now on. */
#define FDOPENS(name)                                                                              \
    FILE *name(int fd, const char *mode)                                                           \
    {                                                                                              \
        FILE *stream;                                                                              \
                                                                                                   \
        call_enter();                                                                              \
        stream = real.name(fd, mode);                                                              \
        if (stream != NULL)                                                                        \
            call_mark(fd, FILE_STREAM, WHY_stream);                                                \
        return stream;                                                                             \
    }
FDOPENS(fdopen)
FDOPENS(_IO_fdopen)

#define FCLOSES(name)                                                                              \
    int name(FILE *stream)                                                                         \
    {                                                                                              \
        int fd = stream_fd(stream);                                                                \
        TIMED_FD(ACT_close, fd);                                                                   \
        EVICT_HOLD(hold);                                                                          \
        int r;                                                                                     \
                                                                                                   \
        WHEN_BUSY(settle_end_fd(fd, WHY_close));                                                   \
        if (unlikely(rl_load_32(&proc.nameless) != 0))                                             \
            evict_begin_close(fd, &hold);                                                          \
        file_forget(fd);                                                                           \
        r = real.name(stream);                                                                     \
        if (unlikely(hold.slot != EVICT_NOTHING))                                                  \
            evict_end(&hold, true);                                                                \
        return r;                                                                                  \
    }
FCLOSES(fclose)
FCLOSES(_IO_fclose)

/* In spite of its name it writes everything out and leaves the descriptors open. */
int fcloseall(void)
{
    WHEN_BUSY(settle_end_all(WHY_close));
    return real.fcloseall();
}

#define POPENS(name)                                                                               \
    FILE *name(const char *command, const char *type)                                              \
    {                                                                                              \
        CALL_FORKS;                                                                                \
        FILE *stream;                                                                              \
                                                                                                   \
        stream = real.name(command, type);                                                         \
        if (stream != NULL)                                                                        \
            file_forget(stream_fd(stream));                                                        \
        return stream;                                                                             \
    }
POPENS(popen)
POPENS(_IO_popen)

int pclose(FILE *stream)
{
    call_enter();
    file_forget(stream_fd(stream));
    return real.pclose(stream);
}

/* Directories: nothing to settle, but their numbers were other files' before, or will be. */
static DIR *dir_opened(DIR *dir)
{
    if (dir != NULL)
        file_forget(dirfd(dir));
    return dir;
}

DIR *opendir(const char *path)
{
    call_enter();
    return dir_opened(real.opendir(path));
}

DIR *fdopendir(int fd)
{
    call_enter();
    return dir_opened(real.fdopendir(fd));
}

int closedir(DIR *dir)
{
    call_enter();
    if (call_any(dir) != NULL)
        file_forget(dirfd(dir));
    return real.closedir(dir);
}

/* What goes into a stream, for writeback_window: libc writes it out by calls that pass us by, so
 * the calls that fill the buffer tell how much there is, and the kernel how far the file has come
 * (window.c asks for its position). What putc puts in shows at the next of these. */
static inline void stream_took(FILE *stream, size_t n)
{
    if (window_wanted(state_word()) && n > 0) {
        int fd = stream_fd(stream);

        if (fd >= 0)
            window_wrote(fd, -1, n);
    }
}

#define FWRITES(name)                                                                              \
    size_t name(const void *from, size_t size, size_t n, FILE *stream)                             \
    {                                                                                              \
        call_enter();                                                                              \
        n = real.name(from, size, n, stream);                                                      \
        stream_took(stream, size *n);                                                              \
        return n;                                                                                  \
    }
FWRITES(fwrite)
FWRITES(fwrite_unlocked)
FWRITES(_IO_fwrite)

#define FPUTSES(name)                                                                              \
    int name(const char *text, FILE *stream)                                                       \
    {                                                                                              \
        int r;                                                                                     \
                                                                                                   \
        call_enter();                                                                              \
        r = real.name(text, stream);                                                               \
        if (r >= 0 && window_wanted(state_word()))                                                 \
            stream_took(stream, strlen(text));                                                     \
        return r;                                                                                  \
    }
FPUTSES(fputs)
FPUTSES(fputs_unlocked)
FPUTSES(_IO_fputs)

#define VFPRINTFS(name)                                                                            \
    int name(FILE *stream, const char *format, va_list args)                                       \
    {                                                                                              \
        int n;                                                                                     \
                                                                                                   \
        call_enter();                                                                              \
        n = real.name(stream, format, args);                                                       \
        stream_took(stream, n > 0 ? (size_t)n : 0);                                                \
        return n;                                                                                  \
    }
VFPRINTFS(vfprintf)
VFPRINTFS(_IO_vfprintf)

int __vfprintf_chk(FILE *stream, int flag, const char *format, va_list args)
{
    int n;

    call_enter();
    n = real.__vfprintf_chk(stream, flag, format, args);
    stream_took(stream, n > 0 ? (size_t)n : 0);
    return n;
}

/* As below. */
#define FPRINTFS(name)                                                                             \
    int name(FILE *stream, const char *format, ...)                                                \
    {                                                                                              \
        va_list args;                                                                              \
        int n;                                                                                     \
                                                                                                   \
        va_start(args, format);                                                                    \
        n = vfprintf(stream, format, args);                                                        \
        va_end(args);                                                                              \
        return n;                                                                                  \
    }
FPRINTFS(fprintf)
FPRINTFS(_IO_fprintf)

int __fprintf_chk(FILE *stream, int flag, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = __vfprintf_chk(stream, flag, format, args);
    va_end(args);
    return n;
}

/* printf to a descriptor: written at the file position by libc itself, so the queue has to be empty
 * before, and nothing may be queued meanwhile. */
#define DPRINTFS(call)                                                                             \
    INFLIGHT(leg, fd);                                                                             \
    struct announcement mine __attribute__((cleanup(execute_beside_ends))) = {.fs = NULL};         \
                                                                                                   \
    WHEN_BUSY(execute_beside_begins(fd, WHY_position, &mine));                                     \
    return descriptor_took(fd, call)

static inline int descriptor_took(int fd, int n)
{
    if (window_wanted(state_word()) && n > 0)
        window_wrote(fd, -1, (size_t)n);
    return n;
}

int vdprintf(int fd, const char *format, va_list args)
{
    DPRINTFS(real.vdprintf(fd, format, args));
}

int __vdprintf_chk(int fd, int flag, const char *format, va_list args)
{
    DPRINTFS(real.__vdprintf_chk(fd, flag, format, args));
}

/* A variable argument list cannot be forwarded to a function of the same name, only to its v. */
int dprintf(int fd, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vdprintf(fd, format, args);
    va_end(args);
    return n;
}

int __dprintf_chk(int fd, int flag, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = __vdprintf_chk(fd, flag, format, args);
    va_end(args);
    return n;
}
