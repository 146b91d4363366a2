/* SPDX-License-Identifier: MIT */
/* The library's messages: where they go, and that they can do the program no harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../shim/log.h"

static struct settings settings;
static char seen[8192];

/* Which file stderr is gets remembered once a process: each case runs in a child of its own, with
 * stderr as given, and gives back its exit status. */
static int in_child(void (*body)(void), int err)
{
    int status;
    pid_t pid = fork();

    assert_int_not_equal(pid, -1);
    if (pid == 0) {
        dup2(err, 2);
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static const char *contents(FILE *f)
{
    size_t n;

    rewind(f);
    n = fread(seen, 1, sizeof seen - 1, f);
    seen[n] = '\0';
    return seen;
}

static void say_three_levels(void)
{
    settings.log = CFG_LOG_INFO;
    log_start(&settings, "/");
    log_line(CFG_LOG_OFF, LOG_S("always"));
    log_line(CFG_LOG_INFO, LOG_S("info "), LOG_SIZE(8 << 20), LOG_S(" in "), LOG_TIME(1500),
             LOG_S(" "), LOG_N(1000), LOG_S(": "), LOG_ERRNO(ENOSPC));
    log_line(CFG_LOG_DEBUG, LOG_S("debug"));
}

static void lines_above_the_level_are_shown(void **state)
{
    (void)state;
    FILE *f = tmpfile();

    assert_int_equal(in_child(say_three_levels, fileno(f)), 0);
    contents(f);
    fclose(f);
    assert_non_null(strstr(seen, "]: always\n"));
    assert_non_null(
        strstr(seen, "]: info 8.0 MiB in 1.50 us 1,000: no space left on the device\n"));
    assert_null(strstr(seen, "debug"));
    assert_int_equal(strncmp(seen, "rlshim[", 7), 0);
}

static void say_odd_bytes(void)
{
    char huge[4 * LOG_LINE_BYTES];

    log_start(NULL, NULL);
    log_line(CFG_LOG_OFF, LOG_S("a\nb\x1b[31m\xff\xc3\xa4"));
    memset(huge, 'x', sizeof huge - 1);
    huge[sizeof huge - 1] = '\0';
    log_line(CFG_LOG_OFF, LOG_S(huge));
}

static void a_message_is_one_bounded_line_whatever_it_holds(void **state)
{
    (void)state;
    FILE *f = tmpfile();
    char *second;

    assert_int_equal(in_child(say_odd_bytes, fileno(f)), 0);
    contents(f);
    fclose(f);
    assert_non_null(strstr(seen, "]: a?b?[31m?\xc3\xa4\n"));
    second = strchr(seen, '\n') + 1;
    assert_true(strlen(second) <= LOG_LINE_BYTES);
    assert_ptr_equal(strchr(second, '\n'), seen + strlen(seen) - 1);
}

static int data_file;

static void replace_stderr(void)
{
    log_start(NULL, NULL);
    dup2(data_file, 2);
    log_line(CFG_LOG_OFF, LOG_S("must not get into the data"));
}

static void open_data_as_stderr(void)
{
    close(2);
    log_start(NULL, NULL);
    dup2(data_file, 2);
    log_line(CFG_LOG_OFF, LOG_S("must not get into the data"));
}

static void data_opened_as_descriptor_2_is_never_written_to(void **state)
{
    (void)state;
    FILE *err = tmpfile(), *data = tmpfile();

    data_file = fileno(data);
    assert_int_equal(in_child(replace_stderr, fileno(err)), 0);
    assert_int_equal(in_child(open_data_as_stderr, fileno(err)), 0);
    assert_string_equal(contents(data), "");
    fclose(err);
    fclose(data);
}

static void say_one(void)
{
    log_start(NULL, NULL);
    errno = 4711;
    log_line(CFG_LOG_OFF, LOG_S("x"));
    if (errno != 4711)
        _exit(3);
}

static void a_broken_pipe_raises_no_signal(void **state)
{
    (void)state;
    int p[2];

    assert_int_equal(pipe(p), 0);
    close(p[0]);
    assert_int_equal(in_child(say_one, p[1]), 0);
    close(p[1]);
}

static void keep_the_program_sigpipe(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGPIPE);
    say_one();
    sigpending(&set);
    if (!sigismember(&set, SIGPIPE))
        _exit(4);
}

static void a_sigpipe_of_the_program_stays_pending(void **state)
{
    (void)state;
    int p[2];

    assert_int_equal(pipe(p), 0);
    close(p[0]);
    assert_int_equal(in_child(keep_the_program_sigpipe, p[1]), 0);
    close(p[1]);
}

static void a_full_pipe_is_not_waited_for_long(void **state)
{
    (void)state;
    int p[2];
    char block[4096] = {0};

    assert_int_equal(pipe(p), 0);
    fcntl(p[1], F_SETFL, O_NONBLOCK);
    while (write(p[1], block, sizeof block) > 0)
        ;
    fcntl(p[1], F_SETFL, 0);
    assert_int_equal(in_child(say_one, p[1]), 0); /* hangs here otherwise */
    close(p[0]);
    close(p[1]);
}

static void limited(void)
{
    struct rlimit small = {3, 3};

    setrlimit(RLIMIT_FSIZE, &small);
    say_one();
}

static void the_file_size_limit_raises_no_signal(void **state)
{
    (void)state;
    FILE *f = tmpfile();

    assert_int_equal(in_child(limited, fileno(f)), 0);
    assert_string_equal(contents(f), "");
    fclose(f);
}

static void to_a_file(void)
{
    int free_before = dup(0);

    close(free_before);
    settings.log = CFG_LOG_ERROR;
    log_start(&settings, "/tmp");
    log_line(CFG_LOG_ERROR, LOG_S("one"));
    log_line(CFG_LOG_ERROR, LOG_S("two"));
    log_line(CFG_LOG_INFO, LOG_S("three"));
    if (dup(0) != free_before)
        _exit(5);
}

static void a_log_file_is_appended_to_and_leaves_no_descriptor(void **state)
{
    (void)state;
    FILE *err = tmpfile();
    char path[128];
    FILE *f;

    snprintf(settings.log_path, sizeof settings.log_path, "log_test.%d", (int)getpid());
    snprintf(path, sizeof path, "/tmp/log_test.%d", (int)getpid());
    assert_int_equal(in_child(to_a_file, fileno(err)), 0);
    assert_int_equal(in_child(to_a_file, fileno(err)), 0);
    f = fopen(path, "r");
    assert_non_null(f);
    contents(f);
    fclose(f);
    unlink(path);
    assert_non_null(strstr(strstr(seen, "two") + 3, "two"));
    assert_null(strstr(seen, "three"));
    assert_string_equal(contents(err), "");

    /* One complaint, not one a line. */
    strcpy(settings.log_path, "/nonexistent/log");
    assert_int_equal(in_child(to_a_file, fileno(err)), 0);
    contents(err);
    assert_non_null(strstr(seen, "cannot be written: there is no such file or directory"));
    assert_ptr_equal(strchr(seen, '\n'), seen + strlen(seen) - 1);
    fclose(err);
    settings.log_path[0] = '\0';
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_above_the_level_are_shown),
        cmocka_unit_test(a_message_is_one_bounded_line_whatever_it_holds),
        cmocka_unit_test(data_opened_as_descriptor_2_is_never_written_to),
        cmocka_unit_test(a_broken_pipe_raises_no_signal),
        cmocka_unit_test(a_sigpipe_of_the_program_stays_pending),
        cmocka_unit_test(a_full_pipe_is_not_waited_for_long),
        cmocka_unit_test(the_file_size_limit_raises_no_signal),
        cmocka_unit_test(a_log_file_is_appended_to_and_leaves_no_descriptor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
