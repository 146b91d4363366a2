/* SPDX-License-Identifier: MIT */
/*
 * rawcall: system calls issued without libc.
 *
 * For code that must not touch errno, must not be a cancellation point, or runs on a thread libc
 * does not know (the shim's worker has no glibc TLS, so even setting errno there would write into
 * foreign memory). Every function returns the kernel's value: >= 0, or -errno.
 */
#ifndef RL_RAWCALL_H
#define RL_RAWCALL_H

#include <sys/syscall.h>

/* Tells threads of libc from each other; a raw clone shares its creator's. */
static inline unsigned long rl_thread_pointer(void)
{
    unsigned long tp;

#if defined(__x86_64__)
    __asm__("movq %%fs:0, %0" : "=r"(tp));
#else
    __asm__("mrs %0, tpidr_el0" : "=r"(tp));
#endif
    return tp;
}

#if defined(__x86_64__)
static inline long rl_raw6(long nr, long a, long b, long c, long d, long e, long f)
{
    long ret;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}
#elif defined(__aarch64__)
static inline long rl_raw6(long nr, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;

    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory", "cc");
    return x0;
}
#else
#error "rlshim needs raw system calls for this processor: add rl_raw6 here"
#endif

#define RL_RAW_PICK(_0, _1, _2, _3, _4, _5, _6, name, ...) name
#define rl_raw(...)                                                                                \
    RL_RAW_PICK(__VA_ARGS__, RL_RAW_6, RL_RAW_5, RL_RAW_4, RL_RAW_3, RL_RAW_2, RL_RAW_1, RL_RAW_0) \
    (__VA_ARGS__)
#define RL_RAW_0(n)             rl_raw6(n, 0, 0, 0, 0, 0, 0)
#define RL_RAW_1(n, a)          rl_raw6(n, (long)(a), 0, 0, 0, 0, 0)
#define RL_RAW_2(n, a, b)       rl_raw6(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define RL_RAW_3(n, a, b, c)    rl_raw6(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define RL_RAW_4(n, a, b, c, d) rl_raw6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define RL_RAW_5(n, a, b, c, d, e)                                                                 \
    rl_raw6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define RL_RAW_6(n, a, b, c, d, e, f)                                                              \
    rl_raw6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

#endif
