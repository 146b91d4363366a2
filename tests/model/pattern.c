/* SPDX-License-Identifier: MIT */
/* See pattern.h. */
#include "pattern.h"

#include <string.h>

enum { GRAIN = 64 };

/* 0..254; the multiplication maps 32 random bits there without a division. */
static unsigned place(int64_t off, uint64_t nonce)
{
    uint64_t x = ((uint64_t)off / GRAIN + 1) * 0x9e3779b97f4a7c15u ^ nonce;

    if (!nonce)
        return 0;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return (unsigned)((x >> 32) * 255 >> 32);
}

static size_t grain_left(int64_t off, size_t len)
{
    size_t left = GRAIN - (size_t)(off % GRAIN);

    return left < len ? left : len;
}

static unsigned char byte_of(unsigned id, unsigned g)
{
    unsigned b = id - 1 + g;

    return (unsigned char)(1 + (b >= 255 ? b - 255 : b));
}

void pattern_fill(void *buf, int64_t off, size_t len, unsigned id, uint64_t nonce)
{
    unsigned char *p = buf;

    while (len) {
        size_t n = grain_left(off, len);
        unsigned char b = byte_of(id, place(off, nonce));

        /* A constant size is set inline; this loop makes most of the program's own work. */
        if (n == GRAIN)
            memset(p, b, GRAIN);
        else
            memset(p, b, n);
        p += n;
        off += (int64_t)n;
        len -= n;
    }
}

static unsigned id_of(unsigned char byte, unsigned g)
{
    if (!byte)
        return 0;
    return byte > g ? byte - g : byte + 255 - g;
}

unsigned pattern_runs(const void *buf, int64_t off, size_t len, uint64_t nonce, struct run *out,
                      unsigned max)
{
    const unsigned char *p = buf;
    unsigned n = 0;

    while (len) {
        size_t chunk = grain_left(off, len);
        unsigned g = place(off, nonce);

        /* One comparison of the chunk with itself, a byte on, tells whether it is uniform. */
        if (chunk == GRAIN ? memcmp(p, p + 1, GRAIN - 1) : memcmp(p, p + 1, chunk - 1))
            chunk = 1;
        unsigned id = id_of(*p, g);

        if (n && out[n - 1].id == id && out[n - 1].len < UINT32_MAX - GRAIN) {
            out[n - 1].len += (uint32_t)chunk;
        } else {
            if (n == max)
                return max + 1;
            out[n++] = (struct run){off, (uint32_t)chunk, (uint16_t)id};
        }
        p += chunk;
        off += (int64_t)chunk;
        len -= chunk;
    }
    return n;
}
