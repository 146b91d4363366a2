/* SPDX-License-Identifier: MIT */
/*
 * html: what the page of `rlshim report --html` is made of: text that may come from anybody,
 * figures (html_plot.c: pictures). All write to html_out, which view_html sets.
 */
#ifndef SHIM_CMD_HTML_H
#define SHIM_CMD_HTML_H

#include "view.h"

extern FILE *html_out;

/* Somebody else's bytes inside an element or a quoted attribute. */
void html_text(const char *s);

void html_time(uint64_t ns);
void html_count(uint64_t n);

/* How long it ran, in ns. */
uint64_t html_span(const struct report *r);

/* Up to DOTS_MAX stalls of one or two runs over time; histograms of the acts with most time. */
void html_timeline(const struct run *run, const struct run *before);
void html_histograms(const struct observed *o, const struct observed *before);

#endif
