/* SPDX-License-Identifier: MIT */
/* inflight: see inflight.h. */
#include <fcntl.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/mman.h>

#include "file.h"
#include "inflight.h"

#define LEGS         3 /* a copy's two files, and a call that a handler makes inside */
#define CHUNK_SLOTS  1024u
#define CHUNKS       64u
#define NAP_NS       100000u
#define WAIT_MOST_NS 2000000000u
#define PROBES       4u /* slots looked at for a thread that is gone, before a new one is taken */

struct slot {
    struct leg leg[LEGS];
    uint32_t tid; /* owner, 0 never had one */
    /* Worker only. */
    uint32_t seen[LEGS]; /* calls as of the last look */
    uint32_t
        clear[LEGS]; /* number of the last look at or after which no call seen by it was left */
} __attribute__((aligned(64)));

static struct leg unborn[LEGS] = {{.fd = UINT32_MAX}, {.fd = UINT32_MAX}, {.fd = UINT32_MAX}};
__thread struct leg *inflight_mine = unborn;

/* Slots are used from the first one on, so that a look need not go far. */
static struct slot *chunks[CHUNKS];
static uint32_t used; /* slots ever given out */
static uint32_t cursor;
static uint32_t uncounted;
static uint32_t looks;

static struct slot *chunk_of(unsigned i, bool make)
{
    struct slot *chunk = __atomic_load_n(&chunks[i], __ATOMIC_ACQUIRE);
    struct slot *none = NULL;
    size_t bytes = CHUNK_SLOTS * sizeof(struct slot);
    long p;

    if (chunk != NULL || !make)
        return chunk;
    p = rl_raw(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    if (p < 0 && p > -4096)
        return NULL;
    chunk = (struct slot *)p;
    if (__atomic_compare_exchange_n(&chunks[i], &none, chunk, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return chunk;
    rl_raw(SYS_munmap, p, bytes);
    return none;
}

static bool thread_lives(uint32_t tid)
{
    uint32_t pid = proc.pid != 0 ? proc.pid : (uint32_t)rl_raw(SYS_getpid);

    return rl_raw(SYS_tgkill, pid, tid, 0) == 0;
}

/* Takes a new slot, or that of a thread that is gone. */
static bool take(struct slot *slot, uint32_t tid)
{
    uint32_t owner = rl_load_32(&slot->tid);

    if (owner != 0 && owner != tid && thread_lives(owner))
        return false;
    if (!rl_cas_32(&slot->tid, &owner, tid))
        return false;
    for (int i = 0; i < LEGS; i++) /* its last call was never finished, and never will be */
        if (rl_load_32(&slot->leg[i].fd) != 0)
            inflight_land(&slot->leg[i]);
    return true;
}

static struct slot *slot_at(uint32_t i, bool make)
{
    struct slot *chunk = i < CHUNKS * CHUNK_SLOTS ? chunk_of(i / CHUNK_SLOTS, make) : NULL;

    return chunk != NULL ? &chunk[i % CHUNK_SLOTS] : NULL;
}

static struct slot *slot_for(uint32_t tid)
{
    uint32_t n = rl_load_32(&used);
    uint32_t probes = n < PROBES ? n : PROBES;
    struct slot *slot;

    for (uint32_t i = 0; i < probes; i++)
        if ((slot = slot_at(rl_add_32(&cursor, 1) % n, false)) != NULL && take(slot, tid))
            return slot;
    /* The number first: a look that misses this slot came before its first call. */
    while (n < CHUNKS * CHUNK_SLOTS)
        if (rl_cas_32(&used, &n, n + 1))
            return (slot = slot_at(n, true)) != NULL && take(slot, tid) ? slot : NULL;
    return NULL;
}

struct leg *inflight_begin_slowly(int fd)
{
    struct leg *leg = inflight_mine;

    if (leg == unborn) {
        struct slot *slot = slot_for((uint32_t)rl_raw(SYS_gettid));

        /* A handler may have come first meanwhile; its slot is as good, ours stays unused. */
        if (slot != NULL && inflight_mine == unborn)
            inflight_mine = slot->leg;
        leg = inflight_mine;
    }
    for (int i = 0; i < LEGS; i++)
        if (rl_load_32(&leg[i].fd) == 0) {
            rl_store_32(&leg[i].fd, (uint32_t)fd + 1);
            rl_fence();
            return &leg[i];
        }
    return inflight_begin_anywhere();
}

struct leg *inflight_begin_anywhere(void)
{
    rl_add_32(&uncounted, 1);
    return NULL;
}

void inflight_end_uncounted(void)
{
    rl_add_32(&uncounted, (uint32_t)-1);
}

bool inflight_barrier(void)
{
    /* Registered each time: a call that is nothing after the first, and a forked child starts
     * without. The global command is slow (it waits for every processor), and needs nothing. */
    if (rl_raw(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
        rl_raw(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
        return true;
    return rl_raw(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0;
}

uint32_t inflight_look(void)
{
    uint32_t look = ++looks != 0 ? looks : ++looks;
    uint32_t n = rl_load_32(&used);

    for (uint32_t i = 0; i < n; i++) {
        struct slot *slot = slot_at(i, false);

        for (int l = 0; slot != NULL && l < LEGS; l++) {
            uint32_t calls = rl_load_32(&slot->leg[l].calls);

            /* The call that the look before this one saw has ended since. One that began meanwhile
             * came after the barrier. */
            if (calls != slot->seen[l])
                slot->clear[l] = look - 1;
            slot->seen[l] = calls;
            if (rl_load_32(&slot->leg[l].fd) == 0)
                slot->clear[l] = look;
        }
    }
    return look;
}

/* Does this process's descriptor mean that inode? When it cannot be told, it may. */
static bool may_be(uint32_t fd, uint64_t dev, uint64_t ino)
{
    static const char directory[] = "/proc/self/fd/"; /* the program's table: evidence.c */
    char path[sizeof directory + 10];
    size_t at = sizeof directory - 1;
    char digits[10];
    int n = 0;
    struct stat st;

    memcpy(path, directory, at);
    do
        digits[n++] = (char)('0' + fd % 10);
    while ((fd /= 10) != 0);
    while (n > 0)
        path[at++] = digits[--n];
    path[at] = '\0';
    return rl_raw(SYS_newfstatat, AT_FDCWD, path, &st, 0) != 0 ||
           (st.st_dev == dev && st.st_ino == ino);
}

bool inflight_over(uint64_t dev, uint64_t ino, uint32_t since)
{
    uint32_t n = rl_load_32(&used);

    if (rl_load_32(&uncounted) != 0)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct slot *slot = slot_at(i, false);

        for (int l = 0; slot != NULL && l < LEGS; l++) {
            uint32_t fd = rl_load_32(&slot->leg[l].fd);

            if (fd != 0 && (int32_t)(slot->clear[l] - since) < 0 && may_be(fd - 1, dev, ino) &&
                thread_lives(rl_load_32(&slot->tid)))
                return false;
        }
    }
    return true;
}

void inflight_beside(const struct rl_inode *inode, struct inflight_view *view)
{
    uint32_t n = rl_load_32(&used);

    view->n = 0;
    for (uint32_t i = 0; i < n && view->n < INFLIGHT_VIEW; i++) {
        struct slot *slot = slot_at(i, false);
        uint32_t fd;

        if (slot == NULL || slot->leg == inflight_mine || (fd = rl_load_32(&slot->leg[0].fd)) == 0)
            continue;
        view->calls[view->n] = rl_load_32(&slot->leg[0].calls);
        if (file_inode((int)(fd - 1), false) == inode)
            view->leg[view->n++] = &slot->leg[0];
    }
}

bool inflight_moved(const struct inflight_view *view)
{
    for (unsigned i = 0; i < view->n; i++)
        if (rl_load_32(&view->leg[i]->fd) != 0 &&
            rl_load_32(&view->leg[i]->calls) == view->calls[i])
            return false;
    return true;
}

void inflight_wait(int fd)
{
    uint32_t n = rl_load_32(&used);
    uint64_t until_ns = rl_now_ns() + WAIT_MOST_NS;

    for (uint32_t i = 0; i < n; i++) {
        struct slot *slot = slot_at(i, false);

        for (int l = 0; slot != NULL && slot->leg != inflight_mine && l < LEGS; l++) {
            struct leg *leg = &slot->leg[l];
            uint32_t calls = rl_load_32(&leg->calls);

            while (rl_load_32(&leg->fd) == (uint32_t)fd + 1 && rl_load_32(&leg->calls) == calls &&
                   rl_now_ns() < until_ns && thread_lives(rl_load_32(&slot->tid)))
                rl_futex_wait(&leg->calls, calls, NAP_NS);
        }
    }
}

bool inflight_wait_inode(uint64_t dev, uint64_t ino)
{
    uint32_t n = rl_load_32(&used);
    uint64_t until_ns = rl_now_ns() + WAIT_MOST_NS;

    if (rl_load_32(&uncounted) != 0)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct slot *slot = slot_at(i, false);

        for (int l = 0; slot != NULL && slot->leg != inflight_mine && l < LEGS; l++) {
            struct leg *leg = &slot->leg[l];
            uint32_t calls = rl_load_32(&leg->calls);
            uint32_t fd = rl_load_32(&leg->fd);

            if (fd == 0 || !may_be(fd - 1, dev, ino))
                continue;
            while (rl_load_32(&leg->fd) == fd && rl_load_32(&leg->calls) == calls &&
                   thread_lives(rl_load_32(&slot->tid))) {
                if (rl_now_ns() > until_ns)
                    return false;
                rl_futex_wait(&leg->calls, calls, NAP_NS);
            }
        }
    }
    return true;
}

void inflight_forked(void)
{
    struct leg *mine = inflight_mine;

    uncounted = 0;
    for (uint32_t i = 0; i < used; i++) {
        struct slot *slot = slot_at(i, false);

        if (slot != NULL && slot->leg != mine)
            memset(slot, 0, sizeof *slot);
    }
    if (mine != unborn)
        ((struct slot *)(void *)mine)->tid = (uint32_t)rl_raw(SYS_gettid);
}
