/* SPDX-License-Identifier: MIT */
/* inode_table: see inode_table.h. */
#include "inode_table.h"

#include "brief_lock.h"

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
        if (*gen == 0 || ((*gen & 1) != 0 && !RL_MUTANT(31)))
            continue;
        if (rl_load_64(&i->ino) != ino || rl_load_64(&i->dev) != dev)
            continue;
        rl_fence_load(); /* the key before the generation that vouches for it; pairs with
                          * key_change's stores */
        if (rl_load_32(&i->gen) == *gen)
            return i;
    }
    return NULL;
}

/* 0: somebody whose lock was stolen is at it, or was and is gone; then the way is lost, which is
 * better than a key made of two. */
static uint32_t key_change(struct rl_inode *i, uint64_t dev, uint64_t ino)
{
    uint32_t gen = rl_load_32(&i->gen);

    if ((gen & 1) != 0 || !rl_cas_32(&i->gen, &gen, gen + 1)) /* odd: look-ups pass by */
        return 0;
    rl_store_64(&i->dev, dev);
    rl_store_64(&i->ino, ino);
    rl_store_32(&i->flags, 0);
    gen = gen + 2 != 0 ? gen + 2 : 2; /* 0 is "never used" */
    rl_store_32(&i->gen, gen);
    return gen;
}

static bool evictable(const struct rl_inode *i)
{
    return (rl_load_32(&i->gen) & 1) == 0 &&
           ((rl_load_32(&i->table.act) & RL_ACT_STATE) == RL_ACT_OFF || RL_MUTANT(33)) &&
           (rl_gate_idle(&i->gate) || RL_MUTANT(34)) && rl_flight_idle(&i->flight);
}

struct rl_inode *rl_inode_get(struct rl_inode_table *t, uint64_t dev, uint64_t ino, uint32_t *gen)
{
    struct rl_inode *set = set_of(t, dev, ino);
    struct rl_inode *victim = NULL;
    struct rl_inode *found = rl_inode_find(t, dev, ino, gen);
    uint32_t lock;

    if (found != NULL || (lock = rl_brief_take(&t->lock)) == 0)
        return found;
    if (!RL_MUTANT(35))
        found = rl_inode_find(t, dev, ino, gen);
    for (int way = 0; found == NULL && way < RL_INODE_WAYS; way++) {
        uint32_t g = rl_load_32(&set[way].gen);

        /* Never used first, then the idle one that was filled the fewest times: a cheap
         * approximation of "oldest" that needs no clock on the look-up path. */
        if (evictable(&set[way]) && (victim == NULL || g < rl_load_32(&victim->gen)))
            victim = &set[way];
    }
    if (found == NULL && victim != NULL) {
        *gen = key_change(victim, dev, ino);
        found = *gen != 0 ? victim : NULL;
    }
    rl_brief_drop(&t->lock, lock);
    return found;
}
