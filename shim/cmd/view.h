/* SPDX-License-Identifier: MIT */
/*
 * view: what `rlshim report` shows of one or two runs, whatever the form: text (view_text.c), JSON
 * (view_json.c), a page (view_html.c).
 *
 * A struct run is the reports of one run added together. seen is NULL where no calls were timed.
 */
#ifndef SHIM_CMD_VIEW_H
#define SHIM_CMD_VIEW_H

#include <stdio.h>

#include "observed.h"
#include "report_read.h"

struct run {
    struct report sum;
    struct observed *seen;
};

/* before: NULL, or the run to compare with. */
void view_text(FILE *to, const struct run *run, const struct run *before);
bool view_json(FILE *to, const struct run *run, const struct run *before);
void view_html(FILE *to, const struct run *run, const struct run *before);

/* --- pieces of all three (view.c) --- */

extern const char *const view_act_text[ACT_COUNT]; /* "hole punch" */
extern const char *const view_act_name[ACT_COUNT];

struct view_remedy {
    const char *name;
    int row; /* of settings.def */
    const char *value, *others, *cure;
};
extern const struct view_remedy view_remedies[REMEDY_COUNT];
const char *view_key(int remedy); /* the setting, as in rlshim.conf */

/* Its value is known, and has no effect in this release. */
bool view_not_yet(int remedy);

/* Remedies that address something, the one that would have saved most first; those that this release
 * lacks come last. Returns how many. */
int view_order_remedies(const struct observed *o, int order[REMEDY_COUNT]);

/* Acts that have calls, the one with most time stalled first, then most time. */
int view_order_acts(const struct observed *o, int order[ACT_COUNT]);

/* Up to max indexes: files by time stalled, sites by time. Returns how many. */
uint32_t view_top_files(const struct observed *o, uint32_t *order, uint32_t max);
uint32_t view_top_sites(const struct observed *o, uint32_t *order, uint32_t max);

/* "unlink of /data/x took 693 ms; evict = defer would have taken about 0.1 ms". */
void view_worst(struct cfg_text *t, const struct observed *o, int remedy);

/* Who else had the files that the remedy is about: 0 nobody was seen, and all could be looked at;
 * 1 nobody was seen, but not all could be; otherwise 2, and *file is one of these. */
int view_others(const struct observed *o, int remedy, const struct seen_file **file);

/* A pattern for the files that the remedy would have saved most on: their directory, or the file
 * itself if it is the only one there. "" if no path is known. */
void view_pattern(const struct observed *o, int remedy, char *buf, size_t n);

/* What half of the calls, and 99 of 100, did not exceed. */
uint64_t view_median(const struct seen_calls *c);
uint64_t view_p99(const struct seen_calls *c);

/* function+offset (file:line); for a module that is not there any more, its name and the address.
 * False: it is what every thread begins with, so nothing of interest comes after it. */
bool view_frame(struct cfg_text *t, const struct observed *o, const struct seen_frame *frame);
void view_frames_end(void); /* gives back what looking things up has taken */

#endif
