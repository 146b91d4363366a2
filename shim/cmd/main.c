/* SPDX-License-Identifier: MIT */
/* main: which subcommand, the help texts, and what all subcommands share. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../include/rlshim/control.h"
#include "../text.h"
#include "bench.h"
#include "cmd.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *line; /* what it is for */
    const char *help; /* how it is called */
} commands[] = {
    {"run", cmd_run, "start a program with rlshim",
     "rlshim run [--set KEY=VALUE]... [--library FILE] [--] PROGRAM [ARGUMENT]...\n"
     "\n"
     "Starts PROGRAM with librlshim.so in LD_PRELOAD, before whatever is there already.\n"
     "  --set KEY=VALUE   a setting of rlshim.conf, for this run (as RLSHIM_KEY=VALUE)\n"
     "  --library FILE    use this librlshim.so\n"
     "Warns on stderr if PROGRAM is one that rlshim cannot reach (static, set-uid, another\n"
     "architecture) or reaches only in part (Go), and starts it all the same.\n"},
    {"observe", cmd_run, "start a program, change nothing, show where it stalls and what helps",
     "rlshim observe [--set KEY=VALUE]... [--library FILE] [--] PROGRAM [ARGUMENT]...\n"
     "\n"
     "As 'rlshim run' with mode = observe: every call goes straight to the kernel and is timed.\n"
     "When the program has ended, what its calls took, what would have helped and where slow ones\n"
     "were made is shown on stderr; with --set report=DIRECTORY it is written there instead.\n"},
    {"check", cmd_check, "is the configuration right, can rlshim work here, and for PROGRAM",
     "rlshim check [--path FILE]... [PROGRAM]...\n"
     "\n"
     "Prints the configuration in force, what the kernel and the file system of the current\n"
     "directory offer (tried, not looked up), what can be on for each mounted file system, and\n"
     "for each PROGRAM whether rlshim can reach it and what it does past it.\n"
     "  --path FILE   the settings that hold for this file (in PROGRAM)\n"
     "Exit status: 0 nothing is in the way, 1 something is.\n"},
    {"stat", cmd_stat, "live counters of running programs, also for Prometheus",
     "rlshim stat [--dir DIRECTORY] PID [INTERVAL [COUNT]]\n"
     "rlshim stat [--dir DIRECTORY] --all [INTERVAL [COUNT]]\n"
     "rlshim stat [--dir DIRECTORY] --prometheus PID | --all\n"
     "\n"
     "Reads the counters of a program that runs with stats = DIRECTORY. With INTERVAL (seconds)\n"
     "one line of changes per interval and program, COUNT times or until the program ends, and\n"
     "below it what is queued or held. --all: all programs. --prometheus: all counters once, in\n"
     "the text format that collectors of metrics read. The directory defaults to the one in\n"
     "RLSHIM_STATS or rlshim.conf. Only who owns a program, and root, can read its counters.\n"},
    {"report", cmd_report, "print exit reports: text, JSON or a page with plots; compare two runs",
     "rlshim report [--json | --html] [--before FILE]... FILE...\n"
     "\n"
     "Reads JSON reports written with report = PATH. Several files (the ranks of an MPI program, "
     "or\n"
     "a program and its children) are added together.\n"
     "  --before FILE   compares: those of --before are one run, the others the run after it\n"
     "  --json          for programs\n"
     "  --html          one page with plots that needs nothing else: rlshim report --html F "
     ">p.html\n"
     "Files that are not reports are named on stderr; exit status 1 then.\n"},
    {"bench", cmd_bench, "the stalls on your own disk, without and with rlshim, in two minutes",
     "rlshim bench [--set KEY=VALUE]... [--library FILE] [--seconds N] [--quiet] DIRECTORY\n"
     "\n"
     "Measures in DIRECTORY, with processes of its own: reads beside hole punches and big "
     "appends,\n"
     "deleting, many syncs, truncating reopen, O_CREAT by many; prints a table and what it means.\n"
     "  --set KEY=VALUE   a setting of rlshim.conf for the runs with rlshim\n"
     "  --library FILE    use this librlshim.so\n"
     "  --seconds N       of one measurement, from 0.1 to 5 (3)\n"
     "  --quiet           no progress on stderr\n"
     "Uses up to 1.5 GiB for a while and at most half of what is free, leaves 256 MiB free, and\n"
     "refuses if that cannot be. Everything is removed at the end and on Ctrl-C.\n"},
    {"set", cmd_set, "change settings in a running program",
     "rlshim set PID KEY=VALUE...\n"
     "\n"
     "Applies everything that is queued in the program, then changes the settings, as if the\n"
     "environment had said so: they win over rlshim.conf and its [path] sections. What may differ\n"
     "by path can be changed, and evict_bytes_max, evict_files_max and evict_rate; other settings\n"
     "are read when a program starts. Needs the same right as 'rlshim off'.\n"},
    {"reload", cmd_reload, "let a running program read its rlshim.conf again",
     "rlshim reload PID\n"
     "\n"
     "Looks for the file as the program did at its start, with its environment and from where it\n"
     "is now, and checks it; then as 'rlshim set'. What was set before stays.\n"},
    {"off", cmd_switch, "switch rlshim off in a running program",
     "rlshim off PID\n"
     "\n"
     "Applies everything that is queued in the program; from then on all its calls go straight to\n"
     "the kernel, until 'rlshim on PID'. Waits up to 5 s until it is quiet. Needs the right to\n"
     "trace the program: the same user and kernel.yama.ptrace_scope = 0, or root.\n"},
    {"on", cmd_switch, "switch it on again",
     "rlshim on PID\n"
     "\n"
     "Undoes 'rlshim off PID'.\n"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_overview(FILE *to)
{
    fputs("usage: rlshim COMMAND [ARGUMENT]...\n\n", to);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].line);
    fputs("  help     this text; 'rlshim help COMMAND' for one command\n"
          "\nrlshim --version prints the version. Settings: man rlshim.conf.\n"
          "Exit status: 0 it worked, 1 not (one line says why), 2 wrong arguments.\n",
          to);
}

void print_help(const char *name)
{
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            fputs(commands[i].help, stdout);
}

bool wants_help(int argc, char **argv)
{
    if (argc < 2 || (strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0))
        return false;
    print_help(argv[0]);
    return true;
}

static void complain(const char *name, const char *tail, const char *format, va_list args)
{
    char text[2048], line[4096];
    struct cfg_text t = cfg_text_in(line, sizeof line);

    vsnprintf(text, sizeof text, format, args);
    text_safe(&t, text, strlen(text));
    fflush(stdout);
    fprintf(stderr, "rlshim %s: %s", name, line);
    if (tail != NULL)
        fprintf(stderr, tail, name);
    fputc('\n', stderr);
}

int fail(const char *name, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    complain(name, NULL, format, args);
    va_end(args);
    return EXIT_FAILED;
}

int misuse(const char *name, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    complain(name, ". See 'rlshim help %s'.", format, args);
    va_end(args);
    return EXIT_USAGE;
}

bool parse_number(const char *text, uint64_t max, uint64_t *out)
{
    uint64_t n = 0;

    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        unsigned digit = (unsigned)(*text - '0');

        if (digit > 9 || n > (max - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    *out = n;
    return true;
}

static int help(const char *name)
{
    if (name == NULL) {
        print_overview(stdout);
        return EXIT_WORKED;
    }
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0) {
            print_help(name);
            return EXIT_WORKED;
        }
    fail("help", "there is no command '%.60s'; 'rlshim help' lists them", name);
    return EXIT_USAGE;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        fputs("rlshim: no command was given; 'rlshim help' lists them\n", stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "bench-job") == 0)
        return bench_job(argc - 1, argv + 1);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        puts("rlshim " RLSHIM_VERSION);
        return EXIT_WORKED;
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0)
        return help(argc > 2 ? argv[2] : NULL);
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return wants_help(argc - 1, argv + 1) ? EXIT_WORKED
                                                  : commands[i].run(argc - 1, argv + 1);
    return help(argv[1]);
}

int main(int argc, char **argv)
{
    int status = dispatch(argc, argv);

    /* A full disk behind stdout must not look like success; a reader that has left is no error. */
    if ((fflush(stdout) != 0 || ferror(stdout) != 0) && errno != EPIPE && status == EXIT_WORKED)
        status = fail("output", "it could not be written: %s", strerror(errno));
    return status;
}
