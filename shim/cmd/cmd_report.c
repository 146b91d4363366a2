/* SPDX-License-Identifier: MIT */
/* cmd_report: rlshim report FILE...: exit reports as text, several added together. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd.h"
#include "report_read.h"

/* Reports are far smaller: REPORT_JSON_BYTES. */
static char text[4 * REPORT_JSON_BYTES];
static char shown[REPORT_TEXT_BYTES];
static struct report sum, one;

/* The text of a file into text[]. NULL, or a reason. */
static const char *read_file(const char *path, size_t *n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const char *bad = NULL;
    struct stat st;
    ssize_t got;

    *n = 0;
    if (fd < 0)
        return strerror(errno);
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        bad = "it is a directory; name the .json files in it";
    while (bad == NULL) {
        got = read(fd, text + *n, sizeof text - *n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            bad = strerror(errno);
        if (got <= 0)
            break;
        *n += (size_t)got;
        if (*n == sizeof text)
            bad = "it is too large for a report";
    }
    close(fd);
    return bad;
}

int cmd_report(int argc, char **argv)
{
    int first = argc > 1 && strcmp(argv[1], "--") == 0 ? 2 : 1;
    int status = EXIT_WORKED;

    if (first == 1 && argc > 1 && argv[1][0] == '-')
        return misuse(argv[0], "there is no option '%.80s'", argv[1]);
    if (first == argc)
        return misuse(argv[0], "no file was given");
    for (int i = first; i < argc; i++) {
        size_t n;
        const char *bad = read_file(argv[i], &n);

        if (bad == NULL)
            bad = report_read(text, n, &one);
        if (bad != NULL)
            status = fail(argv[0], "%s: %s", argv[i], bad);
        else if (sum.processes == 0)
            sum = one;
        else
            report_add(&sum, &one);
    }
    if (sum.processes != 0) {
        report_text(&sum, shown, sizeof shown);
        fputs(shown, stdout);
    }
    return status;
}
