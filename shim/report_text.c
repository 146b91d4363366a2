/* SPDX-License-Identifier: MIT */
/*
 * report_text: struct report as text for people. It says what was asked for, what happened to it
 * and why; figures that are zero are left out, except where the zero is the news.
 */
#include "report.h"

#define WIDTH 14 /* of a column of numbers */

static uint64_t get(const struct report *r, enum stat_id id)
{
    return r->value[id];
}

static void put_n(struct cfg_text *t, uint64_t n, const char *one, const char *many)
{
    text_grouped(t, n);
    cfg_text_add(t, " ");
    cfg_text_add(t, n == 1 ? one : many);
}

/* A right-aligned number, in its unit, and what it counts. */
static void put_row_in(struct cfg_text *t, void (*put)(struct cfg_text *, uint64_t), uint64_t n,
                       const char *what)
{
    char number[32];
    struct cfg_text f = cfg_text_in(number, sizeof number);

    put(&f, n);
    for (size_t i = f.len; i < WIDTH; i++)
        cfg_text_add(t, " ");
    cfg_text_add(t, number);
    cfg_text_add(t, "  ");
    cfg_text_add(t, what);
    cfg_text_add(t, "\n");
}

static void put_row(struct cfg_text *t, uint64_t n, const char *what)
{
    put_row_in(t, text_grouped, n, what);
}

static void put_average(struct cfg_text *t, uint64_t sum_ns, uint64_t n)
{
    cfg_text_add(t, ", ");
    text_time(t, n != 0 ? sum_ns / n : 0);
    cfg_text_add(t, " on average");
}

static void put_head(struct cfg_text *t, const struct report *r)
{
    cfg_text_add(t, "rlshim report: ");
    if (r->processes > 1) {
        put_n(t, r->processes, "process of ", "processes of ");
        if (r->mixed_programs)
            cfg_text_add(t, "several programs");
        else
            text_safe(t, r->program, strlen(r->program));
        cfg_text_add(t, " on ");
        if (r->mixed_hosts)
            cfg_text_add(t, "several hosts");
        else
            text_safe(t, r->host, strlen(r->host));
    } else {
        text_safe(t, r->program, strlen(r->program));
        cfg_text_add(t, ", process ");
        cfg_text_number(t, r->pid);
        if (r->rank >= 0) {
            cfg_text_add(t, " (rank ");
            cfg_text_number(t, (uint64_t)r->rank);
            cfg_text_add(t, ")");
        }
        cfg_text_add(t, " on ");
        text_safe(t, r->host, strlen(r->host));
    }
    cfg_text_add(t, ", Linux ");
    if (r->mixed_kernels)
        cfg_text_add(t, "(several versions)");
    else
        text_safe(t, r->kernel, strlen(r->kernel));
    cfg_text_add(t, "\n  ran ");
    text_time(t, r->ended_ns > r->started_ns ? r->ended_ns - r->started_ns : 0);
    cfg_text_add(t, ", from ");
    text_utc(t, r->started_ns);
    cfg_text_add(t, " to ");
    text_utc(t, r->ended_ns);
    cfg_text_add(t, "\n");
}

static void put_command(struct cfg_text *t, const struct report *r)
{
    if (r->command_len == 0 || r->processes > 1)
        return;
    cfg_text_add(t, "  command:");
    for (uint32_t i = 0; i < r->command_len;) {
        size_t len = strnlen(r->command + i, r->command_len - i);

        cfg_text_add(t, " ");
        text_safe(t, r->command + i, len);
        i += (uint32_t)len + 1;
    }
    cfg_text_add(t, r->command_cut ? " …\n" : "\n");
}

static void put_settings(struct cfg_text *t, const struct report *r)
{
    bool any = false;

    for (int i = 0; i < CFG_ROWS; i++) {
        const char *value = r->setting[i];

        if (value[0] == '\0' || cfg_rows[i].later || strcmp(value, cfg_rows[i].builtin) == 0)
            continue;
        cfg_text_add(t, any ? ", " : "  settings other than built in: ");
        cfg_text_add(t, cfg_rows[i].key);
        cfg_text_add(t, " = ");
        text_safe(t, value, strlen(value));
        any = true;
    }
    cfg_text_add(t, any ? "\n" : "  settings: all as built in\n");
}

/* `help` up to where `stop` (NULL: nothing) begins in it. */
static const char *until(const char *help, const char *stop, char *buf, size_t n)
{
    const char *end = stop != NULL ? strstr(help, stop) : NULL;
    struct cfg_text t = cfg_text_in(buf, n);

    if (end == NULL)
        return help;
    cfg_text_bytes(&t, help, (size_t)(end - help));
    return buf;
}

static void (*unit_of(enum stat_id id))(struct cfg_text *, uint64_t)
{
    const char *name = stat_name(id);

    return strstr(name, "_ns") != NULL      ? text_time
           : strstr(name, "_bytes") != NULL ? text_size
                                            : text_grouped;
}

/* Counters from first to last that are not zero, under a title that is left out with them; their
 * help texts up to `stop`. */
static void put_group(struct cfg_text *t, const struct report *r, const char *title, int first,
                      int last, const char *stop)
{
    bool any = false;
    char what[128];

    for (int i = first; i <= last; i++) {
        if (r->value[i] == 0)
            continue;
        if (!any)
            cfg_text_add(t, title);
        any = true;
        put_row_in(t, unit_of((enum stat_id)i), r->value[i],
                   until(stat_help((enum stat_id)i), stop, what, sizeof what));
    }
}

static void put_punches(struct cfg_text *t, const struct report *r)
{
    uint64_t asked = get(r, STAT_punch_calls);
    uint64_t early = get(r, STAT_punch_deferred);
    uint64_t calls = get(r, STAT_punch_applied_calls);

    cfg_text_add(t, "\nHole punches\n  ");
    put_n(t, asked, "punch", "punches");
    cfg_text_add(t, ": ");
    text_grouped(t, early);
    cfg_text_add(t, " answered at once, ");
    text_grouped(t, get(r, STAT_punch_inline));
    cfg_text_add(t, " made in the caller.\n");
    if (early != 0) {
        cfg_text_add(t, "  Of those answered at once ");
        text_grouped(t, get(r, STAT_punch_merged));
        cfg_text_add(t, " grew the range before; they were applied by ");
        put_n(t, calls, "call", "calls");
        cfg_text_add(t, " (");
        text_size(t, get(r, STAT_punch_applied_bytes));
        cfg_text_add(t, "), the last after ");
        text_time(t, get(r, STAT_punch_delay_max_ns));
        cfg_text_add(t, " in the queue at most.\n");
    }
    if (get(r, STAT_punch_inline) != 0) {
        cfg_text_add(t, "  Why not at once:\n");
        for (int i = STAT_punch_no_setting; i <= STAT_punch_no_worker; i++) {
            const char *help = stat_help((enum stat_id)i);

            if (r->value[i] != 0)
                put_row(t, r->value[i], strncmp(help, "inline: ", 8) == 0 ? help + 8 : help);
        }
    }
    for (int i = STAT_punch_postponed; i <= STAT_punch_dropped; i++)
        if (r->value[i] != 0)
            put_row(t, r->value[i], stat_help((enum stat_id)i));
    put_group(t, r, "  Evidence of sole use:\n", STAT_evidence_granted, STAT_evidence_ended, NULL);
}

static void put_writes(struct cfg_text *t, const struct report *r)
{
    uint64_t split = get(r, STAT_write_split);
    uint64_t waited = get(r, STAT_gate_waited);

    cfg_text_add(t, "\nBig direct writes and the gate\n  ");
    put_n(t, split, "write was", "writes were");
    cfg_text_add(t, " made in ");
    put_n(t, get(r, STAT_write_pieces), "piece", "pieces");
    cfg_text_add(t, ". ");
    put_n(t, get(r, STAT_gate_entered), "call", "calls");
    cfg_text_add(t, " went through a gate, ");
    text_grouped(t, waited);
    cfg_text_add(t, " waited there");
    if (waited != 0) {
        put_average(t, get(r, STAT_gate_wait_ns), waited);
        cfg_text_add(t, ", at most ");
        text_time(t, get(r, STAT_gate_wait_max_ns));
    }
    cfg_text_add(t, ".\n");
    put_group(t, r, "", STAT_write_pieces_bytes, STAT_whole_pieces, NULL);
}

static void put_settles(struct cfg_text *t, const struct report *r)
{
    uint64_t n = get(r, STAT_settles);

    if (n == 0 && get(r, STAT_punch_deferred) == 0)
        return;
    cfg_text_add(t, "\nApplied before their time\n  ");
    text_grouped(t, n);
    cfg_text_add(t, n == 1 ? " time a call needed" : " times a call needed");
    cfg_text_add(t, " what was queued");
    if (n != 0) {
        cfg_text_add(t, " and waited");
        put_average(t, get(r, STAT_settle_wait_ns), n);
        cfg_text_add(t, ", at most ");
        text_time(t, get(r, STAT_settle_wait_max_ns));
    }
    cfg_text_add(t, ".\n");
    for (int i = 0; i < WHY_COUNT; i++)
        if (r->settled[i] != 0)
            put_row(t, r->settled[i], why_help((enum why)i));
}

static void put_flushes(struct cfg_text *t, const struct report *r)
{
    put_group(t, r, "\nfsync and fdatasync\n", STAT_flush_led, STAT_flush_own, NULL);
    if (get(r, STAT_flush_wait_ns) == 0)
        return;
    cfg_text_add(t, "  They waited for each other ");
    text_time(t, get(r, STAT_flush_wait_ns));
    cfg_text_add(t, " in all; of one file, at most ");
    put_n(t, get(r, STAT_flush_running_max), "sync", "syncs");
    cfg_text_add(t, " ran at a time.\n");
}

/* No punch, no big write: the reader's next question is whether the library saw the program. */
static void put_nothing(struct cfg_text *t, const struct report *r)
{
    uint64_t calls = 0;

    for (int i = STAT_calls_read; i <= STAT_calls_name; i++)
        calls += r->value[i];
    if (calls != 0 && strcmp(r->setting[CFG_ROW_mode], "observe") == 0)
        return; /* nothing is done then, whatever there is */
    cfg_text_add(t, "\nNothing to do: there were no hole punches and no big direct writes. ");
    if (calls != 0)
        cfg_text_add(t, "Other file calls were seen and passed through.\n");
    else
        cfg_text_add(t, "No file call at all was seen: a program that makes its system calls "
                        "itself cannot be helped; `rlshim check PROGRAM` looks for the signs.\n");
}

size_t report_text(const struct report *r, char *buf, size_t n)
{
    static const char cut[] = "\n(cut)\n";
    struct cfg_text t = cfg_text_in(buf, n);
    bool punches = get(r, STAT_punch_calls) != 0;
    bool writes = get(r, STAT_write_split) != 0 || get(r, STAT_gate_entered) != 0;

    put_head(&t, r);
    put_command(&t, r);
    put_settings(&t, r);
    if (punches)
        put_punches(&t, r);
    if (writes)
        put_writes(&t, r);
    if (!punches && !writes && get(r, STAT_flush_wait_ns) == 0 && get(r, STAT_window_started) == 0)
        put_nothing(&t, r);
    put_group(&t, r, "\nReads and writes beside queued punches\n", STAT_read_overlaid,
              STAT_write_waited, NULL);
    put_settles(&t, r);
    put_flushes(&t, r);
    put_group(&t, r, "\nWrite-behind (writeback_window)\n", STAT_window_started, STAT_window_errors,
              NULL);
    put_group(&t, r, "\nCalls that report times\n", STAT_stat_adjusted, STAT_stat_adjusted, NULL);
    put_group(&t, r, "\nDeleted files\n", STAT_evict_files, STAT_evict_drain_max_ns, NULL);
    put_group(&t, r, "\nTruncations\n", STAT_truncate_elided, STAT_truncate_late, NULL);
    put_group(&t, r, "\nOpens with O_CREAT\n", STAT_create_looked, STAT_create_retried, NULL);
    put_group(&t, r, "\nWorker\n", STAT_worker_started, STAT_plain_calls, NULL);
    put_group(&t, r, "\nCalls seen\n", STAT_calls_read, STAT_calls_name, " seen");
    if (text_room(&t) == 0 && n > sizeof cut) {
        memcpy(buf + n - sizeof cut, cut, sizeof cut);
        t.len = n - 1;
    }
    return t.len;
}
