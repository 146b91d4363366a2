/* SPDX-License-Identifier: MIT */
/*
 * elf: what a program file tells about itself, read without running it.
 *
 * Files are untrusted: every offset is checked, nothing is believed beyond the bytes that are
 * there.
 */
#ifndef SHIM_CMD_ELF_H
#define SHIM_CMD_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum elf_kind {
    ELF_UNREADABLE, /* error says why */
    ELF_SCRIPT,     /* "#!": interpreter names the program */
    ELF_OTHER,      /* neither */
    ELF_FOREIGN,    /* another word size, byte order or processor */
    ELF_STATIC,     /* no interpreter: the dynamic linker never runs */
    ELF_DYNAMIC,
};

struct elf_facts {
    enum elf_kind kind;
    int error;
    unsigned bits, machine;
    char interpreter[256];
    char script_argument[256];
    bool go;         /* has a Go build id */
    bool uses_uring; /* needs liburing, itself or through its libraries */
    bool uses_aio;   /* needs libaio */
    uint64_t
        syscalls; /* system call instructions in its own code: a hint, data may look like one */
};

/* deep: follow the libraries it needs, count system call instructions. */
void elf_examine(const char *path, bool deep, struct elf_facts *out);

#endif
