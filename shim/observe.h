/* SPDX-License-Identifier: MIT */
/*
 * observe: every interposed call timed, and what slow ones have in common (mode = observe, or
 * timing = on beside the mitigations).
 *
 * observe.def lists the kinds of calls (acts) and what could be done about them (remedies). Each
 * call on a regular file or block device is counted in three histograms at most: its act's, its
 * file's, and, if a mitigation would have helped it (policy_remedy.h), that one's. Calls of
 * stall_threshold and more are kept one by one in a ring, with the stack they were made from
 * (callsite.h). At the end the report tells it all (report_observe.c).
 *
 * Off, it costs nothing: WORD_TIME is one more bit of the word that every call looks at anyway.
 * On, a call pays two looks at the clock and three additions; whatever is more than that happens
 * where the call was slow, or for calls that take microseconds anyhow.
 *
 * Everything is kept in one private mapping of fixed size, made at the start and never freed; its
 * pages come into being as they are used. Any thread may count, also in handlers; nothing here
 * waits, takes a lock, allocates, or calls libc, except callsite. errno is left alone. After a fork
 * the child begins with nothing. What a torn counter could cost is a call in millions: all of this
 * is for people to read.
 *
 * The machine's processes are looked at now and then (observe_look.c) to learn which files are this
 * program's own: at the end, and after a slow call if the last look was long ago.
 */
#ifndef SHIM_OBSERVE_H
#define SHIM_OBSERVE_H

#include <stdbool.h>

#include "histogram.h"

enum act {
#define ACT(name, text) ACT_##name,
#include "observe.def"
#undef ACT
    ACT_COUNT
};

enum remedy {
#define REMEDY(name, setting, value, others, cure) REMEDY_##name,
#include "observe.def"
#undef REMEDY
    REMEDY_COUNT,
    REMEDY_NONE = REMEDY_COUNT
};

const char *act_name(enum act act);
const char *act_text(enum act act);
const char *remedy_name(enum remedy remedy);

#endif
