/* SPDX-License-Identifier: MIT */
/* leftover: see leftover.h. Runs in a process without libc. */
#include "leftover.h"
#include "range_table_impl.h"

struct heap {
    struct rl_span *span;
    size_t n, cap;
};

static void add(struct heap *h, uint64_t start, uint64_t end)
{
    if (start < end && end <= RL_FOREVER && h->n < h->cap)
        h->span[h->n++] = (struct rl_span){start, end};
}

static void add_list(const struct rl_pool *pool, uint32_t capacity, rl_head head, uint32_t act,
                     struct heap *h)
{
    uint32_t index = rl_head_index(head);
    uint32_t steps = capacity;

    while (index != 0 && index < capacity && steps-- > 0) {
        const struct rl_node *node = &pool->node[index];

        if ((rl_load_32(&node->act) ^ act) >> 2 == 0 || RL_MUTANT(77))
            add(h, rl_load_64(&node->start), rl_load_64(&node->end));
        index = rl_load_32(&node->next);
    }
}

static void sift(struct rl_span *s, size_t at, size_t n)
{
    struct rl_span moved = s[at];
    size_t child;

    while ((child = 2 * at + 1) < n) {
        if (child + 1 < n && s[child + 1].start > s[child].start)
            child++;
        if (s[child].start <= moved.start)
            break;
        s[at] = s[child];
        at = child;
    }
    s[at] = moved;
}

static void sort(struct rl_span *s, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift(s, i, n);
    for (size_t left = n; left > 1; left--) {
        struct rl_span last = s[left - 1];

        s[left - 1] = s[0];
        s[0] = last;
        sift(s, 0, left - 1);
    }
}

static size_t merge(struct rl_span *s, size_t n)
{
    size_t to = 0;

    for (size_t i = 1; i < n; i++) {
        if (s[i].start > s[to].end + (RL_MUTANT(79) ? RL_BLOCK : 0))
            s[++to] = s[i];
        else if (s[i].end > s[to].end)
            s[to].end = s[i].end;
    }
    return n == 0 ? 0 : to + 1;
}

size_t rl_leftover(const struct rl_table *t, const struct rl_pool *pool, uint32_t capacity,
                   struct rl_span *out, size_t cap)
{
    struct heap h = {.span = out, .cap = cap};
    uint32_t act = rl_load_32(&t->act);
    uint32_t state = act & RL_ACT_STATE;

    if (state != RL_ACT_ON && state != RL_ACT_DRAINING && !RL_MUTANT(78))
        return 0;
    for (int i = 0; i < RL_TAILS; i++) {
        uint64_t tail = rl_load_64(&t->tail[i]);

        if (tail != 0 && rl_tail_is_of(tail, act) && !RL_MUTANT(75))
            add(&h, rl_unpack(tail).start, rl_unpack(tail).end);
    }
    if (!RL_MUTANT(76))
        add_list(pool, capacity, rl_load_64(&t->wide), act, &h);
    for (int i = 0; i < RL_CLASSES; i++)
        add_list(pool, capacity, rl_load_64(&t->list[i]), act, &h);
    sort(out, h.n);
    return merge(out, h.n);
}
