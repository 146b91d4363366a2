/* SPDX-License-Identifier: MIT */
/*
 * state: the one word that every interposed call looks at, and what the process as a whole knows.
 *
 * The word: low half 0 means that nothing is queued, nothing is being written in pieces at a shared
 * position, and nobody wants calls counted: the call goes straight to the kernel. Otherwise the low
 * half holds the number of files with deferral on (bits 0-26) and the flags below. The high half is
 * a number that goes up whenever a file is turned on, so that what a descriptor was found to be
 * (file.c) can be known to be out of date. Data calls say that they are under way before they look
 * (inflight.h).
 */
#ifndef SHIM_STATE_H
#define SHIM_STATE_H

#include "../lockmgr/inode_table.h"
#include "config.h"

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define WORD_COLD   ((uint32_t)1 << 31) /* before init: nothing is resolved yet */
#define WORD_COUNT  ((uint32_t)1 << 30) /* count every call (report, stats, observe) */
#define WORD_HELD   ((uint32_t)1 << 29) /* deleted files are held (evict.h): space is to come */
#define WORD_TIME   ((uint32_t)1 << 28) /* time every call (timed.h) */
#define WORD_WINDOW ((uint32_t)1 << 27) /* some files have a writeback_window (window.h) */
#define WORD_FILES  (((uint32_t)1 << 27) - 1)

/* Smallest direct write that goes through the gate; smaller ones are done before a punch could
 * notice them. The only other test on the write path while idle. */
#define GATE_MIN_BYTES ((size_t)256 << 10)

/* What the memory that survives in a shared mapping holds, in this order. A killed process leaves
 * it as it was; a forked child gets a fresh one (init.c). */
struct arena {
    uint32_t magic, version;
    uint32_t pid;
    int32_t shm; /* System V id of the segment it is in, or -errno: it is in none */
    struct rl_inode_table inodes;
    struct rl_pool pool; /* its nodes follow */
};

struct process {
    struct settings settings; /* for the program as a whole */
    uint32_t works;           /* mode on, and no memory was missed so far */
    struct arena *arena;      /* NULL until it is needed (state_arena) */
    size_t arena_bytes;
    uint64_t started_ns; /* CLOCK_REALTIME_COARSE, of this process */
    uint32_t pid;
    uint32_t entries;   /* inode entries ever made: 0 means no gate is in use */
    uint32_t doubts;    /* goes up with everything that could spoil evidence being gathered */
    uint32_t forking;   /* forks under way: nothing is turned on */
    uint64_t quiet_ns;  /* CLOCK_MONOTONIC until which nothing is turned on (vfork, init.h) */
    uint32_t sandboxed; /* a seccomp filter was installed: make no call of our own */
    uint32_t passed;    /* a descriptor went to another process, or came from one */
    uint32_t foreign;   /* own rings, aio contexts or raw calls were seen: nothing is turned on */
    uint32_t direct;    /* an O_DIRECT descriptor was seen, or there may be one */
    uint32_t ending;    /* exit, exec or a sandbox has begun: nothing is turned on */
    uint32_t maps;      /* a file was mapped shared */
    uint32_t tuned;     /* goes up when settings change (tune.h) */
    uint32_t nameless;  /* there may be open files without a name */
    uint32_t keeper;    /* named files may be deferred, with a keeper (keeper.h) */
    uint32_t sandbox;   /* entered Landlock: what it forbids cannot be asked */
    char program[64];
};

/* What start-up writes to, and what every call looks at, stands together at the start of .data:
 * each page touched costs every program that is started 10 us and more (a page fault in a virtual
 * machine). For the same reason the code of frequent calls stands together. */
#define EARLY    __attribute__((section(".data.early")))
#define FREQUENT __attribute__((hot))

extern uint64_t state_word_value __attribute__((visibility("hidden")));
extern uint32_t state_forks __attribute__((visibility("hidden"))); /* goes up with every fork, on
                                                                    * both sides */
extern struct process proc __attribute__((visibility("hidden")));

bool tune_taken(void); /* tune.h */

/* rl_off, or `rlshim off PID`, sets it; see control.c. */
extern uint32_t rl_control __attribute__((visibility("default")));

static inline uint64_t state_word(void)
{
    return rl_load_64(&state_word_value);
}

static inline bool state_idle(uint64_t word)
{
    return likely((uint32_t)word == 0);
}

static inline uint32_t state_epoch(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

static inline bool state_files_on(void)
{
    return (state_word() & WORD_FILES) != 0;
}

/* One more file has deferral on: before its first range can be queued. */
static inline void state_file_on(void)
{
    rl_add_64(&state_word_value, ((uint64_t)1 << 32) + 1);
}

static inline void state_file_off(void)
{
    rl_add_64(&state_word_value, (uint64_t)-1);
}

/* init.c: makes the arena unless there is one. False: mode is not `on`, or there is no memory. For
 * who is about to make an inode's entry; everybody else takes NULL for an answer. */
bool state_arena(void);

/* Mode on, not switched off: mitigations may act. Takes an order that waits (tune.h). */
static inline bool state_works(void)
{
    return proc.works != 0 && rl_load_32(&proc.sandboxed) == 0 &&
           (likely(rl_load_32(&rl_control) == 0) || tune_taken());
}

/*
 * A file was mapped, became a stream, got a name, was passed on: whatever evidence is being
 * gathered at this moment does not count. Call it when the thing is visible, then look at the word:
 * either the worker, which turns a file on and then looks here, sees the doubt, or the caller sees
 * the file.
 */
static inline void state_doubt(void)
{
    rl_add_32(&proc.doubts, 1);
}

/* Stores once: the line is shared by all threads. */
static inline void state_direct(void)
{
    if (rl_load_32(&proc.direct) == 0)
        rl_store_32(&proc.direct, 1);
}

/* The parsed configuration, or NULL where there is none. */
const struct config *state_config(void);

/* The text of its file, which it points into; "" where there is none. */
const char *state_config_text(void);

/* tune.c: another one from now on; both must stay. */
void state_use_config(const struct config *config, const char *text);

/* init.c: the first call of all, or the constructor. */
void state_init(void);

/* At the top of every wrapper that does more than forward when the word is not zero. */
static inline void state_enter(uint64_t word)
{
    if (unlikely((word & WORD_COLD) != 0))
        state_init();
}

#endif
