/* SPDX-License-Identifier: MIT */
/*
 * control (inside): what the worker does about the switch; see control.c.
 * While a file is on it looks at rl_control at least every CONTROL_LOOK_NS; when that is set it
 * ends deferral of every file and calls control_quiet().
 */
#ifndef SHIM_CONTROL_H
#define SHIM_CONTROL_H

/* `rlshim off` writes a word from outside and cannot wake a private futex. */
#define CONTROL_LOOK_NS 100000000u

/* Something ended: if off is wanted and nothing is on any more, says so to whoever waits. */
void control_quiet(void);

#endif
