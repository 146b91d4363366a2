/* SPDX-License-Identifier: MIT */
/*
 * One value of one setting: text to number or path and back, by its row of settings.def.
 * Shared by config.c (files, environment) and nothing else; errors fill only reason and hint.
 */
#ifndef SHIM_CONFIG_VALUE_H
#define SHIM_CONFIG_VALUE_H

#include "config.h"

const struct cfg_row *cfg_row_find(const char *key, size_t len);

/* The row whose key is closest to a mistyped one, or NULL if none is close. */
const struct cfg_row *cfg_row_nearest(const char *key, size_t len);

/* 0, or -1 with err->reason and err->hint. *out may point into text. */
int cfg_value_parse(const struct cfg_row *row, const char *text, size_t len, struct cfg_value *out,
                    struct cfg_error *err);

/* Write v into the member of *s that the row stands for. */
void cfg_value_store(const struct cfg_row *row, const struct cfg_value *v, struct settings *s);

#endif
