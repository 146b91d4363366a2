/* SPDX-License-Identifier: MIT */
/*
 * append DIR SECONDS: O_APPEND loggers in many threads, while the head of their file is punched and
 * a big direct write goes on in front of them.
 *
 * Eight threads, every other one with a descriptor of its own, write lines of 1 byte to 64 KiB,
 * each with its thread, number and length; one in four by writev in two parts. The file begins with
 * a stretch that a puncher keeps punching and one that a direct writer keeps rewriting. Afterwards
 * each line must be there, whole, once, in its thread's order, and nothing else: the kernel makes
 * an O_APPEND write one step, for everybody.
 *
 * Exit: 0 and "ok", 1 and what was found; 77: no O_DIRECT here.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LOGGERS 8
#define HEAD    (16u << 20)
#define LINE    65536
#define MOST    ((off_t)512 << 20)

static int origin, common;
static atomic_bool over;
static atomic_int failed;
static unsigned written[LOGGERS];

static int reopen(int flags)
{
    char name[64];
    int fd;

    snprintf(name, sizeof name, "/proc/self/fd/%d", origin);
    fd = open(name, flags | O_CLOEXEC);
    if (fd < 0) {
        perror(name);
        exit(errno == EINVAL ? 77 : 1);
    }
    return fd;
}

static void *logger(void *arg)
{
    int id = (int)((unsigned *)arg - written);
    int fd = id % 2 != 0 ? common : reopen(O_WRONLY | O_APPEND);
    unsigned rnd = (unsigned)id * 7919 + 1;
    char *line = malloc(LINE + 1);

    while (line != NULL && !atomic_load(&over)) {
        ssize_t n, len;
        int head;

        rnd = rnd * 1103515245 + 12345;
        len = (rnd >> 16) % 5 == 0 ? (ssize_t)(rnd >> 8) % (LINE - 64) + 64
                                   : (ssize_t)(rnd >> 8) % 500 + 64;
        head = snprintf(line, 64, "<%d %u %zd ", id, written[id], len);
        memset(line + head, 'a' + id, (size_t)(len - head));
        line[len - 2] = '>';
        line[len - 1] = '\n';
        if ((rnd >> 12) % 4 == 0)
            n = writev(fd, (struct iovec[]){{line, 20}, {line + 20, (size_t)len - 20}}, 2);
        else
            n = write(fd, line, (size_t)len);
        if (n != len) {
            printf("not ok: a line of %zd bytes: %zd (%s)\n", len, n, strerror(errno));
            atomic_store(&failed, 1);
            break;
        }
        written[id]++;
        if (lseek(fd, 0, SEEK_CUR) > MOST)
            break;
    }
    free(line);
    if (fd != common)
        close(fd);
    return NULL;
}

static void *rewriter(void *arg)
{
    int fd = reopen(O_WRONLY | O_DIRECT);
    void *buf = NULL;

    (void)arg;
    if (posix_memalign(&buf, 4096, HEAD) != 0)
        exit(1);
    memset(buf, 'x', HEAD);
    while (!atomic_load(&over))
        if (pwrite(fd, buf, HEAD / 2, HEAD / 2) != (ssize_t)(HEAD / 2))
            atomic_store(&failed, 1);
    free(buf);
    close(fd);
    return NULL;
}

static void *puncher(void *arg)
{
    int fd = reopen(O_RDWR);

    (void)arg;
    for (unsigned i = 0; !atomic_load(&over); i++) {
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      (off_t)(i % (HEAD / 8192)) * 4096, 4096) != 0)
            atomic_store(&failed, 1);
        usleep(100);
    }
    close(fd);
    return NULL;
}

/* Reads the lines back. */
static void check(void)
{
    unsigned next[LOGGERS] = {0};
    FILE *f = fdopen(reopen(O_RDONLY), "r");
    char *line = malloc(LINE + 2);

    if (f == NULL || line == NULL || fseeko(f, HEAD, SEEK_SET) != 0)
        exit(1);
    while (fgets(line, LINE + 2, f) != NULL) {
        size_t got = strlen(line);
        unsigned number;
        ssize_t len;
        int id, head;

        if (sscanf(line, "<%d %u %zd %n", &id, &number, &len, &head) != 3 || id < 0 ||
            id >= LOGGERS || (size_t)len != got || line[got - 2] != '>' ||
            strspn(line + head, (char[]){(char)('a' + id), '\0'}) != got - (size_t)head - 2) {
            printf("not ok: a torn line before byte %lld: %.60s\n", (long long)ftello(f), line);
            exit(1);
        }
        if (number != next[id]++) {
            printf("not ok: thread %d: line %u where %u should be\n", id, number, next[id] - 1);
            exit(1);
        }
    }
    for (int i = 0; i < LOGGERS; i++)
        if (next[i] != written[i]) {
            printf("not ok: thread %d wrote %u lines, %u are there\n", i, written[i], next[i]);
            exit(1);
        }
    fclose(f);
    free(line);
}

int main(int argc, char **argv)
{
    pthread_t thread[LOGGERS + 2];
    char path[4096];

    if (argc < 3)
        return 2;
    snprintf(path, sizeof path, "%s/append.%d", argv[1], (int)getpid());
    origin = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (origin < 0 || unlink(path) != 0 || ftruncate(origin, HEAD) != 0) {
        perror(path);
        return 1;
    }
    common = reopen(O_WRONLY | O_APPEND);
    pthread_create(&thread[LOGGERS], NULL, rewriter, NULL);
    pthread_create(&thread[LOGGERS + 1], NULL, puncher, NULL);
    for (int i = 0; i < LOGGERS; i++)
        pthread_create(&thread[i], NULL, logger, &written[i]);
    nanosleep(&(struct timespec){atoi(argv[2]), 0}, NULL);
    atomic_store(&over, true);
    for (int i = 0; i < LOGGERS + 2; i++)
        pthread_join(thread[i], NULL);
    if (atomic_load(&failed) != 0)
        printf("not ok: a call failed\n");
    else
        check();
    if (atomic_load(&failed) == 0)
        printf("ok\n");
    return atomic_load(&failed);
}
