/* SPDX-License-Identifier: MIT */
/* view: the pieces; see view.h. */
#include <stdlib.h>
#include <string.h>

#include "../text.h"
#include "../config_value.h"
#include "view.h"

const char *const view_act_text[ACT_COUNT] = {
#define ACT(name, text) text,
#include "../observe.def"
#undef ACT
};
const char *const view_act_name[ACT_COUNT] = {
#define ACT(name, text) #name,
#include "../observe.def"
#undef ACT
};

#define REMEDY(name, setting, value, others, cure)                                                 \
    [REMEDY_##name] = {#name, CFG_ROW_##setting, value, others, cure},
const struct view_remedy view_remedies[REMEDY_COUNT] = {
#include "../observe.def"
};
#undef REMEDY

static const struct observed *sorted; /* for qsort, which takes no context */

bool view_not_yet(int remedy)
{
    const struct view_remedy *v = &view_remedies[remedy];
    struct cfg_value value;
    struct cfg_error error;

    return cfg_rows[v->row].later ||
           (cfg_value_parse(&cfg_rows[v->row], v->value, strlen(v->value), &value, &error) == 0 &&
            value.later);
}

static int by_saved(const void *a, const void *b)
{
    const struct seen_remedy *x = &sorted->remedy[*(const int *)a];
    const struct seen_remedy *y = &sorted->remedy[*(const int *)b];
    bool x_waits = view_not_yet(*(const int *)a), y_waits = view_not_yet(*(const int *)b);

    if (x_waits != y_waits)
        return x_waits ? 1 : -1;
    if (x->saved_ns != y->saved_ns)
        return x->saved_ns > y->saved_ns ? -1 : 1;
    return *(const int *)a - *(const int *)b;
}

int view_order_remedies(const struct observed *o, int order[REMEDY_COUNT])
{
    int n = 0;

    for (int i = 0; i < REMEDY_COUNT; i++)
        if (o->remedy[i].saved_ns != 0)
            order[n++] = i;
    sorted = o;
    qsort(order, (size_t)n, sizeof *order, by_saved);
    return n;
}

static int by_stalled(const void *a, const void *b)
{
    const struct seen_calls *x = &sorted->act[*(const int *)a];
    const struct seen_calls *y = &sorted->act[*(const int *)b];

    if (x->stalled_ns != y->stalled_ns)
        return x->stalled_ns > y->stalled_ns ? -1 : 1;
    if (x->total_ns != y->total_ns)
        return x->total_ns > y->total_ns ? -1 : 1;
    return *(const int *)a - *(const int *)b;
}

int view_order_acts(const struct observed *o, int order[ACT_COUNT])
{
    int n = 0;

    for (int i = 0; i < ACT_COUNT; i++)
        if (o->act[i].calls != 0)
            order[n++] = i;
    sorted = o;
    qsort(order, (size_t)n, sizeof *order, by_stalled);
    return n;
}

/* Does i come before k? */
static bool file_first(const struct observed *o, uint32_t i, uint32_t k)
{
    const struct seen_calls *a = &o->files[i].calls, *b = &o->files[k].calls;

    return a->stalled_ns != b->stalled_ns ? a->stalled_ns > b->stalled_ns
                                          : a->total_ns > b->total_ns;
}

static bool site_first(const struct observed *o, uint32_t i, uint32_t k)
{
    return o->sites[i].total_ns > o->sites[k].total_ns;
}

/* The first `max` of n by insertion: max is small. */
static uint32_t top(const struct observed *o, uint32_t n, uint32_t *order, uint32_t max,
                    bool (*first)(const struct observed *, uint32_t, uint32_t))
{
    uint32_t have = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = have;

        if (have == max && (max == 0 || !first(o, i, order[have - 1])))
            continue;
        if (have == max)
            at = --have;
        for (; at > 0 && first(o, i, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = i;
        have++;
    }
    return have;
}

uint32_t view_top_files(const struct observed *o, uint32_t *order, uint32_t max)
{
    return top(o, o->nfiles, order, max, file_first);
}

uint32_t view_top_sites(const struct observed *o, uint32_t *order, uint32_t max)
{
    return top(o, o->nsites, order, max, site_first);
}

static void put_file_name(struct cfg_text *t, const struct observed *o, uint32_t file)
{
    if (file == NONE_SEEN || o->files[file].path[0] == '\0')
        return;
    cfg_text_add(t, " of ");
    text_safe(t, o->files[file].path, strlen(o->files[file].path));
}

const char *view_key(int remedy)
{
    return cfg_rows[view_remedies[remedy].row].key;
}

void view_worst(struct cfg_text *t, const struct observed *o, int remedy)
{
    const struct seen_remedy *r = &o->remedy[remedy];

    if (r->worst.ns == 0)
        return;
    cfg_text_add(t, view_act_text[r->worst.act]);
    put_file_name(t, o, r->worst.file);
    cfg_text_add(t, " took ");
    text_time(t, r->worst.ns);
    cfg_text_add(t, "; ");
    cfg_text_add(t, view_key(remedy));
    cfg_text_add(t, " = ");
    cfg_text_add(t, view_remedies[remedy].value);
    cfg_text_add(t, " would have taken about ");
    text_time(t, r->worst_would_ns);
}

int view_others(const struct observed *o, int remedy, const struct seen_file **file)
{
    for (uint32_t i = 0; i < o->nfiles; i++) {
        const struct seen_file *f = &o->files[i];

        if (f->remedy_saved_ns[remedy] != 0 && (f->other != 0 || f->received)) {
            *file = f;
            return 2;
        }
    }
    return o->looks == 0 || o->looks_blind ? 1 : 0;
}

static size_t directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? (size_t)(slash - path) : 0;
}

void view_pattern(const struct observed *o, int remedy, char *buf, size_t n)
{
    const struct seen_file *most = NULL;
    uint32_t beside = 0;

    buf[0] = '\0';
    for (uint32_t i = 0; i < o->nfiles; i++)
        if (o->files[i].path[0] == '/' && o->files[i].remedy_saved_ns[remedy] != 0 &&
            (most == NULL || o->files[i].remedy_saved_ns[remedy] > most->remedy_saved_ns[remedy]))
            most = &o->files[i];
    if (most == NULL || strpbrk(most->path, "\n[]*?\\\"'") != NULL)
        return;
    for (uint32_t i = 0; i < o->nfiles; i++)
        beside += o->files[i].remedy_saved_ns[remedy] != 0 &&
                  directory_of(o->files[i].path) == directory_of(most->path) &&
                  strncmp(o->files[i].path, most->path, directory_of(most->path) + 1) == 0;
    if (beside > 1 || most->nameless)
        snprintf(buf, n, "%.*s/*", (int)directory_of(most->path), most->path);
    else
        snprintf(buf, n, "%s", most->path);
}

/* A bucket's middle stands for it, which may be more than the longest was. */
static uint64_t at_most(uint64_t ns, const struct seen_calls *c)
{
    return ns < c->worst_ns || c->worst_ns == 0 ? ns : c->worst_ns;
}

uint64_t view_median(const struct seen_calls *c)
{
    return at_most(hist_at(c->hist, 1, 2), c);
}

uint64_t view_p99(const struct seen_calls *c)
{
    return at_most(hist_at(c->hist, 99, 100), c);
}
