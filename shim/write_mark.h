/* SPDX-License-Identifier: MIT */
/*
 * write_mark: announcements of changes under way on a file that has deferral on.
 *
 * Writes under way are announced before they look at the queue; a punch looks at them after it was
 * queued, and if it meets one it is applied before it returns. Otherwise a punch that was queued
 * while a write was under way could be applied after the write landed, and destroy it, although
 * somebody saw in between (by the file's size, or by other bytes of the same write) that the punch
 * came first.
 *
 * A mark that is never taken back (siglongjmp out of a handler) costs speed only: punches that meet
 * it are applied inline.
 */
#ifndef SHIM_WRITE_MARK_H
#define SHIM_WRITE_MARK_H

#include "file.h"

struct write_mark {
    struct file_state *fs; /* NULL: nothing to take back */
    uint64_t packed;
    int slot; /* -1: anywhere in the file */
};

/* range NULL: not known where. */
void write_mark_set(struct write_mark *mark, struct file_state *fs, const struct rl_span *range);
void write_mark_clear(struct write_mark *mark);

/* Is a write announced that meets [start, end)? */
bool write_mark_meets(const struct file_state *fs, uint64_t start, uint64_t end);

/* A mark that is also taken back when a cancelled thread unwinds through the real call. */
#define WRITE_MARK(name)                                                                           \
    struct write_mark name __attribute__((cleanup(write_mark_clear))) = {.fs = NULL}

#endif
