/* SPDX-License-Identifier: MIT */
/* See record.h. */
#include "record.h"
#include "pattern.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t coarse_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME_COARSE, &ts);
    return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

struct op *record_begin(struct actor *a, const struct step *s, enum effect e, int64_t off,
                        int64_t len)
{
    struct arena *ar = a->subject->arena;
    unsigned n = atomic_load_explicit(&ar->nops[a->lane], memory_order_relaxed);
    /* A full lane has its last record used again and again, and never counted. */
    struct op *o = &ar->ops[a->lane][n < TRACE_OPS ? n : TRACE_OPS - 1];

    memset(o, 0, sizeof(*o));
    o->off = off;
    o->len = len;
    o->effect = (uint8_t)e;
    o->call = s->call;
    o->lane = (uint8_t)a->lane;
    o->id = s->id;
    o->wall_inv_ns = coarse_ns();
    o->inv = atomic_fetch_add(&ar->ticket, 1);
    return o;
}

/* Takes the result right after the call, before anything else can touch errno or the clock. */
void record_end(struct actor *a, struct op *o, int64_t ret)
{
    int err = errno;

    o->res = atomic_fetch_add(&a->subject->arena->ticket, 1);
    o->wall_res_ns = coarse_ns();
    o->ret = ret;
    if (ret < 0) {
        o->err = err;
        o->effect = EFFECT_NONE;
    }
}

void record_publish(struct actor *a, const struct op *o)
{
    struct arena *ar = a->subject->arena;
    unsigned n = atomic_load_explicit(&ar->nops[a->lane], memory_order_relaxed);

    if (n < TRACE_OPS && o == &ar->ops[a->lane][n])
        atomic_store(&ar->nops[a->lane], n + 1);
}

static void keep_runs(struct arena *ar, struct op *o, const void *buf, int64_t got)
{
    struct run local[TRACE_RUNS_READ];
    unsigned n = pattern_runs(buf, o->off, (size_t)got, ar->nonce, local, TRACE_RUNS_READ);

    if (n > TRACE_RUNS_READ) {
        o->err = ERR_CONTENT;
        o->effect = EFFECT_NONE;
        return;
    }
    unsigned first = atomic_fetch_add(&ar->runs_used, n);

    if (first + n > TRACE_RUNS) {
        o->effect = EFFECT_NONE; /* no room: a read not checked is no divergence */
        return;
    }
    memcpy(&ar->runs[first], local, n * sizeof(*local));
    o->run = first;
    o->runs = n;
}

void record_seen(struct actor *a, struct op *o, const void *buf, int64_t ret, bool eof_if_short)
{
    if (ret < 0)
        return;
    if (ret < o->len) {
        o->eof = eof_if_short;
        if (!eof_if_short)
            o->len = ret;
    }
    keep_runs(a->subject->arena, o, buf, ret);
}

void reader_fill(struct arena *arena, struct op *o, int fd, unsigned char *buf)
{
    int64_t ret = pread(fd, buf, (size_t)o->len, o->off);

    o->ret = ret;
    if (ret < 0) {
        o->err = errno;
        o->effect = EFFECT_NONE;
        return;
    }
    o->eof = ret < o->len;
    keep_runs(arena, o, buf, ret);
}
