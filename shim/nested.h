/* SPDX-License-Identifier: MIT */
/*
 * nested: two calls of one thread, of which the first has not returned: is the second made by a
 * handler inside it, or was the first jumped out of?
 *
 * The stack tells: the inner call's variables lie below the outer one's. Handlers may have a stack
 * of their own (sigaltstack), which can lie anywhere; what is on it is inside whatever is not. A
 * wrong answer (stacks that the kernel does not know of, SS_AUTODISARM) costs a bounded wait.
 */
#ifndef SHIM_NESTED_H
#define SHIM_NESTED_H

#include <stdbool.h>

/* Addresses of variables of the two calls. Leaves errno alone. */
bool nested_in(const void *outer, const void *inner);

#endif
