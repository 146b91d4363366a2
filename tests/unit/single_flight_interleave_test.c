/* SPDX-License-Identifier: MIT */
/*
 * What single_flight.h promises, under every interleaving of two callers with two thread changes
 * and a fixed sample of those with more: nobody is served by a round that began before they came,
 * or that was weaker than they asked for, or that did not end OK; at most one round runs. timeout:
 * 120
 */
#include <string.h>

#include "interleave.h"

#include "../../lockmgr/sync.h"

/* Sleeping is giving the other actor its turn; time passes with every look at the clock. */
static uint64_t clock_ns;
static uint64_t gap_ns;
#define rl_now_ns()                   (clock_ns += gap_ns)
#define rl_futex_wait(word, seen, ns) ((void)(word), (void)(seen), (void)(ns), il_wait())
#define rl_futex_wake(word, n)        ((void)(word), (void)(n))
#define RL_GATE_H                     /* rl_now_ns is here */
#include "../../lockmgr/single_flight.c"
#undef rl_futex_wait
#undef rl_futex_wake

#include <stdarg.h>
#include <cmocka.h>

#define SAMPLES 3000
#define CALLS   3

static struct rl_flight flight, *const f = &flight;
static uint64_t written[2], durable[2]; /* [0] data, [1] what only a full round covers */
static int running, most;
static unsigned served, told;
static bool full_callers[2];
static enum rl_flight_outcome outcomes[2];
static bool gets_lost;

static void setup(void)
{
    memset(f, 0, sizeof *f);
    memset(written, 0, sizeof written);
    memset(durable, 0, sizeof durable);
    clock_ns = 1;
    gap_ns = 1;
    running = most = 0;
    served = told = 0;
    full_callers[0] = full_callers[1] = false;
    outcomes[0] = outcomes[1] = RL_FLIGHT_OK;
    gets_lost = false;
}

/* A sync: what was written when it began is durable when it ends. */
static void round_of(int who, struct rl_flight_seat *seat)
{
    uint64_t data = written[0], rest = written[1];

    running++;
    most = running > most ? running : most;
    il_step();
    il_step();
    if (outcomes[who] == RL_FLIGHT_OK) {
        durable[0] = data > durable[0] ? data : durable[0];
        if (seat->full)
            durable[1] = rest > durable[1] ? rest : durable[1];
    }
    running--;
    rl_flight_end(f, seat, outcomes[who], 7);
}

static void call(int who)
{
    struct rl_flight_seat seat;
    enum rl_flight_role role = RL_FLIGHT_LEAD;
    bool full = full_callers[who];
    uint64_t data = ++written[0], rest = full ? ++written[1] : 0;

    if (!rl_flight_lead(f, full, &seat))
        role = rl_flight_join(f, full, &seat);
    switch (role) {
    case RL_FLIGHT_LEAD:
        if (gets_lost && who == 0) {
            gets_lost = false;
            return;
        }
        round_of(who, &seat);
        break;
    case RL_FLIGHT_SERVED:
        served++;
        IL_EXPECT(durable[0] >= data);
        IL_EXPECT(!full || durable[1] >= rest);
        break;
    case RL_FLIGHT_FAILED:
        told++;
        IL_EXPECT(seat.said == 7);
        IL_EXPECT(outcomes[1 - who] == RL_FLIGHT_BROKE);
        break;
    case RL_FLIGHT_ALONE:
        IL_EXPECT(outcomes[1 - who] == RL_FLIGHT_LOST);
        break;
    }
}

static void actor_0(void)
{
    for (int i = 0; i < CALLS; i++)
        call(0);
}

static void actor_1(void)
{
    for (int i = 0; i < CALLS; i++)
        call(1);
}

static unsigned long all_served, all_told;

static void check(void)
{
    IL_EXPECT(rl_flight_idle(f));
    IL_EXPECT(most <= 1);
    all_served += served;
    all_told += told;
}

static void explore(const char *name, void (*set)(void))
{
    struct il_scenario s = {name, set, {actor_0, actor_1}, NULL, check};

    all_served = all_told = 0;
    assert_int_equal(il_explore(&s, SAMPLES), 0);
}

static void who_is_served_was_there_before_the_round_began(void **state)
{
    (void)state;
    explore(__func__, setup);
    assert_true(all_served > 0);
    assert_int_equal(all_told, 0);
}

static void setup_full(void)
{
    setup();
    full_callers[1] = true;
}

static void a_full_caller_is_served_by_full_rounds_only(void **state)
{
    (void)state;
    explore(__func__, setup_full);
    assert_true(all_served > 0);
}

static void setup_broke(void)
{
    setup();
    outcomes[0] = RL_FLIGHT_BROKE;
}

static void a_round_that_failed_serves_nobody_and_says_so(void **state)
{
    (void)state;
    explore(__func__, setup_broke);
    assert_true(all_told > 0);
}

static void setup_lost(void)
{
    setup();
    outcomes[0] = RL_FLIGHT_LOST;
}

static void a_lost_round_sends_its_callers_to_the_next(void **state)
{
    (void)state;
    explore(__func__, setup_lost);
    assert_int_equal(all_told, 0);
}

static void setup_vanished(void)
{
    setup();
    gets_lost = true;
    gap_ns = RL_FLIGHT_PATIENCE_NS / 4;
}

static void check_vanished(void)
{
    IL_EXPECT(rl_load_64(&f->ok) <= last_round(rl_load_64(&f->word)));
}

static void a_leader_that_vanishes_is_given_up(void **state)
{
    struct il_scenario s = {__func__, setup_vanished, {actor_0, actor_1}, NULL, check_vanished};

    (void)state;
    assert_int_equal(il_explore(&s, SAMPLES), 0);
}

static void nobody_waits_alone_and_a_late_word_is_not_believed(void **state)
{
    struct rl_flight_seat seat, other = {.round = 9, .waiting = 1};

    (void)state;
    setup();
    assert_true(rl_flight_lead(f, false, &seat));
    assert_int_equal(seat.round, 1);
    assert_false(seat.full);
    assert_false(rl_flight_lead(f, true, &seat));
    rl_flight_end(f, &seat, RL_FLIGHT_OK, 0);
    assert_true(rl_flight_idle(f));
    rl_flight_end(f, &other, RL_FLIGHT_OK, 0); /* of a flight that a fork left behind */
    assert_int_equal(f->ok, 0);
    assert_true(rl_flight_lead(f, true, &seat));
    assert_int_equal(seat.round, 2);
    assert_true(seat.full);
}

int main(void)
{
#ifdef RL_TSAN
    puts("SKIP: the threads of an interleaving are contexts of one thread, which ThreadSanitizer "
         "cannot follow");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_served_was_there_before_the_round_began),
        cmocka_unit_test(a_full_caller_is_served_by_full_rounds_only),
        cmocka_unit_test(a_round_that_failed_serves_nobody_and_says_so),
        cmocka_unit_test(a_lost_round_sends_its_callers_to_the_next),
        cmocka_unit_test(a_leader_that_vanishes_is_given_up),
        cmocka_unit_test(nobody_waits_alone_and_a_late_word_is_not_believed),
    };

    return cmocka_run_group_tests_name("flight", tests, NULL, NULL);
}
