/* SPDX-License-Identifier: MIT */
/* policy_flush: see policy_flush.h. */
#include <errno.h>

#include "policy_flush.h"

bool policy_flush_shares(const struct flush_facts *f)
{
    if (!f->share || f->inside)
        return false;
    switch (f->kind) {
    case FILE_KIND_EXT4:
        return f->way == FLUSH_SHARED || (f->way == FLUSH_GUESS && f->crowd >= FLUSH_CROWD_EXT4);
    case FILE_KIND_XFS:
    case FILE_KIND_BTRFS:
        return f->way != FLUSH_ALONE;
    default:
        return false;
    }
}

#define PATIENCE_MIN 4u
#define PATIENCE_MAX 64u

/* A stretch of the way that is not the best one so far is over. It wins only clearly: else two ways
 * that are as good would take turns. */
static void tried(struct flush_choice *c, bool shared, uint64_t mean_ns, uint32_t crowd)
{
    uint64_t best_ns = c->mean_ns[c->best];

    c->mean_ns[shared] = mean_ns;
    c->crowd = crowd;
    if (mean_ns < best_ns - best_ns / 16) {
        c->best = shared;
        c->patience = PATIENCE_MIN;
    } else if (mean_ns / 2 > best_ns) {
        c->patience = PATIENCE_MAX;
    } else if (c->patience < PATIENCE_MAX) {
        c->patience *= 2;
    }
    c->now = c->best;
    c->left = c->patience;
}

enum flush_way policy_flush_learn(struct flush_choice *c, bool shared, uint64_t mean_ns,
                                  uint32_t crowd)
{
    uint64_t *mean = &c->mean_ns[shared];

    if (c->patience == 0) {
        c->best = c->now = shared;
        c->patience = PATIENCE_MIN;
    }
    if (shared != c->best) {
        tried(c, shared, mean_ns, crowd);
    } else {
        *mean = *mean == 0 ? mean_ns : *mean - *mean / 4 + mean_ns / 4;
        if (c->left != 0 && crowd < c->crowd * 2 && crowd > c->crowd / 2)
            c->left--;
        else
            c->now = !shared;
    }
    return c->now ? FLUSH_SHARED : FLUSH_ALONE;
}

bool policy_flush_gives_up(const struct flush_choice *c, bool shared, uint64_t mean_ns)
{
    uint64_t best_ns = c->mean_ns[c->best];

    return c->patience != 0 && shared != c->best && mean_ns > best_ns + best_ns / 2;
}

bool policy_flush_is_about_data(int error)
{
    switch (error) {
    case EBADF:
    case EINVAL:
    case ESPIPE:
    case EINTR:
    case ENOSYS:
    case EPERM:
    case EACCES:
    case EOPNOTSUPP:
        return false;
    default:
        return true;
    }
}

bool policy_flush_told(int leader_fd, int fd)
{
    return leader_fd == fd;
}
