/* SPDX-License-Identifier: MIT */
/*
 * Signal handlers that use the file: read, punch and sync are allowed in a handler, and must not
 * wait for a lock that the interrupted call holds. A handler's calls fall inside the call that it
 * interrupts, so each thread's handler is a lane of its own, with a descriptor of its own.
 */
#include "perform.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

enum { HANDLER_BYTES = 2 * BLOCK };

static struct handler {
    struct actor actor;
    unsigned calls;
} handler_of[PLAN_THREADS];

static unsigned char handler_buf[PLAN_THREADS][HANDLER_BYTES] __attribute__((aligned(4096)));
static __thread struct handler *mine;

static void on_signal(int sig)
{
    int saved = errno;
    struct handler *h = mine;

    (void)sig;
    if (h) {
        const struct plan *p = h->actor.subject->plan;
        unsigned k = h->calls++;
        struct step s = {.call = k % 3 == 2 ? CALL_PUNCH : CALL_PREAD,
                         .off = p->base[0] + k * 5 % (p->island_len / BLOCK) * BLOCK,
                         .len = HANDLER_BYTES};

        if (k % 8 == 7)
            s.call = CALL_STAT;
        perform(&h->actor, &s, 0);
    }
    errno = saved;
}

bool signals_start(struct subject *f)
{
    const struct plan *p = f->plan;
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    for (unsigned t = 0; t < p->threads; t++) {
        bool direct = p->mode == MODE_DIRECT;
        int fd = subject_open(f, f->base_fd, false, O_RDWR | (direct ? O_DIRECT : 0));

        handler_of[t] =
            (struct handler){.actor = {.subject = f,
                                       .lane = atomic_fetch_add(&f->arena->lanes_used, 1),
                                       .fd = {fd, fd, -1},
                                       .direct = {direct, direct, false},
                                       .rbuf = handler_buf[t]}};
        if (fd < 0)
            return false;
    }
    return !sigaction(SIGUSR1, &sa, NULL);
}

void signals_join(struct subject *f, unsigned thread)
{
    if (f->plan->signals)
        mine = &handler_of[thread];
}

void signals_tick(pthread_t thread)
{
    pthread_kill(thread, SIGUSR1);
}

void signals_stop(void)
{
    for (unsigned t = 0; t < PLAN_THREADS; t++) {
        if (handler_of[t].actor.subject && handler_of[t].actor.fd[0] >= 0)
            close(handler_of[t].actor.fd[0]);
        handler_of[t].actor = (struct actor){.fd = {-1, -1, -1}};
    }
}
