/* SPDX-License-Identifier: MIT */
/*
 * held: deletes two big files so that the second stays held (evict_rate), then makes one call, and
 * looks at the free space by a system call that no library can see: is it free now? Run by held.sh,
 * on ext4, which counts at once what it frees.
 *
 *   held DIR [NAME…]   the entries of held.def (all, or these), each in a process of its own
 *
 * 0: all as expected; 1: some were not, named; 77: not even one file was held.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

#include "../../include/rlshim/control.h"
#include "../../lockmgr/rawcall.h"

#define BIG     ((off_t)64 << 20)
#define SLACK   ((uint64_t)8 << 20)
#define NOWHERE "/nonexistent/rlshim"
#define SEES    10 /* exit status of one who sees the space */

enum expect {
    DRAINED, /* free right after the call */
    HELD,    /* still held: the call is none of its business */
    LOOKS,   /* the call makes a child that looks */
    BECOMES, /* this program again, which looks */
    ENDS     /* the process: its parent looks */
};

enum verdict { NOT_YET, NEVER_HELD, GOOD, STILL_HELD, WAS_FREED, READY };

struct scene {
    int verdict;
    uint64_t free_bytes; /* with both files there */
};

static struct scene *scene;
static const char *dir, *self;
static char a[300], b[300], sub[300], small[300], command[900], number[32];
static int dirfd_, seen;
static pid_t pid;
static char *look_args[5];
static char *no_args[] = {NULL};
static char stack[65536] __attribute__((aligned(64)));
static struct stat st;
static struct statfs sfs;
static struct statfs64 sfs64;
static struct statvfs svfs;
static struct statvfs64 svfs64;

static void nap(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    rl_raw(SYS_nanosleep, &t, NULL);
}

static uint64_t free_bytes(void)
{
    struct statfs s;

    if (rl_raw(SYS_statfs, dir, &s) != 0)
        return 0;
    return (uint64_t)s.f_bfree * (uint64_t)s.f_bsize;
}

static bool is_free(int files)
{
    return free_bytes() + SLACK >= scene->free_bytes + (uint64_t)files * (uint64_t)BIG;
}

static bool make(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);

    return fd >= 0 && fallocate(fd, 0, 0, BIG) == 0 && close(fd) == 0;
}

/* a is freed, and then the thread that frees pauses for four seconds. */
static bool hold_one(void)
{
    rl_raw(SYS_syncfs, dirfd_);
    scene->free_bytes = free_bytes();
    if (unlink(a) != 0)
        return false;
    for (int i = 0; i < 300 && !is_free(1); i++)
        nap(5);
    return unlink(b) == 0 && is_free(1) && !is_free(2);
}

/* Status of a child, as LOOKS wants it. */
static int status_of(pid_t child)
{
    int s = -1;

    if (child <= 0 || waitpid(child, &s, 0) != child)
        return -1;
    return WIFEXITED(s) ? WEXITSTATUS(s) : -1;
}

static int exit_status(int s)
{
    return s >= 0 && WIFEXITED(s) ? WEXITSTATUS(s) : -1;
}

static pid_t forked(void)
{
    pid_t child = fork();

    if (child == 0) {
        execve(self, look_args, environ);
        _exit(1);
    }
    return child;
}

/* Its child's child, with the parent in between gone, or there. */
static pid_t twice_forked(bool waits)
{
    pid_t child = fork();

    if (child == 0) {
        pid_t grandchild = forked();

        _exit(waits ? status_of(grandchild) : 0);
    }
    return child;
}

static pid_t vforked(void)
{
    pid_t child = vfork();

    if (child == 0) {
        execve(self, look_args, environ);
        _exit(1);
    }
    return child;
}

static pid_t spawned(void)
{
    pid_t child = -1;

    return posix_spawn(&child, self, NULL, NULL, look_args, environ) == 0 ? child : -1;
}

static int cloned(void *arg)
{
    (void)arg;
    execve(self, look_args, environ);
    return 1;
}

static int popened(void)
{
    FILE *f = popen(command, "r");

    return f != NULL ? exit_status(pclose(f)) : -1;
}

static void child_gone(pid_t child)
{
    if (child == 0)
        rl_raw(SYS_exit_group, 0);
    waitpid(child, NULL, 0);
}

#define ENTRY(name, expect, ...)                                                                   \
    static void act_##name(void)                                                                   \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }
#include "held.def"
#undef ENTRY

static const struct entry {
    const char *name;
    enum expect expect;
    void (*act)(void);
} entries[] = {
#define ENTRY(name, expect, ...) {#name, expect, act_##name},
#include "held.def"
#undef ENTRY
};

static void prepare(void)
{
    unlink(a);
    unlink(b);
    rmdir(sub);
    statfs(dir, &sfs); /* what was held before is free */
    for (int i = 0; i < 1000 && rl_counter("evict_files") != 0; i++)
        nap(1); /* counters of this process: a child's start at 0 */
    mkdir(sub, 0700);
    close(open(small, O_RDWR | O_CREAT, 0600));
    if (!make(a) || !make(b) || !hold_one()) {
        scene->verdict = NEVER_HELD;
        rl_raw(SYS_exit_group, 0);
    }
    snprintf(number, sizeof number, "%llu", (unsigned long long)scene->free_bytes);
    snprintf(command, sizeof command, "'%s' --look '%s' %s", self, dir, number);
    look_args[0] = (char *)(uintptr_t)self;
    look_args[1] = (char *)(uintptr_t) "--look";
    look_args[2] = (char *)(uintptr_t)dir;
    look_args[3] = number;
}

static void run(const struct entry *entry)
{
    alarm(30);
    prepare();
    scene->verdict = entry->expect == ENDS ? READY : NOT_YET;
    seen = -1;
    entry->act();
    if (entry->expect == LOOKS)
        scene->verdict = seen == SEES ? GOOD : STILL_HELD;
    else if (entry->expect == HELD)
        scene->verdict = is_free(2) ? WAS_FREED : GOOD;
    else
        scene->verdict = is_free(2) ? GOOD : STILL_HELD;
    rl_raw(SYS_exit_group, 0);
}

static const char *run_and_judge(const struct entry *entry)
{
    int s = 0;
    pid_t child;

    *scene = (struct scene){0};
    child = fork();
    if (child == 0) {
        pid = getpid();
        run(entry);
    }
    if (child < 0 || waitpid(child, &s, 0) != child)
        return "could not be run";
    if (scene->verdict == NEVER_HELD)
        return "nothing was held";
    if (entry->expect == ENDS)
        return is_free(2) ? NULL : "left a file held";
    if (!WIFEXITED(s))
        return "was killed";
    if (entry->expect == BECOMES)
        return WEXITSTATUS(s) == SEES ? NULL : "left a file held";
    if (scene->verdict == WAS_FREED)
        return "waited for what was held, without need";
    if (scene->verdict == STILL_HELD)
        return "left a file held";
    return scene->verdict == GOOD ? NULL : "did not come back";
}

static bool wanted(const char *name, char **names)
{
    if (*names == NULL)
        return true;
    for (; *names != NULL; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    static char exe[4096];
    int ran = 0, bad = 0;

    scene = mmap(NULL, sizeof *scene, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc >= 4 && strcmp(argv[1], "--look") == 0) {
        dir = argv[2];
        scene->free_bytes = strtoull(argv[3], NULL, 10);
        rl_raw(SYS_exit_group, is_free(2) ? SEES : SEES + 1);
    }
    if (argc < 2) {
        fprintf(stderr, "usage: held DIR [NAME…]\n");
        return 2;
    }
    dir = argv[1];
    dirfd_ = open(dir, O_RDONLY | O_DIRECTORY);
    snprintf(a, sizeof a, "%s/a", dir);
    snprintf(b, sizeof b, "%s/b", dir);
    snprintf(sub, sizeof sub, "%s/sub", dir);
    snprintf(small, sizeof small, "%s/small", dir);
    if (dirfd_ < 0 || readlink("/proc/self/exe", exe, sizeof exe - 1) <= 0)
        return 2;
    self = exe;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        const char *complaint;

        if (!wanted(entries[i].name, argv + 2))
            continue;
        complaint = run_and_judge(&entries[i]);
        if (ran++ == 0 && scene->verdict == NEVER_HELD)
            return 77;
        if (complaint != NULL) {
            printf("%s %s\n", entries[i].name, complaint);
            fflush(stdout);
            bad++;
        }
    }
    printf("%d entries, %d not as expected\n", ran, bad);
    return ran > 0 && bad == 0 ? 0 : 1;
}
