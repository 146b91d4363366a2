/* SPDX-License-Identifier: MIT */
/* keeper_mark: see keeper_mark.h. */
#include <errno.h>
#include <sys/ipc.h>
#include <sys/sem.h>

#include "../lockmgr/gate.h"
#include "keeper_mark.h"
#include "log.h"

#define PROGRAM     0 /* semaphores */
#define KEEPER      1
#define SEMAPHORES  7 /* the others are unused: an odd number, to be known by */
#define TRIES       8
#define SLICE_NS    1000000000u /* then say so once */
#define PATIENCE_NS 60000000000u

/* 32 bits for an inode: two files may meet in one. Then one of them is not deferred, or an open of
 * the one waits for a keeper of the other. */
static int key_of(uint64_t dev, uint64_t ino)
{
    uint64_t h = (ino ^ dev * 0x9e3779b97f4a7c15u ^ 0x726c7368u) * 0xff51afd7ed558ccdu;

    return (int)(uint32_t)(h >> 32 | 1); /* 0 is IPC_PRIVATE */
}

/* A set of another program under the same key is none of ours, and neither is what another user
 * says: that would be his word to wait for, or not to defer. */
static bool ours(long id)
{
    struct semid_ds ds;

    return rl_raw(SYS_semctl, id, 0, IPC_STAT, &ds) == 0 && ds.sem_nsems == SEMAPHORES &&
           (ds.sem_perm.mode & 0777) == 0600 && ds.sem_perm.uid == (uid_t)rl_raw(SYS_geteuid);
}

int keeper_mark_make(uint64_t dev, uint64_t ino)
{
    struct sembuf raise[3] = {
        {PROGRAM, 0, IPC_NOWAIT}, {KEEPER, 0, IPC_NOWAIT}, {PROGRAM, 1, SEM_UNDO}};
    long r = -EAGAIN;

    /* One that was left by a program and a keeper killed together is used again. */
    for (int i = 0; i < TRIES; i++) {
        long id = rl_raw(SYS_semget, key_of(dev, ino), SEMAPHORES, IPC_CREAT | 0600);

        if (id < 0)
            return (int)id;
        if (!ours(id))
            return -EEXIST;
        r = rl_raw(SYS_semop, id, raise, 3);
        if (r == 0)
            return (int)id;
        if (r != -EIDRM && r != -EINVAL && r != -EINTR)
            break; /* else it was removed under us */
    }
    return (int)r;
}

void keeper_mark_remove(int id)
{
    rl_raw(SYS_semctl, id, 0, IPC_RMID, 0);
}

void keeper_mark_wait(uint64_t dev, uint64_t ino)
{
    struct sembuf gone = {KEEPER, 0, 0};
    uint64_t began_ns = 0;

    for (;;) {
        struct timespec slice = {.tv_sec = SLICE_NS / 1000000000u};
        long id = rl_raw(SYS_semget, key_of(dev, ino), 0, 0);
        uint64_t now_ns;

        if (id < 0 || !ours(id) || rl_raw(SYS_semctl, id, PROGRAM, GETVAL, 0) != 0 ||
            rl_raw(SYS_semctl, id, KEEPER, GETVAL, 0) != 1)
            return;
        now_ns = rl_now_ns();
        if (began_ns == 0) {
            began_ns = now_ns;
        } else if (now_ns - began_ns >= PATIENCE_NS) {
            log_line(CFG_LOG_ERROR, LOG_S("inode "), LOG_ID(ino),
                     LOG_S(": the keeper of a killed program does not get done; opened all the "
                           "same, and what it still punches may be written by then; look what "
                           "the process rlshim-keeper waits for"));
            return;
        } else if (now_ns - began_ns >= SLICE_NS) {
            log_line(CFG_LOG_INFO, LOG_S("inode "), LOG_ID(ino),
                     LOG_S(": waiting in open until the keeper of a killed program is done"));
        }
        rl_raw(SYS_semtimedop, id, &gone, 1, &slice);
    }
}
