/* SPDX-License-Identifier: MIT */
/* family: see family.h. Futexes here are the shared kind: the waiters are other processes. */
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>

#include "family.h"
#include "keeper.h"

#define ASK_PATIENCE_NS 50000000u /* then look whether the other one is still alive */
#define DEAD_AFTER_NS   500000000u
#define APART_NS        UINT64_C(10000000000) /* for one whose death cannot be seen */

EARLY struct family *family;

static void shared_wait(uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
    struct timespec ts = {.tv_sec = 0, .tv_nsec = (long)timeout_ns};

    rl_raw(SYS_futex, word, FUTEX_WAIT, seen, &ts);
}

/* Number of this process's pid namespace; 1 where that cannot be learned. */
static uint64_t own_space;

static uint64_t space(void)
{
    struct stat st;

    if (rl_load_64(&own_space) == 0)
        rl_store_64(&own_space, rl_raw(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &st, 0) == 0
                                    ? st.st_ino
                                    : 1);
    return rl_load_64(&own_space);
}

void family_forked(void)
{
    own_space = 0;
}

/* Pids alone are not enough: a child in a namespace of its own may have its parent's. */
static bool is_mine(const struct family_entry *e)
{
    return rl_load_32(&e->pid) == proc.pid && rl_load_64(&e->space) == space();
}

static void entry_free(struct family_entry *e)
{
    uint32_t pid = proc.pid;

    rl_store_32(&e->asked, 0);
    if (!rl_cas_32(&e->pid, &pid, 0)) /* the worker and the end of the process may both come here */
        return;
    rl_add_32(&family->busy, (uint32_t)-1);
    rl_add_32(&family->moved, 1);
    rl_raw(SYS_futex, &family->moved, FUTEX_WAKE, INT32_MAX);
}

bool family_enter(uint64_t dev, uint64_t ino)
{
    if (family == NULL)
        return true;
    for (int i = 0; i < FAMILY_ENTRIES; i++) {
        struct family_entry *e = &family->entry[i];
        uint32_t none = 0;

        if (rl_load_32(&e->pid) != 0 && rl_load_64(&e->dev) == dev && rl_load_64(&e->ino) == ino)
            return false; /* another member has it on */
        if (rl_load_32(&e->pid) != 0 || !rl_cas_32(&e->pid, &none, proc.pid))
            continue;
        rl_store_64(&e->space, space());
        rl_store_64(&e->dev, dev);
        rl_store_64(&e->ino, ino);
        rl_add_32(&family->busy, 1); /* a full barrier: an opener that misses it opened before */
        return true;
    }
    return false;
}

void family_leave(uint64_t dev, uint64_t ino)
{
    for (int i = 0; family != NULL && i < FAMILY_ENTRIES; i++) {
        struct family_entry *e = &family->entry[i];

        if (is_mine(e) && e->dev == dev && e->ino == ino)
            entry_free(e);
    }
}

void family_leave_all(void)
{
    for (int i = 0; family != NULL && i < FAMILY_ENTRIES; i++)
        if (is_mine(&family->entry[i]))
            entry_free(&family->entry[i]);
}

bool family_asked(uint64_t *dev, uint64_t *ino)
{
    for (int i = 0; family_busy() && i < FAMILY_ENTRIES; i++) {
        struct family_entry *e = &family->entry[i];

        if (rl_load_32(&e->asked) != 0 && is_mine(e)) {
            *dev = rl_load_64(&e->dev);
            *ino = rl_load_64(&e->ino);
            return true;
        }
    }
    return false;
}

/* Gone, or a zombie: that still answers kill(2), but has no memory to read. A process whose first
 * thread has ended looks the same; its worker answers within milliseconds, so ask only after that.
 */
bool family_is_dead(uint32_t pid, uint64_t waited_ns)
{
    char byte;
    struct iovec local = {&byte, 1};
    struct iovec remote = {NULL, 1};

    if (rl_raw(SYS_kill, pid, 0) == -ESRCH)
        return true;
    return waited_ns > DEAD_AFTER_NS &&
           rl_raw(SYS_process_vm_readv, pid, &local, 1, &remote, 1, 0) == -ESRCH;
}

static void ask_and_wait(struct family_entry *e, uint64_t dev, uint64_t ino)
{
    uint64_t began_ns = rl_now_ns();
    uint32_t pid;

    while ((pid = rl_load_32(&e->pid)) != 0 && !is_mine(e) && rl_load_64(&e->dev) == dev &&
           rl_load_64(&e->ino) == ino) {
        uint32_t moved = rl_load_32(&family->moved);
        bool apart = rl_load_64(&e->space) != space();

        rl_store_32(&e->asked, 1);
        /* The owner's worker looks at `asked` at least once per punch_delay while it has anything
         * on; its wait is on a word of its own, so there is nothing to wake here. */
        shared_wait(&family->moved, moved, ASK_PATIENCE_NS);
        if ((apart ? rl_now_ns() - began_ns > APART_NS
                   : family_is_dead(pid, rl_now_ns() - began_ns)) &&
            rl_cas_32(&e->pid, &pid, 0)) {
            /* It died. Punches it had queued are a keeper's, or did not happen (contract 13). */
            rl_store_32(&e->asked, 0);
            rl_add_32(&family->busy, (uint32_t)-1);
        }
    }
}

void family_watch(void)
{
    rl_add_32(&family->busy, 1);
}

void family_opened(int fd)
{
    struct stat st;

    if (rl_raw(SYS_fstat, fd, &st) != 0 || !S_ISREG(st.st_mode))
        return;
    for (int i = 0; i < FAMILY_ENTRIES; i++) {
        struct family_entry *e = &family->entry[i];

        if (rl_load_32(&e->pid) != 0 && rl_load_64(&e->dev) == st.st_dev &&
            rl_load_64(&e->ino) == st.st_ino && !is_mine(e))
            ask_and_wait(e, st.st_dev, st.st_ino);
    }
    /* Last: a member that is found dead above may have left a keeper. */
    if (proc.keeper)
        keeper_opened(st.st_dev, st.st_ino);
}
