/* SPDX-License-Identifier: MIT */
/*
 * rlshim/control.h: for applications that know about rlshim.
 *
 * Nothing needs to be linked: the functions look for the library in the running process, and do
 * nothing, returning 0, when it is not there. So a program may be built with this header and run
 * with or without LD_PRELOAD=librlshim.so. (Look-up by dlsym rather than by weak symbols: in a
 * program that is not position-independent the linker settles weak references to 0 for good.)
 * glibc before 2.34 needs -ldl.
 *
 * All may be called from any thread, but not from signal handlers (dlsym takes a lock), except that
 * one call of rl_active() beforehand, in any thread, does the look-up for all. errno is left alone.
 */
#ifndef RLSHIM_CONTROL_H
#define RLSHIM_CONTROL_H

#include <dlfcn.h>
#include <stdint.h>

#ifndef RLSHIM_VERSION
#define RLSHIM_VERSION "0.1.0"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The table that librlshim.so exports as `rl_control_table`. Members are only ever added at its
 * end; `bytes` tells how much of it there is.
 */
struct rl_control_table {
    uint32_t bytes;
    uint32_t pad;
    int (*active)(void);
    void (*settle)(void);
    void (*off)(void);
    void (*on)(void);
    unsigned long (*queued)(void);
    uint64_t (*counter)(const char *name);
};

static inline const struct rl_control_table *rl_control_find(void)
{
    /* 0: not looked for yet; 1: not there. Racing threads find the same. */
    static uintptr_t found;
    uintptr_t table = __atomic_load_n(&found, __ATOMIC_ACQUIRE);

    if (table == 0) {
        table = (uintptr_t)dlsym((void *)0 /* RTLD_DEFAULT */, "rl_control_table");
        if (table == 0)
            table = 1;
        __atomic_store_n(&found, table, __ATOMIC_RELEASE);
    }
    return table != 1 ? (const struct rl_control_table *)table : (const struct rl_control_table *)0;
}

/* 1: the library is in this process and its mitigations may act; 0: not loaded, mode = off or
 * observe, a refused configuration, or switched off. */
static inline int rl_active(void)
{
    const struct rl_control_table *t = rl_control_find();
    return t ? t->active() : 0;
}

/* Returns when everything that was queued at the call has been applied. */
static inline void rl_settle(void)
{
    const struct rl_control_table *t = rl_control_find();
    if (t)
        t->settle();
}

/* rl_off: settles, and from then on every call goes straight to the kernel, until rl_on. */
static inline void rl_off(void)
{
    const struct rl_control_table *t = rl_control_find();
    if (t)
        t->off();
}

static inline void rl_on(void)
{
    const struct rl_control_table *t = rl_control_find();
    if (t)
        t->on();
}

/* Ranges that are queued at this moment. */
static inline unsigned long rl_queued(void)
{
    const struct rl_control_table *t = rl_control_find();
    return t ? t->queued() : 0;
}

/* A counter of this process by its name in the report ("punch_deferred"), or by "settled." and a
 * reason ("settled.fsync"); 0 for unknown names. */
static inline uint64_t rl_counter(const char *name)
{
    const struct rl_control_table *t = rl_control_find();
    return t ? t->counter(name) : 0;
}

#ifdef __cplusplus
}
#endif

#endif
