/* SPDX-License-Identifier: MIT */
/*
 * keeper: a small process that finishes the queued punches of named files when the program is
 * killed.
 *
 * An unlinked file dies with its program; a named one is opened again, and a hole that the program
 * was told it had must be there. So no punch of a named file is queued before a keeper has the
 * file; where none can be had its punches stay inline (punch_no_keeper). `keeper = off` queues
 * without one.
 *
 * What it is: a static program of a few pages (keeper/image.c, embedded in the library, run from a
 * memfd), a session of its own in /, all signals blocked, with nothing of the program but: a
 * socket to the worker, a pidfd of the program, the shared memory that the queue is in
 * (a System V segment, arena.shm), and a descriptor for each file that is on. Those are opened anew
 * (/proc/thread-self/fd/N) rather than copied: a copy would keep flock and OFD locks of a killed
 * program. It has a file only while it is on: dropped, and the drop answered, before the close (or
 * whatever ended it) returns to the program, so that umount, leases and the free space after
 * unlink are as without.
 *
 * Whose child it is: nobody's that could be surprised. The worker makes it through a child in
 * between, which shares all memory, ends at once and is reaped by the worker: the keeper belongs to
 * the machine's init or the nearest subreaper. Not in a program that is one of these itself, or
 * whose children go to another pid namespace: no keeper there. A wait of the program with __WALL or
 * __WCLONE could meet the child in between for its millisecond: call_wait.c keeps them apart.
 *
 * When the program is dead (pidfd), every thread of it has left the kernel: the keeper applies what
 * lockmgr/leftover.h gives for each of its files, and leaves. A program whose memory is gone though
 * its process lives (an exec that went unseen) counts as dead. When the worker leaves, nothing is
 * on, and the keeper leaves too.
 *
 * Until it is done, whoever opens one of these files with rlshim (share = private somewhere in its
 * configuration, same user) waits in the open: a System V semaphore set by device and inode says
 * so. Semaphore 0 is the program's, 1 the keeper's, both undone by the kernel at their ends, and
 * the program's before its files are closed and its locks are free: whoever takes over sees {0, 1},
 * and later nothing. It costs an open one failed semget, and no descriptor.
 *
 * All but keeper_opened, keeper_apart and keeper_forked run on the worker thread.
 */
#ifndef SHIM_KEEPER_H
#define SHIM_KEEPER_H

#include "../lockmgr/inode_table.h"

/* A file description of its own for the file behind fd, or -errno: what the worker and the keeper
 * hold of a file with a name. A copy of the program's would share its flock and OFD locks, and live
 * on for milliseconds after a kill in the requests of a dying ring. */
int keeper_open_again(int fd);

/* Puts this file under the keeper's care, starting one if there is none; fd: from the above,
 * number: of the activation to come. The slot is the caller's. False: do not defer. */
bool keeper_take(int slot, const struct rl_inode *inode, uint32_t gen, uint32_t number,
                 uint64_t call_max_bytes, int fd);

/* True unless the keeper that had this slot's file is gone. */
bool keeper_has(int slot);

/* The file of this slot is off. Nothing if the keeper never had it. */
void keeper_drop(int slot);

/* The worker leaves: no file is on. */
void keeper_leave(void);

/* In a forked child: there is none. */
void keeper_forked(void);

/* Program's threads: waits until no keeper of a dead program has the file. */
void keeper_opened(uint64_t dev, uint64_t ino);

/* Program's threads, before and after a wait for children of any kind: sleeps while a child in
 * between is about, and returns how many there have been; was it this one, which the caller has just
 * reaped, or may it be why he was told (0) to come back later? */
uint32_t keeper_apart(void);
bool keeper_between(int pid, uint32_t births_before);

#endif
