// SPDX-License-Identifier: MIT
//
// slowfs: a FUSE file system that shows a directory and takes its time. Each look-up, open,
// create and flush costs a set number of milliseconds, so that a test meets the round trips of a
// network file system, or the flush of a slow disk (a loop device on a file of it inherits that),
// on any machine.
//
//   slowfs [options] DIRECTORY MOUNTPOINT
//
//   --lookup-ms N   each look-up of a name
//   --open-ms N     each open of an existing file
//   --create-ms N   each creation of a file
//   --flush-ms N    each fsync, fdatasync and close
//   --fsync-ms N    each fsync and fdatasync only (overrides --flush-ms for them)
//   --cache-s N     seconds that the kernel may trust a name (0: every look-up comes here)
//   --dir-lock      a creation keeps its directory to itself, look-ups and listings share it
//   --counts FILE   file that shows how often each operation came
//   --foreground    stay in the foreground
//
// N may have decimals. The delay comes before the operation takes effect and is slept by the
// server thread without any lock (but --dir-lock's), so that requests wait for themselves only;
// there are as many threads as requests. The counts file is rewritten before the operation is
// answered: who has seen a call return finds it counted.

#define _GNU_SOURCE
#define FUSE_USE_VERSION 312

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "slowfs_node.h"

#define SERVER_THREADS_MAX 256

enum op { OP_LOOKUP, OP_OPEN, OP_CREATE, OP_FSYNC, OP_FLUSH, OP_READ, OP_WRITE, OP_TOTAL };

static const char *const op_names[OP_TOTAL] = {"lookup", "open", "create", "fsync",
                                               "flush",  "read", "write"};

static int64_t delay_ns[OP_TOTAL];
static double cache_s;

static uint64_t counts[OP_TOTAL]; // counts_lock
static int counts_fd = -1;
static pthread_mutex_t counts_lock = PTHREAD_MUTEX_INITIALIZER;

// counts_lock held. Fixed width, so that each text covers the one before it.
static void counts_write(void)
{
    char text[OP_TOTAL * 32];
    int len = 0;

    for (int i = 0; i < OP_TOTAL; i++)
        len += snprintf(text + len, sizeof(text) - (size_t)len, "%-6s %12llu\n", op_names[i],
                        (unsigned long long)counts[i]);
    if (pwrite(counts_fd, text, (size_t)len, 0) != len)
        fprintf(stderr, "slowfs: cannot write the counts: %s\n", strerror(errno));
}

static void count(enum op op)
{
    if (counts_fd < 0)
        return;
    pthread_mutex_lock(&counts_lock);
    counts[op]++;
    counts_write();
    pthread_mutex_unlock(&counts_lock);
}

static void take_time(enum op op)
{
    struct timespec t = {delay_ns[op] / 1000000000, delay_ns[op] % 1000000000};

    if (delay_ns[op] > 0)
        while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
            ;
    count(op);
}

static void reply_node(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param e;
    int err = node_find(parent, name, &e);

    e.attr_timeout = e.entry_timeout = cache_s;
    if (err)
        fuse_reply_err(req, err);
    else if (fuse_reply_entry(req, &e) != 0)
        node_forget(e.ino, 1); // the caller was interrupted: the kernel never got it
}

// A new object belongs to the caller, not to the server. The descriptor given is of the parent.
static void give_to_caller(fuse_req_t req, int dir_fd, const char *name)
{
    const struct fuse_ctx *c = fuse_req_ctx(req);

    if (geteuid() == 0 && (c->uid != 0 || c->gid != 0))
        (void)!fchownat(dir_fd, name, c->uid, c->gid, AT_SYMLINK_NOFOLLOW);
}

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    names_enter(node_of(parent), false);
    take_time(OP_LOOKUP);
    reply_node(req, parent, name);
    names_leave(node_of(parent));
}

static void do_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups)
{
    node_forget(ino, lookups);
    fuse_reply_none(req);
}

static void do_forget_multi(fuse_req_t req, size_t total, struct fuse_forget_data *f)
{
    for (size_t i = 0; i < total; i++)
        node_forget(f[i].ino, f[i].nlookup);
    fuse_reply_none(req);
}

static void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct stat st;

    (void)fi;
    if (fstatat(node_of(ino)->fd, "", &st, AT_EMPTY_PATH) != 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_attr(req, &st, cache_s);
}

static int set_size(const struct node *n, off_t size, struct fuse_file_info *fi)
{
    int fd, err = 0;

    if (fi)
        return ftruncate((int)fi->fh, size) != 0 ? errno : 0;
    fd = reopen(n, O_WRONLY);
    if (fd < 0)
        return errno;
    if (ftruncate(fd, size) != 0)
        err = errno;
    close(fd);
    return err;
}

static struct timespec time_to_set(int to_set, int given, int now, struct timespec t)
{
    if (to_set & now)
        t.tv_nsec = UTIME_NOW;
    else if (!(to_set & given))
        t.tv_nsec = UTIME_OMIT;
    return t;
}

static void do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *want, int to_set,
                       struct fuse_file_info *fi)
{
    const struct node *n = node_of(ino);
    char path[40];
    int err = 0;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", n->fd);
    if (to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) {
        uid_t uid = to_set & FUSE_SET_ATTR_UID ? want->st_uid : (uid_t)-1;
        gid_t gid = to_set & FUSE_SET_ATTR_GID ? want->st_gid : (gid_t)-1;
        if (fchownat(n->fd, "", uid, gid, AT_EMPTY_PATH) != 0)
            err = errno;
    }
    if (!err && to_set & FUSE_SET_ATTR_MODE && chmod(path, want->st_mode) != 0)
        err = errno;
    if (!err && to_set & FUSE_SET_ATTR_SIZE)
        err = set_size(n, want->st_size, fi);
    if (!err && to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME)) {
        struct timespec t[2] = {
            time_to_set(to_set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW, want->st_atim),
            time_to_set(to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW, want->st_mtim)};
        if (utimensat(AT_FDCWD, path, t, 0) != 0)
            err = errno;
    }
    if (err)
        fuse_reply_err(req, err);
    else
        do_getattr(req, ino, fi);
}

// The kernel gives offsets (so no O_APPEND) and unaligned buffers (so no O_DIRECT).
static int server_flags(int flags)
{
    return flags & ~(O_NOFOLLOW | O_APPEND | O_DIRECT);
}

static void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    int fd;

    take_time(OP_OPEN);
    fd = reopen(node_of(ino), server_flags(fi->flags) & ~(O_CREAT | O_EXCL));
    if (fd < 0) {
        fuse_reply_err(req, errno);
        return;
    }
    fi->fh = (uint64_t)fd;
    if (fuse_reply_open(req, fi) != 0)
        close(fd);
}

static void create_node(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                        struct fuse_file_info *fi)
{
    struct fuse_entry_param e;
    int fd, err, dir_fd = node_of(parent)->fd;

    take_time(OP_CREATE);
    fd = openat(dir_fd, name, server_flags(fi->flags) | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0) {
        fuse_reply_err(req, errno);
        return;
    }
    give_to_caller(req, dir_fd, name);
    err = node_find(parent, name, &e);
    e.attr_timeout = e.entry_timeout = cache_s;
    if (err) {
        close(fd);
        fuse_reply_err(req, err);
        return;
    }
    fi->fh = (uint64_t)fd;
    if (fuse_reply_create(req, &e, fi) != 0) {
        close(fd);
        node_forget(e.ino, 1);
    }
}

static void do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                      struct fuse_file_info *fi)
{
    names_enter(node_of(parent), true);
    create_node(req, parent, name, mode, fi);
    names_leave(node_of(parent));
}

static void do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    struct fuse_bufvec buf = FUSE_BUFVEC_INIT(size);

    (void)ino;
    count(OP_READ);
    buf.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
    buf.buf[0].fd = (int)fi->fh;
    buf.buf[0].pos = off;
    fuse_reply_data(req, &buf, 0);
}

static void do_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *in, off_t off,
                         struct fuse_file_info *fi)
{
    struct fuse_bufvec out = FUSE_BUFVEC_INIT(fuse_buf_size(in));
    ssize_t done;

    (void)ino;
    out.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
    out.buf[0].fd = (int)fi->fh;
    out.buf[0].pos = off;
    done = fuse_buf_copy(&out, in, 0);
    count(OP_WRITE);
    if (done < 0)
        fuse_reply_err(req, (int)-done);
    else
        fuse_reply_write(req, (size_t)done);
}

static void do_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    (void)fi;
    take_time(OP_FLUSH);
    fuse_reply_err(req, 0);
}

static void do_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    int rc;

    (void)ino;
    take_time(OP_FSYNC);
    rc = datasync ? fdatasync((int)fi->fh) : fsync((int)fi->fh);
    fuse_reply_err(req, rc == 0 ? 0 : errno);
}

static void do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    close((int)fi->fh);
    fuse_reply_err(req, 0);
}

static void do_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
                         struct fuse_file_info *fi)
{
    (void)ino;
    fuse_reply_err(req, fallocate((int)fi->fh, mode, off, len) == 0 ? 0 : errno);
}

static void do_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
                     struct fuse_file_info *fi)
{
    off_t at = lseek((int)fi->fh, off, whence);

    (void)ino;
    if (at < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_lseek(req, at);
}

static void do_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    int fd = reopen(node_of(ino), O_RDONLY | O_DIRECTORY);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (!dir) {
        int err = errno;
        if (fd >= 0)
            close(fd);
        fuse_reply_err(req, err);
        return;
    }
    fi->fh = (uintptr_t)dir;
    if (fuse_reply_open(req, fi) != 0)
        closedir(dir);
}

static void do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                       struct fuse_file_info *fi)
{
    DIR *dir = (DIR *)(uintptr_t)fi->fh;
    char *buf = malloc(size);
    size_t used = 0;
    struct dirent *d;

    if (!buf) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    names_enter(node_of(ino), false);
    seekdir(dir, off);
    while ((d = readdir(dir)) != NULL) {
        struct stat st = {.st_ino = d->d_ino, .st_mode = (mode_t)(d->d_type << 12)};
        size_t need = fuse_add_direntry(req, buf + used, size - used, d->d_name, &st, d->d_off);
        if (need > size - used)
            break;
        used += need;
    }
    names_leave(node_of(ino));
    fuse_reply_buf(req, buf, used);
    free(buf);
}

static void do_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    closedir((DIR *)(uintptr_t)fi->fh);
    fuse_reply_err(req, 0);
}

static void do_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    (void)ino;
    (void)datasync;
    take_time(OP_FSYNC);
    fuse_reply_err(req, fsync(dirfd((DIR *)(uintptr_t)fi->fh)) == 0 ? 0 : errno);
}

static void reply_made(fuse_req_t req, int rc, fuse_ino_t parent, const char *name)
{
    if (rc != 0) {
        fuse_reply_err(req, errno);
        return;
    }
    give_to_caller(req, node_of(parent)->fd, name);
    reply_node(req, parent, name);
}

static void do_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    reply_made(req, mknodat(node_of(parent)->fd, name, mode, rdev), parent, name);
}

static void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    reply_made(req, mkdirat(node_of(parent)->fd, name, mode), parent, name);
}

static void do_symlink(fuse_req_t req, const char *to, fuse_ino_t parent, const char *name)
{
    reply_made(req, symlinkat(to, node_of(parent)->fd, name), parent, name);
}

static void do_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    char path[40];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", node_of(ino)->fd);
    if (linkat(AT_FDCWD, path, node_of(parent)->fd, name, AT_SYMLINK_FOLLOW) != 0)
        fuse_reply_err(req, errno);
    else
        reply_node(req, parent, name);
}

static void do_readlink(fuse_req_t req, fuse_ino_t ino)
{
    char to[4097];
    ssize_t len = readlinkat(node_of(ino)->fd, "", to, sizeof(to) - 1);

    if (len < 0) {
        fuse_reply_err(req, errno);
        return;
    }
    to[len] = '\0';
    fuse_reply_readlink(req, to);
}

static void do_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    fuse_reply_err(req, unlinkat(node_of(parent)->fd, name, 0) == 0 ? 0 : errno);
}

static void do_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    fuse_reply_err(req, unlinkat(node_of(parent)->fd, name, AT_REMOVEDIR) == 0 ? 0 : errno);
}

static void do_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                      const char *new_name, unsigned flags)
{
    int rc = renameat2(node_of(parent)->fd, name, node_of(new_parent)->fd, new_name, flags);

    fuse_reply_err(req, rc == 0 ? 0 : errno);
}

static void do_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct statvfs st;

    if (fstatvfs(node_of(ino)->fd, &st) != 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_statfs(req, &st);
}

static const struct fuse_lowlevel_ops ops = {
    .lookup = do_lookup,
    .forget = do_forget,
    .forget_multi = do_forget_multi,
    .getattr = do_getattr,
    .setattr = do_setattr,
    .readlink = do_readlink,
    .mknod = do_mknod,
    .mkdir = do_mkdir,
    .unlink = do_unlink,
    .rmdir = do_rmdir,
    .symlink = do_symlink,
    .rename = do_rename,
    .link = do_link,
    .open = do_open,
    .create = do_create,
    .read = do_read,
    .write_buf = do_write_buf,
    .flush = do_flush,
    .fsync = do_fsync,
    .release = do_release,
    .opendir = do_opendir,
    .readdir = do_readdir,
    .releasedir = do_releasedir,
    .fsyncdir = do_fsyncdir,
    .statfs = do_statfs,
    .fallocate = do_fallocate,
    .lseek = do_lseek,
};

static double number_of(const char *option, const char *text)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end != '\0' || !(v >= 0 && v <= 3600e3)) {
        fprintf(stderr, "slowfs: --%s wants a number from 0 to 3600000, not \"%s\"\n", option,
                text);
        exit(2);
    }
    return v;
}

static void counts_open(const char *path)
{
    counts_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (counts_fd < 0) {
        fprintf(stderr, "slowfs: cannot write %s: %s\n", path, strerror(errno));
        exit(1);
    }
}

// Reads the options; true: stay in the foreground.
static bool parse(int argc, char **argv)
{
    // The first ones stand in the order of enum op.
    static const struct option longs[] = {
        {"lookup-ms", 1, NULL, OP_LOOKUP}, {"open-ms", 1, NULL, OP_OPEN},
        {"create-ms", 1, NULL, OP_CREATE}, {"fsync-ms", 1, NULL, OP_FSYNC},
        {"flush-ms", 1, NULL, OP_FLUSH},   {"cache-s", 1, NULL, 'k'},
        {"dir-lock", 0, NULL, 'L'},        {"counts", 1, NULL, 'n'},
        {"foreground", 0, NULL, 'F'},      {NULL, 0, NULL, 0}};
    bool foreground = false, fsync_given = false;
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (c == 'k')
            cache_s = number_of("cache-s", optarg);
        else if (c == 'n')
            counts_open(optarg);
        else if (c == 'F')
            foreground = true;
        else if (c <= OP_FLUSH)
            delay_ns[c] = (int64_t)(number_of(longs[c].name, optarg) * 1e6);
        else if (c != 'L')
            exit(2);
        fsync_given |= c == OP_FSYNC;
        dir_lock |= c == 'L';
    }
    if (!fsync_given)
        delay_ns[OP_FSYNC] = delay_ns[OP_FLUSH];
    if (argc - optind != 2) {
        fprintf(stderr, "usage: slowfs [options] DIRECTORY MOUNTPOINT\n");
        exit(2);
    }
    return foreground;
}

int main(int argc, char **argv)
{
    bool foreground = parse(argc, argv);
    char *names[] = {argv[0], "-o", NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, names);
    struct fuse_loop_config *loop;
    struct fuse_session *se;
    struct rlimit files;
    int rc = 1;

    // Another user may only look in where the server is root's.
    names[2] = geteuid() == 0 ? "default_permissions,allow_other,fsname=slowfs,subtype=slowfs"
                              : "default_permissions,fsname=slowfs,subtype=slowfs";
    // One descriptor a node, one an open file.
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    root.fd = open(argv[optind], O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root.fd < 0) {
        fprintf(stderr, "slowfs: cannot open %s: %s\n", argv[optind], strerror(errno));
        return 1;
    }
    names_init(&root);
    umask(0); // the kernel has applied the caller's already
    if (counts_fd >= 0)
        counts_write();

    se = fuse_session_new(&args, &ops, sizeof(ops), NULL);
    if (!se)
        return 1;
    if (fuse_set_signal_handlers(se) == 0 && fuse_session_mount(se, argv[optind + 1]) == 0) {
        fuse_daemonize(foreground);
        loop = fuse_loop_cfg_create();
        // Fewer threads than requests would queue them, and the delays would add up.
        fuse_loop_cfg_set_max_threads(loop, SERVER_THREADS_MAX);
        fuse_loop_cfg_set_idle_threads(loop, SERVER_THREADS_MAX);
        rc = fuse_session_loop_mt(se, loop) == 0 ? 0 : 1;
        fuse_loop_cfg_destroy(loop);
        fuse_session_unmount(se);
    }
    fuse_remove_signal_handlers(se);
    fuse_session_destroy(se);
    return rc;
}
