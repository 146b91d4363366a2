/* SPDX-License-Identifier: MIT */
/*
 * A stranger writes where the program under test punches.
 *
 *   stranger DIR TRIES
 *
 * The parent punches 4 KiB blocks of a named file; a child that was started by exec with LD_PRELOAD
 * taken out of its environment, and so is nobody the shim knows, is told of each punch when it has
 * returned, writes the block, and says so. A write that came after a punch must still be there in
 * the end, whatever the shim does meanwhile. Prints how many were lost; exit 1 if any.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK  4096
#define BLOCKS 256

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static int writer(const char *path)
{
    int fd = open(path, O_RDWR);
    unsigned char buf[BLOCK];
    int n;

    if (fd < 0)
        die(path);
    while (read(0, &n, sizeof n) == sizeof n) {
        memset(buf, n % 255 + 1, sizeof buf);
        if (pwrite(fd, buf, BLOCK, (off_t)(n % BLOCKS) * BLOCK) != BLOCK)
            die("pwrite");
        if (write(1, &n, sizeof n) != sizeof n)
            die("write");
    }
    return 0;
}

int main(int argc, char **argv)
{
    char path[4096];
    unsigned char buf[BLOCK];
    int to[2], from[2], fd, lost = 0;
    int tries = argc > 2 ? atoi(argv[2]) : 10000;

    if (argc == 3 && strcmp(argv[1], "--writer") == 0)
        return writer(argv[2]);
    if (argc != 3)
        return 2;
    snprintf(path, sizeof path, "%s/stranger.dat", argv[1]);
    if (pipe(to) != 0 || pipe(from) != 0)
        die("pipe");
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0)
        die(path);
    memset(buf, 7, sizeof buf);
    for (int i = 0; i < BLOCKS; i++)
        if (pwrite(fd, buf, BLOCK, (off_t)i * BLOCK) != BLOCK)
            die("pwrite");
    if (fork() == 0) {
        char *const args[] = {argv[0], (char *)"--writer", path, NULL};

        unsetenv("LD_PRELOAD");
        dup2(to[0], 0);
        dup2(from[1], 1);
        for (int i = 3; i < 64; i++)
            close(i);
        execv("/proc/self/exe", args);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    for (int n = 0; n < tries; n++) {
        int echo;

        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(n % BLOCKS) * BLOCK,
                      BLOCK) != 0)
            die("fallocate");
        if (write(to[1], &n, sizeof n) != sizeof n || read(from[0], &echo, sizeof echo) != sizeof n)
            die("pipe");
        /* Look at a block that was written a while ago: what was queued then has been applied. */
        if (n >= BLOCKS / 2) {
            int old = n - BLOCKS / 2;

            if (pread(fd, buf, BLOCK, (off_t)(old % BLOCKS) * BLOCK) != BLOCK)
                die("pread");
            lost += buf[0] != old % 255 + 1;
        }
    }
    close(to[1]);
    fsync(fd);
    for (int i = 0; i < BLOCKS; i++) {
        int last = tries - 1 - (tries - 1 - i + BLOCKS * 1000) % BLOCKS;

        if (pread(fd, buf, BLOCK, (off_t)i * BLOCK) != BLOCK)
            die("pread");
        lost += last >= 0 && buf[0] != last % 255 + 1;
    }
    unlink(path);
    printf("%d writes of a stranger, %d lost\n", tries, lost);
    return lost != 0;
}
