/* SPDX-License-Identifier: MIT */
/*
 * name_table: see name_table.h.
 *
 * A slot's state moves FREE -> FILLING -> RUNNING -> FREE, and its generation with each flight. Its
 * key is written only while FILLING, under the table's lock; readers compare it and then look at
 * the state again.
 */
#include "name_table.h"

#include <string.h>

#include "brief_lock.h"

#define PHASE      3u
#define FREE       0u
#define FILLING    1u
#define RUNNING    2u
#define SLEEPERS   4u
#define GENERATION 8u

#define LOST_MS (RL_NAME_WAIT_NS / 1000000u)

static uint32_t now_ms(void)
{
    return (uint32_t)(rl_now_ns() / 1000000u);
}

static uint64_t word_of(const struct rl_name_key *key, uint32_t i)
{
    uint32_t left = key->bytes - i * 8;
    uint64_t word = 0;

    memcpy(&word, key->name + (size_t)i * 8, left < 8 ? left : 8);
    return word;
}

static uint32_t words_of(const struct rl_name_key *key)
{
    return (key->bytes + 7) / 8;
}

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0xff51afd7ed558ccdu;
    return h ^ h >> 32;
}

static struct rl_name_slot *set_of(struct rl_name_table *t, const struct rl_name_key *key)
{
    uint64_t h = mix(mix(mix(key->bytes, key->dev), key->ino), key->mount);

    for (uint32_t i = 0; i < words_of(key); i++)
        h = mix(h, word_of(key, i));
    return &t->slot[(h >> 40) % RL_NAME_SETS * RL_NAME_WAYS];
}

static bool same(const struct rl_name_slot *slot, const struct rl_name_key *key)
{
    if (RL_MUTANT(52))
        return true;
    if (rl_load_64(&slot->bytes) != key->bytes || rl_load_64(&slot->ino) != key->ino ||
        rl_load_64(&slot->dev) != key->dev || rl_load_64(&slot->mount) != key->mount)
        return false;
    for (uint32_t i = 0; i < words_of(key); i++)
        if (rl_load_64(&slot->name[i]) != word_of(key, i))
            return false;
    return true;
}

/* A leader that takes longer is not waited for, so its slot may as well be another's. */
static bool lost(const struct rl_name_slot *slot)
{
    uint32_t ms = now_ms() - rl_load_32(&slot->began_ms);

    return ms >= LOST_MS && ms < UINT32_MAX / 2 && !RL_MUTANT(53);
}

/* The running flight of this name. */
static struct rl_name_slot *find(struct rl_name_slot *set, const struct rl_name_key *key,
                                 uint32_t *state)
{
    for (int way = 0; way < RL_NAME_WAYS; way++) {
        *state = rl_load_32(&set[way].state) & ~SLEEPERS;
        if ((*state & PHASE) != RUNNING || !same(&set[way], key))
            continue;
        rl_fence_load(); /* the key before the state that vouches for it; pairs with fill's stores
                          */
        if ((rl_load_32(&set[way].state) & ~SLEEPERS) == *state && !lost(&set[way]))
            return &set[way];
    }
    return NULL;
}

/* state -> next, and wakes those who slept on state. False: it was no longer that. */
static bool change(struct rl_name_slot *slot, uint32_t state, uint32_t next)
{
    uint32_t seen = rl_load_32(&slot->state);

    while ((seen & ~SLEEPERS) == state)
        if (rl_cas_32(&slot->state, &seen, next)) {
            if ((seen & SLEEPERS) != 0 && !RL_MUTANT(54))
                rl_futex_wake(&slot->state, INT32_MAX);
            return true;
        }
    return false;
}

/* The table's lock is held. */
static bool fill(struct rl_name_slot *set, const struct rl_name_key *key, uint64_t self,
                 struct rl_name_flight *flight)
{
    for (int way = 0; way < RL_NAME_WAYS; way++) {
        struct rl_name_slot *slot = &set[way];
        uint32_t state = rl_load_32(&slot->state) & ~SLEEPERS;
        uint32_t next = (state & ~PHASE) + GENERATION;

        /* FILLING under our lock: its filler's lock was stolen, and it may yet come back. */
        if ((state & PHASE) == FILLING || ((state & PHASE) == RUNNING && !lost(slot)) ||
            !change(slot, state, next | FILLING))
            continue;
        rl_store_64(&slot->leader, self);
        rl_store_32(&slot->began_ms, now_ms());
        rl_store_64(&slot->dev, key->dev);
        rl_store_64(&slot->ino, key->ino);
        rl_store_64(&slot->mount, key->mount);
        rl_store_64(&slot->bytes, key->bytes);
        for (uint32_t i = 0; i < words_of(key); i++)
            rl_store_64(&slot->name[i], word_of(key, i));
        rl_store_32(&slot->state, next | RUNNING);
        flight->slot = slot;
        flight->state = next | RUNNING;
        return true;
    }
    return false;
}

enum rl_name_role rl_name_join(struct rl_name_table *t, const struct rl_name_key *key,
                               uint64_t self, struct rl_name_flight *flight)
{
    enum rl_name_role role = RL_NAME_NONE;
    struct rl_name_slot *set;
    uint32_t state, lock;

    flight->slot = NULL;
    if (key->bytes == 0 || key->bytes > RL_NAME_BYTES_MAX)
        return RL_NAME_NONE;
    set = set_of(t, key);
    flight->slot = find(set, key, &state);
    if (flight->slot == NULL) {
        lock = rl_brief_take(&t->lock);
        if (lock == 0)
            return RL_NAME_NONE;
        if (!RL_MUTANT(55))
            flight->slot = find(set, key, &state);
        if (flight->slot == NULL && fill(set, key, self, flight))
            role = RL_NAME_LEADER;
        rl_brief_drop(&t->lock, lock);
    }
    if (role == RL_NAME_NONE && flight->slot != NULL) {
        flight->state = state;
        if (rl_load_64(&flight->slot->leader) == self && !RL_MUTANT(56))
            flight->slot = NULL;
        else
            role = RL_NAME_WAITER;
    }
    return role;
}

bool rl_name_wait(const struct rl_name_flight *flight, uint64_t limit_ns)
{
    uint64_t end_ns = rl_now_ns() + limit_ns;

    for (;;) {
        uint32_t seen = rl_load_32(&flight->slot->state);
        uint64_t now_ns = rl_now_ns();

        if ((seen & ~SLEEPERS) != flight->state)
            return true;
        if (now_ns >= end_ns)
            return false;
        if ((seen & SLEEPERS) == 0 && !rl_cas_32(&flight->slot->state, &seen, seen | SLEEPERS))
            continue;
        rl_futex_wait(&flight->slot->state, flight->state | SLEEPERS, end_ns - now_ns);
    }
}

void rl_name_end(struct rl_name_flight *flight)
{
    if (flight->slot == NULL)
        return;
    change(flight->slot, flight->state, (flight->state & ~PHASE) | FREE);
    flight->slot = NULL;
}
