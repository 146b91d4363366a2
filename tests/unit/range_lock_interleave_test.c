/* SPDX-License-Identifier: MIT */
/*
 * The range lock under every interleaving of two actors with two thread changes, a sample of those
 * with more and of three actors, and under store buffers: a store may become visible to the others
 * as late as its thread's next barrier (x86's memory model), which is what letting go without a
 * barrier relies on membarrier for. Sleeping is modelled exactly: whoever sleeps wakes only when
 * somebody wakes it, so one lost wake-up ends no schedule.  timeout: 120
 */
#define IL_ACTORS      3
#define IL_PAIRS       2000
#define RL_MEMORY_HOOK 1
#define RL_SLEEP_HOOK  1
#include "interleave.h"

#include "../../lockmgr/sync.h"

static unsigned long actor_identity(void);
#define rl_thread_pointer actor_identity
#define CALM_MAX          1 /* arming and disarming as often as can be */
#include "../../lockmgr/range_lock.c"

#include "../../lockmgr/range_room.c"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define SAMPLES 2000
#define TRIPLES 4000
#define MIB     ((uint64_t)1 << 20)
#define K4      ((uint64_t)4096)
#define OPS     6
#define HOLDS   3
#define BUFFER  64

/* --- memory with store buffers --- */

enum buffering { BUF_NONE, BUF_LAZY, BUF_RANDOM };

static struct buffered {
    void *p;
    uint64_t v;
    unsigned bytes;
} buffer[IL_ACTORS][BUFFER];
static unsigned buffered[IL_ACTORS];
static enum buffering buffering;
static uint64_t flush_seed;

static void write_out(int who, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        memcpy(buffer[who][i].p, &buffer[who][i].v, buffer[who][i].bytes);
    memmove(buffer[who], buffer[who] + n, (buffered[who] - n) * sizeof buffer[who][0]);
    buffered[who] -= n;
}

static void write_out_all(void)
{
    for (int who = 0; who < IL_ACTORS; who++)
        write_out(who, buffered[who]);
}

uint64_t rl_memory_load(const void *p, unsigned bytes)
{
    uint64_t v = 0;

    if (il.running >= 0)
        for (unsigned i = buffered[il.running]; i-- > 0;)
            if (buffer[il.running][i].p == p)
                return buffer[il.running][i].v;
    memcpy(&v, p, bytes);
    return v;
}

void rl_memory_store(void *p, uint64_t v, unsigned bytes)
{
    if (il.running < 0 || buffering == BUF_NONE) {
        memcpy(p, &v, bytes);
        return;
    }
    if (buffered[il.running] == BUFFER)
        write_out(il.running, 1);
    buffer[il.running][buffered[il.running]++] = (struct buffered){p, v, bytes};
}

void rl_memory_fence(void)
{
    if (il.running >= 0)
        write_out(il.running, buffered[il.running]);
}

void rl_memory_everywhere(void)
{
    write_out_all();
}

/* --- sleep and time --- */

static uint32_t *asleep[IL_ACTORS];
static uint64_t clock_ns;
static unsigned stalled;

void rl_sleep(uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
    int me = il.running;
    uint32_t now;

    rl_step();
    rl_memory_fence(); /* a system call */
    memcpy(&now, word, sizeof now);
    if (now != seen)
        return;
    if (timeout_ns != SLICE_NS) { /* a deadline is nearer than the next look */
        clock_ns += timeout_ns;
        il_wait();
        return;
    }
    asleep[me] = word;
    while (asleep[me] != NULL) {
        if (++stalled > 4 * IL_ACTORS) {
            write_out_all(); /* stores do become visible some day */
            stalled = 0;
        }
        il_wait();
    }
}

void rl_awake(uint32_t *word, uint32_t waiters)
{
    rl_step();
    rl_memory_fence();
    for (int who = 0; who < IL_ACTORS && waiters > 0; who++)
        if (asleep[who] == word) {
            asleep[who] = NULL;
            waiters--;
        }
}

uint64_t rl_now_ns(void)
{
    return clock_ns;
}

/* --- scripts --- */

enum op { END, TAKE, ATTEMPT, TIMED, DROP };

struct step {
    enum op op;
    int hold;
    uint64_t start, end;
    enum rl_range_mode mode;
};

static struct rl_range_lock lock __attribute__((aligned(64)));
static struct rl_range_hold hold[IL_ACTORS][HOLDS];
static struct {
    bool is;
    uint64_t start, end;
    enum rl_range_mode mode;
} held[IL_ACTORS][HOLDS];
static struct step script[IL_ACTORS][OPS];
static void (*prepare)(void);
static unsigned answered[IL_ACTORS];
static enum op doing[IL_ACTORS];
static uint64_t identity[IL_ACTORS] = {0x7f0000001000, 0x7f0000802000, 0x7f0001003000};
static uint64_t counter; /* what the lock protects */

static unsigned long actor_identity(void)
{
    return il.running >= 0 ? identity[il.running] : 0x5550000;
}

static struct lock *inner(void)
{
    return (struct lock *)&lock;
}

/* Those who visibly wait for what the step asks for. */
static unsigned waiting_before(int me, const struct step *s)
{
    unsigned mask = 0;

    for (int who = 0; who < IL_ACTORS; who++)
        for (int g = 0; g < GROUPS; g++)
            for (int i = 0; i < GROUP_SLOTS; i++) {
                uint64_t w = inner()->group[g].slot[i];

                if (who != me && (w & W_WAITING) != 0 &&
                    inner()->group[g].owner[i] ==
                        owner_of_hash(identity[who] * 0x9e3779b97f4a7c15u) &&
                    (((w & W_EXCLUSIVE) != 0) || s->mode == RL_EXCLUSIVE) &&
                    start_of(w) < (s->end + K4 - 1) / K4 && end_of(w) > s->start / K4)
                    mask |= 1u << who;
            }
    return mask;
}

static void got(int me, const struct step *s, unsigned before, const unsigned *answered_then)
{
    bool nested = false;

    for (int h = 0; h < HOLDS; h++)
        nested |= held[me][h].is;
    for (int who = 0; who < IL_ACTORS; who++) {
        for (int h = 0; h < HOLDS && who != me; h++)
            IL_EXPECT(!held[who][h].is || held[who][h].start >= s->end ||
                      held[who][h].end <= s->start ||
                      (held[who][h].mode == RL_SHARED && s->mode == RL_SHARED));
        if ((before & 1u << who) != 0 && !nested) /* it waited before we came: it went first */
            IL_EXPECT(answered[who] > answered_then[who] || doing[who] == TIMED);
    }
    held[me][s->hold].is = true;
    held[me][s->hold].start = s->start;
    held[me][s->hold].end = s->end;
    held[me][s->hold].mode = s->mode;
    if (s->mode == RL_EXCLUSIVE && s->start == 0)
        rl_store_64(&counter, rl_load_64(&counter) + 1);
}

static void act(void)
{
    int me = il.running;

    for (const struct step *s = script[me]; s->op != END; s++) {
        unsigned before = waiting_before(me, s), then[IL_ACTORS];
        struct rl_range_hold *h = &hold[me][s->hold];
        int r = 0;

        memcpy(then, answered, sizeof then);
        doing[me] = s->op;
        switch (s->op) {
        case TAKE:
            r = rl_range_acquire(&lock, h, s->start, s->end, s->mode);
            IL_EXPECT(r == 0);
            break;
        case ATTEMPT:
            r = rl_range_try(&lock, h, s->start, s->end, s->mode);
            IL_EXPECT(r == 0 || r == -EAGAIN);
            break;
        case TIMED:
            r = rl_range_acquire_until(&lock, h, s->start, s->end, s->mode, clock_ns + 1000);
            IL_EXPECT(r == 0 || r == -ETIMEDOUT);
            break;
        default:
            held[me][s->hold].is = false;
            rl_range_release(h);
            continue;
        }
        answered[me]++;
        if (r == 0)
            got(me, s, before, then);
    }
}

static void setup(void)
{
    memset(&lock, 0, sizeof lock);
    memset(held, 0, sizeof held);
    memset(asleep, 0, sizeof asleep);
    memset(buffered, 0, sizeof buffered);
    memset(answered, 0, sizeof answered);
    counter = stalled = 0;
    clock_ns = 1000000;
    if (prepare != NULL)
        prepare();
}

static void at_switch(void)
{
    for (int who = 0; who < IL_ACTORS && buffering == BUF_RANDOM; who++)
        write_out(who, (unsigned)(il_random(&flush_seed) % (buffered[who] + 1)));
}

static struct rl_range_hold filler[RL_RANGE_SLOTS];
static unsigned fillers;
static bool may_lose_no_one = true;

static void check(void)
{
    unsigned expected = 0;

    write_out_all();
    for (unsigned i = 0; i < fillers; i++)
        rl_range_release(&filler[i]);
    fillers = 0;
    for (int who = 0; who < IL_ACTORS; who++)
        for (const struct step *s = script[who]; s->op != END; s++)
            expected += s->op == TAKE && s->mode == RL_EXCLUSIVE && s->start == 0;
    if (may_lose_no_one)
        IL_EXPECT(counter >= expected);
    IL_EXPECT(rl_range_idle(&lock));
    IL_EXPECT(inner()->room_wanted == 0);
}

static void explore(const char *name, const struct step scripts[IL_ACTORS][OPS])
{
    struct il_scenario s = {
        name, setup, {act, act, scripts[2][0].op != END ? act : NULL}, at_switch, check};
    bool three = s.actor[2] != NULL;

    memcpy(script, scripts, sizeof script);
    for (int b = BUF_NONE; b <= BUF_RANDOM; b++) {
        uint64_t seed = 0x2545f4914f6cdd1du;

        buffering = (enum buffering)b;
        flush_seed = 0x9e3779b97f4a7c15u;
        assert_int_equal(three ? 0 : il_explore(&s, SAMPLES), 0);
        for (int i = 0; three && i < TRIPLES; i++) {
            long plan[IL_DEPTH];
            int n = 3 + (int)(il_random(&seed) % (IL_DEPTH - 2));

            for (int k = 0; k < n; k++)
                plan[k] = (long)(il_random(&seed) % (il_random(&seed) % 2 ? 60 : 12));
            il_schedule(&s, plan, n);
        }
        assert_int_equal(il_failures, 0);
    }
    prepare = NULL;
}

#define SCRIPTS(...)                                                                               \
    il_failures = 0;                                                                               \
    (void)state;                                                                                   \
    explore(__func__, (const struct step[IL_ACTORS][OPS]){__VA_ARGS__})

#define X(h, a, b)                                                                                 \
    {                                                                                              \
        TAKE, h, a, b, RL_EXCLUSIVE                                                                \
    }
#define S(h, a, b)                                                                                 \
    {                                                                                              \
        TAKE, h, a, b, RL_SHARED                                                                   \
    }
#define D(h)                                                                                       \
    {                                                                                              \
        DROP, h, 0, 0, RL_SHARED                                                                   \
    }

static void two_exclusives_take_turns(void **state)
{
    SCRIPTS({X(0, 0, K4), D(0)}, {X(0, 0, K4), D(0)});
}

static void they_do_so_again_and_again(void **state)
{
    SCRIPTS({X(0, 0, K4), D(0), X(0, 0, K4), D(0)}, {X(0, 0, MIB), D(0), X(0, 0, K4), D(0)});
}

static void narrow_and_wide_ones_see_each_other(void **state)
{
    SCRIPTS({X(0, 0, K4), D(0), X(0, 0, 9 * MIB), D(0)}, {X(0, 0, 2 * MIB), D(0)});
}

static void shared_and_exclusive_exclude_each_other(void **state)
{
    SCRIPTS({S(0, 0, K4), D(0), S(0, 0, K4), D(0)}, {X(0, 0, K4), D(0)});
}

static void check_nobody_waited(void)
{
    check();
    IL_EXPECT(inner()->turn == 0);
}

static void shared_ones_never_wait_for_each_other_nor_strangers(void **state)
{
    static const struct step scripts[IL_ACTORS][OPS] = {
        {S(0, 0, K4), X(1, MIB, MIB + 5), D(0), D(1)},
        {S(0, 0, 8 * MIB - MIB * 7), D(0), X(0, 2 * MIB, 9 * MIB), D(0)}};
    struct il_scenario s = {__func__, setup, {act, act, NULL}, at_switch, check_nobody_waited};

    (void)state;
    memcpy(script, scripts, sizeof script);
    for (int b = BUF_NONE; b <= BUF_RANDOM; b++) {
        buffering = (enum buffering)b;
        assert_int_equal(il_explore(&s, SAMPLES), 0);
    }
}

static void tries_and_deadlines_leave_nothing_behind(void **state)
{
    SCRIPTS({X(0, 0, K4), D(0), {ATTEMPT, 0, 0, K4, RL_SHARED}, D(0)},
            {{TIMED, 0, 0, K4, RL_EXCLUSIVE}, D(0), {ATTEMPT, 0, 0, K4, RL_EXCLUSIVE}, D(0)});
}

static void who_waits_behind_one_that_gives_up_goes_on(void **state)
{
    SCRIPTS({S(0, 0, K4), D(0)}, {{TIMED, 0, 0, K4, RL_EXCLUSIVE}, D(0)}, {S(0, 0, K4), D(0)});
}

static void three_exclusives_go_in_the_order_of_their_coming(void **state)
{
    SCRIPTS({X(0, 0, K4), D(0)}, {X(0, 0, 5), D(0)}, {X(0, 0, 2 * MIB), D(0)});
}

static void an_exclusive_is_not_starved_by_two_who_share(void **state)
{
    SCRIPTS({S(0, 0, K4), D(0), S(0, 0, K4), D(0)}, {X(0, 0, K4), D(0)},
            {S(0, 0, K4), D(0), S(0, 0, K4), D(0)});
}

static void one_that_holds_passes_one_that_waits(void **state)
{
    SCRIPTS({S(0, 0, K4), S(1, 0, MIB), D(0), D(1)}, {X(0, 0, K4), D(0)}, {S(0, 0, K4), D(0)});
}

static void one_that_holds_elsewhere_passes_too(void **state)
{
    SCRIPTS({X(0, 5 * MIB, 6 * MIB), X(1, 0, K4), D(0), D(1)}, {X(0, 0, K4), D(0)},
            {X(0, 0, K4), D(0)});
}

/* All slots but one are taken. */
static void fill_slots(void)
{
    fillers = 0;
    while (fillers < RL_RANGE_SLOTS - 1 &&
           rl_range_try(&lock, &filler[fillers], (fillers + 4) * MIB, (fillers + 4) * MIB + 1,
                        RL_SHARED) == 0)
        fillers++;
}

static void two_who_want_the_last_slot_both_get_it(void **state)
{
    prepare = fill_slots;
    SCRIPTS({X(0, 0, 2 * MIB), D(0)}, {X(0, 1000 * MIB, 1002 * MIB), D(0)});
}

/* Its own group is full: the next one goes to a wide group, or into a room. */
static uint64_t room_memory[8192];

static void fill_group_with_room(void)
{
    memset(room_memory, 0, sizeof room_memory);
    rl_range_room(&lock, room_memory, sizeof room_memory);
    for (fillers = 0; fillers < GROUP_SLOTS; fillers++)
        rl_range_try(&lock, &filler[fillers], 4 * MIB + fillers * K4, 4 * MIB + fillers * K4 + 1,
                     RL_SHARED);
}

static void ranges_in_rooms_are_seen(void **state)
{
    prepare = fill_group_with_room;
    SCRIPTS({X(0, 0, K4), D(0)}, {X(0, 0, 3 * MIB), D(0), X(0, 0, 5), D(0)});
}

int main(void)
{
#ifdef RL_TSAN
    puts("SKIP: the threads of an interleaving are contexts of one thread, which ThreadSanitizer "
         "cannot follow");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_exclusives_take_turns),
        cmocka_unit_test(they_do_so_again_and_again),
        cmocka_unit_test(narrow_and_wide_ones_see_each_other),
        cmocka_unit_test(shared_and_exclusive_exclude_each_other),
        cmocka_unit_test(shared_ones_never_wait_for_each_other_nor_strangers),
        cmocka_unit_test(tries_and_deadlines_leave_nothing_behind),
        cmocka_unit_test(who_waits_behind_one_that_gives_up_goes_on),
        cmocka_unit_test(three_exclusives_go_in_the_order_of_their_coming),
        cmocka_unit_test(an_exclusive_is_not_starved_by_two_who_share),
        cmocka_unit_test(one_that_holds_passes_one_that_waits),
        cmocka_unit_test(one_that_holds_elsewhere_passes_too),
        cmocka_unit_test(two_who_want_the_last_slot_both_get_it),
        cmocka_unit_test(ranges_in_rooms_are_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
