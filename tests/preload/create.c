/* SPDX-License-Identifier: MIT */
/*
 * create: every kind of open with O_CREAT, one line each, in an empty directory: what came back,
 * errno, and what is there afterwards. create.sh compares the lines with and without the library.
 * As another user (argument 2, a uid) it opens what the first one left in a sticky directory.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void show(const char *what, int fd, int error)
{
    struct stat st = {0};

    if (fd < 0) {
        printf("%-34s fails: %s\n", what, strerrorname_np(error));
        return;
    }
    fstat(fd, &st);
    printf("%-34s fd %d flags %o mode %o size %lld cloexec %d\n", what, fd,
           (unsigned)fcntl(fd, F_GETFL), st.st_mode, (long long)st.st_size, fcntl(fd, F_GETFD));
    close(fd);
}

static void try_open(const char *what, const char *path, int flags, mode_t mode)
{
    errno = 0;
    int fd = open(path, flags, mode);
    int error = errno;

    show(what, fd, error);
    if (fd >= 0 && error != 0)
        printf("%-34s success, and yet errno %d\n", what, error);
}

static void fill(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    if (fd < 0 || write(fd, "0123456789", 10) != 10)
        exit(2);
    close(fd);
}

/* Twice: the second may know from the first that there is something. */
static void try_mkdir(const char *what, const char *path)
{
    for (int i = 0; i < 2; i++) {
        int r;

        errno = 0;
        r = i == 0 ? mkdir(path, 0750) : mkdirat(AT_FDCWD, path, 0750);
        printf("mkdir of %-25s %d %s\n", what, r, strerrorname_np(errno));
    }
}

static void on_alarm(int sig)
{
    (void)sig;
}

static void own(void)
{
    static char longer[300], path[5000];
    FILE *f;
    int fd;

    umask(027);
    memset(longer, 'x', sizeof longer - 1);
    memset(path, 'y', sizeof path - 1);
    for (int round = 0; round < 3; round++) { /* hints of the round before must not matter */
        printf("round %d\n", round);
        fill("file");
        try_open("existing", "file", O_RDWR | O_CREAT, 0666);
        try_open("existing, O_RDONLY", "file", O_RDONLY | O_CREAT, 0666);
        try_open("existing, O_APPEND|O_CLOEXEC", "file", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                 0);
        try_open("existing, O_EXCL", "file", O_RDWR | O_CREAT | O_EXCL, 0666);
        try_open("existing, O_NOFOLLOW", "file", O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
        try_open("existing, access mode 3", "file", O_ACCMODE | O_CREAT, 0666);
        try_open("existing, O_DIRECTORY", "file", O_RDONLY | O_CREAT | O_DIRECTORY, 0666);
        try_open("existing, O_PATH", "file", O_PATH | O_CREAT, 0666);
        try_open("existing, O_NONBLOCK", "file", O_RDWR | O_CREAT | O_NONBLOCK, 0666);
        try_open("existing, O_TRUNC", "file", O_RDWR | O_CREAT | O_TRUNC, 0666);
        fill("file");
        try_open("existing, O_RDONLY|O_TRUNC", "file", O_RDONLY | O_CREAT | O_TRUNC, 0666);
        try_open("trailing slash", "file/", O_RDWR | O_CREAT, 0666);
        try_open("below a file", "file/x", O_RDWR | O_CREAT, 0666);
        try_open("new, mode 666", "new", O_RDWR | O_CREAT, 0666);
        try_open("new, mode 7777", "new2", O_WRONLY | O_CREAT, 07777);
        try_open("new, O_TRUNC", "new3", O_RDWR | O_CREAT | O_TRUNC, 0600);
        try_open("new, read-only", "new4", O_RDONLY | O_CREAT, 0);
        try_open("new, trailing slash", "new5/", O_RDWR | O_CREAT, 0666);
        try_open("O_TMPFILE", ".", O_RDWR | O_TMPFILE, 0600);
        mkdir("dir", 0755);
        try_open("a directory", "dir", O_RDONLY | O_CREAT, 0666);
        try_open("a directory, to write", "dir", O_RDWR | O_CREAT, 0666);
        try_open("the directory itself", ".", O_RDONLY | O_CREAT, 0666);
        symlink("file", "link");
        try_open("a link", "link", O_RDWR | O_CREAT, 0666);
        try_open("a link, O_NOFOLLOW", "link", O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
        symlink("target", "dangling");
        try_open("a dangling link, O_EXCL", "dangling", O_RDWR | O_CREAT | O_EXCL, 0666);
        try_open("a dangling link", "dangling", O_RDWR | O_CREAT, 0666);
        symlink("loop", "loop");
        try_open("a loop", "loop", O_RDWR | O_CREAT, 0666);
        symlink("nowhere/x", "far");
        try_open("a link into nowhere", "far", O_RDWR | O_CREAT, 0666);
        mkfifo("fifo", 0644);
        try_open("a FIFO, O_WRONLY|O_NONBLOCK", "fifo", O_WRONLY | O_CREAT | O_NONBLOCK, 0666);
        try_open("a FIFO, O_RDONLY|O_NONBLOCK", "fifo", O_RDONLY | O_CREAT | O_NONBLOCK, 0666);
        sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm}, NULL);
        ualarm(20000, 0);
        try_open("a FIFO nobody writes to", "fifo", O_RDONLY | O_CREAT, 0666);
        try_open("a device", "/dev/null", O_RDWR | O_CREAT | O_TRUNC, 0666);
        try_open("too long a name", longer, O_RDWR | O_CREAT, 0666);
        try_open("too long a path", path, O_RDWR | O_CREAT, 0666);
        try_open("no path", "", O_RDWR | O_CREAT, 0666);
        try_open("no directory", "none/x", O_RDWR | O_CREAT, 0666);
        try_open("an address that is none", (const char *)8, O_RDWR | O_CREAT, 0666);
        try_open("no address", NULL, O_RDWR | O_CREAT, 0666);
        char *page =
            mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(page + 8192, 4096, PROT_NONE);
        strcpy(page, "file");
        try_open("a page of its own", page, O_RDWR | O_CREAT, 0666);
        mprotect(page, 4096, PROT_NONE);
        try_open("the page, protected since", page, O_RDWR | O_CREAT, 0666);
        munmap(page, 4096);
        try_open("the page, unmapped since", page, O_RDWR | O_CREAT, 0666);
        memset(page + 4096, 'z', 4096);
        try_open("a path that runs off its page", page + 4096 + 4000, O_RDWR | O_CREAT, 0666);
        munmap(page + 4096, 8192);
        errno = 0;
        fd = openat(-7, "file", O_RDWR | O_CREAT, 0666);
        show("a dirfd that is none", fd, errno);
        fd = creat("made", 0640);
        show("creat", fd, errno);
        struct open_how how = {.flags = O_RDWR | O_CREAT, .mode = 0640};
        errno = 0;
        fd = (int)syscall(SYS_openat2, AT_FDCWD, "file", &how, sizeof how);
        show("openat2, existing", fd, errno);
        errno = 0;
        fd = (int)syscall(SYS_openat2, AT_FDCWD, "made-2", &how, sizeof how);
        show("openat2, new", fd, errno);
        how.resolve = RESOLVE_NO_SYMLINKS;
        errno = 0;
        fd = (int)syscall(SYS_openat2, AT_FDCWD, "link", &how, sizeof how);
        show("openat2, a link, no links", fd, errno);
        f = fopen("stream", "w");
        printf("fopen w: fd %d\n", f != NULL ? fileno(f) : -1);
        fputs("abc", f);
        fclose(f);
        f = fopen("stream", "a");
        printf("fopen a: fd %d at %ld\n", fileno(f), ftell(f));
        fclose(f);
        f = fopen("stream", "wx");
        printf("fopen wx: %s\n", f == NULL ? strerrorname_np(errno) : "opened");
        /* The lowest free number, whatever was looked at meanwhile. */
        int low[3] = {open("file", O_RDWR | O_CREAT, 0666), open("new", O_RDWR | O_CREAT, 0666),
                      open("brand-new", O_RDWR | O_CREAT, 0666)};
        printf("numbers %d %d %d\n", low[0], low[1], low[2]);
        for (int i = 0; i < 3; i++)
            close(low[i]);
        try_mkdir("a file", "file");
        try_mkdir("a directory", "dir");
        try_mkdir("a directory, slash", "dir/");
        try_mkdir("a file, slash", "file/");
        try_mkdir("a link", "link");
        try_mkdir("a dangling link", "dangling");
        try_mkdir("a dangling link, slash", "dangling/");
        try_mkdir("a loop", "loop");
        try_mkdir("a FIFO", "fifo");
        try_mkdir("the directory itself", ".");
        try_mkdir("the one above", "..");
        try_mkdir("the root", "/");
        try_mkdir("a device", "/dev/null");
        try_mkdir("too long a name", longer);
        try_mkdir("no path", "");
        try_mkdir("below a file", "file/x");
        try_mkdir("below nothing", "none/x");
        try_mkdir("no address", NULL);
        try_mkdir("something new", "newdir");
        rmdir("newdir");
        try_mkdir("something gone", "newdir");
        rename("newdir", "olddir");
        try_mkdir("something moved away", "newdir");
        errno = 0;
        printf("mkdirat below a dirfd that is none: %d %s\n", mkdirat(-7, "dir", 0700),
               strerrorname_np(errno));
        rmdir("newdir"), rmdir("olddir");
        /* A POSIX lock is not lost by an open that only looked. */
        fd = open("file", O_RDWR);
        fcntl(fd, F_SETLK, &(struct flock){.l_type = F_WRLCK});
        close(open("dir", O_RDWR | O_CREAT, 0666));
        if (fork() == 0) {
            struct flock l = {.l_type = F_WRLCK};

            fcntl(fd, F_GETLK, &l);
            printf("lock %s\n", l.l_type == F_UNLCK ? "lost" : "held");
            fflush(stdout);
            _exit(0);
        }
        while (wait(NULL) > 0)
            ;
        close(fd);
        for (int i = 0; i < 3; i++)
            unlink((const char *[]){"new", "brand-new", "target"}[i]);
        unlink("new2"), unlink("new3"), unlink("new4"), unlink("made"), unlink("stream"),
            unlink("made-2");
    }
}

static void other(void)
{
    try_open("their file", "sticky/file", O_RDWR | O_CREAT, 0666);
    try_open("their file, O_TRUNC", "sticky/file", O_RDWR | O_CREAT | O_TRUNC, 0666);
    try_open("their file, read", "sticky/file", O_RDONLY | O_CREAT, 0666);
    try_open("their FIFO, O_NONBLOCK", "sticky/fifo", O_RDWR | O_CREAT | O_NONBLOCK, 0666);
    /* Without a writer it would wait: refused, it must not. */
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm}, NULL);
    ualarm(100000, 0);
    try_open("their FIFO, to wait", "sticky/fifo", O_RDONLY | O_CREAT, 0666);
    ualarm(0, 0);
    try_open("their file without O_CREAT", "sticky/file", O_RDWR, 0);
    try_open("a name of ours", "sticky/ours", O_RDWR | O_CREAT, 0666);
    try_open("where we may not write", "closed/x", O_RDWR | O_CREAT, 0666);
    unlink("sticky/ours");
}

static void read_only(void)
{
    try_open("read-only, existing, to read", "file", O_RDONLY | O_CREAT, 0666);
    try_open("read-only, existing, to write", "file", O_RDWR | O_CREAT, 0666);
    try_open("read-only, existing, O_TRUNC", "file", O_RDONLY | O_CREAT | O_TRUNC, 0666);
    try_open("read-only, new", "new", O_RDWR | O_CREAT, 0666);
    try_open("read-only, a directory", "dir", O_RDWR | O_CREAT, 0666);
    try_open("read-only, a dangling link", "dangling", O_RDWR | O_CREAT, 0666);
    try_open("read-only, a device", "null", O_RDWR | O_CREAT, 0666);
    try_mkdir("something read-only", "dir");
    try_mkdir("something new, read-only", "newdir");
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2 || chdir(argv[1]) != 0)
        return 2;
    if (argc > 2 && strcmp(argv[2], "read-only") == 0) {
        for (int round = 0; round < 3; round++)
            read_only();
        return 0;
    }
    if (argc > 2) {
        if (setgid((gid_t)atoi(argv[2])) != 0 || setuid((uid_t)atoi(argv[2])) != 0)
            return 2;
        other();
        return 0;
    }
    own();
    return 0;
}
