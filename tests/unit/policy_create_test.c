/* SPDX-License-Identifier: MIT */
/* What policy_create.h promises, over all combinations of flags and facts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "../../shim/policy_create.h"

#define ELEMENTS(a) (sizeof(a) / sizeof *(a))

static void only_plain_creations_are_helped(void **state)
{
    static const int bit[] = {O_CREAT,    O_EXCL,    O_TRUNC,    O_APPEND, O_DIRECTORY, O_PATH,
                              O_NOFOLLOW, O_CLOEXEC, O_NONBLOCK, O_DIRECT, O_SYNC,      O_TMPFILE};

    (void)state;
    for (unsigned set = 0; set < 1u << ELEMENTS(bit); set++)
        for (int access = 0; access <= O_ACCMODE; access++) {
            int flags = access;
            bool never;

            for (unsigned i = 0; i < ELEMENTS(bit); i++)
                flags |= (set >> i & 1) != 0 ? bit[i] : 0;
            never = (flags & O_CREAT) == 0 || (flags & O_EXCL) != 0 || (flags & O_DIRECTORY) != 0 ||
                    (flags & O_PATH) != 0 || (flags & O_NOFOLLOW) != 0 || access == O_ACCMODE;
            if (policy_create_flags(flags) == never)
                fail_msg("flags %o", (unsigned)flags);
        }
}

static void only_regular_files_of_ones_own_are_kept(void **state)
{
    static const uint32_t type[] = {S_IFREG, S_IFDIR, S_IFIFO, S_IFCHR, S_IFBLK, S_IFSOCK, S_IFLNK};

    (void)state;
    for (unsigned i = 0; i < ELEMENTS(type); i++) {
        assert_int_equal(policy_create_keeps(type[i] | 0644, 7, 7), type[i] == S_IFREG);
        assert_false(policy_create_keeps(type[i] | 0666, 7, 8));
        assert_false(policy_create_keeps(type[i] | 0666, 0, 8));
        /* Users of other namespaces all look like this one: it is nobody's own. */
        assert_false(policy_create_keeps(type[i] | 0666, 65534, 65534));
    }
}

static void sync_never_looks_and_auto_leaves_local_file_systems_alone(void **state)
{
    static const enum create_kind kind[] = {CREATE_KIND_UNKNOWN, CREATE_KIND_PLAIN,
                                            CREATE_KIND_REMOTE, CREATE_KIND_MEASURE};

    (void)state;
    for (unsigned k = 0; k < ELEMENTS(kind); k++)
        for (unsigned i = 0; i < 1024; i++) {
            struct create_facts f = {.setting = CFG_CREATE_SYNC,
                                     .kind = kind[k],
                                     .known = i & 1,
                                     .missing = i >> 1 & 31,
                                     .look_ns = (i >> 6 & 3) * 90000,
                                     .plain_ns = (i >> 8 & 3) * 90000,
                                     .turn = i};

            assert_int_equal(policy_create(&f), CREATE_PLAIN);
            f.setting = CFG_CREATE_AUTO;
            if (kind[k] == CREATE_KIND_PLAIN || kind[k] == CREATE_KIND_UNKNOWN)
                assert_int_equal(policy_create(&f), CREATE_PLAIN);
            f.setting = CFG_CREATE_DEDUPE;
            assert_true(policy_create(&f) == CREATE_LOOK || policy_create(&f) == CREATE_LEAD);
        }
}

static void file_systems_are_told_apart(void **state)
{
    (void)state;
    assert_int_equal(policy_create_kind(0x65735546, 0x612), CREATE_KIND_REMOTE); /* FUSE */
    assert_int_equal(policy_create_kind(0x6969, 0x50a), CREATE_KIND_REMOTE);     /* NFS */
    assert_int_equal(policy_create_kind(0xef53, 0x60c), CREATE_KIND_PLAIN);      /* ext4, 6.12 */
    assert_int_equal(policy_create_kind(0xef53, 0x60b), CREATE_KIND_MEASURE);    /* and before */
}

static void paths_are_read_as_long_as_it_pays(void **state)
{
    uint32_t left = CREATE_LOOKS;

    (void)state;
    for (unsigned i = 0; i < CREATE_LOOKS - 1; i++)
        assert_int_not_equal(left = policy_create_left(left, CREATE_KIND_PLAIN), 0);
    assert_int_equal(policy_create_left(left, CREATE_KIND_REMOTE), CREATE_LOOKS);
    assert_int_equal(policy_create_left(left, CREATE_KIND_MEASURE), CREATE_LOOKS);
    left = policy_create_left(left, CREATE_KIND_UNKNOWN);
    assert_int_equal(left, 0);
    assert_int_equal(policy_create_left(left, CREATE_KIND_PLAIN), 0);
    assert_int_equal(policy_create_left(left, CREATE_KIND_REMOTE), CREATE_LOOKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_plain_creations_are_helped),
        cmocka_unit_test(only_regular_files_of_ones_own_are_kept),
        cmocka_unit_test(sync_never_looks_and_auto_leaves_local_file_systems_alone),
        cmocka_unit_test(file_systems_are_told_apart),
        cmocka_unit_test(paths_are_read_as_long_as_it_pays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
