/* SPDX-License-Identifier: MIT */
/*
 * keeper_impl: what keeper.c (the worker's side), keeper_start.c (making the process) and
 * keeper/image.c (the process) share. Messages are packets of a SOCK_SEQPACKET pair; each gets one
 * answer, an int: 0 or -errno.
 */
#ifndef SHIM_KEEPER_IMPL_H
#define SHIM_KEEPER_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#define KEEPER_FILES      256 /* as WORKER_FILES */
#define KEEPER_PATH_BYTES 9216

/* tests/stress/keeper_mutants.sh builds these files with one step left out, and tests must notice.
 */
#ifdef KEEPER_MUTATE
#define KEEPER_MUTANT(n) (KEEPER_MUTATE == (n))
#else
#define KEEPER_MUTANT(n) 0
#endif

/* What the process begins with. */
#define KEEPER_FD_SOCKET 0
#define KEEPER_FD_PIDFD  1

enum keeper_act { KEEPER_BEGIN, KEEPER_TAKE, KEEPER_DROP, KEEPER_BYE };

struct keeper_message {
    uint32_t act; /* enum keeper_act */
    /* TAKE, with the file's descriptor, and DROP */
    uint32_t slot;
    uint32_t index, gen; /* of the inode entry */
    uint32_t number;     /* of the activation */
    int32_t mark;        /* semaphore set */
    uint64_t dev, ino;
    uint64_t call_max_bytes;
};

struct keeper_begin {
    uint32_t act;
    int32_t shm;                   /* the arena */
    uint32_t nodes;                /* in its pool, index 0 included */
    uint32_t program;              /* pid, for the counters */
    char stats[KEEPER_PATH_BYTES]; /* file of the counters, "" none */
};

/* A process that was begun; descriptors of the worker. */
struct keeper_process {
    int socket, pidfd;
};

/* 0, or -errno and at what step it failed. */
int keeper_start(struct keeper_process *made, const char **step);

/* In a forked child: none is being made. */
void keeper_start_forked(void);

#endif
