/* SPDX-License-Identifier: MIT */
/*
 * tail: see tail.h.
 *
 * Who begins one, and those who must not meet one, change their own word first and look at the
 * other's then, as in announce.c: tail against announcements, tail against the range table's
 * activation. All of these are read-modify-writes, which are full barriers.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "gate_hold.h"
#include "log.h"
#include "policy_tail.h"
#include "tail.h"
#include "worker.h"

#define MEMBERS ((uint32_t)0xffff)
#define WAIT_NS 100000000u /* then look again */

static uint32_t moves;

uint32_t tail_moves(void)
{
    return rl_load_32(&moves);
}

static bool kernel_shares(void)
{
    static uint32_t known; /* 1 no, 2 yes */
    struct utsname uts;

    if (rl_load_32(&known) == 0)
        rl_store_32(&known,
                    rl_raw(SYS_uname, &uts) == 0 && policy_tail_kernel(uts.release) ? 2 : 1);
    return rl_load_32(&known) == 2;
}

static void raise_to(uint64_t *at, uint64_t value)
{
    uint64_t seen = rl_load_64(at);

    while (seen < value && !rl_cas_64(at, &seen, value))
        ;
}

/* Decided: whoever waits looks again. */
static void decide(struct file_state *fs, uint32_t tail)
{
    rl_store_32(&fs->tail, tail);
    rl_futex_wake(&fs->tail, INT32_MAX);
}

/* One step, so that readers and writers never meet a size without its space. Returns 0 or a negated
 * errno. */
static long extend(struct rl_inode *inode, int fd, uint64_t from, uint64_t to)
{
    GATE_HOLD(hold);
    long r;

    gate_enter(&hold, inode, true); /* the kernel drains direct I/O for this, with the lock held */
    while ((r = rl_raw(SYS_fallocate, fd, 0, from, to - from)) == -EINTR)
        ;
    return r;
}

static void cut(struct rl_inode *inode, int fd, uint64_t size)
{
    GATE_HOLD(hold);
    long r;

    gate_enter(&hold, inode, true);
    while ((r = rl_raw(SYS_ftruncate, fd, size)) == -EINTR)
        ;
    if (r != 0)
        log_line(CFG_LOG_ERROR,
                 LOG_S("a write that failed had extended the file first, and that "
                       "could not be taken back ("),
                 LOG_ERRNO(-r), LOG_S("): inode "), LOG_ID(inode->ino),
                 LOG_S(" has zeros at its end; set preextend = off for this file"));
}

/* With the word at TAIL_CLOSING, so that nobody else enters or begins. */
static bool may_begin(const struct rl_inode *inode, int fd, uint64_t start, uint64_t end,
                      const struct announcement *mine, uint64_t *size)
{
    const struct file_state *fs = file_state(inode);
    struct stat st;

    if ((!announce_alone(mine) && !RL_MUTANT(84)) || !file_armed(inode) || !file_on(inode))
        return false;
    if (rl_raw(SYS_fstat, fd, &st) != 0 || st.st_dev != inode->dev || st.st_ino != inode->ino)
        return false;
    *size = (uint64_t)st.st_size;
    return policy_tail(&(struct tail_facts){
        .setting = (enum cfg_preextend)fs->preextend,
        .kind = (enum file_kind)(fs->kind - 1),
        .nameless = st.st_nlink == 0,
        .shared_kernel = kernel_shares(),
        .size = *size,
        .start = start,
        .end = end,
    });
}

bool tail_begin(struct tail_member *m, struct rl_inode *inode, int fd, uint64_t start, uint64_t end,
                const struct announcement *mine)
{
    struct file_state *fs = file_state(inode);
    uint32_t seen = 0;
    uint64_t from;
    long r;

    if (fs->preextend == CFG_PREEXTEND_OFF || !file_armed(inode))
        return false;
    if (rl_cas_32(&fs->tail, &seen, TAIL_CLOSING)) {
        if (!may_begin(inode, fd, start, end, mine, &from)) {
            decide(fs, 0);
            return false;
        }
        rl_store_64(&fs->shown, from);
        rl_store_64(&fs->extended, end);
        *m = (struct tail_member){inode, fd};
        decide(fs, TAIL_ACTIVE | 1);
        rl_add_32(&fs->tail_seq, 1); /* after the word: whoever sees it has seen the word */
        rl_add_32(&moves, 1);
        stat_add(STAT_tail_begun, 1);
    } else { /* somebody else's, if it is not about to end */
        do
            if (seen == 0 || (seen & TAIL_CLOSING) != 0)
                return false;
        while (!rl_cas_32(&fs->tail, &seen, seen + 1));
        *m = (struct tail_member){inode, fd};
        from = rl_load_64(&fs->extended);
        if (start > from || end <= from)
            return true;
        raise_to(&fs->extended, end);
    }
    r = extend(inode, fd, from, end);
    if (r == 0) {
        stat_add(STAT_tail_bytes, end - from);
        return true;
    }
    if (r == -EOPNOTSUPP)
        fs->preextend = CFG_PREEXTEND_OFF;
    stat_add(STAT_tail_refused, 1);
    tail_leave(m);
    return false;
}

bool tail_enter(struct tail_member *m, struct rl_inode *inode, int fd)
{
    struct file_state *fs = file_state(inode);
    uint32_t seen = rl_load_32(&fs->tail);

    while (seen != 0 && !RL_MUTANT(82)) {
        if ((seen & TAIL_CLOSING) != 0) {
            rl_futex_wait(&fs->tail, seen, WAIT_NS);
            seen = rl_load_32(&fs->tail);
        } else if (rl_cas_32(&fs->tail, &seen, seen + 1)) {
            *m = (struct tail_member){inode, fd};
            return true;
        }
    }
    return false;
}

void tail_wrote(const struct tail_member *m, uint64_t end)
{
    if (m->inode != NULL)
        raise_to(&file_state(m->inode)->shown, end);
}

bool tail_wanted(const struct tail_member *m)
{
    return m->inode != NULL &&
           ((rl_load_32(&file_state(m->inode)->tail) & TAIL_CLOSING) != 0 || !file_on(m->inode));
}

void tail_leave(struct tail_member *m)
{
    struct rl_inode *inode = m->inode;
    struct file_state *fs;
    uint32_t seen, left;

    if (inode == NULL)
        return;
    m->inode = NULL;
    fs = file_state(inode);
    seen = rl_load_32(&fs->tail);
    do
        left = (seen & MEMBERS) > 1 ? seen - 1 : TAIL_ACTIVE | TAIL_CLOSING;
    while (!rl_cas_32(&fs->tail, &seen, left));
    if ((left & MEMBERS) != 0)
        return;
    if (rl_load_64(&fs->shown) < rl_load_64(&fs->extended)) {
        cut(inode, m->fd, rl_load_64(&fs->shown));
        stat_add(STAT_tail_cut, 1);
    }
    rl_add_32(&moves, 1); /* before the word: a size from before the cut is known for one */
    decide(fs, 0);
    if ((rl_load_32(&inode->table.act) & RL_ACT_STATE) == RL_ACT_DRAINING)
        worker_wake();
}

void tail_give_back(struct rl_inode *inode)
{
    struct file_state *fs = file_state(inode);
    uint32_t seen = rl_load_32(&fs->tail);

    while (seen != 0 && !RL_MUTANT(85)) {
        if ((seen & TAIL_CLOSING) == 0 && !rl_cas_32(&fs->tail, &seen, seen | TAIL_CLOSING))
            continue;
        rl_futex_wait(&fs->tail, seen | TAIL_CLOSING, WAIT_NS);
        seen = rl_load_32(&fs->tail);
    }
}

size_t tail_clip(struct rl_inode *inode, uint64_t off, size_t n, struct tail_seen *seen)
{
    const struct file_state *fs = file_state(inode);
    uint64_t shown;

    seen->seq = rl_load_32(&fs->tail_seq);
    seen->active = (rl_load_32(&fs->tail) & TAIL_ACTIVE) != 0;
    if (likely(!seen->active) || RL_MUTANT(80))
        return n;
    shown = rl_load_64(&fs->shown);
    if (off >= shown)
        return 0;
    return n < shown - off ? n : (size_t)(shown - off);
}

bool tail_unseen(struct rl_inode *inode, const struct tail_seen *seen)
{
    return seen->active || rl_load_32(&file_state(inode)->tail_seq) == seen->seq || RL_MUTANT(81);
}

uint64_t tail_shown(struct rl_inode *inode, uint64_t size)
{
    const struct file_state *fs = file_state(inode);
    uint64_t shown;

    if ((rl_load_32(&fs->tail) & TAIL_ACTIVE) == 0 || RL_MUTANT(83))
        return size;
    shown = rl_load_64(&fs->shown);
    return size < shown ? size : shown;
}
