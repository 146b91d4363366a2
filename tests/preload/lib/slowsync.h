/* SPDX-License-Identifier: MIT */
/* slowsync: see slowsync.c. The program finds `slowsync` with dlsym. */
#ifndef TESTS_SLOWSYNC_H
#define TESTS_SLOWSYNC_H

#include <stdatomic.h>

struct slowsync {
    long ms;
    int error;        /* errno of a call that fails */
    atomic_int fail;  /* 1: the next call fails */
    atomic_int calls; /* made so far, of which */
    atomic_int full;  /* were fsync */
    atomic_int running;
    int most; /* that ran at one time */
};
extern struct slowsync slowsync;

#endif
