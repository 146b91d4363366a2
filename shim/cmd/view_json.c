/* SPDX-License-Identifier: MIT */
/*
 * view_json: one or two runs for programs; see view.h. The members of a report, added together:
 * those of "observed" by name rather than by number, with the middle of histogram buckets in ns.
 */
#include <string.h>

#include "../../include/rlshim/control.h"
#include "../text.h"
#include "view.h"

static json_t *number(uint64_t n)
{
    return json_integer(n <= INT64_MAX ? (json_int_t)n : INT64_MAX);
}

/* Bytes that are no text become it. */
static json_t *text(const char *s)
{
    char safe[8192];
    struct cfg_text t = cfg_text_in(safe, sizeof safe);
    json_t *v = json_string(s);

    if (v != NULL)
        return v;
    text_safe(&t, s, strlen(s));
    v = json_string(safe);
    return v != NULL ? v : json_string("?");
}

static json_t *calls(const struct seen_calls *c)
{
    json_t *hist = json_array();

    for (unsigned i = 0; i < HIST_BUCKETS; i++) {
        json_t *pair;

        if (c->hist[i] == 0)
            continue;
        pair = json_array();
        json_array_append_new(pair, number(hist_middle(i)));
        json_array_append_new(pair, number(c->hist[i]));
        json_array_append_new(hist, pair);
    }
    return json_pack("{s:o s:o s:o s:o s:o s:o s:o s:o}", "calls", number(c->calls), "total_ns",
                     number(c->total_ns), "worst_ns", number(c->worst_ns), "stalled",
                     number(c->stalled), "stalled_ns", number(c->stalled_ns), "p50_ns",
                     number(view_median(c)), "p99_ns", number(view_p99(c)), "histogram", hist);
}

static json_t *stall(const struct observed *o, const struct seen_stall *s)
{
    json_t *v =
        json_pack("{s:o s:o s:s s:i s:i}", "start_ns", number(s->start_ns), "ns", number(s->ns),
                  "call", view_act_name[s->act], "pid", (int)s->pid, "tid", (int)s->tid);

    if (s->remedy < REMEDY_COUNT)
        json_object_set_new(v, "cure", json_string(view_remedies[s->remedy].name));
    if (s->file != NONE_SEEN)
        json_object_set_new(v, "file", text(o->files[s->file].path));
    if (s->site != NONE_SEEN)
        json_object_set_new(v, "site", number(s->site));
    return v;
}

static json_t *sites(const struct observed *o)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < o->nsites; i++) {
        const struct seen_site *s = &o->sites[i];
        json_t *frames = json_array();

        for (uint32_t k = 0; k < s->depth; k++) {
            char line[2048];
            struct cfg_text t = cfg_text_in(line, sizeof line);

            view_frame(&t, o, &s->frame[k]);
            json_array_append_new(frames, text(line));
        }
        json_array_append_new(list,
                              json_pack("{s:s s:o s:o s:o s:o}", "call",
                                        s->act != NONE_SEEN ? view_act_name[s->act] : "", "calls",
                                        number(s->calls), "total_ns", number(s->total_ns),
                                        "worst_ns", number(s->worst_ns), "frames", frames));
    }
    view_frames_end();
    return list;
}

static json_t *seen(const struct observed *o)
{
    json_t *acts = json_object(), *cures = json_array(), *files = json_array();
    json_t *stalls = json_array();
    int order[REMEDY_COUNT], n = view_order_remedies(o, order);

    for (int i = 0; i < ACT_COUNT; i++)
        if (o->act[i].calls != 0)
            json_object_set_new(acts, view_act_name[i], calls(&o->act[i]));
    for (int i = 0; i < n; i++) {
        const struct seen_remedy *r = &o->remedy[order[i]];
        json_t *v = calls(&r->calls);

        json_object_set_new(v, "cure", json_string(view_remedies[order[i]].name));
        json_object_set_new(v, "setting", json_string(view_key(order[i])));
        json_object_set_new(v, "value", json_string(view_remedies[order[i]].value));
        json_object_set_new(v, "effective", json_boolean(!view_not_yet(order[i])));
        json_object_set_new(v, "saved_ns", number(r->saved_ns));
        if (r->worst.ns != 0) {
            json_object_set_new(v, "worst", stall(o, &r->worst));
            json_object_set_new(v, "worst_would_ns", number(r->worst_would_ns));
        }
        json_array_append_new(cures, v);
    }
    for (uint32_t i = 0; i < o->nfiles; i++) {
        const struct seen_file *f = &o->files[i];
        json_t *v = calls(&f->calls);

        json_object_set_new(v, "path", text(f->path));
        json_object_set_new(v, "ino", number(f->ino));
        json_object_set_new(v, "nameless", json_boolean(f->nameless));
        json_object_set_new(v, "received", json_boolean(f->received));
        json_object_set_new(v, "other", number(f->other));
        json_array_append_new(files, v);
    }
    for (uint32_t i = 0; i < o->nstalls; i++)
        json_array_append_new(stalls, stall(o, &o->stalls[i]));
    return json_pack("{s:o s:o s:o s:o s:o s:o s:o}", "threshold_ns", number(o->threshold_ns),
                     "calls", acts, "cures", cures, "files", files, "sites", sites(o), "stalls",
                     stalls, "stalls_seen", number(o->stalls_seen));
}

static json_t *run_of(const struct run *run)
{
    json_t *counters = json_object(), *settled = json_object(), *settings = json_object();
    const struct report *r = &run->sum;
    json_t *v;

    for (int i = 0; i < STAT_COUNT; i++)
        json_object_set_new(counters, stat_name((enum stat_id)i), number(r->value[i]));
    for (int i = 0; i < WHY_COUNT; i++)
        json_object_set_new(settled, why_name((enum why)i), number(r->settled[i]));
    for (int i = 0; i < CFG_ROWS; i++)
        if (r->setting[i][0] != '\0')
            json_object_set_new(settings, cfg_rows[i].key, text(r->setting[i]));
    v = json_pack("{s:o s:o s:i s:o s:o s:o s:o s:o}", "program",
                  text(r->mixed_programs ? "(several)" : r->program), "host",
                  text(r->mixed_hosts ? "(several)" : r->host), "processes", (int)r->processes,
                  "started_ns", number(r->started_ns), "ended_ns", number(r->ended_ns), "settings",
                  settings, "counters", counters, "settled", settled);
    if (v != NULL && run->seen != NULL)
        json_object_set_new(v, "observed", seen(run->seen));
    return v;
}

bool view_json(FILE *to, const struct run *run, const struct run *before)
{
    json_t *root = json_pack("{s:s s:i s:s}", "schema", "rlshim-summary", "version", 1, "rlshim",
                             RLSHIM_VERSION);
    bool fine = root != NULL;

    if (fine && before != NULL)
        fine = json_object_set_new(root, "before", run_of(before)) == 0;
    if (fine)
        fine = json_object_set_new(root, before != NULL ? "after" : "run", run_of(run)) == 0;
    if (fine)
        fine = json_dumpf(root, to, JSON_INDENT(1)) == 0;
    json_decref(root);
    fputs("\n", to);
    return fine;
}
