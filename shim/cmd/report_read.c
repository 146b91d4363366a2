/* SPDX-License-Identifier: MIT */
/*
 * report_read: see report_read.h.
 *
 * A recursive-descent reader over a bounded text. `p` never passes `end`; the first mistake sets
 * `bad` and moves p to end, so callers need to look only once.
 */
#include "report_read.h"

enum { DEPTH_MAX = 32 };

struct reader {
    const char *p, *end;
    const char *bad;
};

static void wrong(struct reader *r, const char *why)
{
    if (r->bad == NULL)
        r->bad = why;
    r->p = r->end;
}

static char peek(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
    return r->p < r->end ? *r->p : '\0';
}

static bool take(struct reader *r, char c)
{
    if (peek(r) != c || r->p == r->end)
        return false;
    r->p++;
    return true;
}

static void expect(struct reader *r, char c)
{
    if (!take(r, c))
        wrong(r, "it is damaged or cut short");
}

static unsigned hex4(struct reader *r)
{
    unsigned v = 0;

    for (int i = 0; i < 4; i++) {
        char c = r->p < r->end ? *r->p++ : 'x';

        if (c >= '0' && c <= '9')
            v = v * 16 + (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'f')
            v = v * 16 + (unsigned)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            v = v * 16 + (unsigned)(c - 'A' + 10);
        else
            wrong(r, "it is damaged: a \\u without four hexadecimal digits");
    }
    return v;
}

static void put_code(struct cfg_text *t, unsigned c)
{
    char u[3] = {(char)(0xe0 | c >> 12), (char)(0x80 | (c >> 6 & 63)), (char)(0x80 | (c & 63))};

    if (c < 0x80) {
        u[0] = (char)c;
        cfg_text_bytes(t, u, 1);
    } else if (c < 0x800) {
        u[0] = (char)(0xc0 | c >> 6);
        u[1] = (char)(0x80 | (c & 63));
        cfg_text_bytes(t, u, 2);
    } else {
        cfg_text_bytes(t, u, 3); /* our writer never uses surrogate pairs */
    }
}

/* A string, cut to what fits. */
static void read_string(struct reader *r, char *buf, size_t n)
{
    struct cfg_text t = cfg_text_in(buf, n);

    expect(r, '"');
    for (;;) {
        char c;

        if (r->p == r->end) {
            wrong(r, "it is damaged or cut short");
            return;
        }
        c = *r->p++;
        if (c == '"')
            return;
        if ((unsigned char)c < 0x20) {
            wrong(r, "it is damaged: a control character in a string");
            return;
        }
        if (c == '\\') {
            static const char from[] = "nrtbf", to[] = "\n\r\t\b\f";
            const char *at;

            c = r->p < r->end ? *r->p++ : '\0';
            if (c == 'u') {
                put_code(&t, hex4(r));
                continue;
            }
            at = c != '\0' ? strchr(from, c) : NULL;
            if (at != NULL)
                c = to[at - from];
            else if (c != '"' && c != '\\' && c != '/')
                wrong(r, "it is damaged: an unknown escape in a string");
        }
        cfg_text_bytes(&t, &c, 1);
    }
}

static uint64_t read_number(struct reader *r)
{
    uint64_t n = 0;

    if (peek(r) < '0' || peek(r) > '9')
        wrong(r, "it is damaged: a number was expected");
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++) {
        unsigned digit = (unsigned)(*r->p - '0');

        if (n > (UINT64_MAX - digit) / 10) {
            wrong(r, "it is damaged: a number is too large");
            return 0;
        }
        n = n * 10 + digit;
    }
    if (r->p < r->end && (*r->p == '.' || *r->p == 'e' || *r->p == 'E'))
        wrong(r, "it is damaged: a whole number was expected");
    return n;
}

static bool read_word(struct reader *r, const char *word)
{
    size_t n = strlen(word);

    peek(r);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n) != 0)
        return false;
    r->p += n;
    return true;
}

static void skip_value(struct reader *r, int depth)
{
    char none[1];

    if (depth > DEPTH_MAX) {
        wrong(r, "it is nested too deeply to be a report");
        return;
    }
    switch (peek(r)) {
    case '"':
        read_string(r, none, sizeof none);
        return;
    case '{':
    case '[': {
        char close = *r->p++ == '{' ? '}' : ']';

        if (take(r, close))
            return;
        do {
            if (close == '}') {
                read_string(r, none, sizeof none);
                expect(r, ':');
            }
            skip_value(r, depth + 1);
        } while (take(r, ','));
        expect(r, close);
        return;
    }
    default:
        if (read_word(r, "true") || read_word(r, "false") || read_word(r, "null"))
            return;
        if (peek(r) == '-')
            r->p++;
        if (peek(r) < '0' || peek(r) > '9')
            wrong(r, "it is damaged or cut short");
        while (r->p < r->end && strchr("0123456789.eE+-", *r->p) != NULL)
            r->p++;
    }
}

static void read_command(struct reader *r, struct report *out)
{
    expect(r, '[');
    out->command_len = 0;
    if (take(r, ']'))
        return;
    do {
        size_t room = sizeof out->command - out->command_len;
        char *at = out->command + out->command_len;

        if (room > 1) {
            read_string(r, at, room);
            out->command_len += (uint32_t)strlen(at) + 1;
        } else {
            skip_value(r, 1);
        }
    } while (take(r, ','));
    expect(r, ']');
}

static uint64_t *counter(struct report *out, const char *name)
{
    for (int i = 0; i < STAT_COUNT; i++)
        if (strcmp(name, stat_name((enum stat_id)i)) == 0)
            return &out->value[i];
    return NULL;
}

static uint64_t *reason(struct report *out, const char *name)
{
    for (int i = 0; i < WHY_COUNT; i++)
        if (strcmp(name, why_name((enum why)i)) == 0)
            return &out->settled[i];
    return NULL;
}

static void read_numbers(struct reader *r, struct report *out,
                         uint64_t *(*place)(struct report *out, const char *name))
{
    char name[64];

    expect(r, '{');
    if (take(r, '}'))
        return;
    do {
        uint64_t *to, n;

        read_string(r, name, sizeof name);
        expect(r, ':');
        n = read_number(r);
        to = place(out, name);
        if (to != NULL)
            *to = n;
    } while (take(r, ','));
    expect(r, '}');
}

static void read_settings(struct reader *r, struct report *out)
{
    char key[64], other[1];

    expect(r, '{');
    if (take(r, '}'))
        return;
    do {
        int row = 0;

        read_string(r, key, sizeof key);
        expect(r, ':');
        while (row < CFG_ROWS && strcmp(cfg_rows[row].key, key) != 0)
            row++;
        if (row < CFG_ROWS)
            read_string(r, out->setting[row], sizeof out->setting[row]);
        else
            read_string(r, other, sizeof other);
    } while (take(r, ','));
    expect(r, '}');
}

static void read_member(struct reader *r, const char *key, struct report *out, char *schema,
                        size_t schema_size, uint64_t *version)
{
    if (strcmp(key, "schema") == 0 && peek(r) == '"')
        read_string(r, schema, schema_size);
    else if (strcmp(key, "version") == 0)
        *version = read_number(r);
    else if (strcmp(key, "host") == 0)
        read_string(r, out->host, sizeof out->host);
    else if (strcmp(key, "kernel") == 0)
        read_string(r, out->kernel, sizeof out->kernel);
    else if (strcmp(key, "program") == 0)
        read_string(r, out->program, sizeof out->program);
    else if (strcmp(key, "pid") == 0)
        out->pid = (uint32_t)read_number(r);
    else if (strcmp(key, "rank") == 0)
        out->rank = read_word(r, "null") ? -1 : (int64_t)(read_number(r) & INT64_MAX);
    else if (strcmp(key, "started_ns") == 0)
        out->started_ns = read_number(r);
    else if (strcmp(key, "ended_ns") == 0)
        out->ended_ns = read_number(r);
    else if (strcmp(key, "command") == 0)
        read_command(r, out);
    else if (strcmp(key, "command_cut") == 0 && read_word(r, "true"))
        out->command_cut = true;
    else if (strcmp(key, "settings") == 0)
        read_settings(r, out);
    else if (strcmp(key, "counters") == 0)
        read_numbers(r, out, counter);
    else if (strcmp(key, "settled") == 0)
        read_numbers(r, out, reason);
    else
        skip_value(r, 0);
}

const char *report_read(const char *text, size_t n, struct report *out)
{
    struct reader r = {text, text + n, NULL};
    char key[64], schema[32] = "";
    uint64_t version = 0;

    memset(out, 0, sizeof *out);
    out->rank = -1;
    out->processes = 1;
    if (peek(&r) == '\0' && r.p == r.end)
        return "it is empty";
    if (!take(&r, '{'))
        return "it is not a JSON report (text reports are for people; name the .json file)";
    if (!take(&r, '}')) {
        do {
            read_string(&r, key, sizeof key);
            expect(&r, ':');
            read_member(&r, key, out, schema, sizeof schema, &version);
        } while (take(&r, ','));
        expect(&r, '}');
    }
    if (r.bad == NULL && (peek(&r) != '\0' || r.p != r.end))
        wrong(&r, "it is damaged: something follows its end");
    if (r.bad != NULL)
        return r.bad;
    if (strcmp(schema, REPORT_SCHEMA) != 0)
        return "it is JSON, but not a report of rlshim";
    if (version != REPORT_VERSION)
        return "it was written by another version of rlshim; use that version's command";
    return NULL;
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
