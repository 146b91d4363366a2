/* SPDX-License-Identifier: MIT */
/* program: can LD_PRELOAD reach a program, and how far? Asked by `run` (to warn) and `check`. */
#ifndef SHIM_CMD_PROGRAM_H
#define SHIM_CMD_PROGRAM_H

#include "elf.h"

enum reach {
    REACH_YES,
    REACH_PARTLY, /* loaded, but some or all file calls go past it */
    REACH_NOT,
    REACH_UNKNOWN, /* not a program, or unreadable */
};

struct reached {
    enum reach reach;
    char path[4096];  /* of the file that was looked at: for a script, its interpreter */
    char reason[512]; /* "" for REACH_YES */
    struct elf_facts facts;
};

/* name as for execvp. 0, or an errno if there is no such program. */
int program_examine(const char *name, bool deep, struct reached *out);

#endif
