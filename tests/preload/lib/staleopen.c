/* SPDX-License-Identifier: MIT */
/*
 * staleopen: a library that takes what it saw of a name for what is there, which create.h never
 * does: an open with O_CREAT of the name that was opened last gives a copy of that descriptor, for
 * a hundred microseconds. For create_race.sh, which must notice.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last[500];
static int last_fd = -1;
static struct timespec when;

int open(const char *path, int flags, ...)
{
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    struct timespec now;
    va_list args;
    mode_t mode;
    int fd;

    va_start(args, flags);
    mode = va_arg(args, mode_t);
    va_end(args);
    if ((flags & (O_CREAT | O_EXCL)) != O_CREAT)
        return real(path, flags, mode);
    pthread_mutex_lock(&lock);
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (strcmp(last, path) == 0 && now.tv_sec == when.tv_sec &&
        now.tv_nsec - when.tv_nsec < 100000 && (fd = fcntl(last_fd, F_DUPFD_CLOEXEC, 0)) >= 0) {
        pthread_mutex_unlock(&lock);
        return fd;
    }
    fd = real(path, flags, mode);
    strncpy(last, path, sizeof last - 1);
    last_fd = fd;
    when = now;
    pthread_mutex_unlock(&lock);
    return fd;
}
