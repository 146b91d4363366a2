/* SPDX-License-Identifier: MIT */
/*
 * cmd_bench: rlshim bench DIR: how large, in which order, for how long, and cleaning up.
 *
 * Everything is made in one new directory in DIR, by processes that die with this one; it is
 * emptied after every turn, and removed at the end and on SIGINT, SIGTERM and SIGHUP.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../text.h"
#include "args.h"
#include "bench.h"
#include "cmd.h"
#include "fs_name.h"

#define MIB        ((uint64_t)1 << 20)
#define SPARE      (256 * MIB)  /* left to others, whatever happens */
#define WANT       (1536 * MIB) /* no more than this is ever on the disk */
#define NEED       (192 * MIB)  /* less shows nothing */
#define PROBE      (32 * MIB)
#define ALL_S      105.0 /* no turn is begun after what would end later */
#define TURN_MAX_S 25.0  /* a turn that takes longer is stopped */
#define SETS_MAX   16

static struct {
    const char *dir;
    bool quiet;
    double seconds; /* of a turn */
    unsigned sets;
    char *set[SETS_MAX];
    char work[PATH_MAX];
    int work_fd;
    char library[4096];
    uint64_t bytes;
    double rate; /* bytes a second, of the disk */
    double begun;
    bool terminal;
} b = {.seconds = 3, .work_fd = -1};

static volatile sig_atomic_t caught;
static volatile pid_t running;

/* The main loop cleans up: it is never more than a poll away. */
static void on_signal(int sig)
{
    caught = sig;
    if (running > 0)
        kill(running, SIGKILL);
}

static void progress(const char *format, ...)
{
    char text[256];
    va_list args;

    if (b.quiet)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, b.terminal ? "\r\033[K%.78s" : "%s\n", text);
    fflush(stderr);
}

static void progress_end(void)
{
    if (!b.quiet && b.terminal)
        fputs("\r\033[K", stderr);
}

static void empty_work(void)
{
    DIR *d;
    struct dirent *e;
    int fd = b.work_fd >= 0 ? openat(b.work_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    if (fd < 0)
        return;
    d = fdopendir(fd);
    if (d == NULL) {
        close(fd);
        return;
    }
    while ((e = readdir(d)) != NULL)
        if (e->d_name[0] != '.')
            unlinkat(b.work_fd, e->d_name, 0);
    closedir(d);
}

static void remove_work(void)
{
    if (b.work[0] == '\0')
        return;
    empty_work();
    if (b.work_fd >= 0)
        close(b.work_fd);
    b.work_fd = -1;
    if (rmdir(b.work) != 0)
        fail("bench", "%s is left behind: %s", b.work, strerror(errno));
    b.work[0] = '\0';
}

/* LD_PRELOAD without this library, with it in front if wanted. */
static void set_preload(bool with)
{
    const char *old = getenv("LD_PRELOAD");
    char value[16384] = "";
    size_t len = 0;

    if (with)
        len = (size_t)snprintf(value, sizeof value, "%s", b.library);
    while (old != NULL && *old != '\0') {
        size_t n = strcspn(old, ": ");
        const char *base = memrchr(old, '/', n);
        size_t skip = base != NULL ? (size_t)(base + 1 - old) : 0;

        if (n != 0 && !(n - skip >= 12 && strncmp(old + skip, "librlshim.so", 12) == 0) &&
            len + n + 2 < sizeof value)
            len += (size_t)snprintf(value + len, sizeof value - len, "%s%.*s", len != 0 ? ":" : "",
                                    (int)n, old);
        old += n + (old[n] != '\0');
    }
    if (len != 0)
        setenv("LD_PRELOAD", value, 1);
    else
        unsetenv("LD_PRELOAD");
}

/* In the child. */
__attribute__((noreturn)) static void become(enum bench_job job, bool with, int out, int err)
{
    char which[8], bytes[24], ms[24];
    char name[] = "rlshim", what[] = "bench-job";
    char *argv[] = {name, what, which, bytes, ms, NULL};

    snprintf(which, sizeof which, "%d", (int)job);
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)b.bytes);
    snprintf(ms, sizeof ms, "%.0f", b.seconds * 1000);
    set_preload(with);
    if (with) {
        setenv("RLSHIM_MODE", "on", 1);
        unsetenv("RLSHIM_REPORT");
        if (job == BENCH_BURST && getenv("RLSHIM_WRITEBACK_WINDOW") == NULL)
            setenv("RLSHIM_WRITEBACK_WINDOW", "8M", 1);
        for (unsigned i = 0; i < b.sets; i++)
            putenv(b.set[i]);
    }
    if (fchdir(b.work_fd) == 0 && dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0)
        execv("/proc/self/exe", argv);
    dprintf(err, "it cannot start itself: %s\n", strerror(errno));
    _exit(127);
}

/* What comes from both pipes until they end, or until the time is over. */
static void collect(pid_t pid, const int from[2], char text[2][4096])
{
    size_t len[2] = {0, 0};
    struct pollfd p[2] = {{.fd = from[0], .events = POLLIN}, {.fd = from[1], .events = POLLIN}};
    double begin = bench_now();

    while (p[0].fd >= 0 || p[1].fd >= 0) {
        if (caught != 0 || bench_now() - begin > TURN_MAX_S) {
            kill(pid, SIGKILL);
            break;
        }
        if (poll(p, 2, 100) <= 0)
            continue;
        for (int i = 0; i < 2; i++) {
            ssize_t n;

            if (p[i].fd < 0 || p[i].revents == 0)
                continue;
            n = read(p[i].fd, text[i] + len[i], 4095 - len[i]);
            if (n <= 0)
                p[i].fd = -1;
            else
                len[i] += (size_t)n;
        }
    }
    text[0][len[0]] = text[1][len[1]] = '\0';
}

static void take_results(struct bench_result *r, enum bench_job job, bool with, char *text)
{
    char *save = NULL;

    for (char *line = strtok_r(text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        char name[64];
        double v;

        if (sscanf(line, "%63s %lf", name, &v) != 2)
            continue;
        if (strcmp(name, "acted") == 0 && with)
            r->acted += v;
        for (int i = 0; i < BENCH_METRICS; i++)
            if (bench_metrics[i].job == job && strcmp(bench_metrics[i].name, name) == 0)
                r->value[with][i][r->turns[with]] = v;
    }
    r->turns[with]++;
}

static void turn(struct bench_result *r, enum bench_job job, bool with)
{
    static char text[2][4096];
    int out[2], err[2], status = 0;
    pid_t pid;

    if (pipe2(out, O_CLOEXEC) != 0) {
        snprintf(r->why_not, sizeof r->why_not, "%s", strerror(errno));
        return;
    }
    if (pipe2(err, O_CLOEXEC) != 0) {
        snprintf(r->why_not, sizeof r->why_not, "%s", strerror(errno));
        close(out[0]);
        close(out[1]);
        return;
    }
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        become(job, with, out[1], err[1]);
    running = pid;
    close(out[1]);
    close(err[1]);
    if (pid > 0) {
        collect(pid, (int[2]){out[0], err[0]}, text);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    running = 0;
    close(out[0]);
    close(err[0]);
    empty_work();
    text[1][strcspn(text[1], "\n")] = '\0';
    if (pid < 0)
        snprintf(r->why_not, sizeof r->why_not, "%s", strerror(errno));
    else if (status == 0)
        take_results(r, job, with, text[0]);
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        snprintf(r->why_not, sizeof r->why_not, "a turn took more than %.0f s", TURN_MAX_S);
    else
        snprintf(r->why_not, sizeof r->why_not, "%.240s",
                 text[1][0] != '\0' ? text[1] : "the process ended unexpectedly");
}

/* About how long a turn takes, laying out included. */
static double turn_cost_s(enum bench_job job)
{
    if (job == BENCH_DELETE)
        return (double)b.bytes / b.rate;
    return b.seconds + (job == BENCH_READS ? (double)b.bytes / 4 / b.rate : 0.2);
}

static const char *no_reason_to_try(enum bench_job job, bool known_fs)
{
    if (job == BENCH_CREATE && cfg_rows[CFG_ROW_create].later)
        return "the setting create is not effective in this release";
    if (job == BENCH_BURST && cfg_rows[CFG_ROW_writeback_window_bytes].later)
        return "the setting writeback_window is not effective in this release";
    if (!known_fs && (job == BENCH_READS || job == BENCH_DELETE || job == BENCH_REOPEN))
        return "rlshim does nothing about it on this file system";
    return NULL;
}

static void measure(struct bench_result *result, bool known_fs)
{
    static const bool with[] = {false, true, true, false};

    for (int job = 0; job < BENCH_JOBS && caught == 0; job++) {
        struct bench_result *r = &result[job];
        const char *no = no_reason_to_try(job, known_fs);

        if (no != NULL) {
            snprintf(r->why_not, sizeof r->why_not, "%s", no);
            continue;
        }
        for (int i = 0; i < 4 && r->why_not[0] == '\0' && caught == 0; i++) {
            if (bench_now() - b.begun + turn_cost_s(job) > ALL_S)
                break;
            progress("[%3.0f s] %d/%d %s: %s", bench_now() - b.begun, job + 1, BENCH_JOBS,
                     bench_job_name[job], with[i] ? "with rlshim" : "without");
            turn(r, job, with[i]);
        }
    }
    progress_end();
}

/* Bytes a second, written and on the disk: what the sizes go by. */
static int probe(void)
{
    static char piece[1 << 20];
    double begin;
    int fd = openat(b.work_fd, "probe", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    progress("[  0 s] how fast is %s?", b.dir);
    memset(piece, 'p', sizeof piece);
    if (fd < 0)
        return fail("bench", "%s: %s", b.dir, strerror(errno));
    begin = bench_now();
    for (uint64_t at = 0; at < PROBE && caught == 0; at += sizeof piece)
        if (write(fd, piece, sizeof piece) != (ssize_t)sizeof piece) {
            int error = errno;

            close(fd);
            return fail("bench", "%s: writing %llu MiB: %s", b.dir,
                        (unsigned long long)(PROBE / MIB), strerror(error));
        }
    if (fsync(fd) != 0)
        return fail("bench", "%s: %s", b.dir, strerror(errno));
    b.rate = (double)PROBE / (bench_now() - begin + 1e-6);
    close(fd);
    empty_work();
    /* A cache may take the first bytes faster than the disk the rest. */
    if (b.rate > 1e9)
        b.rate = 1e9;
    return EXIT_WORKED;
}

/* Room for a run, or one line why not. */
static int check_room(bool *known_fs)
{
    struct statvfs vfs;
    struct statfs fs;
    uint64_t room;
    const char *name;

    if (statvfs(b.dir, &vfs) != 0 || statfs(b.dir, &fs) != 0)
        return fail("bench", "%s: %s", b.dir, strerror(errno));
    if ((vfs.f_flag & ST_RDONLY) != 0)
        return fail("bench", "%s is mounted read-only", b.dir);
    if ((long)fs.f_type == TMPFS_MAGIC || (long)fs.f_type == RAMFS_MAGIC)
        return fail("bench",
                    "%s lies in memory (tmpfs): there is no disk to wait for; name a directory on "
                    "ext4, XFS or btrfs",
                    b.dir);
    name = fs_name((long)fs.f_type);
    *known_fs = fs_deferred((long)fs.f_type);
    room = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    if (room < SPARE + NEED)
        return fail("bench", "%s has %llu MiB free; it needs %llu MiB, of which %llu MiB stay free",
                    b.dir, (unsigned long long)(room / MIB),
                    (unsigned long long)((SPARE + NEED) / MIB), (unsigned long long)(SPARE / MIB));
    /* Half of what is there: others write too. */
    b.bytes = (room - SPARE) / 2 < WANT ? (room - SPARE) / 2 : WANT;
    if (b.bytes < NEED)
        b.bytes = NEED;
    if (name == NULL)
        printf("%s: file system of type 0x%lx", b.dir, (unsigned long)fs.f_type);
    else
        printf("%s: %s", b.dir, name);
    return EXIT_WORKED;
}

static int make_work(void)
{
    int n = snprintf(b.work, sizeof b.work, "%s/rlshim-bench.XXXXXX", b.dir);

    if (n < 0 || n >= (int)sizeof b.work) {
        b.work[0] = '\0';
        return fail("bench", "the name of the directory is too long");
    }
    if (mkdtemp(b.work) == NULL) {
        b.work[0] = '\0';
        return fail("bench", "nothing can be made in %s: %s", b.dir, strerror(errno));
    }
    b.work_fd = open(b.work, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return b.work_fd >= 0 ? EXIT_WORKED : fail("bench", "%s: %s", b.work, strerror(errno));
}

/* A slow disk gets smaller files: all must end in time, and each turn within TURN_MAX_S. */
static void scale(void)
{
    uint64_t most = (uint64_t)(b.rate * 8);

    if (b.bytes > most)
        b.bytes = most > NEED ? most : NEED;
    b.bytes = b.bytes / (3 * MIB) * (3 * MIB);
}

static int take(int key, char *value, void *to)
{
    char *end;

    (void)to;
    switch (key) {
    case 's':
        if (b.sets == SETS_MAX)
            return misuse("bench", "there are too many --set");
        b.set[b.sets] = setting_variable("bench", value);
        return b.set[b.sets++] == NULL ? EXIT_USAGE : 0;
    case 'l':
        snprintf(b.library, sizeof b.library, "%s", value);
        return 0;
    case 't':
        b.seconds = strtod(value, &end);
        if (*end != '\0' || end == value || !(b.seconds >= 0.1 && b.seconds <= 5))
            return misuse("bench", "--seconds takes a number from 0.1 to 5, not '%.80s'", value);
        return 0;
    case 'q':
        b.quiet = true;
        return 0;
    default:
        if (b.dir != NULL)
            return misuse("bench", "it takes one directory");
        b.dir = value;
        return 0;
    }
}

static void print_setup(void)
{
    const struct loaded *l = load_config(environ);
    struct utsname names;

    uname(&names);
    printf(", Linux %s, about %.0f MiB/s; files of up to %llu MiB\n", names.release,
           b.rate / (double)MIB, (unsigned long long)(b.bytes / 3 / MIB));
    printf("settings: %s", l->config.file[0] != '\0' ? l->config.file : "built-in");
    for (unsigned i = 0; i < b.sets; i++)
        printf(", %s", b.set[i]);
    putchar('\n');
}

int cmd_bench(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {.name = "set", .key = 's', .arg = "KEY=VALUE"},
        {.name = "library", .key = 'l', .arg = "FILE"},
        {.name = "seconds", .key = 't', .arg = "N"},
        {.name = "quiet", .key = 'q'},
        {0},
    };
    static struct bench_result result[BENCH_JOBS];
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction act = {.sa_handler = on_signal};
    const struct loaded *l;
    char line[2048];
    bool known_fs = false;
    int status = args_parse(argc, argv, options, take, NULL);

    if (status >= 0)
        return status;
    if (b.dir == NULL)
        return misuse(argv[0], "no directory was given");
    if (b.library[0] == '\0' && !find_library(b.library, sizeof b.library))
        return fail(argv[0], "librlshim.so is neither beside this command nor in ../lib; name it "
                             "with --library FILE");
    if (access(b.library, R_OK) != 0)
        return fail(argv[0], "%s: %s", b.library, strerror(errno));
    if (strpbrk(b.library, " :") != NULL)
        return fail(argv[0], "%s has a blank or colon in its path, which LD_PRELOAD cannot hold",
                    b.library);
    l = load_config(environ);
    if (l->bad) {
        cfg_error_line(&l->error, line, sizeof line);
        return fail(argv[0], "%s", line);
    }
    b.terminal = isatty(STDERR_FILENO) != 0;
    b.begun = bench_now();
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &act, NULL);
    status = check_room(&known_fs);
    if (status == EXIT_WORKED)
        status = make_work();
    if (status == EXIT_WORKED)
        status = probe();
    if (status == EXIT_WORKED) {
        scale();
        print_setup();
        measure(result, known_fs);
    }
    remove_work();
    if (caught != 0) {
        fprintf(stderr, "rlshim bench: stopped; nothing is left in %s\n", b.dir);
        signal(caught, SIG_DFL);
        raise(caught);
    }
    if (status == EXIT_WORKED)
        bench_print(result, known_fs);
    return status;
}
