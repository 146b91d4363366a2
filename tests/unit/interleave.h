/* SPDX-License-Identifier: MIT */
/*
 * interleave: runs the actors of one scenario, two or IL_ACTORS, in every order that few thread
 * changes can give.
 *
 * The lock manager is compiled into the test with RL_STEP_HOOK, so an actor can be stopped before
 * each atomic operation. Windows of two instructions, which a torture test meets once a week, are
 * met here in every run. Actors are coroutines: a schedule is a list of step counts and repeats
 * exactly. Only what atomic operations order can be seen; reordering by the processor cannot.
 *
 * Include this before lockmgr's sources. An actor may call il_step() itself where its simulated
 * system calls take effect. `at_switch` runs between any two stretches, unstepped: an observer.
 */
#ifndef TESTS_INTERLEAVE_H
#define TESTS_INTERLEAVE_H

#define RL_STEP_HOOK 1

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef IL_ACTORS
#define IL_ACTORS 2
#endif
#define IL_ALL   1000000 /* more steps than any actor makes */
#define IL_STACK (256 * 1024)
#define IL_DEPTH 12
#ifndef IL_PAIRS
#define IL_PAIRS 8000
#endif
#define IL_ROUNDS 64

struct il_scenario {
    const char *name;
    void (*setup)(void);
    void (*actor[IL_ACTORS])(void); /* NULL: not there */
    void (*at_switch)(void);        /* may be NULL */
    void (*check)(void);
};

static struct {
    ucontext_t ctx[IL_ACTORS];   /* where an actor begins */
    jmp_buf at[IL_ACTORS], back; /* where it stopped; without the system calls of swapcontext */
    bool begun[IL_ACTORS];
    char *stack[IL_ACTORS];
    bool done[IL_ACTORS];
    int running;       /* -1: nobody, steps are free */
    long budget, made; /* steps left in this stretch; made in this schedule so far */
} il = {.running = -1};

static const struct il_scenario *il_now;
static long il_plan[IL_DEPTH];
static int il_plan_len;
static int il_failures;

void rl_step(void);

void rl_step(void)
{
    if (il.running < 0)
        return;
    while (il.budget == 0) {
        int me = il.running;

        if (_setjmp(il.at[me]) == 0)
            _longjmp(il.back, 1);
    }
    il.budget--;
    il.made++;
}

static inline void il_step(void)
{
    rl_step();
}

/* The actor cannot go on before the other did something: gives up the rest of its stretch. */
static inline void il_wait(void)
{
    if (il.running >= 0)
        il.budget = 0;
    rl_step();
}

/* A mutant is caught by its first failure. */
#ifdef RL_MUTATE
#define IL_BROKE() (fflush(stdout), _exit(1))
#else
#define IL_BROKE() ((void)0)
#endif

/* Reports the schedule that broke; the test goes on to the end of its scenario and then fails. */
#define IL_EXPECT(cond)                                                                            \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            if (il_failures++ < 3) {                                                               \
                printf("%s:%d: %s: not so: %s; steps", __FILE__, __LINE__, il_now->name, #cond);   \
                for (int il_i = 0; il_i < il_plan_len; il_i++)                                     \
                    printf(" %ld", il_plan[il_i]);                                                 \
                printf("\n");                                                                      \
                IL_BROKE();                                                                        \
            }                                                                                      \
        }                                                                                          \
    } while (0)

static void il_entry(int who)
{
    il_now->actor[who]();
    il.done[who] = true;
    _longjmp(il.back, 1);
}

static void il_enter(int who)
{
    if (il.begun[who])
        _longjmp(il.at[who], 1);
    il.begun[who] = true;
    setcontext(&il.ctx[who]);
}

/* Lets one actor make at most `steps` atomic operations. */
static void il_run(int who, long steps)
{
    if (il.done[who])
        return;
    il.running = who;
    il.budget = steps;
    if (_setjmp(il.back) == 0)
        il_enter(il.running);
    il.running = -1;
    if (il_now->at_switch != NULL)
        il_now->at_switch();
}

static void il_begin(const struct il_scenario *s)
{
    il_now = s;
    for (int who = 0; who < IL_ACTORS; who++) {
        if (il.stack[who] == NULL && (il.stack[who] = malloc(IL_STACK)) == NULL)
            abort();
        getcontext(&il.ctx[who]);
        il.ctx[who].uc_stack.ss_sp = il.stack[who];
        il.ctx[who].uc_stack.ss_size = IL_STACK;
        il.ctx[who].uc_link = NULL;
        makecontext(&il.ctx[who], (void (*)(void))il_entry, 1, who);
        il.begun[who] = false;
        il.done[who] = s->actor[who] == NULL;
    }
    s->setup();
}

static bool il_all_done(void)
{
    for (int who = 0; who < IL_ACTORS; who++)
        if (!il.done[who])
            return false;
    return true;
}

/* One schedule: the actors take turns, plan[0] steps for actor 0, plan[1] for actor 1 and so on,
 * then they run to their ends, the last first. */
static void il_schedule(const struct il_scenario *s, const long *plan, int n)
{
    int actors = IL_ACTORS;

    while (actors > 2 && s->actor[actors - 1] == NULL)
        actors--;
    il_plan_len = n;
    for (int i = 0; i < n; i++)
        il_plan[i] = plan[i];
    il_begin(s);
    for (int i = 0; i < n; i++)
        il_run(i % actors, plan[i]);
    for (int i = 0; i < IL_ROUNDS && !il_all_done(); i++)
        for (int who = actors - 1; who >= 0; who--)
            il_run(who, IL_ALL);
    IL_EXPECT(il_all_done());
    s->check();
}

static long il_steps_of(const struct il_scenario *s, int who)
{
    long n = 0;

    il_begin(s);
    for (int i = 0; i < IL_ROUNDS && !il_all_done(); i++) {
        il.made = 0;
        il_run(who, IL_ALL);
        n += il.made;
        for (int other = 0; other < IL_ACTORS; other++)
            if (other != who)
                il_run(other, IL_ALL);
    }
    return n;
}

static uint64_t il_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Every schedule "0 runs a, 1 runs b, 0 ends, 1 ends", with 0 or 1 ending first (if they are more
 * than IL_PAIRS, a sample of them); then `samples` schedules with more thread changes, from a fixed
 * seed. Returns how many expectations broke. */
static int il_explore(const struct il_scenario *s, int samples)
{
    long n0 = il_steps_of(s, 0), n1 = il_steps_of(s, 1);
    uint64_t seed = 0x9e3779b97f4a7c15u;

    il_failures = 0;
    for (long a = 0; a <= n0 + 8; a++)
        for (long b = 0; b <= n1 + 8; b++) {
            if (n0 * n1 > IL_PAIRS && il_random(&seed) % (uint64_t)(n0 * n1) > IL_PAIRS)
                continue;
            il_schedule(s, (long[]){a, b}, 2);
            il_schedule(s, (long[]){a, b, IL_ALL}, 3);
        }
    for (int i = 0; i < samples; i++) {
        long plan[IL_DEPTH];
        int n = 3 + (int)(il_random(&seed) % (IL_DEPTH - 2));

        for (int k = 0; k < n; k++) {
            long max = k % 2 == 0 ? n0 : n1;

            /* Half of the stretches short: races need changes close together. */
            plan[k] = (long)(il_random(&seed) % (uint64_t)(il_random(&seed) % 2 ? max + 1 : 8));
        }
        il_schedule(s, plan, n);
    }
    if (il_failures != 0)
        printf("%s: %d expectations broke\n", s->name, il_failures);
    return il_failures;
}

#endif
