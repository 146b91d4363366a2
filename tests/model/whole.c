/* SPDX-License-Identifier: MIT */
/*
 * check_whole_reads: had everything that one read showed been true at one moment? See check.h.
 *
 * For a byte and the value seen there, the moments at which it can have been the value are bounded:
 * not before the call that made it began, not after a call that replaced it returned, if that call
 * began after the maker returned. Zero may have several makers, so the moments are a set of
 * windows. The read is wrong if its own time and the windows of all its bytes have no common point.
 * Windows err on the wide side, so this can miss a mixture, never invent one.
 */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

enum { WINDOWS_MAX = 128, CUTS_MAX = 2 * TRACE_LANES * TRACE_OPS };

struct window {
    uint64_t lo, hi;
};

struct windows {
    struct window w[WINDOWS_MAX];
    unsigned n;
    bool overflow;
};

static bool covers(const struct op *o, int64_t a)
{
    return a >= o->off && a < o->off + o->len;
}

static bool makes(const struct op *o, int64_t a, unsigned v)
{
    switch (o->effect) {
    case EFFECT_WRITE:
    case EFFECT_APPEND:
        return v ? covers(o, a) && o->id == v : o->len && a < o->off;
    case EFFECT_ZERO:
        return !v && covers(o, a);
    case EFFECT_ZERO_GROW:
    case EFFECT_GROW:
        return !v && a < o->off + o->len;
    case EFFECT_TRUNCATE:
        return !v;
    default:
        return false;
    }
}

static bool replaces(const struct op *o, int64_t a, unsigned v)
{
    switch (o->effect) {
    case EFFECT_WRITE:
    case EFFECT_APPEND:
        return covers(o, a) && o->id != v;
    case EFFECT_ZERO:
    case EFFECT_ZERO_GROW:
        return v && covers(o, a);
    case EFFECT_TRUNCATE:
        return a >= o->off;
    default:
        return false;
    }
}

static void add(struct windows *s, uint64_t lo, uint64_t hi)
{
    if (lo > hi)
        return;
    for (unsigned i = 0; i < s->n; i++) {
        if (lo <= s->w[i].hi && s->w[i].lo <= hi) {
            s->w[i].lo = lo < s->w[i].lo ? lo : s->w[i].lo;
            s->w[i].hi = hi > s->w[i].hi ? hi : s->w[i].hi;
            return;
        }
    }
    if (s->n == WINDOWS_MAX)
        s->overflow = true;
    else
        s->w[s->n++] = (struct window){lo, hi};
}

static void moments(const struct trace *t, int64_t a, unsigned v, struct windows *out)
{
    out->n = 0;
    out->overflow = false;
    for (size_t i = 0; i < t->nops; i++) {
        const struct op *maker = t->ops[i];
        uint64_t hi = UINT64_MAX;

        if (!makes(maker, a, v))
            continue;
        for (size_t k = 0; k < t->nops; k++) {
            const struct op *o = t->ops[k];

            if (o->inv > maker->res && o->res < hi && replaces(o, a, v))
                hi = o->res;
        }
        add(out, maker->inv, hi);
    }
}

static void intersect(struct windows *common, const struct windows *more)
{
    struct windows r = {.n = 0};

    if (more->overflow)
        return;
    for (unsigned i = 0; i < common->n; i++) {
        for (unsigned k = 0; k < more->n; k++) {
            const struct window *x = &common->w[i], *y = &more->w[k];

            add(&r, x->lo > y->lo ? x->lo : y->lo, x->hi < y->hi ? x->hi : y->hi);
        }
    }
    if (!r.overflow)
        *common = r;
}

static int by_value(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;

    return (a > b) - (a < b);
}

static bool one_moment(const struct trace *t, const struct op *read, int64_t *cut, int64_t *where)
{
    struct windows common = {.w = {{read->inv, read->res}}, .n = 1}, more;
    size_t n = 0;

    for (size_t i = 0; i < t->nops; i++) {
        const struct op *o = t->ops[i];

        if (o->effect == EFFECT_READ || o->effect == EFFECT_SIZE || o->effect == EFFECT_NONE)
            continue;
        if (covers(read, o->off))
            cut[n++] = o->off;
        if (covers(read, o->off + o->len))
            cut[n++] = o->off + o->len;
    }
    qsort(cut, n, sizeof(*cut), by_value);
    size_t next = 0;

    for (unsigned r = 0; r < read->runs; r++) {
        const struct run *run = &t->runs[read->run + r];
        int64_t a = run->off, end = run->off + run->len;

        while (a < end) {
            moments(t, a, run->id, &more);
            intersect(&common, &more);
            if (!common.n) {
                *where = a;
                return false;
            }
            while (next < n && cut[next] <= a)
                next++;
            a = next < n && cut[next] < end ? cut[next] : end;
        }
    }
    return true;
}

enum check check_whole_reads(const struct trace *t, struct finding *f)
{
    static int64_t cut[CUTS_MAX];

    for (size_t i = 0; i < t->nops; i++) {
        const struct op *o = t->ops[i];
        int64_t where;

        if (o->effect != EFFECT_READ || !o->whole || one_moment(t, o, cut, &where))
            continue;
        f->rule = "all bytes of one read were true at one moment";
        f->off = where;
        f->len = 1;
        f->culprit = o;
        snprintf(f->why, sizeof(f->why),
                 "what it saw here was never true together with what it "
                 "saw below");
        return CHECK_BAD;
    }
    return CHECK_OK;
}
