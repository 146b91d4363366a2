/* SPDX-License-Identifier: MIT */
/*
 * Writing down one call: record_begin, the call, record_end at once, record_seen for what a read
 * brought, record_publish. A record not published does not count.
 */
#ifndef MODEL_RECORD_H
#define MODEL_RECORD_H

#include "perform.h"

struct op *record_begin(struct actor *a, const struct step *s, enum effect e, int64_t off,
                        int64_t len);

/* Must be the first thing after the call: it takes errno and the ticket. */
void record_end(struct actor *a, struct op *o, int64_t ret);

/* `buf` holds the bytes that came back; a short count means the end of the file only if
 * eof_if_short (a copy inside the kernel may stop earlier for reasons of its own). */
void record_seen(struct actor *a, struct op *o, const void *buf, int64_t ret, bool eof_if_short);

void record_publish(struct actor *a, const struct op *o);

/* The steps that are about descriptors and processes, not bytes: actors.c. */
void do_reopen(struct actor *a, const struct step *s);
void do_decoy(struct actor *a, const struct step *s);
void do_fork(struct actor *a, const struct step *s, unsigned left);
void do_exec(struct actor *a, const struct step *s);

/* Streams and pipes: streams.c. */
void do_stream(struct actor *a, const struct step *s);
void do_stdio(struct actor *a, const struct step *s);
void do_splice(struct actor *a, const struct step *s);

#endif
