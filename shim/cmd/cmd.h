/* SPDX-License-Identifier: MIT */
/*
 * cmd: the `rlshim` command. One cmd_*.c a subcommand; each gets its arguments without the
 * program's name, argv[0] being the subcommand, and returns the exit status:
 * 0 done, 1 it did not work (one line on stderr says why), 2 wrong usage (the same).
 */
#ifndef SHIM_CMD_H
#define SHIM_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "../config.h"

enum { EXIT_WORKED = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

int cmd_run(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_switch(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_set(int argc, char **argv);
int cmd_reload(int argc, char **argv);

/* rlshim observe: is there a place where the program's reports go; and if not, the program as a
 * child, then its reports on stderr. Returns its exit status. */
bool observe_has_place(const char *program);
int observe_run(const char *cmd, char **argv);

/* Reports added together, as text. EXIT_FAILED after a line for each file that is none. */
int report_show(FILE *to, char *const *files, int n);

/* "rlshim NAME: text" on stderr, as one line whatever the arguments hold. Returns EXIT_FAILED. */
int fail(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with ". See 'rlshim help NAME'." Returns EXIT_USAGE. */
int misuse(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Was --help or -h asked for? Prints the subcommand's help then. */
bool wants_help(int argc, char **argv);
void print_help(const char *name);

/* A whole number without sign, blanks or rest. */
bool parse_number(const char *text, uint64_t max, uint64_t *out);

/* librlshim.so beside this command, in ../lib and the like, or where it was installed. */
bool find_library(char *buf, size_t n);

/* Where execvp would find it. 0, or an errno. */
int find_program(const char *name, char *buf, size_t n);

/* The configuration as the library would load it here, with this environment. */
struct loaded {
    struct config config;
    struct cfg_error error;
    bool bad;
};
const struct loaded *load_config(char *const *env);

/* "KEY=VALUE" of a --set as the environment's "RLSHIM_KEY=VALUE", checked, in new memory; NULL
 * after a line on stderr. */
char *setting_variable(const char *cmd, const char *arg);

/* The row of a setting by its name in any case, or -1. */
int setting_row(const char *name, size_t len);

/* Prints what the system offers: part of `rlshim check`, nothing of it stops a program. */
void check_system(void);
void check_mounts(void); /* one line for each file system: what would be on there */

/* One line of a check: "  ok      text", and so on. */
enum verdict { GOOD, NOTE, BAD };
void say(enum verdict verdict, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
