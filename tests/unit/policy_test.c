/* SPDX-License-Identifier: MIT */
/* The pure decisions: policy_flush, policy_punch and policy_split, as tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>

/* Rows say what differs from the one that is split. */
#pragma GCC diagnostic ignored "-Woverride-init"

#include "../../shim/policy_flush.h"
#include "../../shim/policy_punch.h"
#include "../../shim/policy_split.h"
#include "../../shim/policy_truncate.h"

#define YES                                                                                        \
    {                                                                                              \
        .works = true, .defer = true, .known_fs = true, .whole = true, .on = true                  \
    }

static void a_punch_is_deferred_only_when_everything_allows_it(void **state)
{
    const struct {
        const char *what;
        struct punch_facts f;
        enum punch_act act;
        enum stat_id reason;
    } rows[] = {
        {"all is well", YES, PUNCH_DEFER, STAT_punch_deferred},
        {"switched off",
         {.defer = true, .known_fs = true, .whole = true, .on = true},
         PUNCH_INLINE,
         STAT_punch_no_setting},
        {"punch = sync",
         {.works = true, .known_fs = true, .whole = true, .on = true},
         PUNCH_INLINE,
         STAT_punch_no_setting},
        {"bad arguments",
         {.works = true, .defer = true, .known_fs = true, .on = true},
         PUNCH_INLINE,
         STAT_punch_no_setting},
        {"unknown file system",
         {.works = true, .defer = true, .whole = true, .on = true},
         PUNCH_INLINE,
         STAT_punch_no_fs},
        {"own io_uring",
         {.works = true,
          .defer = true,
          .known_fs = true,
          .whole = true,
          .on = true,
          .foreign = true},
         PUNCH_INLINE,
         STAT_punch_no_foreign},
        {"a stream",
         {.works = true,
          .defer = true,
          .known_fs = true,
          .whole = true,
          .on = true,
          .never = STAT_punch_no_stream},
         PUNCH_INLINE,
         STAT_punch_no_stream},
        {"too long",
         {.works = true, .defer = true, .known_fs = true, .whole = true, .on = true, .long_ = true},
         PUNCH_INLINE,
         STAT_punch_no_size},
        {"where it may not fit",
         {.works = true, .defer = true, .known_fs = true, .whole = true, .on = true, .far = true},
         PUNCH_INLINE,
         STAT_punch_no_size},
        {"first punch",
         {.works = true, .defer = true, .known_fs = true, .whole = true},
         PUNCH_INLINE_AND_ASK,
         STAT_punch_no_evidence_yet},
        {"being looked at",
         {.works = true, .defer = true, .known_fs = true, .whole = true, .asked = true},
         PUNCH_INLINE,
         STAT_punch_no_evidence_yet},
        {"a fork under way",
         {.works = true, .defer = true, .known_fs = true, .whole = true, .quiet = true},
         PUNCH_INLINE,
         STAT_punch_no_evidence_yet},
        {"refused a moment ago",
         {.works = true,
          .defer = true,
          .known_fs = true,
          .whole = true,
          .refusal = STAT_punch_no_name,
          .refusal_holds = true},
         PUNCH_INLINE,
         STAT_punch_no_name},
        {"refused long ago",
         {.works = true,
          .defer = true,
          .known_fs = true,
          .whole = true,
          .refusal = STAT_punch_no_name},
         PUNCH_INLINE_AND_ASK,
         STAT_punch_no_evidence_yet},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct punch_plan plan = policy_punch(&rows[i].f);

        if (plan.act != rows[i].act || plan.reason != rows[i].reason)
            fail_msg("%s: act %d reason %s", rows[i].what, (int)plan.act, stat_name(plan.reason));
    }
}

static void the_far_end_of_ext4_is_only_for_the_kernel_to_judge(void **state)
{
    uint64_t end = (uint64_t)1 << 44; /* of a file with blocks of 4 KiB, and a block more */

    (void)state;
    assert_true(policy_punch_far(FILE_KIND_EXT4, end, 0));
    assert_true(policy_punch_far(FILE_KIND_EXT4, end, end - 4096));
    assert_false(policy_punch_far(FILE_KIND_EXT4, end - 4096, end - 4096));
    assert_false(policy_punch_far(FILE_KIND_EXT4, (uint64_t)1 << 40, 0));
    assert_true(policy_punch_far(FILE_KIND_EXT4, (uint64_t)1 << 41, 0));
    assert_false(policy_punch_far(FILE_KIND_XFS, INT64_MAX, 0));
    assert_false(policy_punch_far(FILE_KIND_BTRFS, INT64_MAX, 0));
    assert_false(policy_punch_far(FILE_KIND_TMPFS, INT64_MAX, 0));
}

#define M ((size_t)1 << 20)
#define BIG                                                                                        \
    .bytes = 8 * M, .aligned = true, .direct = true, .may_interleave = true, .gate = true,         \
    .split_bytes = CFG_AUTO, .kind = FILE_KIND_XFS

static void only_big_direct_writes_are_split_and_never_what_must_stay_whole(void **state)
{
    const struct {
        const char *what;
        struct split_facts f;
        bool gate, split;
        size_t piece;
    } rows[] = {
        {"big and direct", {BIG}, true, true, 0},
        {"a size of the operator's", {BIG, .split_bytes = 256 << 10}, true, true, 256 << 10},
        {"smaller than that", {BIG, .split_bytes = 16 * M}, true, false, 16 * M},
        {"split = off", {BIG, .split_bytes = CFG_OFF}, true, false, 0},
        {"small", {BIG, .bytes = GATE_MIN_BYTES - 4096}, false, false, 0},
        {"buffered", {BIG, .direct = false}, false, false, 0},
        {"gate = off", {BIG, .gate = false}, false, false, 0},
        {"unknown file system", {BIG, .kind = FILE_KIND_NONE}, false, false, 0},
        {"tmpfs", {BIG, .kind = FILE_KIND_TMPFS}, true, false, 0},
        {"O_APPEND", {BIG, .open_flags = O_APPEND}, true, false, 0},
        {"O_SYNC", {BIG, .open_flags = O_SYNC}, true, false, 0},
        {"O_DSYNC", {BIG, .open_flags = O_DSYNC}, true, false, 0},
        {"RWF_DSYNC", {BIG, .rwf_flags = RWF_DSYNC}, true, false, 0},
        {"RWF_APPEND", {BIG, .rwf_flags = RWF_APPEND}, true, false, 0},
        {"a flag of tomorrow (RWF_ATOMIC)", {BIG, .rwf_flags = 0x40}, true, false, 0},
        {"RWF_HIPRI", {BIG, .rwf_flags = RWF_HIPRI}, true, true, 0},
        {"RLIMIT_FSIZE", {BIG, .size_limited = true}, true, false, 0},
        {"not aligned", {BIG, .aligned = false}, true, false, 0},
        {"a position others may move", {BIG, .may_interleave = false}, true, false, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct split_plan plan = policy_split(&rows[i].f);

        if (plan.gate != rows[i].gate || plan.split != rows[i].split ||
            plan.piece_bytes != rows[i].piece)
            fail_msg("%s: gate %d, split %d, pieces of %zu", rows[i].what, plan.gate, plan.split,
                     plan.piece_bytes);
    }
}

#define TARGET .hold_target_ns = 2000000
#define STEP   SPLIT_LEAST_BYTES

static void a_piece_takes_the_hold_target_beside_others_and_longer_alone(void **state)
{
    const struct {
        const char *what;
        struct piece_facts f;
        size_t bytes;
    } rows[] = {
        {"nothing known", {TARGET}, M},
        {"nothing known, beside others", {TARGET, .crowded = true}, M},
        {"50 MiB/s beside others", {TARGET, .crowded = true, .rate_bytes_s = 50 * M}, 64 << 10},
        {"512 MiB/s beside others", {TARGET, .crowded = true, .rate_bytes_s = 512 * M}, M},
        {"4 GiB/s beside others", {TARGET, .crowded = true, .rate_bytes_s = 4096 * M}, 131 * STEP},
        {"512 MiB/s alone", {TARGET, .rate_bytes_s = 512 * M}, 262 * STEP},
        {"no more than doubled", {TARGET, .rate_bytes_s = 512 * M, .last_bytes = M}, 2 * M},
        {"shrunk at once",
         {TARGET, .crowded = true, .rate_bytes_s = 512 * M, .last_bytes = 16 * M},
         M},
        {"the fastest device", {TARGET, .rate_bytes_s = (uint64_t)1 << 50}, SPLIT_MOST_BYTES},
        {"the slowest", {TARGET, .rate_bytes_s = 1}, SPLIT_LEAST_BYTES},
        {"a longer target",
         {.hold_target_ns = 8000000, .crowded = true, .rate_bytes_s = 512 * M},
         65 * STEP},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t bytes = policy_piece(&rows[i].f);

        if (bytes != rows[i].bytes)
            fail_msg("%s: %zu", rows[i].what, bytes);
    }
}

static void buffered_pieces_go_by_what_copying_takes_not_by_what_waiting_takes(void **state)
{
    const uint64_t ms = 1000000, mib = 1 << 20;
    struct whole_sample s = {.bytes = 4 * mib, .wall_ns = 100 * ms, .cpu_ns = 2 * ms};
    uint64_t rate;

    (void)state;
    /* Nothing known: half a piece as for direct writes, at least. */
    assert_in_range(policy_whole_piece(0, 2 * ms), SPLIT_FIRST_BYTES / 2, SPLIT_FIRST_BYTES);
    /* Beside others the wait is theirs: at first what the processor took, then nothing new. */
    rate = policy_whole_rate(0, &s);
    assert_in_range(rate, 1999 * mib, 2001 * mib);
    assert_int_equal(policy_whole_rate(rate, &s), rate);
    assert_in_range(policy_whole_piece(rate, 2 * ms), 3 * mib, 4 * mib);
    /* Alone, what it took is what the device made it wait for. */
    s.alone = true;
    for (int i = 0; i < 40; i++)
        rate = policy_whole_rate(rate, &s);
    assert_in_range(rate, 39 * mib, 42 * mib);
    assert_int_equal(policy_whole_piece(rate, 2 * ms), SPLIT_FIRST_BYTES / 2);
    /* A clock that stood still says nothing. */
    s.wall_ns = s.cpu_ns = 0;
    assert_int_equal(policy_whole_rate(rate, &s), rate);
}

static void calls_pass_the_gate_where_the_kernel_drains_direct_io(void **state)
{
    (void)state;
    assert_true(policy_drain_gated(true, FILE_KIND_EXT4));
    assert_true(policy_drain_gated(true, FILE_KIND_XFS));
    assert_false(policy_drain_gated(true, FILE_KIND_BTRFS));
    assert_false(policy_drain_gated(true, FILE_KIND_TMPFS));
    assert_false(policy_drain_gated(false, FILE_KIND_XFS));
}

#define EMPTY .works = true, .elides = true, .regular = true, .mode = 0644, .kind = FILE_KIND_EXT4

static void a_truncation_is_elided_only_where_it_changes_nothing_and_costs_something(void **state)
{
    const struct {
        const char *what;
        struct cut_facts f;
        enum cut cut;
    } rows[] = {
        {"empty, ext4", {EMPTY}, CUT_TIMES},
        {"empty, btrfs", {EMPTY, .kind = FILE_KIND_BTRFS}, CUT_TIMES},
        {"empty, XFS", {EMPTY, .kind = FILE_KIND_XFS}, CUT_REAL},
        {"empty, tmpfs", {EMPTY, .kind = FILE_KIND_TMPFS}, CUT_REAL},
        {"empty, another", {EMPTY, .kind = FILE_KIND_NONE}, CUT_REAL},
        {"not known", {EMPTY, .kind = -1}, CUT_REAL},
        {"switched off", {EMPTY, .works = false}, CUT_REAL},
        {"truncate = sync", {EMPTY, .elides = false}, CUT_REAL},
        {"not a file", {EMPTY, .regular = false}, CUT_REAL},
        {"blocks", {EMPTY, .blocks = 8}, CUT_REAL},
        {"contents", {EMPTY, .size = 1, .blocks = 8}, CUT_REAL},
        {"growing", {EMPTY, .wanted = 1}, CUT_REAL},
        {"set-user-ID", {EMPTY, .mode = 04755}, CUT_REAL},
        {"set-group-ID", {EMPTY, .mode = 02644}, CUT_REAL},
        {"append-only", {EMPTY, .append_only = true}, CUT_REAL},
        {"empty beside swap", {EMPTY, .swaps = true, .maps = true}, CUT_TIMES},
#define SAME EMPTY, .kind = FILE_KIND_XFS, .size = 5000, .wanted = 5000, .blocks = 16
        {"its size, XFS", {SAME}, CUT_TIMES_IF_NONE_PAST},
        {"its size, ext4", {SAME, .kind = FILE_KIND_EXT4}, CUT_REAL},
        {"its size, mapped", {SAME, .maps = true}, CUT_REAL},
        {"whole pages, mapped",
         {SAME, .maps = true, .size = 1 << 20, .wanted = 1 << 20},
         CUT_TIMES_IF_NONE_PAST},
        {"small beside swap", {SAME, .swaps = true}, CUT_TIMES_IF_NONE_PAST},
        {"could be swap", {SAME, .swaps = true, .size = 8192, .wanted = 8192}, CUT_REAL},
        {"less", {SAME, .wanted = 4999}, CUT_REAL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (policy_cut(&rows[i].f) != rows[i].cut)
            fail_msg("%s: %d", rows[i].what, (int)policy_cut(&rows[i].f));
}

static void only_opens_that_write_are_made_without_o_trunc(void **state)
{
    (void)state;
    assert_true(policy_cut_flags(O_WRONLY | O_TRUNC));
    assert_true(policy_cut_flags(O_RDWR | O_TRUNC | O_CREAT | O_APPEND | O_CLOEXEC));
    assert_false(policy_cut_flags(O_RDWR | O_CREAT));
    assert_false(policy_cut_flags(O_RDONLY | O_TRUNC));
    assert_false(policy_cut_flags(O_ACCMODE | O_TRUNC));
    assert_false(policy_cut_flags(O_RDWR | O_TRUNC | O_CREAT | O_EXCL));
    assert_false(policy_cut_flags(O_WRONLY | O_TRUNC | O_PATH));
    assert_false(policy_cut_flags(O_RDWR | O_TRUNC | O_TMPFILE));
    assert_int_equal(policy_cut_mode("w"), O_WRONLY | O_CREAT | O_TRUNC);
    assert_int_equal(policy_cut_mode("wb+e"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC);
    assert_int_equal(policy_cut_mode("r+"), -1);
    assert_int_equal(policy_cut_mode("a"), -1);
    assert_int_equal(policy_cut_mode("wx"), -1);
    assert_int_equal(policy_cut_mode("w,ccs=UTF-8"), -1);
    assert_int_equal(policy_cut_mode(""), -1);
}

static void a_sync_is_shared_only_where_that_was_proven(void **state)
{
    const struct {
        struct flush_facts f;
        bool shares;
    } rows[] = {
        {{.share = true, .kind = FILE_KIND_EXT4, .crowd = 12}, true},
        {{.share = true, .kind = FILE_KIND_EXT4, .crowd = 11}, false},
        {{.share = true, .kind = FILE_KIND_EXT4, .crowd = 2, .way = FLUSH_SHARED}, true},
        {{.share = true, .kind = FILE_KIND_EXT4, .crowd = 99, .way = FLUSH_ALONE}, false},
        {{.share = true, .kind = FILE_KIND_XFS, .crowd = 99, .way = FLUSH_ALONE}, false},
        {{.share = true, .kind = FILE_KIND_TMPFS, .crowd = 99, .way = FLUSH_SHARED}, false},
        {{.share = true, .kind = FILE_KIND_XFS}, true},
        {{.share = true, .kind = FILE_KIND_BTRFS}, true},
        {{.share = true, .kind = FILE_KIND_TMPFS}, false},
        {{.share = true, .kind = FILE_KIND_NONE}, false},
        {{.share = false, .kind = FILE_KIND_EXT4, .crowd = 99}, false},
        {{.share = true, .inside = true, .kind = FILE_KIND_EXT4, .crowd = 99}, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(policy_flush_shares(&rows[i].f), rows[i].shares);
    assert_true(policy_flush_is_about_data(EIO) && policy_flush_is_about_data(ENOSPC) &&
                policy_flush_is_about_data(EDQUOT) && policy_flush_is_about_data(EROFS));
    assert_false(policy_flush_is_about_data(EBADF) || policy_flush_is_about_data(EINVAL) ||
                 policy_flush_is_about_data(EINTR) || policy_flush_is_about_data(EPERM));
    assert_true(policy_flush_told(5, 5));
    assert_false(policy_flush_told(5, 6));
}

/* So many stretches of a file where a call takes alone_ns alone and shared_ns shared; how many of them
 * were shared. */
static unsigned stretches(struct flush_choice *c, enum flush_way *way, unsigned count,
                          uint64_t alone_ns, uint64_t shared_ns, uint32_t crowd)
{
    unsigned shared = 0;

    for (unsigned i = 0; i < count; i++) {
        bool shares = *way == FLUSH_SHARED;

        shared += shares;
        *way = policy_flush_learn(c, shares, shares ? shared_ns : alone_ns, crowd);
    }
    return shared;
}

static void syncs_are_shared_where_a_call_takes_less_then(void **state)
{
    struct flush_choice c = {.patience = 0};
    enum flush_way way = FLUSH_SHARED; /* the guess on XFS */

    (void)state;
    /* A cheap flush: a tenth of a shared one. Tried at once, found, and hardly ever doubted. */
    assert_in_range(stretches(&c, &way, 3, 20000, 200000, 4), 1, 2);
    assert_in_range(stretches(&c, &way, 1000, 20000, 200000, 4), 1, 17);
    assert_true(policy_flush_gives_up(&c, true, 31000) && !policy_flush_gives_up(&c, true, 29000));
    assert_false(policy_flush_gives_up(&c, false, 1000000)); /* that is the disk, not the way */
    /* The disk is another one now, or others write to it: found at the next trial. */
    assert_in_range(stretches(&c, &way, 1000, 2000000, 500000, 4), 900, 999);

    /* As good as each other: stays, and tries ever more rarely. */
    memset(&c, 0, sizeof c);
    way = FLUSH_ALONE;
    assert_in_range(stretches(&c, &way, 1000, 100000, 99000, 4), 1, 25);
    /* A crowd that grew is asked at once. */
    assert_in_range(stretches(&c, &way, 10, 100000, 50000, 32), 8, 10);
    assert_true(c.best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(syncs_are_shared_where_a_call_takes_less_then),
        cmocka_unit_test(the_far_end_of_ext4_is_only_for_the_kernel_to_judge),
        cmocka_unit_test(a_sync_is_shared_only_where_that_was_proven),
        cmocka_unit_test(a_punch_is_deferred_only_when_everything_allows_it),
        cmocka_unit_test(only_big_direct_writes_are_split_and_never_what_must_stay_whole),
        cmocka_unit_test(a_piece_takes_the_hold_target_beside_others_and_longer_alone),
        cmocka_unit_test(buffered_pieces_go_by_what_copying_takes_not_by_what_waiting_takes),
        cmocka_unit_test(calls_pass_the_gate_where_the_kernel_drains_direct_io),
        cmocka_unit_test(a_truncation_is_elided_only_where_it_changes_nothing_and_costs_something),
        cmocka_unit_test(only_opens_that_write_are_made_without_o_trunc),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
