/* SPDX-License-Identifier: MIT */
/*
 * Glob patterns of [app GLOB] and [path GLOB]: what fnmatch(3) with FNM_PATHNAME gives in the C
 * locale, byte by byte. Own code because glibc's fnmatch allocates in multibyte locales, and this
 * runs inside open(). Time is at most pattern length times subject length, without recursion.
 *
 * * ? [..] never match '/'; a leading '.' is nothing special; \x is a literal x.
 */
#ifndef SHIM_CONFIG_MATCH_H
#define SHIM_CONFIG_MATCH_H

#include <stdbool.h>
#include <stddef.h>

/* NULL if the pattern is well formed, else what is wrong with it. */
const char *cfg_glob_fault(const char *pat, size_t pat_len);

/* Only for patterns without a fault; any other gives some answer, safely. */
bool cfg_glob_match(const char *pat, size_t pat_len, const char *s, size_t s_len);

#endif
