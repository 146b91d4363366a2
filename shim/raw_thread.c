/* SPDX-License-Identifier: MIT */
/* raw_thread: see raw_thread.h. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include "raw_thread.h"
#include "real.h"
#include "state.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RAW_IS_PTHREAD 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RAW_IS_PTHREAD 1
#endif
#endif

#define STACK_BYTES ((size_t)64 << 10)
#define TLS_BYTES   4096u /* the block a thread pointer points into; code reads its canary */
#define KNOCK_NS    10000000u

#ifdef RAW_IS_PTHREAD
struct start {
    struct raw_thread *thread;
    int (*run)(void *);
    uint32_t taken;
};

static void *raw_pthread(void *arg)
{
    struct start start = *(struct start *)arg;

    rl_store_32(&((struct start *)arg)->taken, 1);
    start.run(NULL);
    rl_store_32(&start.thread->tid, 0);
    rl_futex_wake(&start.thread->tid, INT32_MAX);
    return NULL;
}

static bool spawn(struct raw_thread *thread, int (*run)(void *))
{
    struct start start = {.thread = thread, .run = run};
    pthread_attr_t attr;
    pthread_t handle;
    bool ok;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    ok = pthread_create(&handle, &attr, raw_pthread, &start) == 0;
    pthread_attr_destroy(&attr);
    while (ok && rl_load_32(&start.taken) == 0)
        rl_raw(SYS_sched_yield);
    return ok;
}
#else
static bool spawn(struct raw_thread *thread, int (*run)(void *))
{
    char *tls;

    if (thread->stack == NULL) {
        long p = rl_raw(SYS_mmap, 0, STACK_BYTES + TLS_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);

        if (p < 0 && p > -4096)
            return false;
        thread->stack = (char *)p;
    }
    tls = thread->stack + STACK_BYTES + TLS_BYTES / 2;
    *(void **)tls = tls; /* x86-64: %fs:0 holds the thread pointer itself */
    return real.clone(run, thread->stack + STACK_BYTES,
                      CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                          CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID,
                      NULL, &thread->tid, tls, &thread->tid) > 0;
}
#endif

bool raw_thread_start(struct raw_thread *thread, int (*run)(void *))
{
    uint64_t all = ~(uint64_t)0;
    uint64_t mask;
    bool ok;

    rl_store_32(&thread->tid, 1); /* until clone knows better */
    rl_raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof mask);
    ok = spawn(thread, run);
    rl_raw(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
    if (!ok)
        rl_store_32(&thread->tid, 0);
    return ok;
}

void raw_thread_gone(struct raw_thread *thread, void (*knock)(void))
{
    uint32_t last = 0;
    uint32_t tid;

    while ((tid = rl_load_32(&thread->tid)) != 0) {
        last = tid;
        if (knock != NULL)
            knock();
        rl_futex_wait(&thread->tid, tid, KNOCK_NS);
    }
    /* The word is cleared a moment before the thread leaves the thread group. */
    while (last > 1 && rl_raw(SYS_tgkill, proc.pid, last, 0) == 0)
        rl_raw(SYS_sched_yield);
}
