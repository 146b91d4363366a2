/* SPDX-License-Identifier: MIT */
/*
 * callsite: the stack that a call was made from. The only user of libunwind.
 *
 * Made to be used wherever a call may come from, in handlers and on small stacks too:
 *  - libunwind works on a stack of our own with all signals blocked, so that nothing can interrupt
 *    or leave it, and the program's stack needs no room. There are CALLSITE_STACKS of them; if all
 *    are taken there is no stack to tell.
 *  - it is told where unwind tables are by _dl_find_object (glibc 2.35), which takes no lock: the
 *    usual way, dl_iterate_phdr, takes the dynamic linker's, and another thread may hold that in a
 *    dlopen which waits for the lock that our caller holds.
 *  - not in a thread that may be cancelled at any instruction: libunwind lets that signal in.
 *  - every byte of stack it follows is first asked for from the kernel (readable.h).
 *  - CALLSITE_RATE stacks in a tenth of a second at most.
 * Where any of this is missing there are no call sites, and the report says so.
 */
#ifndef SHIM_CALLSITE_H
#define SHIM_CALLSITE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CALLSITE_FRAMES = 32,
    CALLSITE_STACKS = 4,
    CALLSITE_RATE = 200,
};

struct callsite_frame {
    uint32_t module; /* what the owner calls it; CALLSITE_NO_MODULE */
    uint64_t address;
};
#define CALLSITE_NO_MODULE UINT32_MAX

/* What lies around an address, as the dynamic linker knows it. */
struct callsite_object {
    uintptr_t begin, end; /* of the mapping */
    uintptr_t base;       /* address 0 of its own headers */
    const char *name;     /* "" the program itself */
};

/* Loads libunwind: in a constructor, or whenever libc works. False: no call sites. */
bool callsite_start(void);

/* In a forked child. */
void callsite_forked(void);

/*
 * The callers of this library's function, innermost first. module() gives the number of an object.
 * Returns how many; 0 none could be had. *cut: there were more.
 */
unsigned callsite_take(struct callsite_frame *frame, bool *cut,
                       uint32_t (*module)(const struct callsite_object *object));

#endif
