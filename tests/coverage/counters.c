/* SPDX-License-Identifier: MIT */
/* counters: linked into everything that VARIANT=gcov builds.
 *
 * gcov writes its counters when a process exits. A preload library's processes are killed, call
 * _exit, fork and exec, and writing files at such a moment would go through the library itself. So
 * the counters are a shared mapping of a file (COVERAGE_DIR/IMAGE.BYTES), from the start: every
 * process adds to it, whatever becomes of it, and the worker needs nothing of libc to do so.
 *
 * With COVERAGE_DUMP=DIR in the environment the image writes the .gcda files of all that was
 * counted to DIR and ends: the names say where the notes lie, with '%' for '/'.
 */
#include <fcntl.h>
#include <gcov.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "rawcall.h"

extern const struct gcov_info *const __start_rl_gcov_info[]
    __attribute__((weak, visibility("hidden")));
extern const struct gcov_info *const __stop_rl_gcov_info[]
    __attribute__((weak, visibility("hidden")));
extern char rl_counters_begin[] __attribute__((weak, visibility("hidden")));
extern char rl_counters_end[] __attribute__((weak, visibility("hidden")));

static char image[256];
static int dump_fd = -1;

/* The library's own name, or that of the program if that is where we are. */
static int find_image(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

        if (info->dlpi_phdr[i].p_type != PT_LOAD || (uintptr_t)rl_counters_begin < from ||
            (uintptr_t)rl_counters_begin >= from + info->dlpi_phdr[i].p_memsz)
            continue;
        if (info->dlpi_name[0] != '\0') {
            const char *slash = strrchr(info->dlpi_name, '/');

            snprintf(arg, sizeof image, "%.200s", slash != NULL ? slash + 1 : info->dlpi_name);
        } else {
            char path[4096];
            long n = rl_raw(SYS_readlink, "/proc/self/exe", path, sizeof path - 1);

            path[n > 0 ? n : 0] = '\0';
            snprintf(arg, sizeof image, "%.200s",
                     strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path);
        }
        return 1;
    }
    return 0;
}

static void to_file(const char *name, void *dir)
{
    char path[4096];
    size_t n = (size_t)snprintf(path, sizeof path, "%s/%s", (char *)dir, image);

    for (; *name != '\0' && n < sizeof path - 1; name++)
        path[n++] = *name == '/' ? '%' : *name;
    path[n] = '\0';
    if (dump_fd >= 0)
        rl_raw(SYS_close, dump_fd);
    dump_fd = (int)rl_raw(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
}

static void to_data(const void *data, unsigned n, void *dir)
{
    (void)dir;
    if (rl_raw(SYS_write, dump_fd, data, n) != (long)n)
        rl_raw(SYS_exit_group, 1);
}

static void *to_memory(unsigned n, void *dir)
{
    (void)dir;
    return malloc(n);
}

__attribute__((constructor(101))) static void counters_begin(void)
{
    size_t bytes = (size_t)(rl_counters_end - rl_counters_begin);
    const char *dump = getenv("COVERAGE_DUMP");
    char path[4096];
    long fd;

    if (bytes == 0)
        return;
    dl_iterate_phdr(find_image, image);
    snprintf(path, sizeof path, "%s/%s.%zu", COVERAGE_DIR, image, bytes);
    fd = rl_raw(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    rl_raw(SYS_fchmod, fd, 0666); /* tests that change users count too */
    if (rl_raw(SYS_ftruncate, fd, bytes) == 0)
        rl_raw(SYS_mmap, rl_counters_begin, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
               fd, 0L);
    rl_raw(SYS_close, fd);
    if (dump == NULL)
        return;
    for (const struct gcov_info *const *i = __start_rl_gcov_info; i < __stop_rl_gcov_info; i++)
        __gcov_info_to_gcda(*i, to_file, to_data, to_memory, (void *)dump);
    rl_raw(SYS_exit_group, 0);
}
