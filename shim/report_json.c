/* SPDX-License-Identifier: MIT */
/* report_json: struct report as JSON. The reader is shim/cmd/report_read.c. */
#include "../include/rlshim/control.h"
#include "report.h"

static void put_key(struct cfg_text *t, const char *key)
{
    cfg_text_add(t, "  \"");
    cfg_text_add(t, key);
    cfg_text_add(t, "\": ");
}

static void put_string(struct cfg_text *t, const char *key, const char *value)
{
    put_key(t, key);
    text_json(t, value, strlen(value));
    cfg_text_add(t, ",\n");
}

static void put_number(struct cfg_text *t, const char *key, uint64_t value)
{
    put_key(t, key);
    cfg_text_number(t, value);
    cfg_text_add(t, ",\n");
}

static void put_time(struct cfg_text *t, const char *key, const char *key_ns, uint64_t ns)
{
    put_key(t, key);
    cfg_text_add(t, "\"");
    text_utc(t, ns);
    cfg_text_add(t, "\",\n");
    put_number(t, key_ns, ns);
}

static void put_command(struct cfg_text *t, const struct report *r)
{
    put_key(t, "command");
    cfg_text_add(t, "[");
    for (uint32_t i = 0; i < r->command_len;) {
        size_t len = strnlen(r->command + i, r->command_len - i);

        cfg_text_add(t, i != 0 ? ", " : "");
        text_json(t, r->command + i, len);
        i += (uint32_t)len + 1;
    }
    cfg_text_add(t, "],\n");
    put_key(t, "command_cut");
    cfg_text_add(t, r->command_cut ? "true,\n" : "false,\n");
}

/* One member of an inner object. */
static void put_member(struct cfg_text *t, bool *first, const char *key)
{
    cfg_text_add(t, *first ? "\n    \"" : ",\n    \"");
    cfg_text_add(t, key);
    cfg_text_add(t, "\": ");
    *first = false;
}

size_t report_json(const struct report *r, char *buf, size_t n)
{
    struct cfg_text t = cfg_text_in(buf, n);
    bool first = true;

    cfg_text_add(&t, "{\n");
    put_string(&t, "schema", REPORT_SCHEMA);
    put_number(&t, "version", REPORT_VERSION);
    put_string(&t, "rlshim", RLSHIM_VERSION);
    put_string(&t, "host", r->host);
    put_number(&t, "pid", r->pid);
    put_key(&t, "rank");
    if (r->rank >= 0)
        cfg_text_number(&t, (uint64_t)r->rank);
    else
        cfg_text_add(&t, "null");
    cfg_text_add(&t, ",\n");
    put_string(&t, "program", r->program);
    put_command(&t, r);
    put_time(&t, "started", "started_ns", r->started_ns);
    put_time(&t, "ended", "ended_ns", r->ended_ns);
    put_string(&t, "kernel", r->kernel);

    put_key(&t, "settings");
    cfg_text_add(&t, "{");
    for (int i = 0; i < CFG_ROWS; i++) {
        if (r->setting[i][0] == '\0')
            continue;
        put_member(&t, &first, cfg_rows[i].key);
        text_json(&t, r->setting[i], strlen(r->setting[i]));
    }
    cfg_text_add(&t, "\n  },\n");

    first = true;
    put_key(&t, "counters");
    cfg_text_add(&t, "{");
    for (int i = 0; i < STAT_COUNT; i++) {
        put_member(&t, &first, stat_name((enum stat_id)i));
        cfg_text_number(&t, r->value[i]);
    }
    cfg_text_add(&t, "\n  },\n");

    first = true;
    put_key(&t, "settled");
    cfg_text_add(&t, "{");
    for (int i = 0; i < WHY_COUNT; i++) {
        put_member(&t, &first, why_name((enum why)i));
        cfg_text_number(&t, r->settled[i]);
    }
    cfg_text_add(&t, "\n  }");
    if (report_extra.put != NULL) {
        cfg_text_add(&t, ",\n");
        put_key(&t, "observed");
        report_extra.put(&t);
    }
    cfg_text_add(&t, "\n}\n");

    return text_room(&t) != 0 ? t.len : 0;
}
