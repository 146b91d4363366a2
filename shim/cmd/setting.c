/* SPDX-License-Identifier: MIT */
/* setting: KEY=VALUE of a command line, as run, bench and set take it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cmd.h"

int setting_row(const char *name, size_t len)
{
    for (int i = 0; i < CFG_ROWS; i++)
        if (strlen(cfg_rows[i].key) == len && strncasecmp(cfg_rows[i].key, name, len) == 0)
            return i;
    return -1;
}

/* Mistakes on the command line are ours to refuse; those in a file or variable are the library's to
 * tell. */
static int check(const char *cmd, const char *key, char *variable)
{
    static struct config config;
    static struct cfg_error error;
    char *block[] = {variable, NULL};

    cfg_reset(&config);
    if (cfg_env(&config, block, &error) == 0)
        return 0;
    return misuse(cmd, "--set %s: %s; %s", key, error.reason, error.hint);
}

char *setting_variable(const char *cmd, const char *arg)
{
    const char *equal = strchr(arg, '=');
    size_t len = equal != NULL ? (size_t)(equal - arg) : 0;
    size_t size = strlen(arg) + 8;
    char *variable;
    int row;

    if (len == 0 || len > 100) {
        misuse(cmd, "a setting is KEY=VALUE, as in punch_delay=5ms, not '%.80s'", arg);
        return NULL;
    }
    if (equal[1] == '\0') {
        misuse(cmd, "--set %.*s= has no value", (int)len, arg);
        return NULL;
    }
    row = setting_row(arg, len);
    if (row < 0) {
        misuse(cmd, "there is no setting '%.*s'; rlshim.conf.example lists them", (int)len, arg);
        return NULL;
    }
    variable = malloc(size);
    if (variable == NULL) {
        fail(cmd, "no memory");
        return NULL;
    }
    snprintf(variable, size, "RLSHIM_%s", arg);
    for (char *c = variable + 7; *c != '='; c++)
        if (*c >= 'a' && *c <= 'z')
            *c = (char)(*c - 'a' + 'A');
    if (check(cmd, cfg_rows[row].key, variable) == 0)
        return variable;
    free(variable);
    return NULL;
}
