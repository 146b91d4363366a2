/* SPDX-License-Identifier: MIT */
/* Setting the stage and asking what the file system can do. See stage.h. */
#include "stage.h"
#include "auditor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAGIC_EXT4 = 0xef53, MAGIC_XFS = 0x58465342, MAGIC_TMPFS = 0x01021994 };
static const unsigned MAGIC_BTRFS = 0x9123683e;

static int fail(const char *dir, const char *what)
{
    fprintf(stderr, "model: %s: %s: %s\n", dir, what, strerror(errno));
    return -1;
}

static int nameless(const struct stage *st, int flags)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/model-scratch-%d-XXXXXX", st->dir, (int)getpid());
    int fd = mkostemp(path, flags);

    if (fd >= 0)
        unlink(path);
    return fd;
}

static void name_fs(struct stage *st)
{
    struct statfs s;
    const char *name = "other";

    if (!statfs(st->dir, &s)) {
        unsigned type = (unsigned)s.f_type;

        name = type == MAGIC_EXT4    ? "ext4"
               : type == MAGIC_XFS   ? "xfs"
               : type == MAGIC_BTRFS ? "btrfs"
               : type == MAGIC_TMPFS ? "tmpfs"
                                     : "other";
    }
    snprintf(st->fs, sizeof(st->fs), "%s", name);
    st->reads_are_whole = !strcmp(name, "xfs");
    st->unlocked_are_checked = strcmp(name, "xfs") != 0;
}

/* Whether a punch of data is stamped; asked on a file whose times were set far back. */
static bool punch_is_stamped(int fd)
{
    struct timespec old[2] = {{1000000000, 0}, {1000000000, 0}};
    struct stat s;

    return !futimens(fd, old) &&
           !fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BLOCK) && !fsync(fd) &&
           !fstat(fd, &s) && s.st_mtim.tv_sec > 1000000000;
}

static int probe(struct stage *st)
{
    char path[512];
    off_t from = 0, to = 0;
    int fd = nameless(st, O_CLOEXEC), out = nameless(st, O_CLOEXEC);

    if (fd < 0 || out < 0)
        return fail(st->dir, "cannot create a file");
    if (pwrite(fd, st->buf[0][0], 2 * BLOCK, 0) != 2 * BLOCK)
        return fail(st->dir, "cannot write");
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BLOCK)) {
        close(fd);
        close(out);
        return 1;
    }
    st->punch_moves_mtime = punch_is_stamped(fd);
    st->can_zero = !fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, BLOCK);
    st->can_copy = copy_file_range(fd, &from, out, &to, 2 * BLOCK, 0) > 0;
    close(fd);
    close(out);
    fd = nameless(st, O_DIRECT | O_CLOEXEC);
    st->can_direct = fd >= 0 && pwrite(fd, st->buf[0][0], BLOCK, 0) == BLOCK;
    if (fd >= 0)
        close(fd);
    snprintf(path, sizeof(path), "%s", st->dir);
    fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    st->can_tmpfile = fd >= 0;
    if (fd >= 0)
        close(fd);
    return 0;
}

static int make_decoy(struct stage *st)
{
    snprintf(st->decoy_path, sizeof(st->decoy_path), "%s/model-decoy-%d", st->dir, (int)getpid());
    decoy_fill(st->decoy);
    st->decoy_fd = open(st->decoy_path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    if (st->decoy_fd < 0 || pwrite(st->decoy_fd, st->decoy, DECOY_BYTES, 0) != DECOY_BYTES)
        return fail(st->decoy_path, "cannot make the decoy file");
    return 0;
}

int stage_open(struct stage *st, const char *dir, const char *self)
{
    memset(st, 0, sizeof(*st));
    snprintf(st->dir, sizeof(st->dir), "%s", dir);
    snprintf(st->self, sizeof(st->self), "%s", self);
    st->arena_fd = memfd_create("model-trace", 0);
    if (st->arena_fd < 0 || ftruncate(st->arena_fd, sizeof(struct arena)))
        return fail(dir, "no memory for the trace");
    st->arena =
        mmap(NULL, sizeof(struct arena), PROT_READ | PROT_WRITE, MAP_SHARED, st->arena_fd, 0);
    if (st->arena == MAP_FAILED)
        return fail(dir, "no memory for the trace");
    for (int i = 0; i <= PLAN_THREADS; i++) {
        for (int k = 0; k < 2; k++) {
            st->buf[i][k] = aligned_alloc(BLOCK, IO_MAX);
            if (!st->buf[i][k])
                return fail(dir, "no memory for buffers");
            memset(st->buf[i][k], 0, IO_MAX);
        }
        st->scratch[i] = nameless(st, O_CLOEXEC);
        if (st->scratch[i] < 0)
            return fail(dir, "cannot create a scratch file");
    }
    int ret = probe(st);

    if (ret)
        return ret;
    name_fs(st);
    if (make_decoy(st))
        return -1;
    st->auditor = auditor_start(st->self, st->arena_fd, st->decoy_path, &st->auditor_pid);
    return st->auditor < 0 ? fail(dir, "cannot start the auditor") : 0;
}

void stage_close(struct stage *st)
{
    if (st->auditor > 0) {
        close(st->auditor);
        waitpid(st->auditor_pid, NULL, 0);
    }
    if (st->decoy_path[0])
        unlink(st->decoy_path);
}
