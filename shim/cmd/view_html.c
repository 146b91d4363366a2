/* SPDX-License-Identifier: MIT */
/*
 * view_html: one or two runs as one page that needs nothing else: no script, no font, no picture
 * from elsewhere. Light and dark by what the reader's system prefers. See view.h.
 *
 * Colours: one hue for the run, grey for the run before it; marks and text have 4.5:1 on both
 * grounds. What colour tells is told in words as well.
 */
#include <stdlib.h>
#include <string.h>

#include "../text.h"
#include "html.h"

enum { FILES_SHOWN = 50, SITES_SHOWN = 20, FRAMES_SHOWN = 8 };

FILE *html_out;

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fbfbfa;--fg:#1c1e21;--dim:#5d6570;--line:#d8dbe0;"
    "--card:#fff;--run:#1f6fb2;--old:#8a8f98;--bad:#b3261e}"
    "@media(prefers-color-scheme:dark){:root{--bg:#15171a;--fg:#e8eaed;--dim:#a0a7b1;"
    "--line:#363b43;--card:#1d2024;--run:#6cb2f0;--old:#7d848f;--bad:#ff8a80}}"
    "*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);"
    "font:15px/1.5 system-ui,sans-serif}main{max-width:880px;margin:0 auto;padding:24px 20px 64px}"
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

void html_text(const char *s)
{
    char safe[8192];
    struct cfg_text t = cfg_text_in(safe, sizeof safe);

    text_safe(&t, s, strlen(s));
    for (const char *p = safe; *p != '\0'; p++) {
        if (*p == '<')
            fputs("&lt;", html_out);
        else if (*p == '>')
            fputs("&gt;", html_out);
        else if (*p == '&')
            fputs("&amp;", html_out);
        else if (*p == '"')
            fputs("&quot;", html_out);
        else
            putc(*p, html_out);
    }
}

void html_time(uint64_t ns)
{
    char buf[64];
    struct cfg_text t = cfg_text_in(buf, sizeof buf);

    text_time(&t, ns);
    fputs(buf, html_out);
}

void html_count(uint64_t n)
{
    char buf[64];
    struct cfg_text t = cfg_text_in(buf, sizeof buf);

    text_grouped(&t, n);
    fputs(buf, html_out);
}

uint64_t html_span(const struct report *r)
{
    return r->ended_ns > r->started_ns ? r->ended_ns - r->started_ns : 0;
}

static void cell_time(uint64_t ns)
{
    fputs("<td>", html_out);
    if (ns != 0)
        html_time(ns);
    else
        fputs("&ndash;", html_out);
    fputs("</td>", html_out);
}

static void cell_count(uint64_t n)
{
    fputs("<td>", html_out);
    html_count(n);
    fputs("</td>", html_out);
}

/* --- head --- */

static void put_run(const struct report *r)
{
    char when[64];
    struct cfg_text t = cfg_text_in(when, sizeof when);

    text_utc(&t, r->started_ns);
    if (r->processes > 1)
        fprintf(html_out, "%u processes of ", r->processes);
    html_text(r->mixed_programs ? "several programs" : r->program);
    fputs(" on ", html_out);
    html_text(r->mixed_hosts ? "several hosts" : r->host);
    fputs(", Linux ", html_out);
    html_text(r->mixed_kernels ? "of several versions" : r->kernel);
    fprintf(html_out, ", %s, ran ", when);
    html_time(html_span(r));
    for (int i = 0, any = 0; i < CFG_ROWS; i++) {
        if (r->setting[i][0] == '\0' || strcmp(r->setting[i], cfg_rows[i].builtin) == 0 ||
            cfg_rows[i].later || cfg_rows[i].path_offset != 0)
            continue;
        fputs(any++ == 0 ? "; " : ", ", html_out);
        html_text(cfg_rows[i].key);
        fputs(" = ", html_out);
        html_text(r->setting[i]);
    }
}

static void put_head(const struct run *run, const struct run *before)
{
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
          "<meta name=\"generator\" content=\"rlshim\"><title>",
          html_out);
    html_text(run->sum.mixed_programs ? "several programs" : run->sum.program);
    fprintf(html_out, ": stalls</title><style>%s</style></head><body><main>\n<h1>", style);
    html_text(run->sum.mixed_programs ? "Several programs" : run->sum.program);
    fputs(": where file calls stall</h1>\n", html_out);
    if (before != NULL) {
        fputs("<p><span class=\"key\" style=\"background:var(--old);margin-left:0\"></span>before: "
              "<span class=\"dim\">",
              html_out);
        put_run(&before->sum);
        fputs("</span></p>\n<p><span class=\"key\" style=\"background:var(--run);margin-left:0\">"
              "</span>after: <span class=\"dim\">",
              html_out);
    } else {
        fputs("<p><span class=\"dim\">", html_out);
    }
    put_run(&run->sum);
    fputs("</span></p>\n", html_out);
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
          html_out);
    for (int i = 0; i < n; i++) {
        const struct seen_calls *c = &o->act[order[i]];

        fprintf(html_out, "<tr><td>%s</td>", view_act_text[order[i]]);
        cell_count(c->calls);
        cell_time(c->total_ns);
        cell_time(view_median(c));
        cell_time(view_p99(c));
        cell_time(c->worst_ns);
        cell_time(c->stalled_ns);
        fputs("</tr>\n", html_out);
    }
    fputs("</table></div>\n", html_out);
}

static void cell_pair(uint64_t before, uint64_t after)
{
    double times = before != 0 && after != 0 ? (double)before / (double)after : 1;

    cell_time(before);
    cell_time(after);
    if (before < 1000000 && after < 1000000)
        times = 1; /* nobody waits for either */
    if (times >= 1.25)
        fprintf(html_out, "<td class=\"better\">%.1f &times; less</td>", times);
    else if (times <= 0.8)
        fprintf(html_out, "<td class=\"worse\">%.1f &times; more</td>", 1 / times);
    else
        fputs("<td></td>", html_out);
}

static void put_acts_pair(const struct observed *a, const struct observed *b)
{
    int order[ACT_COUNT], n = view_order_acts(a, order);

    fputs("<h2>Calls, before and after</h2>\n<div class=\"scroll\"><table><tr><th>call</th>"
          "<th>stalled before</th><th>after</th><th></th><th>longest before</th><th>after</th>"
          "<th></th></tr>\n",
          html_out);
    for (int i = 0; i < n; i++) {
        const struct seen_calls *x = &a->act[order[i]], *y = &b->act[order[i]];

        fprintf(html_out, "<tr><td>%s</td>", view_act_text[order[i]]);
        cell_pair(x->stalled_ns, y->stalled_ns);
        cell_pair(x->worst_ns, y->worst_ns);
        fputs("</tr>\n", html_out);
    }
    fputs("</table></div>\n", html_out);
}

static void put_remedies(const struct observed *o)
{
    int order[REMEDY_COUNT], n = view_order_remedies(o, order);
    char line[4096], pattern[4096];

    if (n == 0)
        return;
    fputs("<h2>What would help, the most first</h2>\n", html_out);
    for (int i = 0; i < n; i++) {
        const struct seen_remedy *r = &o->remedy[order[i]];
        const struct view_remedy *v = &view_remedies[order[i]];
        const struct seen_file *file = NULL;
        struct cfg_text t = cfg_text_in(line, sizeof line);

        fprintf(html_out, "<div class=\"card\"><h3>%s = %s</h3><p>About <span class=\"big\">",
                view_key(order[i]), v->value);
        html_time(r->saved_ns);
        fputs("</span> of ", html_out);
        html_time(r->calls.total_ns);
        fputs(" in ", html_out);
        html_count(r->calls.calls);
        fprintf(html_out, " call%s: %s.</p>", r->calls.calls == 1 ? "" : "s", v->cure);
        if (r->worst.ns != 0) {
            view_worst(&t, o, order[i]);
            fputs("<p class=\"dim\">The longest: ", html_out);
            html_text(line);
            fputs(".</p>", html_out);
        }
        if (view_not_yet(order[i])) {
            fputs("<p>Not in this release: the setting is accepted and has no effect yet.</p>",
                  html_out);
        } else if (strcmp(cfg_rows[v->row].builtin, v->value) == 0 && v->others[0] == '\0') {
            fputs("<p class=\"dim\">It is on unless rlshim.conf says otherwise.</p>", html_out);
        } else if (v->others[0] != '\0' && view_others(o, order[i], &file) == 2) {
            fputs("<p>It needs files that no other program uses, and others were seen with ",
                  html_out);
            html_text(file->path[0] != '\0' ? file->path : "some");
            fputs(".</p>", html_out);
        } else {
            view_pattern(o, order[i], pattern, sizeof pattern);
            fputs("<pre>", html_out);
            if (pattern[0] != '\0' && cfg_rows[v->row].per_path) {
                fputs("[path ", html_out);
                html_text(pattern);
                fputs("]\n", html_out);
            }
            fprintf(html_out, "%s = %s\n%s</pre>", view_key(order[i]), v->value, v->others);
        }
        fputs("</div>\n", html_out);
    }
}

static void put_files(const struct observed *o)
{
    uint32_t order[FILES_SHOWN], n = view_top_files(o, order, FILES_SHOWN);

    if (n == 0)
        return;
    fprintf(html_out,
            "<h2>Files</h2>\n<p class=\"dim\">The most stalled first; %u of %u.</p>"
            "<div class=\"scroll\"><table><tr><th>calls</th><th>stalled</th><th>longest</th>"
            "<th style=\"text-align:left\">file</th></tr>\n",
            n, o->nfiles);
    for (uint32_t i = 0; i < n; i++) {
        const struct seen_file *f = &o->files[order[i]];

        fputs("<tr>", html_out);
        cell_count(f->calls.calls);
        cell_time(f->calls.stalled_ns);
        cell_time(f->calls.worst_ns);
        fputs("<td class=\"path\">", html_out);
        if (f->path[0] != '\0')
            html_text(f->path);
        else
            fprintf(html_out, "inode %llu", (unsigned long long)f->ino);
        fputs(f->nameless ? " <span class=\"dim\">(no name)</span>" : "", html_out);
        if (f->other != 0)
            fprintf(html_out, " <span class=\"dim\">(process %u too)</span>", f->other);
        fputs("</td></tr>\n", html_out);
    }
    fputs("</table></div>\n", html_out);
}

static void put_sites(const struct observed *o)
{
    uint32_t order[SITES_SHOWN], n = view_top_sites(o, order, SITES_SHOWN);
    char line[2048];

    if (n == 0)
        return;
    fprintf(html_out,
            "<h2>Where slow calls were made</h2>\n<p class=\"dim\">The most time first; %u of "
            "%u places.</p>\n",
            n, o->nsites);
    for (uint32_t i = 0; i < n; i++) {
        const struct seen_site *s = &o->sites[order[i]];

        fprintf(html_out, "<div class=\"card\"><h3>%s: ",
                s->act != NONE_SEEN ? view_act_text[s->act] : "call");
        html_time(s->total_ns);
        fputs("</h3><p class=\"dim\">", html_out);
        html_count(s->calls);
        fprintf(html_out, " call%s, the longest ", s->calls == 1 ? "" : "s");
        html_time(s->worst_ns);
        fputs("</p><pre>", html_out);
        for (uint32_t k = 0; k < s->depth && k < FRAMES_SHOWN; k++) {
            struct cfg_text t = cfg_text_in(line, sizeof line);

            if (!view_frame(&t, o, &s->frame[k]) && k != 0)
                break;
            fputs(k == 0 ? "at " : "by ", html_out);
            html_text(line);
            putc('\n', html_out);
        }
        fputs("</pre></div>\n", html_out);
    }
}

static void put_counters(const struct report *r, const struct report *before)
{
    fputs("<h2>Counters</h2>\n<details><summary>all that are not zero</summary>"
          "<div class=\"scroll\"><table><tr><th>counter</th>",
          html_out);
    fputs(before != NULL ? "<th>before</th><th>after</th>" : "<th></th>", html_out);
    fputs("<th style=\"text-align:left\">what</th></tr>\n", html_out);
    for (int i = 0; i < STAT_COUNT; i++) {
        if (r->value[i] == 0 && (before == NULL || before->value[i] == 0))
            continue;
        fprintf(html_out, "<tr><td>%s</td>", stat_name((enum stat_id)i));
        if (before != NULL)
            cell_count(before->value[i]);
        cell_count(r->value[i]);
        fputs("<td class=\"path\">", html_out);
        html_text(stat_help((enum stat_id)i));
        fputs("</td></tr>\n", html_out);
    }
    fputs("</table></div></details>\n", html_out);
}

void view_html(FILE *to, const struct run *run, const struct run *before)
{
    const struct observed *old = before != NULL ? before->seen : NULL;

    html_out = to;
    put_head(run, before);
    if (run->seen == NULL) {
        fputs("<p>Calls were not timed in this run: <code>rlshim observe</code>, or timing = on, "
              "makes it so.</p>\n",
              html_out);
    } else {
        fputs("<p><span class=\"big\">", html_out);
        if (old != NULL) {
            html_time(stalled_in_all(old));
            fputs(" &rarr; ", html_out);
        }
        html_time(stalled_in_all(run->seen));
        fputs("</span> in calls of ", html_out);
        html_time(run->seen->threshold_ns);
        fputs(" and more, over all threads.</p>\n", html_out);
        html_timeline(run, old != NULL ? before : NULL);
        if (old != NULL)
            put_acts_pair(old, run->seen);
        html_histograms(run->seen, old);
        if (old == NULL) {
            put_remedies(run->seen);
            put_acts(run->seen);
            put_files(run->seen);
        }
        put_sites(run->seen);
        view_frames_end();
    }
    put_counters(&run->sum, before != NULL ? &before->sum : NULL);
    fputs("</main></body></html>\n", html_out);
}
