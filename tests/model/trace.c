/* SPDX-License-Identifier: MIT */
/* See trace.h. */
#include "trace.h"

void trace_from_arena(struct trace *t, struct arena *a)
{
    t->nops = 0;
    t->runs = a->runs;
    for (unsigned lane = 0; lane < TRACE_LANES; lane++) {
        unsigned n = atomic_load(&a->nops[lane]);

        for (unsigned i = 0; i < n && i < TRACE_OPS; i++)
            t->ops[t->nops++] = &a->ops[lane][i];
    }
}
