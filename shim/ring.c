/* SPDX-License-Identifier: MIT */
/* ring: see ring.h. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>

#include "ring.h"

static struct io_uring ring;
static bool open_now;

bool ring_open(void)
{
    unsigned most[2] = {2, 2}; /* bounded, unbounded: more workers only wait for inode locks */

    if (open_now)
        return true;
    if (io_uring_queue_init(RING_BATCH, &ring, 0) != 0)
        return false;
    io_uring_register_iowq_max_workers(&ring, most); /* fails before 5.15: then it is the default */
    open_now = true;
    return true;
}

void ring_close(void)
{
    if (open_now)
        io_uring_queue_exit(&ring);
    open_now = false;
}

bool ring_run(struct ring_punch *punch, int n)
{
    int submitted;
    int done = 0;

    for (int i = 0; i < n; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

        punch[i].result = 1;
        if (sqe == NULL)
            return false;
        io_uring_prep_fallocate(sqe, punch[i].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                punch[i].off, punch[i].len);
        sqe->user_data = (unsigned)i;
    }
    while ((submitted = io_uring_submit_and_wait(&ring, (unsigned)n)) == -EINTR)
        ;
    if (submitted != n)
        return false;
    while (done < n) {
        struct io_uring_cqe *cqe;
        int r = io_uring_wait_cqe(&ring, &cqe);

        if (r == -EINTR || r == -EAGAIN)
            continue;
        if (r != 0)
            return false;
        if (cqe->user_data < (unsigned)n)
            punch[cqe->user_data].result = cqe->res;
        io_uring_cqe_seen(&ring, cqe);
        done++;
    }
    return true;
}
