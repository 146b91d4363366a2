/* SPDX-License-Identifier: MIT */
/*
 * observed: the "observed" member of a report (report.h describes it), read back, of several
 * processes added together.
 *
 * One struct observed is one report or the sum of some; it owns its memory. Indexes into files,
 * sites and modules are valid within it and NONE_SEEN where there is none. Texts may hold any
 * bytes: text_safe before a terminal sees them.
 */
#ifndef SHIM_CMD_OBSERVED_H
#define SHIM_CMD_OBSERVED_H

#include <jansson.h>
#include <stdbool.h>

#include "../observe.h"

#define NONE_SEEN   UINT32_MAX
#define FRAMES_MAX  32
#define SEEN_STALLS 65536 /* kept of several reports together: the longest */

struct seen_calls {
    uint64_t calls, total_ns, worst_ns;
    uint64_t stalled, stalled_ns; /* those of threshold_ns and more */
    uint64_t hist[HIST_BUCKETS];
};

struct seen_stall {
    uint64_t start_ns; /* CLOCK_REALTIME */
    uint64_t ns;
    uint32_t act, remedy; /* remedy: REMEDY_NONE where nothing helps */
    uint32_t file, site;
    uint32_t pid, tid;
};

struct seen_remedy {
    struct seen_calls calls; /* that it addresses */
    uint64_t saved_ns;       /* about what it would have taken away */
    struct seen_stall worst; /* ns = 0: none */
    uint64_t worst_would_ns; /* about how long that one would have taken with it */
};

struct seen_file {
    char *path; /* as it was at its first stall; "" not known */
    uint64_t dev, ino;
    bool nameless;  /* had no name any more */
    uint32_t other; /* a process that had it open too and is none of ours, 0 none seen */
    bool received;  /* came from another process */
    struct seen_calls calls;
    uint64_t remedy_calls[REMEDY_COUNT], remedy_saved_ns[REMEDY_COUNT];
};

struct seen_module {
    char *path;
    char build_id[41]; /* hexadecimal, "" none */
};

struct seen_frame {
    uint32_t module;  /* NONE_SEEN: code that belongs to no file */
    uint64_t address; /* as in the module's own headers; of the instruction after the call */
};

struct seen_site {
    uint32_t act;
    uint32_t depth;
    bool cut; /* there were more frames */
    uint64_t calls, total_ns, worst_ns;
    struct seen_frame frame[FRAMES_MAX]; /* the caller of the call first */
};

struct observed {
    uint64_t threshold_ns;
    char clock[16];
    struct seen_calls act[ACT_COUNT];
    struct seen_remedy remedy[REMEDY_COUNT];
    struct seen_file *files;
    uint32_t nfiles;
    struct seen_calls other_files; /* more files than the table held */
    struct seen_module *modules;
    uint32_t nmodules;
    struct seen_site *sites;
    uint32_t nsites;
    struct seen_stall *stalls; /* by start_ns */
    uint32_t nstalls;
    uint64_t stalls_seen;   /* how many there were; the report keeps the latest */
    uint64_t stalls_traced; /* with a call site */
    uint64_t looks;         /* at the other processes of the machine, for seen_file.other */
    bool looks_blind;       /* some process could not be looked at */
};

/* The member "observed" of a report of process pid. NULL, with *bad the reason: it is damaged. */
struct observed *observed_read(const json_t *member, uint32_t pid, const char **bad);

/* Adds `more` to `sum`; false: no memory. `more` is as it was. */
bool observed_add(struct observed *sum, const struct observed *more);

void observed_free(struct observed *o);

#endif
