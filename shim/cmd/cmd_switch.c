/* SPDX-License-Identifier: MIT */
/* cmd_switch: rlshim off PID, rlshim on PID. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
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
    int status = args_pid(argc, argv, &t.pid);

    if (status >= 0)
        return status;
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
