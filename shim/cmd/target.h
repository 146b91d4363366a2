/* SPDX-License-Identifier: MIT */
/*
 * target: another process with the library in it, by its memory (rlshim off, on, set, reload).
 *
 * Everything is read from the process's memory, not from the library's file: that may have been
 * replaced, deleted, or lie in another mount namespace. The memory is not trusted to be well
 * formed.
 */
#ifndef SHIM_CMD_TARGET_H
#define SHIM_CMD_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct target {
    const char *cmd; /* for messages */
    unsigned pid;
    int mem;
    uint64_t base;          /* of librlshim.so */
    uint64_t control, done; /* addresses */
    uint64_t word;          /* address of the state word */
    uint64_t order;         /* address of struct rl_order, 0: it has none */
};

/* cmd and pid are set, mem is -1. An exit status, after a line if it is not EXIT_WORKED. Close mem
 * afterwards. */
int target_find(struct target *t);

bool target_get(const struct target *t, uint64_t address, void *buf, size_t n);
bool target_put(const struct target *t, uint64_t address, const void *buf, size_t n);
bool target_put_32(const struct target *t, uint64_t address, uint32_t value);

/* One line on why the process may not be changed. Returns EXIT_FAILED. */
int target_refused(const struct target *t, int error);

/* After rl_control was set to 1: until everything is applied, up to 5 s. */
int target_wait_quiet(const struct target *t, bool *ended);

#endif
