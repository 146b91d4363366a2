/* SPDX-License-Identifier: MIT */
/*
 * tool: what every small program here needs: one line to stderr and an exit code, sizes and numbers
 * from the command line, a big buffer. Header only; define TOOL_NAME before including it.
 *
 * Exit codes: 1 something was wrong (data, an I/O call), 2 usage, 3 this machine or directory
 * cannot do it.
 */
#ifndef EXAMPLES_TOOL_H
#define EXAMPLES_TOOL_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MIB (1024u * 1024u)

__attribute__((format(printf, 1, 0))) static inline void say(const char *fmt, va_list ap)
{
    fputs(TOOL_NAME ": ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
}

__attribute__((format(printf, 2, 3), noreturn)) static inline void die(int code, const char *fmt,
                                                                       ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
    exit(code);
}

static inline unsigned long long mib(uint64_t bytes)
{
    return bytes / MIB;
}

/* Page-aligned, as O_DIRECT wants it, and present, so that no page fault is measured. */
static inline void *big_buffer(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                   -1, 0);
    if (p == MAP_FAILED)
        die(3, "no memory for a buffer of %llu MiB: use smaller sizes", mib(bytes));
    return p;
}

static inline uint64_t parse_size(const char *name, const char *text)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (shift)
        end++;
    if (errno || *text < '0' || *text > '9' || *end || value > (1ull << 44) >> shift)
        die(2, "--%s %s: not a size (examples: 4K, 128M, 1G)", name, text);
    return (uint64_t)value << shift;
}

static inline long peak_rss_kib(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? -1 : usage.ru_maxrss;
}

/* A part of a file: whole 4 KiB blocks, and no more than one system call can write. */
static inline uint64_t parse_range(const char *name, const char *text)
{
    uint64_t value = parse_size(name, text);
    if (!value || value % 4096 || value > 1ull << 30)
        die(2, "--%s %s: must be a multiple of 4K, at most 1G", name, text);
    return value;
}

static inline double parse_number(const char *name, const char *text, double max)
{
    char *end;
    double value = strtod(text, &end);
    if (*end || end == text || !(value > 0 && value <= max))
        die(2, "--%s %s: must be a number above 0, at most %.0f", name, text, max);
    return value;
}

#endif
