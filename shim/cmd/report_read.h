/* SPDX-License-Identifier: MIT */
/* report_read: an exit report in JSON back into struct report. */
#ifndef SHIM_CMD_REPORT_READ_H
#define SHIM_CMD_REPORT_READ_H

#include "../report.h"
#include "observed.h"

/*
 * Any JSON text is accepted, members may come in any order, unknown ones are passed over (they may
 * come from a later release). NULL, or the reason why it is not a report.
 */
const char *report_read(const char *text, size_t n, struct report *out);

/* The same with what was observed, or NULL in *seen where nothing was; observed_free it. */
const char *report_read_all(const char *text, size_t n, struct report *out, struct observed **seen);

/* Adds `more` to `sum`: counts add up, peaks keep the larger, the times span both. */
void report_add(struct report *sum, const struct report *more);

#endif
