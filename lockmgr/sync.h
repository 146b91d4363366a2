/* SPDX-License-Identifier: MIT */
/*
 * sync: every atomic operation, fence and sleep of the lock manager, and nothing else.
 *
 * Loads are acquire, stores are release, read-modify-writes are full barriers. Built on
 * Concurrency Kit's ck_pr; in ThreadSanitizer builds on the compiler's __atomic builtins, because
 * TSan cannot see into ck_pr's assembly and would report correct code. No CK lock is used: they
 * all spin, and a spinning FIFO lock collapses as soon as its holder is preempted, which with more
 * threads than processors is always.
 *
 * Sleeping is futex(2) through raw calls: errno untouched, no cancellation point.
 */
#ifndef RL_SYNC_H
#define RL_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <time.h>

#include "rawcall.h"

/* Tests build the lock manager with RL_STEP_HOOK and change threads at any atomic operation. */
#ifdef RL_STEP_HOOK
void rl_step(void);
#else
#define rl_step() ((void)0)
#endif

/* Tests that build it with RL_MEMORY_HOOK supply the memory too: with store buffers, say. */
#ifdef RL_MEMORY_HOOK
uint64_t rl_memory_load(const void *p, unsigned bytes);
void rl_memory_store(void *p, uint64_t v, unsigned bytes);
void rl_memory_fence(void);      /* before each read-modify-write too */
void rl_memory_everywhere(void); /* as if all threads made a fence */
#endif

/* And with RL_SLEEP_HOOK the sleep. */
#ifdef RL_SLEEP_HOOK
void rl_sleep(uint32_t *word, uint32_t seen, uint64_t timeout_ns);
void rl_awake(uint32_t *word, uint32_t waiters);
#endif

#if defined(__SANITIZE_THREAD__)
#define RL_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RL_TSAN 1
#endif
#endif

#if defined(RL_MEMORY_HOOK)

#define RL_DEFINE_SYNC(bits)                                                                       \
    static inline uint##bits##_t rl_load_##bits(const uint##bits##_t *p)                           \
    {                                                                                              \
        rl_step();                                                                                 \
        return (uint##bits##_t)rl_memory_load(p, bits / 8);                                        \
    }                                                                                              \
    static inline void rl_store_##bits(uint##bits##_t *p, uint##bits##_t v)                        \
    {                                                                                              \
        rl_step();                                                                                 \
        rl_memory_store(p, v, bits / 8);                                                           \
    }                                                                                              \
    static inline bool rl_cas_##bits(uint##bits##_t *p, uint##bits##_t *seen, uint##bits##_t v)    \
    {                                                                                              \
        rl_step();                                                                                 \
        rl_memory_fence();                                                                         \
        return __atomic_compare_exchange_n(p, seen, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    }                                                                                              \
    static inline uint##bits##_t rl_add_##bits(uint##bits##_t *p, uint##bits##_t v)                \
    {                                                                                              \
        rl_step();                                                                                 \
        rl_memory_fence();                                                                         \
        return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    static inline uint##bits##_t rl_swap_##bits(uint##bits##_t *p, uint##bits##_t v)               \
    {                                                                                              \
        rl_step();                                                                                 \
        rl_memory_fence();                                                                         \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                        \
    }
static inline void rl_fence(void)
{
    rl_memory_fence();
}
static inline void rl_fence_load(void)
{
}

#elif defined(RL_TSAN)

#define RL_DEFINE_SYNC(bits)                                                                       \
    static inline uint##bits##_t rl_load_##bits(const uint##bits##_t *p)                           \
    {                                                                                              \
        rl_step();                                                                                 \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    static inline void rl_store_##bits(uint##bits##_t *p, uint##bits##_t v)                        \
    {                                                                                              \
        rl_step();                                                                                 \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                              \
    static inline bool rl_cas_##bits(uint##bits##_t *p, uint##bits##_t *seen, uint##bits##_t v)    \
    {                                                                                              \
        rl_step();                                                                                 \
        return __atomic_compare_exchange_n(p, seen, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    }                                                                                              \
    static inline uint##bits##_t rl_add_##bits(uint##bits##_t *p, uint##bits##_t v)                \
    {                                                                                              \
        rl_step();                                                                                 \
        return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    static inline uint##bits##_t rl_swap_##bits(uint##bits##_t *p, uint##bits##_t v)               \
    {                                                                                              \
        rl_step();                                                                                 \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                        \
    }
static inline void rl_fence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void rl_fence_load(void)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

#else

#include <ck_pr.h>

/* ck_pr_fence_atomic on both sides makes a bare RMW a full barrier on weakly ordered processors;
 * on x86 the locked instruction already is one and the fences are compiler barriers. */
#define RL_DEFINE_SYNC(bits)                                                                       \
    static inline uint##bits##_t rl_load_##bits(const uint##bits##_t *p)                           \
    {                                                                                              \
        rl_step();                                                                                 \
        uint##bits##_t v = ck_pr_load_##bits(p);                                                   \
        ck_pr_fence_acquire(); /* pairs with the release in rl_store and the RMWs */               \
        return v;                                                                                  \
    }                                                                                              \
    static inline void rl_store_##bits(uint##bits##_t *p, uint##bits##_t v)                        \
    {                                                                                              \
        rl_step();                                                                                 \
        ck_pr_fence_release(); /* pairs with the acquire in rl_load */                             \
        ck_pr_store_##bits(p, v);                                                                  \
    }                                                                                              \
    static inline bool rl_cas_##bits(uint##bits##_t *p, uint##bits##_t *seen, uint##bits##_t v)    \
    {                                                                                              \
        rl_step();                                                                                 \
        bool done;                                                                                 \
        ck_pr_fence_atomic();                                                                      \
        done = ck_pr_cas_##bits##_value(p, *seen, v, seen);                                        \
        ck_pr_fence_atomic();                                                                      \
        return done;                                                                               \
    }                                                                                              \
    static inline uint##bits##_t rl_add_##bits(uint##bits##_t *p, uint##bits##_t v)                \
    {                                                                                              \
        rl_step();                                                                                 \
        uint##bits##_t old;                                                                        \
        ck_pr_fence_atomic();                                                                      \
        old = ck_pr_faa_##bits(p, v);                                                              \
        ck_pr_fence_atomic();                                                                      \
        return old;                                                                                \
    }                                                                                              \
    static inline uint##bits##_t rl_swap_##bits(uint##bits##_t *p, uint##bits##_t v)               \
    {                                                                                              \
        rl_step();                                                                                 \
        uint##bits##_t old;                                                                        \
        ck_pr_fence_atomic();                                                                      \
        old = ck_pr_fas_##bits(p, v);                                                              \
        ck_pr_fence_atomic();                                                                      \
        return old;                                                                                \
    }
static inline void rl_fence(void)
{
    ck_pr_fence_memory();
    ck_pr_barrier();
}
static inline void rl_fence_load(void)
{
    ck_pr_fence_load();
    ck_pr_barrier();
}

#endif

RL_DEFINE_SYNC(32)
RL_DEFINE_SYNC(64)

static inline void *rl_load_ptr(void *p)
{
    return (void *)(uintptr_t)rl_load_64((uint64_t *)p);
}
static inline bool rl_cas_ptr(void *p, void **seen, void *v)
{
    return rl_cas_64((uint64_t *)p, (uint64_t *)(void *)seen, (uint64_t)(uintptr_t)v);
}

/* A barrier on every processor that runs a thread of this process: 1 to 50 us, and 0.3 ms more the
 * first time. False where the kernel refuses it. */
static inline bool rl_fence_everywhere(void)
{
#ifdef RL_MEMORY_HOOK
    rl_step();
    rl_memory_everywhere();
    return true;
#else
    long r = rl_raw(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);

    if (r != -EPERM)
        return r == 0;
    return rl_raw(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
           rl_raw(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
#endif
}

/* Sleeps while *word == seen, at most timeout_ns (0: no limit). Wakes spuriously; callers loop. */
static inline void rl_futex_wait(uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
#ifdef RL_SLEEP_HOOK
    rl_sleep(word, seen, timeout_ns);
#else
    struct timespec ts = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                          .tv_nsec = (long)(timeout_ns % 1000000000u)};

    rl_raw(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, timeout_ns != 0 ? &ts : NULL);
#endif
}

static inline void rl_futex_wake(uint32_t *word, uint32_t waiters)
{
#ifdef RL_SLEEP_HOOK
    rl_awake(word, waiters);
#else
    rl_raw(SYS_futex, word, FUTEX_WAKE_PRIVATE, waiters);
#endif
}

/*
 * Mutation testing: `make mutants` builds the lock manager once per number with RL_MUTATE=n, and
 * the torture tests must fail on each. In ordinary builds every RL_MUTANT(n) is the constant 0.
 */
#ifdef RL_MUTATE
#define RL_MUTANT(n) (RL_MUTATE == (n))
#else
#define RL_MUTANT(n) 0
#endif

#endif
