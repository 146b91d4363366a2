/* SPDX-License-Identifier: MIT */
/*
 * view_html: one or two runs as one page that needs nothing else: no script, no font, no picture
 * from elsewhere. Light and dark by what the reader's system prefers. See view.h.
 *
 * Colours: one hue for the run, grey for the run before it; marks and text have 4.5:1 on both
 * grounds. What colour tells is told in words as well.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../text.h"
#include "view.h"

enum { FILES_SHOWN = 50, SITES_SHOWN = 20, DOTS_MAX = 4000, PLOTS_MAX = 6, FRAMES_SHOWN = 8 };
enum { W = 720, H = 190, LEFT = 56, RIGHT = 12, TOP = 12, BOTTOM = 34 };

static FILE *out;

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fbfbfa;--fg:#1c1e21;--dim:#5d6570;--line:#d8dbe0;"
    "--card:#fff;--run:#1f6fb2;--old:#8a8f98;--bad:#b3261e}"
    "@media(prefers-color-scheme:dark){:root{--bg:#15171a;--fg:#e8eaed;--dim:#a0a7b1;"
    "--line:#363b43;--card:#1d2024;--run:#6cb2f0;--old:#7d848f;--bad:#ff8a80}}"
    "*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);"
    "font:15px/1.5 system-ui,sans-serif}main{max-width:820px;margin:0 auto;padding:24px 20px 64px}"
    "h1{font-size:1.5rem;margin:0 0 4px}h2{font-size:1.15rem;margin:40px 0 8px}"
    "h3{font-size:1rem;margin:24px 0 4px}p{margin:4px 0 8px}.dim{color:var(--dim)}"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;"
    "font-variant-numeric:tabular-nums}th,td{padding:4px 8px;text-align:right;"
    "border-bottom:1px solid var(--line);white-space:nowrap}th{font-weight:600;color:var(--dim)}"
    "th:first-child,td:first-child{text-align:left;padding-left:0}"
    "td.path{text-align:left;white-space:normal;overflow-wrap:anywhere}"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:8px;"
    "padding:12px 16px;margin:12px 0}.card h3{margin:0 0 4px}"
    "pre{margin:8px 0 0;padding:8px 12px;background:var(--bg);border:1px solid var(--line);"
    "border-radius:6px;overflow-x:auto;font:13px/1.45 ui-monospace,monospace}"
    "svg{display:block;width:100%;height:auto}svg text{fill:var(--dim);font-size:11px}"
    ".axis{stroke:var(--line);stroke-width:1}.run{fill:var(--run)}.old{fill:var(--old)}"
    ".dot{fill:var(--run);fill-opacity:.65}.dot.old{fill:var(--old)}"
    ".key{display:inline-block;width:10px;height:10px;border-radius:2px;margin:0 4px 0 12px}"
    ".big{font-size:1.4rem;font-weight:650}.better{color:var(--run)}.worse{color:var(--bad)}"
    "summary{cursor:pointer;color:var(--dim)}";

/* Somebody else's bytes inside an element or a quoted attribute. */
static void esc(const char *s)
{
    char safe[8192];
    struct cfg_text t = cfg_text_in(safe, sizeof safe);

    text_safe(&t, s, strlen(s));
    for (const char *p = safe; *p != '\0'; p++) {
        if (*p == '<')
            fputs("&lt;", out);
        else if (*p == '>')
            fputs("&gt;", out);
        else if (*p == '&')
            fputs("&amp;", out);
        else if (*p == '"')
            fputs("&quot;", out);
        else
            putc(*p, out);
    }
}

static void put_time(uint64_t ns)
{
    char buf[64];
    struct cfg_text t = cfg_text_in(buf, sizeof buf);

    text_time(&t, ns);
    fputs(buf, out);
}

static void put_count(uint64_t n)
{
    char buf[64];
    struct cfg_text t = cfg_text_in(buf, sizeof buf);

    text_grouped(&t, n);
    fputs(buf, out);
}

static void cell_time(uint64_t ns)
{
    fputs("<td>", out);
    if (ns != 0)
        put_time(ns);
    else
        fputs("&ndash;", out);
    fputs("</td>", out);
}

static void cell_count(uint64_t n)
{
    fputs("<td>", out);
    put_count(n);
    fputs("</td>", out);
}

/* --- head --- */

static uint64_t span(const struct report *r)
{
    return r->ended_ns > r->started_ns ? r->ended_ns - r->started_ns : 0;
}

static void put_run(const struct report *r)
{
    char when[64];
    struct cfg_text t = cfg_text_in(when, sizeof when);

    text_utc(&t, r->started_ns);
    if (r->processes > 1)
        fprintf(out, "%u processes of ", r->processes);
    esc(r->mixed_programs ? "several programs" : r->program);
    fputs(" on ", out);
    esc(r->mixed_hosts ? "several hosts" : r->host);
    fputs(", Linux ", out);
    esc(r->mixed_kernels ? "of several versions" : r->kernel);
    fprintf(out, ", %s, ran ", when);
    put_time(span(r));
    for (int i = 0, any = 0; i < CFG_ROWS; i++) {
        if (r->setting[i][0] == '\0' || strcmp(r->setting[i], cfg_rows[i].builtin) == 0 ||
            cfg_rows[i].later || cfg_rows[i].path_offset != 0)
            continue;
        fputs(any++ == 0 ? "; " : ", ", out);
        esc(cfg_rows[i].key);
        fputs(" = ", out);
        esc(r->setting[i]);
    }
}

static void put_head(const struct run *run, const struct run *before)
{
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
          "<meta name=\"generator\" content=\"rlshim\"><title>",
          out);
    esc(run->sum.mixed_programs ? "several programs" : run->sum.program);
    fprintf(out, ": stalls</title><style>%s</style></head><body><main>\n<h1>", style);
    esc(run->sum.mixed_programs ? "Several programs" : run->sum.program);
    fputs(": where file calls stall</h1>\n", out);
    if (before != NULL) {
        fputs("<p><span class=\"key\" style=\"background:var(--old);margin-left:0\"></span>before: "
              "<span class=\"dim\">",
              out);
        put_run(&before->sum);
        fputs("</span></p>\n<p><span class=\"key\" style=\"background:var(--run);margin-left:0\">"
              "</span>after: <span class=\"dim\">",
              out);
    } else {
        fputs("<p><span class=\"dim\">", out);
    }
    put_run(&run->sum);
    fputs("</span></p>\n", out);
}

/* --- tables --- */

static uint64_t stalled_in_all(const struct observed *o)
{
    uint64_t ns = 0;

    for (int i = 0; i < ACT_COUNT; i++)
        ns += o->act[i].stalled_ns;
    return ns;
}

static void put_acts(const struct observed *o)
{
    int order[ACT_COUNT], n = view_order_acts(o, order);

    fputs("<h2>Calls</h2>\n<div class=\"scroll\"><table><tr><th>call</th><th>calls</th>"
          "<th>in all</th><th>median</th><th>p99</th><th>longest</th><th>stalled</th></tr>\n",
          out);
    for (int i = 0; i < n; i++) {
        const struct seen_calls *c = &o->act[order[i]];

        fprintf(out, "<tr><td>%s</td>", view_act_text[order[i]]);
        cell_count(c->calls);
        cell_time(c->total_ns);
        cell_time(view_median(c));
        cell_time(view_p99(c));
        cell_time(c->worst_ns);
        cell_time(c->stalled_ns);
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static void cell_pair(uint64_t before, uint64_t after)
{
    double times = before != 0 && after != 0 ? (double)before / (double)after : 1;

    cell_time(before);
    cell_time(after);
    if (before < 1000000 && after < 1000000)
        times = 1; /* nobody waits for either */
    if (times >= 1.25)
        fprintf(out, "<td class=\"better\">%.1f &times; less</td>", times);
    else if (times <= 0.8)
        fprintf(out, "<td class=\"worse\">%.1f &times; more</td>", 1 / times);
    else
        fputs("<td></td>", out);
}

static void put_acts_pair(const struct observed *a, const struct observed *b)
{
    int order[ACT_COUNT], n = view_order_acts(a, order);

    fputs("<h2>Calls, before and after</h2>\n<div class=\"scroll\"><table><tr><th>call</th>"
          "<th>stalled before</th><th>after</th><th></th><th>longest before</th><th>after</th>"
          "<th></th></tr>\n",
          out);
    for (int i = 0; i < n; i++) {
        const struct seen_calls *x = &a->act[order[i]], *y = &b->act[order[i]];

        fprintf(out, "<tr><td>%s</td>", view_act_text[order[i]]);
        cell_pair(x->stalled_ns, y->stalled_ns);
        cell_pair(x->worst_ns, y->worst_ns);
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static void put_remedies(const struct observed *o)
{
    int order[REMEDY_COUNT], n = view_order_remedies(o, order);
    char line[4096], pattern[4096];

    if (n == 0)
        return;
    fputs("<h2>What would help, the most first</h2>\n", out);
    for (int i = 0; i < n; i++) {
        const struct seen_remedy *r = &o->remedy[order[i]];
        const struct view_remedy *v = &view_remedies[order[i]];
        const struct seen_file *file = NULL;
        struct cfg_text t = cfg_text_in(line, sizeof line);

        fprintf(out, "<div class=\"card\"><h3>%s = %s</h3><p>About <span class=\"big\">",
                view_key(order[i]), v->value);
        put_time(r->saved_ns);
        fputs("</span> of ", out);
        put_time(r->calls.total_ns);
        fputs(" in ", out);
        put_count(r->calls.calls);
        fprintf(out, " call%s: %s.</p>", r->calls.calls == 1 ? "" : "s", v->cure);
        if (r->worst.ns != 0) {
            view_worst(&t, o, order[i]);
            fputs("<p class=\"dim\">The longest: ", out);
            esc(line);
            fputs(".</p>", out);
        }
        if (strcmp(cfg_rows[v->row].builtin, v->value) == 0 && v->others[0] == '\0') {
            fputs("<p class=\"dim\">It is on unless rlshim.conf says otherwise.</p>", out);
        } else if (v->others[0] != '\0' && view_others(o, order[i], &file) == 2) {
            fputs("<p>It needs files that no other program uses, and others were seen with ", out);
            esc(file->path[0] != '\0' ? file->path : "some");
            fputs(".</p>", out);
        } else {
            view_pattern(o, order[i], pattern, sizeof pattern);
            fputs("<pre>", out);
            if (pattern[0] != '\0' && cfg_rows[v->row].per_path) {
                fputs("[path ", out);
                esc(pattern);
                fputs("]\n", out);
            }
            fprintf(out, "%s = %s\n%s</pre>", view_key(order[i]), v->value, v->others);
        }
        fputs("</div>\n", out);
    }
}

static void put_files(const struct observed *o)
{
    uint32_t order[FILES_SHOWN], n = view_top_files(o, order, FILES_SHOWN);

    if (n == 0)
        return;
    fprintf(out,
            "<h2>Files</h2>\n<p class=\"dim\">The most stalled first; %u of %u.</p>"
            "<div class=\"scroll\"><table><tr><th>calls</th><th>stalled</th><th>longest</th>"
            "<th style=\"text-align:left\">file</th></tr>\n",
            n, o->nfiles);
    for (uint32_t i = 0; i < n; i++) {
        const struct seen_file *f = &o->files[order[i]];

        fputs("<tr>", out);
        cell_count(f->calls.calls);
        cell_time(f->calls.stalled_ns);
        cell_time(f->calls.worst_ns);
        fputs("<td class=\"path\">", out);
        if (f->path[0] != '\0')
            esc(f->path);
        else
            fprintf(out, "inode %llu", (unsigned long long)f->ino);
        fputs(f->nameless ? " <span class=\"dim\">(no name)</span>" : "", out);
        if (f->other != 0)
            fprintf(out, " <span class=\"dim\">(process %u too)</span>", f->other);
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static void put_sites(const struct observed *o)
{
    uint32_t order[SITES_SHOWN], n = view_top_sites(o, order, SITES_SHOWN);
    char line[2048];

    if (n == 0)
        return;
    fprintf(out,
            "<h2>Where slow calls were made</h2>\n<p class=\"dim\">The most time first; %u of "
            "%u places.</p>\n",
            n, o->nsites);
    for (uint32_t i = 0; i < n; i++) {
        const struct seen_site *s = &o->sites[order[i]];

        fprintf(out, "<div class=\"card\"><h3>%s: ",
                s->act != NONE_SEEN ? view_act_text[s->act] : "call");
        put_time(s->total_ns);
        fputs("</h3><p class=\"dim\">", out);
        put_count(s->calls);
        fprintf(out, " call%s, the longest ", s->calls == 1 ? "" : "s");
        put_time(s->worst_ns);
        fputs("</p><pre>", out);
        for (uint32_t k = 0; k < s->depth && k < FRAMES_SHOWN; k++) {
            struct cfg_text t = cfg_text_in(line, sizeof line);

            if (!view_frame(&t, o, &s->frame[k]) && k != 0)
                break;
            fputs(k == 0 ? "at " : "by ", out);
            esc(line);
            putc('\n', out);
        }
        fputs("</pre></div>\n", out);
    }
}

/* --- pictures --- */

static void put_line(double x1, double y1, double x2, double y2)
{
    fprintf(out, "<line class=\"axis\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", x1, y1,
            x2, y2);
}

/* A duration as a label: 1 us, 10 ms. */
static void put_decade(int power)
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    int u = power / 3 < 3 ? power / 3 : 3;
    int rest = power - 3 * u;

    fprintf(out, "%s %s", rest == 0 ? "1" : rest == 1 ? "10" : rest == 2 ? "100" : "1000", unit[u]);
}

struct scale {
    double low, high; /* log10 of ns */
};

static double at_log(const struct scale *s, double ns, double from, double to)
{
    double v = log10(ns > 1 ? ns : 1);

    v = v < s->low ? s->low : v > s->high ? s->high : v;
    return from + (v - s->low) / (s->high - s->low) * (to - from);
}

/* The time in the calls of each bucket; calls in the tooltips. */
static void put_bars(const struct seen_calls *c, const struct scale *s, double most, bool old,
                     bool pair)
{
    for (unsigned i = 0; i < HIST_BUCKETS; i++) {
        double low = (double)hist_low(i), high = (double)hist_low(i + 1);
        double x = at_log(s, low, LEFT, W - RIGHT), x2 = at_log(s, high, LEFT, W - RIGHT);
        double ns = (double)c->hist[i] * (double)hist_middle(i), h, w = x2 - x - 1;

        if (c->hist[i] == 0)
            continue;
        h = ns / most * (H - TOP - BOTTOM);
        h = h < 1 ? 1 : h;
        if (pair) {
            w = (x2 - x) / 2 - 0.5;
            x += old ? 0 : w + 0.5;
        }
        fprintf(out,
                "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>",
                old ? "old" : "run", x, H - BOTTOM - h, w > 0.8 ? w : 0.8, h);
        if (pair)
            fputs(old ? "before: " : "after: ", out);
        put_count(c->hist[i]);
        fputs(c->hist[i] == 1 ? " call of " : " calls of ", out);
        put_time(hist_low(i));
        fputs(" to ", out);
        put_time(hist_low(i + 1));
        fputs(", together ", out);
        put_time((uint64_t)ns);
        fputs("</title></rect>", out);
    }
}

static double most_in_a_bucket(const struct seen_calls *c)
{
    double most = 0;

    for (unsigned i = 0; c != NULL && i < HIST_BUCKETS; i++)
        most = fmax(most, (double)c->hist[i] * (double)hist_middle(i));
    return most;
}

static struct scale span_of(const struct seen_calls *c, const struct seen_calls *before)
{
    struct scale s = {12, 0};

    for (int k = 0; k < 2; k++) {
        const struct seen_calls *from = k == 0 ? c : before;

        for (unsigned i = 0; from != NULL && i < HIST_BUCKETS; i++) {
            if (from->hist[i] == 0)
                continue;
            s.low = fmin(s.low, log10(hist_low(i) > 1 ? (double)hist_low(i) : 1));
            s.high = fmax(s.high, log10((double)hist_low(i + 1)));
        }
    }
    s.low = floor(s.low);
    s.high = ceil(s.high);
    if (s.high < s.low + 1)
        s.high = s.low + 1;
    return s;
}

static void put_histogram(int act, const struct observed *o, const struct observed *before)
{
    const struct seen_calls *c = &o->act[act], *old = before != NULL ? &before->act[act] : NULL;
    struct scale s = span_of(c, old);
    double most = fmax(most_in_a_bucket(c), most_in_a_bucket(old));

    fprintf(out,
            "<h3>%s</h3>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Histogram: time "
            "in calls by their duration\">",
            view_act_text[act], W, H);
    for (int p = (int)s.low; p <= (int)s.high; p++) {
        double x = at_log(&s, pow(10, p), LEFT, W - RIGHT);

        put_line(x, TOP, x, H - BOTTOM + 4);
        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">", x, H - BOTTOM + 18,
                p == (int)s.high ? "end" : "middle");
        put_decade(p);
        fputs("</text>", out);
    }
    put_line(LEFT, H - BOTTOM, W - RIGHT, H - BOTTOM);
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LEFT - 6, TOP + 9);
    put_time((uint64_t)most);
    fprintf(out, "</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">0</text>", LEFT - 6,
            H - BOTTOM);
    if (old != NULL)
        put_bars(old, &s, most, true, true);
    put_bars(c, &s, most, false, old != NULL);
    fputs("</svg>\n", out);
}

static void put_histograms(const struct observed *o, const struct observed *before)
{
    const struct observed *by = before != NULL ? before : o;
    int order[ACT_COUNT], n = view_order_acts(by, order);

    if (n == 0)
        return;
    fputs("<h2>How long calls took</h2>\n<p class=\"dim\">Height: the time spent in calls of that "
          "duration. A few long calls weigh as much as many short ones.</p>\n",
          out);
    for (int i = 0; i < n && i < PLOTS_MAX; i++)
        if (i == 0 || by->act[order[i]].stalled != 0)
            put_histogram(order[i], o, before);
}

struct dots {
    const struct observed *o;
    uint64_t begin;
    bool old;
};

static int longest_first(const void *a, const void *b)
{
    const struct seen_stall *x = *(const struct seen_stall *const *)a;
    const struct seen_stall *y = *(const struct seen_stall *const *)b;

    return x->ns > y->ns ? -1 : x->ns < y->ns;
}

static void put_dots(const struct dots *d, uint64_t whole, const struct scale *s)
{
    const struct observed *o = d->o;
    const struct seen_stall **order = malloc((o->nstalls + 1) * sizeof *order);
    uint32_t n = o->nstalls < DOTS_MAX ? o->nstalls : DOTS_MAX;

    if (order == NULL)
        return;
    for (uint32_t i = 0; i < o->nstalls; i++)
        order[i] = &o->stalls[i];
    qsort(order, o->nstalls, sizeof *order, longest_first);
    for (uint32_t i = 0; i < n; i++) {
        const struct seen_stall *st = order[i];
        double since = st->start_ns > d->begin ? (double)(st->start_ns - d->begin) : 0;
        double x = LEFT + since / (double)whole * (W - RIGHT - LEFT);
        double w = (double)st->ns / (double)whole * (W - RIGHT - LEFT);

        x = x > W - RIGHT ? W - RIGHT : x;
        w = w > W - RIGHT - x ? W - RIGHT - x : w;
        fprintf(
            out,
            "<rect class=\"dot%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"4\" rx=\"1.5\">"
            "<title>%s",
            d->old ? " old" : "", x, at_log(s, (double)st->ns, H - BOTTOM, TOP) - 2, w > 3 ? w : 3,
            view_act_text[st->act]);
        if (st->file != NONE_SEEN && o->files[st->file].path[0] != '\0') {
            fputs(" of ", out);
            esc(o->files[st->file].path);
        }
        fputs(": ", out);
        put_time(st->ns);
        fputs(" after ", out);
        put_time((uint64_t)since);
        fprintf(out, ", thread %u</title></rect>\n", st->tid);
    }
    free(order);
}

static uint64_t longest(const struct observed *o)
{
    uint64_t ns = 0;

    for (uint32_t i = 0; i < o->nstalls; i++)
        ns = o->stalls[i].ns > ns ? o->stalls[i].ns : ns;
    return ns;
}

/* Both runs from their own beginning. */
static void put_timeline(const struct run *run, const struct run *before)
{
    const struct observed *old = before != NULL ? before->seen : NULL;
    uint64_t whole = span(&run->sum) + 1, most = longest(run->seen);
    struct scale s = {
        floor(log10(run->seen->threshold_ns > 1 ? (double)run->seen->threshold_ns : 1)), 0};

    if (old != NULL) {
        whole = span(&before->sum) + 1 > whole ? span(&before->sum) + 1 : whole;
        most = longest(old) > most ? longest(old) : most;
    }
    fputs("<h2>When calls stalled</h2>\n", out);
    if (most == 0) {
        fputs("<p>No call was slower than stall_threshold.</p>\n", out);
        return;
    }
    s.high = ceil(log10((double)most + 1));
    if (s.high < s.low + 1)
        s.high = s.low + 1;
    fprintf(out,
            "<p class=\"dim\">Each mark is a call: how long it took (up), when it began and "
            "ended (across). At most the %d longest are drawn.</p>\n<svg viewBox=\"0 0 %d %d\" "
            "role=\"img\" aria-label=\"Stalled calls over time\">",
            DOTS_MAX, W, H);
    for (int p = (int)s.low; p <= (int)s.high; p++) {
        double y = at_log(&s, pow(10, p), H - BOTTOM, TOP);

        put_line(LEFT, y, W - RIGHT, y);
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 6, y + 4);
        put_decade(p);
        fputs("</text>", out);
    }
    for (int i = 0; i <= 4; i++) {
        fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">",
                LEFT + i * (W - RIGHT - LEFT) / 4, H - BOTTOM + 18,
                i == 4   ? "end"
                : i == 0 ? "start"
                         : "middle");
        if (i == 0)
            putc('0', out);
        else
            put_time(whole / 4 * (uint64_t)i);
        fputs("</text>", out);
    }
    if (old != NULL)
        put_dots(&(struct dots){old, before->sum.started_ns, true}, whole, &s);
    put_dots(&(struct dots){run->seen, run->sum.started_ns, false}, whole, &s);
    fputs("</svg>\n", out);
}

static void put_counters(const struct report *r, const struct report *before)
{
    fputs("<h2>Counters</h2>\n<details><summary>all that are not zero</summary>"
          "<div class=\"scroll\"><table><tr><th>counter</th>",
          out);
    fputs(before != NULL ? "<th>before</th><th>after</th>" : "<th></th>", out);
    fputs("<th style=\"text-align:left\">what</th></tr>\n", out);
    for (int i = 0; i < STAT_COUNT; i++) {
        if (r->value[i] == 0 && (before == NULL || before->value[i] == 0))
            continue;
        fprintf(out, "<tr><td>%s</td>", stat_name((enum stat_id)i));
        if (before != NULL)
            cell_count(before->value[i]);
        cell_count(r->value[i]);
        fputs("<td class=\"path\">", out);
        esc(stat_help((enum stat_id)i));
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div></details>\n", out);
}

void view_html(FILE *to, const struct run *run, const struct run *before)
{
    const struct observed *old = before != NULL ? before->seen : NULL;

    out = to;
    put_head(run, before);
    if (run->seen == NULL) {
        fputs("<p>Calls were not timed in this run: <code>rlshim observe</code>, or timing = on, "
              "makes it so.</p>\n",
              out);
    } else {
        fputs("<p><span class=\"big\">", out);
        if (old != NULL) {
            put_time(stalled_in_all(old));
            fputs(" &rarr; ", out);
        }
        put_time(stalled_in_all(run->seen));
        fputs("</span> in calls of ", out);
        put_time(run->seen->threshold_ns);
        fputs(" and more, over all threads.</p>\n", out);
        put_timeline(run, old != NULL ? before : NULL);
        if (old != NULL)
            put_acts_pair(old, run->seen);
        put_histograms(run->seen, old);
        if (old == NULL) {
            put_remedies(run->seen);
            put_acts(run->seen);
            put_files(run->seen);
        }
        put_sites(run->seen);
        view_frames_end();
    }
    put_counters(&run->sum, before != NULL ? &before->sum : NULL);
    fputs("</main></body></html>\n", out);
}
