/* SPDX-License-Identifier: MIT */
/*
 * Finding and reading rlshim.conf. Only the first file that exists counts; the order and the rule
 * for ./rlshim.conf are in config.h.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "config_text.h"

/* How much a place is trusted, and what its absence means. */
enum place {
    PLACE_NAMED,  /* RLSHIM_CONF: the user asked for it, so whatever is wrong with it is an error */
    PLACE_HERE,   /* the working directory: anyone may have written it */
    PLACE_SYSTEM, /* the user's or the machine's own configuration directory */
};

enum outcome { NEXT, USED, FAILED };

struct loader {
    struct config *c;
    const struct cfg_io *io;
    uid_t uid;
    char *buf;
    size_t cap;
    struct cfg_error *err;
};

static const char *variable(char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; env && *env; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
            return (*env)[n + 1] ? *env + n + 1 : NULL;
    return NULL;
}

/* strerror is not for us: it may allocate and load message catalogues. */
static void put_errno(struct cfg_text *t, int error)
{
    switch (error) {
    case ENOENT:
        cfg_text_add(t, "there is no such file");
        return;
    case ENOTDIR:
        cfg_text_add(t, "a part of its path is not a directory");
        return;
    case EACCES:
    case EPERM:
        cfg_text_add(t, "permission denied");
        return;
    case ELOOP:
        cfg_text_add(t, "too many symbolic links");
        return;
    case ENAMETOOLONG:
        cfg_text_add(t, "its name is too long");
        return;
    case EMFILE:
    case ENFILE:
        cfg_text_add(t, "too many open files");
        return;
    case EIO:
        cfg_text_add(t, "input/output error");
        return;
    default:
        cfg_text_add(t, "error ");
        cfg_text_number(t, (uint64_t)error);
    }
}

static enum outcome refuse(struct loader *l, const char *path, const char *what, int error,
                           const char *hint)
{
    struct cfg_text file = cfg_text_in(l->err->file, sizeof(l->err->file));
    struct cfg_text reason = cfg_text_in(l->err->reason, sizeof(l->err->reason));
    struct cfg_text advice = cfg_text_in(l->err->hint, sizeof(l->err->hint));

    cfg_text_add(&file, path);
    cfg_text_add(&reason, what);
    if (error)
        put_errno(&reason, error);
    cfg_text_add(&advice, hint);
    l->err->line = 0;
    l->err->key[0] = 0;
    return FAILED;
}

static enum outcome pass_over(struct loader *l, enum cfg_skip why)
{
    l->c->skip = why;
    return NEXT;
}

/*
 * EACCES comes both from a file that is there and unreadable and from a directory that may not be
 * searched (HOME of another user after su). An O_PATH open needs no right to the file itself, so it
 * tells the two apart.
 */
static bool exists_for(struct loader *l, const char *path, bool own)
{
    struct stat st;
    int fd = l->io->open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    bool yes = l->io->fstat(fd, &st) == 0 && (!own || st.st_uid == l->uid);
    l->io->close(fd);
    return yes;
}

static enum outcome cannot_open(struct loader *l, const char *path, enum place place, int error)
{
    static const char hint[] = "correct it, or unset RLSHIM_CONF";

    if (place == PLACE_NAMED)
        return refuse(l, path, "RLSHIM_CONF names it and it cannot be opened: ", error, hint);
    if (error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG)
        return NEXT;
    if (place == PLACE_HERE && error == ELOOP)
        return pass_over(l, CFG_SKIP_LINK);
    if (place == PLACE_HERE && !exists_for(l, path, true))
        return pass_over(l, CFG_SKIP_UNREADABLE);
    if ((error == EACCES || error == EPERM) && !exists_for(l, path, false))
        return NEXT;
    return refuse(l, path, "cannot be opened: ", error, "make it readable, or remove it");
}

static enum outcome read_all(struct loader *l, const char *path, int fd)
{
    static const char hint[] = "check that it is the right file";
    size_t max = l->cap < CFG_FILE_BYTES_MAX ? l->cap : CFG_FILE_BYTES_MAX;
    size_t have = 0;
    char extra;

    for (;;) {
        /* st_size is 0 in /proc and may change under us: only reading on tells where a file ends.
         */
        bool full = have == max;
        ssize_t n = l->io->read(fd, full ? &extra : l->buf + have, full ? 1 : max - have);
        if (n == -EINTR)
            continue;
        if (n < 0)
            return refuse(l, path, "cannot be read: ", (int)-n, "make it readable, or remove it");
        if (n == 0)
            break;
        if (full)
            return refuse(l, path, "is larger than 1 MiB", 0, hint);
        have += (size_t)n;
    }
    /* cfg_parse starts afresh, so what was found out on the way here is put back. */
    enum cfg_skip skip = l->c->skip;
    int rc = cfg_parse(l->c, l->buf, have, path, l->err);
    l->c->skip = skip;
    return rc ? FAILED : USED;
}

static enum outcome try_file(struct loader *l, const char *path, enum place place)
{
    /* O_NONBLOCK: a FIFO opens at once, without a writer; O_NOCTTY: a terminal stays a stranger. */
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    struct stat st;
    /*
     * A link in a directory like /tmp would pass the owner test with any file of the user's as its
     * target, and show lines of it in an error message.
     */
    int fd = l->io->open(path, place == PLACE_HERE ? flags | O_NOFOLLOW : flags);
    if (fd < 0)
        return cannot_open(l, path, place, -fd);

    enum outcome result;
    int rc = l->io->fstat(fd, &st);
    if (rc < 0)
        result = refuse(l, path, "cannot be examined: ", -rc, "make it readable, or remove it");
    else if (place == PLACE_HERE && st.st_uid != l->uid)
        result = pass_over(l, CFG_SKIP_OWNER);
    else if (place == PLACE_HERE && !S_ISREG(st.st_mode))
        result = pass_over(l, CFG_SKIP_NOT_A_FILE);
    else if (place == PLACE_HERE && (st.st_mode & (S_IWGRP | S_IWOTH)))
        result = pass_over(l, CFG_SKIP_WRITABLE);
    else if (!S_ISREG(st.st_mode))
        result = refuse(l, path, S_ISDIR(st.st_mode) ? "is a directory" : "is not a regular file",
                        0, "name a text file");
    else
        result = read_all(l, path, fd);
    l->io->close(fd);
    return result;
}

/* dir + tail, if dir is absolute: the XDG rules say to ignore relative ones. */
static enum outcome try_in(struct loader *l, const char *dir, const char *tail)
{
    char path[CFG_PATH_BYTES];
    struct cfg_text t = cfg_text_in(path, sizeof(path));

    if (!dir || dir[0] != '/' || strlen(dir) + strlen(tail) >= sizeof(path))
        return NEXT;
    cfg_text_add(&t, dir);
    cfg_text_add(&t, tail);
    return try_file(l, path, PLACE_SYSTEM);
}

static enum outcome find(struct loader *l, char *const *env)
{
    const char *named = variable(env, "RLSHIM_CONF");
    const char *xdg = variable(env, "XDG_CONFIG_HOME");
    enum outcome o;

    if (named)
        return strcmp(named, "/dev/null") == 0 ? USED : try_file(l, named, PLACE_NAMED);
    o = try_file(l, "./rlshim.conf", PLACE_HERE);
    if (o == NEXT)
        o = xdg && xdg[0] == '/' ? try_in(l, xdg, "/rlshim.conf")
                                 : try_in(l, variable(env, "HOME"), "/.config/rlshim.conf");
    return o == NEXT ? try_file(l, "/etc/rlshim.conf", PLACE_SYSTEM) : o;
}

int cfg_load(struct config *c, const struct cfg_io *io, char *const *env, uid_t uid, bool secure,
             char *textbuf, size_t textcap, struct cfg_error *err)
{
    struct loader l = {c, io, uid, textbuf, textcap, err};

    cfg_reset(c);
    if (secure) {
        c->off = true;
        return 0;
    }
    if (find(&l, env) == FAILED || cfg_env(c, env, err)) {
        c->off = true;
        return -1;
    }
    return 0;
}
