/* SPDX-License-Identifier: MIT */
/*
 * args: arguments of a subcommand by argp, with mistakes told in one line as everywhere here.
 *
 * take(key, value, to) gets every option with its key and every other argument with key 0, in the
 * order in which they come; it returns 0, or the exit status that ends the command (after a line).
 * Options end at "--", and if `program` is set at the first other argument.
 */
#ifndef SHIM_CMD_ARGS_H
#define SHIM_CMD_ARGS_H

#include <argp.h>
#include <stdbool.h>

/* -1: all taken, go on; otherwise the exit status (0 after --help). */
int args_parse(int argc, char **argv, const struct argp_option *options, bool program,
               int (*take)(int key, char *value, void *to), void *to);

#endif
