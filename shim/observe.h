/* SPDX-License-Identifier: MIT */
/*
 * observe: every interposed call timed, and what slow ones have in common (mode = observe, or
 * timing = on beside the mitigations).
 *
 * observe.def lists the kinds of calls (acts) and what could be done about them (remedies).
 */
#ifndef SHIM_OBSERVE_H
#define SHIM_OBSERVE_H

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

#endif
