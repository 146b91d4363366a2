/* SPDX-License-Identifier: MIT */
/*
 * Finding and reading rlshim.conf: which file counts, whom it may belong to, and that nothing at
 * its place (FIFO, device, directory, unreadable, huge) can hurt the program. Files are real, in a
 * directory of their own; owners and errors that a test cannot make are faked over the real calls.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../shim/config.h"

enum { OTHER_USER = 4242 };

static struct config config;
static struct cfg_error error;
static struct settings settings;
static char text[CFG_FILE_BYTES_MAX];
static char top[200];
static char home[256], xdg[256];

/* What the fake calls do differently from the real ones. */
static struct {
    const char *denied; /* opening it for reading fails with EACCES, O_PATH does not */
    const char *etc;    /* stands for /etc/rlshim.conf, which tests must not touch */
    bool unsearchable;  /* O_PATH opens fail with EACCES as well */
    int open_errno, read_errno, fstat_errno;
    int interruptions; /* EINTR from so many reads */
    size_t read_max;   /* bytes a read returns at most */
    int open_now, opened;
} fake;

static int fake_open(const char *path, int flags)
{
    assert_true(flags & O_CLOEXEC);
    assert_true((flags & O_PATH) || ((flags & O_NONBLOCK) && (flags & O_NOCTTY)));
    if (strcmp(path, "/etc/rlshim.conf") == 0) {
        if (!fake.etc)
            return -ENOENT;
        path = fake.etc;
    }
    if (fake.denied && strcmp(path, fake.denied) == 0 && (fake.unsearchable || !(flags & O_PATH)))
        return -EACCES;
    if (fake.open_errno)
        return -fake.open_errno;
    int fd = open(path, flags);
    if (fd < 0)
        return -errno;
    fake.open_now++;
    fake.opened++;
    return fd;
}

static ssize_t fake_read(int fd, void *buf, size_t n)
{
    if (fake.interruptions-- > 0)
        return -EINTR;
    if (fake.read_errno)
        return -fake.read_errno;
    ssize_t got = read(fd, buf, fake.read_max && n > fake.read_max ? fake.read_max : n);
    return got < 0 ? -errno : got;
}

static int fake_fstat(int fd, struct stat *st)
{
    if (fake.fstat_errno)
        return -fake.fstat_errno;
    return fstat(fd, st) < 0 ? -errno : 0;
}

static int fake_close(int fd)
{
    fake.open_now--;
    return close(fd) < 0 ? -errno : 0;
}

static const struct cfg_io io = {fake_open, fake_read, fake_fstat, fake_close};

static int load_as(uid_t uid, char *const *env)
{
    int rc = cfg_load(&config, &io, env, uid, false, text, sizeof(text), &error);
    assert_int_equal(fake.open_now, 0);
    cfg_settings(&config, NULL, NULL, &settings);
    return rc;
}

static int load(const char *conf)
{
    char named[512];
    char *env[] = {home, xdg, conf ? named : NULL, NULL};

    snprintf(named, sizeof(named), "RLSHIM_CONF=%s", conf ? conf : "");
    return load_as(getuid(), env);
}

static void write_file(const char *path, const char *content)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(content, f);
    fclose(f);
    assert_int_equal(chmod(path, 0644), 0);
}

static const char *line_of_error(void)
{
    static char line[4096];
    cfg_error_line(&error, line, sizeof(line));
    return line;
}

static const char *line_of_skip(void)
{
    static char line[4096];
    line[0] = 0;
    cfg_skip_line(&config, line, sizeof(line));
    return line;
}

static int fresh(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof(fake));
    return system("rm -rf ./* && mkdir -p home/.config xdg") != 0;
}

static void the_first_file_that_exists_counts_alone(void **state)
{
    (void)state;
    fake.etc = "etc.conf";
    write_file("etc.conf", "punch_delay = 1ms\nsplit = 1M");
    assert_int_equal(load(NULL), 0);
    assert_int_equal(settings.punch_delay_ns, 1000000);
    assert_string_equal(config.file, "/etc/rlshim.conf");
    write_file("xdg/rlshim.conf", "punch_delay = 2ms");
    assert_int_equal(load(NULL), 0);
    assert_int_equal(settings.punch_delay_ns, 2000000);
    assert_int_equal(settings.split_bytes, CFG_AUTO);
    write_file("rlshim.conf", "punch_delay = 3ms");
    assert_int_equal(load(NULL), 0);
    assert_int_equal(settings.punch_delay_ns, 3000000);
    assert_string_equal(config.file, "./rlshim.conf");
    write_file("named", "punch_delay = 4ms");
    assert_int_equal(load("named"), 0);
    assert_int_equal(settings.punch_delay_ns, 4000000);
    assert_int_equal(load("/dev/null"), 0);
    assert_int_equal(settings.punch_delay_ns, 10000000);
    assert_string_equal(config.file, "");
    assert_int_equal(load(""), 0); /* set but empty is not set */
    assert_int_equal(settings.punch_delay_ns, 3000000);
}

static void without_xdg_config_home_it_is_dot_config(void **state)
{
    (void)state;
    char *none[] = {home, NULL}, *relative[] = {"XDG_CONFIG_HOME=xdg", home, NULL};
    char *nothing[] = {NULL};

    write_file("home/.config/rlshim.conf", "stat = settle");
    write_file("xdg/rlshim.conf", "stat = late");
    assert_int_equal(load_as(getuid(), none), 0);
    assert_int_equal(settings.stat_mode, CFG_STAT_SETTLE);
    assert_int_equal(load_as(getuid(), relative), 0);
    assert_int_equal(settings.stat_mode, CFG_STAT_SETTLE);
    assert_int_equal(load_as(getuid(), nothing), 0);
    assert_int_equal(settings.stat_mode, CFG_STAT_LATE);
    assert_string_equal(config.file, "");
}

static void a_file_here_counts_only_if_it_is_mine_alone(void **state)
{
    (void)state;
    char *env[] = {home, xdg, NULL};

    write_file("xdg/rlshim.conf", "stat = settle");
    write_file("rlshim.conf", "this is = an attack");
    assert_int_equal(load_as(OTHER_USER, env), 0);
    assert_int_equal(settings.stat_mode, CFG_STAT_SETTLE);
    assert_string_equal(line_of_skip(),
                        "rlshim: ./rlshim.conf: passed over, it belongs to another user");
    const mode_t writable[] = {0664, 0646, 0666};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(chmod("rlshim.conf", writable[i]), 0);
        assert_int_equal(load(NULL), 0);
        assert_int_equal(config.skip, CFG_SKIP_WRITABLE);
        assert_int_equal(settings.stat_mode, CFG_STAT_SETTLE);
    }
    write_file("rlshim.conf", "mode = observe");
    assert_int_equal(chmod("rlshim.conf", 0600), 0);
    assert_int_equal(load(NULL), 0);
    assert_int_equal(settings.mode, CFG_MODE_OBSERVE);
    assert_string_equal(line_of_skip(), "");
}

static void a_file_here_that_is_no_plain_file_is_passed_over(void **state)
{
    (void)state;
    write_file("target", "mode = observe");
    assert_int_equal(symlink("target", "rlshim.conf"), 0);
    assert_int_equal(load(NULL), 0);
    assert_int_equal(config.skip, CFG_SKIP_LINK);
    assert_int_equal(settings.mode, CFG_MODE_ON);
    unlink("rlshim.conf");
    assert_int_equal(mkfifo("rlshim.conf", 0600), 0);
    assert_int_equal(load(NULL), 0);
    assert_int_equal(config.skip, CFG_SKIP_NOT_A_FILE);
    unlink("rlshim.conf");
    assert_int_equal(mkdir("rlshim.conf", 0700), 0);
    assert_int_equal(load(NULL), 0);
    assert_int_equal(config.skip, CFG_SKIP_NOT_A_FILE);
}

static void a_file_here_that_cannot_be_opened_is_an_error_only_for_its_owner(void **state)
{
    (void)state;
    char *env[] = {home, xdg, NULL};

    write_file("rlshim.conf", "mode = observe");
    fake.denied = "./rlshim.conf";
    assert_int_equal(load_as(OTHER_USER, env), 0);
    assert_int_equal(config.skip, CFG_SKIP_UNREADABLE);
    assert_int_equal(load(NULL), -1);
    assert_string_equal(line_of_error(),
                        "rlshim: ./rlshim.conf: cannot be opened: permission denied; make it "
                        "readable, or remove it. The program runs without rlshim.");
    assert_int_equal(settings.mode, CFG_MODE_OFF);
    fake.unsearchable = true;
    assert_int_equal(load(NULL), 0);
}

static void a_home_of_somebody_else_is_no_error_but_an_unreadable_etc_is(void **state)
{
    (void)state;
    char path[512];

    snprintf(path, sizeof(path), "%s/rlshim.conf", xdg + strlen("XDG_CONFIG_HOME="));
    fake.denied = path;
    fake.unsearchable = true;
    assert_int_equal(load(NULL), 0);
    write_file("etc.conf", "mode = observe");
    fake.etc = fake.denied = "etc.conf";
    fake.unsearchable = false;
    assert_int_equal(load(NULL), -1);
    assert_string_equal(error.file, "/etc/rlshim.conf");
    assert_int_equal(settings.mode, CFG_MODE_OFF);
}

static void a_named_file_must_be_there_and_be_a_file(void **state)
{
    (void)state;
    static char huge[CFG_FILE_BYTES_MAX + 2];

    assert_int_equal(load("nowhere"), -1);
    assert_string_equal(
        line_of_error(),
        "rlshim: nowhere: RLSHIM_CONF names it and it cannot be opened: there is no "
        "such file; correct it, or unset RLSHIM_CONF. The program runs without "
        "rlshim.");
    assert_int_equal(settings.mode, CFG_MODE_OFF);
    assert_int_equal(load("home"), -1);
    assert_string_equal(error.reason, "is a directory");
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(load("fifo"), -1);
    assert_string_equal(error.reason, "is not a regular file");
    assert_int_equal(load("/dev/zero"), -1);
    assert_string_equal(error.reason, "is not a regular file");
    memset(huge, '#', sizeof(huge) - 1);
    write_file("huge", huge);
    assert_int_equal(load("huge"), -1);
    assert_string_equal(error.reason, "is larger than 1 MiB");
    huge[CFG_FILE_BYTES_MAX] = 0;
    write_file("full", huge);
    assert_int_equal(load("full"), 0);
    write_file("link-target", "mode = observe");
    assert_int_equal(symlink("link-target", "link"), 0);
    assert_int_equal(load("link"), 0);
    assert_int_equal(settings.mode, CFG_MODE_OBSERVE);
    assert_int_equal(load("/bin/true"), -1);
    assert_string_equal(error.reason, "is not text, it holds NUL bytes");
}

static void reading_goes_on_after_short_reads_and_signals(void **state)
{
    (void)state;
    write_file("named", "mode = observe\nsplit = 1M\n[path /x]\nstat = settle\n");
    fake.read_max = 3;
    fake.interruptions = 2;
    assert_int_equal(load("named"), 0);
    assert_int_equal(settings.split_bytes, 1 << 20);
    assert_true(cfg_has_paths(&config));
}

static void errors_of_the_kernel_turn_it_off_and_are_named(void **state)
{
    (void)state;
    write_file("named", "mode = observe");
    fake.read_errno = EIO;
    assert_int_equal(load("named"), -1);
    assert_string_equal(error.reason, "cannot be read: input/output error");
    fake.read_errno = 0;
    fake.fstat_errno = EOVERFLOW;
    assert_int_equal(load("named"), -1);
    assert_string_equal(error.reason, "cannot be examined: error 75");
    fake.fstat_errno = 0;
    fake.open_errno = EMFILE;
    assert_int_equal(load("named"), -1);
    assert_non_null(strstr(error.reason, "too many open files"));
    assert_int_equal(settings.mode, CFG_MODE_OFF);
}

static void environment_and_file_add_up_and_both_must_be_right(void **state)
{
    (void)state;
    char *good[] = {"RLSHIM_CONF=named", "RLSHIM_SPLIT=2M", NULL};
    char *bad[] = {"RLSHIM_CONF=named", "RLSHIM_SPLIT=banana", NULL};

    write_file("named", "mode = observe\nsplit = 1M");
    assert_int_equal(load_as(getuid(), good), 0);
    assert_int_equal(settings.mode, CFG_MODE_OBSERVE);
    assert_int_equal(settings.split_bytes, 2 << 20);
    assert_int_equal(load_as(getuid(), bad), -1);
    assert_string_equal(error.file, "environment");
    assert_int_equal(settings.mode, CFG_MODE_OFF);
    write_file("named", "mode = observe\n\nsplit = banana");
    assert_int_equal(load_as(getuid(), good), -1);
    assert_non_null(strstr(line_of_error(), "rlshim: named:3: split: 'banana' "));
}

static void privileged_programs_read_nothing_and_are_left_alone(void **state)
{
    (void)state;
    char *env[] = {"RLSHIM_CONF=nowhere", "RLSHIM_MODE=banana", NULL};

    assert_int_equal(cfg_load(&config, &io, env, getuid(), true, text, sizeof(text), &error), 0);
    assert_int_equal(fake.opened, 0);
    cfg_settings(&config, NULL, NULL, &settings);
    assert_int_equal(settings.mode, CFG_MODE_OFF);
}

static void a_buffer_smaller_than_the_file_is_never_overrun(void **state)
{
    (void)state;
    char small[16] = "0123456789abcde";
    char *env[] = {"RLSHIM_CONF=named", NULL};

    write_file("named", "mode=off");
    assert_int_equal(cfg_load(&config, &io, env, 0, false, small, 8, &error), 0);
    write_file("named", "mode=off\n");
    assert_int_equal(cfg_load(&config, &io, env, 0, false, small, 8, &error), -1);
    assert_string_equal(small + 8, "89abcde");
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup(test, fresh)
    const struct CMUnitTest tests[] = {
        FRESH(the_first_file_that_exists_counts_alone),
        FRESH(without_xdg_config_home_it_is_dot_config),
        FRESH(a_file_here_counts_only_if_it_is_mine_alone),
        FRESH(a_file_here_that_is_no_plain_file_is_passed_over),
        FRESH(a_file_here_that_cannot_be_opened_is_an_error_only_for_its_owner),
        FRESH(a_home_of_somebody_else_is_no_error_but_an_unreadable_etc_is),
        FRESH(a_named_file_must_be_there_and_be_a_file),
        FRESH(reading_goes_on_after_short_reads_and_signals),
        FRESH(errors_of_the_kernel_turn_it_off_and_are_named),
        FRESH(environment_and_file_add_up_and_both_must_be_right),
        FRESH(privileged_programs_read_nothing_and_are_left_alone),
        FRESH(a_buffer_smaller_than_the_file_is_never_overrun),
    };
    alarm(60);
    /* The runner takes its TMPDIR away, also after a test that died. */
    snprintf(top, sizeof(top), "%s/rlshim-config-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(top) || chdir(top) != 0) {
        perror(top);
        return 1;
    }
    snprintf(home, sizeof(home), "HOME=%s/home", top);
    snprintf(xdg, sizeof(xdg), "XDG_CONFIG_HOME=%s/xdg", top);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    int cleared = fresh(NULL) == 0 && system("rm -rf ./*") == 0 && chdir("/") == 0;
    return failed || !cleared || rmdir(top) != 0;
}
