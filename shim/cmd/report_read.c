/* SPDX-License-Identifier: MIT */
/*
 * report_read: see report_read.h. JSON is jansson's business; here what it says is checked. Numbers
 * that do not fit, and texts longer than there is room for, are cut.
 */
#include <string.h>

#include "report_read.h"

static const char ill_formed[] = "it is damaged: a member is not what it should be";

static bool text_to(const json_t *v, char *buf, size_t n)
{
    const char *s = json_string_value(v);
    size_t len = s != NULL ? json_string_length(v) : 0;

    if (v != NULL && s == NULL)
        return false;
    if (len >= n)
        len = n - 1;
    if (s != NULL)
        memcpy(buf, s, len);
    buf[len] = '\0';
    return true;
}

static bool number_to(const json_t *v, uint64_t *out)
{
    if (v == NULL)
        return true;
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static bool read_command(const json_t *list, struct report *out)
{
    out->command_len = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t room = sizeof out->command - out->command_len;
        char *at = out->command + out->command_len;

        if (!json_is_string(json_array_get(list, i)))
            return false;
        if (room <= 1)
            continue;
        text_to(json_array_get(list, i), at, room);
        out->command_len += (uint32_t)strlen(at) + 1;
    }
    return list == NULL || json_is_array(list);
}

static bool read_lists(const json_t *root, struct report *out)
{
    const json_t *counters = json_object_get(root, "counters");
    const json_t *settled = json_object_get(root, "settled");
    const json_t *settings = json_object_get(root, "settings");

    for (int i = 0; i < STAT_COUNT; i++)
        if (!number_to(json_object_get(counters, stat_name((enum stat_id)i)), &out->value[i]))
            return false;
    for (int i = 0; i < WHY_COUNT; i++)
        if (!number_to(json_object_get(settled, why_name((enum why)i)), &out->settled[i]))
            return false;
    for (int i = 0; i < CFG_ROWS; i++)
        if (!text_to(json_object_get(settings, cfg_rows[i].key), out->setting[i],
                     sizeof out->setting[i]))
            return false;
    return (counters == NULL || json_is_object(counters)) &&
           (settled == NULL || json_is_object(settled)) &&
           (settings == NULL || json_is_object(settings));
}

static const char *read_members(const json_t *root, struct report *out)
{
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const json_t *rank = json_object_get(root, "rank");
    uint64_t version = 0, pid = 0, number = 0;

    memset(out, 0, sizeof *out);
    out->rank = -1;
    out->processes = 1;
    if (schema == NULL || strcmp(schema, REPORT_SCHEMA) != 0)
        return "it is JSON, but not a report of rlshim";
    if (!number_to(json_object_get(root, "version"), &version) || version != REPORT_VERSION)
        return "it was written by another version of rlshim; use that version's command";
    if (!text_to(json_object_get(root, "host"), out->host, sizeof out->host) ||
        !text_to(json_object_get(root, "kernel"), out->kernel, sizeof out->kernel) ||
        !text_to(json_object_get(root, "program"), out->program, sizeof out->program) ||
        !number_to(json_object_get(root, "pid"), &pid) ||
        !number_to(json_object_get(root, "started_ns"), &out->started_ns) ||
        !number_to(json_object_get(root, "ended_ns"), &out->ended_ns) ||
        !read_command(json_object_get(root, "command"), out) || !read_lists(root, out))
        return ill_formed;
    out->pid = (uint32_t)pid;
    out->command_cut = json_is_true(json_object_get(root, "command_cut"));
    if (rank == NULL || json_is_null(rank))
        return NULL;
    if (!number_to(rank, &number))
        return ill_formed;
    out->rank = (int64_t)number;
    return NULL;
}

static const char *parse(const char *text, size_t n, json_t **root)
{
    json_error_t error;
    size_t at = 0;

    while (at < n && strchr(" \t\r\n", text[at]) != NULL && text[at] != '\0')
        at++;
    if (at == n)
        return "it is empty";
    if (text[at] != '{')
        return "it is not a JSON report (text reports are for people; name the .json file)";
    *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (*root != NULL)
        return NULL;
    return json_error_code(&error) == json_error_premature_end_of_input ? "it is cut short"
           : json_error_code(&error) == json_error_out_of_memory ? "there is not enough memory"
           : json_error_code(&error) == json_error_stack_overflow
               ? "it is nested too deeply to be a report"
           : json_error_code(&error) == json_error_numeric_overflow
               ? "it is damaged: a number is too large"
           : json_error_code(&error) == json_error_end_of_input_expected
               ? "it is damaged: something follows its end"
               : "it is damaged: it is not well-formed JSON";
}

const char *report_read_all(const char *text, size_t n, struct report *out, struct observed **seen)
{
    json_t *root = NULL;
    const json_t *member;
    const char *bad = parse(text, n, &root);

    *seen = NULL;
    if (bad == NULL)
        bad = read_members(root, out);
    member = bad == NULL ? json_object_get(root, "observed") : NULL;
    if (member != NULL)
        *seen = observed_read(member, out->pid, &bad);
    json_decref(root);
    return bad;
}

const char *report_read(const char *text, size_t n, struct report *out)
{
    struct observed *seen;
    const char *bad = report_read_all(text, n, out, &seen);

    observed_free(seen);
    return bad;
}

void report_add(struct report *sum, const struct report *more)
{
    sum->processes += more->processes;
    sum->mixed_hosts |= strcmp(sum->host, more->host) != 0;
    sum->mixed_programs |= strcmp(sum->program, more->program) != 0;
    sum->mixed_kernels |= strcmp(sum->kernel, more->kernel) != 0;
    if (more->started_ns < sum->started_ns)
        sum->started_ns = more->started_ns;
    if (more->ended_ns > sum->ended_ns)
        sum->ended_ns = more->ended_ns;
    for (int i = 0; i < STAT_COUNT; i++) {
        if (!stat_is_peak((enum stat_id)i))
            sum->value[i] += more->value[i];
        else if (more->value[i] > sum->value[i])
            sum->value[i] = more->value[i];
    }
    for (int i = 0; i < WHY_COUNT; i++)
        sum->settled[i] += more->settled[i];
    for (int i = 0; i < CFG_ROWS; i++)
        if (strcmp(sum->setting[i], more->setting[i]) != 0)
            strcpy(sum->setting[i], "(several)");
}
