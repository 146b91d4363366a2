/* SPDX-License-Identifier: MIT */
/* nested: see nested.h. */
#include <signal.h>
#include <stdint.h>

#include "nested.h"
#include "state.h"

bool nested_in(const void *outer, const void *inner)
{
    uintptr_t out = (uintptr_t)outer, in = (uintptr_t)inner;
    stack_t alt;
    bool out_alt, in_alt;

    if (rl_raw(SYS_sigaltstack, NULL, &alt) != 0 || (alt.ss_flags & SS_DISABLE) != 0)
        return in < out;
    out_alt = out - (uintptr_t)alt.ss_sp < alt.ss_size;
    in_alt = in - (uintptr_t)alt.ss_sp < alt.ss_size;
    return in_alt == out_alt ? in < out : in_alt;
}
