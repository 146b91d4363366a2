/* SPDX-License-Identifier: MIT */
/*
 * The auditor: a process started without LD_PRELOAD, so that it sees the file as the kernel has it
 * and as every stranger would. It is handed the file by descriptor number, by name, or by the
 * descriptor itself, reads the ranges asked for into lane 0 of the trace while the asker waits, and
 * answers with what stat says.
 */
#ifndef MODEL_AUDITOR_H
#define MODEL_AUDITOR_H

#include "perform.h"

enum ask_how { ASK_BY_NUMBER, ASK_BY_NAME, ASK_SENT };

struct ask {
    uint8_t how;
    int fd;
    pid_t pid;
    char path[512];
    int ranges;
    int64_t off[PLAN_ISLANDS * 4], len[PLAN_ISLANDS * 4];
};

struct answer {
    int err;
    int64_t size, mtime_ns, ctime_ns;
    bool decoy_intact;
};

/* Starts the auditor; returns its socket or -1. */
int auditor_start(const char *self, int arena_fd, const char *decoy_path, pid_t *pid);

/* With ASK_SENT, `fd` goes along as SCM_RIGHTS. 0 or -1 with errno. */
int auditor_ask(int sock, const struct ask *q, struct answer *a);

/* The auditor's own main, reached by `--auditor`; returns at the end of the socket. */
int auditor_main(int arena_fd, int sock, const char *decoy_path);

/* The decoy's bytes are a function of nothing but their place. */
void decoy_fill(unsigned char *buf);

#endif
