/* SPDX-License-Identifier: MIT */
/*
 * args: arguments of a subcommand by argp, with mistakes told in one line as everywhere here.
 *
 * take(key, value, to) gets every option with its key and every other argument with key 0, in the
 * order in which they come; it returns 0, or the exit status that ends the command (after a line).
 * Options end at "--".
 */
#ifndef SHIM_CMD_ARGS_H
#define SHIM_CMD_ARGS_H

#include <argp.h>

/* -1: all taken, go on; otherwise the exit status (0 after --help). options: NULL, or ended by an
 * empty one. */
int args_parse(int argc, char **argv, const struct argp_option *options,
               int (*take)(int key, char *value, void *to), void *to);

/* For commands that start a program: the first argument that is no option, and all behind it, are
 * the program's and left alone. *program becomes its index in argv; argc: there is none. */
int args_parse_program(int argc, char **argv, const struct argp_option *options,
                       int (*take)(int key, char *value, void *to), void *to, int *program);

/* For commands that take one process number and nothing else. */
int args_pid(int argc, char **argv, unsigned *pid);

#endif
