/* SPDX-License-Identifier: MIT */
/* find: the library that belongs to this command, programs in PATH, and the configuration. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd.h"

static bool is_library(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, R_OK) == 0;
}

bool find_library(char *buf, size_t n)
{
    static const char *const beside[] = {
        "librlshim.so",
        "../lib/librlshim.so",
        "../lib64/librlshim.so",
#if defined(__x86_64__)
        "../lib/x86_64-linux-gnu/librlshim.so",
#elif defined(__aarch64__)
        "../lib/aarch64-linux-gnu/librlshim.so",
#endif
    };
    char self[4096], path[4200];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    if (len > 0) {
        self[len] = '\0';
        slash = strrchr(self, '/');
        for (size_t i = 0; slash != NULL && i < sizeof beside / sizeof *beside; i++) {
            snprintf(path, sizeof path, "%.*s/%s", (int)(slash - self), self, beside[i]);
            if (is_library(path)) {
                char *real = realpath(path, NULL);
                bool fits = real != NULL && strlen(real) < n;

                if (fits)
                    strcpy(buf, real);
                free(real);
                return fits;
            }
        }
    }
#ifdef RLSHIM_LIBDIR
    snprintf(buf, n, "%s/librlshim.so", RLSHIM_LIBDIR);
    return is_library(buf);
#else
    return false;
#endif
}

static int try_program(const char *path)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return errno;
    if (!S_ISREG(st.st_mode))
        return EACCES;
    return access(path, X_OK) == 0 ? 0 : errno;
}

int find_program(const char *name, char *buf, size_t n)
{
    const char *path = getenv("PATH");
    int worst = ENOENT;

    if (*name == '\0')
        return ENOENT;
    if (strchr(name, '/') != NULL) {
        if (strlen(name) >= n)
            return ENAMETOOLONG;
        strcpy(buf, name);
        return try_program(buf);
    }
    if (path == NULL)
        path = "/bin:/usr/bin";
    for (;;) {
        size_t len = strcspn(path, ":");
        int rc;

        if (len == 0)
            rc = (size_t)snprintf(buf, n, "./%s", name) < n ? try_program(buf) : ENAMETOOLONG;
        else
            rc = (size_t)snprintf(buf, n, "%.*s/%s", (int)len, path, name) < n ? try_program(buf)
                                                                               : ENAMETOOLONG;
        if (rc == 0)
            return 0;
        if (rc == EACCES)
            worst = EACCES;
        if (path[len] == '\0')
            return worst;
        path += len + 1;
    }
}

static int io_open(const char *path, int flags)
{
    int fd = open(path, flags);

    return fd >= 0 ? fd : -errno;
}

static ssize_t io_read(int fd, void *buf, size_t n)
{
    ssize_t got = read(fd, buf, n);

    return got >= 0 ? got : -errno;
}

static int io_fstat(int fd, struct stat *st)
{
    return fstat(fd, st) == 0 ? 0 : -errno;
}

static int io_close(int fd)
{
    return close(fd) == 0 ? 0 : -errno;
}

const struct loaded *load_config(char *const *env)
{
    static const struct cfg_io io = {io_open, io_read, io_fstat, io_close};
    static char text[CFG_FILE_BYTES_MAX];
    static struct loaded loaded;

    loaded.bad =
        cfg_load(&loaded.config, &io, env, geteuid(), false, text, sizeof text, &loaded.error) != 0;
    return &loaded;
}
