/* SPDX-License-Identifier: MIT */
/*
 * The bytes that a write of the model leaves: every single byte names its write.
 *
 * No file system promises that a read concurrent with a write is whole, not even inside one block
 * (ext4 copies from the page cache without a lock), so the model's register is the byte. A history
 * has at most 255 writes; byte = 1 + (id - 1 + g(offset)) mod 255, never zero, one to one in the id
 * for a given place. g changes every 64 bytes and with the history's nonce, so data that lands in a
 * wrong place, or is left from an earlier file, decodes to a write that never went there. With
 * nonce 0 the place does not matter (appends land where the file happens to end).
 */
#ifndef MODEL_PATTERN_H
#define MODEL_PATTERN_H

#include "trace.h"

void pattern_fill(void *buf, int64_t off, size_t len, unsigned id, uint64_t nonce);

/* Turns bytes into runs of equal id; returns how many, or max + 1 if they do not fit. */
unsigned pattern_runs(const void *buf, int64_t off, size_t len, uint64_t nonce, struct run *out,
                      unsigned max);

#endif
