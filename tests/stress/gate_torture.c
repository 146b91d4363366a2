/* SPDX-License-Identifier: MIT */
/*
 * timeout: 300
 * gate_torture: the gate under threads that also get lost.
 *
 *   gate_torture [--seconds N] [--seed S]       exit 0: nothing broke; 1: something did
 *
 * Two phases. Without losses no era ever changes, so exclusion must be perfect: an exclusive is
 * alone, pieces are not with one. Then threads leave without saying so, as a longjmp out of a
 * handler does, and exclusion may fail for a moment; what must hold is that every wait ends within
 * the bound that gate.h gives.
 */
#define RL_STEP_HOOK 1
#include "../../lockmgr/gate.c"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECES     4
#define EXCLUSIVES 2
#define ASKERS     1
#define THREADS    (PIECES + EXCLUSIVES + ASKERS)
#define SLACK_NS   15000000000u /* a machine busy with other things */

static struct rl_gate gate, *const g = &gate;
static uint32_t stop, broken, losing, inside_shared, inside_exclusive;
static uint64_t n_pieces, n_exclusives, n_withdrawn, n_lost, longest_ns;
static uint64_t seed_arg = 1;
static __thread uint64_t rnd_state;

static uint64_t rnd(void)
{
    rnd_state ^= rnd_state << 13;
    rnd_state ^= rnd_state >> 7;
    rnd_state ^= rnd_state << 17;
    return rnd_state;
}

static void nap(long ns)
{
    struct timespec ts = {.tv_nsec = ns};

    rl_raw(SYS_nanosleep, &ts, NULL);
}

void rl_step(void)
{
    uint64_t r = rnd_state == 0 ? 1 : rnd();

    if (r % 128 == 0)
        rl_raw(SYS_sched_yield);
    else if (r % 8192 == 1)
        nap(20000);
}

static void fail(const char *what)
{
    if (rl_add_32(&broken, 1) == 0)
        printf("broken: %s\n", what);
    rl_store_32(&stop, 1);
}

static void waited(uint64_t ns)
{
    uint64_t now = rl_load_64(&longest_ns);

    while (ns > now && !rl_cas_64(&longest_ns, &now, ns))
        ;
    if (ns > RL_GATE_LONGEST_NS + RL_GATE_PATIENCE_NS + SLACK_NS)
        fail("somebody waited longer than the bound");
}

static bool get_lost(void)
{
    if (rl_load_32(&losing) == 0 || rnd() % 4096 != 0)
        return false;
    rl_add_64(&n_lost, 1);
    return true;
}

static void be_inside(bool exclusive)
{
    uint32_t *mine = exclusive ? &inside_exclusive : &inside_shared;
    uint32_t others = rl_add_32(mine, 1);

    if (rl_load_32(&losing) == 0 &&
        ((exclusive && others != 0) || rl_load_32(exclusive ? &inside_shared : &inside_exclusive)))
        fail("two were inside that exclude each other");
    if (rnd() % 8 == 0)
        nap((long)(rnd() % 50000));
    rl_add_32(mine, (uint32_t)-1);
}

static void visit(bool exclusive)
{
    uint64_t ns;
    rl_ticket ticket = exclusive ? rl_gate_enter_exclusive(g, &ns) : rl_gate_enter_shared(g, &ns);

    waited(ns);
    be_inside(exclusive);
    rl_add_64(exclusive ? &n_exclusives : &n_pieces, 1);
    if (get_lost())
        return;
    if (exclusive)
        rl_gate_leave_exclusive(g, ticket);
    else
        rl_gate_leave_shared(g, ticket);
}

static void ask(void)
{
    rl_ticket era;

    rl_gate_request(g, &era);
    for (int i = 0; i < 50; i++) {
        if (get_lost())
            return;
        if (rl_gate_try_requested(g, &era)) {
            be_inside(true);
            rl_gate_leave_exclusive(g, era);
            rl_add_64(&n_exclusives, 1);
            return;
        }
        if (rnd() % 4 == 0)
            nap(10000);
    }
    rl_gate_withdraw(g, era);
    rl_add_64(&n_withdrawn, 1);
}

static void *thread_main(void *arg)
{
    int me = (int)(intptr_t)arg;

    rnd_state = seed_arg * 0x9e3779b97f4a7c15u + (uint64_t)me * 0xd1342543de82ef95u + 1;
    while (rl_load_32(&stop) == 0) {
        if (me < PIECES + EXCLUSIVES)
            visit(me >= PIECES);
        else
            ask();
        if (rnd() % 4 == 0)
            nap((long)(rnd() % 100000));
    }
    return NULL;
}

static void phase(int seconds, bool with_losses)
{
    pthread_t thread[THREADS];

    memset(g, 0, sizeof *g);
    rl_store_32(&stop, 0);
    rl_store_32(&losing, with_losses);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, thread_main, (void *)(intptr_t)i);
    for (int tick = 0; tick < seconds * 20 && rl_load_32(&stop) == 0; tick++)
        nap(50000000);
    rl_store_32(&stop, 1);
    alarm((unsigned)((RL_GATE_LONGEST_NS + SLACK_NS) / 1000000000u)); /* each must end by itself */
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    alarm(0);
    if (!with_losses && !rl_gate_idle(g))
        fail("all have left, and the gate is not idle");
    if (!with_losses && era_of(g->word) != 0 && longest_ns < RL_GATE_PATIENCE_NS)
        fail("an era ended though nobody was lost");
}

int main(int argc, char **argv)
{
    int seconds = 10;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--seed") == 0)
            seed_arg = strtoull(argv[i + 1], NULL, 0);
    }
    phase(seconds / 2 + 1, false);
    if (rl_load_32(&broken) == 0 && (n_pieces == 0 || n_exclusives == 0))
        fail("one side never got in");
    if (rl_load_32(&broken) == 0)
        phase(seconds / 2 + 1, true);
    printf(
        "gate_torture: seed %llu: %llu pieces, %llu exclusives, %llu withdrawn, %llu lost, longest "
        "wait %.1f ms: %s\n",
        (unsigned long long)seed_arg, (unsigned long long)n_pieces,
        (unsigned long long)n_exclusives, (unsigned long long)n_withdrawn,
        (unsigned long long)n_lost, (double)longest_ns / 1e6, broken ? "BROKEN" : "nothing broke");
    return broken ? 1 : 0;
}
