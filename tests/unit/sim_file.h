/* SPDX-License-Identifier: MIT */
/*
 * sim_file: a file of a few cells, and the reader, writer, puncher and consumer of range_table.h on
 * it, word for word as that header tells them to behave. Each cell stands for the block at its
 * offset. For tests built on interleave.h; every effect on a cell is a step of its own.
 */
#ifndef TESTS_SIM_FILE_H
#define TESTS_SIM_FILE_H

#include <string.h>

#define SIM_NODES 64
#define SIM_CELLS 4
#define UNUSED    __attribute__((unused)) /* by one of the tests */
#define BLK       4096u
#define MIB       (1u << 20)

static struct {
    struct rl_table t;
    uint64_t at[SIM_CELLS]; /* offset of each cell's block */
    uint64_t cell[SIM_CELLS];
    union {
        struct rl_pool pool;
        char bytes[sizeof(struct rl_pool) + SIM_NODES * sizeof(struct rl_node)];
    } u;
} sim;

#define T    (&sim.t)
#define POOL (&sim.u.pool)

static void sim_reset(void)
{
    memset(&sim, 0, sizeof sim);
    POOL->capacity = SIM_NODES;
    POOL->limit = SIM_NODES - 32;
    for (int i = 0; i < SIM_CELLS; i++) {
        sim.at[i] = (uint64_t)i * BLK;
        sim.cell[i] = 1; /* what was there before everything */
    }
    rl_drain_open(T, POOL);
}

static uint32_t sim_act(void)
{
    return rl_load_32(&T->act);
}

static bool meets(uint64_t at, const struct rl_span *s)
{
    return s->start < at + BLK && s->end > at;
}

static void sim_kernel_punch(struct rl_span s)
{
    for (int i = 0; i < SIM_CELLS; i++)
        if (meets(sim.at[i], &s)) {
            il_step();
            sim.cell[i] = 0;
        }
}

/* A punch as the application makes it: queued if the table takes it, else made at once. */
static enum rl_put sim_punch(uint32_t act, uint64_t start, uint64_t end)
{
    enum rl_put put = rl_table_put(T, POOL, act, start, end, 7);

    if (put == RL_PUT_CLOSED || put == RL_PUT_FULL)
        sim_kernel_punch((struct rl_span){start, end});
    return put;
}

static int sim_overlaps(uint64_t start, uint64_t end, struct rl_span *out, int cap)
{
    return rl_table_overlaps(T, POOL, start, end, out, cap);
}

static void sim_wait_clear(uint64_t start, uint64_t end)
{
    struct rl_span out[SIM_NODES];

    while (sim_overlaps(start, end, out, SIM_NODES) != 0) {
        rl_table_want(T, start, end);
        il_wait();
    }
}

UNUSED static void sim_write(int cell, uint64_t value)
{
    uint64_t start = sim.at[cell];

    sim_wait_clear(start, start + BLK);
    il_step();
    sim.cell[cell] = value;
    sim_wait_clear(start, start + BLK);
}

/* Looks at cells `a` and `b` as one read of everything between them. Its pread is one step. */
static void sim_read2(int a, int b, uint64_t seen[2], void (*stage)(void))
{
    struct rl_span before[SIM_NODES], after[SIM_NODES];
    uint64_t start = sim.at[a], end = sim.at[b] + BLK;

    for (;;) {
        uint64_t stamp = rl_table_stamp(T, start, end);
        int n = sim_overlaps(start, end, before, SIM_NODES);

        if (n < 0) {
            il_wait();
            continue;
        }
        if (stage != NULL)
            stage();
        il_step();
        seen[0] = sim.cell[a];
        seen[1] = sim.cell[b];
        if (stage != NULL)
            stage();
        if (rl_table_stamp(T, start, end) != stamp ||
            sim_overlaps(start, end, after, SIM_NODES) != n ||
            memcmp(before, after, (size_t)n * sizeof *before) != 0)
            continue;
        for (int i = 0; i < n; i++) {
            if (meets(sim.at[a], &before[i]))
                seen[0] = 0;
            if (meets(sim.at[b], &before[i]))
                seen[1] = 0;
        }
        return;
    }
}

UNUSED static uint64_t sim_read(int cell)
{
    uint64_t seen[2];

    sim_read2(cell, cell, seen, NULL);
    return seen[0];
}

/* A read by a bystander between two stretches; false if the table could not tell just now. */
UNUSED static bool sim_peek(int cell, uint64_t *value)
{
    struct rl_span out[SIM_NODES];
    uint64_t start = sim.at[cell];
    int n = sim_overlaps(start, start + BLK, out, SIM_NODES);

    *value = n > 0 ? 0 : sim.cell[cell];
    return n >= 0;
}

static void sim_apply_out(struct rl_span s)
{
    sim_kernel_punch(s);
    rl_drain_applied(T, POOL, &s);
}

static void sim_wants(void)
{
    struct rl_span s;

    while (rl_drain_next_wanted(T, POOL, 8 * MIB, &s))
        sim_apply_out(s);
}

static void sim_pass(void)
{
    struct rl_span s;

    rl_drain_begin(T, POOL);
    while (rl_drain_next(T, POOL, 8 * MIB, &s))
        sim_apply_out(s);
    rl_drain_end(T);
}

/* Everything that is queued is applied, whoever put it. */
UNUSED static void sim_drain(void)
{
    for (int i = 0; i < 16 && !rl_table_empty(T); i++) {
        sim_wants();
        sim_pass();
    }
}

static inline void sim_close_and_drain(void)
{
    rl_table_close(T, sim_act());
    for (int i = 0; i < 16 && !rl_drain_close(T); i++)
        sim_pass();
}

/* --- what several tests begin with or look for --- */

static uint32_t act_then; /* the activation word a late putter still believes in */

static inline void setup_tail_queued(void)
{
    sim_reset();
    sim.at[1] = 2 * MIB;
    act_then = sim_act();
    sim_punch(act_then, 0, BLK);
}

static inline void setup_two_blocks(void)
{
    sim_reset();
    sim.at[0] = MIB;
    sim.at[1] = MIB + BLK;
    act_then = sim_act();
}

static inline void actor_one_pass(void)
{
    sim_pass();
}

static inline void expect_zero_now(int cell)
{
    uint64_t v;

    IL_EXPECT(sim.cell[cell] == 0 || rl_table_maybe(T, sim.at[cell], sim.at[cell] + BLK));
    if (sim_peek(cell, &v))
        IL_EXPECT(v == 0);
}

#endif
