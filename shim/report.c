/* SPDX-License-Identifier: MIT */
/*
 * report: what the process was, under which name its report goes, and the writing of it. The texts
 * are made by report_json.c and report_text.c.
 *
 * A report is written beside its final name and moved there in one step that refuses to replace
 * anything: readers never see half of one, and of several processes with one `report = FILE` (MPI
 * ranks, children) each gets a name of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h> /* RENAME_NOREPLACE */
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h> /* W_OK */

#include "log.h"
#include "report.h"

#define ATTEMPTS 1000u

/* The first that is set wins: MPI libraries know better than the batch system that started them. */
static const char *const rank_names[] = {
    "OMPI_COMM_WORLD_RANK=",
    "PMI_RANK=",
    "PMIX_RANK=",
    "SLURM_PROCID=",
};

static void rank_entry(struct report_rank *r)
{
    for (uint32_t i = 0; i < sizeof rank_names / sizeof *rank_names; i++) {
        size_t name = strlen(rank_names[i]);
        int64_t value = 0;
        uint32_t at = (uint32_t)name;

        if (r->len <= name || r->len - name > 9 || memcmp(r->entry, rank_names[i], name) != 0)
            continue;
        for (; at < r->len && r->entry[at] >= '0' && r->entry[at] <= '9'; at++)
            value = value * 10 + (r->entry[at] - '0');
        if (at == r->len && (r->source == 0 || i + 1 < r->source)) {
            r->rank = value;
            r->source = i + 1;
        }
    }
}

void report_rank_feed(struct report_rank *r, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\0') {
            if (r->len < sizeof r->entry)
                rank_entry(r);
            r->len = 0;
        } else if (r->len < sizeof r->entry) {
            r->entry[r->len++] = bytes[i]; /* full: too long for a rank, skipped to its end */
        }
    }
}

bool report_wants_text(const char *path)
{
    size_t n = strlen(path);

    return (n >= 4 && memcmp(path + n - 4, ".txt", 4) == 0) ||
           (n >= 5 && memcmp(path + n - 5, ".text", 5) == 0);
}

/* For a file name: whatever a host name holds becomes one component. */
static void put_host(struct cfg_text *t, const char *host)
{
    for (; *host != '\0'; host++) {
        bool plain = (*host >= 'a' && *host <= 'z') || (*host >= 'A' && *host <= 'Z') ||
                     (*host >= '0' && *host <= '9') || *host == '-' || *host == '_' || *host == '.';
        cfg_text_bytes(t, plain ? host : "_", 1);
    }
}

bool report_name(char *buf, size_t n, const char *path, bool directory, const struct report *r,
                 const char *ext, unsigned attempt)
{
    struct cfg_text t = cfg_text_in(buf, n);
    size_t len = strlen(path);

    if (directory) {
        cfg_text_add(&t, path);
        cfg_text_add(&t, "/rlshim-");
        put_host(&t, r->host);
        cfg_text_add(&t, "-");
        cfg_text_number(&t, r->pid);
        if (r->rank >= 0) {
            cfg_text_add(&t, "-rank");
            cfg_text_number(&t, (uint64_t)r->rank);
        }
        if (attempt != 0) {
            cfg_text_add(&t, "-");
            cfg_text_number(&t, attempt + 1);
        }
        cfg_text_add(&t, ".");
        cfg_text_add(&t, ext);
    } else {
        size_t stem = len;

        while (stem > 0 && path[stem - 1] != '.' && path[stem - 1] != '/')
            stem--;
        /* No dot in the last component, or only its first character: all of it is stem. */
        if (stem < 2 || path[stem - 1] != '.' || path[stem - 2] == '/')
            stem = len + 1;
        cfg_text_bytes(&t, path, stem - 1);
        if (attempt != 0) {
            cfg_text_add(&t, ".");
            cfg_text_number(&t, r->pid);
        }
        if (attempt > 1) {
            cfg_text_add(&t, "-");
            cfg_text_number(&t, attempt);
        }
        cfg_text_add(&t, stem <= len ? path + stem - 1 : "");
    }
    return text_room(&t) != 0;
}

/* All of a small file in /proc, in parts. */
static long proc_open(const char *path)
{
    return rl_raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
}

/* thread-self: when the first thread has ended, /proc/self shows no command line any more. */
static void read_command(struct report *r)
{
    long fd = proc_open("/proc/thread-self/cmdline");
    char more;
    long n;

    if (fd < 0)
        return;
    while (r->command_len < sizeof r->command - 1) {
        n = rl_raw(SYS_read, fd, r->command + r->command_len,
                   sizeof r->command - 1 - r->command_len);
        if (n <= 0)
            break;
        r->command_len += (uint32_t)n;
    }
    r->command_cut = r->command_len == sizeof r->command - 1 && rl_raw(SYS_read, fd, &more, 1) == 1;
    if (r->command_len != 0 && r->command[r->command_len - 1] != '\0')
        r->command[r->command_len++] = '\0';
    rl_raw(SYS_close, fd);
}

/* From /proc, not from environ: at exit the program may have freed or overwritten what that names.
 */
static int64_t read_rank(void)
{
    struct report_rank rank = {.rank = -1};
    long fd = proc_open("/proc/thread-self/environ");
    char part[1024];
    long n;

    if (fd < 0)
        return -1;
    while ((n = rl_raw(SYS_read, fd, part, sizeof part)) > 0)
        report_rank_feed(&rank, part, (size_t)n);
    report_rank_feed(&rank, "", 1);
    rl_raw(SYS_close, fd);
    return rank.rank;
}

static void copy(char *to, size_t cap, const char *from)
{
    struct cfg_text t = cfg_text_in(to, cap);

    cfg_text_add(&t, from);
}

static void gather(struct report *r, const struct stats_page *page, const struct settings *s)
{
    struct utsname names;
    struct timespec now = {0};

    r->pid = (uint32_t)rl_raw(SYS_getpid);
    r->rank = read_rank();
    r->processes = 1;
    if (rl_raw(SYS_uname, &names) == 0) {
        copy(r->host, sizeof r->host, names.nodename);
        copy(r->kernel, sizeof r->kernel, names.release);
    }
    copy(r->program, sizeof r->program, page->program);
    read_command(r);
    rl_raw(SYS_clock_gettime, CLOCK_REALTIME, &now);
    r->started_ns = page->started_ns;
    r->ended_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    for (int i = 0; i < STAT_COUNT; i++)
        r->value[i] = rl_load_64(&page->value[i]);
    for (int i = 0; i < WHY_COUNT; i++)
        r->settled[i] = rl_load_64(&page->settled[i]);
    for (int i = 0; i < CFG_ROWS; i++)
        cfg_format(&cfg_rows[i], s, r->setting[i], sizeof r->setting[i]);
}

/* From here on every function returns 0 or -errno. */

static int write_all(int fd, const char *buf, size_t n)
{
    uint64_t limit[2] = {0, 0};

    /* Past the limit the kernel would send SIGXFSZ. */
    if (rl_raw(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, limit) == 0 && limit[0] < n)
        return -EFBIG;
    while (n > 0) {
        long done = rl_raw(SYS_write, fd, buf, n);

        if (done == -EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? (int)done : -EIO;
        buf += done;
        n -= (size_t)done;
    }
    return 0;
}

/* from becomes to, which must not exist. */
static int move(const char *from, const char *to)
{
    long ret = rl_raw(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);

    if (ret == -EINVAL || ret == -ENOSYS || ret == -EOPNOTSUPP) { /* NFS, some FUSE servers */
        ret = rl_raw(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
        if (ret == 0)
            rl_raw(SYS_unlinkat, AT_FDCWD, from, 0);
    }
    return (int)ret;
}

struct target {
    const char *path; /* absolute, or as good as that */
    bool directory;
    const char *ext;
    unsigned attempt; /* the first to try; the one that worked */
};

static int publish(struct target *target, const struct report *r, const char *buf, size_t n)
{
    char name[2 * CFG_PATH_BYTES + 128];
    char temp[sizeof name + 16];
    struct cfg_text t = cfg_text_in(temp, sizeof temp);
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY;
    long fd;
    int ret;

    if (n == 0 ||
        !report_name(name, sizeof name, target->path, target->directory, r, target->ext, 0))
        return -ENAMETOOLONG;
    cfg_text_add(&t, name);
    cfg_text_add(&t, ".");
    cfg_text_number(&t, r->pid);
    cfg_text_add(&t, ".tmp");
    fd = rl_raw(SYS_openat, AT_FDCWD, temp, flags, 0644);
    if (fd == -EEXIST) { /* left by a killed process that had our number */
        rl_raw(SYS_unlinkat, AT_FDCWD, temp, 0);
        fd = rl_raw(SYS_openat, AT_FDCWD, temp, flags, 0644);
    }
    if (fd < 0)
        return (int)fd;
    ret = write_all((int)fd, buf, n);
    if (rl_raw(SYS_close, fd) < 0 && ret == 0)
        ret = -EIO; /* NFS tells a full disk here */
    while (ret == 0) {
        ret = move(temp, name);
        if (ret != -EEXIST || ++target->attempt == ATTEMPTS)
            break;
        report_name(name, sizeof name, target->path, target->directory, r, target->ext,
                    target->attempt);
        ret = 0;
    }
    if (ret != 0)
        rl_raw(SYS_unlinkat, AT_FDCWD, temp, 0);
    return ret;
}

/* S_IFMT bits, 0 if there is nothing. */
static unsigned type_of(const char *path)
{
    struct statx stx;

    return rl_raw(SYS_statx, AT_FDCWD, path, 0, STATX_TYPE, &stx) == 0 ? stx.stx_mode & S_IFMT : 0;
}

struct report_extra report_extra;

struct work {
    struct report report;
    size_t room;
    char out[]; /* of that many bytes */
};

static int write_report(struct work *w, const char *path)
{
    size_t len = strlen(path);
    unsigned type = type_of(path);
    struct target target = {.path = path, .directory = type == S_IFDIR, .ext = "json"};
    bool text = !target.directory && report_wants_text(path);
    int ret;

    if (type != 0 && type != S_IFDIR && type != S_IFREG)
        return -EEXIST; /* a device or FIFO */
    if (type == 0 && path[len - 1] == '/')
        return -ENOENT;
    ret = publish(&target, &w->report, w->out,
                  text ? report_text(&w->report, w->out, w->room)
                       : report_json(&w->report, w->out, w->room));
    if (ret == 0 && target.directory) {
        target.ext = "txt";
        ret = publish(&target, &w->report, w->out, report_text(&w->report, w->out, w->room));
    }
    return ret;
}

static bool told; /* that there will be no report */

static void complain(const char *path, int error)
{
    if (!told)
        log_line(CFG_LOG_OFF, LOG_S("no report in "), LOG_S(path), LOG_S(": "), LOG_ERRNO(error),
                 LOG_S("; set report = an existing directory you can write to, or a file in one."));
    told = true;
}

static bool report_path(const struct settings *s, const char *cwd, char *buf, size_t n)
{
    struct cfg_text t = cfg_text_in(buf, n);

    if (s->report_path[0] == '\0')
        return false;
    if (s->report_path[0] != '/' && cwd != NULL && cwd[0] == '/') {
        cfg_text_add(&t, cwd);
        cfg_text_add(&t, "/");
    }
    cfg_text_add(&t, s->report_path);
    return true;
}

void report_start(const struct settings *s, const char *cwd)
{
    char path[2 * CFG_PATH_BYTES], parent[2 * CFG_PATH_BYTES];
    struct cfg_text t = cfg_text_in(parent, sizeof parent);
    const char *slash;
    long ret;

    if (!report_path(s, cwd, path, sizeof path))
        return;
    slash = strrchr(path, '/');
    if (type_of(path) == S_IFDIR)
        cfg_text_add(&t, path);
    else if (slash != NULL)
        cfg_text_bytes(&t, path, (size_t)(slash - path) + 1);
    else
        cfg_text_add(&t, ".");
    ret = rl_raw(SYS_faccessat, AT_FDCWD, parent, W_OK | X_OK);
    if (ret != 0)
        complain(path, (int)-ret);
}

void report_write(const struct stats_page *page, const struct settings *s, const char *cwd)
{
    char path[2 * CFG_PATH_BYTES];
    size_t room = REPORT_JSON_BYTES;
    int ret = -ENOMEM;
    long at;

    if (!report_path(s, cwd, path, sizeof path))
        return;
    if (report_extra.prepare != NULL) {
        report_extra.prepare();
        room += report_extra.bytes();
    }
    at = rl_raw(SYS_mmap, NULL, sizeof(struct work) + room, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at > 0 || at < -4095) {
        struct work *w = (struct work *)at;

        w->room = room;
        gather(&w->report, page, s);
        ret = write_report(w, path);
        rl_raw(SYS_munmap, w, sizeof *w + room);
    }
    if (ret != 0)
        complain(path, -ret);
}
