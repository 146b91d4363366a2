/* SPDX-License-Identifier: MIT */
/* flight: see flight.h. */
#include <fcntl.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/mman.h>

#include "file.h"
#include "flight.h"

#define LEGS        3 /* a copy's two files, and a call that a handler makes inside */
#define CHUNK_SLOTS 1024u
#define CHUNKS      64u
#define PROBES      16u /* slots tried one after the other, before those of dead threads */

struct slot {
    struct leg leg[LEGS];
    uint32_t tid; /* owner, 0 never had one */
    /* Worker only. */
    uint32_t seen[LEGS]; /* calls as of the last look */
    uint32_t
        clear[LEGS]; /* number of the last look at or after which no call seen by it was left */
} __attribute__((aligned(64)));

static struct leg unborn[LEGS] = {{.fd = UINT32_MAX}, {.fd = UINT32_MAX}, {.fd = UINT32_MAX}};
__thread struct leg *flight_mine = unborn;

static struct slot *chunks[CHUNKS];
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
    return rl_raw(SYS_tgkill, (uint32_t)rl_raw(SYS_getpid), tid, 0) == 0;
}

/* Takes a free slot, or that of a thread that is gone. */
static bool take(struct slot *slot, uint32_t tid, bool look_for_dead)
{
    uint32_t owner = rl_load_32(&slot->tid);

    if (owner != 0 && owner != tid && (!look_for_dead || thread_lives(owner)))
        return false;
    if (!rl_cas_32(&slot->tid, &owner, tid))
        return false;
    for (int i = 0; i < LEGS; i++) /* its last call was never finished, and never will be */
        if (rl_load_32(&slot->leg[i].fd) != 0)
            flight_land(&slot->leg[i]);
    return true;
}

static struct slot *slot_for(uint32_t tid)
{
    for (unsigned c = 0; c < CHUNKS; c++) {
        struct slot *chunk = chunk_of(c, true);

        if (chunk == NULL)
            return NULL;
        for (unsigned begin = 0; begin < CHUNK_SLOTS; begin += PROBES)
            for (int dead = 0; dead < 2; dead++)
                for (unsigned i = 0; i < PROBES; i++) {
                    struct slot *slot = &chunk[(tid + begin + i) % CHUNK_SLOTS];

                    if (take(slot, tid, dead != 0))
                        return slot;
                }
    }
    return NULL;
}

struct leg *flight_begin_slowly(int fd)
{
    struct leg *leg = flight_mine;

    if (leg == unborn) {
        struct slot *slot = slot_for((uint32_t)rl_raw(SYS_gettid));

        /* A handler may have come first meanwhile; its slot is as good, ours stays unused. */
        if (slot != NULL && flight_mine == unborn)
            flight_mine = slot->leg;
        leg = flight_mine;
    }
    for (int i = 0; i < LEGS; i++)
        if (rl_load_32(&leg[i].fd) == 0) {
            rl_store_32(&leg[i].fd, (uint32_t)fd + 1);
            rl_fence();
            return &leg[i];
        }
    return flight_begin_anywhere();
}

struct leg *flight_begin_anywhere(void)
{
    rl_add_32(&uncounted, 1);
    return NULL;
}

void flight_end_uncounted(void)
{
    rl_add_32(&uncounted, (uint32_t)-1);
}

bool flight_barrier(void)
{
    /* Registered each time: a call that is nothing after the first, and a forked child starts
     * without. The global command is slow (it waits for every processor), and needs nothing. */
    if (rl_raw(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
        rl_raw(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
        return true;
    return rl_raw(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0;
}

uint32_t flight_look(void)
{
    uint32_t look = ++looks != 0 ? looks : ++looks;

    for (unsigned c = 0; c < CHUNKS; c++) {
        struct slot *chunk = chunk_of(c, false);

        for (unsigned i = 0; chunk != NULL && i < CHUNK_SLOTS; i++) {
            struct slot *slot = &chunk[i];

            if (rl_load_32(&slot->tid) == 0)
                continue;
            for (int l = 0; l < LEGS; l++) {
                uint32_t calls = rl_load_32(&slot->leg[l].calls);

                /* The call that the look before this one saw has ended since. One that began
                 * meanwhile came after the barrier. */
                if (calls != slot->seen[l])
                    slot->clear[l] = look - 1;
                slot->seen[l] = calls;
                if (rl_load_32(&slot->leg[l].fd) == 0)
                    slot->clear[l] = look;
            }
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

bool flight_over(uint64_t dev, uint64_t ino, uint32_t since)
{
    if (rl_load_32(&uncounted) != 0)
        return false;
    for (unsigned c = 0; c < CHUNKS; c++) {
        struct slot *chunk = chunk_of(c, false);

        for (unsigned i = 0; chunk != NULL && i < CHUNK_SLOTS; i++)
            for (int l = 0; l < LEGS; l++) {
                struct slot *slot = &chunk[i];
                uint32_t fd = rl_load_32(&slot->leg[l].fd);

                if (fd == 0 || (int32_t)(slot->clear[l] - since) >= 0 || !may_be(fd - 1, dev, ino))
                    continue;
                if (thread_lives(rl_load_32(&slot->tid)))
                    return false;
            }
    }
    return true;
}

void flight_forked(void)
{
    struct leg *mine = flight_mine;

    uncounted = 0;
    for (unsigned c = 0; c < CHUNKS; c++)
        for (unsigned i = 0; chunks[c] != NULL && i < CHUNK_SLOTS; i++)
            if (chunks[c][i].tid != 0 && chunks[c][i].leg != mine)
                memset(&chunks[c][i], 0, sizeof chunks[c][i]);
    if (mine != unborn)
        ((struct slot *)(void *)mine)->tid = (uint32_t)rl_raw(SYS_gettid);
}
