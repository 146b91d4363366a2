/* SPDX-License-Identifier: MIT */
/*
 * init: the beginning and the end of the shim in a process, and what a fork means to it.
 */
#ifndef SHIM_INIT_H
#define SHIM_INIT_H

/* A child is about to get copies of our descriptors (spawn, vfork, clone, popen, …): everything
 * queued is applied and every file must be proven to be ours alone again. Leaves errno alone. */
void fork_announce(void);

/* The child exists (or never will). Nothing is turned on between the two. */
void fork_done(void);

/* For vfork, which has no "afterwards" of its own: announces, and keeps everything off for
 * 0.2 s, in which the child comes into being. */
void fork_announce_vfork(void);

/* First thing in a child made without pthread_atfork's handlers (_Fork, clone without CLONE_VM). */
void fork_child(void);

/* The process ends, by whatever way: settle for good, report. Idempotent. */
void process_ends(void);

#endif
