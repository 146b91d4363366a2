/* SPDX-License-Identifier: MIT */
/*
 * pace: how long the pieces of direct writes are, when they are made, and whom they hold up.
 *
 * What it goes by is the rate that a file really gets, in windows of a fifth of a second: the best
 * of late says what the device (or a limit on it) allows. A rate by piece would not do: where a
 * limit lets some pieces through at once and stops others for long it is far above that, and where
 * calls wait for locks and processors it is far below, and shrinks with the pieces.
 * Pieces are sized by time. Now and then, and when a window stays behind the best one, twice as
 * long ones are tried, and kept if they go faster: then they were too short for what each costs.
 *
 * A new file begins with what its device gave others. All of it is guidance: updates that are torn
 * or lost between threads cost a piece of the wrong size.
 */
#ifndef SHIM_PACE_H
#define SHIM_PACE_H

#include "file.h"
#include "inflight.h"

/* Bytes a second; 0 not known yet. */
uint64_t pace_rate(const struct rl_inode *inode);

/* A piece of this length has been written. */
void pace_passed(const struct rl_inode *inode, size_t bytes, uint64_t began_ns, uint64_t ended_ns);

/* Looks who is inside a call on the inode. True if somebody is, or was in the last 100 ms. */
bool pace_crowded(const struct rl_inode *inode, uint64_t now_ns, struct inflight_view *view);

/*
 * A volume with a byte limit (a cgroup, a cloud disk) grants a slice's worth of bytes at once and
 * then nothing until the next slice, a tenth of a second in the kernel's own throttle. A writer
 * that spends its grant at once waits for the rest of the slice inside the call, with the inode
 * locked. So beside others, where the call holds the lock, pieces are spread over time: at the rate
 * of late and a twentieth more, so that nothing is lost; as long as that goes faster, by more and
 * more, so that without a limit the next piece is soon always due already. True if it waited.
 */
bool pace_wait(const struct rl_inode *inode, size_t bytes);

/*
 * Lets the calls in view go first, for at most most_ns. An extending direct write on ext4 holds the
 * inode lock exclusively for all of its I/O, and the next piece takes it again before a waiting
 * reader has woken up: readers would wait for several pieces (the kernel hands the lock over only
 * after 4 ms).
 */
void pace_give_way(const struct inflight_view *view, uint64_t most_ns);

#endif
