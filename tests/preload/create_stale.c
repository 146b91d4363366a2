/* SPDX-License-Identifier: MIT */
/* timeout: 60 */
/*
 * create_stale MOUNTED BACK: what another client does to a name that the kernel still trusts.
 *
 * MOUNTED is a FUSE file system that shows BACK; what is done in BACK is done by somebody else, as on
 * a network file system. A name is made and seen in MOUNTED, changed in BACK, and made once more in
 * MOUNTED: prints what that gave, and what is there afterwards. Run by create_stale.sh, which compares.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum how { MKDIR, MKDIRAT, OPEN, CUT, STREAM, HOWS };
static const char *const how_name[HOWS] = {"mkdir", "mkdirat", "open(O_CREAT)",
                                           "open(O_CREAT|O_TRUNC)", "fopen(\"a\")"};
enum change { NOTHING, REMOVED, REPLACED, CHANGES };
static const char *const change_name[CHANGES] = {"as it was", "removed", "replaced"};

static char here[500], there[500];

static int make(enum how how)
{
    FILE *f;
    int fd;

    switch (how) {
    case MKDIR:
        return mkdir(here, 0700);
    case MKDIRAT:
        return mkdirat(AT_FDCWD, here, 0700);
    case STREAM:
        f = fopen(here, "a");
        return f != NULL ? fclose(f) : -1;
    default:
        fd = open(here, O_RDWR | O_CREAT | (how == CUT ? O_TRUNC : 0), 0600);
        return fd >= 0 ? close(fd) : -1;
    }
}

static void change(enum how how, enum change change)
{
    char other[520];
    int fd;

    snprintf(other, sizeof other, "%s.other", there);
    if (change == NOTHING)
        return;
    if (how <= MKDIRAT) {
        rmdir(there);
        if (change == REPLACED)
            close(creat(there, 0600));
        return;
    }
    if (change == REMOVED) {
        unlink(there);
        return;
    }
    fd = creat(other, 0600);
    if (fd < 0 || write(fd, "of another", 10) != 10 || close(fd) != 0 || rename(other, there) != 0)
        exit(1);
}

int main(int argc, char **argv)
{
    struct stat st;

    if (argc != 3)
        return 2;
    for (int i = 0; i < 80; i++) { /* so that it is known what kind of place this is */
        snprintf(here, sizeof here, "%s/warm%d", argv[1], i % 4);
        close(open(here, O_RDWR | O_CREAT, 0600));
    }
    for (enum how how = MKDIR; how < HOWS; how++)
        for (enum change what = NOTHING; what < CHANGES; what++) {
            int r, error;

            snprintf(here, sizeof here, "%s/name-%d-%d", argv[1], (int)how, (int)what);
            snprintf(there, sizeof there, "%s/name-%d-%d", argv[2], (int)how, (int)what);
            for (int i = 0; i < 3; i++)
                make(how);
            if (stat(here, &st) != 0)
                printf("stat: %s; ", strerrorname_np(errno));
            change(how, what);
            errno = 0;
            r = make(how);
            error = errno;
            printf("%-22s %-9s: %d %s; ", how_name[how], change_name[what], r,
                   strerrorname_np(error));
            if (stat(there, &st) != 0)
                printf("there is %s\n", strerrorname_np(errno));
            else
                printf("there is a %s of %ld\n", S_ISDIR(st.st_mode) ? "directory" : "file",
                       S_ISDIR(st.st_mode) ? 0 : (long)st.st_size);
        }
    return 0;
}
