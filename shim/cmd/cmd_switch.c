/* SPDX-License-Identifier: MIT */
/* cmd_switch: rlshim off PID, rlshim on PID. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "target.h"

static int off(const struct target *t)
{
    bool ended;
    int status = target_wait_quiet(t, &ended);

    if (status == EXIT_WORKED && ended)
        printf("process %u has ended\n", t->pid);
    else if (status == EXIT_WORKED)
        printf("process %u: rlshim is off and everything is applied\n", t->pid);
    return status;
}

int cmd_switch(int argc, char **argv)
{
    struct target t = {.cmd = argv[0], .mem = -1};
    uint32_t value = strcmp(argv[0], "off") == 0;
    uint64_t pid;
    int status;

    if (argc != 2)
        return misuse(argv[0],
                      argc < 2 ? "no process number was given" : "it takes one process number");
    if (!parse_number(argv[1], INT32_MAX, &pid) || pid == 0)
        return misuse(argv[0], "'%.80s' is not a process number", argv[1]);
    t.pid = (unsigned)pid;
    status = target_find(&t);
    if (status == EXIT_WORKED) {
        if (!target_put_32(&t, t.done, 0) || !target_put_32(&t, t.control, value))
            status = target_refused(&t, errno);
        else if (value != 0)
            status = off(&t);
        else
            printf("process %u: rlshim is on again\n", t.pid);
    }
    if (t.mem >= 0)
        close(t.mem);
    return status;
}
