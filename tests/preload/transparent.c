/* SPDX-License-Identifier: MIT */
/* timeout: 60 */
/*
 * transparent: small programs that do what a preload library tends to get wrong, each printing what
 * it saw. transparent.sh runs them with and without the shim and compares.
 *
 *   transparent CASE [FILE]
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *file;
static char bytes[4096];

static int made(void)
{
    int fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0644);

    memset(bytes, 'x', sizeof bytes);
    for (int i = 0; i < 64; i++)
        if (write(fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes)
            perror("write");
    return fd;
}

static void punch(int fd)
{
    for (off_t at = 0; at < 64 * 4096; at += 8192)
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 4096) != 0)
            perror("fallocate");
}

/* --- main leaves, another thread goes on --- */

static pthread_t main_thread;

static void *goes_on(void *arg)
{
    int fd = made();

    (void)arg;
    pthread_join(main_thread, NULL);
    punch(fd);
    printf("the last thread returns\n");
    return NULL;
}

static void says_goodbye(void)
{
    printf("handlers run once\n");
}

static int main_leaves(void)
{
    pthread_t thread;

    main_thread = pthread_self();
    atexit(says_goodbye);
    pthread_create(&thread, NULL, goes_on, NULL);
    pthread_detach(thread);
    pthread_exit(NULL);
}

/* --- errors are the kernel's --- */

#define SAY(call)                                                                                  \
    do {                                                                                           \
        long r_;                                                                                   \
        errno = 0;                                                                                 \
        r_ = (long)(call);                                                                         \
        printf("%s = %ld, errno %d\n", #call, r_, errno);                                          \
    } while (0)

static int errors(void)
{
    int fd = made(), reader = open(file, O_RDONLY), place = open(file, O_PATH);
    struct iovec vec = {bytes, sizeof bytes};
    volatile size_t huge = (size_t)-1; /* volatile: the compiler knows that these are wrong */
    volatile int null_fd = -1, minus_1 = -1;
    void *volatile nowhere = (void *)8;

    SAY(read(null_fd, bytes, 1));
    SAY(pread(fd, bytes, 1, -1));
    SAY(pread(fd, bytes, huge, 0));
    SAY(read(fd, nowhere, 4096));
    SAY(write(reader, bytes, 1));
    SAY(pwrite(fd, nowhere, 1 << 20, 0));
    SAY(writev(fd, nowhere, 1));
    SAY(writev(fd, &vec, minus_1));
    SAY(writev(fd, &vec, 0));
    SAY(preadv2(fd, &vec, 1, -1, 0x7fffffff));
    SAY(preadv2(fd, &vec, 1, -2, 0));
    SAY(fallocate(reader, 3, 0, 4096));
    SAY(fallocate(fd, 2, 0, 4096));
    SAY(fallocate(fd, 3, -1, 4096));
    SAY(fallocate(fd, 3, 0, 0));
    SAY(fallocate(place, 3, 0, 4096));
    SAY(posix_fallocate(reader, 0, 1));
    SAY(posix_fallocate(null_fd, 0, 1));
    SAY(ftruncate(reader, 0));
    SAY(ftruncate(fd, -1));
    SAY(truncate("/nonexistent/a", 0));
    SAY(open("/nonexistent/a", O_RDWR | O_CREAT | O_TRUNC, 0600));
    SAY(open("/", O_RDWR | O_TRUNC));
    SAY(close(null_fd));
    SAY(dup2(null_fd, 5));
    SAY(dup3(fd, fd, 0));
    SAY(fcntl(null_fd, F_GETFL));
    SAY(fsync(null_fd));
    SAY(lseek(fd, 0, 99));
    SAY(lseek(fd, 1 << 30, SEEK_DATA));
    SAY(sendmsg(null_fd, nowhere, 0));
    SAY(copy_file_range(null_fd, NULL, fd, NULL, 1, 0));
    SAY(execv("/nonexistent/a", (char *[]){"a", NULL}));
    SAY(execlp("nonexistent-program", "a", (char *)NULL));
    SAY(syscall(-1L));
    SAY(syscall(SYS_close, -1L));
    errno = 77;
    if (pread(fd, bytes, 10, 0) == 10 && fallocate(fd, 3, 0, 4096) == 0 && close(dup(fd)) == 0)
        printf("success leaves errno at %d\n", errno);
    return 0;
}

/* --- lowest free number, inherited ones, exec --- */

static int numbers(void)
{
    int fd = made();
    int a, b;

    punch(fd);
    a = dup(fd);
    b = open(file, O_RDONLY);
    printf("%d %d %d\n", a - fd, b - fd, fcntl(fd, F_DUPFD, 20));
    close(a);
    printf("%d\n", open("/dev/null", O_RDONLY) - fd);
    fflush(stdout);
    closefrom(fd);
    printf("%d\n", open("/dev/null", O_RDONLY) - fd);
    fflush(stdout);
    execl("/bin/ls", "ls", "/proc/self/fd", (char *)NULL);
    return 1;
}

/* --- signals: size limits, jumps out of handlers, cancellation --- */

static sigjmp_buf back;

static void jumps(int sig)
{
    (void)sig;
    siglongjmp(back, 1);
}

static void *reads_a_pipe(void *arg)
{
    char c;

    while (read(*(int *)arg, &c, 1) == 1)
        ;
    return NULL;
}

static int interruptions(void)
{
    struct rlimit limit = {64 * 4096, RLIM_INFINITY};
    int pipe_fd[2], fd = made();
    pthread_t thread;
    void *result;

    punch(fd);
    signal(SIGALRM, jumps);
    if (pipe(pipe_fd) != 0)
        return 1;
    if (sigsetjmp(back, 1) == 0) {
        alarm(1);
        printf("read = %zd\n", read(pipe_fd[0], bytes, 1));
    } else {
        printf("jumped out of a read\n");
    }
    pthread_create(&thread, NULL, reads_a_pipe, &pipe_fd[0]);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("cancelled: %d\n", result == PTHREAD_CANCELED);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    SAY(pwrite(fd, bytes, 4096, 64 * 4096 - 100));
    SAY(pwrite(fd, bytes, 4096, 64 * 4096));
    SAY(pread(fd, bytes, 4096, 8192));
    printf("%d %d\n", bytes[0], bytes[4095]);
    return 0;
}

/* --- a child of vfork that closes, opens and fails to exec --- */

static int vforks(void)
{
    static volatile int told;
    int fd = made(), status;
    pid_t pid;

    punch(fd);
    pid = vfork();
    if (pid == 0) {
        close(fd);
        execv("/nonexistent/a", (char *[]){"a", NULL});
        told = errno;
        _exit(3);
    }
    waitpid(pid, &status, 0);
    printf("child %d, told %d\n", WEXITSTATUS(status), told);
    SAY(pread(fd, bytes, 4096, 0));
    printf("%d\n", bytes[0]);
    SAY(fcntl(fd, F_GETFD));
    return 0;
}

static const struct {
    const char *name;
    int (*run)(void);
} cases[] = {
    {"main_leaves", main_leaves},     {"errors", errors}, {"numbers", numbers},
    {"interruptions", interruptions}, {"vforks", vforks},
};

int main(int argc, char **argv)
{
    file = argc > 2 ? argv[2] : "file";
    for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(argv[1], cases[i].name) == 0)
            return cases[i].run();
    fprintf(stderr, "usage: transparent CASE [FILE]\n");
    return 2;
}
