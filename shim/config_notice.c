/* SPDX-License-Identifier: MIT */
/*
 * What the configuration has to tell its user: the one error line, and the notices for log = info.
 * Everything shown may come from a hostile file or variable, so it is made safe for a terminal.
 */
#include "config.h"

#include <string.h>

#include "config_text.h"

/* Length of the valid, printable UTF-8 sequence at s, or 0. */
static size_t printable(const unsigned char *s)
{
    size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : 4;
    if (n == 1)
        return s[0] >= 0x20 && s[0] != 0x7f;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    /* Overlong forms, surrogates, beyond U+10FFFF; U+0080 to 009F are control characters too. */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f) ||
        (s[0] == 0xc2 && s[1] < 0xa0))
        return 0;
    return n;
}

static int finish(struct cfg_text *t)
{
    for (size_t i = 0; i < t->len;) {
        size_t n = printable((const unsigned char *)t->buf + i);
        if (!n)
            t->buf[i] = '?';
        i += n ? n : 1;
    }
    return (int)t->len;
}

static void put_place(struct cfg_text *t, const char *file, uint32_t line)
{
    cfg_text_add(t, "rlshim: ");
    cfg_text_add(t, file);
    if (line) {
        cfg_text_add(t, ":");
        cfg_text_number(t, line);
    }
    cfg_text_add(t, ": ");
}

int cfg_error_line(const struct cfg_error *e, char *buf, size_t n)
{
    struct cfg_text t = cfg_text_in(buf, n);
    size_t hint = strlen(e->hint);

    put_place(&t, e->file, e->line);
    if (e->key[0]) {
        cfg_text_add(&t, e->key);
        cfg_text_add(&t, ": ");
    }
    cfg_text_add(&t, e->reason);
    if (hint) {
        cfg_text_add(&t, "; ");
        cfg_text_add(&t, e->hint);
    }
    cfg_text_add(&t, hint && e->hint[hint - 1] == '?' ? " " : ". ");
    cfg_text_add(&t, "The program runs without rlshim.");
    return finish(&t);
}

static bool says_what_happens_anyway(const struct cfg_row *row, const struct cfg_assign *a)
{
    return row->meanwhile && strlen(row->meanwhile) == a->text_len &&
           memcmp(row->meanwhile, a->text, a->text_len) == 0;
}

bool cfg_later_next(const struct config *c, unsigned *pos, struct cfg_notice *out)
{
    while (*pos < CFG_ROWS) {
        const struct cfg_row *row = &cfg_rows[(*pos)++];
        for (size_t s = 0; s < c->nsections; s++) {
            size_t first = c->sections[s].first;
            for (size_t i = first; i < first + c->sections[s].count; i++) {
                const struct cfg_assign *a = &c->assigns[i];
                if (&cfg_rows[a->row] != row || !(row->later || a->value.later) ||
                    says_what_happens_anyway(row, a))
                    continue;
                out->row = row;
                out->assign = a;
                out->file = c->sections[s].kind == CFG_IN_ENV ? "environment" : c->file;
                return true;
            }
        }
    }
    return false;
}

int cfg_later_line(const struct cfg_notice *notice, char *buf, size_t n)
{
    struct cfg_text t = cfg_text_in(buf, n);

    put_place(&t, notice->file, notice->assign->line);
    cfg_text_add(&t, notice->row->key);
    cfg_text_add(&t, " = ");
    cfg_text_bytes(&t, notice->assign->text, notice->assign->text_len);
    cfg_text_add(&t, " is not effective in this release; ");
    if (notice->row->meanwhile) {
        cfg_text_add(&t, "it works as ");
        cfg_text_add(&t, notice->row->key);
        cfg_text_add(&t, " = ");
        cfg_text_add(&t, notice->row->meanwhile);
    } else {
        cfg_text_add(&t, "nothing uses it yet");
    }
    return finish(&t);
}

int cfg_skip_line(const struct config *c, char *buf, size_t n)
{
    static const char *const why[] = {
        [CFG_SKIP_OWNER] = "it belongs to another user",
        [CFG_SKIP_WRITABLE] = "group or others may write it; chmod go-w makes it count",
        [CFG_SKIP_LINK] = "it is a symbolic link; RLSHIM_CONF may name its target",
        [CFG_SKIP_NOT_A_FILE] = "it is not a regular file",
        [CFG_SKIP_UNREADABLE] = "it cannot be opened",
    };
    struct cfg_text t = cfg_text_in(buf, n);

    if (c->skip == CFG_SKIP_NONE)
        return 0;
    put_place(&t, "./rlshim.conf", 0);
    cfg_text_add(&t, "passed over, ");
    cfg_text_add(&t, why[c->skip]);
    return finish(&t);
}
