/* SPDX-License-Identifier: MIT */
/*
 * check_bytes: linearizability of each byte. See check.h.
 *
 * The file is cut at every offset that a call or an observation names; all bytes of such a cell
 * have the same sub-history, so one search speaks for all of them, and cells with the same
 * sub-history share it. A configuration of the search is how far each lane has come and the
 * register's state: lanes are sequential, so counts say it all. A call may come next if no call
 * that has not come yet returned before it began.
 */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATE_ABSENT = 256, GROWS_MAX = 3 };

enum act {
    ACT_SEE,           /* state == val */
    ACT_SEE_PRESENT,   /* state != absent */
    ACT_SET,           /* state := val */
    ACT_SET_IF_ABSENT, /* append */
    ACT_ZERO,          /* absent stays absent */
    ACT_ZERO_GROW,     /* state := 0 */
    ACT_GROW,          /* absent becomes zero */
    ACT_CUT_ZERO,      /* first half of a truncation: see events_of */
    ACT_CUT,           /* state := absent */
};

struct event {
    uint64_t inv, res;
    const struct op *op;
    uint16_t val;
    uint8_t act;
};

struct lane_events {
    struct event ev[TRACE_OPS * 2];
    unsigned n;
};

struct config {
    uint32_t stamp;
    uint16_t state;
    uint16_t count[TRACE_LANES];
};

enum { MEMO_SLOTS = 1 << 16, MEMO_BUDGET = 40000, CELLS_MAX = 1 << 15, SEEN_SLOTS = 1 << 12 };

struct search {
    struct lane_events lane[TRACE_LANES];
    uint16_t count[TRACE_LANES];
    unsigned lanes; /* lanes in use, compacted */
    uint32_t stamp; /* a new one empties the memo */
    unsigned configs;
    bool spent;
    struct config memo[MEMO_SLOTS];
};

/* Observations may be taken as soon as they are true: they change nothing for the others. */
static bool is_observation(unsigned act)
{
    return act <= ACT_SEE_PRESENT;
}

static bool allowed(const struct event *e, unsigned state)
{
    switch (e->act) {
    case ACT_SEE:
        return state == e->val;
    case ACT_SEE_PRESENT:
        return state != STATE_ABSENT;
    case ACT_SET_IF_ABSENT:
        return state == STATE_ABSENT;
    default:
        return true;
    }
}

static unsigned apply(const struct event *e, unsigned state)
{
    switch (e->act) {
    case ACT_SET:
    case ACT_SET_IF_ABSENT:
        return e->val;
    case ACT_ZERO:
    case ACT_CUT_ZERO:
        return state == STATE_ABSENT ? STATE_ABSENT : 0;
    case ACT_ZERO_GROW:
        return 0;
    case ACT_GROW:
        return state == STATE_ABSENT ? 0 : state;
    case ACT_CUT:
        return STATE_ABSENT;
    default:
        return state;
    }
}

/* True if the configuration is new. */
static bool remember(struct search *s, unsigned state)
{
    uint64_t h = state * 0x9e3779b97f4a7c15u + 1;

    for (unsigned i = 0; i < s->lanes; i++)
        h = (h ^ s->count[i]) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
    for (unsigned slot = h % MEMO_SLOTS;; slot = (slot + 1) % MEMO_SLOTS) {
        struct config *c = &s->memo[slot];

        if (c->stamp != s->stamp) {
            if (++s->configs > MEMO_BUDGET) {
                s->spent = true;
                return false;
            }
            c->stamp = s->stamp;
            c->state = (uint16_t)state;
            memcpy(c->count, s->count, sizeof(c->count));
            return true;
        }
        if (c->state == state && !memcmp(c->count, s->count, s->lanes * sizeof(c->count[0])))
            return false;
    }
}

static uint64_t first_return(const struct search *s, bool *any)
{
    uint64_t min = UINT64_MAX;

    *any = false;
    for (unsigned i = 0; i < s->lanes; i++) {
        if (s->count[i] == s->lane[i].n)
            continue;
        *any = true;
        if (s->lane[i].ev[s->count[i]].res < min)
            min = s->lane[i].ev[s->count[i]].res;
    }
    return min;
}

static bool explain_rest(struct search *s, unsigned state)
{
    bool any, moved;
    uint64_t bound;

    do {
        moved = false;
        bound = first_return(s, &any);
        for (unsigned i = 0; i < s->lanes; i++) {
            const struct event *e = &s->lane[i].ev[s->count[i]];

            if (s->count[i] < s->lane[i].n && is_observation(e->act) && e->inv < bound &&
                allowed(e, state)) {
                s->count[i]++;
                moved = true;
            }
        }
    } while (moved);
    if (!any)
        return true;
    if (s->spent || !remember(s, state))
        return false;

    uint16_t saved[TRACE_LANES];

    memcpy(saved, s->count, sizeof(saved));
    for (unsigned i = 0; i < s->lanes; i++) {
        const struct event *e = &s->lane[i].ev[saved[i]];

        if (saved[i] == s->lane[i].n || is_observation(e->act) || e->inv >= bound ||
            !allowed(e, state))
            continue;
        s->count[i]++;
        if (explain_rest(s, apply(e, state)))
            return true;
        memcpy(s->count, saved, sizeof(saved));
    }
    return false;
}

static bool explainable(struct search *s)
{
    memset(s->count, 0, sizeof(s->count));
    s->stamp++;
    s->configs = 0;
    s->spent = false;
    return explain_rest(s, STATE_ABSENT);
}

static void push(struct lane_events *l, const struct op *o, enum act act, unsigned val)
{
    l->ev[l->n++] = (struct event){o->inv, o->res, o, (uint16_t)val, (uint8_t)act};
}

/* The value that a read saw at byte a; -1 if it saw nothing there. */
static int seen_at(const struct run *runs, const struct op *o, int64_t a)
{
    unsigned lo = o->run, hi = o->run + o->runs;

    if (a < o->off || a >= o->off + o->len)
        return -1;
    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;

        if (runs[mid].off + runs[mid].len <= a)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < o->run + o->runs)
        return runs[lo].id;
    return o->eof ? STATE_ABSENT : -1;
}

/*
 * A big direct write may land in pieces (no file system promises more) of any size from PIECE_BYTES
 * up, so that truncations come between them: one piece sets the byte, and each later one lies above
 * it. More than GROWS_MAX truncations within one write are not told from fewer.
 */
static void events_of_write(struct lane_events *l, const struct op *o, int64_t a)
{
    int64_t end = o->off + o->len;
    int64_t later = 0;

    if (a >= end)
        return;
    if (o->pieces)
        later = a < o->off ? (o->len - 1) / PIECE_BYTES : (end - 1 - a) / PIECE_BYTES;
    push(l, o, a < o->off ? ACT_GROW : ACT_SET, a < o->off ? 0 : o->id);
    for (int i = 0; i < later && i < GROWS_MAX; i++)
        push(l, o, ACT_GROW, 0);
}

/*
 * What the call means for the byte a. A truncation is two events: the kernel sets the size, then
 * wipes the tail of the last page, and a reader that looked at the size before may copy the wiped
 * tail; so a read that overlaps a shrinking truncation may show zero.
 */
static void events_of(struct lane_events *l, const struct op *o, const struct run *runs, int64_t a)
{
    int64_t end = o->off + o->len;
    bool inside = a >= o->off && a < end;
    int v;

    switch (o->effect) {
    case EFFECT_WRITE:
        events_of_write(l, o, a);
        break;
    case EFFECT_APPEND:
        if (inside)
            push(l, o, ACT_SET_IF_ABSENT, o->id);
        else if (a < o->off)
            push(l, o, ACT_SEE_PRESENT, 0);
        else
            push(l, o, ACT_SEE, STATE_ABSENT);
        break;
    case EFFECT_ZERO:
        if (inside)
            push(l, o, ACT_ZERO, 0);
        break;
    case EFFECT_ZERO_GROW:
        if (a < end)
            push(l, o, inside ? ACT_ZERO_GROW : ACT_GROW, 0);
        break;
    case EFFECT_GROW:
        if (a < end)
            push(l, o, ACT_GROW, 0);
        break;
    case EFFECT_TRUNCATE:
        if (a < o->off) {
            push(l, o, ACT_GROW, 0);
        } else {
            push(l, o, ACT_CUT_ZERO, 0);
            push(l, o, ACT_CUT, 0);
        }
        break;
    case EFFECT_READ:
        v = seen_at(runs, o, a);
        if (v >= 0)
            push(l, o, ACT_SEE, (unsigned)v);
        break;
    case EFFECT_SIZE:
        if (a < o->off)
            push(l, o, ACT_SEE_PRESENT, 0);
        else
            push(l, o, ACT_SEE, STATE_ABSENT);
        break;
    default:
        break;
    }
}

/*
 * Every write above a byte "grows" it, which is nothing once it exists and is never cut off: such
 * events only make the search wider, so they go.
 */
static void drop_idle(struct search *s)
{
    uint64_t present = UINT64_MAX;

    for (unsigned i = 0; i < s->lanes; i++) {
        for (unsigned k = 0; k < s->lane[i].n; k++) {
            const struct event *e = &s->lane[i].ev[k];

            if (e->act == ACT_CUT || e->act == ACT_SET_IF_ABSENT)
                return;
            if ((e->act == ACT_SET || e->act == ACT_GROW || e->act == ACT_ZERO_GROW) &&
                e->res < present)
                present = e->res;
        }
    }
    for (unsigned i = 0; i < s->lanes; i++) {
        struct lane_events *l = &s->lane[i];
        unsigned n = 0;

        for (unsigned k = 0; k < l->n; k++) {
            const struct event *e = &l->ev[k];

            if ((e->act == ACT_GROW || e->act == ACT_SEE_PRESENT) && e->inv > present)
                continue;
            l->ev[n++] = *e;
        }
        l->n = n;
    }
}

static void gather(struct search *s, const struct trace *t, int64_t a)
{
    int lane = -1;

    s->lanes = 0;
    for (size_t i = 0; i < t->nops; i++) {
        if (t->ops[i]->lane != lane) {
            /* The last lane stays in use only if something was found for it. */
            if (lane < 0 || s->lane[s->lanes].n)
                s->lanes += lane >= 0;
            lane = t->ops[i]->lane;
            s->lane[s->lanes].n = 0;
        }
        events_of(&s->lane[s->lanes], t->ops[i], t->runs, a);
    }
    if (lane >= 0 && s->lane[s->lanes].n)
        s->lanes++;
    drop_idle(s);
}

static uint64_t signature(const struct search *s)
{
    uint64_t h = 0x243f6a8885a308d3u;

    for (unsigned i = 0; i < s->lanes; i++) {
        for (unsigned k = 0; k < s->lane[i].n; k++) {
            const struct event *e = &s->lane[i].ev[k];

            h = (h ^ e->inv ^ ((uint64_t)e->act << 32) ^ ((uint64_t)e->val << 40)) *
                0xff51afd7ed558ccdu;
            h ^= h >> 33;
        }
        h = (h ^ 0x5bd1e995) * 0xff51afd7ed558ccdu;
    }
    return h | 1;
}

/* Drops what returned too late to matter for the question "is all up to `limit` explained?". */
static void keep_until(struct search *s, uint64_t limit)
{
    for (unsigned i = 0; i < s->lanes; i++) {
        struct lane_events *l = &s->lane[i];
        unsigned n = 0;

        for (unsigned k = 0; k < l->n; k++) {
            const struct event *e = &l->ev[k];

            if (e->inv < limit && (e->res <= limit || !is_observation(e->act)))
                l->ev[n++] = *e;
        }
        l->n = n;
    }
}

static const struct op *first_unexplained(struct search *s, const struct trace *t, int64_t a)
{
    const struct op *best = NULL;

    for (size_t i = 0; i < t->nops; i++) {
        const struct op *o = t->ops[i];

        if (best && o->res > best->res)
            continue;
        if (o->effect != EFFECT_READ && o->effect != EFFECT_SIZE && o->effect != EFFECT_APPEND)
            continue;
        gather(s, t, a);
        keep_until(s, o->res);
        if (!explainable(s) && !s->spent)
            best = o;
    }
    return best;
}

static int by_value(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;

    return (a > b) - (a < b);
}

/* Every offset where some call or observation begins or ends, sorted, each once. */
static size_t cell_starts(const struct trace *t, int64_t *cut)
{
    size_t n = 0, kept = 0;

    cut[n++] = 0;
    for (size_t i = 0; i < t->nops && n < CELLS_MAX - 4; i++) {
        const struct op *o = t->ops[i];

        if (o->effect == EFFECT_NONE)
            continue;
        cut[n++] = o->off;
        cut[n++] = o->off + o->len;
        for (unsigned r = 0; r < o->runs && n < CELLS_MAX - 4; r++) {
            cut[n++] = t->runs[o->run + r].off;
            cut[n++] = t->runs[o->run + r].off + t->runs[o->run + r].len;
        }
    }
    qsort(cut, n, sizeof(*cut), by_value);
    for (size_t i = 0; i < n; i++)
        if (!kept || cut[i] != cut[kept - 1])
            cut[kept++] = cut[i];
    return kept;
}

static bool seen_before(uint64_t *table, uint64_t sig)
{
    for (unsigned slot = sig % SEEN_SLOTS, i = 0; i < 64; slot = (slot + 1) % SEEN_SLOTS, i++) {
        if (table[slot] == sig)
            return true;
        if (!table[slot]) {
            table[slot] = sig;
            return false;
        }
    }
    return false;
}

enum check check_bytes(const struct trace *t, struct finding *f)
{
    static struct search *s;
    static int64_t *cut;
    static uint64_t *seen;
    enum check verdict = CHECK_OK;

    if (!s) {
        s = calloc(1, sizeof(*s));
        cut = calloc(CELLS_MAX, sizeof(*cut));
        seen = calloc(SEEN_SLOTS, sizeof(*seen));
        if (!s || !cut || !seen)
            abort();
    }
    memset(seen, 0, SEEN_SLOTS * sizeof(*seen));
    size_t cells = cell_starts(t, cut);

    for (size_t c = 0; c < cells; c++) {
        gather(s, t, cut[c]);
        if (seen_before(seen, signature(s)))
            continue;
        if (explainable(s))
            continue;
        f->rule = "each byte has an order of calls that explains it";
        f->off = cut[c];
        f->len = c + 1 < cells ? cut[c + 1] - cut[c] : 1;
        f->culprit = NULL;
        if (s->spent) {
            verdict = CHECK_UNDECIDED;
            snprintf(f->why, sizeof(f->why), "gave up after %d configurations", MEMO_BUDGET);
            continue;
        }
        f->culprit = first_unexplained(s, t, cut[c]);
        snprintf(f->why, sizeof(f->why), "no order of the calls explains what was seen");
        return CHECK_BAD;
    }
    return verdict;
}
