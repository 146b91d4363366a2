/* SPDX-License-Identifier: MIT */
/*
 * readable: may the program's argument be looked at?
 *
 * The kernel answers EFAULT for an address it cannot read; a look of ours would be a crash. Whoever
 * wants to know what a pointer leads to before the call is made asks here first, and makes the call
 * plainly if the answer is no. What was readable may be unmapped by another thread the next moment:
 * such a program has no answer to rely on without us either.
 *
 * Costs nothing for what stands in the stack page of the caller, one system call a page (0.1 us)
 * otherwise: not for paths that have no work. Leaves errno alone.
 */
#ifndef SHIM_READABLE_H
#define SHIM_READABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

bool readable(const void *p, size_t bytes);

/* An array of vectors that the kernel would accept as such: 1 to IOV_MAX, readable, no length
 * beyond SSIZE_MAX. What they point to is not looked at. */
bool readable_vector(const struct iovec *iov, int count);

#endif
