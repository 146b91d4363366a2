/* SPDX-License-Identifier: MIT */
/*
 * control: the switch that turns everything off in a running process, and the public functions of
 * include/rlshim/control.h.
 *
 * rl_control   0: on; 1: off is wanted; 2 and 3: off, settings are to be changed (tune.h). Read by
 * state_works() at every decision, written by rl_off, rl_on, and from outside by `rlshim off PID`,
 * through /proc/PID/mem. rl_control_done  becomes 1 when off is wanted and nothing is queued or on
 * any more (control_quiet: the worker and rl_off). Whoever asks from outside sets it to 0 first,
 * and waits for it. rl_state_at  where the state word is: without a worker nobody sets
 * rl_control_done, but then its number of files is 0.
 */
#include <string.h>

#include "../include/rlshim/control.h"
#include "control.h"
#include "evict.h"
#include "settle.h"

uint32_t rl_control;
uint32_t rl_control_done __attribute__((visibility("default")));
const uint64_t *const rl_state_at __attribute__((visibility("default"))) = &state_word_value;

void control_quiet(void)
{
    if (rl_load_32(&rl_control) != 0 && !state_files_on())
        rl_store_32(&rl_control_done, 1);
}

static void begin(void)
{
    state_enter(state_word());
}

static int active(void)
{
    begin();
    return state_works() && proc.settings.mode == CFG_MODE_ON;
}

static void settle(void)
{
    begin();
    settle_all(WHY_control);
}

static void off(void)
{
    begin();
    rl_store_32(&rl_control, 1);
    settle_end_all(WHY_control);
    evict_drain(WHY_control);
    control_quiet();
}

static void on(void)
{
    begin();
    rl_store_32(&rl_control, 0);
    rl_store_32(&rl_control_done, 0);
}

static unsigned long queued(void)
{
    struct arena *a;
    unsigned long n;

    begin();
    a = proc.arena;
    if (a == NULL)
        return 0;
    n = rl_load_32(&a->pool.used);
    for (int i = 0; i < RL_INODES; i++)
        for (size_t k = 0; k < sizeof a->inodes.inode[i].table.tail / sizeof(uint64_t); k++)
            n += rl_load_64(&a->inodes.inode[i].table.tail[k]) != 0;
    return n;
}

static uint64_t counter(const char *name)
{
    if (strncmp(name, "settled.", 8) == 0) {
        for (int i = 0; i < WHY_COUNT; i++)
            if (strcmp(name + 8, why_name((enum why)i)) == 0)
                return rl_load_64(&stats->settled[i]);
        return 0;
    }
    for (int i = 0; i < STAT_COUNT; i++)
        if (strcmp(name, stat_name((enum stat_id)i)) == 0)
            return rl_load_64(&stats->value[i]);
    return 0;
}

__attribute__((visibility("default"))) const struct rl_control_table rl_control_table = {
    .bytes = sizeof(struct rl_control_table),
    .active = active,
    .settle = settle,
    .off = off,
    .on = on,
    .queued = queued,
    .counter = counter,
};
