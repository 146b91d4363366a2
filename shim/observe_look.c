/* SPDX-License-Identifier: MIT */
/*
 * observe_look: which of our files other processes have open. `share = private` is the operator's
 * word that none has; here is what was seen of it.
 *
 * A look walks /proc/PID/fd of every process: what is opened and closed between two looks is not
 * seen, and mappings are not looked at. Children of ours count as strangers only if they did not
 * come from a fork of this program (they may touch its files: contract with `private`).
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "../lockmgr/gate.h"
#include "observe_impl.h"
#include "text.h"

#define EVERY_NS   UINT64_C(10000000000)
#define SHARE_COST 500u /* a look may take a five-hundredth of the time */

struct dirent64_raw {
    uint64_t d_ino;
    int64_t d_off;
    uint16_t d_reclen;
    uint8_t d_type;
    char d_name[];
};

static uint64_t due_ns;
static uint32_t looking;

/* For who is looking. */
static char process_buf[4096], entry_buf[4096], own_exe[512], their_exe[512], their_stat[512];

static uint32_t number(const char *s)
{
    uint64_t n = 0;

    for (; *s >= '0' && *s <= '9' && n < UINT32_MAX; s++)
        n = n * 10 + (uint64_t)(*s - '0');
    return *s == '\0' ? (uint32_t)n : 0;
}

static void look_at(int fds, uint32_t pid)
{
    struct stat st;
    long n;

    while ((n = rl_raw(SYS_getdents64, fds, entry_buf, sizeof entry_buf)) > 0)
        for (long at = 0; at < n;) {
            const struct dirent64_raw *d = (const struct dirent64_raw *)(entry_buf + at);
            uint32_t file;

            at += d->d_reclen;
            if (d->d_name[0] == '.' || rl_raw(SYS_newfstatat, fds, d->d_name, &st, 0) != 0 ||
                !S_ISREG(st.st_mode))
                continue;
            file = observe_file_known(st.st_dev, st.st_ino);
            if (file < FILES_MAX && file != FILE_OTHERS)
                rl_store_32(&observation->file[file].other, pid);
        }
}

/* A fork of this program, or what it was forked from: the same executable, one of which started the
 * other. */
static bool is_ours(int dir, uint32_t pid)
{
    long n = rl_raw(SYS_readlinkat, AT_FDCWD, "/proc/thread-self/exe", own_exe, sizeof own_exe);
    long m = rl_raw(SYS_readlinkat, dir, "exe", their_exe, sizeof their_exe);
    char *at;
    long fd;

    if (n <= 0 || n != m || memcmp(own_exe, their_exe, (size_t)n) != 0)
        return false;
    if (pid == (uint32_t)rl_raw(SYS_getppid))
        return true;
    fd = rl_raw(SYS_openat, dir, "stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = rl_raw(SYS_read, fd, their_stat, sizeof their_stat - 1);
    rl_raw(SYS_close, fd);
    their_stat[n > 0 ? n : 0] = '\0';
    at = strrchr(their_stat, ')'); /* pid (name) state ppid */
    if (at == NULL || at[1] == '\0' || at[2] == '\0' || at[3] == '\0')
        return false;
    at += 4;
    if (strchr(at, ' ') != NULL)
        *strchr(at, ' ') = '\0';
    return number(at) == proc.pid;
}

static void look_at_process(int all, const char *name)
{
    uint32_t pid = number(name);
    long dir, fds;

    if (pid == 0 || pid == proc.pid)
        return;
    dir = rl_raw(SYS_openat, all, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return;
    fds = rl_raw(SYS_openat, dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fds >= 0) {
        if (!is_ours((int)dir, pid))
            look_at((int)fds, pid);
        rl_raw(SYS_close, fds);
    } else if (fds != -ENOENT && fds != -ESRCH) {
        rl_store_64(&observation->looks_blind, 1);
    }
    rl_raw(SYS_close, dir);
}

void observe_look(void)
{
    uint32_t none = 0;
    long n, all;

    if (!observe_may_ask() || !rl_cas_32(&looking, &none, 1))
        return;
    all = rl_raw(SYS_openat, AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (all >= 0) {
        while ((n = rl_raw(SYS_getdents64, all, process_buf, sizeof process_buf)) > 0)
            for (long at = 0; at < n;) {
                const struct dirent64_raw *d = (const struct dirent64_raw *)(process_buf + at);

                at += d->d_reclen;
                look_at_process((int)all, d->d_name);
            }
        rl_raw(SYS_close, all);
        rl_add_64(&observation->looks, 1);
    } else {
        rl_store_64(&observation->looks_blind, 1);
    }
    __atomic_store_n(&looking, 0, __ATOMIC_RELEASE);
}

void observe_look_if_due(void)
{
    uint64_t begin = rl_now_ns(), took, due = rl_load_64(&due_ns);

    if (begin < due || !rl_cas_64(&due_ns, &due, begin + EVERY_NS))
        return;
    observe_look();
    took = rl_now_ns() - begin;
    if (took * SHARE_COST > EVERY_NS)
        rl_store_64(&due_ns, begin + took * SHARE_COST);
}
