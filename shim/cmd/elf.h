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
    /* System call instructions in its own code, and in that of libraries that are not the C
     * library's: a hint, data may look like one. */
    uint64_t syscalls, library_syscalls;
    char library[64]; /* the one with the most of them */
    uint64_t most;
};

/* deep: follow the libraries it needs, count system call instructions. */
void elf_examine(const char *path, bool deep, struct elf_facts *out);

#endif
