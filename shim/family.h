/* SPDX-License-Identifier: MIT */
/*
 * family: one page shared by a process and everything forked from it.
 *
 * `share = private` is the operator's word that only this process and its forked family touch a
 * file. Within the family somebody has to notice that a second member does: a process that turns
 * deferral on for an inode enters it here, and every member that opens a file while the page has
 * entries looks it up. If it finds the new file's inode entered by another process it asks for the
 * entry to be ended, and waits until everything queued there is applied.
 *
 * Descriptors that existed at a fork are another matter: there both sides end deferral and must
 * find evidence again (evidence.h).
 *
 * The page is never replaced or unmapped. A member that is gone is noticed by its pid, which means
 * something within one pid namespace only: from another one it cannot be told, and is waited for
 * longer.
 */
#ifndef SHIM_FAMILY_H
#define SHIM_FAMILY_H

#include "state.h"

#define FAMILY_ENTRIES 64

struct family_entry {
    uint64_t dev, ino;
    uint64_t space; /* pid namespace of the owner */
    uint32_t pid;   /* 0 free */
    uint32_t asked; /* futex (shared): another member opened the file */
};

struct family {
    uint32_t busy;  /* entries in use, and one for family_watch */
    uint32_t moved; /* futex (shared): goes up when an entry is taken out */
    struct family_entry entry[FAMILY_ENTRIES];
};

extern struct family *family __attribute__((visibility("hidden")));

static inline bool family_busy(void)
{
    return family != NULL && rl_load_32(&family->busy) != 0;
}

/* From now on it is busy, in all its members: opens wait for keepers of programs that were killed
 * (keeper.h). */
void family_watch(void);

/* After every successful open while family_busy(). */
void family_opened(int fd);

/* Worker: enter and take out an inode of ours; false: no room, do not defer. */
bool family_enter(uint64_t dev, uint64_t ino);
void family_leave(uint64_t dev, uint64_t ino);

/* In a forked child: it may be in a pid namespace of its own. */
void family_forked(void);

/* At the end of the process and before exec, when everything is off: takes out what the worker has
 * not got round to. */
void family_leave_all(void);

/* Is this process gone, for who has waited for it so long? */
bool family_is_dead(uint32_t pid, uint64_t waited_ns);

/* Worker: has another member asked for one of our entries? Copies its identity. */
bool family_asked(uint64_t *dev, uint64_t *ino);

#endif
