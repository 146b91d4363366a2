/* SPDX-License-Identifier: MIT */
/*
 * From text and environment to struct settings; grammar and caller's rules are in config.h.
 * A config is a flat list of assignments in the order they were read, cut into sections, so that
 * precedence is one walk: a section's kind ranks, and within a kind the later one replaces.
 */
#include "config.h"

#include <string.h>

#include "config_match.h"
#include "config_text.h"
#include "config_value.h"

/* A piece of text: what is left of a line, a key, a value. */
struct span {
    const char *at;
    size_t len;
};

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static struct span trim(struct span s)
{
    while (s.len && blank(s.at[0]))
        s.at++, s.len--;
    while (s.len && blank(s.at[s.len - 1]))
        s.len--;
    return s;
}

/* The part before a comment: one starts at the beginning or after a blank. */
static struct span before_comment(struct span s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((s.at[i] == '#' || s.at[i] == ';') && (i == 0 || blank(s.at[i - 1])))
            s.len = i;
    return s;
}

static bool same(struct span s, const char *word)
{
    return strlen(word) == s.len && memcmp(word, s.at, s.len) == 0;
}

static int fail(struct cfg_error *err, const char *reason, const char *hint)
{
    struct cfg_text r = cfg_text_in(err->reason, sizeof(err->reason));
    struct cfg_text h = cfg_text_in(err->hint, sizeof(err->hint));
    cfg_text_add(&r, reason);
    cfg_text_add(&h, hint);
    return -1;
}

static void set_key(struct cfg_error *err, const char *before, struct span key)
{
    struct cfg_text t = cfg_text_in(err->key, sizeof(err->key));
    cfg_text_add(&t, before);
    cfg_text_bytes(&t, key.at, key.len);
}

static void set_file(struct cfg_error *err, const char *file)
{
    struct cfg_text t = cfg_text_in(err->file, sizeof(err->file));
    cfg_text_add(&t, file);
    err->line = 0;
    err->key[0] = err->reason[0] = err->hint[0] = 0;
}

void cfg_reset(struct config *c)
{
    c->off = c->has_paths = false;
    c->skip = CFG_SKIP_NONE;
    c->nsections = c->nassigns = c->env_used = 0;
    c->file[0] = 0;
}

static int open_section(struct config *c, enum cfg_section_kind kind, struct span glob,
                        struct cfg_error *err)
{
    if (c->nsections == CFG_SECTIONS_MAX)
        return fail(err, "there are more than 128 sections", "merge some, with patterns");
    c->sections[c->nsections++] = (struct cfg_section){
        .kind = kind, .glob = glob.at, .glob_len = (uint32_t)glob.len, .first = c->nassigns};
    c->has_paths |= kind == CFG_IN_PATH;
    return 0;
}

/* `key` and `text` must outlive the config. */
static int assign(struct config *c, const struct cfg_row *row, struct span text, uint32_t line,
                  struct cfg_error *err)
{
    struct cfg_section *s = &c->sections[c->nsections - 1];

    if (s->kind == CFG_IN_PATH && !row->per_path) {
        const char *hint =
            row == &cfg_rows[CFG_ROW_mode]
                ? "to leave these files alone set gate = off, punch = sync and split "
                  "= off here"
                : "move it to [default] or an [app ...] section";
        return fail(err, "holds for the whole program, not for single files", hint);
    }
    for (size_t i = s->first; i < c->nassigns; i++) {
        if (&cfg_rows[c->assigns[i].row] == row) {
            struct cfg_text t = cfg_text_in(err->reason, sizeof(err->reason));
            cfg_text_add(&t, "is set already in this section, on line ");
            cfg_text_number(&t, c->assigns[i].line);
            t = cfg_text_in(err->hint, sizeof(err->hint));
            cfg_text_add(&t, "remove one of the two");
            return -1;
        }
    }
    if (c->nassigns == CFG_ASSIGNS_MAX)
        return fail(err, "there are more than 1024 settings", "remove some");
    struct cfg_assign *a = &c->assigns[c->nassigns];
    *a = (struct cfg_assign){.row = (uint16_t)(row - cfg_rows),
                             .line = line,
                             .text = text.at,
                             .text_len = (uint32_t)text.len};
    if (cfg_value_parse(row, text.at, text.len, &a->value, err))
        return -1;
    c->nassigns++;
    s->count++;
    return 0;
}

/*
 * Take a value off the start of *rest: up to its closing quote if it has one, else up to a comment.
 * What may follow a quote is for the caller to judge.
 */
static int take_value(struct span *rest, struct span *out, bool *quoted, struct cfg_error *err)
{
    struct span s = trim(*rest);
    char quote = s.len && (s.at[0] == '"' || s.at[0] == '\'') ? s.at[0] : 0;

    *quoted = quote != 0;
    if (!quote) {
        *out = trim(before_comment(s));
        *rest = (struct span){s.at + s.len, 0};
        return 0;
    }
    const char *end = memchr(s.at + 1, quote, s.len - 1);
    if (!end)
        return fail(err, "a quote is opened and not closed",
                    "close it on the same line, or leave quotes out");
    *out = (struct span){s.at + 1, (size_t)(end - s.at) - 1};
    *rest = trim(before_comment((struct span){end + 1, s.len - out->len - 2}));
    return 0;
}

static int parse_pattern(struct config *c, enum cfg_section_kind kind, struct span glob,
                         struct cfg_error *err)
{
    const char *fault = cfg_glob_fault(glob.at, glob.len);

    if (!glob.len)
        return fail(err, "this section names no pattern",
                    kind == CFG_IN_APP ? "write [app NAME]" : "write [path /DIR/PATTERN]");
    if (fault)
        return fail(err, fault, "correct the pattern");
    if (kind == CFG_IN_PATH && glob.at[0] != '/')
        return fail(err, "a path pattern must start with '/'",
                    "write it as the program opens it, from the root");
    if (kind == CFG_IN_APP && memchr(glob.at, '/', glob.len))
        return fail(err, "an app section takes a program's file name, not a path",
                    "leave the directories out");
    return open_section(c, kind, glob, err);
}

/* `line` starts with '['. */
static int parse_section(struct config *c, struct span line, struct cfg_error *err)
{
    static const char how[] = "write [default], [app NAME] or [path /PATTERN]";
    struct span s = trim((struct span){line.at + 1, line.len - 1});
    struct span word = {s.at, 0}, glob;
    enum cfg_section_kind kind;
    bool quoted;

    while (word.len < s.len && !blank(s.at[word.len]) && s.at[word.len] != ']')
        word.len++;
    set_key(err, "[", word);
    if (same(word, "default"))
        kind = CFG_IN_DEFAULT;
    else if (same(word, "app"))
        kind = CFG_IN_APP;
    else if (same(word, "path"))
        kind = CFG_IN_PATH;
    else
        return fail(err, "is no section", how);

    s = (struct span){s.at + word.len, s.len - word.len};
    if (take_value(&s, &glob, &quoted, err))
        return -1;
    if (!quoted) { /* the bracket is still on it */
        if (!glob.len || glob.at[glob.len - 1] != ']')
            return fail(err, "the section's ']' is missing or has text after it", how);
        glob.len--;
        glob = trim(glob);
    } else if (!same(s, "]")) {
        return fail(err, "the section's ']' is missing or has text after it", how);
    }
    struct cfg_text t = {err->key, sizeof(err->key), strlen(err->key)};
    if (kind != CFG_IN_DEFAULT) {
        cfg_text_add(&t, " ");
        cfg_text_bytes(&t, glob.at, glob.len);
        cfg_text_add(&t, "]");
        return parse_pattern(c, kind, glob, err);
    }
    cfg_text_add(&t, "]");
    if (glob.len)
        return fail(err, "this section takes no name", how);
    return open_section(c, kind, glob, err);
}

static int parse_setting(struct config *c, struct span line, uint32_t number, struct cfg_error *err)
{
    const char *eq = memchr(line.at, '=', line.len);
    struct span key = {line.at, eq ? (size_t)(eq - line.at) : line.len}, rest, text;
    bool quoted;

    key = trim(key);
    set_key(err, "", key);
    if (!eq)
        return fail(err, "there is no '=' on this line", "write KEY = VALUE");
    const struct cfg_row *row = cfg_row_find(key.at, key.len);
    if (!row) {
        const struct cfg_row *near = cfg_row_nearest(key.at, key.len);
        struct cfg_text hint = cfg_text_in(err->hint, sizeof(err->hint));
        fail(err, "is no setting", "rlshim.conf.example lists them all");
        if (near) {
            cfg_text_add(&hint, "did you mean '");
            cfg_text_add(&hint, near->key);
            cfg_text_add(&hint, "'?");
        }
        return -1;
    }
    rest = (struct span){eq + 1, line.len - (size_t)(eq - line.at) - 1};
    if (take_value(&rest, &text, &quoted, err))
        return -1;
    if (rest.len)
        return fail(err, "there is text after the closing quote", "put all of the value in quotes");
    if (!text.len)
        return fail(err, "has no value", "write one, or remove the line for the built-in value");
    if (!c->nsections && open_section(c, CFG_IN_DEFAULT, (struct span){"", 0}, err))
        return -1;
    return assign(c, row, text, number, err);
}

int cfg_parse(struct config *c, const char *text, size_t len, const char *file,
              struct cfg_error *err)
{
    const char *nul = len ? memchr(text, 0, len) : NULL;
    uint32_t number = 0;

    cfg_reset(c);
    set_file(err, file);
    c->off = true; /* until the last line proved good */
    if (len > CFG_FILE_BYTES_MAX)
        return fail(err, "is larger than 1 MiB", "check that it is the right file");
    if (nul)
        return fail(err, "is not text, it holds NUL bytes", "check that it is the right file");
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3, len -= 3;
    while (len) {
        const char *newline = memchr(text, '\n', len);
        struct span line = {text, newline ? (size_t)(newline - text) : len};

        len -= line.len + (newline != NULL);
        text += line.len + (newline != NULL);
        err->line = ++number;
        err->key[0] = 0;
        if (line.len && line.at[line.len - 1] == '\r')
            line.len--;
        line = trim(line);
        if (!line.len || line.at[0] == '#' || line.at[0] == ';')
            continue;
        if (line.at[0] == '[' ? parse_section(c, line, err) : parse_setting(c, line, number, err))
            return -1;
    }
    struct cfg_text t = cfg_text_in(c->file, sizeof(c->file));
    cfg_text_add(&t, file);
    c->off = false;
    return 0;
}

/* One RLSHIM_ variable. `name` comes without that prefix. */
static int parse_variable(struct config *c, struct span name, const char *value,
                          struct cfg_error *err)
{
    char key[32];
    struct span text = trim((struct span){value, strlen(value)});
    const struct cfg_row *row = NULL;

    set_key(err, "RLSHIM_", name);
    /* Upper case only: RLSHIM_punch is likelier a slip than a wish, and must not pass unseen. */
    bool upper = name.len < sizeof(key);
    for (size_t i = 0; upper && i < name.len; i++) {
        char ch = name.at[i];
        upper = !(ch >= 'a' && ch <= 'z');
        key[i] = ch >= 'A' && ch <= 'Z' ? (char)(ch | 0x20) : ch;
    }
    if (upper)
        row = cfg_row_find(key, name.len);
    if (!row) {
        struct cfg_text hint = cfg_text_in(err->hint, sizeof(err->hint));
        size_t n = name.len < sizeof(key) ? name.len : 0;
        for (size_t i = 0; i < n; i++)
            key[i] =
                name.at[i] >= 'A' && name.at[i] <= 'Z' ? (char)(name.at[i] | 0x20) : name.at[i];
        const struct cfg_row *near = cfg_row_nearest(key, n);
        fail(err, "is no setting", "unset it; rlshim.conf.example lists the settings");
        if (near) {
            cfg_text_add(&hint, "did you mean RLSHIM_");
            for (const char *k = near->key; *k; k++) {
                char upper_case = *k >= 'a' && *k <= 'z' ? (char)(*k & ~0x20) : *k;
                cfg_text_bytes(&hint, &upper_case, 1);
            }
            cfg_text_add(&hint, "?");
        }
        return -1;
    }
    if (!text.len)
        return 0;
    for (size_t i = c->sections[c->nsections - 1].first; i < c->nassigns; i++)
        if (&cfg_rows[c->assigns[i].row] == row)
            return 0;
    if (text.len > sizeof(c->env) - c->env_used)
        return fail(err, "makes the RLSHIM_ variables longer than 8 KiB together",
                    "use a file and RLSHIM_CONF");
    char *copy = c->env + c->env_used;
    memcpy(copy, text.at, text.len);
    c->env_used = (uint16_t)(c->env_used + text.len);
    return assign(c, row, (struct span){copy, text.len}, 0, err);
}

int cfg_env(struct config *c, char *const *env, struct cfg_error *err)
{
    static const char prefix[] = "RLSHIM_";
    bool was_off = c->off;

    set_file(err, "environment");
    c->off = true;
    for (; env && *env; env++) {
        const char *name = *env + sizeof(prefix) - 1;
        if (strncmp(*env, prefix, sizeof(prefix) - 1) != 0)
            continue;
        const char *eq = strchr(name, '=');
        if (!eq || same((struct span){name, (size_t)(eq - name)}, "CONF"))
            continue;
        if ((!c->nsections || c->sections[c->nsections - 1].kind != CFG_IN_ENV) &&
            open_section(c, CFG_IN_ENV, (struct span){"", 0}, err))
            return -1;
        if (parse_variable(c, (struct span){name, (size_t)(eq - name)}, eq + 1, err))
            return -1;
    }
    c->off = was_off;
    return 0;
}

static bool section_applies(const struct cfg_section *s, struct span app, const char *path)
{
    switch (s->kind) {
    case CFG_IN_APP:
        return app.at && cfg_glob_match(s->glob, s->glob_len, app.at, app.len);
    case CFG_IN_PATH:
        return path && cfg_glob_match(s->glob, s->glob_len, path, strlen(path));
    case CFG_IN_DEFAULT:
    case CFG_IN_ENV:
        break;
    }
    return true;
}

void cfg_settings(const struct config *c, const char *app, const char *path, struct settings *out)
{
    const struct cfg_assign *best[CFG_ROWS] = {NULL};
    enum cfg_section_kind rank[CFG_ROWS] = {CFG_IN_DEFAULT};
    struct span name = {NULL, 0};
    struct cfg_error unused;

    if (app) {
        const char *slash = strrchr(app, '/');
        name.at = slash ? slash + 1 : app;
        name.len = strlen(name.at);
    }
    for (size_t i = 0; i < c->nsections; i++) {
        const struct cfg_section *s = &c->sections[i];
        if (!section_applies(s, name, path))
            continue;
        for (size_t k = s->first; k < (size_t)s->first + s->count; k++) {
            size_t row = c->assigns[k].row;
            if (s->kind >= rank[row]) {
                rank[row] = s->kind;
                best[row] = &c->assigns[k];
            }
        }
    }
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < CFG_ROWS; i++) {
        const struct cfg_row *row = &cfg_rows[i];
        struct cfg_value v;
        bool later = row->later || (best[i] && best[i]->value.later);
        const char *fixed = later && row->meanwhile ? row->meanwhile : row->builtin;

        if (best[i] && !(later && row->meanwhile))
            v = best[i]->value;
        else
            cfg_value_parse(row, fixed, strlen(fixed), &v, &unused);
        cfg_value_store(row, &v, out);
    }
    if (c->off)
        out->mode = CFG_MODE_OFF;
}

bool cfg_has_paths(const struct config *c)
{
    return c->has_paths;
}

bool cfg_any_path_sets(const struct config *c, int row)
{
    bool any = false;

    for (size_t i = 0; i < c->nsections; i++) {
        const struct cfg_section *s = &c->sections[i];
        for (size_t k = s->first; k < (size_t)s->first + s->count; k++) {
            if (c->assigns[k].row != row)
                continue;
            if (s->kind == CFG_IN_ENV)
                return false;
            any |= s->kind == CFG_IN_PATH && c->assigns[k].value.number != 0;
        }
    }
    return any;
}

bool cfg_path_matches(const struct config *c, const char *path)
{
    for (size_t i = 0; c->has_paths && i < c->nsections; i++)
        if (c->sections[i].kind == CFG_IN_PATH &&
            section_applies(&c->sections[i], (struct span){0}, path))
            return true;
    return false;
}

bool cfg_vouches(const struct config *c)
{
    for (size_t i = 0; i < c->nassigns; i++)
        if (c->assigns[i].row == CFG_ROW_share && c->assigns[i].value.number != CFG_SHARE_AUTO)
            return true;
    return false;
}
