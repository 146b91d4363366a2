/* SPDX-License-Identifier: MIT */
/*
 * queue: range_table.h for users of the library: one table with its pool, and a way to wake the
 * consumer. See include/rlshim/range_lock.h.
 */
#include "../include/rlshim/range_lock.h"
#include "gate.h"
#include "range_table.h"

#define SLICE_NS 100000000u /* nobody sleeps longer without looking */
#define POLL_NS  1000000u   /* a look that is no answer; a stretch that could not be applied */

struct rl_queue {
    struct rl_table table;
    uint32_t asked; /* futex: moves when the consumer has something to do at once */
    uint32_t pad;
    struct rl_pool pool;
};

_Static_assert(sizeof(struct rl_queue_span) == sizeof(struct rl_span), "the same");

static uint64_t until(uint64_t deadline_ns, uint64_t most_ns)
{
    uint64_t now_ns = deadline_ns == UINT64_MAX ? 0 : rl_now_ns();

    if (now_ns >= deadline_ns)
        return 0;
    return deadline_ns - now_ns < most_ns ? deadline_ns - now_ns : most_ns;
}

static void ask(struct rl_queue *q)
{
    rl_add_32(&q->asked, 1);
    rl_futex_wake(&q->asked, 1);
}

size_t rl_queue_bytes(uint32_t ranges)
{
    return sizeof(struct rl_queue) + ((size_t)ranges + RL_POOL_SPARE + 1) * sizeof(struct rl_node);
}

struct rl_queue *rl_queue_make(void *memory, uint32_t ranges)
{
    struct rl_queue *q = memory;

    q->pool.limit = ranges;
    q->pool.capacity = ranges + RL_POOL_SPARE + 1;
    rl_drain_open(&q->table, &q->pool);
    return q;
}

int rl_queue_add(struct rl_queue *q, uint64_t start, uint64_t end)
{
    bool first = rl_load_64(&q->table.first_ns) == 0;

    if (start >= end)
        return -EINVAL;
    switch (rl_table_put(&q->table, &q->pool, rl_load_32(&q->table.act), start,
                         end < RL_FOREVER ? end : RL_FOREVER, rl_now_ns())) {
    case RL_PUT_CLOSED:
        return -ESHUTDOWN;
    case RL_PUT_FULL:
        ask(q);
        return -ENOSPC;
    default:
        if (first)
            ask(q); /* its delay begins */
        return 0;
    }
}

bool rl_queue_maybe(const struct rl_queue *q, uint64_t start, uint64_t end)
{
    return rl_table_maybe(&q->table, start, end);
}

int rl_queue_look(struct rl_queue *q, uint64_t start, uint64_t end, struct rl_queue_span *out,
                  int cap, uint64_t *stamp)
{
    int n;

    if (stamp != NULL)
        *stamp = rl_table_stamp(&q->table, start, end);
    n = rl_table_overlaps(&q->table, &q->pool, start, end, (struct rl_span *)out, cap);
    return n < 0 ? -EAGAIN : n;
}

int rl_queue_settle(struct rl_queue *q, uint64_t start, uint64_t end, uint64_t deadline_ns)
{
    struct rl_span one;

    for (;;) {
        uint32_t seen = rl_load_32(&q->table.done_seq);
        uint64_t slice_ns;

        if (!rl_table_maybe(&q->table, start, end) ||
            rl_table_overlaps(&q->table, &q->pool, start, end, &one, 1) == 0)
            return 0;
        slice_ns = until(deadline_ns, SLICE_NS);
        if (slice_ns == 0)
            return -ETIMEDOUT;
        rl_table_want(&q->table, start, end);
        ask(q);
        rl_futex_wait(&q->table.done_seq, seen, slice_ns);
    }
}

static bool is_wanted(const struct rl_queue *q)
{
    if (rl_load_32(&q->table.want_all) != 0)
        return true;
    for (int i = 0; i < RL_WANTS; i++)
        if (rl_load_64(&q->table.want[i]) != 0)
            return true;
    return false;
}

int rl_queue_wait(struct rl_queue *q, uint64_t delay_ns, uint64_t deadline_ns)
{
    for (;;) {
        uint32_t seen = rl_load_32(&q->asked);
        uint64_t first_ns = rl_load_64(&q->table.first_ns);
        uint64_t due_ns = first_ns == 0 ? deadline_ns : first_ns + delay_ns;
        uint64_t slice_ns;

        if (is_wanted(q) || (first_ns != 0 && rl_now_ns() >= due_ns))
            return 0;
        slice_ns = until(deadline_ns, SLICE_NS);
        if (slice_ns == 0)
            return -ETIMEDOUT;
        if (first_ns != 0)
            slice_ns = until(due_ns, slice_ns);
        if (slice_ns != 0)
            rl_futex_wait(&q->asked, seen, slice_ns);
    }
}

uint64_t rl_queue_apply(struct rl_queue *q, uint64_t call_max,
                        int (*apply)(void *arg, uint64_t start, uint64_t end), void *arg)
{
    struct rl_span s;
    uint64_t none = 0;
    uint64_t n = 0;
    bool failed = false;

    rl_drain_begin(&q->table, &q->pool);
    /* After a failure only what is in the pass: what is wanted would be given again and again. */
    while ((!failed && rl_drain_next_wanted(&q->table, &q->pool, call_max, &s)) ||
           rl_drain_next(&q->table, &q->pool, call_max, &s)) {
        if (apply(arg, s.start, s.end) == 0) {
            rl_drain_applied(&q->table, &q->pool, &s);
            n++;
        } else {
            rl_drain_postponed(&q->table, &q->pool, &s);
            failed = true;
        }
    }
    rl_drain_end(&q->table);
    if (failed)
        rl_cas_64(&q->table.first_ns, &none,
                  rl_now_ns()); /* in no pass now: its delay begins again */
    return n;
}

void rl_queue_close(struct rl_queue *q, uint64_t call_max,
                    int (*apply)(void *arg, uint64_t start, uint64_t end), void *arg)
{
    rl_table_close(&q->table, rl_load_32(&q->table.act));
    for (;;) {
        uint32_t seen = rl_load_32(&q->asked);

        if (rl_drain_close(&q->table) || (rl_load_32(&q->table.act) & RL_ACT_STATE) == RL_ACT_OFF)
            return;
        if (rl_queue_apply(q, call_max, apply, arg) == 0 && !rl_table_empty(&q->table))
            rl_futex_wait(&q->asked, seen, POLL_NS);
    }
}
