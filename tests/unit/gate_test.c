/* SPDX-License-Identifier: MIT */
/* What gate.h promises. Nothing here depends on how fast the machine is: waits are waited for, and
 * only lower bounds of time are checked. timeout: 120 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "../../lockmgr/gate.h"

static struct rl_gate gate, *const g = &gate;

static int open_gate(void **state)
{
    (void)state;
    memset(g, 0, sizeof *g);
    return 0;
}

struct visitor {
    pthread_t thread;
    bool exclusive;
    uint32_t in, may_go;
    rl_ticket ticket;
    uint64_t waited_ns;
};

static void nap(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void *visit(void *arg)
{
    struct visitor *v = arg;

    v->ticket = v->exclusive ? rl_gate_enter_exclusive(g, &v->waited_ns)
                             : rl_gate_enter_shared(g, &v->waited_ns);
    rl_store_32(&v->in, 1);
    while (rl_load_32(&v->may_go) == 0)
        nap();
    if (v->exclusive)
        rl_gate_leave_exclusive(g, v->ticket);
    else
        rl_gate_leave_shared(g, v->ticket);
    return NULL;
}

static void send(struct visitor *v, bool exclusive)
{
    memset(v, 0, sizeof *v);
    v->exclusive = exclusive;
    assert_int_equal(pthread_create(&v->thread, NULL, visit, v), 0);
}

#define PATIENCE_MS 15000 /* far beyond what gate.h promises: somebody waits for ever */

/* The thread that is stuck would disturb every test that follows. */
static void give_up(void)
{
    printf("a thread that should have got on waits for ever\n");
    exit(1);
}

static void await_in(struct visitor *v)
{
    for (int ms = 0; rl_load_32(&v->in) == 0; ms++) {
        if (ms >= PATIENCE_MS)
            give_up();
        nap();
    }
}

static unsigned waiting(bool exclusive)
{
    return (unsigned)(rl_load_64(&g->word) >> (exclusive ? 36 : 24) & 0xfff);
}

static void await_waiting(bool exclusive, unsigned n)
{
    for (int ms = 0; waiting(exclusive) < n; ms++) {
        if (ms >= PATIENCE_MS)
            give_up();
        nap();
    }
}

static void release(struct visitor *v)
{
    rl_store_32(&v->may_go, 1);
    pthread_join(v->thread, NULL);
}

static void pieces_go_together_and_alone_nobody_waits(void **state)
{
    uint64_t waited = 1;
    rl_ticket a, b, x;

    (void)state;
    a = rl_gate_enter_shared(g, &waited);
    assert_int_equal(waited, 0);
    b = rl_gate_enter_shared(g, &waited);
    assert_int_equal(waited, 0);
    assert_false(rl_gate_idle(g));
    rl_gate_leave_shared(g, a);
    assert_false(rl_gate_idle(g));
    rl_gate_leave_shared(g, b);
    assert_true(rl_gate_idle(g));
    x = rl_gate_enter_exclusive(g, &waited);
    assert_int_equal(waited, 0);
    assert_false(rl_gate_idle(g));
    rl_gate_leave_exclusive(g, x);
    assert_true(rl_gate_idle(g));
}

static void an_exclusive_waits_for_the_pieces_and_goes_before_the_next(void **state)
{
    struct visitor piece, next, punch;

    (void)state;
    send(&piece, false);
    await_in(&piece);
    send(&punch, true);
    await_waiting(true, 1);
    send(&next, false);
    await_waiting(false, 1);
    assert_int_equal(rl_load_32(&punch.in), 0);
    release(&piece);
    await_in(&punch);
    assert_int_equal(rl_load_32(&next.in), 0);
    release(&punch);
    await_in(&next);
    assert_true(punch.waited_ns > 0 && next.waited_ns > 0);
    release(&next);
    assert_true(rl_gate_idle(g));
}

static void exclusives_go_one_at_a_time(void **state)
{
    struct visitor a, b;

    (void)state;
    send(&a, true);
    await_in(&a);
    send(&b, true);
    await_waiting(true, 1);
    nap();
    assert_int_equal(rl_load_32(&b.in), 0);
    release(&a);
    await_in(&b);
    release(&b);
    assert_true(rl_gate_idle(g));
}

static void pieces_that_waited_long_go_before_the_next_exclusive(void **state)
{
    struct visitor first, second, piece;

    (void)state;
    send(&first, true);
    await_in(&first);
    send(&piece, false);
    await_waiting(false, 1);
    send(&second, true);
    await_waiting(true, 1);
    for (int i = 0; i < 20; i++)
        nap(); /* longer than RL_GATE_TURN_MAX_NS */
    release(&first);
    await_in(&piece);
    assert_int_equal(rl_load_32(&second.in), 0);
    release(&piece);
    await_in(&second);
    assert_int_equal(second.ticket, first.ticket); /* nobody had to lose patience */
    release(&second);
    assert_true(rl_gate_idle(g));
}

static void whoever_left_without_saying_so_is_forgotten(void **state)
{
    struct visitor later;
    uint64_t waited;
    rl_ticket lost_x, lost_s;

    (void)state;
    lost_x = rl_gate_enter_exclusive(g, &waited);
    send(&later, false);
    await_in(&later);
    assert_true(later.waited_ns >= RL_GATE_PATIENCE_NS);
    assert_int_not_equal(later.ticket, lost_x);
    rl_gate_leave_exclusive(g, lost_x); /* it turns up after all: nothing happens */
    assert_false(rl_gate_idle(g));
    release(&later);
    assert_true(rl_gate_idle(g));

    lost_s = rl_gate_enter_shared(g, &waited);
    send(&later, true);
    await_in(&later);
    assert_true(later.waited_ns >= RL_GATE_PATIENCE_NS);
    rl_gate_leave_shared(g, lost_s);
    assert_false(rl_gate_idle(g));
    release(&later);
    assert_true(rl_gate_idle(g));
}

static void a_stale_ticket_lets_nobody_out(void **state)
{
    uint64_t waited;
    rl_ticket old = rl_gate_enter_shared(g, &waited), now;

    (void)state;
    g->word = (uint64_t)1 << 48; /* a new era */
    now = rl_gate_enter_shared(g, &waited);
    rl_gate_leave_shared(g, old);
    assert_false(rl_gate_idle(g));
    rl_gate_leave_shared(g, now);
    assert_true(rl_gate_idle(g));
    rl_gate_leave_shared(g, now); /* twice */
    assert_true(rl_gate_idle(g));
    now = rl_gate_enter_exclusive(g, &waited);
    rl_gate_leave_exclusive(g, old);
    assert_false(rl_gate_idle(g));
    rl_gate_leave_exclusive(g, now);
    assert_true(rl_gate_idle(g));
}

static void waiters_of_an_old_era_count_themselves_again(void **state)
{
    struct visitor a, b;
    uint64_t waited;

    (void)state;
    rl_gate_enter_exclusive(g, &waited); /* lost */
    send(&a, true);
    send(&b, true);
    await_waiting(true, 2);
    while (rl_load_32(&a.in) == 0 && rl_load_32(&b.in) == 0)
        nap();
    if (rl_load_32(&a.in) != 0) {
        release(&a);
        await_in(&b);
        release(&b);
    } else {
        release(&b);
        await_in(&a);
        release(&a);
    }
    assert_true(rl_gate_idle(g));
}

static uint32_t stream_stop;

static void *stream_of_pieces(void *arg)
{
    (void)arg;
    while (rl_load_32(&stream_stop) == 0) {
        uint64_t waited;
        rl_ticket a = rl_gate_enter_shared(g, &waited);

        nap();
        rl_gate_leave_shared(g, a);
    }
    return NULL;
}

/* A piece was lost while it was counted as waiting and its side had the turn. */
static void a_lost_waiter_does_not_starve_the_other_side(void **state)
{
    pthread_t stream;
    struct visitor punch;

    (void)state;
    g->word = (uint64_t)1 << 24 | (uint64_t)1 << 13;
    rl_store_32(&stream_stop, 0);
    assert_int_equal(pthread_create(&stream, NULL, stream_of_pieces, NULL), 0);
    send(&punch, true);
    await_in(&punch);
    release(&punch);
    rl_store_32(&stream_stop, 1);
    pthread_join(stream, NULL);
    assert_true(rl_gate_idle(g));
}

static void a_request_holds_new_pieces_back_until_it_is_met_or_withdrawn(void **state)
{
    struct visitor inside, next;
    rl_ticket era;

    (void)state;
    send(&inside, false);
    await_in(&inside);
    rl_gate_request(g, &era);
    assert_false(rl_gate_try_requested(g, &era));
    send(&next, false);
    await_waiting(false, 1);
    release(&inside);
    assert_int_equal(rl_load_32(&next.in), 0);
    assert_true(rl_gate_try_requested(g, &era));
    assert_int_equal(rl_load_32(&next.in), 0);
    rl_gate_leave_exclusive(g, era);
    await_in(&next);
    rl_gate_request(g, &era);
    assert_int_equal(waiting(true), 1);
    rl_gate_withdraw(g, era);
    assert_int_equal(waiting(true), 0);
    rl_gate_withdraw(g, era); /* twice: nothing */
    release(&next);
    assert_true(rl_gate_idle(g));
}

static void withdrawing_wakes_the_pieces_that_were_held_back(void **state)
{
    struct visitor next;
    uint32_t seq;
    rl_ticket era;

    (void)state;
    rl_gate_request(g, &era);
    send(&next, false);
    await_waiting(false, 1);
    seq = rl_load_32(&g->seq);
    rl_gate_withdraw(g, era);
    assert_int_not_equal(rl_load_32(&g->seq), seq);
    await_in(&next);
    assert_int_equal(next.ticket, era); /* and not because somebody lost patience */
    release(&next);
    assert_true(rl_gate_idle(g));
}

static void a_request_that_could_not_be_counted_takes_no_count_away(void **state)
{
    rl_ticket era;

    (void)state;
    g->word = (uint64_t)0xffe << 36;
    rl_gate_request(g, &era);
    assert_int_equal(waiting(true), 0xffe);
    rl_gate_withdraw(g, era);
    assert_int_equal(waiting(true), 0xffe);
    assert_true(rl_gate_try_requested(g, &era));
    assert_int_equal(waiting(true), 0xffe);
    rl_gate_leave_exclusive(g, era);
}

static void a_request_of_an_old_era_still_gets_in_and_takes_nothing(void **state)
{
    rl_ticket era;

    (void)state;
    rl_gate_request(g, &era);
    g->word = (uint64_t)1 << 48 | (uint64_t)1 << 36; /* a new era, with another's request */
    rl_gate_withdraw(g, era);
    assert_int_equal(waiting(true), 1);
    assert_true(rl_gate_try_requested(g, &era));
    assert_int_equal(waiting(true), 1);
    rl_gate_leave_exclusive(g, era);
    assert_int_equal(rl_load_64(&g->word), (uint64_t)1 << 48 | (uint64_t)1 << 36);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup(f, open_gate)
    const struct CMUnitTest tests[] = {
        CASE(pieces_go_together_and_alone_nobody_waits),
        CASE(an_exclusive_waits_for_the_pieces_and_goes_before_the_next),
        CASE(exclusives_go_one_at_a_time),
        CASE(pieces_that_waited_long_go_before_the_next_exclusive),
        CASE(a_stale_ticket_lets_nobody_out),
        CASE(a_request_holds_new_pieces_back_until_it_is_met_or_withdrawn),
        CASE(withdrawing_wakes_the_pieces_that_were_held_back),
        CASE(a_request_that_could_not_be_counted_takes_no_count_away),
        CASE(a_request_of_an_old_era_still_gets_in_and_takes_nothing),
        CASE(whoever_left_without_saying_so_is_forgotten),
        CASE(waiters_of_an_old_era_count_themselves_again),
        CASE(a_lost_waiter_does_not_starve_the_other_side),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
