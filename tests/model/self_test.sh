#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 600
#
# Can the model fail? A small deferring library, right in itself, is built with one of its settle
# points left out at a time; the model must find nothing in the right one and something in every
# other. The library queues punches, applies them 2 ms later, and settles before anything else.
#
# MODEL: the program; CC: the compiler. Exit: 0 passed, 1 failed, 77 cannot run here.
set -u

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
limit_s=${SELF_TEST_SECONDS:-25}

model=${MODEL:-${BUILD:-$top/build}/tests/model/model}
if [ ! -x "$model" ]; then
    echo "SKIP: $model is not built; run make first, or set MODEL"
    exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/model-self.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/dir"

cat >"$work/toy.c" <<'TOY'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* TOY_FORGETS names the one thing this library gets wrong. */
static const char *forgets = "";
static pthread_rwlock_t gate = PTHREAD_RWLOCK_INITIALIZER; /* writers: queueing and applying */
static struct { int fd; off_t off, len; } queue[256];
static int queued, forks, children;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
static int forgot(const char *what) { return !strcmp(forgets, what); }

/* Handlers make calls of their own, which must not meet the gate of the call that they are in. */
static __thread sigset_t mask;
static void shut(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_rwlock_wrlock(&gate);
    mask = before;
}
static void unshut(void)
{
    sigset_t before = mask;
    pthread_rwlock_unlock(&gate);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void apply(void)
{
    static __typeof__(&fallocate) real;
    if (!real)
        real = REAL(fallocate);
    for (int i = 0; i < queued; i++)
        real(queue[i].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, queue[i].off, queue[i].len);
    queued = 0;
}

static void settle(const char *who)
{
    if (forgot(who))
        return;
    shut();
    apply();
    unshut();
}

static void *worker(void *arg)
{
    for (;;) {
        struct timespec t = {0, 2000000};
        nanosleep(&t, NULL);
        settle("worker");
    }
    return arg;
}

static void start(void)
{
    pthread_t t;
    pthread_create(&t, NULL, worker, NULL);
}

/* Its parent uses the file too: a child never queues. */
static void in_child(void)
{
    gate = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
    queued = 0;
    children = !forgot("child");
    once = (pthread_once_t)PTHREAD_ONCE_INIT;
}

__attribute__((constructor)) static void init(void)
{
    if (getenv("TOY_FORGETS"))
        forgets = getenv("TOY_FORGETS");
    pthread_atfork(NULL, NULL, in_child);
}

int fallocate(int fd, int mode, off_t off, off_t len)
{
    if (mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
        settle("space");
        return REAL(fallocate)(fd, mode, off, len);
    }
    pthread_once(&once, start);
    shut();
    if (queued == 256)
        apply();
    if (children) {
        int ret = REAL(fallocate)(fd, mode, off, len);
        unshut();
        return ret;
    }
    queue[queued].fd = fd;
    queue[queued].off = off;
    queue[queued++].len = len + forgot("length");
    unshut();
    return 0;
}

ssize_t pread(int fd, void *b, size_t n, off_t o) { settle("read"); return REAL(pread)(fd, b, n, o); }
ssize_t read(int fd, void *b, size_t n) { settle("read"); return REAL(read)(fd, b, n); }
ssize_t preadv(int fd, const struct iovec *v, int n, off_t o) { settle("read"); return REAL(preadv)(fd, v, n, o); }
ssize_t readv(int fd, const struct iovec *v, int n) { settle("read"); return REAL(readv)(fd, v, n); }
ssize_t pwrite(int fd, const void *b, size_t n, off_t o)
{
    settle("write");
    if (forgot("piece") && n > 16384) { /* pieces, the second from the buffer's beginning */
        REAL(pwrite)(fd, b, 8192, o);
        REAL(pwrite)(fd, b, n - 8192, o + 8192);
        return (ssize_t)n;
    }
    return REAL(pwrite)(fd, b, n, o);
}
ssize_t write(int fd, const void *b, size_t n)
{
    settle("write");
    if (forgot("whole") && n > 4096) { /* others may write between the two */
        REAL(write)(fd, b, 4096);
        return 4096 + REAL(write)(fd, (const char *)b + 4096, n - 4096);
    }
    if (forgot("position")) {
        off_t at = lseek(fd, 0, SEEK_CUR);
        return at < 0 ? REAL(write)(fd, b, n) : REAL(pwrite)(fd, b, n, at);
    }
    return REAL(write)(fd, b, n);
}
ssize_t pwritev(int fd, const struct iovec *v, int n, off_t o) { settle("write"); return REAL(pwritev)(fd, v, n, o); }
ssize_t preadv2(int fd, const struct iovec *v, int n, off_t o, int f) { settle("read"); return REAL(preadv2)(fd, v, n, o, f); }
ssize_t pwritev2(int fd, const struct iovec *v, int n, off_t o, int f) { settle("write"); return REAL(pwritev2)(fd, v, n, o, f); }
int truncate(const char *p, off_t n) { settle("space"); return REAL(truncate)(p, n); }
int open(const char *p, int flags, ...)
{
    va_list ap;
    mode_t mode;
    va_start(ap, flags);
    mode = va_arg(ap, mode_t);
    va_end(ap);
    if (flags & O_TRUNC)
        settle("space");
    return REAL(open)(p, flags, mode);
}
int ftruncate(int fd, off_t n) { settle("space"); return REAL(ftruncate)(fd, n); }
int fstat(int fd, struct stat *s) { settle("stat"); return REAL(fstat)(fd, s); }
int fstatat(int d, const char *p, struct stat *s, int f) { settle("stat"); return REAL(fstatat)(d, p, s, f); }
int statx(int d, const char *p, int f, unsigned m, struct statx *s) { settle("stat"); return REAL(statx)(d, p, f, m, s); }
int fsync(int fd) { settle("sync"); return REAL(fsync)(fd); }
int fdatasync(int fd) { settle("sync"); return REAL(fdatasync)(fd); }
off_t lseek(int fd, off_t o, int w) { if (w > SEEK_END) settle("seek"); return REAL(lseek)(fd, o, w); }
int flock(int fd, int op) { settle("lock"); return REAL(flock)(fd, op); }
int lockf(int fd, int op, off_t n) { settle("lock"); return REAL(lockf)(fd, op, n); }
void *mmap(void *a, size_t n, int p, int f, int fd, off_t o) { if (fd >= 0) settle("mmap"); return REAL(mmap)(a, n, p, f, fd, o); }
int fchmod(int fd, mode_t m) { settle("chmod"); return REAL(fchmod)(fd, m); }
int futimens(int fd, const struct timespec *t) { settle("times"); return REAL(futimens)(fd, t); }
ssize_t sendmsg(int fd, const struct msghdr *m, int f) { settle("send"); return REAL(sendmsg)(fd, m, f); }
int close(int fd) { settle("close"); return REAL(close)(fd); }
int dup2(int a, int b) { settle("close"); return REAL(dup2)(a, b); }
int dup3(int a, int b, int f) { settle("close"); return REAL(dup3)(a, b, f); }
/* While a child may use the file, nothing is queued. The first fork starts the auditor, which is
 * no such child. */
pid_t fork(void)
{
    shut();
    if (!forgot("fork"))
        apply();
    pid_t pid = REAL(fork)();
    if (pid == 0) { /* in_child has made a new gate */
        sigset_t before = mask;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return 0;
    }
    children += pid > 0 && forks++ > 0 && !forgot("fork");
    unshut();
    return pid;
}
pid_t waitpid(pid_t p, int *status, int options)
{
    pid_t pid = REAL(waitpid)(p, status, options);
    shut();
    children -= pid > 0 && children > 0;
    unshut();
    return pid;
}
pid_t vfork(void) { return fork(); }
int fcntl(int fd, int cmd, ...)
{
    va_list ap;
    void *arg;
    va_start(ap, cmd);
    arg = va_arg(ap, void *);
    va_end(ap);
    if (cmd == F_SETLK)
        settle("lock");
    return REAL(fcntl)(fd, cmd, arg);
}
TOY
if ! "${CC:-cc}" -shared -fPIC -O1 -w "$work/toy.c" -o "$work/toy.so" -ldl -lpthread; then
    echo "SKIP: ${CC:-cc} cannot build the library to test with"
    exit 77
fi

# Files in memory, so that the time goes into histories.
[ -d /dev/shm ] && [ -w /dev/shm ] && dir=$(mktemp -d /dev/shm/model-self.XXXXXX) || dir=$work/dir
trap 'rm -rf "$work" "$dir"' EXIT

ops=pread,preadv,read,pwrite,pwritev,write,punch,zero,truncate,stat,reopen,decoy,fork,pause

# try FORGETS SECONDS [ARGS...]: the model's exit status
try() {
    local forgets=$1 secs=$2
    shift 2
    TOY_FORGETS=$forgets LD_PRELOAD=$work/toy.so timeout -k 5 $((secs + 90)) "$model" \
        --dir "$dir" --seconds "$secs" --seed 1 --buffered --save "$work" "$@" >"$work/out" 2>&1
}

failed=0
try nothing 3 --ops "$ops"
status=$?
if [ $status -eq 77 ]; then
    cat "$work/out"
    exit 77
elif [ $status -ne 0 ]; then
    echo "FAIL: a right library was found wrong:"
    cat "$work/out"
    exit 1
fi
echo "ok: a right library passes"

caught() {
    local forgets=$1
    shift
    try "$forgets" "$limit_s" "$@"
    if [ $? -eq 1 ] && grep -q DIVERGENCE "$work/out"; then
        echo "ok: a library that forgets '$forgets' is caught:" \
            "$(sed -n 's/.*broken rule: //p' "$work/out" | head -1)"
    else
        echo "FAIL: a library that forgets '$forgets' was not caught within $limit_s s"
        tail -3 "$work/out"
        failed=1
    fi
}

caught read --ops "$ops"
caught write --ops "$ops"
caught close --ops "$ops"
caught fork --ops punch,fork # among calls that all settle, what one forgot is made good by the next
caught child --ops punch,fork,stat
caught stat --ops "punch,stat,pause"
caught length --ops "$ops"
caught piece --ops "$ops"
caught position --ops "$ops"
caught whole --ops stream
# The last phase: each way of handing the file over.
for point in sync seek lock mmap chmod times send close; do
    caught "$point" --ops pwrite,punch,stat
done
exit $failed
