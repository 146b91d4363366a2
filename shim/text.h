/* SPDX-License-Identifier: MIT */
/*
 * text: numbers, sizes, times and foreign strings as people and JSON readers want them, on top of
 * the bounded buffers of config_text.h.
 *
 * Nothing here uses stdio, malloc, errno, locales or thread-local variables, so it may run on the
 * worker thread, in handlers and before libc is ready. What does not fit is cut.
 */
#ifndef SHIM_TEXT_H
#define SHIM_TEXT_H

#include <stdbool.h>

#include "config_text.h"

/* 131,072 */
void text_grouped(struct cfg_text *t, uint64_t n);

/* 512 bytes, 4.0 KiB, 8.0 MiB, … */
void text_size(struct cfg_text *t, uint64_t bytes);

/* 800 ns, 12 us, 9.9 ms, 1.25 s, 2 min 5 s; three digits where there are that many. */
void text_time(struct cfg_text *t, uint64_t ns);

/* 2026-10-31T23:59:07Z; CLOCK_REALTIME nanoseconds. */
void text_utc(struct cfg_text *t, uint64_t ns);

/* What an errno value means, in a few words. strerror may allocate and load message catalogues. */
void text_errno(struct cfg_text *t, int error);

/* Length of the well-formed UTF-8 sequence at s, of which n bytes are readable; 0 if it is none. */
size_t text_utf8(const char *s, size_t n);

/* Bytes somebody else chose, safe for a terminal and for one line: '?' for the rest. */
void text_safe(struct cfg_text *t, const char *s, size_t n);

/* The same as a JSON string with its quotes; U+FFFD for bytes that are not UTF-8. A string that
 * does not fit is cut between characters and still closed, as long as two bytes are left. */
void text_json(struct cfg_text *t, const char *s, size_t n);

static inline size_t text_room(const struct cfg_text *t)
{
    return t->cap != 0 ? t->cap - 1 - t->len : 0;
}

#endif
