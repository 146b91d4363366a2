/* SPDX-License-Identifier: MIT */
/* inode_table: see inode_table.h. */
#include "inode_table.h"

#define LOCK_STEAL_MS 1000u /* an inserter works for nanoseconds: after this it is gone */
#define LOCK_SPINS    2000

static struct rl_inode *set_of(struct rl_inode_table *t, uint64_t dev, uint64_t ino)
{
    uint64_t h = (ino ^ dev * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;

    return &t->inode[(h >> 40) % RL_INODE_SETS * RL_INODE_WAYS];
}

struct rl_inode *rl_inode_find(struct rl_inode_table *t, uint64_t dev, uint64_t ino, uint32_t *gen)
{
    struct rl_inode *set = set_of(t, dev, ino);

    for (int way = 0; way < RL_INODE_WAYS; way++) {
        struct rl_inode *i = &set[way];

        *gen = rl_load_32(&i->gen);
        if (*gen == 0 || (*gen & 1) != 0 || rl_load_64(&i->ino) != ino || rl_load_64(&i->dev) != dev)
            continue;
        rl_fence_load(); /* the key before the generation that vouches for it; pairs with
                          * key_change's stores */
        if (rl_load_32(&i->gen) == *gen)
            return i;
    }
    return NULL;
}

static bool lock_take(struct rl_inode_table *t)
{
    uint32_t now = (uint32_t)(rl_now_ns() / 1000000u) | 1;

    for (int spin = 0; spin < LOCK_SPINS; spin++) {
        uint32_t seen = 0;

        if (rl_cas_32(&t->lock, &seen, now))
            return true;
        if (now - seen > LOCK_STEAL_MS && now - seen < UINT32_MAX / 2)
            rl_cas_32(&t->lock, &seen, 0);
        else if (spin % 64 == 63)
            rl_raw(SYS_sched_yield);
    }
    return false;
}

static void key_change(struct rl_inode *i, uint64_t dev, uint64_t ino)
{
    rl_add_32(&i->gen, 1); /* odd: look-ups pass by */
    rl_store_64(&i->dev, dev);
    rl_store_64(&i->ino, ino);
    rl_store_32(&i->flags, 0);
    rl_add_32(&i->gen, 1);
}

static bool evictable(const struct rl_inode *i)
{
    return (rl_load_32(&i->table.act) & RL_ACT_STATE) == RL_ACT_OFF && rl_gate_idle(&i->gate);
}

struct rl_inode *rl_inode_get(struct rl_inode_table *t, uint64_t dev, uint64_t ino, uint32_t *gen)
{
    struct rl_inode *set = set_of(t, dev, ino);
    struct rl_inode *victim = NULL;
    struct rl_inode *found = rl_inode_find(t, dev, ino, gen);

    if (found != NULL || !lock_take(t))
        return found;
    found = rl_inode_find(t, dev, ino, gen);
    for (int way = 0; found == NULL && way < RL_INODE_WAYS; way++) {
        uint32_t g = rl_load_32(&set[way].gen);

        /* Never used first, then the idle one that was filled the fewest times: a cheap
         * approximation of "oldest" that needs no clock on the look-up path. */
        if (evictable(&set[way]) && (victim == NULL || g < rl_load_32(&victim->gen)))
            victim = &set[way];
    }
    if (found == NULL && victim != NULL) {
        key_change(victim, dev, ino);
        *gen = rl_load_32(&victim->gen);
        found = victim;
    }
    rl_store_32(&t->lock, 0);
    return found;
}
