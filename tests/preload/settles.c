/* SPDX-License-Identifier: MIT */
/* timeout: 120 */
/*
 * settles: makes a punch that stays queued, then one call, and looks at the file by system calls
 * that no library can see: is the punch applied now? Run by settles.sh, which sets up the shim so
 * that nothing is applied on its own account for ten seconds.
 *
 *   settles DIR [NAME…]   the entries of settles.def (all, or these), each in a process of its own
 *
 * 0: all as expected; 1: some were not, named; 77: no punch was ever queued.
 */
#include <aio.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <grp.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/acct.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/quota.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/swap.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>
#include <wordexp.h>

#include "../../include/rlshim/control.h"
#include "../../lockmgr/rawcall.h"

#define BLOCK      4096
#define BLOCKS     512
#define FILE_BYTES ((off_t)BLOCK * BLOCKS)
#define NOWHERE    "/nonexistent/rlshim"

enum expect {
    APPLIED,  /* right after the call */
    QUEUED,   /* not applied: the call is none of the punch's business */
    COUNTED,  /* applied, but the call itself changes those bytes: by the counter settled.WHY */
    IN_CHILD, /* applied, as the child that it makes sees it */
    BECOMES,  /* this program again, which looks */
    ENDS      /* the process: its parent looks */
};

enum verdict { NOT_YET, CANNOT_QUEUE, GOOD, STILL_QUEUED, WAS_APPLIED, READY };

/* Between the processes. */
struct scene {
    int verdict;
    off_t at;
};

static struct scene *scene;
static const char *path, *other_path, *self;
static off_t at;
static int fd, other, pipe_fd[2], socket_fd[2], number;
static char zone[16 * BLOCK] __attribute__((aligned(64)));
static char *no_args[] = {NULL};
static char *check_args[5];
static const char *why;
static pid_t pid;
static struct iovec vec = {zone, BLOCK};
static struct aiocb cb;
static struct stat st;
static struct stat64 st64;
static struct statx stx;
static struct statfs sfs;
static struct statfs64 sfs64;
static struct statvfs svfs;
static struct statvfs64 svfs64;

/* Not in any header, or only there for fortified builds. */
int __dprintf_chk(int to, int flag, const char *format, ...);

/* Functions that this libc's headers or libraries may lack: whatever the name means here. */
#define CALL(type, name) ((type)need(#name))
static void *need(const char *name)
{
    void *f = dlsym(RTLD_DEFAULT, name);

    if (f == NULL) {
        fprintf(stderr, "settles: nobody defines %s\n", name);
        _exit(2);
    }
    return f;
}

/* --- unseen --- */

static void nap(void)
{
    struct timespec ten_ms = {0, 10000000};

    rl_raw(SYS_nanosleep, &ten_ms, NULL);
}

static bool block_is_zero(int from, off_t where)
{
    char bytes[BLOCK];

    if (rl_raw(SYS_pread64, from, bytes, BLOCK, where) != BLOCK)
        return false;
    for (int i = 0; i < BLOCK; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

static bool file_is_punched(const char *file, off_t where)
{
    long from = rl_raw(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC, 0);
    bool zero = from >= 0 && block_is_zero((int)from, where);

    if (from >= 0)
        rl_raw(SYS_close, from);
    return zero;
}

/* --- a queued punch --- */

static int make_file(const char *file)
{
    int made = open(file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    memset(zone, 'x', sizeof zone);
    for (off_t done = 0; made >= 0 && done < FILE_BYTES; done += (off_t)sizeof zone)
        if (pwrite(made, zone, sizeof zone, done) != (ssize_t)sizeof zone)
            return -1;
    return made;
}

/* The first punch of a file is made at once, and the next ones until there is evidence that the
 * file is ours: so on with it until one stays away. */
static bool queue_a_punch(void)
{
    for (at = BLOCK; at < FILE_BYTES - BLOCK; at += BLOCK) {
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, BLOCK) != 0)
            return false;
        if (!block_is_zero(fd, at))
            return true;
        nap();
    }
    return false;
}

/* --- parts of entries --- */

static int walked(const char *file, const struct stat *status, int flag)
{
    (void)file, (void)status, (void)flag;
    return 1;
}

static int walked_more(const char *file, const struct stat *status, int flag, struct FTW *where)
{
    (void)file, (void)status, (void)flag, (void)where;
    return 1;
}

static int returns_0(void *arg)
{
    (void)arg;
    return 0;
}

static void child_gone(pid_t child)
{
    if (child == 0)
        rl_raw(SYS_exit_group, 0);
}

static struct msghdr *rights(int passed)
{
    static union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    static struct iovec one = {"r", 1};
    static struct msghdr msg = {.msg_iov = &one,
                                .msg_iovlen = 1,
                                .msg_control = &control,
                                .msg_controllen = sizeof control};

    control.header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &passed, sizeof passed);
    return &msg;
}

/* --- entries --- */

#define ENTRY(name, expect, ...)                                                                   \
    static void act_##name(void)                                                                   \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }
#include "settles.def"
#undef ENTRY

static const struct entry {
    const char *name;
    enum expect expect;
    void (*act)(void);
} entries[] = {
#define ENTRY(name, expect, ...) {#name, expect, act_##name},
#include "settles.def"
#undef ENTRY
};

static uint64_t settled(void)
{
    char name[64];

    snprintf(name, sizeof name, "settled.%s", why != NULL ? why : "");
    return rl_counter(name);
}

static void prepare(const struct entry *entry)
{
    static char offset[24];

    fd = make_file(path);
    other = make_file(other_path);
    if (strcmp(entry->name, "stat_of_setid") == 0)
        fchmod(fd, 06700);
    cb = (struct aiocb){.aio_fildes = fd, .aio_buf = zone, .aio_nbytes = BLOCK};
    if (fd < 0 || other < 0 || pipe(pipe_fd) != 0 ||
        socketpair(AF_UNIX, SOCK_DGRAM, 0, socket_fd) != 0 || !queue_a_punch()) {
        scene->verdict = CANNOT_QUEUE;
        rl_raw(SYS_exit_group, 0);
    }
    snprintf(offset, sizeof offset, "%lld", (long long)at);
    check_args[0] = check_args[1] = "--look";
    check_args[2] = (char *)(uintptr_t)path;
    check_args[3] = offset;
    scene->at = at;
}

/* In a process of its own, whose end nobody waits for longer than a few seconds. */
static void run(const struct entry *entry)
{
    uint64_t before;
    bool good;

    alarm(30);
    prepare(entry);
    scene->verdict = entry->expect == ENDS ? READY : NOT_YET;
    before = settled(); /* of nothing yet: 0 */
    entry->act();
    switch (entry->expect) {
    case QUEUED:
        scene->verdict = file_is_punched(path, at) ? WAS_APPLIED : GOOD;
        break;
    case COUNTED:
        good = settled() > before;
        scene->verdict = good ? GOOD : STILL_QUEUED;
        break;
    default:
        good = file_is_punched(path, at);
        if (entry->expect != IN_CHILD || getpid() != pid)
            scene->verdict = good ? GOOD : STILL_QUEUED;
        break;
    }
    rl_raw(SYS_exit_group, 0);
}

static const char *run_and_judge(const struct entry *entry)
{
    int status = 0;
    pid_t child;

    *scene = (struct scene){0};
    child = fork();
    if (child == 0) {
        pid = getpid();
        run(entry);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return "could not be run";
    /* A daemon, or a child that looks, says it later. */
    for (int i = 0; i < 500 && scene->verdict == NOT_YET && entry->expect != BECOMES; i++)
        nap();
    if (scene->verdict == CANNOT_QUEUE)
        return "no punch could be queued";
    if (!WIFEXITED(status))
        return "was killed";
    if (entry->expect == BECOMES)
        return WEXITSTATUS(status) == 10 ? NULL : "left the punch queued";
    if (entry->expect == ENDS)
        return file_is_punched(path, scene->at) ? NULL : "left the punch queued";
    if (scene->verdict == WAS_APPLIED)
        return "had the punch applied, without need";
    if (scene->verdict == STILL_QUEUED)
        return "left the punch queued";
    return scene->verdict == GOOD ? NULL : "did not come back";
}

static bool wanted(const char *name, char **names)
{
    if (*names == NULL)
        return strncmp(name, "exact_", 6) != 0;
    for (; *names != NULL; names++)
        if (strcmp(name, *names) == 0 ||
            (strcmp(*names, "exact_") == 0 && strncmp(name, "exact_", 6) == 0))
            return true;
    return false;
}

int main(int argc, char **argv)
{
    static char file[4096], file2[4096], exe[4096];
    int ran = 0, bad = 0;

    if (argc >= 4 && strcmp(argv[1], "--look") == 0) {
        rl_raw(SYS_exit_group, file_is_punched(argv[2], (off_t)atoll(argv[3])) ? 10 : 11);
    }
    if (argc < 2) {
        fprintf(stderr, "usage: settles DIR [NAME…]\n");
        return 2;
    }
    snprintf(file, sizeof file, "%s/file", argv[1]);
    snprintf(file2, sizeof file2, "%s/other", argv[1]);
    if (readlink("/proc/self/exe", exe, sizeof exe - 1) <= 0)
        return 2;
    path = file;
    other_path = file2;
    self = exe;
    scene = mmap(NULL, sizeof *scene, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        const char *complaint;

        if (!wanted(entries[i].name, argv + 2))
            continue;
        /* The worker may apply a punch early for a reason of its own, which happens once in
         * hundreds; a call that does it does it every time. */
        for (int tries = 0; tries < 3; tries++) {
            complaint = run_and_judge(&entries[i]);
            if (scene->verdict != WAS_APPLIED)
                break;
        }
        if (ran++ == 0 && scene->verdict == CANNOT_QUEUE)
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
