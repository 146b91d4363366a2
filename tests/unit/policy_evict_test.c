/* SPDX-License-Identifier: MIT */
/* policy_evict: what is held, and how much of it, as tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Rows say what differs from the one that is held. */
#pragma GCC diagnostic ignored "-Woverride-init"

#include "../../shim/policy_evict.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define S   UINT64_C(1000000000)
#define HEAVY                                                                                      \
    .works = true, .defers = true, .regular = true, .last_name = true, .kind = FILE_KIND_EXT4,     \
    .bytes = 64 * MIB, .min_bytes = MIB, .ns_per_mib = EVICT_COST_UNKNOWN

static void a_file_is_held_only_where_its_freeing_takes_long(void **state)
{
    const struct {
        const char *what;
        struct evict_facts f;
        bool pays;
    } rows[] = {
        {"big, ext4", {HEAVY}, true},
        {"big, btrfs", {HEAVY, .kind = FILE_KIND_BTRFS}, true},
        {"not known yet", {HEAVY, .kind = -1}, true},
        {"another file system", {HEAVY, .kind = FILE_KIND_NONE}, false},
        {"memory", {HEAVY, .kind = FILE_KIND_TMPFS}, false},
        {"big, XFS", {HEAVY, .kind = FILE_KIND_XFS}, true},
        {"seen to be dear", {HEAVY, .ns_per_mib = 10000}, true},
        {"seen to be cheap", {HEAVY, .ns_per_mib = 1000}, false},
        {"cheap, but much of it", {HEAVY, .ns_per_mib = 1000, .bytes = 500 * MIB}, true},
        {"cheap, and asked for", {HEAVY, .ns_per_mib = 1, .min_bytes = 0}, true},
        {"at the limit", {HEAVY, .bytes = MIB}, true},
        {"below it", {HEAVY, .bytes = MIB - 512}, false},
        {"nothing to free", {HEAVY, .bytes = 0, .min_bytes = 0}, false},
        {"another name", {HEAVY, .last_name = false}, false},
        {"not a file", {HEAVY, .regular = false}, false},
        {"switched off", {HEAVY, .works = false}, false},
        {"evict = sync", {HEAVY, .defers = false}, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (policy_evict_pays(&rows[i].f) != rows[i].pays)
            fail_msg("%s", rows[i].what);
}

#define ROOM                                                                                       \
    .files = 3, .files_max = 256, .bytes = GIB, .free_bytes = 100 * GIB, .hold_max_ns = S,         \
    .free_files = UINT64_MAX

static void what_is_held_is_bounded(void **state)
{
    const struct {
        const char *what;
        struct evict_room r;
        bool fits;
    } rows[] = {
        {"room", {ROOM}, true},
        {"files", {ROOM, .files = 256}, false},
        {"a tenth of the free space", {ROOM, .free_bytes = 30 * GIB}, true},
        {"more than a tenth", {ROOM, .free_bytes = 29 * GIB}, false},
        {"as many bytes as allowed", {ROOM, .bytes_max = 3 * GIB}, true},
        {"one too many", {ROOM, .bytes_max = 3 * GIB - 1}, false},
        {"more held than allowed", {ROOM, .bytes_max = MIB}, false},
        {"inodes enough", {ROOM, .free_files = 40}, true},
        {"few inodes", {ROOM, .free_files = 39}, false},
        {"few inodes, bytes as asked for", {ROOM, .free_files = 39, .bytes_max = 9 * GIB}, false},
        {"no inode left", {ROOM, .free_files = 0, .files = 0}, false},
        {"held for a while", {ROOM, .oldest_ns = S - 1}, true},
        {"held for too long", {ROOM, .oldest_ns = S}, false},
        {"fast enough", {ROOM, .rate = 2 * GIB}, true},
        {"too slow", {ROOM, .rate = GIB / 2}, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (policy_evict_fits(&rows[i].r, 2 * GIB) != rows[i].fits)
            fail_msg("%s", rows[i].what);
    assert_int_equal(policy_evict_learn(EVICT_COST_UNKNOWN, 2 * MIB, 5000), 2500);
    assert_int_equal(policy_evict_learn(1600, 2 * MIB, 5000), 2500);
    assert_int_equal(policy_evict_learn(1600, 2 * MIB, 0), 1500);
    assert_int_equal(policy_evict_learn(EVICT_COST_UNKNOWN, 0, 1), 0);
    assert_int_equal(policy_evict_pause_ns(GIB, S / 2, GIB), S / 2);
    assert_int_equal(policy_evict_pause_ns(GIB, 2 * S, GIB), 0);
    assert_int_equal(policy_evict_pause_ns(GIB, 0, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_held_only_where_its_freeing_takes_long),
        cmocka_unit_test(what_is_held_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
