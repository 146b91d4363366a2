/* SPDX-License-Identifier: MIT */
/*
 * elide DIR: truncations that change nothing, and some that do, each told in one line: result,
 * errno, size, blocks, mode, which times moved, what a watcher heard. What a run with the shim
 * prints must be what one without it prints. The count of elided ones goes to stderr, last:
 * "elided N late N".
 *
 * Each case says itself that the file system is known by then (the first truncation of a second is
 * always the kernel's), so a run with truncate = elide has a number to be held to.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "../../include/rlshim/control.h"

#define TICK_US 12000 /* longer than a tick of the kernel's coarse clock */

static struct stat before;
static int watch_fd = -1;
static uint64_t elided_before;
static unsigned elided; /* cases, not what learn() does between them */

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static int moved(const struct timespec *a, const struct timespec *b)
{
    if (b->tv_sec != a->tv_sec)
        return b->tv_sec > a->tv_sec ? 1 : -1;
    return b->tv_nsec > a->tv_nsec ? 1 : b->tv_nsec < a->tv_nsec ? -1 : 0;
}

static void look_away(void)
{
    char buf[4096];

    while (read(watch_fd, buf, sizeof buf) > 0)
        ;
}

/* Kernels before 6.8 tell of an open when it is over, so after the truncation in it; with the shim
 * the truncation comes after the open. There only what was heard is compared, not in what order. */
static int in_order(void)
{
    static int major, minor;
    struct utsname name;

    if (major == 0 && (uname(&name) != 0 || sscanf(name.release, "%d.%d", &major, &minor) != 2))
        return 0;
    return major > 6 || (major == 6 && minor >= 8);
}

/* What was heard, one letter each. */
static const char *heard(void)
{
    static char letters[64];
    char buf[4096] __attribute__((aligned(8)));
    uint32_t set = 0;
    size_t len = 0;
    ssize_t n;

    while ((n = read(watch_fd, buf, sizeof buf)) > 0)
        for (char *p = buf; p < buf + n;) {
            struct inotify_event *e = (struct inotify_event *)p;
            char letter = e->mask & IN_MODIFY ? 'm' : e->mask & IN_ATTRIB ? 'a' : 'o';

            if ((in_order() || (set & e->mask) == 0) && len < sizeof letters - 1)
                letters[len++] = letter;
            set |= e->mask;
            p += sizeof *e + e->len;
        }
    letters[len] = '\0';
    if (!in_order())
        snprintf(letters, sizeof letters, "%s%s%s", set & IN_OPEN ? "o" : "",
                 set & IN_MODIFY ? "m" : "", set & IN_ATTRIB ? "a" : "");
    return letters;
}

static void begin(const char *path)
{
    if (stat(path, &before) != 0)
        memset(&before, 0, sizeof before);
    usleep(TICK_US);
    look_away();
    elided_before = rl_counter("truncate_elided");
}

static void tell(const char *what, const char *path, long result, int error)
{
    const char *events = heard();
    struct stat st = {0};
    int there = stat(path, &st);

    elided += rl_counter("truncate_elided") != elided_before;
    printf(
        "%s: %s errno %d, size %lld blocks %lld mode %o mtime %d ctime %d atime %d same %d "
        "heard %s\n",
        what, result < 0 ? "fails" : "works", result < 0 ? error : 0, (long long)st.st_size,
        (long long)st.st_blocks, st.st_mode, there == 0 ? moved(&before.st_mtim, &st.st_mtim) : 9,
        there == 0 ? moved(&before.st_ctim, &st.st_ctim) : 9,
        there == 0 ? moved(&before.st_atim, &st.st_atim) : 9,
        moved(&before.st_mtim, &st.st_mtim) != 1 || moved(&st.st_mtim, &st.st_ctim) == 0, events);
}

/* The error is the call's: arguments are evaluated in any order. */
#define TELL(what, path, call)                                                                     \
    do {                                                                                           \
        errno = 0;                                                                                 \
        long result_ = (call);                                                                     \
        tell(what, path, result_, errno);                                                          \
    } while (0)

/* A new file of `bytes` bytes. */
static void make(const char *path, size_t bytes, mode_t mode)
{
    static char buf[1 << 20];
    int fd;

    unlink(path);
    memset(buf, 'x', sizeof buf);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || write(fd, buf, bytes) != (ssize_t)bytes || fchmod(fd, mode) != 0 ||
        close(fd) != 0)
        die(path);
}

/* Makes a real truncation, so that the file system is known. */
static void learn(const char *path)
{
    int fd;

    for (int i = 0; i < 2; i++) {
        make(path, 0, 0600);
        if ((fd = open(path, O_WRONLY | O_TRUNC)) < 0 || ftruncate(fd, 0) != 0 || close(fd) != 0)
            die(path);
    }
}

static void open_case(const char *what, const char *path, int flags)
{
    int fd;

    begin(path);
    errno = 0;
    fd = open(path, flags, 0644);
    tell(what, path, fd, errno);
    if (fd >= 0) {
        printf("  flags %x errno after %d number %d position %lld\n", fcntl(fd, F_GETFL),
               fd >= 0 ? errno : 0, fd, (long long)lseek(fd, 0, SEEK_CUR));
        close(fd);
    }
}

static void opens(const char *path, const char *other)
{
    static const struct {
        const char *what;
        int flags;
    } ways[] = {
        {"O_WRONLY", O_WRONLY | O_TRUNC},
        {"O_RDWR", O_RDWR | O_TRUNC | O_CLOEXEC},
        {"O_CREAT", O_RDWR | O_TRUNC | O_CREAT},
        {"O_APPEND", O_WRONLY | O_TRUNC | O_APPEND},
        {"O_RDONLY", O_RDONLY | O_TRUNC},
        {"O_EXCL", O_RDWR | O_TRUNC | O_CREAT | O_EXCL},
        {"O_NOFOLLOW", O_RDWR | O_TRUNC | O_NOFOLLOW},
        {"O_DIRECTORY", O_RDWR | O_TRUNC | O_DIRECTORY},
        {"O_PATH", O_PATH | O_TRUNC},
        {"access mode 3", 3 | O_TRUNC},
    };
    char text[64];

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int bytes = 0; bytes <= 5; bytes += 5) {
            learn(other);
            make(path, (size_t)bytes, 0600);
            snprintf(text, sizeof text, "%s of %d bytes", ways[i].what, bytes);
            open_case(text, path, ways[i].flags);
        }
    unlink(path);
    open_case("a new file", path, O_RDWR | O_CREAT | O_TRUNC);
    unlink(path);
    open_case("no file", path, O_RDWR | O_TRUNC);
    if (symlink(other, path) != 0)
        die(path);
    learn(other);
    open_case("through a link", path, O_WRONLY | O_TRUNC);
    open_case("not through a link", path, O_WRONLY | O_TRUNC | O_NOFOLLOW);
    unlink(path);
    make(path, 0, 0444);
    open_case("read-only for all", path, O_WRONLY | O_TRUNC);
    for (int bits = S_ISUID; bits != 0; bits = bits == S_ISUID ? S_ISGID : 0) {
        make(path, 0, (mode_t)(0755 | bits));
        snprintf(text, sizeof text, "set-id bit %o", bits);
        open_case(text, path, O_WRONLY | O_TRUNC);
    }
    make(path, 0, 0600);
    int held = open(path, O_RDWR);
    if (fallocate(held, FALLOC_FL_KEEP_SIZE, 0, 65536) == 0)
        open_case("blocks but no bytes", path, O_WRONLY | O_TRUNC);
    /* POSIX locks: an open that fails or not drops none. */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (held < 0 || fcntl(held, F_SETLK, &lock) != 0)
        die(path);
    begin(path);
    int second = open(path, O_WRONLY | O_TRUNC);
    tell("with a lock held", path, second, errno);
    if (fork() == 0) {
        lock.l_type = F_WRLCK;
        printf("lock %s\n",
               fcntl(held, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK ? "kept" : "lost");
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    close(second);
    close(held);
    open_case("a directory", "/", O_WRONLY | O_TRUNC);
    open_case("/dev/null", "/dev/null", O_WRONLY | O_TRUNC);
    open_case("/proc", "/proc/self/comm", O_WRONLY | O_TRUNC);
}

static void by_number(const char *path, const char *other)
{
    static const struct {
        const char *what;
        struct open_how how;
    } ways[] = {
        {"openat2", {.flags = O_WRONLY | O_TRUNC}},
        {"openat2 O_CREAT", {.flags = O_RDWR | O_TRUNC | O_CREAT, .mode = 0600}},
        {"openat2 RESOLVE", {.flags = O_WRONLY | O_TRUNC, .resolve = RESOLVE_NO_MAGICLINKS}},
        {"openat2 O_RDONLY", {.flags = O_RDONLY | O_TRUNC}},
        {"openat2 mode without O_CREAT", {.flags = O_WRONLY | O_TRUNC, .mode = 0600}},
        {"openat2 unknown flags", {.flags = O_WRONLY | O_TRUNC | (uint64_t)1 << 60}},
    };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int bytes = 0; bytes <= 5; bytes += 5) {
            struct open_how how = ways[i].how;
            int fd;

            learn(other);
            make(path, (size_t)bytes, 0600);
            begin(path);
            errno = 0;
            fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
            tell(ways[i].what, path, fd, errno);
            printf("  flags %x still %llx\n", fd >= 0 ? fcntl(fd, F_GETFL) : 0,
                   (unsigned long long)how.flags);
            if (fd >= 0)
                close(fd);
        }
    for (size_t size = 8; size <= sizeof ways[0].how; size += sizeof ways[0].how - 8) {
        long r;

        errno = 0;
        r = syscall(SYS_openat2, AT_FDCWD, path, size == 8 ? &ways[0].how : NULL, size);
        printf("openat2, %zu bytes of it: %ld", size, r);
        printf(" errno %d\n", errno);
    }
}

static void others(const char *path, const char *other)
{
    char buf[8] = "";
    FILE *f;
    int fd;

    for (int bytes = 0; bytes <= 5; bytes += 5) {
        static const char *const modes[] = {"w", "w+", "wb", "we", "w+be", "wx", "w,ccs=UTF-8"};

        learn(other);
        make(path, (size_t)bytes, 0600);
        begin(path);
        fd = creat(path, 0600);
        tell("creat", path, fd, errno);
        close(fd);
        for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
            make(path, (size_t)bytes, 0600);
            begin(path);
            errno = 0;
            f = fopen(path, modes[i]);
            tell(modes[i], path, f != NULL ? 0 : -1, errno);
            if (f == NULL)
                continue;
            printf("  flags %x cloexec %d number %d read %zu", fcntl(fileno(f), F_GETFL),
                   fcntl(fileno(f), F_GETFD), fileno(f), fread(buf, 1, 1, f));
            rewind(f);
            printf(" wrote %d", fputs("text", f) >= 0);
            printf(" at %ld", ftell(f));
            printf(" closed %d\n", fclose(f));
        }
    }
}

static void sizes(const char *path, const char *other)
{
    static const size_t bytes[] = {0, 1, 4096, 5000, 8192, 1 << 20};
    char text[64];
    int fd;

    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        learn(other);
        make(path, bytes[i], 0600);
        fd = open(path, O_RDWR);
        snprintf(text, sizeof text, "ftruncate to the %zu there are", bytes[i]);
        begin(path);
        errno = 0;
        TELL(text, path, ftruncate(fd, (off_t)bytes[i]));
        begin(path);
        TELL("the same again", path, ftruncate(fd, (off_t)bytes[i]));
        begin(path);
        TELL("one more", path, ftruncate(fd, (off_t)bytes[i] + 1));
        begin(path);
        TELL("one less", path, ftruncate(fd, (off_t)bytes[i]));
        begin(path);
        TELL("truncate by path", path, truncate(path, (off_t)bytes[i]));
        if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 1 << 20, 1 << 20) == 0) {
            begin(path);
            TELL("with blocks past the end", path, ftruncate(fd, (off_t)bytes[i]));
        }
        begin(path);
        TELL("to a negative size", path, ftruncate(fd, -1));
        fchmod(fd, 06711);
        begin(path);
        TELL("with set-id bits", path, ftruncate(fd, (off_t)bytes[i]));
        close(fd);
        fd = open(path, O_RDONLY);
        begin(path);
        TELL("not open for writing", path, ftruncate(fd, (off_t)bytes[i]));
        close(fd);
    }
    /* A child of vfork that uses the number for a file open for writing. */
    learn(other);
    make(path, 0, 0600);
    fd = open(path, O_RDONLY);
    pid_t child = vfork();
    if (child == 0) {
        close(fd);
        _exit(open(other, O_RDWR | O_CREAT, 0600) != fd);
    }
    waitpid(child, NULL, 0);
    begin(path);
    TELL("not open for writing, but in a child of vfork", path, ftruncate(fd, 0));
    close(fd);
    /* A hole and blocks past the end: as many blocks as if there were neither. */
    make(path, 0, 0600);
    fd = open(path, O_RDWR);
    if (ftruncate(fd, 1 << 20) == 0 && fallocate(fd, FALLOC_FL_KEEP_SIZE, 1 << 20, 1 << 20) == 0) {
        begin(path);
        TELL("a hole, and blocks past the end", path, ftruncate(fd, 1 << 20));
    }
    close(fd);
    fd = memfd_create("x", 0);
    printf("memfd %d %d\n", ftruncate(fd, 0), ftruncate(-1, 0));
    close(fd);
}

static void set_flag(const char *path, int flag)
{
    int fd = open(path, O_RDONLY);

    if (ioctl(fd, FS_IOC_SETFLAGS, &flag) != 0)
        printf("flag %x not had\n", flag);
    close(fd);
}

/* As root: capabilities, flags of the inode, and a caller who does not own the file. */
static void privileged(const char *path, const char *other)
{
    /* vfs_cap_data of revision 2: nothing effective, CAP_NET_RAW permitted. */
    static const uint32_t capability[5] = {0x02000000, 1 << 13, 0, 0, 0};

    learn(other);
    make(path, 0, 0644);
    if (setxattr(path, "security.capability", capability, sizeof capability, 0) == 0) {
        open_case("file capabilities", path, O_WRONLY | O_TRUNC);
        printf("  capabilities are %s\n",
               getxattr(path, "security.capability", NULL, 0) < 0 ? "gone" : "there");
    }
    make(path, 4096, 0644);
    if (setxattr(path, "security.capability", capability, sizeof capability, 0) == 0) {
        int fd = open(path, O_WRONLY);

        begin(path);
        TELL("file capabilities", path, ftruncate(fd, 4096));
        printf("  capabilities are %s\n",
               getxattr(path, "security.capability", NULL, 0) < 0 ? "gone" : "there");
        close(fd);
    }
    make(path, 0, 0644);
    set_flag(path, FS_APPEND_FL);
    open_case("append-only", path, O_WRONLY | O_TRUNC | O_APPEND);
    open_case("append-only", path, O_WRONLY | O_TRUNC);
    set_flag(path, FS_IMMUTABLE_FL);
    open_case("immutable", path, O_WRONLY | O_TRUNC);
    set_flag(path, 0);
    int fd = open(path, O_WRONLY);
    set_flag(path, FS_APPEND_FL);
    begin(path);
    TELL("append-only since", path, ftruncate(fd, 0));
    set_flag(path, 0);
    close(fd);
    make(path, 0, 0666);
    fflush(stdout);
    if (fork() == 0) {
        if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0)
            _exit(1);
        open_case("writable, not owned", path, O_WRONLY | O_TRUNC);
        fd = open(path, O_WRONLY);
        begin(path);
        TELL("writable, not owned", path, ftruncate(fd, 0));
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
}

/* --- in a handler, on the smallest stack that programs give them --- */

#define HANDLER_BYTES 5120
#define GUARD_BYTES   (16 * 4096)

static const char *handler_path, *handler_big;
static int handler_fd, handler_says;

static void on_signal(int sig)
{
    int fd = open(handler_path, O_WRONLY | O_TRUNC);

    (void)sig;
    handler_says = fd >= 0 && close(fd) == 0 && ftruncate(handler_fd, 0) == 0 &&
                   fsync(handler_fd) == 0 && unlink(handler_big) == 0;
}

static void on_a_small_stack(const char *path, const char *other)
{
    size_t bytes = getauxval(AT_MINSIGSTKSZ) + HANDLER_BYTES;
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    char *at = mmap(NULL, GUARD_BYTES + bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = at + GUARD_BYTES, .ss_size = bytes};
    int fd;

    learn(other);
    make(path, 0, 0600);
    make(other, 0, 0600);
    fd = open(other, O_RDWR);
    if (at == MAP_FAILED || mprotect(at + GUARD_BYTES, bytes, PROT_READ | PROT_WRITE) != 0 ||
        sigaltstack(&stack, NULL) != 0 || fd < 0 || fallocate(fd, 0, 0, 8 << 20) != 0 ||
        close(fd) != 0)
        die("a small stack");
    handler_path = path;
    handler_big = other;
    handler_fd = open(path, O_RDWR);
    sigaction(SIGUSR1, &act, NULL);
    begin(path);
    raise(SIGUSR1);
    tell("in a handler on a small stack", path, handler_says - 1, 0);
    close(handler_fd);
}

int main(int argc, char **argv)
{
    char path[512], other[512];

    if (argc != 2 || chmod(argv[1], 0777) != 0)
        return 2;
    snprintf(path, sizeof path, "%s/file", argv[1]);
    snprintf(other, sizeof other, "%s/other", argv[1]);
    watch_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (inotify_add_watch(watch_fd, argv[1], IN_MODIFY | IN_ATTRIB | IN_OPEN) < 0)
        die("inotify");
    opens(path, other);
    by_number(path, other);
    others(path, other);
    sizes(path, other);
    on_a_small_stack(path, other);
    if (geteuid() == 0)
        privileged(path, other);
    /* From here on a mapping could have been written to beyond the end of its file. */
    learn(other);
    make(path, 5000, 0600);
    int fd = open(path, O_RDWR);
    char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        die("mmap");
    p[6000] = 'x';
    begin(path);
    TELL("a page written beyond the end", path, ftruncate(fd, 5000));
    printf("  there is %d\n", p[6000]);
    fprintf(stderr, "elided %u late %llu\n", elided,
            (unsigned long long)rl_counter("truncate_late"));
    return 0;
}
