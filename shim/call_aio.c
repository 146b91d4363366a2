/* SPDX-License-Identifier: MIT */
/*
 * call_aio: POSIX aio, libaio, liburing: I/O that is submitted here and done somewhere else.
 *
 * POSIX aio is done by libc's own threads, with calls that nobody can interpose: nothing is ever
 * queued for its files again. libaio and liburing reach every file of the process behind our back:
 * the first sign of them turns deferral off for good, before the real call.
 *
 * libaio and liburing may be loaded after us, privately even (dlopen without RTLD_GLOBAL), and then
 * the dynamic linker still binds calls to our names. So a name that was not there at start-up is
 * looked for when it is called.
 */
#include <dlfcn.h>
#include <link.h>

#include "call.h"

/* --- POSIX aio --- */

static void aio_takes(int fd)
{
    settle_never_fd(fd, WHY_aio, STAT_punch_no_stream);
}

#define AIOS(name, type)                                                                           \
    int name(type *cb)                                                                             \
    {                                                                                              \
        call_enter();                                                                              \
        aio_takes(cb->aio_fildes);                                                                 \
        return real.name(cb);                                                                      \
    }
AIOS(aio_read, struct aiocb)
AIOS(aio_read64, struct aiocb64)
AIOS(aio_write, struct aiocb)
AIOS(aio_write64, struct aiocb64)

#define AIO_FSYNCS(name, type)                                                                     \
    int name(int operation, type *cb)                                                              \
    {                                                                                              \
        call_enter();                                                                              \
        aio_takes(cb->aio_fildes);                                                                 \
        return real.name(operation, cb);                                                           \
    }
AIO_FSYNCS(aio_fsync, struct aiocb)
AIO_FSYNCS(aio_fsync64, struct aiocb64)

#define LIO_LISTIOS(name, type)                                                                    \
    int name(int mode, type *const *list, int n, struct sigevent *event)                           \
    {                                                                                              \
        type *const *each = call_any(list);                                                        \
                                                                                                   \
        call_enter();                                                                              \
        for (int i = 0; each != NULL && i < n; i++)                                                \
            if (each[i] != NULL && each[i]->aio_lio_opcode != LIO_NOP)                             \
                aio_takes(each[i]->aio_fildes);                                                    \
        return real.name(mode, list, n, event);                                                    \
    }
LIO_LISTIOS(lio_listio, struct aiocb)
LIO_LISTIOS(lio_listio64, struct aiocb64)

/* Asking after a request that is under way: nothing to do any more. */
#define AIO_PASSES(ret, name, params, args)                                                        \
    ret name params                                                                                \
    {                                                                                              \
        call_enter();                                                                              \
        return real.name args;                                                                     \
    }
AIO_PASSES(ssize_t, aio_return, (struct aiocb * cb), (cb))
AIO_PASSES(ssize_t, aio_return64, (struct aiocb64 * cb), (cb))
AIO_PASSES(int, aio_error, (const struct aiocb *cb), (cb))
AIO_PASSES(int, aio_error64, (const struct aiocb64 *cb), (cb))
AIO_PASSES(int, aio_suspend,
           (const struct aiocb *const *list, int n, const struct timespec *timeout),
           (list, n, timeout))
AIO_PASSES(int, aio_suspend64,
           (const struct aiocb64 *const *list, int n, const struct timespec *timeout),
           (list, n, timeout))
AIO_PASSES(int, aio_cancel, (int fd, struct aiocb *cb), (fd, cb))
AIO_PASSES(int, aio_cancel64, (int fd, struct aiocb64 *cb), (fd, cb))

/* --- libaio and liburing --- */

/*
 * The library's function, found late. Three places, in the order of what the caller would have got:
 * the libraries behind us; the caller's own library and what it depends on; any loaded library that
 * has the name. A handle's look-up may find our own export, which is no answer.
 */
static void *found_late(void **place, const char *name, void *own, void *caller)
{
    void *found = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    struct link_map *map;
    Dl_info info;

    if (found != NULL)
        return found;
    found = dlsym(RTLD_NEXT, name);
    if (found == NULL && dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) != 0)
        found = dlsym(map, name);
    if (found == own)
        found = NULL;
    for (map = _r_debug.r_map; found == NULL && map != NULL; map = map->l_next) {
        void *handle = map->l_name[0] == '\0'
                           ? NULL /* the program itself: that was the first place */
                           : dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);

        if (handle == NULL)
            continue;
        found = dlsym(handle, name);
        if (found == own)
            found = NULL;
        dlclose(handle);
    }
    if (found != NULL)
        __atomic_store_n(place, found, __ATOMIC_RELEASE);
    return found;
}

#define LATE(name)                                                                                 \
    (__typeof__(real.name))found_late((void **)&real.name, #name, (void *)name,                    \
                                      __builtin_return_address(0))

/* Both libraries return errors as negative numbers. */
#define FOREIGNS(name, params, args)                                                               \
    int name params                                                                                \
    {                                                                                              \
        __typeof__(real.name) next;                                                                \
                                                                                                   \
        call_enter();                                                                              \
        settle_foreign(WHY_aio);                                                                   \
        next = LATE(name);                                                                         \
        return next != NULL ? next args : -ENOSYS;                                                 \
    }
FOREIGNS(io_setup, (unsigned n, void *context), (n, context))
FOREIGNS(io_queue_init, (int n, void *context), (n, context))
FOREIGNS(io_submit, (void *context, long n, void **iocbs), (context, n, iocbs))
FOREIGNS(io_uring_queue_init, (unsigned entries, void *ring, unsigned flags),
         (entries, ring, flags))
FOREIGNS(io_uring_queue_init_params, (unsigned entries, void *ring, void *params),
         (entries, ring, params))
FOREIGNS(io_uring_queue_init_mem,
         (unsigned entries, void *ring, void *params, void *buf, size_t size),
         (entries, ring, params, buf, size))
FOREIGNS(io_uring_queue_mmap, (int fd, void *params, void *ring), (fd, params, ring))
FOREIGNS(io_uring_setup, (unsigned entries, void *params), (entries, params))

/* A context exists already. */
#define FOREIGN_PASSES(name, params, args)                                                         \
    int name params                                                                                \
    {                                                                                              \
        __typeof__(real.name) next;                                                                \
                                                                                                   \
        call_enter();                                                                              \
        next = LATE(name);                                                                         \
        return next != NULL ? next args : -ENOSYS;                                                 \
    }
FOREIGN_PASSES(io_getevents,
               (void *context, long min, long n, void *events, struct timespec *timeout),
               (context, min, n, events, timeout))
FOREIGN_PASSES(io_pgetevents,
               (void *context, long min, long n, void *events, struct timespec *timeout,
                sigset_t *mask),
               (context, min, n, events, timeout, mask))
FOREIGN_PASSES(io_cancel, (void *context, void *iocb, void *event), (context, iocb, event))
FOREIGN_PASSES(io_destroy, (void *context), (context))
