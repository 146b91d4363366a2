/* SPDX-License-Identifier: MIT */
/*
 * call: what the interposed functions (call_*.c) have in common.
 *
 * Rules for every one of them:
 *   - The first thing is a look at the state word, by one of the helpers here or in settle.h:
 * before the constructor has run it says WORD_COLD, and looking is what fills in `real`.
 *   - It chains to the real function of its own name, so that other preload libraries keep working,
 *     and it is the real function that fails: nothing is checked or refused here.
 *   - Return value and errno are those of the real call; what we do before and after leaves errno
 *     alone.
 *   - No lock is held around the real call, and what is held is let go by a clean-up handler: many
 *     of these are cancellation points.
 *   - A name gets exported because it stands in calls.def (the prototypes below); a wrapper that is
 *     missing there stays hidden, and tests/preload/exports.sh tells.
 */
#ifndef SHIM_CALL_H
#define SHIM_CALL_H

#include <errno.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <unistd.h>

#include "evict.h"
#include "execute.h"
#include "family.h"
#include "init.h"
#include "readable.h"
#include "real.h"
#include "timed.h"

#define CALL(ret, name, params) __attribute__((visibility("default"))) ret name params;
#include "calls.def"
#undef CALL

/* For wrappers that have nothing to settle. */
static inline void call_enter(void)
{
    uint64_t word = state_word();

    if (!state_idle(word))
        state_enter(word);
}

/* The same, and counts the call when somebody wants to know. */
static inline void call_seen(enum stat_id id)
{
    uint64_t word = state_word();

    if (!state_idle(word)) {
        state_enter(word);
        if ((state_word() & WORD_COUNT) != 0)
            stat_add(id, 1);
    }
}

/* For reads and writes: nothing is queued anywhere, the real call can be made as it is. It may have
 * to be counted, which is done on this way too and in one instruction (stat_add is four), so that
 * with `report` on a read is still under 30 instructions longer than without us. */
static inline bool call_direct(uint64_t word, uint32_t harmless)
{
    return likely(((uint32_t)word & ~(WORD_COUNT | harmless)) == 0);
}
#define CALL_HARMLESS_read  WORD_WINDOW
#define CALL_HARMLESS_write 0
static inline void call_counted(uint64_t word, enum stat_id id)
{
    if (unlikely((word & WORD_COUNT) != 0))
        __atomic_fetch_add(&stats->value[id], 1, __ATOMIC_RELAXED);
}

/* Settles what is queued for fd, and turns deferral off for its inode, if the process has any. */
static inline void call_end_fd(int fd, enum why why)
{
    state_doubt();
    WHEN_BUSY(settle_end_fd(fd, why));
}

/* fd belongs to stdio, or to somebody else, from now on. */
static inline void call_mark(int fd, uint32_t flag, enum why why)
{
    if ((flag & FILE_PASSED) != 0)
        rl_store_32(&proc.passed, 1); /* from now on nothing is taken to be ours unseen */
    file_mark(fd, flag);
    call_end_fd(fd, why);
}

/* Descriptors 0 to 2 are written to from inside libc, by printf and perror. */
#define CALL_STDIO_LAST 2

/* What every successful open ends with. Returns fd. */
static inline int call_opened(int fd)
{
    if (fd >= 0) {
        file_opened(fd);
        if (unlikely(fd <= CALL_STDIO_LAST))
            call_mark(fd, FILE_STREAM, WHY_stream);
        if (unlikely(family_busy()))
            family_opened(fd);
    }
    return fd;
}

/* The same where the flags are known. A file that never had a name is known from its open on to be
 * nobody else's. */
static inline int call_opened_with(int fd, int flags)
{
    fd = call_opened(fd);
    if (unlikely((flags & O_DIRECT) != 0))
        state_direct();
    if (fd >= 0 && unlikely((flags & O_TMPFILE) == O_TMPFILE)) {
        file_mark(fd, FILE_NAMELESS);
        evict_nameless();
    }
    return fd;
}

/* The flags of an openat2, 0 if they cannot be read. */
static inline int call_how_flags(const void *how, size_t size)
{
    return size >= sizeof(struct open_how) && readable(how, sizeof(struct open_how))
               ? (int)((const struct open_how *)how)->flags
               : 0;
}

/* What every successful dup ends with. Returns to. */
static inline int call_duplicated(int from, int to)
{
    if (to >= 0) {
        file_duplicated(from, to);
        if (unlikely(to <= CALL_STDIO_LAST))
            call_mark(to, FILE_STREAM, WHY_stream);
    }
    return to;
}

/* call_open.c: openat2, also by number. */
int call_openat2(int dirfd, const char *path, const void *how, size_t size);

/* call_copy.c: an ioctl by number may ask for space. */
void call_ioctl_space(unsigned long request);

/* `call` returns -1 where the file system is full: made once more, when files that were deleted
 * before have been freed. */
#define CALL_WITH_SPACE(call)                                                                      \
    ({                                                                                             \
        int errno_before_ = errno;                                                                 \
        uint64_t word_before_ = state_word();                                                      \
        int result_ = (call);                                                                      \
        if (unlikely(result_ < 0) && unlikely((word_before_ & WORD_HELD) != 0) &&                  \
            (errno == ENOSPC || errno == EDQUOT)) {                                                \
            settle_all(WHY_space);                                                                 \
            result_ = (call);                                                                      \
            if (result_ >= 0)                                                                      \
                errno = errno_before_;                                                             \
        }                                                                                          \
        result_;                                                                                   \
    })

/* A descriptor that came from another process. Returns fd. */
static inline int call_received(int fd)
{
    if (fd >= 0) {
        state_direct();
        file_forget(fd);
        call_mark(fd, FILE_PASSED, WHY_pass);
    }
    return fd;
}

/* An open or truncate that cuts the file at `path` makes the kernel drain direct I/O: held until
 * the end of the block, also when the thread is cancelled in the open. */
#define CALL_CUTS(cuts, dirfd, path)                                                               \
    struct drain_hold hold_ __attribute__((cleanup(execute_release))) = {.inode = NULL};           \
    if (unlikely(cuts) && state_works())                                                           \
    execute_hold_path(dirfd, path, &hold_)

/* A call that starts another program in a child: announced before, and over at the end of the
 * block, also when the thread is cancelled (system and popen are cancellation points). */
static inline bool call_forks(void)
{
    call_enter();
    fork_announce();
    if (evict_held())
        evict_drain(WHY_fork);
    return true;
}
static inline void call_forks_over(const bool *announced)
{
    if (*announced)
        fork_done();
}
#define CALL_FORKS bool forks_ __attribute__((cleanup(call_forks_over), unused)) = call_forks()

/* Hides from the compiler that a header calls this argument never null: callers pass what they
 * like, and the real call has an answer for it. */
static inline void *call_any(const void *p)
{
    __asm__("" : "+r"(p));
    return (void *)(uintptr_t)p;
}

#endif
