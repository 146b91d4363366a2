/* SPDX-License-Identifier: MIT */
/* See auditor.h. */
#include "auditor.h"
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void decoy_fill(unsigned char *buf)
{
    pattern_fill(buf, 0, DECOY_BYTES, 77, 0x6465636f79);
}

int auditor_start(const char *self, int arena_fd, const char *decoy_path, pid_t *pid)
{
    int pair[2];
    char arena_text[16], sock_text[16];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return -1;
    snprintf(arena_text, sizeof(arena_text), "%d", arena_fd);
    snprintf(sock_text, sizeof(sock_text), "%d", pair[1]);
    *pid = fork();
    if (*pid < 0)
        return -1;
    if (!*pid) {
        char *argv[] = {(char *)self, "--auditor", arena_text, sock_text, (char *)decoy_path, NULL};
        char *empty[] = {NULL};

        fcntl(pair[1], F_SETFD, 0);
        execve(self, argv, empty);
        _exit(127);
    }
    close(pair[1]);
    return pair[0];
}

int auditor_ask(int sock, const struct ask *q, struct answer *a)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec iov = {(void *)q, sizeof(*q)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (q->how == ASK_SENT) {
        msg.msg_control = control.room;
        msg.msg_controllen = sizeof(control.room);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &q->fd, sizeof(int));
        if (sendmsg(sock, &msg, 0) != (ssize_t)sizeof(*q))
            return -1;
    } else if (send(sock, q, sizeof(*q), 0) != (ssize_t)sizeof(*q)) {
        /* Not sendmsg: passing descriptors is one way of handing a file over, and what does
         * that must not come to the help of the others. */
        return -1;
    }
    if (recv(sock, a, sizeof(*a), 0) != (ssize_t)sizeof(*a))
        return -1;
    errno = a->err;
    return a->err ? -1 : 0;
}

static int hear(int sock, struct ask *q)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {q, sizeof(*q)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.room,
                         .msg_controllen = sizeof(control.room)};

    if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*q))
        return -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

    if (q->how == ASK_SENT && c)
        memcpy(&q->fd, CMSG_DATA(c), sizeof(int));
    return 0;
}

static int open_asked(const struct ask *q)
{
    char proc[64];

    switch (q->how) {
    case ASK_SENT:
        /* Its position is shared with the asker's; only pread is used on it. */
        return q->fd;
    case ASK_BY_NAME:
        return open(q->path, O_RDONLY | O_CLOEXEC);
    default:
        snprintf(proc, sizeof(proc), "/proc/%d/fd/%d", (int)q->pid, q->fd);
        return open(proc, O_RDONLY | O_CLOEXEC);
    }
}

static struct op *new_op(struct arena *ar, enum effect e, int64_t off, int64_t len)
{
    unsigned n = atomic_load(&ar->nops[0]);
    struct op *o = &ar->ops[0][n < TRACE_OPS ? n : TRACE_OPS - 1];

    memset(o, 0, sizeof(*o));
    o->effect = (uint8_t)e;
    o->call = CALLS; /* printed as the auditor's */
    o->off = off;
    o->len = len;
    o->inv = atomic_fetch_add(&ar->ticket, 1);
    return o;
}

static void done(struct arena *ar, struct op *o)
{
    unsigned n = atomic_load(&ar->nops[0]);

    o->res = atomic_fetch_add(&ar->ticket, 1);
    if (n < TRACE_OPS)
        atomic_store(&ar->nops[0], n + 1);
}

static void audit(struct arena *ar, const struct ask *q, struct answer *a, unsigned char *buf)
{
    struct stat st;
    int fd = open_asked(q);

    if (fd < 0) {
        a->err = errno;
        return;
    }
    for (int i = 0; i < q->ranges; i++) {
        struct op *o = new_op(ar, EFFECT_READ, q->off[i], q->len[i]);

        reader_fill(ar, o, fd, buf);
        done(ar, o);
    }
    struct op *o = new_op(ar, EFFECT_SIZE, 0, 0);

    if (fstat(fd, &st)) {
        a->err = errno;
    } else {
        o->off = a->size = st.st_size;
        a->mtime_ns = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
        a->ctime_ns = st.st_ctim.tv_sec * 1000000000ll + st.st_ctim.tv_nsec;
        done(ar, o);
    }
    close(fd);
}

int auditor_main(int arena_fd, int sock, const char *decoy_path)
{
    struct arena *ar = mmap(NULL, sizeof(*ar), PROT_READ | PROT_WRITE, MAP_SHARED, arena_fd, 0);
    unsigned char *buf = aligned_alloc(BLOCK, IO_MAX), *decoy = malloc(DECOY_BYTES);
    int decoy_fd = open(decoy_path, O_RDONLY | O_CLOEXEC);
    struct ask q;

    if (ar == MAP_FAILED || !buf || !decoy || decoy_fd < 0)
        return 1;
    decoy_fill(decoy);
    while (!hear(sock, &q)) {
        struct answer a = {0};

        audit(ar, &q, &a, buf);
        a.decoy_intact =
            pread(decoy_fd, buf, DECOY_BYTES, 0) == DECOY_BYTES && !memcmp(buf, decoy, DECOY_BYTES);
        if (send(sock, &a, sizeof(a), MSG_NOSIGNAL) != (ssize_t)sizeof(a))
            break;
    }
    return 0;
}
