/* SPDX-License-Identifier: MIT */
/*
 * observe_run: rlshim observe without a place for reports: the program runs as a child, and when it
 * has ended what it and its children reported is shown on stderr, so that its output stays its own.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd.h"

static volatile pid_t child;

/* Those that only we get: a terminal's go to the program as well. */
static void pass_on(int number)
{
    int saved = errno;

    if (child > 0)
        kill(child, number);
    errno = saved;
}

bool observe_has_place(const char *program)
{
    static struct settings settings;
    const struct loaded *l = load_config(environ);

    if (l->bad)
        return true; /* the program says what is wrong */
    cfg_settings(&l->config, program, NULL, &settings);
    return settings.report_path[0] != '\0';
}

static int start(const char *cmd, char **argv, pid_t *pid)
{
    int error = 0, told[2];

    if (pipe2(told, O_CLOEXEC) != 0)
        return fail(cmd, "%s", strerror(errno));
    *pid = fork();
    if (*pid < 0)
        return fail(cmd, "no process can be had: %s", strerror(errno));
    if (*pid == 0) {
        execvp(argv[0], argv);
        error = errno;
        _exit(write(told[1], &error, sizeof error) == sizeof error ? 0 : 126);
    }
    close(told[1]);
    if (read(told[0], &error, sizeof error) != sizeof error)
        error = 0;
    close(told[0]);
    if (error == 0)
        return EXIT_WORKED;
    while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
        ;
    fail(cmd, "%.300s cannot be started: %s", argv[0], strerror(error));
    return error == ENOENT ? 127 : 126;
}

static int wait_for(pid_t pid)
{
    struct sigaction pass = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    int status = 0;

    child = pid;
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    sigaction(SIGTERM, &pass, NULL);
    sigaction(SIGHUP, &pass, NULL);
    sigaction(SIGUSR1, &pass, NULL);
    sigaction(SIGUSR2, &pass, NULL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int is_report(const struct dirent *d)
{
    size_t n = strlen(d->d_name);

    return n > 5 && strcmp(d->d_name + n - 5, ".json") == 0;
}

/* Shows the reports in dir. */
static void show(const char *cmd, const char *dir)
{
    struct dirent **found;
    int n = scandir(dir, &found, is_report, alphasort);
    char **files = n > 0 ? calloc((size_t)n, sizeof *files) : NULL;

    if (files == NULL) {
        fail(cmd, "there is no report: the program was not reached ('rlshim check PROGRAM' tells "
                  "why), or killed");
        return;
    }
    for (int i = 0; i < n; i++)
        if (asprintf(&files[i], "%s/%s", dir, found[i]->d_name) < 0)
            files[i] = found[i]->d_name;
    report_show(stderr, files, n);
}

static void clean(const char *dir)
{
    struct dirent *d;
    DIR *open = opendir(dir);

    while (open != NULL && (d = readdir(open)) != NULL)
        if (d->d_name[0] != '.')
            unlinkat(dirfd(open), d->d_name, 0);
    if (open != NULL)
        closedir(open);
    rmdir(dir);
}

int observe_run(const char *cmd, char **argv)
{
    const char *tmp = getenv("TMPDIR");
    char dir[1024];
    pid_t pid = -1;
    int status;

    /* The setting takes 1023 bytes. */
    if (snprintf(dir, sizeof dir, "%s/rlshim-observe.XXXXXX",
                 tmp != NULL && tmp[0] == '/' ? tmp : "/tmp") >= (int)sizeof dir ||
        mkdtemp(dir) == NULL)
        return fail(cmd, "no directory for the reports: %s; name one with --set report=DIRECTORY",
                    strerror(errno));
    setenv("RLSHIM_REPORT", dir, 1);
    status = start(cmd, argv, &pid);
    if (status == EXIT_WORKED) {
        status = wait_for(pid);
        unsetenv("LD_PRELOAD");
        show(cmd, dir);
    }
    clean(dir);
    return status;
}
