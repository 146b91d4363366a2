/* SPDX-License-Identifier: MIT */
/*
 * call_fd: descriptors end, multiply, and travel.
 *
 * A descriptor is forgotten before the real close, never after: its number may be another file's
 * the moment the kernel is done. If the close then fails, all that is lost is what we knew about
 * it.
 */
#include <linux/close_range.h>
#include <string.h>

#include "call.h"

/* --- close --- */

/* There are files without a name: this may be the last descriptor of one. */
static __attribute__((noinline)) int close_nameless(int fd, int (*close_)(int))
{
    EVICT_HOLD(hold);
    int r;

    evict_begin_close(fd, &hold);
    r = close_(fd);
    evict_end(&hold, r == 0);
    return r;
}

#define CLOSES(name)                                                                               \
    FREQUENT int name(int fd)                                                                      \
    {                                                                                              \
        TIMED_FD(ACT_close, fd);                                                                   \
        WHEN_BUSY(settle_end_fd(fd, WHY_close));                                                   \
        file_forget(fd);                                                                           \
        if (unlikely(rl_load_32(&proc.nameless) != 0))                                             \
            return close_nameless(fd, real.name);                                                  \
        return real.name(fd);                                                                      \
    }
CLOSES(close)
CLOSES(__close)

/* The first few last descriptors among many; the rest are closed as without us. */
#define FEW 8

struct few {
    int n;
    struct evict_hold hold[FEW];
};

static void few_let_go(struct few *few)
{
    while (few->n > 0)
        evict_let_go(&few->hold[--few->n]);
}

static __attribute__((noinline)) void few_begin(struct few *few, unsigned first, unsigned last)
{
    for (int fd = file_next(first, last); fd >= 0 && few->n < FEW;
         fd = file_next((unsigned)fd + 1, last)) {
        evict_begin_close(fd, &few->hold[few->n]);
        few->n += few->hold[few->n].slot != EVICT_NOTHING;
    }
}

static void few_end(struct few *few, bool gone)
{
    while (few->n > 0)
        evict_end(&few->hold[--few->n], gone);
}

#define FEW_HELD(name)                                                                             \
    struct few name __attribute__((cleanup(few_let_go)));                                          \
    name.n = 0

int close_range(unsigned first, unsigned last, int flags)
{
    FEW_HELD(few);
    int r;

    call_enter();
    /* A descriptor table of this thread's own: from now on a number is no longer one file. */
    if ((flags & CLOSE_RANGE_UNSHARE) != 0)
        settle_foreign(WHY_close);
    if ((flags & CLOSE_RANGE_CLOEXEC) == 0 && first <= last) {
        WHEN_BUSY(settle_end_all(WHY_close));
        if (unlikely(rl_load_32(&proc.nameless) != 0))
            few_begin(&few, first, last);
        file_forget_range(first, last);
    }
    r = real.close_range(first, last, flags);
    few_end(&few, r == 0);
    return r;
}

void closefrom(int first)
{
    FEW_HELD(few);
    unsigned from = first > 0 ? (unsigned)first : 0;

    WHEN_BUSY(settle_end_all(WHY_close));
    if (unlikely(rl_load_32(&proc.nameless) != 0))
        few_begin(&few, from, ~0u);
    file_forget_range(from, ~0u);
    real.closefrom(first);
    few_end(&few, true);
}

/* --- dup --- */

int dup(int fd)
{
    call_enter();
    return call_duplicated(fd, real.dup(fd));
}

#define DUPS(name, params, args)                                                                   \
    int name params                                                                                \
    {                                                                                              \
        EVICT_HOLD(hold);                                                                          \
        int r;                                                                                     \
                                                                                                   \
        call_enter();                                                                              \
        if (fd == to) /* closes nothing */                                                         \
            return real.name args;                                                                 \
        WHEN_BUSY(settle_end_fd(to, WHY_dup));                                                     \
        if (unlikely(rl_load_32(&proc.nameless) != 0))                                             \
            evict_begin_close(to, &hold);                                                          \
        file_forget(to);                                                                           \
        r = call_duplicated(fd, real.name args);                                                   \
        if (unlikely(hold.slot != EVICT_NOTHING))                                                  \
            evict_end(&hold, r >= 0);                                                              \
        return r;                                                                                  \
    }
DUPS(dup2, (int fd, int to), (fd, to))
DUPS(__dup2, (int fd, int to), (fd, to))
DUPS(dup3, (int fd, int to, int flags), (fd, to, flags))

/* Makes fd the standard descriptors, and closes it, by calls inside libc. */
int login_tty(int fd)
{
    call_enter();
    WHEN_BUSY(settle_end_all(WHY_dup));
    file_forget_range(0, CALL_STDIO_LAST);
    file_forget(fd);
    return real.login_tty(fd);
}

/* --- fcntl --- */

static void fcntl_settles(int fd, int command, const void *arg)
{
    switch (command) {
    case F_SETLK: /* also taking and converting, see call_sync.c */
    case F_SETLKW:
    case F_OFD_SETLK:
    case F_OFD_SETLKW:
        SETTLE_FD(fd, WHY_unlock);
        break;
    case F_ADD_SEALS: /* the next punch may be refused: it has to go through the kernel again */
        WHEN_BUSY(settle_end_fd(fd, WHY_lease));
        break;
    case F_SETLEASE: /* a keeper has the file open, too */
        call_end_fd(fd, WHY_lease);
        break;
    case F_SETFL: /* O_APPEND and O_DIRECT may change */
        if (((uintptr_t)arg & O_DIRECT) != 0)
            state_direct();
        SETTLE_FD(fd, WHY_lease);
        break;
    default:
        break;
    }
}

/* The commands that wait for others. */
#define TIMED_LOCK(fd, command)                                                                    \
    struct timed timed_ __attribute__((cleanup(timed_over)));                                      \
    timed_.start = 0;                                                                              \
    if (unlikely((state_word() & WORD_TIME) != 0) &&                                               \
        (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||                    \
         command == F_OFD_SETLKW))                                                                 \
    timed_begin(&timed_, ACT_lock, fd, AT_FDCWD, NULL, 0)

/* Whatever follows is one word, if anything: libc's own takes it out the same way. */
#define FCNTLS(name)                                                                               \
    int name(int fd, int command, ...)                                                             \
    {                                                                                              \
        va_list args;                                                                              \
        void *arg;                                                                                 \
        int r;                                                                                     \
                                                                                                   \
        va_start(args, command);                                                                   \
        arg = va_arg(args, void *);                                                                \
        va_end(args);                                                                              \
                                                                                                   \
        TIMED_LOCK(fd, command);                                                                   \
        call_enter();                                                                              \
        fcntl_settles(fd, command, arg);                                                           \
        r = real.name(fd, command, arg);                                                           \
        if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)                                      \
            call_duplicated(fd, r);                                                                \
        return r;                                                                                  \
    }
FCNTLS(fcntl)
FCNTLS(fcntl64)
FCNTLS(__fcntl)

/* --- to and from other processes --- */

/* Up to the first header that the kernel would refuse. */
static void each_passed(const struct msghdr *msg, void (*act)(int fd))
{
    struct msghdr *m = (struct msghdr *)(uintptr_t)msg; /* CMSG_NXTHDR wants it so */
    const unsigned char *end = (const unsigned char *)m->msg_control + m->msg_controllen;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
        const unsigned char *data = CMSG_DATA(c);
        size_t bytes = c->cmsg_len - CMSG_LEN(0);

        if (c->cmsg_len < CMSG_LEN(0) || c->cmsg_len > (size_t)(end - (const unsigned char *)c))
            return;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (int fd; bytes >= sizeof fd; bytes -= sizeof fd, data += sizeof fd) {
            memcpy(&fd, data, sizeof fd);
            act(fd);
        }
    }
}

static void sends(int fd)
{
    call_mark(fd, FILE_PASSED, WHY_pass);
}

static void receives(int fd)
{
    call_received(fd);
}

/* Also the marks are set when idle: they are what evidence is refused for later. */
static void message_goes(const struct msghdr *msg)
{
    if (readable(msg, sizeof *msg) && unlikely(msg->msg_controllen != 0) &&
        readable(msg->msg_control, msg->msg_controllen))
        each_passed(msg, sends);
}

static void message_came(const struct msghdr *msg)
{
    if (unlikely(msg->msg_controllen != 0))
        each_passed(msg, receives);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    call_enter();
    message_goes(msg);
    return real.sendmsg(fd, msg, flags);
}

int sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
    call_enter();
    for (unsigned i = 0; i < n && i < 1024 /* as the kernel */; i++)
        message_goes(&msgs[i].msg_hdr);
    return real.sendmmsg(fd, msgs, n, flags);
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    ssize_t n;

    call_enter();
    n = real.recvmsg(fd, msg, flags);
    if (n >= 0)
        message_came(msg);
    return n;
}

int recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *timeout)
{
    int got;

    call_enter();
    got = real.recvmmsg(fd, msgs, n, flags, timeout);
    for (int i = 0; i < got; i++)
        message_came(&msgs[i].msg_hdr);
    return got;
}

int pidfd_getfd(int pidfd, int fd, unsigned flags)
{
    call_enter();
    return call_received(real.pidfd_getfd(pidfd, fd, flags));
}
