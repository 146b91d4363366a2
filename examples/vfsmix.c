/* SPDX-License-Identifier: MIT */
/*
 * vfsmix: what one needless flush costs.
 *
 * A loop over one small file: create it with O_EXCL, seek to 4095 and close; open it again, with
 * O_TRUNC or without; write one byte; map 4096 bytes shared, dirty them, unmap; close; unlink. The
 * file is empty when it is opened again, so O_TRUNC has nothing to do. But on ext4 a truncation to
 * size 0 marks the file "write back when closed", and the unlink waits for that write.
 *
 * Both forms run in turns in one process, so that what a shared machine does to one it does to the
 * other as well: the line says how many loops a second each made, and their ratio.
 * Run it as it is and under LD_PRELOAD=librlshim.so, and compare.
 *
 * Exit: 0 done, 1 an I/O call was wrong, 2 usage, 3 this directory cannot show it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define TOOL_NAME "vfsmix"
#include "tool.h"

#define TURN_LOOPS 64

static const char *dir = ".";
static double seconds = 4;
static int json;

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void once(const char *path, int truncates)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    char *p;

    if (fd < 0)
        die(errno == EEXIST ? 1 : 3, "%s: %m: choose a directory that can be written to", path);
    if (lseek(fd, 4095, SEEK_SET) != 4095 || close(fd) != 0)
        die(1, "%s: seek or close: %m", path);
    fd = open(path, O_RDWR | O_CREAT | truncates, 0600);
    if (fd < 0 || pwrite(fd, "", 1, 4095) != 1)
        die(1, "%s: open or write: %m", path);
    p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        die(3, "%s: mmap: %m", path);
    memset(p, 'x', 4096);
    if (munmap(p, 4096) != 0 || close(fd) != 0 || unlink(path) != 0)
        die(1, "%s: munmap, close or unlink: %m", path);
}

static double turn(const char *path, int truncates)
{
    double began = now();

    for (int i = 0; i < TURN_LOOPS; i++)
        once(path, truncates);
    return now() - began;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"dir", required_argument, NULL, 'd'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"json", no_argument, NULL, 'j'},
                                            {0}};
    double with = 0, without = 0, end;
    unsigned long turns = 0;
    char path[PATH_MAX];
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'd')
            dir = optarg;
        else if (c == 's')
            seconds = parse_number("seconds", optarg, 3600);
        else if (c == 'j')
            json = 1;
        else
            die(2, "usage: vfsmix [--dir DIR] [--seconds S] [--json]");
    }
    if (snprintf(path, sizeof path, "%s/vfsmix.%d", dir, (int)getpid()) >= (int)sizeof path)
        die(2, "--dir: the name is too long");
    end = now() + seconds;
    do { /* ABBA */
        with += turn(path, O_TRUNC);
        without += turn(path, 0);
        without += turn(path, 0);
        with += turn(path, O_TRUNC);
        turns += 2;
    } while (now() < end);
    printf(json ? "{\"truncating_per_s\": %.0f, \"plain_per_s\": %.0f, \"ratio\": %.3f}\n"
                : "loops/s with O_TRUNC %.0f, without %.0f; ratio %.3f\n",
           (double)turns * TURN_LOOPS / with, (double)turns * TURN_LOOPS / without, without / with);
    return 0;
}
