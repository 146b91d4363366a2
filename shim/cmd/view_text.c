/* SPDX-License-Identifier: MIT */
/* view_text: one or two runs to read in a terminal of 80 columns; see view.h. */
#include <stdlib.h>
#include <string.h>

#include "../text.h"
#include "view.h"

enum { FILES_SHOWN = 10, SITES_SHOWN = 8, FRAMES_SHOWN = 5, HISTOGRAMS_SHOWN = 3, BAR = 32 };

static char shown[REPORT_TEXT_BYTES];

static const char *in_time(uint64_t ns, char buf[32])
{
    struct cfg_text t = cfg_text_in(buf, 32);

    text_time(&t, ns);
    return buf;
}

static const char *in_groups(uint64_t n, char buf[32])
{
    struct cfg_text t = cfg_text_in(buf, 32);

    text_grouped(&t, n);
    return buf;
}

/* The end of a path says more than its beginning. */
static void put_path(FILE *to, const char *path, int width)
{
    char safe[4096];
    struct cfg_text t = cfg_text_in(safe, sizeof safe);
    size_t skip;

    text_safe(&t, path, strlen(path));
    if (t.len <= (size_t)width) {
        fputs(safe, to);
        return;
    }
    for (skip = t.len - (size_t)width + 2; ((unsigned char)safe[skip] & 0xc0) == 0x80; skip++)
        ;
    fprintf(to, "..%s", safe + skip);
}

static void put_acts(FILE *to, const struct observed *o)
{
    int order[ACT_COUNT], n = view_order_acts(o, order);
    char a[32], b[32], c[32], d[32], e[32], f[32];

    fprintf(to, "\nCalls, and how long they took (stalled: %s and more)\n",
            in_time(o->threshold_ns, a));
    fprintf(to, "  %-22s%10s %8s %8s %8s %8s %9s\n", "", "calls", "in all", "median", "p99",
            "longest", "stalled");
    for (int i = 0; i < n; i++) {
        const struct seen_calls *s = &o->act[order[i]];

        fprintf(to, "  %-22s%10s %8s %8s %8s %8s %9s\n", view_act_text[order[i]],
                in_groups(s->calls, a), in_time(s->total_ns, b), in_time(view_median(s), c),
                in_time(view_p99(s), d), in_time(s->worst_ns, e),
                s->stalled_ns != 0 ? in_time(s->stalled_ns, f) : "-");
    }
    if (n == 0)
        fputs("  none was made\n", to);
}

/* Lines for rlshim.conf, and whether they may be written. */
static void put_lines(FILE *to, const struct observed *o, int remedy)
{
    const struct view_remedy *v = &view_remedies[remedy];
    const struct seen_file *file = NULL;
    char pattern[4096], safe[4096];
    struct cfg_text t = cfg_text_in(safe, sizeof safe);
    bool is_default = strcmp(cfg_rows[v->row].builtin, v->value) == 0 && v->others[0] == '\0';
    int others = v->others[0] != '\0' ? view_others(o, remedy, &file) : 0;

    if (view_not_yet(remedy)) {
        fputs("     Not in this release: the setting is accepted and has no effect yet.\n", to);
        return;
    }
    if (is_default) {
        fprintf(to, "     It is on unless rlshim.conf says otherwise.\n");
        return;
    }
    if (others == 2) {
        fputs("     It needs files that no other program uses, and ", to);
        if (file->path[0] != '\0')
            put_path(to, file->path, 60);
        else
            fputs("one of them", to);
        if (file->received)
            fputs("\n     came from another process.\n", to);
        else
            fprintf(to, "\n     was also open in process %u.\n", file->other);
        return;
    }
    view_pattern(o, remedy, pattern, sizeof pattern);
    text_safe(&t, pattern, strlen(pattern));
    fputs("     For rlshim.conf:\n", to);
    if (pattern[0] != '\0' && cfg_rows[v->row].per_path)
        fprintf(to, "       [path %s]\n", safe);
    else
        fputs("       [default]\n", to);
    fprintf(to, "       %s = %s\n", cfg_rows[v->row].key, v->value);
    if (v->others[0] != '\0') {
        fprintf(to, "       %s\n", v->others);
        fprintf(to, others == 0
                        ? "     No other process was seen with these files while it ran.\n"
                        : "     Not all processes could be looked at: be sure that no other "
                          "program\n     writes these files.\n");
    }
}

/* At blanks, so that no line is longer than a terminal. */
static void put_wrapped(FILE *to, const char *text, const char *indent)
{
    size_t room = 79 - strlen(indent);

    while (*text != '\0') {
        size_t n = strlen(text), cut = n;

        if (n > room) {
            for (cut = room; cut > 0 && text[cut] != ' '; cut--)
                ;
            if (cut == 0)
                cut = strcspn(text, " ");
        }
        fprintf(to, "%s%.*s\n", indent, (int)cut, text);
        text += cut;
        while (*text == ' ')
            text++;
    }
}

static void put_remedies(FILE *to, const struct observed *o, bool observed_only)
{
    int order[REMEDY_COUNT], n = view_order_remedies(o, order);
    char a[32], b[32], c[32], line[4096];

    if (n == 0 || !observed_only)
        return;
    fputs("\nWhat would have helped, the most first\n", to);
    for (int i = 0; i < n; i++) {
        const struct seen_remedy *r = &o->remedy[order[i]];
        struct cfg_text t = cfg_text_in(line, sizeof line);

        fprintf(to, "  %d. %s = %s: about %s of %s in %s call%s\n", i + 1, view_key(order[i]),
                view_remedies[order[i]].value, in_time(r->saved_ns, a),
                in_time(r->calls.total_ns, b), in_groups(r->calls.calls, c),
                r->calls.calls == 1 ? "" : "s");
        put_wrapped(to, view_remedies[order[i]].cure, "     ");
        if (r->worst.ns != 0) {
            cfg_text_add(&t, "The longest: ");
            view_worst(&t, o, order[i]);
            cfg_text_add(&t, ".");
            put_wrapped(to, line, "     ");
        }
        put_lines(to, o, order[i]);
    }
}

static void put_files(FILE *to, const struct observed *o)
{
    uint32_t order[FILES_SHOWN], n = view_top_files(o, order, FILES_SHOWN);
    char a[32], b[32], c[32];

    if (n == 0)
        return;
    fprintf(to, "\nFiles, the most stalled first (%u of %u)\n", n, o->nfiles);
    fprintf(to, "  %10s %8s %8s  %s\n", "calls", "stalled", "longest", "");
    for (uint32_t i = 0; i < n; i++) {
        const struct seen_file *f = &o->files[order[i]];

        fprintf(to, "  %10s %8s %8s  ", in_groups(f->calls.calls, a),
                f->calls.stalled_ns != 0 ? in_time(f->calls.stalled_ns, b) : "-",
                in_time(f->calls.worst_ns, c));
        if (f->path[0] != '\0')
            put_path(to, f->path, 36);
        else
            fprintf(to, "inode %llu", (unsigned long long)f->ino);
        fputs(f->nameless ? " (no name)" : "", to);
        if (f->other != 0)
            fprintf(to, " (process %u too)", f->other);
        else
            fputs(f->received ? " (from another)" : "", to);
        putc('\n', to);
    }
}

static void put_sites(FILE *to, const struct observed *o)
{
    uint32_t order[SITES_SHOWN], n = view_top_sites(o, order, SITES_SHOWN);
    char a[32], b[32], c[32], line[1024];

    if (n == 0)
        return;
    fprintf(to, "\nWhere slow calls were made, the most time first (%u of %u places)\n", n,
            o->nsites);
    for (uint32_t i = 0; i < n; i++) {
        const struct seen_site *s = &o->sites[order[i]];

        fprintf(to, "  %s: %s in all, %s call%s, longest %s\n",
                s->act != NONE_SEEN ? view_act_text[s->act] : "call", in_time(s->total_ns, a),
                in_groups(s->calls, b), s->calls == 1 ? "" : "s", in_time(s->worst_ns, c));
        for (uint32_t k = 0; k < s->depth; k++) {
            struct cfg_text t = cfg_text_in(line, sizeof line);

            if (!view_frame(&t, o, &s->frame[k]) && k != 0)
                break;
            if (k == FRAMES_SHOWN) {
                fputs("    ...\n", to);
                break;
            }
            fprintf(to, "    %s %.73s\n", k == 0 ? "at" : "by", line);
        }
    }
}

/* Buckets of one power of two are one line; of two runs, side by side. */
static void put_histogram(FILE *to, int act, const struct observed *o,
                          const struct observed *before)
{
    enum { LINES = HIST_LAST_BITS - HIST_FIRST_BITS + 1 };
    uint64_t count[2][LINES] = {{0}}, ns[2][LINES] = {{0}}, most = 1;
    int first = LINES, last = -1;
    char a[32], b[32], n[2][32];

    for (int which = 0; which < 2; which++) {
        const struct observed *from = which == 0 ? o : before;

        for (unsigned i = 0; from != NULL && i < HIST_BUCKETS; i++) {
            int line = i == 0 ? 0 : (int)((i - 1) >> HIST_STEP_BITS) + 1;

            line = line < LINES ? line : LINES - 1;
            count[which][line] += from->act[act].hist[i];
            ns[which][line] += from->act[act].hist[i] * hist_middle(i);
        }
        for (int i = 0; i < LINES; i++) {
            if (count[which][i] == 0)
                continue;
            most = ns[which][i] > most ? ns[which][i] : most;
            first = i < first ? i : first;
            last = i > last ? i : last;
        }
    }
    fprintf(to, "\n%s: calls by duration; the bars are the time in them", view_act_text[act]);
    fputs(before != NULL ? "\n  (. before, # after)\n" : "\n", to);
    for (int i = first; i <= last; i++) {
        uint64_t low = i == 0 ? 0 : (uint64_t)HIST_FIRST_NS << (i - 1);

        fprintf(to, "  %7s - %-7s", in_time(low, a), in_time((uint64_t)HIST_FIRST_NS << i, b));
        if (before != NULL)
            fprintf(to, "%12s", in_groups(count[1][i], n[1]));
        fprintf(to, "%12s", in_groups(count[0][i], n[0]));
        for (int which = before != NULL ? 1 : 0; which >= 0; which--) {
            int bars = before != NULL ? BAR / 2 : BAR;
            int len = (int)(ns[which][i] * (uint64_t)bars / most);

            len = len == 0 && ns[which][i] > most / 1000 ? 1 : len;
            if (len != 0)
                fputs(which == 0 && before != NULL ? " " : "  ", to);
            for (int k = 0; k < len; k++)
                putc(which == 1 ? '.' : '#', to);
            if (which == 1 && ns[0][i] > most / 1000)
                fprintf(to, "%*s", bars - len + (len == 0 ? 2 : 0), "");
        }
        putc('\n', to);
    }
}

static void put_histograms(FILE *to, const struct observed *o, const struct observed *before)
{
    int order[ACT_COUNT], n = view_order_acts(before != NULL ? before : o, order);

    for (int i = 0; i < n && i < HISTOGRAMS_SHOWN; i++)
        if (i == 0 || (before != NULL ? before : o)->act[order[i]].stalled != 0)
            put_histogram(to, order[i], o, before);
}

static void put_one(FILE *to, const struct run *run, const struct observed *before)
{
    char a[32], b[32];

    report_text(&run->sum, shown, sizeof shown);
    fputs(shown, to);
    if (run->seen == NULL)
        return;
    put_acts(to, run->seen);
    put_remedies(to, run->seen, true);
    put_files(to, run->seen);
    put_sites(to, run->seen);
    put_histograms(to, run->seen, before);
    if (run->seen->stalls_seen > run->seen->nstalls)
        fprintf(to, "\n%s slow calls were seen; of %s the time and place are kept.\n",
                in_groups(run->seen->stalls_seen, a), in_groups(run->seen->nstalls, b));
    view_frames_end();
}

/* --- before and after --- */

static void put_change(FILE *to, uint64_t before, uint64_t after)
{
    double times;

    if (before == 0 || after == 0 || (after * 10 > before * 8 && before * 10 > after * 8))
        return;
    times = before > after ? (double)before / (double)after : (double)after / (double)before;
    if (times >= 1000)
        fprintf(to, "  > 999 x %s", before > after ? "less" : "more");
    else
        fprintf(to, times < 9.95 ? "  %.1f x %s" : "  %.0f x %s", times,
                before > after ? "less" : "more");
}

static const char *in_size(uint64_t n, char buf[32])
{
    struct cfg_text t = cfg_text_in(buf, 32);

    text_size(&t, n);
    return buf;
}

static void put_pair_in(FILE *to, const char *what, uint64_t before, uint64_t after,
                        const char *(*in)(uint64_t, char *))
{
    char a[32], b[32];

    fprintf(to, "  %-34s%12s%12s", what, in(before, a), in(after, b));
    put_change(to, before, after);
    putc('\n', to);
}

static void put_pair(FILE *to, const char *what, uint64_t before, uint64_t after, bool time)
{
    put_pair_in(to, what, before, after, time ? in_time : in_groups);
}

static uint64_t span(const struct report *r)
{
    return r->ended_ns > r->started_ns ? r->ended_ns - r->started_ns : 0;
}

static void put_acts_pair(FILE *to, const struct observed *before, const struct observed *after)
{
    int order[ACT_COUNT], n = view_order_acts(before, order);

    for (int i = 0; i < n; i++) {
        const struct seen_calls *a = &before->act[order[i]], *b = &after->act[order[i]];

        if (a->total_ns < 1000000 && b->total_ns < 1000000)
            continue;
        fprintf(to, " %s\n", view_act_text[order[i]]);
        put_pair(to, "  calls", a->calls, b->calls, false);
        put_pair(to, "  time in all", a->total_ns, b->total_ns, true);
        put_pair(to, "  time stalled", a->stalled_ns, b->stalled_ns, true);
        put_pair(to, "  median", view_median(a), view_median(b), true);
        put_pair(to, "  99 % are shorter than", view_p99(a), view_p99(b), true);
        put_pair(to, "  longest", a->worst_ns, b->worst_ns, true);
    }
}

static void put_settings_pair(FILE *to, const struct report *before, const struct report *after)
{
    for (int i = 0; i < CFG_ROWS; i++) {
        char a[64], b[64];
        struct cfg_text s = cfg_text_in(a, sizeof a), t = cfg_text_in(b, sizeof b);

        /* Where reports and messages go changes nothing. */
        if (cfg_rows[i].path_offset != 0 || strcmp(before->setting[i], after->setting[i]) == 0)
            continue;
        text_safe(&s, before->setting[i], strlen(before->setting[i]));
        text_safe(&t, after->setting[i], strlen(after->setting[i]));
        fprintf(to, "  setting %-26s%12.11s%12.11s\n", cfg_rows[i].key, a[0] != '\0' ? a : "-",
                b[0] != '\0' ? b : "-");
    }
}

static void put_counters_pair(FILE *to, const struct report *before, const struct report *after)
{
    for (int i = 0; i < STAT_COUNT; i++) {
        const char *name = stat_name((enum stat_id)i);
        size_t len = strlen(name);

        if (before->value[i] != after->value[i])
            put_pair_in(to, name, before->value[i], after->value[i],
                        len > 3 && strcmp(name + len - 3, "_ns") == 0      ? in_time
                        : len > 6 && strcmp(name + len - 6, "_bytes") == 0 ? in_size
                                                                           : in_groups);
    }
}

void view_text(FILE *to, const struct run *run, const struct run *before)
{
    if (before == NULL) {
        put_one(to, run, NULL);
        return;
    }
    fprintf(to, "rlshim report: before and after\n");
    fprintf(to, "  %-34s%12s%12s\n", "", "before", "after");
    put_pair(to, "processes", before->sum.processes, run->sum.processes, false);
    put_pair(to, "ran", span(&before->sum), span(&run->sum), true);
    put_settings_pair(to, &before->sum, &run->sum);
    if (before->seen != NULL && run->seen != NULL) {
        put_acts_pair(to, before->seen, run->seen);
        put_histograms(to, run->seen, before->seen);
    } else {
        fputs("  Not both runs timed their calls: mode = observe before, and timing = on after,\n"
              "  make their reports comparable.\n",
              to);
    }
    fputs("\nCounters that differ\n", to);
    put_counters_pair(to, &before->sum, &run->sum);
}
