/* SPDX-License-Identifier: MIT */
/* What inode_table.h promises of two threads that ask for the same inode at once, under every
 * interleaving with few thread changes. timeout: 120 */
#include <string.h>

#include "interleave.h"

#include "../../lockmgr/gate.c"
#include "../../lockmgr/ranges.c"
#include "../../lockmgr/range_table.c"
#define wake flight_wake /* gate.c has one */
#include "../../lockmgr/single_flight.c"
#undef wake
#include "../../lockmgr/inode_table.c"

#include <stdarg.h>
#include <cmocka.h>

#define SAMPLES 2000

static struct rl_inode_table table;
static struct rl_inode *got[2];
static uint32_t gens[2];

static void setup(void)
{
    memset(&table, 0, sizeof table);
    got[0] = got[1] = NULL;
}

static void ask(int who)
{
    got[who] = rl_inode_get(&table, 8, 4711, &gens[who]);
}

static void actor_0(void)
{
    ask(0);
}

static void actor_1(void)
{
    ask(1);
}

/* One may have gone without (the lock was held for too long); never two entries for one inode. */
static void check(void)
{
    int entries = 0;

    for (int i = 0; i < RL_INODES; i++)
        entries += table.inode[i].ino == 4711 && (table.inode[i].gen & 1) == 0;
    IL_EXPECT(entries == 1);
    IL_EXPECT(got[0] != NULL || got[1] != NULL);
    IL_EXPECT(got[0] == NULL || got[1] == NULL || got[0] == got[1]);
}

static void one_inode_never_gets_two_entries(void **state)
{
    struct il_scenario s = {__func__, setup, {actor_0, actor_1}, NULL, check};

    (void)state;
    assert_int_equal(il_explore(&s, SAMPLES), 0);
}

int main(void)
{
#ifdef RL_TSAN
    puts("SKIP: the threads of an interleaving are contexts of one thread, which ThreadSanitizer "
         "cannot follow");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_inode_never_gets_two_entries),
    };

    return cmocka_run_group_tests_name("inodes, step by step", tests, NULL, NULL);
}
