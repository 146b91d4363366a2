/* SPDX-License-Identifier: MIT */
/*
 * Values of settings: the table of rows, and text to value and back. Messages name what would have
 * been right, since whoever reads them has a file open and wants to fix it at once.
 */
#include "config_value.h"

#include <string.h>

#include "config_text.h"

#define NOW                   false
#define LATER                 true
#define W(value, text, since) {(value), text, since},
#define CFG_WORD_TABLE(list)                                                                       \
    static const struct cfg_word words_##list[] = {CFG_WORDS_##list(W){0, NULL, false}};
CFG_WORD_LISTS(CFG_WORD_TABLE)

#define SCOPE_PATH    true
#define SCOPE_PROCESS false
/* Where the member for a path is, for the kinds that have one. */
#define PLACE_LOG(field)   offsetof(struct settings, field##_path)
#define PLACE_PATH(field)  offsetof(struct settings, field)
#define PLACE_ENUM(field)  0
#define PLACE_BOOL(field)  0
#define PLACE_SIZE(field)  0
#define PLACE_TIME(field)  0
#define PLACE_COUNT(field) 0

const struct cfg_row cfg_rows[CFG_ROWS] = {
#define CFG_SETTING(key_, field, kind_, list, min_, max_, unit_, builtin_, scope, since,           \
                    meanwhile_, help_)                                                             \
    [CFG_ROW_##field] = {.key = key_,                                                              \
                         .kind = CFG_KIND_##kind_,                                                 \
                         .words = words_##list,                                                    \
                         .min = min_,                                                              \
                         .max = max_,                                                              \
                         .unit = unit_,                                                            \
                         .builtin = builtin_,                                                      \
                         .per_path = SCOPE_##scope,                                                \
                         .later = since,                                                           \
                         .meanwhile = meanwhile_,                                                  \
                         .help = help_,                                                            \
                         .offset = offsetof(struct settings, field),                               \
                         .path_offset = PLACE_##kind_(field)},
#include "settings.def"
};

struct unit {
    const char *text;
    uint64_t factor;
};
static const struct unit size_units[] = {{"T", CFG_T}, {"G", CFG_G}, {"M", CFG_M},
                                         {"K", CFG_K}, {"", 1},      {NULL, 0}};
static const struct unit time_units[] = {{"s", CFG_S}, {"ms", CFG_MS}, {"us", CFG_US}, {NULL, 0}};
static const struct unit count_units[] = {{"", 1}, {NULL, 0}};

static const struct unit *units_of(const struct cfg_row *row)
{
    if (row->kind == CFG_KIND_SIZE)
        return size_units;
    return row->kind == CFG_KIND_TIME ? time_units : count_units;
}

static bool is_number(const struct cfg_row *row)
{
    return row->kind == CFG_KIND_SIZE || row->kind == CFG_KIND_TIME || row->kind == CFG_KIND_COUNT;
}

static bool equal(const char *word, const char *text, size_t len)
{
    return strlen(word) == len && memcmp(word, text, len) == 0;
}

const struct cfg_row *cfg_row_find(const char *key, size_t len)
{
    for (size_t i = 0; i < CFG_ROWS; i++)
        if (equal(cfg_rows[i].key, key, len))
            return &cfg_rows[i];
    return NULL;
}

/* Letters to insert, remove, replace or swap with a neighbour to get from a to b. */
static unsigned edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
    enum { LONGEST = 32 };
    unsigned row[3][LONGEST + 1];
    if (na > LONGEST || nb > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= nb; j++)
        row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned *now = row[i % 3], *before = row[(i + 2) % 3], *older = row[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned best = before[j - 1] + (a[i - 1] != b[j - 1]);
            if (before[j] + 1 < best)
                best = before[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                older[j - 2] + 1 < best)
                best = older[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[na % 3][nb];
}

const struct cfg_row *cfg_row_nearest(const char *key, size_t len)
{
    const struct cfg_row *best = NULL;
    unsigned best_distance = len < 6 ? 2 : 3; /* one slip in a short word, two in a long one */
    for (size_t i = 0; i < CFG_ROWS; i++) {
        unsigned d = edit_distance(key, len, cfg_rows[i].key, strlen(cfg_rows[i].key));
        if (d < best_distance) {
            best_distance = d;
            best = &cfg_rows[i];
        }
    }
    return best;
}

static void put_number(struct cfg_text *t, const struct cfg_row *row, uint64_t v)
{
    const struct unit *u = units_of(row);
    while (u[1].text && (v == 0 || v % u->factor))
        u++;
    cfg_text_number(t, v / u->factor);
    cfg_text_add(t, u->text);
}

static void put_allowed(struct cfg_text *t, const struct cfg_row *row)
{
    for (const struct cfg_word *w = row->words; w->text; w++) {
        if (w != row->words)
            cfg_text_add(t, w[1].text || is_number(row) ? ", " : " or ");
        cfg_text_add(t, w->text);
    }
    if (!is_number(row))
        return;
    if (row->words->text)
        cfg_text_add(t, " or ");
    cfg_text_add(t, row->kind == CFG_KIND_SIZE   ? "a size"
                    : row->kind == CFG_KIND_TIME ? "a time"
                                                 : "a number");
    cfg_text_add(t, " from ");
    put_number(t, row, row->min);
    cfg_text_add(t, " to ");
    put_number(t, row, row->max);
}

/* "'banana' is not <what>; write <allowed>" */
static int refuse(const struct cfg_row *row, const char *text, size_t len, const char *what,
                  struct cfg_error *err)
{
    struct cfg_text reason = cfg_text_in(err->reason, sizeof(err->reason));
    struct cfg_text hint = cfg_text_in(err->hint, sizeof(err->hint));
    cfg_text_quote(&reason, text, len);
    cfg_text_add(&reason, " ");
    cfg_text_add(&reason, what);
    cfg_text_add(&hint, "write ");
    put_allowed(&hint, row);
    return -1;
}

static int parse_number(const struct cfg_row *row, const char *text, size_t len,
                        struct cfg_value *out, struct cfg_error *err)
{
    uint64_t v = 0;
    size_t i = 0;
    const struct unit *u = units_of(row);

    for (; i < len && text[i] >= '0' && text[i] <= '9'; i++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, text[i] - '0', &v))
            return refuse(row, text, len, "is too large", err);
    if (i == 0)
        return refuse(row, text, len, "is not a value it can take", err);
    while (u->text && !equal(u->text, text + i, len - i) &&
           !(row->kind == CFG_KIND_SIZE && len - i == 1 && u->text[0] == (text[i] & ~0x20)))
        u++;
    if (!u->text && row->kind == CFG_KIND_TIME)
        return refuse(row, text, len,
                      i == len ? "has no unit (us, ms or s)" : "does not end in us, ms or s", err);
    if (!u->text)
        return refuse(row, text, len,
                      row->kind == CFG_KIND_SIZE ? "does not end in K, M, G or T"
                                                 : "is not a plain number",
                      err);
    if (__builtin_mul_overflow(v, u->factor, &v) || v > row->max)
        return refuse(row, text, len, "is too large", err);
    if (v < row->min)
        return refuse(row, text, len, "is too small", err);
    if (v % row->unit) {
        struct cfg_text reason = cfg_text_in(err->reason, sizeof(err->reason));
        struct cfg_text hint = cfg_text_in(err->hint, sizeof(err->hint));
        cfg_text_quote(&reason, text, len);
        cfg_text_add(&reason, " is not a multiple of ");
        put_number(&reason, row, row->unit);
        cfg_text_add(&hint, "write ");
        put_number(&hint, row, v - v % row->unit);
        return -1;
    }
    out->number = v;
    return 0;
}

/*
 * A place in the file system, after a level of level_len bytes. A name without any '/' is refused:
 * `report = on` and `log = yes` are far likelier to be mistakes than wishes for files of those
 * names.
 */
static int parse_place(const struct cfg_row *row, const char *text, size_t len, size_t level_len,
                       struct cfg_value *out, struct cfg_error *err)
{
    const char *path = text + level_len;
    size_t path_len = len - level_len;
    struct cfg_text reason = cfg_text_in(err->reason, sizeof(err->reason));
    struct cfg_text hint = cfg_text_in(err->hint, sizeof(err->hint));
    bool is_path = (path_len && memchr(path, '/', path_len)) || equal(".", path, path_len) ||
                   equal("..", path, path_len);

    /* "inof:/tmp/x" is a misspelt level, not a directory "inof:". */
    if (row->kind == CFG_KIND_LOG && !level_len && text[0] != '/' && text[0] != '.')
        is_path = false;

    if (is_path && path_len < CFG_PATH_BYTES) {
        out->path = path;
        out->path_len = (uint32_t)path_len;
        return 0;
    }
    cfg_text_quote(&reason, text, len);
    if (is_path) {
        cfg_text_add(&reason, " is longer than ");
        cfg_text_number(&reason, CFG_PATH_BYTES - 1);
        cfg_text_add(&reason, " bytes");
        cfg_text_add(&hint, "name a shorter path");
        return -1;
    }
    cfg_text_add(&reason,
                 row->kind == CFG_KIND_LOG ? " is no level and no path" : " is not a path");
    cfg_text_add(&hint, "write ");
    if (row->kind == CFG_KIND_LOG)
        cfg_text_add(&hint, "off, error, info or debug, or one of them with :/PATH, or a path such "
                            "as /tmp/rlshim.log or ./rlshim.log");
    else
        cfg_text_add(&hint, "off, or a path with a '/' such as /tmp/rlshim or ./rlshim");
    return -1;
}

static int parse_log(const struct cfg_row *row, const char *text, size_t len, struct cfg_value *out,
                     struct cfg_error *err)
{
    for (const struct cfg_word *w = row->words; w->text; w++) {
        size_t n = strlen(w->text);
        if (w->value != CFG_LOG_OFF && len > n && memcmp(text, w->text, n) == 0 && text[n] == ':') {
            out->number = w->value;
            return parse_place(row, text, len, n + 1, out, err);
        }
    }
    out->number = CFG_LOG_INFO;
    return parse_place(row, text, len, 0, out, err);
}

int cfg_value_parse(const struct cfg_row *row, const char *text, size_t len, struct cfg_value *out,
                    struct cfg_error *err)
{
    memset(out, 0, sizeof(*out));
    for (const struct cfg_word *w = row->words; w->text; w++) {
        if (equal(w->text, text, len)) {
            out->number = w->value;
            out->later = w->later;
            return 0;
        }
    }
    switch (row->kind) {
    case CFG_KIND_SIZE:
    case CFG_KIND_TIME:
    case CFG_KIND_COUNT:
        return parse_number(row, text, len, out, err);
    case CFG_KIND_PATH:
        return parse_place(row, text, len, 0, out, err);
    case CFG_KIND_LOG:
        return parse_log(row, text, len, out, err);
    case CFG_KIND_ENUM:
    case CFG_KIND_BOOL:
        break;
    }
    return refuse(row, text, len, "is not a value it can take", err);
}

void cfg_value_store(const struct cfg_row *row, const struct cfg_value *v, struct settings *s)
{
    char *base = (char *)s;
    unsigned word = (unsigned)v->number;
    bool flag = v->number != 0;

    _Static_assert(sizeof(enum cfg_mode) == sizeof(unsigned), "enums are stored as unsigned");
    switch (row->kind) {
    case CFG_KIND_BOOL:
        memcpy(base + row->offset, &flag, sizeof(flag));
        return;
    case CFG_KIND_SIZE:
    case CFG_KIND_TIME:
    case CFG_KIND_COUNT:
        memcpy(base + row->offset, &v->number, sizeof(v->number));
        return;
    case CFG_KIND_ENUM:
    case CFG_KIND_LOG:
        memcpy(base + row->offset, &word, sizeof(word));
        break;
    case CFG_KIND_PATH:
        break;
    }
    if (row->path_offset) {
        memset(base + row->path_offset, 0, CFG_PATH_BYTES);
        if (v->path)
            memcpy(base + row->path_offset, v->path, v->path_len);
    }
}

int cfg_format(const struct cfg_row *row, const struct settings *s, char *buf, size_t n)
{
    struct cfg_text t = cfg_text_in(buf, n);
    const char *base = (const char *)s;
    const char *path = row->path_offset ? base + row->path_offset : "";
    uint64_t number = 0;
    unsigned word;

    if (row->kind == CFG_KIND_BOOL) {
        number = *(const bool *)(base + row->offset);
    } else if (is_number(row)) {
        memcpy(&number, base + row->offset, sizeof(number));
    } else if (row->kind != CFG_KIND_PATH) {
        memcpy(&word, base + row->offset, sizeof(word));
        number = word;
    }
    if (row->kind != CFG_KIND_PATH || !*path) {
        const struct cfg_word *w = row->words;
        while (w->text && w->value != number)
            w++;
        if (w->text)
            cfg_text_add(&t, w->text);
        else
            put_number(&t, row, number);
        if (*path)
            cfg_text_add(&t, ":");
    }
    cfg_text_add(&t, path);
    return (int)t.len;
}
