/* SPDX-License-Identifier: MIT */
/* evidence: see evidence.h. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "evidence.h"
#include "log.h"

/* Inode numbers of the first pid and user namespace (include/linux/proc_ns.h in the kernel). */
#define INITIAL_PID_NS  "pid:[4026531836]"
#define INITIAL_USER_NS "user:[4026531837]"

struct dirent64_raw {
    uint64_t d_ino;
    int64_t d_off;
    uint16_t d_reclen;
    uint8_t d_type;
    char d_name[];
};

/* The identity looked for, and what was found. */
struct search {
    uint64_t dev, ino;
    bool found;
    bool blind;      /* something could not be looked at */
    bool init_blind; /* process 1 could not be */
    unsigned pid;    /* the last process that gave one of these answers */
};

/* One worker, so one set of buffers: a directory of processes, one of descriptors, one text. */
static char process_buf[32768], entry_buf[32768], text_buf[65536];

static bool is_number(const char *s)
{
    for (const char *p = s; *p != '\0'; p++)
        if (*p < '0' || *p > '9')
            return false;
    return *s != '\0';
}

static unsigned number(const char *s)
{
    unsigned n = 0;

    while (*s >= '0' && *s <= '9')
        n = n * 10 + (unsigned)(*s++ - '0');
    return n;
}

/* Calls visit(dir, name, arg) for every numeric entry of an open directory; false stops. */
static bool each_number(int dir, char *buf, size_t bytes, bool (*visit)(int, const char *, void *),
                        void *arg)
{
    long n;

    while ((n = rl_raw(SYS_getdents64, dir, buf, bytes)) > 0)
        for (long at = 0; at < n;) {
            struct dirent64_raw *d = (struct dirent64_raw *)(buf + at);

            at += d->d_reclen;
            if (is_number(d->d_name) && !visit(dir, d->d_name, arg))
                return false;
        }
    return n == 0;
}

static bool same_file(int dir, const char *name, const struct search *s)
{
    struct stat st;

    return rl_raw(SYS_newfstatat, dir, name, &st, 0) == 0 && st.st_dev == s->dev &&
           st.st_ino == s->ino;
}

/* --- this process --- */

struct own_search {
    struct search s;
    enum stat_id refusal;
    unsigned found;
    bool born_nameless; /* every descriptor comes from O_TMPFILE or memfd_create, and no fork since
                         */
};

static bool own_descriptor(int dir, const char *name, void *arg)
{
    struct own_search *own = arg;
    uint32_t flags;

    if (!same_file(dir, name, &own->s))
        return true;
    own->found++;
    flags = file_flags((int)number(name));
    if ((flags & FILE_STREAM) != 0)
        own->refusal = STAT_punch_no_stream;
    else if ((flags & (FILE_OPENED | FILE_PASSED)) != FILE_OPENED)
        own->refusal = STAT_punch_no_origin;
    if ((flags & FILE_NAMELESS) == 0 || file_forked_since((int)number(name)))
        own->born_nameless = false;
    return own->refusal == EVIDENCE_OK;
}

/* Reads a maps file. A mapping is known by its inode number alone: for btrfs the device shown there
 * is not the one stat shows. */
static bool maps_mention(int fd, uint64_t ino, bool *foreign, bool *any)
{
    size_t have = 0;
    long n;

    while ((n = rl_raw(SYS_read, fd, text_buf + have, sizeof text_buf - 1 - have)) > 0) {
        char *line = text_buf;
        char *end;

        have += (size_t)n;
        *any = true;
        text_buf[have] = '\0';
        while ((end = strchr(line, '\n')) != NULL) {
            char *p = line;
            uint64_t got = 0;

            *end = '\0';
            for (int field = 0; field < 4 && p != NULL; field++)
                if ((p = strchr(p, ' ')) != NULL)
                    p++;
            while (p != NULL && *p >= '0' && *p <= '9')
                got = got * 10 + (uint64_t)(*p++ - '0');
            if (got != 0 && got == ino)
                return true;
            if (foreign != NULL && p != NULL &&
                (strstr(p, "/liburing.so") != NULL || strstr(p, "/libaio.so") != NULL))
                *foreign = true;
            line = end + 1;
        }
        have -= (size_t)(line - text_buf);
        if (have == sizeof text_buf - 1)
            have = 0; /* one line longer than any path: nothing of ours */
        memmove(text_buf, line, have);
    }
    return false;
}

static enum stat_id look_at_ourselves(struct own_search *own)
{
    bool foreign = false;
    bool any = false;
    bool mapped;
    int dir =
        (int)rl_raw(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int maps;

    if (dir < 0)
        return STAT_punch_no_sole;
    /* /proc/self is the process, and its fd directory the table of the thread group's leader: the
     * program's, not the worker's. */
    each_number(dir, entry_buf, sizeof entry_buf, own_descriptor, own);
    rl_raw(SYS_close, dir);
    if (own->refusal != EVIDENCE_OK || own->found == 0)
        return own->found == 0 ? STAT_punch_no_sole : own->refusal;
    maps = (int)rl_raw(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (maps < 0)
        return STAT_punch_no_sole;
    mapped = maps_mention(maps, own->s.ino, &foreign, &any);
    rl_raw(SYS_close, maps);
    if (foreign) {
        rl_store_32(&proc.foreign, 1);
        return STAT_punch_no_foreign;
    }
    return mapped ? STAT_punch_no_mapped : EVIDENCE_OK;
}

/* --- everybody else --- */

static void note_failure(struct search *s, long error)
{
    if (error != -ENOENT && error != -ESRCH) /* gone meanwhile: it has nothing any more */
        s->blind = true;
}

static bool their_descriptor(int dir, const char *name, void *arg)
{
    struct search *s = arg;
    struct stat st;
    long r = rl_raw(SYS_newfstatat, dir, name, &st, 0);

    if (r != 0)
        note_failure(s, r);
    s->found = r == 0 && st.st_dev == s->dev && st.st_ino == s->ino;
    return !s->found && !s->blind; /* what hides one descriptor hides all of the process */
}

static bool count_one(int dir, const char *name, void *arg)
{
    (void)dir;
    (void)name;
    return ++*(unsigned *)arg < 2;
}

/* More than one thread. */
static bool has_threads(int process_dir)
{
    int dir = (int)rl_raw(SYS_openat, process_dir, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unsigned n = 0;

    if (dir < 0)
        return false;
    each_number(dir, entry_buf, sizeof entry_buf, count_one, &n);
    rl_raw(SYS_close, dir);
    return n > 1;
}

static void look_at_process(int proc_dir, const char *name, struct search *s)
{
    long dir, fds, maps;

    dir = rl_raw(SYS_openat, proc_dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        note_failure(s, dir);
        return;
    }
    fds = rl_raw(SYS_openat, dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fds >= 0) {
        each_number((int)fds, entry_buf, sizeof entry_buf, their_descriptor, s);
        rl_raw(SYS_close, fds);
    } else {
        note_failure(s, fds);
    }
    maps = s->found ? -ENOENT : rl_raw(SYS_openat, dir, "maps", O_RDONLY | O_CLOEXEC);
    if (maps >= 0) {
        bool any = false;

        s->found = maps_mention((int)maps, s->ino, NULL, &any);
        if (!any && has_threads((int)dir))
            s->found = true; /* its first thread has ended: the others show nothing here */
        rl_raw(SYS_close, maps);
    } else if (!s->found) {
        note_failure(s, maps);
    }
    rl_raw(SYS_close, dir);
}

static bool their_process(int proc_dir, const char *name, void *arg)
{
    struct search *s = arg;
    bool blind_before = s->blind;

    if (number(name) == proc.pid)
        return true;
    look_at_process(proc_dir, name, s);
    if (s->found || (s->blind && !blind_before))
        s->pid = number(name);
    if (number(name) == 1 && s->blind && !blind_before) {
        s->blind = false;
        s->init_blind = true;
    }
    return !s->found;
}

/* Was the file made while this process ran? */
static bool born_in_our_time(int fd)
{
    struct statx stx;

    return rl_raw(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BTIME, &stx) == 0 &&
           (stx.stx_mask & STATX_BTIME) != 0 &&
           (uint64_t)stx.stx_btime.tv_sec * 1000000000u + stx.stx_btime.tv_nsec >= proc.started_ns;
}

static bool in_namespace(const char *link, const char *expected)
{
    char buf[64];
    long n = rl_raw(SYS_readlinkat, AT_FDCWD, link, buf, sizeof buf - 1);

    if (n < 0)
        return false;
    buf[n] = '\0';
    return strcmp(buf, expected) == 0;
}

static enum stat_id census(int own, struct search *s, bool must_see_all)
{
    int dir;

    if (must_see_all &&
        (rl_raw(SYS_geteuid) != 0 || !in_namespace("/proc/self/ns/pid", INITIAL_PID_NS) ||
         !in_namespace("/proc/self/ns/user", INITIAL_USER_NS)))
        return STAT_punch_no_sole;
    dir = (int)rl_raw(SYS_openat, AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return STAT_punch_no_sole;
    if (!each_number(dir, process_buf, sizeof process_buf, their_process, s) && !s->found)
        s->blind = true;
    rl_raw(SYS_close, dir);
    if (s->init_blind && !born_in_our_time(own))
        s->blind = true;
    if (!s->found && !(must_see_all && s->blind))
        return EVIDENCE_OK;
    log_line(CFG_LOG_DEBUG, LOG_S("punches of inode "), LOG_ID(s->ino),
             LOG_S(" stay inline: process "), LOG_ID(s->pid),
             LOG_S(s->found ? " has the file" : " cannot be looked at"));
    return STAT_punch_no_sole;
}

enum stat_id evidence_gather(const struct rl_inode *inode, const struct file_state *fs, int fd,
                             int pidfd, int *own)
{
    struct own_search ours = {.s = {.dev = inode->dev, .ino = inode->ino}, .born_nameless = true};
    uint32_t forks = rl_load_32(&state_forks);
    enum stat_id refusal;
    struct stat st;
    int flags;

    *own = (int)rl_raw(SYS_pidfd_getfd, pidfd, fd, 0);
    if (*own < 0)
        return STAT_punch_no_worker;
    flags = (int)rl_raw(SYS_fcntl, *own, F_GETFL);
    refusal = STAT_punch_no_origin;
    if (rl_raw(SYS_fstat, *own, &st) != 0 || st.st_dev != inode->dev || st.st_ino != inode->ino ||
        flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        goto no;
    refusal = STAT_punch_no_name;
    if (fs->share != CFG_SHARE_PRIVATE && st.st_nlink != 0)
        goto no;
    refusal = look_at_ourselves(&ours);
    if (refusal != EVIDENCE_OK)
        goto no;
    if (rl_load_32(&proc.passed) != 0)
        ours.born_nameless = false;
    if (fs->share == CFG_SHARE_PRIVATE)
        refusal = forks != 0 || rl_load_32(&proc.passed) != 0 ? census(*own, &ours.s, false)
                                                              : EVIDENCE_OK;
    else
        refusal = ours.born_nameless ? EVIDENCE_OK : census(*own, &ours.s, true);
    if (refusal == EVIDENCE_OK && rl_load_32(&state_forks) != forks)
        refusal = STAT_punch_no_evidence_yet;
    if (refusal == EVIDENCE_OK)
        return EVIDENCE_OK;
no:
    rl_raw(SYS_close, *own);
    *own = -1;
    return refusal;
}

bool evidence_holds(const struct file_state *fs, int own)
{
    struct stat st;

    return fs->share == CFG_SHARE_PRIVATE || (rl_raw(SYS_fstat, own, &st) == 0 && st.st_nlink == 0);
}
