/* SPDX-License-Identifier: MIT */
/* Glob matching for configuration sections; the rules are in config_match.h. */
#include "config_match.h"

struct bracket {
    bool closed;    /* its ']' came */
    bool backwards; /* a range like z-a */
};

/* A bracket expression from the byte after '[' on. Moves *at past its ']'; is `c` in it? */
static bool bracket_holds(const char *pat, size_t len, size_t *at, unsigned char c,
                          struct bracket *b)
{
    size_t i = *at;
    bool negate = i < len && (pat[i] == '!' || pat[i] == '^');
    bool hit = false;
    i += negate;
    b->backwards = false;
    for (bool first = true; i < len && (first || pat[i] != ']'); first = false) {
        if (pat[i] == '\\' && i + 1 < len)
            i++;
        unsigned char lo = (unsigned char)pat[i++], hi = lo;
        if (i + 1 < len && pat[i] == '-' && pat[i + 1] != ']') {
            i++;
            if (pat[i] == '\\' && i + 1 < len)
                i++;
            hi = (unsigned char)pat[i++];
            b->backwards |= lo > hi;
        }
        hit |= lo <= c && c <= hi;
    }
    b->closed = i < len;
    *at = i + (i < len);
    return hit != negate;
}

/* Does the pattern element at *at, which is no '*', match byte c? Moves *at past it. */
static bool element_matches(const char *pat, size_t len, size_t *at, unsigned char c)
{
    char p = pat[(*at)++];
    struct bracket b;
    switch (p) {
    case '?':
        return c != '/';
    case '[': {
        bool in = bracket_holds(pat, len, at, c, &b);
        return b.closed && in && c != '/';
    }
    case '\\':
        if (*at < len)
            p = pat[(*at)++];
        return (unsigned char)p == c;
    default:
        return (unsigned char)p == c;
    }
}

bool cfg_glob_match(const char *pat, size_t pat_len, const char *s, size_t s_len)
{
    size_t p = 0, i = 0;
    size_t star_p = 0, star_i = 0; /* after the latest '*', and how far it has eaten */
    bool star = false;

    /*
     * Going back to the latest '*' alone is enough: neither it nor any before it crosses a '/', and
     * within one component an earlier '*' has nothing to gain from giving more.
     */
    while (i < s_len || p < pat_len) {
        if (p < pat_len && pat[p] == '*') {
            star = true;
            star_p = ++p;
            star_i = i;
            continue;
        }
        if (p < pat_len && i < s_len) {
            size_t next = p;
            if (element_matches(pat, pat_len, &next, (unsigned char)s[i])) {
                p = next;
                i++;
                continue;
            }
        }
        if (!star || star_i >= s_len || s[star_i] == '/')
            return false;
        i = ++star_i;
        p = star_p;
    }
    return true;
}

const char *cfg_glob_fault(const char *pat, size_t len)
{
    for (size_t i = 0; i < len;) {
        char p = pat[i++];
        if (p == '\\' && i == len)
            return "the pattern ends in a backslash";
        if (p == '\\' && pat[i++] == '/') /* fnmatch implementations differ on it */
            return "a '/' of the pattern has a backslash before it, leave that out";
        if (p == '*' && i < len && pat[i] == '*')
            return "'**' is not known, '*' stays within one directory: name each level as in "
                   "/a/*/*";
        if (p != '[')
            continue;
        size_t start = i;
        struct bracket b;
        bracket_holds(pat, len, &i, 0, &b);
        if (!b.closed)
            return "a '[' of the pattern is never closed";
        if (b.backwards)
            return "a range in a [..] of the pattern runs backwards";
        for (size_t k = start; k < i; k++) {
            if (pat[k] == '/')
                return "a [..] of the pattern holds a '/', which it can never match";
            if (pat[k] == '[' && (pat[k + 1] == ':' || pat[k + 1] == '.' || pat[k + 1] == '='))
                return "classes such as [:digit:] are not known: write a range, as in [0-9]";
        }
    }
    return NULL;
}
