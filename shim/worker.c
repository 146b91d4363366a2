/* SPDX-License-Identifier: MIT */
/* worker: see worker.h. Starting it, waking it, stopping it: called by the program's threads. */
#include <errno.h>
#include <string.h>

#include "stats.h"
#include "worker_impl.h"

struct worker worker;
uint32_t worker_files[WORKER_FILES];

bool worker_start(void)
{
    uint32_t seen = WORKER_NONE;
    int saved = errno;
    bool ok;

    if (rl_load_32(&worker.leave) != 0)
        return false;
    if (!rl_cas_32(&worker.state, &seen, WORKER_RUNS)) {
        if (seen == WORKER_RUNS)
            return true;
        /* The last one is on its way out: only when its thread is gone is its stack free. */
        if (rl_load_32(&worker.thread.tid) != 0 || !rl_cas_32(&worker.state, &seen, WORKER_RUNS))
            return false;
    }
    ok = raw_thread_start(&worker.thread, worker_main);
    if (ok) {
        stat_add(STAT_worker_started, 1);
    } else {
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
    if (rl_load_32(&worker.thread.tid) == 0)
        return;
    rl_add_32(&worker.leave, 1);
    raw_thread_gone(&worker.thread, worker_wake);
    rl_add_32(&worker.leave, (uint32_t)-1);
}

void worker_forked(void)
{
    char *stack = worker.thread.stack;

    memset(&worker, 0, sizeof worker);
    worker.thread.stack = stack;
    memset(worker_files, 0, sizeof worker_files);
    worker_loop_forked();
}
