/* SPDX-License-Identifier: MIT */
/* text: see text.h. */
#include <errno.h>

#include "text.h"

void text_grouped(struct cfg_text *t, uint64_t n)
{
    char out[27]; /* 20 digits, 6 commas, NUL */
    size_t at = sizeof out;
    unsigned digits = 0;

    do {
        if (digits != 0 && digits % 3 == 0)
            out[--at] = ',';
        out[--at] = (char)('0' + n % 10);
        n /= 10;
        digits++;
    } while (n != 0);
    cfg_text_bytes(t, out + at, sizeof out - at);
}

/* value / unit with as many decimals as make three digits, at most max_decimals. */
static void put_scaled(struct cfg_text *t, uint64_t value, uint64_t unit, unsigned max_decimals)
{
    uint64_t whole = value / unit;
    uint64_t rest = value % unit;
    unsigned decimals = whole >= 100 ? 0 : whole >= 10 ? 1 : 2;

    text_grouped(t, whole);
    if (decimals > max_decimals)
        decimals = max_decimals;
    if (decimals != 0)
        cfg_text_add(t, ".");
    /* rest < unit <= 2^60: ten times it does not overflow. */
    for (; decimals != 0; decimals--) {
        rest *= 10;
        cfg_text_number(t, rest / unit);
        rest %= unit;
    }
}

void text_size(struct cfg_text *t, uint64_t bytes)
{
    static const char *const units[] = {" bytes", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    unsigned u = 0;
    uint64_t unit = 1;

    while (u < 6 && bytes / unit >= 1024) {
        unit <<= 10;
        u++;
    }
    put_scaled(t, bytes, unit, u == 0 ? 0 : 1);
    cfg_text_add(t, units[u]);
}

void text_time(struct cfg_text *t, uint64_t ns)
{
    uint64_t s = ns / 1000000000u;

    if (ns < 1000) {
        put_scaled(t, ns, 1, 0);
        cfg_text_add(t, " ns");
    } else if (ns < 1000000) {
        put_scaled(t, ns, 1000, 2);
        cfg_text_add(t, " us");
    } else if (s == 0) {
        put_scaled(t, ns, 1000000, 2);
        cfg_text_add(t, " ms");
    } else if (s < 120) {
        put_scaled(t, ns, 1000000000u, 2);
        cfg_text_add(t, " s");
    } else if (s < 7200) {
        cfg_text_number(t, s / 60);
        cfg_text_add(t, " min ");
        cfg_text_number(t, s % 60);
        cfg_text_add(t, " s");
    } else {
        text_grouped(t, s / 3600);
        cfg_text_add(t, " h ");
        cfg_text_number(t, s / 60 % 60);
        cfg_text_add(t, " min");
    }
}

static void put_two(struct cfg_text *t, uint64_t n, const char *after)
{
    cfg_text_add(t, n < 10 ? "0" : "");
    cfg_text_number(t, n);
    cfg_text_add(t, after);
}

void text_utc(struct cfg_text *t, uint64_t ns)
{
    static const unsigned char length[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    uint64_t s = ns / 1000000000u;
    uint64_t days = s / 86400;
    uint64_t year = 1970;
    unsigned month = 0;

    /* At most 584 years of nanoseconds: counting up is quick and easy to check. */
    for (;; year++) {
        unsigned len = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0 ? 366 : 365;
        if (days < len) {
            for (;; month++) {
                unsigned m = length[month] + (month == 1 && len == 366 ? 1u : 0u);
                if (days < m)
                    break;
                days -= m;
            }
            break;
        }
        days -= len;
    }
    cfg_text_number(t, year);
    cfg_text_add(t, "-");
    put_two(t, month + 1, "-");
    put_two(t, days + 1, "T");
    put_two(t, s / 3600 % 24, ":");
    put_two(t, s / 60 % 60, ":");
    put_two(t, s % 60, "Z");
}

void text_errno(struct cfg_text *t, int error)
{
    static const struct {
        int error;
        const char *text;
    } known[] = {
        {EPERM, "not permitted"},
        {ENOENT, "there is no such file or directory"},
        {EINTR, "interrupted"},
        {EIO, "input/output error"},
        {EBADF, "bad descriptor"},
        {EAGAIN, "a limit was reached, or it would block"},
        {ENOMEM, "no memory"},
        {EACCES, "permission denied"},
        {EBUSY, "busy"},
        {EEXIST, "it exists already"},
        {ENODEV, "no such device"},
        {ENOTDIR, "a part of its path is not a directory"},
        {EISDIR, "is a directory"},
        {EINVAL, "invalid argument"},
        {ENFILE, "too many open files in the system"},
        {EMFILE, "too many open files in the process"},
        {ETXTBSY, "the file is being executed"},
        {EFBIG, "larger than the file size limit"},
        {ENOSPC, "no space left on the device"},
        {EROFS, "read-only file system"},
        {ELOOP, "too many symbolic links"},
        {ENAMETOOLONG, "its name is too long"},
        {ENOSYS, "the kernel does not have this call, or a filter hides it"},
        {EOPNOTSUPP, "not supported by this file system"},
        {EDQUOT, "disk quota exceeded"},
        {ESTALE, "stale network file handle"},
        {ESRCH, "no such process"},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].error == error) {
            cfg_text_add(t, known[i].text);
            return;
        }
    cfg_text_add(t, "error ");
    cfg_text_number(t, (uint64_t)(error < 0 ? -(int64_t)error : error));
}

size_t text_utf8(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t len;

    if (n == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    /* Overlong forms, surrogates, beyond U+10FFFF. */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return len;
}

/* Control characters: C0, DEL, and C1 (which some terminals obey). */
static bool is_control(const char *s, size_t len)
{
    unsigned char c = (unsigned char)s[0];

    return (len == 1 && (c < 0x20 || c == 0x7f)) ||
           (len == 2 && c == 0xc2 && (unsigned char)s[1] < 0xa0);
}

void text_safe(struct cfg_text *t, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t len = text_utf8(s + i, n - i);

        if (len == 0 || is_control(s + i, len))
            cfg_text_add(t, "?");
        else if (len <= text_room(t))
            cfg_text_bytes(t, s + i, len);
        else
            return;
        i += len != 0 ? len : 1;
    }
}

void text_json(struct cfg_text *t, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    char piece[8];

    if (text_room(t) < 2)
        return;
    cfg_text_add(t, "\"");
    for (size_t i = 0; i < n;) {
        size_t len = text_utf8(s + i, n - i);
        size_t out = 0;
        unsigned char c = (unsigned char)s[i];

        if (len == 0) {
            memcpy(piece, "\\ufffd", 6);
            out = 6;
        } else if (len == 1 && (c == '"' || c == '\\')) {
            piece[0] = '\\';
            piece[1] = s[i];
            out = 2;
        } else if (len == 1 && (c < 0x20 || c == 0x7f)) {
            memcpy(piece, "\\u00", 4);
            piece[4] = hex[c >> 4];
            piece[5] = hex[c & 15];
            out = 6;
        } else {
            memcpy(piece, s + i, len);
            out = len;
        }
        if (out + 1 > text_room(t))
            break;
        cfg_text_bytes(t, piece, out);
        i += len != 0 ? len : 1;
    }
    cfg_text_add(t, "\"");
}
