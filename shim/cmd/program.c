/* SPDX-License-Identifier: MIT */
/* program: see program.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cmd.h"
#include "program.h"

static int judge(struct reached *out, enum reach reach, const char *reason)
{
    out->reach = reach;
    snprintf(out->reason, sizeof out->reason, "%s", reason);
    return 0;
}

/* The kernel sets AT_SECURE, and the dynamic linker ignores LD_PRELOAD, when a program gains
 * rights by being started. */
static const char *gains_rights(const char *path)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return NULL;
    if ((st.st_mode & S_ISUID) != 0 && st.st_uid != getuid())
        return "it is set-user-ID, and the dynamic linker ignores LD_PRELOAD there";
    if ((st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && st.st_gid != getgid())
        return "it is set-group-ID, and the dynamic linker ignores LD_PRELOAD there";
    if (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0)
        return "it has file capabilities, and the dynamic linker ignores LD_PRELOAD there";
    return NULL;
}

/* A script is run by its interpreter, "#!/usr/bin/env NAME" by NAME. */
static int follow_script(struct reached *out, bool deep, unsigned depth)
{
    const char *base = strrchr(out->facts.interpreter, '/');
    char name[sizeof out->facts.interpreter];
    bool env = base != NULL && strcmp(base, "/env") == 0 && out->facts.script_argument[0] != '\0' &&
               strchr(out->facts.script_argument, '=') == NULL &&
               out->facts.script_argument[0] != '-';
    int rc;

    if (depth == 4 || out->facts.interpreter[0] == '\0')
        return judge(out, REACH_UNKNOWN, "its #! line names no program");
    snprintf(name, sizeof name, "%s", env ? out->facts.script_argument : out->facts.interpreter);
    rc = find_program(name, out->path, sizeof out->path);
    if (rc != 0) {
        judge(out, REACH_UNKNOWN, "");
        snprintf(out->reason, sizeof out->reason, "its interpreter %s: %s", name, strerror(rc));
        return 0;
    }
    elf_examine(out->path, deep, &out->facts);
    return out->facts.kind == ELF_SCRIPT ? follow_script(out, deep, depth + 1) : 0;
}

int program_examine(const char *name, bool deep, struct reached *out)
{
    const char *rights;
    int rc;

    memset(out, 0, sizeof *out);
    rc = find_program(name, out->path, sizeof out->path);
    if (rc != 0)
        return rc;
    elf_examine(out->path, deep, &out->facts);
    if (out->facts.kind == ELF_SCRIPT) {
        follow_script(out, deep, 0);
        if (out->reason[0] != '\0')
            return 0;
    }
    rights = gains_rights(out->path);
    switch (out->facts.kind) {
    case ELF_UNREADABLE:
        if (rights != NULL)
            return judge(out, REACH_NOT, rights);
        judge(out, REACH_UNKNOWN, "");
        snprintf(out->reason, sizeof out->reason, "it cannot be looked into: %s",
                 strerror(out->facts.error));
        return 0;
    case ELF_SCRIPT:
    case ELF_OTHER:
        return judge(out, REACH_UNKNOWN, "it is neither an ELF program nor a script");
    case ELF_FOREIGN:
        judge(out, REACH_NOT, "");
        snprintf(out->reason, sizeof out->reason,
                 "it is built for another architecture (%u bits, ELF machine %u) than librlshim.so",
                 out->facts.bits, out->facts.machine);
        return 0;
    case ELF_STATIC:
        return judge(out, REACH_NOT,
                     out->facts.go ? "it is a static Go program: there is no dynamic linker that "
                                     "would load rlshim"
                                   : "it is statically linked: there is no dynamic linker that "
                                     "would load rlshim");
    case ELF_DYNAMIC:
        break;
    }
    if (rights != NULL)
        return judge(out, REACH_NOT, rights);
    if (out->facts.go)
        return judge(out, REACH_PARTLY,
                     "it is written in Go, whose file calls do not go through libc: only those of "
                     "its C parts are seen");
    return judge(out, REACH_YES, "");
}
