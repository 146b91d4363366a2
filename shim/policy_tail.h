/* SPDX-License-Identifier: MIT */
/* policy_tail: may this write extend its file first? A pure function; tail.h says what that is. */
#ifndef SHIM_POLICY_TAIL_H
#define SHIM_POLICY_TAIL_H

#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "fs_kind.h"

#define TAIL_ALIGN 4096u /* a size in the middle of a block would make short reads unaligned */

struct tail_facts {
    enum cfg_preextend setting;
    enum file_kind kind;
    bool nameless;       /* no name left: a crash leaves nothing */
    bool shared_kernel;  /* this kernel writes into allocated space under the shared lock */
    uint64_t size;       /* of the file, as the program knows it */
    uint64_t start, end; /* of the write */
};

bool policy_tail(const struct tail_facts *f);

/* "6.18.44-x" -> is it 6.6 or later? */
bool policy_tail_kernel(const char *release);

#endif
