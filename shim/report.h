/* SPDX-License-Identifier: MIT */
/*
 * report: what a process did, written at its end (`report = PATH`), and the live counters that
 * others may read while it runs (`stats = DIRECTORY`).
 *
 * The library fills a struct report and renders it as JSON and as text; the `rlshim report` command
 * reads JSON back into the same struct, adds several together, and renders the same text.
 *
 * Everything here works through raw calls, without malloc and stdio, leaves errno alone and raises
 * no signal. What cannot be written costs one line on stderr and nothing else.
 *
 * The JSON report is one object: schema, version, rlshim, host, pid, rank, program, command,
 * command_cut, started, ended (and each with _ns), kernel; "settings", "counters" and "settled" are
 * objects of what settings.def, stats.def and why.def name. Where calls were timed (mode = observe,
 * or timing = on) there is one more member, "observed":
 *
 *   clock          "tsc" or "vdso"
 *   threshold_ns   stall_threshold
 *   acts           ["read", ...]: what the numbers `act` below stand for, as in observe.def
 *   remedies       ["gate", ...]: the same for `remedy`; -1 none
 *   bucket_bits    [6, 2]: histogram.h's HIST_FIRST_BITS and HIST_STEP_BITS
 *   calls          [CALLS of act 0, CALLS of act 1, ...]
 *   cures          [one a remedy: CALLS with more members: saved_ns; worst: STALL and
 * worst_would_ns, if there was a slow one] files          [CALLS with more members: path ("" not
 * known), dev, ino, nameless, received, other (pid of a stranger that has it open, 0 none was
 * seen), and by: [remedy, calls, saved_ns, ...]]; the most stalled first other_files    CALLS of
 * the files that the table had no room for looks, looks_blind   how often the machine's processes
 * were looked at for `other`; whether some could not be modules        [{path, build_id}] sites
 * [{act, calls, total_ns, worst_ns, cut, frames: [module, address, ...]}]: stacks of slow calls,
 * the innermost frame first; module -1: code of no file stalls         [STALL, ...]: the latest
 * slow calls stalls_seen, stalls_traced   how many there were, how many with a call site
 *
 *   CALLS  {calls, total_ns, worst_ns, stalled, stalled_ns, hist: [bucket, count, ...]}
 *          stalled: of threshold_ns and more. total_ns of a file is the sum of its histogram.
 *   STALL  [start_ns, ns, act, remedy, file, site, tid]: start_ns in CLOCK_REALTIME, file and site
 *          are indexes into the above, or -1
 */
#ifndef SHIM_REPORT_H
#define SHIM_REPORT_H

#include "config.h"
#include "stats.h"
#include "text.h"

#define REPORT_SCHEMA  "rlshim-report"
#define REPORT_VERSION 1

#define REPORT_COMMAND_BYTES 4096 /* more of a command line is cut */
#define REPORT_TEXT_BYTES    32768
#define REPORT_JSON_BYTES    131072 /* the worst case: every byte of every path needs \u00xx */

struct report {
    char host[65], kernel[65], program[64];
    uint32_t pid;
    int64_t rank;       /* of the MPI process, -1 none */
    uint32_t processes; /* that were added together */
    bool mixed_hosts, mixed_programs, mixed_kernels;
    bool command_cut;
    uint64_t started_ns, ended_ns; /* CLOCK_REALTIME */
    uint32_t command_len;
    char command[REPORT_COMMAND_BYTES]; /* arguments, each ended by a NUL */
    uint64_t value[STAT_COUNT];
    uint64_t settled[WHY_COUNT];
    char setting[CFG_ROWS][CFG_PATH_BYTES + 16]; /* as cfg_format gives them; "" unknown */
};

/* Where calls were timed: who writes the member "observed". All NULL otherwise. */
struct report_extra {
    void (*prepare)(void); /* before its size is asked for */
    size_t (*bytes)(void); /* it needs at most */
    void (*put)(struct cfg_text *t);
};
extern struct report_extra report_extra __attribute__((visibility("hidden")));

/* At the start, if `report` is set: says already now if no report could be written. Many programs
 * (coreutils) close stderr before they end, and the line would be lost. */
void report_start(const struct settings *s, const char *cwd);

/* At the end of the process, once. Relative paths are meant from cwd ("": from the present one). */
void report_write(const struct stats_page *page, const struct settings *s, const char *cwd);

/* A page in DIR/rlshim-PID.stats, or NULL after one line on stderr. In a forked child: again, with
 * its own pid; the parent's file stays the parent's. Relative paths: from the directory that was
 * the working directory at the first call. */
struct stats_page *report_map_stats(const char *dir, uint32_t pid, uint64_t started_ns,
                                    const char *program);

/* At the end of the process: removes the file, if it is this process's. The page stays mapped. */
/* Where they are, absolute; path is left alone if there are none. */
void report_stats_path(char *path, size_t bytes);
void report_unmap_stats(void);

/* --- pieces, for tests and the command --- */

/* Rank from an environment block (NUL-separated), fed in parts of any size. */
struct report_rank {
    char entry[48]; /* the beginning of the variable being read */
    uint32_t len;
    int64_t rank;
    uint32_t source; /* 1 + index in the list of names, 0 none yet: the first of the list wins */
};
void report_rank_feed(struct report_rank *r, const char *bytes, size_t n);

/* The attempt-th name for a report. directory: DIR/rlshim-HOST-PID[-rankN][-M].EXT. Otherwise the
 * path itself, then with .PID, then .PID-M before its extension. False: no room in the buffer. */
bool report_name(char *buf, size_t n, const char *path, bool directory, const struct report *r,
                 const char *ext, unsigned attempt);

/* ".txt" and ".text" files get text, others JSON. */
bool report_wants_text(const char *path);

/* Length, the buffer being NUL-terminated; a report that does not fit is cut and says so (text), or
 * gives 0 (JSON, where half a report would be none). */
size_t report_text(const struct report *r, char *buf, size_t n);
size_t report_json(const struct report *r, char *buf, size_t n);

#endif
