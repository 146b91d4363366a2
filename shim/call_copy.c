/* SPDX-License-Identifier: MIT */
/*
 * call_copy: calls that move or show file data inside the kernel: copies between descriptors, and
 * those ioctls that look at extents or change them.
 *
 * Both files are settled before, the source so that its holes are holes, the target so that no
 * punch comes after the copy; and nothing is queued for either meanwhile.
 */
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/loop.h>

#include "call.h"

#define COPY(in, out, call)                                                                        \
    TIMED_FD(ACT_copy, out);                                                                       \
    INFLIGHT(from_leg, in);                                                                        \
    INFLIGHT(to_leg, out);                                                                         \
    struct announcement from __attribute__((cleanup(execute_beside_ends))) = {.fs = NULL};         \
    struct announcement to __attribute__((cleanup(execute_beside_ends))) = {.fs = NULL};           \
                                                                                                   \
    WHEN_BUSY(execute_beside_begins(in, WHY_copy, &from);                                          \
              execute_beside_begins(out, WHY_copy, &to));                                          \
    return call

ssize_t copy_file_range(int in, off_t *in_off, int out, off_t *out_off, size_t n_bytes,
                        unsigned flags)
{
    COPY(in, out, real.copy_file_range(in, in_off, out, out_off, n_bytes, flags));
}

ssize_t sendfile(int out, int in, off_t *off, size_t n_bytes)
{
    COPY(in, out, real.sendfile(out, in, off, n_bytes));
}

ssize_t sendfile64(int out, int in, off_t *off, size_t n_bytes)
{
    COPY(in, out, real.sendfile64(out, in, off, n_bytes));
}

ssize_t splice(int in, off_t *in_off, int out, off_t *out_off, size_t n_bytes, unsigned flags)
{
    COPY(in, out, real.splice(in, in_off, out, out_off, n_bytes, flags));
}

/* --- ioctl --- */

/* A request's letter and number: what remains when direction and size, which differ between
 * versions of a structure, are left out. */
#define KEY(letter, number) ((letter) << 8 | (number))
#define KEY_OF(request)     ((request)&0xffff)

/* Those of file systems, which no installed header has. */
#define EXT4_MIGRATE       KEY('f', 9)
#define EXT4_ALLOC_DA_BLKS KEY('f', 12)
#define EXT4_MOVE_EXT      KEY('f', 15)
#define EXT4_RESIZE        KEY('f', 16)
#define EXT4_SWAP_BOOT     KEY('f', 17)
#define FS_ENABLE_VERITY   KEY('f', 133)
#define XFS_ALLOCSP        KEY('X', 10)
#define XFS_FREESP         KEY('X', 11)
#define XFS_ALLOCSP64      KEY('X', 36)
#define XFS_FREESP64       KEY('X', 37)
#define XFS_GETBMAP        KEY('X', 38)
#define XFS_RESVSP         KEY('X', 40)
#define XFS_UNRESVSP       KEY('X', 41)
#define XFS_RESVSP64       KEY('X', 42)
#define XFS_UNRESVSP64     KEY('X', 43)
#define XFS_GETBMAPA       KEY('X', 44)
#define XFS_GETBMAPX       KEY('X', 56)
#define XFS_ZERO_RANGE     KEY('X', 57)
#define FS_GETFSMAP        KEY('X', 59)
#define XFS_SWAPEXT        KEY('X', 109)
#define XFS_FSCOUNTS       KEY('X', 113)
#define XFS_EXCHANGE_RANGE KEY('X', 129)
#define XFS_COMMIT_RANGE   KEY('X', 131)
#define BTRFS_LETTER       0x94 /* clones and dedupe (any file system), snapshots, balance… */
#define BTRFS_DEFRAG       KEY(BTRFS_LETTER, 2)
#define BTRFS_DEFRAG_RANGE KEY(BTRFS_LETTER, 16)

enum touch {
    TOUCH_NOT,  /* no business of ours */
    TOUCH_END,  /* may make the kernel refuse the next punch of this file */
    TOUCH_FILE, /* shows or changes extents of this file */
    TOUCH_ALL,  /* names more files */
    TOUCH_SPACE /* the file system as a whole: what was deleted is to be free, too */
};

static enum touch touch_of(unsigned long request)
{
    switch (KEY_OF(request)) {
    case KEY_OF(FS_IOC_SETFLAGS):
    case KEY_OF(FS_IOC_FSSETXATTR):
    case FS_ENABLE_VERITY:
        return TOUCH_END;
    case KEY_OF(FIBMAP):
    case KEY_OF(FS_IOC_FIEMAP):
    case KEY_OF(FS_IOC_FSGETXATTR): /* tells the number of extents */
    case EXT4_MIGRATE:
    case EXT4_ALLOC_DA_BLKS:
    case XFS_ALLOCSP:
    case XFS_FREESP:
    case XFS_ALLOCSP64:
    case XFS_FREESP64:
    case XFS_GETBMAP:
    case XFS_GETBMAPA:
    case XFS_GETBMAPX:
    case XFS_RESVSP:
    case XFS_UNRESVSP:
    case XFS_RESVSP64:
    case XFS_UNRESVSP64:
    case XFS_ZERO_RANGE:
        return TOUCH_FILE;
    case KEY_OF(FIFREEZE): /* nothing could be freed before the thaw */
    case KEY_OF(FITRIM):
    case FS_GETFSMAP:
    case XFS_FSCOUNTS:
    case EXT4_RESIZE:
        return TOUCH_SPACE;
    case KEY_OF(FICLONE):
    case KEY_OF(FICLONERANGE):
    case KEY_OF(FIDEDUPERANGE):
    case BTRFS_DEFRAG:
    case BTRFS_DEFRAG_RANGE:
    case EXT4_MOVE_EXT:
    case EXT4_SWAP_BOOT:
    case XFS_SWAPEXT:
    case XFS_EXCHANGE_RANGE:
    case XFS_COMMIT_RANGE:
        return TOUCH_ALL;
    default:
        return _IOC_TYPE(request) == BTRFS_LETTER ? TOUCH_SPACE : TOUCH_NOT;
    }
}

void call_ioctl_space(unsigned long request)
{
    if (touch_of(request) == TOUCH_SPACE)
        evict_drain(WHY_ioctl);
}

static void touch_settle(int fd, enum touch touch)
{
    if (touch == TOUCH_END)
        call_end_fd(fd, WHY_ioctl);
    else if (touch == TOUCH_FILE)
        settle_fd(fd, WHY_ioctl);
    else if (touch >= TOUCH_ALL)
        settle_all(WHY_ioctl);
}

/* Before the call. One that names several files ends deferral for all: those cannot be announced.
 */
static void touch_begins(int fd, enum touch touch, struct announcement *mine)
{
    if (touch == TOUCH_END)
        call_end_fd(fd, WHY_ioctl);
    else if (touch == TOUCH_FILE)
        execute_beside_begins(fd, WHY_ioctl, mine);
    else if (touch >= TOUCH_ALL)
        settle_end_all(WHY_ioctl);
    if (touch == TOUCH_SPACE)
        evict_drain(WHY_ioctl);
}

/* A loop device writes to its file from a kernel thread. Not only when busy: the mark has to be
 * there before anybody looks for evidence. */
static void loop_takes(unsigned long request, const void *arg)
{
    int fd = (int)(intptr_t)arg;

    if (request == LOOP_CONFIGURE) {
        if (!readable(arg, sizeof(struct loop_config)))
            return;
        fd = (int)((const struct loop_config *)arg)->fd;
    }
    if (request == LOOP_SET_FD || request == LOOP_CHANGE_FD || request == LOOP_CONFIGURE)
        settle_never_fd(fd, WHY_pass, STAT_punch_no_foreign);
}

/* Whatever follows is one word, if anything: libc's own takes it out the same way. */
int ioctl(int fd, unsigned long request, ...)
{
    TIMED_FD(ACT_copy, fd);
    enum touch touch;
    va_list args;
    void *arg;
    int r;

    va_start(args, request);
    arg = va_arg(args, void *);
    va_end(args);

    if (unlikely(_IOC_TYPE(request) == _IOC_TYPE(LOOP_SET_FD))) {
        call_enter();
        loop_takes(request, arg);
    }
    touch = touch_of(request);
    if (likely(touch == TOUCH_NOT)) {
        call_enter();
        return real.ioctl(fd, request, arg);
    }

    /* Which other files these name is not looked at: none is turned on meanwhile. */
    struct leg *const leg __attribute__((cleanup(inflight_end), unused)) =
        touch >= TOUCH_ALL ? inflight_begin_anywhere() : inflight_begin(fd);
    struct announcement mine __attribute__((cleanup(execute_beside_ends))) = {.fs = NULL};

    WHEN_BUSY(touch_begins(fd, touch, &mine));
    r = real.ioctl(fd, request, arg);
    WHEN_BUSY(touch_settle(fd, touch));
    return r;
}
