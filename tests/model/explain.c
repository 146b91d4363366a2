/* SPDX-License-Identifier: MIT */
/* Prints a finding with the calls that touch its bytes. See stage.h. */
#include "stage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int by_begin(const void *x, const void *y)
{
    const struct op *a = *(const struct op *const *)x, *b = *(const struct op *const *)y;

    return (a->inv > b->inv) - (a->inv < b->inv);
}

static const char *error_text(int err)
{
    switch (err) {
    case ERR_DECOY:
        return "another file's bytes were changed or misread";
    case ERR_POSITION:
        return "wrong file position afterwards";
    case ERR_CONTENT:
        return "bytes that no write made";
    case ERR_HELPER:
        return "the child or the copy failed";
    default:
        return strerror(err);
    }
}

static void print_seen(FILE *out, const struct trace *t, const struct op *o, int64_t at)
{
    for (unsigned r = 0; r < o->runs; r++) {
        const struct run *run = &t->runs[o->run + r];

        if (at < run->off || at >= run->off + run->len)
            continue;
        if (run->id)
            fprintf(out, " saw write #%u", run->id);
        else
            fprintf(out, " saw zero");
        return;
    }
    fprintf(out, o->eof ? " saw the end of the file" : " saw nothing there");
}

/* Calls that only made the file longer matter only to a finding about its size. */
static bool touches(const struct op *o, int64_t off, bool size_matters)
{
    bool inside = off >= o->off && off < o->off + o->len;

    switch (o->effect) {
    case EFFECT_NONE:
        return o->err;
    case EFFECT_READ:
    case EFFECT_ZERO:
        return inside;
    case EFFECT_SIZE:
    case EFFECT_APPEND:
        return true; /* whether the byte existed is part of its history */
    case EFFECT_TRUNCATE:
        return size_matters || off >= o->off;
    default:
        return size_matters || inside;
    }
}

static bool about_size(const struct trace *t, const struct finding *f)
{
    const struct op *o = f->culprit;

    if (!o || o->effect == EFFECT_SIZE || o->effect == EFFECT_APPEND)
        return o;
    return o->effect == EFFECT_READ && o->eof &&
           (!o->runs ||
            f->off >= t->runs[o->run + o->runs - 1].off + t->runs[o->run + o->runs - 1].len);
}

static void print_op(FILE *out, const struct trace *t, const struct op *o, int64_t at)
{
    fprintf(out, "  [%5" PRIu64 ",%5" PRIu64 "] lane %-2u %-9s", o->inv, o->res, o->lane,
            o->call < CALLS ? plan_call_name(o->call) : "outside");
    switch (o->effect) {
    case EFFECT_SIZE:
        fprintf(out, " size %" PRId64, o->off);
        break;
    case EFFECT_TRUNCATE:
        fprintf(out, " to %" PRId64, o->off);
        break;
    default:
        fprintf(out, " %" PRId64 " + %" PRId64, o->off, o->len);
        break;
    }
    if (o->id)
        fprintf(out, " is write #%u", o->id);
    if (o->effect == EFFECT_READ)
        print_seen(out, t, o, at);
    fprintf(out, " = %" PRId64, o->ret);
    if (o->err)
        fprintf(out, " (%s)", error_text(o->err));
}

void explain(FILE *out, const struct plan *p, const struct trace *t, const struct finding *f)
{
    static const char *const modes[] = {"buffered", "direct", "mixed"};
    static const char *const kinds[] = {"named", "unlinked", "tmpfile"};
    const struct op **ops = calloc(t->nops + 1, sizeof(*ops));

    fprintf(out, "DIVERGENCE seed %" PRIu64 ": broken rule: %s\n", p->seed, f->rule);
    fprintf(out, "  bytes %" PRId64 " + %" PRId64 ": %s\n", f->off, f->len, f->why);
    fprintf(out, "  file: %s, %s, %u threads, handed over by %s\n", kinds[p->kind], modes[p->mode],
            p->threads, plan_settle_name(p->settle));
    if (!ops)
        return;
    memcpy(ops, t->ops, t->nops * sizeof(*ops));
    qsort(ops, t->nops, sizeof(*ops), by_begin);
    fprintf(out, "  calls that touch byte %" PRId64 ", by ticket of begin and end:\n", f->off);
    for (size_t i = 0; i < t->nops; i++) {
        if (!touches(ops[i], f->off, about_size(t, f)) && ops[i] != f->culprit)
            continue;
        print_op(out, t, ops[i], f->off);
        fprintf(out, ops[i] == f->culprit ? "   <-- not explained\n" : "\n");
    }
    free(ops);
    fflush(out);
}
