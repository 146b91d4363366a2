/* SPDX-License-Identifier: MIT */
/* worker: see worker.h. Starting it, waking it, stopping it: called by the program's threads. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "real.h"
#include "stats.h"
#include "worker_impl.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WORKER_IS_PTHREAD 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WORKER_IS_PTHREAD 1
#endif
#endif

#define STACK_BYTES ((size_t)64 << 10)
#define TLS_BYTES   4096u /* the block a thread pointer points into; code reads its canary */

struct worker worker;
uint32_t worker_files[WORKER_FILES];

#ifdef WORKER_IS_PTHREAD
static void *worker_pthread(void *arg)
{
    worker_main(arg);
    rl_store_32(&worker.tid, 0);
    rl_futex_wake(&worker.tid, INT32_MAX);
    return NULL;
}

static bool spawn(void)
{
    pthread_attr_t attr;
    pthread_t thread;
    bool ok;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    ok = pthread_create(&thread, &attr, worker_pthread, NULL) == 0;
    pthread_attr_destroy(&attr);
    return ok;
}
#else
static bool spawn(void)
{
    char *tls;

    if (worker.stack == NULL) {
        long p = rl_raw(SYS_mmap, 0, STACK_BYTES + TLS_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);

        if (p < 0 && p > -4096)
            return false;
        worker.stack = (char *)p;
    }
    tls = worker.stack + STACK_BYTES + TLS_BYTES / 2;
    *(void **)tls = tls; /* x86-64: %fs:0 holds the thread pointer itself */
    return real.clone(worker_main, worker.stack + STACK_BYTES,
                      CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                          CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID,
                      NULL, &worker.tid, tls, &worker.tid) > 0;
}
#endif

bool worker_start(void)
{
    uint64_t all = ~(uint64_t)0;
    uint64_t mask;
    uint32_t seen = WORKER_NONE;
    int saved = errno;
    bool ok;

    if (rl_load_32(&worker.leave) != 0)
        return false;
    if (!rl_cas_32(&worker.state, &seen, WORKER_RUNS)) {
        if (seen == WORKER_RUNS)
            return true;
        /* The last one is on its way out: only when its thread is gone is its stack free. */
        if (rl_load_32(&worker.tid) != 0 || !rl_cas_32(&worker.state, &seen, WORKER_RUNS))
            return false;
    }
    rl_store_32(&worker.tid, 1); /* until clone knows better */
    /* The new thread inherits a mask with everything blocked: no handler of the program ever runs
     * on it. */
    rl_raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof mask);
    ok = spawn();
    rl_raw(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
    if (ok) {
        stat_add(STAT_worker_started, 1);
    } else {
        rl_store_32(&worker.tid, 0);
        rl_store_32(&worker.state, WORKER_NONE);
    }
    errno = saved; /* the punch that asked for it has succeeded */
    return ok;
}

void worker_wake(void)
{
    rl_fence(); /* pairs with the one in sleep_until: it sees our work, or we see it asleep */
    if (rl_load_32(&worker.asleep) == 0)
        return;
    rl_add_32(&worker.seq, 1);
    rl_futex_wake(&worker.seq, 1);
}

void worker_ask(struct rl_inode *inode, uint32_t gen, int fd)
{
    uint64_t word = (uint64_t)(rl_inode_index(&proc.arena->inodes, inode) + 1) << 32 | (uint32_t)fd;

    for (int i = 0; i < WORKER_ASKS; i++) {
        uint64_t none = 0;

        if (rl_load_32(&inode->gen) == gen && rl_cas_64(&worker.ask[i], &none, word)) {
            worker_wake();
            return;
        }
    }
    rl_store_32(&file_state(inode)->asked, 0);
}

bool worker_running(void)
{
    return rl_load_32(&worker.state) == WORKER_RUNS;
}

void worker_stop(void)
{
    uint32_t tid = rl_load_32(&worker.tid);

    if (tid == 0)
        return;
    rl_add_32(&worker.leave, 1);
    while ((tid = rl_load_32(&worker.tid)) != 0) {
        worker_wake();
        rl_futex_wait(&worker.tid, tid, 10000000);
    }
    /* The futex is cleared a moment before the thread leaves the thread group. */
    while (tid > 1 && rl_raw(SYS_tgkill, proc.pid, tid, 0) == 0)
        rl_raw(SYS_sched_yield);
    rl_add_32(&worker.leave, (uint32_t)-1);
}

void worker_forked(void)
{
    char *stack = worker.stack;

    memset(&worker, 0, sizeof worker);
    worker.stack = stack;
    memset(worker_files, 0, sizeof worker_files);
    worker_loop_forked();
}
