/* SPDX-License-Identifier: MIT */
/* html_plot: histograms and the timeline of stalls, as SVG. See html.h. */
#include <math.h>
#include <stdlib.h>

#include "../text.h"
#include "html.h"

enum { DOTS_MAX = 4000, PLOTS_MAX = 6 };
enum { W = 720, H = 190, LEFT = 56, RIGHT = 12, TOP = 12, BOTTOM = 34 };

static void put_line(double x1, double y1, double x2, double y2)
{
    fprintf(html_out, "<line class=\"axis\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", x1,
            y1, x2, y2);
}

/* A duration as a label: 1 us, 10 ms. */
static void put_decade(int power)
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    int u = power / 3 < 3 ? power / 3 : 3;
    int rest = power - 3 * u;

    fprintf(html_out, "%s %s",
            rest == 0   ? "1"
            : rest == 1 ? "10"
            : rest == 2 ? "100"
                        : "1000",
            unit[u]);
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
        fprintf(html_out,
                "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>",
                old ? "old" : "run", x, H - BOTTOM - h, w > 0.8 ? w : 0.8, h);
        if (pair)
            fputs(old ? "before: " : "after: ", html_out);
        html_count(c->hist[i]);
        fputs(c->hist[i] == 1 ? " call of " : " calls of ", html_out);
        html_time(hist_low(i));
        fputs(" to ", html_out);
        html_time(hist_low(i + 1));
        fputs(", together ", html_out);
        html_time((uint64_t)ns);
        fputs("</title></rect>", html_out);
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

    fprintf(html_out,
            "<h3>%s</h3>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Histogram: time "
            "in calls by their duration\">",
            view_act_text[act], W, H);
    for (int p = (int)s.low; p <= (int)s.high; p++) {
        double x = at_log(&s, pow(10, p), LEFT, W - RIGHT);

        put_line(x, TOP, x, H - BOTTOM + 4);
        fprintf(html_out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">", x, H - BOTTOM + 18,
                p == (int)s.high ? "end" : "middle");
        put_decade(p);
        fputs("</text>", html_out);
    }
    put_line(LEFT, H - BOTTOM, W - RIGHT, H - BOTTOM);
    fprintf(html_out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LEFT - 6, TOP + 9);
    html_time((uint64_t)most);
    fprintf(html_out, "</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">0</text>", LEFT - 6,
            H - BOTTOM);
    if (old != NULL)
        put_bars(old, &s, most, true, true);
    put_bars(c, &s, most, false, old != NULL);
    fputs("</svg>\n", html_out);
}

void html_histograms(const struct observed *o, const struct observed *before)
{
    const struct observed *by = before != NULL ? before : o;
    int order[ACT_COUNT], n = view_order_acts(by, order);

    if (n == 0)
        return;
    fputs("<h2>How long calls took</h2>\n<p class=\"dim\">Height: the time spent in calls of that "
          "duration. A few long calls weigh as much as many short ones.</p>\n",
          html_out);
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
            html_out,
            "<rect class=\"dot%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"4\" rx=\"1.5\">"
            "<title>%s",
            d->old ? " old" : "", x, at_log(s, (double)st->ns, H - BOTTOM, TOP) - 2, w > 3 ? w : 3,
            view_act_text[st->act]);
        if (st->file != NONE_SEEN && o->files[st->file].path[0] != '\0') {
            fputs(" of ", html_out);
            html_text(o->files[st->file].path);
        }
        fputs(": ", html_out);
        html_time(st->ns);
        fputs(" after ", html_out);
        html_time((uint64_t)since);
        fprintf(html_out, ", thread %u</title></rect>\n", st->tid);
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
void html_timeline(const struct run *run, const struct run *before)
{
    const struct observed *old = before != NULL ? before->seen : NULL;
    uint64_t whole = html_span(&run->sum) + 1, most = longest(run->seen);
    struct scale s = {
        floor(log10(run->seen->threshold_ns > 1 ? (double)run->seen->threshold_ns : 1)), 0};

    if (old != NULL) {
        whole = html_span(&before->sum) + 1 > whole ? html_span(&before->sum) + 1 : whole;
        most = longest(old) > most ? longest(old) : most;
    }
    fputs("<h2>When calls stalled</h2>\n", html_out);
    if (most == 0) {
        fputs("<p>No call was slower than stall_threshold.</p>\n", html_out);
        return;
    }
    s.high = ceil(log10((double)most + 1));
    if (s.high < s.low + 1)
        s.high = s.low + 1;
    fprintf(html_out,
            "<p class=\"dim\">Each mark is a call: how long it took (up), when it began and "
            "ended (across). At most the %d longest are drawn.</p>\n<svg viewBox=\"0 0 %d %d\" "
            "role=\"img\" aria-label=\"Stalled calls over time\">",
            DOTS_MAX, W, H);
    for (int p = (int)s.low; p <= (int)s.high; p++) {
        double y = at_log(&s, pow(10, p), H - BOTTOM, TOP);

        put_line(LEFT, y, W - RIGHT, y);
        fprintf(html_out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 6, y + 4);
        put_decade(p);
        fputs("</text>", html_out);
    }
    for (int i = 0; i <= 4; i++) {
        fprintf(html_out, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">",
                LEFT + i * (W - RIGHT - LEFT) / 4, H - BOTTOM + 18,
                i == 4   ? "end"
                : i == 0 ? "start"
                         : "middle");
        if (i == 0)
            putc('0', html_out);
        else
            html_time(whole / 4 * (uint64_t)i);
        fputs("</text>", html_out);
    }
    if (old != NULL)
        put_dots(&(struct dots){old, before->sum.started_ns, true}, whole, &s);
    put_dots(&(struct dots){run->seen, run->sum.started_ns, false}, whole, &s);
    fputs("</svg>\n", html_out);
}
