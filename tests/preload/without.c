/* SPDX-License-Identifier: MIT */
/*
 * Starts a program in which a system call fails, as container sandboxes have it.
 *
 *   without CALL ERRNO PROGRAM [ARGUMENT]...     CALL: io_uring_setup, pidfd_getfd, clone3
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *name;
    unsigned number;
} calls[] = {
    {"io_uring_setup", SYS_io_uring_setup},
    {"pidfd_getfd", SYS_pidfd_getfd},
    {"clone3", SYS_clone3},
};

int main(int argc, char **argv)
{
    unsigned number = 0;
    int error = argc > 2 ? atoi(argv[2]) : 0;

    for (size_t i = 0; argc > 3 && i < sizeof calls / sizeof *calls; i++)
        if (strcmp(argv[1], calls[i].name) == 0)
            number = calls[i].number;
    if (number == 0 || error <= 0) {
        fputs("usage: without CALL ERRNO PROGRAM [ARGUMENT]...\n", stderr);
        return 2;
    }

    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        fprintf(stderr, "without: %s\n", strerror(errno));
        return 77;
    }
    execvp(argv[3], argv + 3);
    fprintf(stderr, "without: %s: %s\n", argv[3], strerror(errno));
    return 127;
}
