/* SPDX-License-Identifier: MIT */
/*
 * A program with something to report: punches the first half of a file without a name, block by
 * block, and prints what it then reads.
 *
 *   report FILE BLOCKS            once
 *   report FILE BLOCKS wait       then again at every line on stdin, until its end; prints "ready"
 *                                 after each round, with what control.h says
 *
 * FILE is made and unlinked. Its output is the same with and without the library, except for the
 * figures after "control:", which only the second form prints.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../include/rlshim/control.h"

#define BLOCK 4096

static char block[BLOCK];

static void die(const char *what)
{
    fprintf(stderr, "report: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Data, holes in the first half, and a sum over what is read back. */
static uint64_t round_of(int fd, int blocks)
{
    uint64_t sum = 0;

    for (int i = 0; i < blocks; i++) {
        memset(block, 'a' + i % 26, sizeof block);
        if (pwrite(fd, block, sizeof block, (off_t)i * BLOCK) != BLOCK)
            die("pwrite");
    }
    for (int i = 0; i < blocks / 2; i++)
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)i * BLOCK, BLOCK) != 0)
            die("fallocate");
    for (int i = 0; i < blocks; i++) {
        if (pread(fd, block, sizeof block, (off_t)i * BLOCK) != BLOCK)
            die("pread");
        for (int k = 0; k < BLOCK; k++)
            sum = sum * 31 + (unsigned char)block[k];
    }
    return sum;
}

static void print_control(void)
{
    printf("control: active=%d calls=%llu deferred=%llu off=%llu\n", rl_active(),
           (unsigned long long)rl_counter("punch_calls"),
           (unsigned long long)rl_counter("punch_deferred"),
           (unsigned long long)rl_counter("punch_no_setting"));
}

int main(int argc, char **argv)
{
    int blocks, fd;
    char line[64];

    if (argc < 3 || argc > 4 || (blocks = atoi(argv[2])) < 2) {
        fputs("usage: report FILE BLOCKS [wait]\n", stderr);
        return 2;
    }
    fd = open(argv[1], O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        die(argv[1]);
    unlink(argv[1]);
    printf("sum %llu\n", (unsigned long long)round_of(fd, blocks));
    while (argc == 4) {
        print_control();
        puts("ready");
        fflush(stdout);
        if (fgets(line, sizeof line, stdin) == NULL)
            break;
        if (strcmp(line, "settle\n") == 0)
            rl_settle();
        else if (strcmp(line, "off\n") == 0)
            rl_off();
        else if (strcmp(line, "on\n") == 0)
            rl_on();
        if (strncmp(line, "settle", 6) == 0 || strncmp(line, "off", 3) == 0)
            printf("queued %lu\n", rl_queued());
        printf("sum %llu\n", (unsigned long long)round_of(fd, blocks));
    }
    close(fd);
    return 0;
}
