/* SPDX-License-Identifier: MIT */
/* args: see args.h. */
#include <errno.h>
#include <string.h>

#include "args.h"
#include "cmd.h"

struct parse {
    const char *cmd;
    int (*take)(int key, char *value, void *to);
    void *to;
    int status; /* -1 so far */
};

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
            p->status = misuse(p->cmd, "'%.80s' is not an option, or needs a value",
                               state->argv[state->next > 0 ? state->next - 1 : 0]);
        return 0;
    case ARGP_KEY_ARG:
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

int args_parse(int argc, char **argv, const struct argp_option *options, bool program,
               int (*take)(int key, char *value, void *to), void *to)
{
    static struct argp_option all[32];
    struct parse p = {.cmd = argv[0], .take = take, .to = to, .status = -1};
    struct argp argp = {.options = all, .parser = parse_one};
    int n = 0;

    memset(all, 0, sizeof all);
    for (; options != NULL && options[n].name != NULL && n < 30; n++)
        all[n] = options[n];
    all[n] = (struct argp_option){.name = "help", .key = 'h'};
    if (argp_parse(&argp, argc, argv,
                   ARGP_NO_ERRS | ARGP_NO_EXIT | ARGP_NO_HELP | (program ? ARGP_IN_ORDER : 0), NULL,
                   &p) != 0 &&
        p.status < 0)
        p.status = misuse(argv[0], "its arguments could not be understood");
    return p.status;
}
