/* SPDX-License-Identifier: MIT */
/*
 * check_times: what stat may say about mtime and ctime. See check.h.
 *
 * The kernel stamps with its coarse clock, so a change is stamped no earlier than the coarse clock
 * read right before the call. A stat that ran across the turn of a second is left out: the kernel
 * reads seconds and nanoseconds without a lock and may pair old with new.
 */
#include "check.h"

#include <stdio.h>

static const int64_t SECOND_NS = 1000000000;

static bool usable(const struct op *o)
{
    return o->effect == EFFECT_SIZE && o->mtime_ns && o->wall_inv_ns <= o->wall_res_ns &&
           o->wall_inv_ns / SECOND_NS == (o->wall_res_ns + 20000000) / SECOND_NS;
}

static bool stamps(const struct op *o, bool punch_moves_mtime)
{
    switch (o->effect) {
    case EFFECT_WRITE:
    case EFFECT_APPEND:
        return o->len > 0;
    case EFFECT_ZERO:
        return punch_moves_mtime;
    default:
        return false;
    }
}

static enum check bad(struct finding *f, const struct op *stat, const char *what,
                      const struct op *earlier)
{
    f->rule = "times never run backwards";
    f->off = stat->off;
    f->len = 0;
    f->culprit = stat;
    snprintf(f->why, sizeof(f->why), "%s is older than the call of lane %u at [%llu, %llu]", what,
             earlier->lane, (unsigned long long)earlier->inv, (unsigned long long)earlier->res);
    return CHECK_BAD;
}

enum check check_times(const struct trace *t, bool punch_moves_mtime, struct finding *f)
{
    for (size_t i = 0; i < t->nops; i++) {
        const struct op *s = t->ops[i];

        if (!usable(s))
            continue;
        for (size_t k = 0; k < t->nops; k++) {
            const struct op *o = t->ops[k];

            if (o->res >= s->inv)
                continue;
            if (usable(o) && s->mtime_ns < o->mtime_ns)
                return bad(f, s, "mtime", o);
            if (usable(o) && s->ctime_ns < o->ctime_ns)
                return bad(f, s, "ctime", o);
            if (stamps(o, punch_moves_mtime) && s->mtime_ns < o->wall_inv_ns)
                return bad(f, s, "mtime", o);
            if (stamps(o, punch_moves_mtime) && s->ctime_ns < o->wall_inv_ns)
                return bad(f, s, "ctime", o);
        }
    }
    return CHECK_OK;
}
