/* SPDX-License-Identifier: MIT */
/* zeros: for a range that was answered as punched and that the kernel will not punch: the contents
 * are then as they must be, only the space is not freed. Runs on the worker and in the keeper. */
#ifndef SHIM_ZEROS_H
#define SHIM_ZEROS_H

#include <stdint.h>

/* 0 or -errno. Nothing is written beyond the end of the file. */
long zeros_write(int fd, uint64_t start, uint64_t end);

#endif
