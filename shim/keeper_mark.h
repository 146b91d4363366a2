/* SPDX-License-Identifier: MIT */
/* keeper_mark: the semaphore set that says that a file is under a keeper's care; see keeper.h. */
#ifndef SHIM_KEEPER_MARK_H
#define SHIM_KEEPER_MARK_H

#include <stdbool.h>
#include <stdint.h>

/* The set's id, its semaphore 0 raised for this process; or -errno: -EAGAIN another program or
 * keeper has the file. Worker. */
int keeper_mark_make(uint64_t dev, uint64_t ino);
void keeper_mark_remove(int id);

/* Sleeps while the set says that a program is dead and its keeper at work. */
void keeper_mark_wait(uint64_t dev, uint64_t ino);

#endif
