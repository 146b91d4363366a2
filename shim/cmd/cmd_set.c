/* SPDX-License-Identifier: MIT */
/* cmd_set: rlshim set PID KEY=VALUE..., rlshim reload PID: settings of a running program. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../tune.h"
#include "args.h"
#include "cmd.h"
#include "target.h"

#define ANSWER_MS 500
#define LOOK_MS   5

/* An order that nobody has taken yet is not lost: what it says comes after what this one says, and
 * of two the first counts. */
static void keep_waiting(const struct target *t, struct rl_order *order)
{
    struct rl_order there;
    size_t used = strlen(order->set);

    if (!target_get(t, t->order, &there, sizeof there) || there.result != ORDER_WAITS)
        return;
    there.set[sizeof there.set - 1] = there.file[sizeof there.file - 1] = '\0';
    if (used + strlen(there.set) < sizeof order->set)
        strcpy(order->set + used, there.set);
    if (order->file[0] == '\0')
        strcpy(order->file, there.file);
}

/* Off and quiet, then the order, then it may be taken. */
static int place(const struct target *t, struct rl_order *order, bool *ended)
{
    struct rl_order there;
    uint32_t control = 0;
    int status;

    if (t->order == 0 || !target_get(t, t->order, &there, sizeof there) ||
        there.version != ORDER_VERSION)
        return fail(t->cmd, "the librlshim.so in process %u takes no settings: another version?",
                    t->pid);
    if (target_get(t, t->control, &control, sizeof control) && control == 1)
        return fail(t->cmd, "rlshim is off in process %u; 'rlshim on %u' first", t->pid, t->pid);
    if (control == CONTROL_TAKING)
        return fail(t->cmd, "process %u is changing its settings at this moment; try again",
                    t->pid);
    if (!target_put_32(t, t->done, 0) || !target_put_32(t, t->control, 1))
        return target_refused(t, errno);
    status = target_wait_quiet(t, ended);
    if (status != EXIT_WORKED || *ended) {
        target_put_32(t, t->control, 0);
        return status;
    }
    keep_waiting(t, order);
    if (!target_put(t, t->order, order, sizeof *order) ||
        !target_put_32(t, t->control, CONTROL_ORDERED)) {
        status = target_refused(t, errno);
        target_put_32(t, t->control, 0);
    }
    return status;
}

static int wait_answer(const struct target *t, const char *what)
{
    struct timespec pause = {.tv_nsec = LOOK_MS * 1000000l};
    struct rl_order answer;

    for (int ms = 0; ms < ANSWER_MS; ms += LOOK_MS) {
        if (!target_get(t, t->order, &answer, sizeof answer)) {
            printf("process %u has ended\n", t->pid);
            return EXIT_WORKED;
        }
        if (answer.result == ORDER_TAKEN) {
            printf("process %u: %s\n", t->pid, what);
            return EXIT_WORKED;
        }
        if (answer.result == ORDER_REFUSED) {
            answer.reason[sizeof answer.reason - 1] = '\0';
            return fail(t->cmd, "process %u: %s; nothing was changed", t->pid, answer.reason);
        }
        nanosleep(&pause, NULL);
    }
    printf("process %u: %s, from its next call on that rlshim has to do with\n", t->pid, what);
    return EXIT_WORKED;
}

static int order(const char *cmd, unsigned pid, struct rl_order *o, const char *what)
{
    struct target t = {.cmd = cmd, .pid = pid, .mem = -1};
    bool ended = false;
    int status = target_find(&t);

    o->version = ORDER_VERSION;
    if (status == EXIT_WORKED)
        status = place(&t, o, &ended);
    if (status == EXIT_WORKED && ended)
        printf("process %u has ended\n", pid);
    else if (status == EXIT_WORKED)
        status = wait_answer(&t, what);
    if (t.mem >= 0)
        close(t.mem);
    return status;
}

struct wanted {
    const char *cmd;
    uint64_t pid; /* 0: not given yet */
    size_t used;
    struct rl_order *order;
};

static int take(int key, char *value, void *to)
{
    struct wanted *w = to;
    const char *equal = strchr(value, '=');
    char *variable;
    size_t n;
    int row;

    (void)key; /* there are no options */
    if (w->pid == 0)
        return parse_number(value, INT32_MAX, &w->pid) && w->pid != 0
                   ? 0
                   : misuse(w->cmd, "'%.80s' is not a process number", value);
    variable = setting_variable(w->cmd, value);
    if (variable == NULL)
        return EXIT_USAGE;
    free(variable);
    row = setting_row(value, (size_t)(equal - value));
    if (!tune_may(row))
        return misuse(w->cmd,
                      strcmp(cfg_rows[row].key, "mode") == 0
                          ? "%s is read when a program starts; 'rlshim off' and 'rlshim on' switch "
                            "a running one"
                          : "%s is read when a program starts; in a running one it cannot be "
                            "changed",
                      cfg_rows[row].key);
    n = (size_t)snprintf(w->order->set + w->used, sizeof w->order->set - w->used, "%s=%s\n",
                         cfg_rows[row].key, equal + 1);
    if (n >= sizeof w->order->set - w->used || strchr(value, '\n') != NULL)
        return misuse(w->cmd, "that is too much at a time");
    w->used += n;
    return 0;
}

int cmd_set(int argc, char **argv)
{
    static struct rl_order o;
    struct wanted w = {.cmd = argv[0], .order = &o};
    int status = args_parse(argc, argv, NULL, take, &w);

    if (status >= 0)
        return status;
    if (w.used == 0)
        return misuse(argv[0], "it takes a process number and KEY=VALUE");
    return order(argv[0], (unsigned)w.pid, &o, "the settings hold");
}

/* --- reload --- */

static int io_open(const char *path, int flags)
{
    int fd = open(path, flags);

    return fd >= 0 ? fd : -errno;
}

static ssize_t io_read(int fd, void *buf, size_t n)
{
    ssize_t got = read(fd, buf, n);

    return got >= 0 ? got : -errno;
}

static int io_fstat(int fd, struct stat *st)
{
    return fstat(fd, st) == 0 ? 0 : -errno;
}

static int io_close(int fd)
{
    return close(fd) == 0 ? 0 : -errno;
}

/* The environment of another process, as an array; never freed. */
static char **environment_of(unsigned pid)
{
    static char text[1 << 20];
    static char *list[8192];
    char path[64];
    size_t n = 0, have = 0;
    ssize_t got;
    int fd;

    snprintf(path, sizeof path, "/proc/%u/environ", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    while (n < sizeof text - 1 && (got = read(fd, text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)got;
    close(fd);
    for (size_t i = 0; i < n && have < 8191; i += strlen(text + i) + 1)
        list[have++] = text + i;
    return list;
}

/* The file as the library would find it there now, checked; its path from the root. */
static int find_file(const char *cmd, unsigned pid, char *to, size_t n)
{
    static const struct cfg_io io = {io_open, io_read, io_fstat, io_close};
    static struct config config;
    static char text[CFG_FILE_BYTES_MAX];
    static struct cfg_error error;
    char **env = environment_of(pid);
    char path[64], place[CFG_PATH_BYTES + 16], *real;
    struct stat st;

    snprintf(path, sizeof path, "/proc/%u/cwd", pid);
    if (env == NULL || stat(path, &st) != 0 || chdir(path) != 0)
        return fail(cmd, "process %u: %s", pid,
                    errno == ENOENT ? "there is no such process" : strerror(errno));
    snprintf(path, sizeof path, "/proc/%u", pid);
    if (stat(path, &st) != 0)
        return fail(cmd, "process %u: %s", pid, strerror(errno));
    if (cfg_load(&config, &io, env, st.st_uid, false, text, sizeof text, &error) != 0) {
        snprintf(place, sizeof place, error.line != 0 ? "%s:%u" : "%s", error.file, error.line);
        return fail(cmd, "%s: %s%s%s; %s. Nothing was changed", place, error.key,
                    error.key[0] != '\0' ? ": " : "", error.reason, error.hint);
    }
    if (config.file[0] == '\0')
        return fail(cmd, "there is no rlshim.conf for process %u", pid);
    real = realpath(config.file, NULL);
    if (real == NULL || strlen(real) >= n) {
        free(real);
        return fail(cmd, "%s: %s", config.file, real == NULL ? strerror(errno) : "too long a path");
    }
    strcpy(to, real);
    free(real);
    return EXIT_WORKED;
}

int cmd_reload(int argc, char **argv)
{
    static struct rl_order o;
    char what[1200];
    unsigned pid;
    int status = args_pid(argc, argv, &pid);

    if (status >= 0)
        return status;
    status = find_file(argv[0], pid, o.file, sizeof o.file);
    if (status != EXIT_WORKED)
        return status;
    snprintf(what, sizeof what, "%s is in force", o.file);
    return order(argv[0], pid, &o, what);
}
