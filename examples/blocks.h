/* SPDX-License-Identifier: MIT */
/*
 * blocks: file contents that say where they belong, so that any read can be checked.
 *
 * A block is 4 KiB: its own file offset mixed with a constant, then 511 fixed words. Only the first
 * word differs from block to block, and a writer in a hurry may stamp only some of its blocks.
 * Header only; block_init() comes first.
 */
#ifndef EXAMPLES_BLOCKS_H
#define EXAMPLES_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define BLOCK_BYTES 4096u
#define BLOCK_WORDS (BLOCK_BYTES / 8)
#define BLOCK_STAMP 0x6f6e655f696e6f64ull

static uint64_t block_template[BLOCK_WORDS];

static inline void block_init(void)
{
    for (unsigned i = 0; i < BLOCK_WORDS; i++)
        block_template[i] = (i + 1) * 0x9e3779b97f4a7c15ull;
}

static inline void block_fill(void *buf, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += BLOCK_BYTES)
        memcpy((char *)buf + at, block_template, BLOCK_BYTES);
}

/* Stamps the block at every stride, for a buffer that is to be written at the offset. */
static inline void block_stamp(void *buf, uint64_t bytes, uint64_t offset, uint64_t stride)
{
    for (uint64_t at = 0; at < bytes; at += stride)
        *(uint64_t *)((char *)buf + at) = BLOCK_STAMP ^ (offset + at);
}

static inline bool block_is_right(const void *buf, uint64_t offset)
{
    return *(const uint64_t *)buf == (BLOCK_STAMP ^ offset) &&
           !memcmp((const char *)buf + 8, block_template + 1, BLOCK_BYTES - 8);
}

static inline bool block_is_zero(const void *buf)
{
    return *(const uint64_t *)buf == 0 && !memcmp(buf, (const char *)buf + 8, BLOCK_BYTES - 8);
}

static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
