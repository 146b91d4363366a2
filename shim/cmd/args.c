/* SPDX-License-Identifier: MIT */
/* args: see args.h. */
#include <errno.h>
#include <string.h>

#include "args.h"
#include "cmd.h"

struct parse {
    const char *cmd;
    const struct argp_option *options;
    int (*take)(int key, char *value, void *to);
    void *to;
    int *program; /* NULL: arguments are the command's */
    int status;   /* -1 so far */
};

static int bad_option(const struct parse *p, const char *arg)
{
    for (const struct argp_option *o = p->options; o->name != NULL; o++)
        if (strncmp(arg, "--", 2) == 0 && strcmp(arg + 2, o->name) == 0 && o->arg != NULL)
            return misuse(p->cmd, "--%s needs %s", o->name, o->arg);
    return misuse(p->cmd, "there is no option '%.80s', or it takes no value", arg);
}

static error_t parse_one(int key, char *value, struct argp_state *state)
{
    struct parse *p = state->input;
    int status;

    switch (key) {
    case 'h':
        print_help(p->cmd);
        p->status = EXIT_WORKED;
        return ECANCELED;
    case ARGP_KEY_ERROR:
        /* getopt has gone past what it did not like. */
        if (p->status < 0)
            p->status = bad_option(p, state->argv[state->next > 0 ? state->next - 1 : 0]);
        return 0;
    case ARGP_KEY_ARG:
        if (p->program != NULL) {
            *p->program = state->next - 1;
            state->next = state->argc;
            return 0;
        }
        key = 0;
        break;
    case ARGP_KEY_INIT:
    case ARGP_KEY_ARGS:
    case ARGP_KEY_NO_ARGS:
    case ARGP_KEY_END:
    case ARGP_KEY_SUCCESS:
    case ARGP_KEY_FINI:
        return key == ARGP_KEY_ARGS ? ARGP_ERR_UNKNOWN : 0;
    default:
        break;
    }
    status = p->take(key, value, p->to);
    if (status == 0)
        return 0;
    p->status = status;
    return ECANCELED;
}

static int parse(int argc, char **argv, const struct argp_option *options,
                 int (*take)(int key, char *value, void *to), void *to, int *program)
{
    static struct argp_option all[32];
    struct parse p = {
        .cmd = argv[0], .options = all, .take = take, .to = to, .program = program, .status = -1};
    struct argp argp = {.options = all, .parser = parse_one};
    int n = 0;

    memset(all, 0, sizeof all);
    for (; options != NULL && options[n].name != NULL && n < 30; n++)
        all[n] = options[n];
    all[n] = (struct argp_option){.name = "help", .key = 'h'};
    if (argp_parse(&argp, argc, argv,
                   ARGP_NO_ERRS | ARGP_NO_EXIT | ARGP_NO_HELP |
                       (program != NULL ? ARGP_IN_ORDER : 0),
                   NULL, &p) != 0 &&
        p.status < 0)
        p.status = misuse(argv[0], "its arguments could not be understood");
    return p.status;
}

int args_parse(int argc, char **argv, const struct argp_option *options,
               int (*take)(int key, char *value, void *to), void *to)
{
    return parse(argc, argv, options, take, to, NULL);
}

int args_parse_program(int argc, char **argv, const struct argp_option *options,
                       int (*take)(int key, char *value, void *to), void *to, int *program)
{
    *program = argc;
    return parse(argc, argv, options, take, to, program);
}

struct one_pid {
    const char *cmd;
    unsigned *pid;
};

static int take_pid(int key, char *value, void *to)
{
    struct one_pid *one = to;
    uint64_t pid;

    (void)key; /* there are no options */
    if (*one->pid != 0)
        return misuse(one->cmd, "it takes one process number");
    if (!parse_number(value, INT32_MAX, &pid) || pid == 0)
        return misuse(one->cmd, "'%.80s' is not a process number", value);
    *one->pid = (unsigned)pid;
    return 0;
}

int args_pid(int argc, char **argv, unsigned *pid)
{
    struct one_pid one = {argv[0], pid};
    int status;

    *pid = 0;
    status = args_parse(argc, argv, NULL, take_pid, &one);
    return status < 0 && *pid == 0 ? misuse(argv[0], "it takes one process number") : status;
}
