/* SPDX-License-Identifier: MIT */
/*
 * log: what the library says, one line and one write(2) at a time.
 *
 *     log_line(CFG_LOG_INFO, LOG_S("punched "), LOG_SIZE(bytes), LOG_S(" in "), LOG_TIME(ns));
 *
 * A line comes out as "rlshim[PID]: …". Level CFG_LOG_OFF stands for lines that are always shown,
 * on stderr: a refused configuration, a report that could not be written.
 *
 * A guest's messages must not hurt the program:
 *  - descriptor 2 is written to only while it is the file it was at program start: a program that
 *    closes stderr and opens its data gets that data file as descriptor 2;
 *  - no signal comes of it (SIGPIPE, SIGXFSZ, SIGTTOU), and a full pipe is waited for at most
 *    LOG_WAIT_MS; then the line is lost;
 *  - a log file is opened, appended to and closed for each line, so that the program never meets a
 *    descriptor of ours, except that another thread that opens a file in these microseconds may get
 *    a higher number than usual. Hence: on the program's threads only at its start and end, or
 * where something went wrong; the worker has a descriptor table of its own and may log as it likes.
 *
 * Raw calls only: any thread, handlers, the worker. errno is left alone; not a cancellation point.
 */
#ifndef SHIM_LOG_H
#define SHIM_LOG_H

#include "config.h"
#include "text.h"

#define LOG_WAIT_MS    100
#define LOG_LINE_BYTES 1024 /* with the newline; a write of this size to a pipe is atomic */

enum log_kind {
    LOG_KIND_TEXT,
    LOG_KIND_ID,
    LOG_KIND_NUMBER,
    LOG_KIND_SIZE,
    LOG_KIND_TIME,
    LOG_KIND_ERRNO
};

struct log_piece {
    enum log_kind kind;
    const char *text;
    uint64_t number;
};

#define LOG_S(string) ((struct log_piece){LOG_KIND_TEXT, (string), 0})
#define LOG_N(n)      ((struct log_piece){LOG_KIND_NUMBER, NULL, (uint64_t)(n)})
#define LOG_ID(n)                                                                                  \
    ((struct log_piece){LOG_KIND_ID, NULL, (uint64_t)(n)}) /* to be pasted: no commas */
#define LOG_SIZE(bytes)  ((struct log_piece){LOG_KIND_SIZE, NULL, (uint64_t)(bytes)})
#define LOG_TIME(ns)     ((struct log_piece){LOG_KIND_TIME, NULL, (uint64_t)(ns)})
#define LOG_ERRNO(error) ((struct log_piece){LOG_KIND_ERRNO, NULL, (uint64_t)(int64_t)(error)})

/* At program start: level and place (s NULL: always-lines only), and which file stderr is. A
 * relative log path is meant from cwd. Called again it takes the new settings, and keeps stderr. */
void log_start(const struct settings *s, const char *cwd);

/* The worker tells its thread id at its start, when its descriptor table is its own (0: it is
 * leaving): its lines to stderr have to fetch the program's descriptor first. */
void log_worker(uint32_t tid);

extern uint32_t log_level __attribute__((visibility("hidden"))); /* enum cfg_log */

static inline bool log_wanted(enum cfg_log level)
{
    return (uint32_t)level <= log_level;
}

#define log_line(level, ...)                                                                       \
    do {                                                                                           \
        if (log_wanted(level)) {                                                                   \
            const struct log_piece log_pieces_[] = {__VA_ARGS__};                                  \
            log_pieces(level, log_pieces_, sizeof log_pieces_ / sizeof *log_pieces_);              \
        }                                                                                          \
    } while (0)

void log_pieces(enum cfg_log level, const struct log_piece *pieces, size_t count);

#endif
