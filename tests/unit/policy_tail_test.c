/* SPDX-License-Identifier: MIT */
/* policy_tail_test: which writes extend their file first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../shim/policy_tail.h"

static const struct tail_facts append = {
    .setting = CFG_PREEXTEND_AUTO,
    .kind = FILE_KIND_EXT4,
    .nameless = true,
    .shared_kernel = true,
    .size = 1 << 20,
    .start = 1 << 20,
    .end = 9 << 20,
};

static void an_append_to_a_file_without_a_name_extends_it(void **state)
{
    (void)state;
    assert_true(policy_tail(&append));
}

static void a_file_with_a_name_is_extended_only_if_its_owner_says_so(void **state)
{
    struct tail_facts f = append;

    (void)state;
    f.nameless = false;
    assert_false(policy_tail(&f));
    f.setting = CFG_PREEXTEND_ON;
    assert_true(policy_tail(&f));
    f.setting = CFG_PREEXTEND_OFF;
    f.nameless = true;
    assert_false(policy_tail(&f));
}

static void only_ext4_and_only_where_the_kernel_then_shares_the_lock(void **state)
{
    struct tail_facts f = append;

    (void)state;
    f.shared_kernel = false;
    assert_false(policy_tail(&f));
    for (int kind = FILE_KIND_NONE; kind <= FILE_KIND_TMPFS; kind++) {
        f = append;
        f.kind = (enum file_kind)kind;
        assert_int_equal(policy_tail(&f), kind == FILE_KIND_EXT4);
    }
}

static void a_write_that_leaves_a_gap_or_makes_nothing_longer_does_not(void **state)
{
    struct tail_facts f = append;

    (void)state;
    f.start += 4096;
    assert_false(policy_tail(&f));
    f = append;
    f.start = 0;
    assert_true(policy_tail(&f));
    f.end = f.size;
    assert_false(policy_tail(&f));
}

static void an_end_within_a_block_is_left_alone(void **state)
{
    struct tail_facts f = append;

    (void)state;
    f.size += 512;
    f.start = 0;
    assert_false(policy_tail(&f));
}

static void kernels_are_told_by_their_release(void **state)
{
    (void)state;
    assert_true(policy_tail_kernel("6.6.0"));
    assert_true(policy_tail_kernel("6.18.44-fc-v782"));
    assert_true(policy_tail_kernel("7.0-rc1"));
    assert_true(policy_tail_kernel("10.0"));
    assert_false(policy_tail_kernel("6.1.0-49-amd64"));
    assert_false(policy_tail_kernel("5.15.0"));
    assert_false(policy_tail_kernel("6"));
    assert_false(policy_tail_kernel(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_append_to_a_file_without_a_name_extends_it),
        cmocka_unit_test(a_file_with_a_name_is_extended_only_if_its_owner_says_so),
        cmocka_unit_test(only_ext4_and_only_where_the_kernel_then_shares_the_lock),
        cmocka_unit_test(a_write_that_leaves_a_gap_or_makes_nothing_longer_does_not),
        cmocka_unit_test(an_end_within_a_block_is_left_alone),
        cmocka_unit_test(kernels_are_told_by_their_release),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
