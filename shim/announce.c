/* SPDX-License-Identifier: MIT */
/* announce: see announce.h. Fences: every change of a slot, of writing_anywhere and of putting is a
 * read-modify-write, which is a full barrier; each side changes its own before it looks at the
 * other's. */
#include "announce.h"
#include "settle.h"

#define WAIT_YIELDS 20
#define WAIT_NAPS   20 /* of NAP_NS: then the punch was jumped out of, or we interrupted it */
#define NAP_NS      1000000u
#define NOBODY      (-2)

/* Not below zero: the entry may have been given to another inode since. */
static void count_down(uint32_t *n)
{
    uint32_t seen = rl_load_32(n);

    while (seen != 0 && !rl_cas_32(n, &seen, seen - 1))
        ;
}

static void wait_for_puts(struct rl_inode *inode, struct file_state *fs)
{
    uint32_t putting;

    for (int i = 0; (putting = rl_load_32(&fs->putting)) != 0; i++) {
        if (i < WAIT_YIELDS) {
            rl_raw(SYS_sched_yield);
        } else if (i < WAIT_YIELDS + WAIT_NAPS) {
            rl_futex_wait(&fs->putting, putting, NAP_NS);
        } else {
            /* A closed table takes nothing. Waiting for it to be drained is for others: we may be
             * what its end waits for (tail.h). */
            if (rl_table_close(&inode->table, rl_load_32(&inode->table.act)))
                stat_add(STAT_evidence_ended, 1);
            rl_store_32(&fs->putting, 0);
        }
    }
}

void announce(struct announcement *a, struct rl_inode *inode, const struct rl_span *range)
{
    struct file_state *fs = file_state(inode);

    a->fs = fs;
    a->packed = range != NULL ? rl_range_pack(range->start, range->end) : 0;
    for (a->slot = 0; a->packed != 0 && a->slot < FILE_WRITING; a->slot++) {
        uint64_t none = 0;

        if (rl_cas_64(&fs->writing[a->slot], &none, a->packed))
            break;
    }
    if (a->packed == 0 || a->slot == FILE_WRITING) {
        a->slot = -1;
        rl_add_32(&fs->writing_anywhere, 1);
    }
    if (unlikely(rl_load_32(&fs->putting) != 0))
        wait_for_puts(inode, fs);
}

void announce_over(struct announcement *a)
{
    if (a->fs == NULL)
        return;
    if (a->slot >= 0)
        rl_cas_64(&a->fs->writing[a->slot], &a->packed, 0);
    else
        count_down(&a->fs->writing_anywhere);
    a->fs = NULL;
}

/* Does any announcement meet [start, end), but that in slot `but`, of which -1 is one anywhere? */
static bool meets(const struct file_state *fs, uint64_t start, uint64_t end, int but)
{
    if (rl_load_32(&fs->writing_anywhere) != (but == -1 ? 1u : 0u))
        return true;
    for (int i = 0; i < FILE_WRITING; i++) {
        uint64_t packed = i != but ? rl_load_64(&fs->writing[i]) : 0;

        if (packed != 0 && rl_range_unpack(packed).start < end &&
            rl_range_unpack(packed).end > start)
            return true;
    }
    return false;
}

bool announce_clear(const struct announcement *mine, uint64_t start, uint64_t end)
{
    return !meets(mine->fs, start, end, mine->slot);
}

bool announce_alone(const struct announcement *mine)
{
    return announce_clear(mine, 0, RL_FOREVER);
}

bool announce_put_begins(struct file_state *fs, uint64_t start, uint64_t end)
{
    rl_add_32(&fs->putting, 1);
    if (likely(!meets(fs, start, end, NOBODY)))
        return true;
    announce_put_ends(fs);
    return false;
}

void announce_put_ends(struct file_state *fs)
{
    count_down(&fs->putting);
}
