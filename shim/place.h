/* SPDX-License-Identifier: MIT */
/*
 * place: what this process has seen of a directory, found by its name without asking the kernel.
 *
 * Everything here is a hint: a directory may be replaced, mounted over, or its name mean another
 * one after chdir. Whoever uses it must be right whatever it says, only slower. Entries are few,
 * overwritten by each other, written by any thread without a lock; nothing here blocks but
 * place_of, which asks the directory's file system (at the first use, then every
 * PLACE_USES uses of a thread), and place_kind_fd.
 */
#ifndef SHIM_PLACE_H
#define SHIM_PLACE_H

#include "policy_create.h"
#include "state.h"

#define PLACE_USES 256u

struct place {
    uint64_t tag;  /* of the name; 0 free */
    uint32_t kind; /* enum create_kind */
    uint32_t missing, turn;
    uint32_t turns; /* looks that are still to be made in turn, since a name was missing lately */
    uint32_t look_ns, plain_ns;
    uint32_t doubted; /* wrong guesses that a name had existed: fewer are believed */
};

/* The length of `path`, or 0: empty, longer than PATH_MAX, or not readable (the kernel says EFAULT
 * where a look would crash; asked each time, a system call a page). */
size_t place_path_bytes(const char *path);

/* The entry of the directory part of `path`, which starts from dirfd; learned if need be. Never
 * NULL. */
struct place *place_of(int dirfd, const char *path, size_t bytes);

/* What kind of file system an open file lies on. */
enum create_kind place_kind_fd(int fd);

/* Names that exist or existed, by a hash: a hint too. */
uint32_t place_name_tag(const struct place *place, const char *path, size_t bytes);
bool place_knows(uint32_t tag);
void place_note(uint32_t tag, bool exists);

/* A running mean. */
void place_mean(uint32_t *mean_ns, uint64_t ns);

/* Once, before other threads: the kernel's version. */
void place_start(void);

#endif
