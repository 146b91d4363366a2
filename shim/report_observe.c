/* SPDX-License-Identifier: MIT */
/*
 * report_observe: what was observed, as the member "observed" of the report (report.h has the
 * format). Counting may go on meanwhile: other threads may still run.
 */
#include <fcntl.h>
#include <string.h>

#include "observe_impl.h"
#include "report.h"
#include "text.h"

/* Of JSON, at most: a histogram of a file that uses every bucket is rare, but nobody's promise. */
#define CALLS_BYTES  (200u + HIST_BUCKETS * 26u)
#define FILE_BYTES   (CALLS_BYTES + 200u + REMEDY_COUNT * 50u)
#define STALL_BYTES  100u
#define SITE_BYTES   (150u + CALLSITE_FRAMES * 26u)
#define MODULE_BYTES 100u
#define ESCAPED      6u /* \u0000 for a byte of a path */

static uint32_t order[FILES_MAX]; /* files, the most stalled first */
static uint32_t place_of[FILES_MAX];
static uint32_t nfiles;
static uint32_t site_place[SITES_MAX];

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* --- small pieces --- */

static void number(struct cfg_text *t, uint64_t n)
{
    cfg_text_number(t, n <= INT64_MAX ? n : INT64_MAX); /* what readers of JSON take */
}

static void index_or_none(struct cfg_text *t, uint64_t n, uint64_t count)
{
    if (n < count)
        number(t, n);
    else
        cfg_text_add(t, "-1");
}

static void member(struct cfg_text *t, const char *key, uint64_t n)
{
    cfg_text_add(t, "\"");
    cfg_text_add(t, key);
    cfg_text_add(t, "\":");
    number(t, n);
    cfg_text_add(t, ",");
}

static void text_member(struct cfg_text *t, const char *key, const char *text)
{
    cfg_text_add(t, "\"");
    cfg_text_add(t, key);
    cfg_text_add(t, "\":");
    text_json(t, text, strlen(text));
}

/* Without its braces; no comma at the end. */
static void put_calls(struct cfg_text *t, const uint64_t *hist, uint64_t total_ns,
                      uint64_t worst_ns, uint64_t stalled, uint64_t stalled_ns)
{
    bool first = true;
    unsigned last = 0;

    for (unsigned i = 0; i < HIST_BUCKETS; i++)
        if (hist[i] != 0)
            last = i;
    if (worst_ns < hist_low(last)) /* of quick ones no exact figure is kept */
        worst_ns = hist_middle(last);
    member(t, "calls", hist_count(hist));
    member(t, "total_ns", total_ns);
    member(t, "worst_ns", worst_ns);
    member(t, "stalled", stalled);
    member(t, "stalled_ns", stalled_ns);
    cfg_text_add(t, "\"hist\":[");
    for (unsigned i = 0; i < HIST_BUCKETS; i++) {
        if (hist[i] == 0)
            continue;
        if (!first)
            cfg_text_add(t, ",");
        first = false;
        number(t, i);
        cfg_text_add(t, ",");
        number(t, hist[i]);
    }
    cfg_text_add(t, "]");
}

static void put_stall(struct cfg_text *t, const struct observed_stall *s)
{
    const uint64_t head[] = {s->start_ns, s->ns, s->act};

    cfg_text_add(t, "[");
    for (unsigned i = 0; i < 3; i++) {
        number(t, head[i]);
        cfg_text_add(t, ",");
    }
    index_or_none(t, s->remedy, REMEDY_COUNT);
    cfg_text_add(t, ",");
    index_or_none(t, s->file < FILES_MAX ? place_of[s->file] : nfiles, nfiles);
    cfg_text_add(t, ",");
    index_or_none(t, s->site < SITES_MAX ? site_place[s->site] : SITE_NONE, SITES_MAX);
    cfg_text_add(t, ",");
    number(t, s->tid);
    cfg_text_add(t, "]");
}

static void names(struct cfg_text *t, const char *key, unsigned count, bool acts)
{
    cfg_text_add(t, "\"");
    cfg_text_add(t, key);
    cfg_text_add(t, "\":[");
    for (unsigned i = 0; i < count; i++) {
        cfg_text_add(t, i == 0 ? "\"" : ",\"");
        cfg_text_add(t, acts ? act_name((enum act)i) : remedy_name((enum remedy)i));
        cfg_text_add(t, "\"");
    }
    cfg_text_add(t, "],\n");
}

/* --- members --- */

static void put_acts(struct cfg_text *t)
{
    static uint64_t hist[HIST_BUCKETS];

    cfg_text_add(t, "\"calls\":[\n");
    for (unsigned act = 0; act < ACT_COUNT; act++) {
        const struct observed_act *a = &observation->act[act];
        uint64_t total = 0;

        memset(hist, 0, sizeof hist);
        for (unsigned s = 0; s < SHARDS_OWN + SHARDS_SHARED; s++) {
            const struct shard *shard = &observation->shard[s];

            total += rl_load_64(&shard->total_ns[act]);
            for (unsigned i = 0; i < HIST_BUCKETS; i++)
                hist[i] += rl_load_64(&shard->hist[act][i]);
        }
        cfg_text_add(t, "{");
        put_calls(t, hist, total, rl_load_64(&a->worst_ns), a->stalled, a->stalled_ns);
        cfg_text_add(t, act + 1 < ACT_COUNT ? "},\n" : "}],\n");
    }
}

static void put_cures(struct cfg_text *t)
{
    cfg_text_add(t, "\"cures\":[\n");
    for (unsigned i = 0; i < REMEDY_COUNT; i++) {
        const struct observed_cure *c = &observation->cure[i];

        cfg_text_add(t, "{");
        member(t, "saved_ns", c->saved_ns);
        if (c->worst.ns != 0) {
            member(t, "worst_would_ns", c->would_ns);
            cfg_text_add(t, "\"worst\":");
            put_stall(t, &c->worst);
            cfg_text_add(t, ",");
        }
        put_calls(t, c->hist, c->total_ns, c->worst_ns, c->stalled, c->stalled_ns);
        cfg_text_add(t, i + 1 < REMEDY_COUNT ? "},\n" : "}],\n");
    }
}

static uint64_t total_of(const struct observed_file *f)
{
    return hist_sum(f->hist);
}

static void put_file(struct cfg_text *t, const struct observed_file *f)
{
    bool first = true;

    text_member(t, "path", observation->text + f->path);
    cfg_text_add(t, ",");
    member(t, "dev", f->dev);
    member(t, "ino", f->ino);
    cfg_text_add(t, f->nameless ? "\"nameless\":true," : "\"nameless\":false,");
    cfg_text_add(t, f->received ? "\"received\":true," : "\"received\":false,");
    member(t, "other", f->other);
    cfg_text_add(t, "\"by\":[");
    for (unsigned i = 0; i < REMEDY_COUNT; i++) {
        if (f->by_calls[i] == 0)
            continue;
        if (!first)
            cfg_text_add(t, ",");
        first = false;
        number(t, i);
        cfg_text_add(t, ",");
        number(t, f->by_calls[i]);
        cfg_text_add(t, ",");
        number(t, f->by_saved_ns[i]);
    }
    cfg_text_add(t, "],");
    put_calls(t, f->hist, total_of(f), f->worst_ns, f->stalled, f->stalled_ns);
}

static void put_files(struct cfg_text *t)
{
    const struct observed_file *others = &observation->file[FILE_OTHERS];

    cfg_text_add(t, "\"files\":[\n");
    for (uint32_t i = 0; i < nfiles; i++) {
        cfg_text_add(t, "{");
        put_file(t, &observation->file[order[i]]);
        cfg_text_add(t, i + 1 < nfiles ? "},\n" : "}\n");
    }
    cfg_text_add(t, "],\n\"other_files\":{");
    put_calls(t, others->hist, total_of(others), others->worst_ns, others->stalled,
              others->stalled_ns);
    cfg_text_add(t, "},\n");
}

static void put_modules(struct cfg_text *t)
{
    static const char digit[] = "0123456789abcdef";
    uint64_t n = least(rl_load_64(&observation->modules_used), MODULES_MAX);

    cfg_text_add(t, "\"modules\":[\n");
    for (uint64_t i = 0; i < n; i++) {
        const struct observed_module *m = &observation->module[i];
        char id[2 * sizeof m->build_id + 1];
        char exe[CFG_PATH_BYTES] = "";
        const char *path = observation->text + m->path;

        if (m->path == 0) { /* the program itself has no name there */
            long len =
                rl_raw(SYS_readlinkat, AT_FDCWD, "/proc/thread-self/exe", exe, sizeof exe - 1);

            exe[len > 0 ? len : 0] = '\0';
            path = exe;
        }
        for (unsigned b = 0; b < m->build_id_bytes; b++) {
            id[2 * b] = digit[m->build_id[b] >> 4];
            id[2 * b + 1] = digit[m->build_id[b] & 15];
        }
        id[2 * m->build_id_bytes] = '\0';
        cfg_text_add(t, "{");
        text_member(t, "path", path);
        cfg_text_add(t, ",");
        text_member(t, "build_id", id);
        cfg_text_add(t, i + 1 < n ? "},\n" : "}\n");
    }
    cfg_text_add(t, "],\n");
}

static void put_sites(struct cfg_text *t)
{
    bool first = true;

    cfg_text_add(t, "\"sites\":[\n");
    for (unsigned i = 0; i < SITES_MAX; i++) {
        const struct observed_site *s = &observation->site[i];

        if (site_place[i] == SITE_NONE)
            continue;
        cfg_text_add(t, first ? "{" : ",\n{");
        first = false;
        member(t, "act", s->act);
        member(t, "calls", s->calls);
        member(t, "total_ns", s->total_ns);
        member(t, "worst_ns", s->worst_ns);
        cfg_text_add(t, s->cut != 0 ? "\"cut\":true,\"frames\":[" : "\"cut\":false,\"frames\":[");
        for (unsigned f = 0; f < s->depth; f++) {
            if (f != 0)
                cfg_text_add(t, ",");
            index_or_none(t, s->frame[f].module, MODULES_MAX);
            cfg_text_add(t, ",");
            number(t, s->frame[f].address);
        }
        cfg_text_add(t, "]}");
    }
    cfg_text_add(t, "],\n");
}

static void put_stalls(struct cfg_text *t)
{
    uint64_t seen = rl_load_64(&observation->stalls_seen);
    bool first = true;

    cfg_text_add(t, "\"stalls\":[\n");
    for (uint64_t i = seen > STALLS_MAX ? seen - STALLS_MAX : 0; i < seen; i++) {
        const struct observed_stall *s = &observation->stall[i % STALLS_MAX];

        if (__atomic_load_n(&s->ns, __ATOMIC_ACQUIRE) == 0)
            continue;
        if (!first)
            cfg_text_add(t, ",\n");
        first = false;
        put_stall(t, s);
    }
    cfg_text_add(t, "],\n");
    member(t, "stalls_seen", seen);
    member(t, "stalls_traced", rl_load_64(&observation->stalls_traced));
}

/* --- the whole --- */

static bool before(uint32_t a, uint32_t b)
{
    const struct observed_file *x = &observation->file[a], *y = &observation->file[b];

    return x->stalled_ns != y->stalled_ns ? x->stalled_ns > y->stalled_ns
                                          : x->worst_ns > y->worst_ns;
}

static void sift(uint32_t at, uint32_t n)
{
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        uint32_t moved = order[at];

        if (child + 1 < n && before(order[child], order[child + 1]))
            child++;
        if (!before(moved, order[child]))
            return;
        order[at] = order[child];
        order[child] = moved;
    }
}

/* A heap whose top, the least stalled, goes to the end; qsort may allocate. */
static void sort_files(void)
{
    for (uint32_t i = nfiles / 2; i-- > 0;)
        sift(i, nfiles);
    for (uint32_t n = nfiles; n-- > 1;) {
        uint32_t last = order[0];

        order[0] = order[n];
        order[n] = last;
        sift(0, n);
    }
}

static void prepare(void)
{
    uint64_t used = least(rl_load_64(&observation->files_used), FILES_MAX);
    uint32_t sites = 0;

    observe_look();
    observe_name_open();
    nfiles = 0;
    for (uint32_t i = 1; i < used; i++) {
        const struct observed_file *f = &observation->file[i];

        place_of[i] = UINT32_MAX;
        if (f->state == READY && (hist_count(f->hist) != 0 || f->stalled != 0))
            order[nfiles++] = i;
    }
    sort_files();
    place_of[FILE_OTHERS] = UINT32_MAX;
    for (uint32_t i = 0; i < nfiles; i++)
        place_of[order[i]] = i;
    for (unsigned i = 0; i < SITES_MAX; i++)
        site_place[i] = observation->site[i].state == READY ? sites++ : SITE_NONE;
}

static size_t bytes(void)
{
    return (ACT_COUNT + REMEDY_COUNT + 1) * CALLS_BYTES + (size_t)nfiles * FILE_BYTES +
           least(rl_load_64(&observation->stalls_seen), STALLS_MAX) * STALL_BYTES +
           SITES_MAX * SITE_BYTES + MODULES_MAX * (MODULE_BYTES + ESCAPED * CFG_PATH_BYTES) +
           ESCAPED * TEXT_BYTES + 4096;
}

static void put(struct cfg_text *t)
{
    cfg_text_add(t, "{");
    text_member(t, "clock", clock_used.counter ? "tsc" : "vdso");
    cfg_text_add(t, ",");
    member(t, "threshold_ns", observe_threshold_ns);
    names(t, "acts", ACT_COUNT, true);
    names(t, "remedies", REMEDY_COUNT, false);
    cfg_text_add(t, "\"bucket_bits\":[");
    number(t, HIST_FIRST_BITS);
    cfg_text_add(t, ",");
    number(t, HIST_STEP_BITS);
    cfg_text_add(t, "],\n");
    put_acts(t);
    put_cures(t);
    put_files(t);
    put_modules(t);
    put_sites(t);
    put_stalls(t);
    member(t, "looks", rl_load_64(&observation->looks));
    cfg_text_add(t, rl_load_64(&observation->looks_blind) != 0 ? "\"looks_blind\":true}"
                                                               : "\"looks_blind\":false}");
}

void observe_reports(void)
{
    report_extra = (struct report_extra){prepare, bytes, put};
}
