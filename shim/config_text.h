/* SPDX-License-Identifier: MIT */
/*
 * Bounded text building without stdio: a piece that does not fit is cut, the buffer is always
 * NUL-terminated (if it has a byte), and nothing allocates. Messages keep their beginning.
 */
#ifndef SHIM_CONFIG_TEXT_H
#define SHIM_CONFIG_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct cfg_text {
    char *buf;
    size_t cap; /* bytes, NUL included */
    size_t len;
};

static inline struct cfg_text cfg_text_in(char *buf, size_t cap)
{
    struct cfg_text t = {buf, cap, 0};
    if (cap)
        buf[0] = 0;
    return t;
}

static inline void cfg_text_bytes(struct cfg_text *t, const char *s, size_t n)
{
    size_t room = t->cap ? t->cap - 1 - t->len : 0;
    if (n > room)
        n = room;
    if (!n)
        return;
    memcpy(t->buf + t->len, s, n);
    t->len += n;
    t->buf[t->len] = 0;
}

static inline void cfg_text_add(struct cfg_text *t, const char *s)
{
    cfg_text_bytes(t, s, strlen(s));
}

/* Something the user wrote: in quotes, and short, so that the reason after it stays visible. */
static inline void cfg_text_quote(struct cfg_text *t, const char *s, size_t n)
{
    enum { SHOWN = 48 };
    cfg_text_add(t, "'");
    cfg_text_bytes(t, s, n > SHOWN ? SHOWN : n);
    cfg_text_add(t, n > SHOWN ? "...'" : "'");
}

static inline void cfg_text_number(struct cfg_text *t, uint64_t v)
{
    char digits[20];
    size_t i = sizeof(digits);
    do {
        digits[--i] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    cfg_text_bytes(t, digits + i, sizeof(digits) - i);
}

#endif
