/* SPDX-License-Identifier: MIT */
/*
 * model: random histories of several threads on one file, each checked against a plain model.
 *
 * Run it as it is to check the kernel (and the checker), or with a library in LD_PRELOAD to check
 * the library. Exit: 0 nothing found, 1 a divergence or a hang, 2 usage, 77 this directory's file
 * system cannot do it.
 */
#include "auditor.h"
#include "stage.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HISTORY_LIMIT_S = 40, JOBS_MAX = 32 };

struct options {
    const char *dir, *save, *replay;
    int seconds, jobs, tries, shrink_seconds;
    uint64_t seed, stride, count;
    struct wishes wishes;
};

static const char *const usage_text =
    "usage: model --dir DIR [--seconds S | --histories N] [--seed N] [--jobs J] [--threads T]\n"
    "             [--file-kind unlinked|named|tmpfile] [--direct|--buffered|--mixed]\n"
    "             [--ops pread,punch,...] [--save DIR] [--shrink[=SECONDS]]\n"
    "             [--replay FILE] [--tries N]\n";

static char hang_text[256];
static bool hang_stops;

static void on_hang(int sig)
{
    (void)sig;
    ssize_t n = write(2, hang_text, strlen(hang_text));

    (void)n;
    /* For a debugger: MODEL_HANG=stop leaves everything as it stands. */
    if (hang_stops)
        raise(SIGSTOP);
    /* Not _exit: whatever hangs may hang that too. */
    kill(getpid(), SIGKILL);
}

static void watch(const struct options *o, const struct plan *p)
{
    snprintf(hang_text, sizeof(hang_text),
             "HANG seed %" PRIu64 " in %s: the history did not end within %d s; run it again with "
             "--seed %" PRIu64 " --histories 1\n",
             p->seed, o->dir, HISTORY_LIMIT_S, p->seed);
    alarm(HISTORY_LIMIT_S);
}

static void keep(const struct options *o, const struct plan *p, const char *kind)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/model-%" PRIu64 "%s.plan", o->save, p->seed, kind);
    FILE *f = fopen(path, "w");

    if (!f || plan_save(p, f))
        fprintf(stderr, "model: %s: cannot keep the plan: %s\n", path, strerror(errno));
    else
        fprintf(stderr, "  plan kept in %s; run it again with --replay %s\n", path, path);
    if (f)
        fclose(f);
}

static int report(struct stage *st, const struct options *o, struct plan *p, const struct trace *t,
                  const struct finding *f)
{
    explain(stderr, p, t, f);
    keep(o, p, "");
    if (o->shrink_seconds) {
        alarm(0);
        shrink(st, p, o->tries, o->shrink_seconds);
        keep(o, p, "-small");
        plan_save(p, stderr);
    }
    return 1;
}

static int run_seeds(struct stage *st, const struct options *o)
{
    static struct plan p;
    static struct trace t;
    struct finding f;
    struct timespec now, start;
    uint64_t seed = o->seed, n = 0;
    int failed = 0;

    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        plan_make(&p, seed, &o->wishes);
        watch(o, &p);
        if (stage_run(st, &p, &t, &f) == OUTCOME_BAD)
            failed = report(st, o, &p, &t, &f);
        seed += o->stride;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (!failed && (o->count ? ++n < o->count : now.tv_sec - start.tv_sec < o->seconds));
    alarm(0);
    printf("model %s %s: seeds %" PRIu64 "..%" PRIu64 " step %" PRIu64 ", %" PRIu64
           " histories, %" PRIu64 " calls, %" PRIu64 " reads checked (%" PRIu64 " MiB), %" PRIu64
           " forks, %" PRIu64 " undecided, %" PRIu64 " disk full%s\n",
           st->fs, o->dir, o->seed, seed - o->stride, o->stride, st->histories, st->calls,
           st->reads, st->bytes_checked >> 20, st->forks, st->undecided, st->full,
           failed ? ", DIVERGED" : "");
    if (st->full && st->full == st->histories) {
        printf("SKIP: %s is full\n", o->dir);
        return 77;
    }
    return failed;
}

static int run_replay(struct stage *st, const struct options *o)
{
    static struct plan p;
    static struct trace t;
    struct finding f;
    FILE *in = fopen(o->replay, "r");

    if (!in || plan_load(&p, in)) {
        fprintf(stderr, "model: %s: not a plan of this program\n", o->replay);
        return 2;
    }
    fclose(in);
    for (int i = 0; i < o->tries; i++) {
        watch(o, &p);
        if (stage_run(st, &p, &t, &f) == OUTCOME_BAD) {
            fprintf(stderr, "run %d of %d:\n", i + 1, o->tries);
            return report(st, o, &p, &t, &f);
        }
    }
    printf("model: %s: %d runs, nothing found\n", o->replay, o->tries);
    return 0;
}

static int run_here(struct options *o, const char *self)
{
    static struct stage st;
    int ret = stage_open(&st, o->dir, self);

    hang_stops = getenv("MODEL_HANG") && !strcmp(getenv("MODEL_HANG"), "stop");
    signal(SIGALRM, on_hang);
    signal(SIGPIPE, SIG_IGN);
    if (ret > 0) {
        printf("SKIP: %s: no hole punching on this file system\n", o->dir);
        stage_close(&st);
        return 77;
    }
    if (ret < 0)
        return 1;
    o->wishes.can_direct = st.can_direct;
    o->wishes.can_zero = st.can_zero;
    o->wishes.can_copy = st.can_copy;
    o->wishes.can_tmpfile = st.can_tmpfile;
    if (o->wishes.mode > MODE_BUFFERED && !st.can_direct) {
        printf("SKIP: %s: no O_DIRECT on this file system\n", o->dir);
        ret = 77;
    } else {
        ret = o->replay ? run_replay(&st, o) : run_seeds(&st, o);
    }
    stage_close(&st);
    return ret;
}

/* Each job is a program of its own, so that it stands alone as an application does. */
static int run_jobs(const struct options *o, char **argv, int argc, const char *self)
{
    pid_t pid[JOBS_MAX];
    int worst = 0, status;

    for (int j = 0; j < o->jobs; j++) {
        char seed[32], stride[32], *args[64];
        int n = 0;

        snprintf(seed, sizeof(seed), "--seed=%" PRIu64, o->seed + (uint64_t)j);
        snprintf(stride, sizeof(stride), "--stride=%d", o->jobs);
        for (; n < argc && n < 56; n++)
            args[n] = argv[n];
        args[n++] = seed;
        args[n++] = stride;
        args[n++] = "--jobs=1";
        args[n] = NULL;
        pid[j] = fork();
        if (!pid[j]) {
            execv(self, args);
            _exit(127);
        }
    }
    for (int j = 0; j < o->jobs; j++) {
        int code =
            waitpid(pid[j], &status, 0) == pid[j] && WIFEXITED(status) ? WEXITSTATUS(status) : 1;

        if (pid[j] > 0 && WIFSIGNALED(status))
            fprintf(stderr, "model: job %d was killed by signal %d\n", j, WTERMSIG(status));
        if (code && worst != 1)
            worst = code;
    }
    return worst;
}

static int reader(char **argv)
{
    struct arena *ar =
        mmap(NULL, sizeof(*ar), PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[2]), 0);
    unsigned char *buf = aligned_alloc(BLOCK, IO_MAX);

    if (ar == MAP_FAILED || !buf)
        return 1;
    reader_fill(ar, &ar->ops[atoi(argv[3])][atoi(argv[4])], atoi(argv[5]), buf);
    return 0;
}

static int kind_of(const char *s)
{
    return !strcmp(s, "named")      ? FILE_NAMED
           : !strcmp(s, "unlinked") ? FILE_UNLINKED
           : !strcmp(s, "tmpfile")  ? FILE_TMPFILE
                                    : -1;
}

static int parse(struct options *o, int argc, char **argv)
{
    static const struct option longs[] = {
        {"dir", 1, NULL, 'd'},       {"seconds", 1, NULL, 's'}, {"histories", 1, NULL, 'n'},
        {"seed", 1, NULL, 'x'},      {"jobs", 1, NULL, 'j'},    {"threads", 1, NULL, 't'},
        {"file-kind", 1, NULL, 'k'}, {"ops", 1, NULL, 'o'},     {"save", 1, NULL, 'S'},
        {"shrink", 2, NULL, 'z'},    {"replay", 1, NULL, 'r'},  {"tries", 1, NULL, 'T'},
        {"stride", 1, NULL, 'y'},    {"direct", 0, NULL, 'D'},  {"buffered", 0, NULL, 'B'},
        {"mixed", 0, NULL, 'M'},     {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (c) {
        case 'd':
            o->dir = optarg;
            break;
        case 's':
            o->seconds = atoi(optarg);
            break;
        case 'n':
            o->count = strtoull(optarg, NULL, 10);
            break;
        case 'x':
            o->seed = strtoull(optarg, NULL, 10);
            break;
        case 'j':
            o->jobs = atoi(optarg);
            break;
        case 't':
            o->wishes.threads = atoi(optarg);
            break;
        case 'k':
            o->wishes.kind = kind_of(optarg);
            break;
        case 'o':
            o->wishes.calls = plan_calls_of(optarg);
            break;
        case 'S':
            o->save = optarg;
            break;
        case 'z':
            o->shrink_seconds = optarg ? atoi(optarg) : 60;
            break;
        case 'r':
            o->replay = optarg;
            break;
        case 'T':
            o->tries = atoi(optarg);
            break;
        case 'y':
            o->stride = strtoull(optarg, NULL, 10);
            break;
        case 'D':
            o->wishes.mode = MODE_DIRECT;
            break;
        case 'B':
            o->wishes.mode = MODE_BUFFERED;
            break;
        case 'M':
            o->wishes.mode = MODE_MIXED;
            break;
        default:
            return -1;
        }
        if (c == 'k' && o->wishes.kind < 0)
            return -1;
    }
    return o->dir && optind == argc && o->wishes.calls && o->wishes.threads >= 0 &&
                   o->wishes.threads <= PLAN_THREADS && o->jobs >= 1 && o->jobs <= JOBS_MAX &&
                   o->stride && o->tries > 0
               ? 0
               : -1;
}

int main(int argc, char **argv)
{
    struct options o = {.save = ".",
                        .seconds = 10,
                        .jobs = 1,
                        .tries = 300,
                        .seed = 1,
                        .stride = 1,
                        .wishes = {.mode = -1, .kind = -1, .calls = UINT32_MAX}};
    char self[512];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (n < 0)
        return 1;
    self[n] = 0;
    if (argc == 6 && !strcmp(argv[1], "--reader"))
        return reader(argv);
    if (argc == 5 && !strcmp(argv[1], "--auditor"))
        return auditor_main(atoi(argv[2]), atoi(argv[3]), argv[4]);
    if (parse(&o, argc, argv)) {
        fputs(usage_text, stderr);
        return 2;
    }
    return o.jobs > 1 ? run_jobs(&o, argv, argc, self) : run_here(&o, self);
}
