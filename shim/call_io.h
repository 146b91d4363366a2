/* SPDX-License-Identifier: MIT */
/*
 * call_io: one read or write entry point, from its prototype. The hottest path of all: the call
 * says that it is under way (inflight.h), looks at the state word, and goes to the kernel.
 * Everything else is kept out of line.
 */
#ifndef SHIM_CALL_IO_H
#define SHIM_CALL_IO_H

#include "call.h"
#include "timed_io.h"

/*
 * IO_CALL(kind, name, parameters, arguments, piece, plan, refused, big)
 *   kind     read or write: kind##_busy(io, word) makes the call when more than forwarding is to do
 *   piece    arguments for a part of it: io, iov, count, off
 *   plan     the fields of struct io that differ
 *   refused  arguments that the kernel refuses as a whole: made plainly, whatever is queued
 *   big      may have to go through the gate, idle or not
 */
#define IO_CALL(kind, name, params, args, piece, plan, refused, is_big)                            \
    static ssize_t name##_piece(const struct io *io, const struct iovec *iov, int count,           \
                                off_t off)                                                         \
    {                                                                                              \
        (void)io, (void)iov, (void)count, (void)off;                                               \
        return real.name piece;                                                                    \
    }                                                                                              \
    static __attribute__((noinline))                                                               \
    ssize_t name##_when_busy(uint64_t word, struct leg *leg, IO_LIST params)                       \
    {                                                                                              \
        if (refused) {                                                                             \
            state_enter(word);                                                                     \
            return real.name args;                                                                 \
        }                                                                                          \
        return kind##_busy(                                                                        \
            &(struct io){.fd = fd, .leg = leg, .issue = name##_piece, IO_LIST plan}, word);        \
    }                                                                                              \
    FREQUENT ssize_t name params                                                                   \
    {                                                                                              \
        INFLIGHT(leg, fd);                                                                         \
        uint64_t word = state_word();                                                              \
                                                                                                   \
        if (call_direct(word, CALL_HARMLESS_##kind) && likely(!(is_big))) {                        \
            call_counted(word, STAT_calls_##kind);                                                 \
            return real.name args;                                                                 \
        }                                                                                          \
        return name##_when_busy(word, leg, IO_LIST args);                                          \
    }
#define IO_LIST(...) __VA_ARGS__
#define UNUSED       __attribute__((unused))

#define ONE(buf, n) .iov = &(struct iovec){(void *)(uintptr_t)(buf), n}, .count = 1
#define BAD(n)      ((ssize_t)(n) < 0)
#define BAD_IOV     !readable_vector(iov, count)

#endif
