/* SPDX-License-Identifier: MIT */
/*
 * window: buffered writers start the writeback of what they wrote, a window at a time, and wait for
 * the window before (`writeback_window`, `writeback_budget`). Called after a write has succeeded,
 * by the writer's own thread and on its own descriptor.
 *
 *   - Nothing here changes what the write returned, errno included; no function is a cancellation
 *     point. Contents are not touched, only when they go to the disk.
 *   - Only sync_file_range(SYNC_FILE_RANGE_WRITE) is used to start. It neither waits nor looks at
 *     errors of earlier writeback: those stay with every open file description, and the program's
 *     next fsync there reports them.
 *   - Its waiting flags would take the description's error away. So who waits asks the kernel how
 *     many pages are under writeback (cachestat, Linux 6.5), which has no side effect. Where that
 *     is missing the wait is made with the flag, and the error it takes is kept for the next fsync
 *     on that descriptor (window_synced). An error of the start itself is kept for the next fsync
 *     of the file on any descriptor, whose own start would have met it.
 *   - One thread a file acts at a time; others whose window is full as well wait for it. It may
 *     disappear (longjmp, a cancelled thread): after WINDOW_PATIENCE_NS without a sign of life it
 *     is passed over. A handler above it does not wait for itself.
 *
 * Why not the worker: its reference to the open file would outlive the program's close (flock, the
 * space of a deleted file), and its processor time is that of the writer's own later fsync. The
 * call takes 0.1-0.3 ms a MiB, and it is where a device with a full queue stops the writer, as it
 * should.
 */
#ifndef SHIM_WINDOW_H
#define SHIM_WINDOW_H

#include "file.h"

#define WINDOW_PATIENCE_NS 2000000000u

/* The state word tells whether any file of this program may have a window. */
static inline bool window_wanted(uint64_t word)
{
    return unlikely((word & WORD_WINDOW) != 0);
}

/* Does the configuration in use give any file one; and the state word what it says by now, after a
 * change of settings. */
bool window_configured(void);
void window_reconfigured(void);

/* n bytes were written through fd. off: where they begin; below 0: at the file position, or at the
 * end of the file. */
void window_wrote(int fd, int64_t off, size_t n);

/* Around a sync: what was dirty before a successful one is clean, and errors that were taken by the
 * shim are told. window_synced returns r, or -1 with errno. */
struct window_sync {
    struct file_state *fs; /* NULL: nothing to do */
    uint64_t bytes;
};
void window_syncs(int fd, struct window_sync *s);
int window_synced(int fd, const struct window_sync *s, int r);

/* The entry is about to become another inode's. */
void window_reset(struct file_state *fs);

/* In a forked child: nothing is dirty that it knows of. */
void window_forked(void);

#endif
