/* SPDX-License-Identifier: MIT */
/*
 * observed: see observed.h. The file is not trusted: every index is checked against what is there,
 * numbers are whole and not negative, and names that this release does not know are passed over.
 */
#include <stdlib.h>
#include <string.h>

#include "observed.h"

#define COUNT_OF(a) (sizeof(a) / sizeof *(a))

static const char damaged[] = "it is damaged: what it observed makes no sense";
static const char no_memory[] = "there is not enough memory for it";

static const char *const act_names[ACT_COUNT] = {
#define ACT(name, text) #name,
#include "../observe.def"
#undef ACT
};
static const char *const remedy_names[REMEDY_COUNT] = {
#define REMEDY(name, setting, value, others, cure) #name,
#include "../observe.def"
#undef REMEDY
};

struct names {
    uint32_t to[64]; /* what an index in the file is here */
    size_t n;
};

/* --- numbers --- */

static bool whole(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* A member that is a number; false: it is something else, or missing. */
static bool member(const json_t *object, const char *key, uint64_t *out)
{
    return whole(json_object_get(object, key), out);
}

/* An index below n; anything else is NONE_SEEN. */
static uint32_t index_in(const json_t *v, size_t n)
{
    json_int_t i = json_is_integer(v) ? json_integer_value(v) : -1;

    return i >= 0 && (uint64_t)i < n ? (uint32_t)i : NONE_SEEN;
}

static bool read_names(const json_t *list, const char *const *known, uint32_t count,
                       struct names *out)
{
    size_t n = json_array_size(list);

    if (!json_is_array(list) || n > COUNT_OF(out->to))
        return false;
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(list, i));

        out->to[i] = NONE_SEEN;
        for (uint32_t k = 0; name != NULL && k < count; k++)
            if (strcmp(name, known[k]) == 0)
                out->to[i] = k;
    }
    out->n = n;
    return true;
}

static uint32_t named(const json_t *v, const struct names *names)
{
    uint32_t i = index_in(v, names->n);

    return i != NONE_SEEN ? names->to[i] : NONE_SEEN;
}

static bool read_calls(const json_t *o, struct seen_calls *out)
{
    const json_t *hist = json_object_get(o, "hist");
    size_t n = json_array_size(hist);

    if (!json_is_array(hist) || n % 2 != 0 || !member(o, "calls", &out->calls) ||
        !member(o, "total_ns", &out->total_ns) || !member(o, "worst_ns", &out->worst_ns) ||
        !member(o, "stalled", &out->stalled) || !member(o, "stalled_ns", &out->stalled_ns))
        return false;
    for (size_t i = 0; i < n; i += 2) {
        uint32_t bucket = index_in(json_array_get(hist, i), HIST_BUCKETS);

        if (bucket == NONE_SEEN || !whole(json_array_get(hist, i + 1), &out->hist[bucket]))
            return false;
    }
    return true;
}

static void add_calls(struct seen_calls *sum, const struct seen_calls *more)
{
    sum->calls = add(sum->calls, more->calls);
    sum->total_ns = add(sum->total_ns, more->total_ns);
    sum->stalled = add(sum->stalled, more->stalled);
    sum->stalled_ns = add(sum->stalled_ns, more->stalled_ns);
    if (more->worst_ns > sum->worst_ns)
        sum->worst_ns = more->worst_ns;
    for (int i = 0; i < HIST_BUCKETS; i++)
        sum->hist[i] = add(sum->hist[i], more->hist[i]);
}

/* --- one report --- */

struct reading {
    struct observed *o;
    struct names acts, remedies;
    uint32_t pid;
};

static bool read_stall(const struct reading *r, const json_t *v, struct seen_stall *out)
{
    uint64_t tid;

    if (json_array_size(v) != 7 || !whole(json_array_get(v, 0), &out->start_ns) ||
        !whole(json_array_get(v, 1), &out->ns) || !whole(json_array_get(v, 6), &tid))
        return false;
    out->act = named(json_array_get(v, 2), &r->acts);
    out->remedy = named(json_array_get(v, 3), &r->remedies);
    if (out->remedy == NONE_SEEN)
        out->remedy = REMEDY_NONE;
    out->file = index_in(json_array_get(v, 4), r->o->nfiles);
    out->site = index_in(json_array_get(v, 5), r->o->nsites);
    out->pid = r->pid;
    out->tid = (uint32_t)tid;
    return true;
}

/* n elements of `size`, or NULL; never of no size. */
static void *room(size_t n, size_t size)
{
    return calloc(n != 0 ? n : 1, size);
}

static char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return strdup(s != NULL ? s : "");
}

static const char *read_files(const struct reading *r, const json_t *list)
{
    struct observed *o = r->o;
    size_t n = json_array_size(list);

    if (!json_is_array(list) || n >= NONE_SEEN)
        return damaged;
    o->files = room(n, sizeof *o->files);
    if (o->files == NULL)
        return no_memory;
    for (; o->nfiles < n; o->nfiles++) {
        const json_t *v = json_array_get(list, o->nfiles), *by = json_object_get(v, "by");
        struct seen_file *f = &o->files[o->nfiles];
        uint64_t other = 0;

        f->path = text_of(v, "path");
        if (f->path == NULL)
            return no_memory;
        if (!read_calls(v, &f->calls) || !member(v, "dev", &f->dev) || !member(v, "ino", &f->ino) ||
            !member(v, "other", &other)) {
            o->nfiles++;
            return damaged;
        }
        f->other = (uint32_t)other;
        f->nameless = json_is_true(json_object_get(v, "nameless"));
        f->received = json_is_true(json_object_get(v, "received"));
        for (size_t i = 0; i + 2 < json_array_size(by); i += 3) {
            uint32_t remedy = named(json_array_get(by, i), &r->remedies);

            if (remedy != NONE_SEEN) {
                whole(json_array_get(by, i + 1), &f->remedy_calls[remedy]);
                whole(json_array_get(by, i + 2), &f->remedy_saved_ns[remedy]);
            }
        }
    }
    return NULL;
}

static const char *read_modules(const struct reading *r, const json_t *list)
{
    struct observed *o = r->o;
    size_t n = json_array_size(list);

    if (!json_is_array(list) || n >= NONE_SEEN)
        return damaged;
    o->modules = room(n, sizeof *o->modules);
    if (o->modules == NULL)
        return no_memory;
    for (; o->nmodules < n; o->nmodules++) {
        const json_t *v = json_array_get(list, o->nmodules);
        const char *id = json_string_value(json_object_get(v, "build_id"));
        struct seen_module *m = &o->modules[o->nmodules];

        m->path = text_of(v, "path");
        if (m->path == NULL)
            return no_memory;
        if (id != NULL && strlen(id) < sizeof m->build_id &&
            strspn(id, "0123456789abcdef") == strlen(id))
            strcpy(m->build_id, id);
    }
    return NULL;
}

static const char *read_sites(const struct reading *r, const json_t *list)
{
    struct observed *o = r->o;
    size_t n = json_array_size(list);

    if (!json_is_array(list) || n >= NONE_SEEN)
        return damaged;
    o->sites = room(n, sizeof *o->sites);
    if (o->sites == NULL)
        return no_memory;
    for (; o->nsites < n; o->nsites++) {
        const json_t *v = json_array_get(list, o->nsites), *frames = json_object_get(v, "frames");
        struct seen_site *s = &o->sites[o->nsites];
        size_t depth = json_array_size(frames) / 2;

        if (!json_is_array(frames) || !member(v, "calls", &s->calls) ||
            !member(v, "total_ns", &s->total_ns) || !member(v, "worst_ns", &s->worst_ns))
            return damaged;
        s->act = named(json_object_get(v, "act"), &r->acts);
        s->cut = json_is_true(json_object_get(v, "cut")) || depth > FRAMES_MAX;
        s->depth = (uint32_t)(depth < FRAMES_MAX ? depth : FRAMES_MAX);
        for (uint32_t i = 0; i < s->depth; i++) {
            s->frame[i].module = index_in(json_array_get(frames, 2 * (size_t)i), o->nmodules);
            if (!whole(json_array_get(frames, 2 * (size_t)i + 1), &s->frame[i].address))
                return damaged;
        }
    }
    return NULL;
}

static int by_start(const void *a, const void *b)
{
    const struct seen_stall *x = a, *y = b;

    return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

static int longest_first(const void *a, const void *b)
{
    const struct seen_stall *x = a, *y = b;

    return x->ns > y->ns ? -1 : x->ns < y->ns;
}

/* What is more than SEEN_STALLS goes, the shortest first. */
static void order_stalls(struct observed *o)
{
    if (o->nstalls > SEEN_STALLS) {
        qsort(o->stalls, o->nstalls, sizeof *o->stalls, longest_first);
        o->nstalls = SEEN_STALLS;
    }
    qsort(o->stalls, o->nstalls, sizeof *o->stalls, by_start);
}

static const char *read_stalls(const struct reading *r, const json_t *list)
{
    struct observed *o = r->o;
    size_t n = json_array_size(list);

    if (!json_is_array(list) || n >= NONE_SEEN)
        return damaged;
    o->stalls = room(n, sizeof *o->stalls);
    if (o->stalls == NULL)
        return no_memory;
    for (size_t i = 0; i < n; i++) {
        struct seen_stall *s = &o->stalls[o->nstalls];

        if (!read_stall(r, json_array_get(list, i), s))
            return damaged;
        o->nstalls += s->act != NONE_SEEN;
    }
    order_stalls(o);
    return NULL;
}

static const char *read_sums(const struct reading *r, const json_t *m)
{
    const json_t *calls = json_object_get(m, "calls"), *cures = json_object_get(m, "cures");
    struct observed *o = r->o;
    size_t n = json_array_size(calls);

    if (n != r->acts.n || json_array_size(cures) != r->remedies.n)
        return damaged;
    for (size_t i = 0; i < n; i++)
        if (r->acts.to[i] != NONE_SEEN &&
            !read_calls(json_array_get(calls, i), &o->act[r->acts.to[i]]))
            return damaged;
    for (size_t i = 0; i < r->remedies.n; i++) {
        const json_t *v = json_array_get(cures, i), *worst = json_object_get(v, "worst");
        struct seen_remedy *to =
            r->remedies.to[i] != NONE_SEEN ? &o->remedy[r->remedies.to[i]] : NULL;

        if (to == NULL)
            continue;
        if (!read_calls(v, &to->calls) || !member(v, "saved_ns", &to->saved_ns))
            return damaged;
        if (worst != NULL && (!read_stall(r, worst, &to->worst) ||
                              !member(v, "worst_would_ns", &to->worst_would_ns)))
            return damaged;
        if (to->worst.act == NONE_SEEN)
            to->worst.ns = 0;
    }
    return read_calls(json_object_get(m, "other_files"), &o->other_files) ? NULL : damaged;
}

static const char *read_all(struct reading *r, const json_t *m)
{
    const json_t *bits = json_object_get(m, "bucket_bits");
    const char *clock = json_string_value(json_object_get(m, "clock")), *bad;
    struct observed *o = r->o;

    if (json_integer_value(json_array_get(bits, 0)) != HIST_FIRST_BITS ||
        json_integer_value(json_array_get(bits, 1)) != HIST_STEP_BITS)
        return "its histograms are those of another version of rlshim; use that version's command";
    if (!member(m, "threshold_ns", &o->threshold_ns) ||
        !member(m, "stalls_seen", &o->stalls_seen) ||
        !member(m, "stalls_traced", &o->stalls_traced) || !member(m, "looks", &o->looks) ||
        !read_names(json_object_get(m, "acts"), act_names, ACT_COUNT, &r->acts) ||
        !read_names(json_object_get(m, "remedies"), remedy_names, REMEDY_COUNT, &r->remedies))
        return damaged;
    if (clock != NULL && strlen(clock) < sizeof o->clock)
        strcpy(o->clock, clock);
    o->looks_blind = json_is_true(json_object_get(m, "looks_blind"));
    bad = read_files(r, json_object_get(m, "files"));
    if (bad == NULL)
        bad = read_modules(r, json_object_get(m, "modules"));
    if (bad == NULL)
        bad = read_sites(r, json_object_get(m, "sites"));
    if (bad == NULL)
        bad = read_stalls(r, json_object_get(m, "stalls"));
    return bad == NULL ? read_sums(r, m) : bad;
}

struct observed *observed_read(const json_t *m, uint32_t pid, const char **bad)
{
    struct reading r = {.o = calloc(1, sizeof *r.o), .pid = pid};

    *bad = r.o == NULL ? no_memory : read_all(&r, m);
    if (*bad == NULL)
        return r.o;
    observed_free(r.o);
    return NULL;
}

/* --- several --- */

/* Finds equal things in an array by hash: open addressing, of indexes + 1. */
struct finder {
    uint32_t *slot;
    size_t mask;
};

static uint64_t mix(uint64_t h, const void *bytes, size_t n)
{
    for (const unsigned char *p = bytes; n-- != 0; p++)
        h = (h ^ *p) * UINT64_C(0x100000001b3);
    return h;
}

static bool finder_make(struct finder *f, size_t n)
{
    size_t size = 16;

    while (size < 2 * n)
        size *= 2;
    f->slot = calloc(size, sizeof *f->slot);
    f->mask = size - 1;
    return f->slot != NULL;
}

static bool same_file(const struct seen_file *a, const struct seen_file *b)
{
    return a->dev == b->dev && a->ino == b->ino && strcmp(a->path, b->path) == 0;
}

static bool same_site(const struct seen_site *a, const struct seen_site *b)
{
    return a->act == b->act && a->depth == b->depth &&
           memcmp(a->frame, b->frame, sizeof a->frame) == 0;
}

static uint64_t hash_file(const struct seen_file *f)
{
    return mix(f->dev * 31 + f->ino, f->path, strlen(f->path));
}

static uint64_t hash_site(const struct seen_site *s)
{
    return mix(s->act, s->frame, sizeof s->frame);
}

/* The slot of what `same` says yes to, or the free one where it belongs. */
#define FIND(finder, hash, items, item, same)                                                      \
    ({                                                                                             \
        size_t at_ = (hash) & (finder)->mask;                                                      \
        while ((finder)->slot[at_] != 0 && !same(&(items)[(finder)->slot[at_] - 1], (item)))       \
            at_ = (at_ + 1) & (finder)->mask;                                                      \
        &(finder)->slot[at_];                                                                      \
    })

static bool grow(void *array, size_t have, size_t more, size_t size)
{
    void **at = array;
    void *p = have + more < NONE_SEEN ? realloc(*at, (have + more + 1) * size) : NULL;

    if (p != NULL)
        *at = p;
    return p != NULL;
}

/* map[i]: where more's i-th file is in sum. */
static bool add_files(struct observed *sum, const struct observed *more, uint32_t *map)
{
    struct finder f;

    if (!grow(&sum->files, sum->nfiles, more->nfiles, sizeof *sum->files) ||
        !finder_make(&f, (size_t)sum->nfiles + more->nfiles))
        return false;
    for (uint32_t i = 0; i < sum->nfiles; i++)
        *FIND(&f, hash_file(&sum->files[i]), sum->files, &sum->files[i], same_file) = i + 1;
    for (uint32_t i = 0; i < more->nfiles; i++) {
        const struct seen_file *m = &more->files[i];
        uint32_t *slot = FIND(&f, hash_file(m), sum->files, m, same_file);
        struct seen_file *to;

        if (*slot == 0) {
            to = &sum->files[sum->nfiles];
            *to = *m;
            to->path = strdup(m->path);
            if (to->path == NULL) {
                free(f.slot);
                return false;
            }
            *slot = ++sum->nfiles;
        } else {
            to = &sum->files[*slot - 1];
            add_calls(&to->calls, &m->calls);
            to->nameless |= m->nameless;
            to->received |= m->received;
            to->other = to->other != 0 ? to->other : m->other;
            for (int k = 0; k < REMEDY_COUNT; k++) {
                to->remedy_calls[k] = add(to->remedy_calls[k], m->remedy_calls[k]);
                to->remedy_saved_ns[k] = add(to->remedy_saved_ns[k], m->remedy_saved_ns[k]);
            }
        }
        map[i] = *slot - 1;
    }
    free(f.slot);
    return true;
}

static bool add_modules(struct observed *sum, const struct observed *more, uint32_t *map)
{
    if (!grow(&sum->modules, sum->nmodules, more->nmodules, sizeof *sum->modules))
        return false;
    for (uint32_t i = 0; i < more->nmodules; i++) {
        const struct seen_module *m = &more->modules[i];
        uint32_t at = 0;

        while (at < sum->nmodules && (strcmp(sum->modules[at].path, m->path) != 0 ||
                                      strcmp(sum->modules[at].build_id, m->build_id) != 0))
            at++;
        if (at == sum->nmodules) {
            sum->modules[at] = *m;
            sum->modules[at].path = strdup(m->path);
            if (sum->modules[at].path == NULL)
                return false;
            sum->nmodules++;
        }
        map[i] = at;
    }
    return true;
}

static bool add_sites(struct observed *sum, const struct observed *more, uint32_t *map,
                      const uint32_t *modules)
{
    struct finder f;

    if (!grow(&sum->sites, sum->nsites, more->nsites, sizeof *sum->sites) ||
        !finder_make(&f, (size_t)sum->nsites + more->nsites))
        return false;
    for (uint32_t i = 0; i < sum->nsites; i++)
        *FIND(&f, hash_site(&sum->sites[i]), sum->sites, &sum->sites[i], same_site) = i + 1;
    for (uint32_t i = 0; i < more->nsites; i++) {
        struct seen_site site = more->sites[i];
        uint32_t *slot;

        for (uint32_t k = 0; k < site.depth; k++)
            if (site.frame[k].module != NONE_SEEN)
                site.frame[k].module = modules[site.frame[k].module];
        slot = FIND(&f, hash_site(&site), sum->sites, &site, same_site);
        if (*slot == 0) {
            sum->sites[sum->nsites] = site;
            *slot = ++sum->nsites;
        } else {
            struct seen_site *to = &sum->sites[*slot - 1];

            to->calls = add(to->calls, site.calls);
            to->total_ns = add(to->total_ns, site.total_ns);
            if (site.worst_ns > to->worst_ns)
                to->worst_ns = site.worst_ns;
        }
        map[i] = *slot - 1;
    }
    free(f.slot);
    return true;
}

static struct seen_stall moved(const struct seen_stall *s, const uint32_t *files,
                               const uint32_t *sites)
{
    struct seen_stall to = *s;

    to.file = s->file != NONE_SEEN ? files[s->file] : NONE_SEEN;
    to.site = s->site != NONE_SEEN ? sites[s->site] : NONE_SEEN;
    return to;
}

static void add_sums(struct observed *sum, const struct observed *more, const uint32_t *files,
                     const uint32_t *sites)
{
    for (int i = 0; i < ACT_COUNT; i++)
        add_calls(&sum->act[i], &more->act[i]);
    for (int i = 0; i < REMEDY_COUNT; i++) {
        const struct seen_remedy *m = &more->remedy[i];
        struct seen_remedy *to = &sum->remedy[i];

        add_calls(&to->calls, &m->calls);
        to->saved_ns = add(to->saved_ns, m->saved_ns);
        if (m->worst.ns > to->worst.ns) {
            to->worst = moved(&m->worst, files, sites);
            to->worst_would_ns = m->worst_would_ns;
        }
    }
    add_calls(&sum->other_files, &more->other_files);
    if (more->threshold_ns > sum->threshold_ns)
        sum->threshold_ns = more->threshold_ns;
    if (sum->clock[0] == '\0')
        memcpy(sum->clock, more->clock, sizeof sum->clock);
    sum->stalls_seen = add(sum->stalls_seen, more->stalls_seen);
    sum->stalls_traced = add(sum->stalls_traced, more->stalls_traced);
    sum->looks = add(sum->looks, more->looks);
    sum->looks_blind |= more->looks_blind;
}

bool observed_add(struct observed *sum, const struct observed *more)
{
    uint32_t *files = room(more->nfiles, sizeof *files);
    uint32_t *modules = room(more->nmodules, sizeof *modules);
    uint32_t *sites = room(more->nsites, sizeof *sites);
    bool fine = files != NULL && modules != NULL && sites != NULL && add_files(sum, more, files) &&
                add_modules(sum, more, modules) && add_sites(sum, more, sites, modules) &&
                grow(&sum->stalls, sum->nstalls, more->nstalls, sizeof *sum->stalls);

    if (fine) {
        for (uint32_t i = 0; i < more->nstalls; i++)
            sum->stalls[sum->nstalls++] = moved(&more->stalls[i], files, sites);
        order_stalls(sum);
        add_sums(sum, more, files, sites);
    }
    free(files);
    free(modules);
    free(sites);
    return fine;
}

void observed_free(struct observed *o)
{
    if (o == NULL)
        return;
    for (uint32_t i = 0; o->files != NULL && i < o->nfiles; i++)
        free(o->files[i].path);
    for (uint32_t i = 0; o->modules != NULL && i < o->nmodules; i++)
        free(o->modules[i].path);
    free(o->files);
    free(o->modules);
    free(o->sites);
    free(o->stalls);
    free(o);
}
