/* SPDX-License-Identifier: MIT */
/* execute_whole: buffered writes in pieces that nobody can tell from one (whole.h). Where one is
 * made in one after all, that is as it always was. */
#include <errno.h>
#include <pthread.h>
#include <sys/single_threaded.h>
#include <time.h>

#include "execute_impl.h"
#include "pace.h"
#include "policy_split.h"
#include "whole.h"

#define ANSWER_NAPS   10
#define ANSWER_NAP_NS 200000u

/* The write would take far longer in one than the answer takes, and by the next one the file may be
 * off again. The caller has landed, or it would be waited for itself. */
static void wait_for_evidence(int fd, struct rl_inode *inode)
{
    struct file_state *fs = file_state(inode);

    if (file_on(inode) && file_armed(inode))
        return;
    execute_ask(fd, inode);
    for (int naps = 0; naps < ANSWER_NAPS && rl_load_32(&fs->asked) != 0; naps++)
        rl_futex_wait(&fs->asked, 1, ANSWER_NAP_NS);
    for (int naps = 0; naps < ANSWER_NAPS && file_on(inode) && !file_armed(inode); naps++)
        rl_futex_wait(&fs->armed, 0, ANSWER_NAP_NS);
}

struct cancel_state {
    bool off;
    int before;
};
static void cancel_off(struct cancel_state *c)
{
    if (!c->off)
        c->off = pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &c->before) == 0;
}
static void cancel_back(struct cancel_state *c)
{
    if (c->off)
        pthread_setcancelstate(c->before, NULL);
}
#define CANCEL_STATE(name)                                                                         \
    struct cancel_state name __attribute__((cleanup(cancel_back))) = {.off = false}

static uint64_t cpu_ns(void)
{
    struct timespec t = {0, 0};

    rl_raw(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A big buffered write: see whole.h. Where it is made in one after all, that is as it always was.
 */
ssize_t execute_whole(const struct io *io, struct rl_inode *inode, size_t bytes)
{
    struct file_state *fs = file_state(inode);
    uint64_t start = (uint64_t)io->off;
    struct rl_span range = {start, start + bytes};
    uint64_t word = state_word();
    struct iovec part[PARTS_MAX];
    struct inflight_view view;
    int saved = errno;
    size_t done = 0;
    int parts;
    ANNOUNCEMENT(mine);
    SIGNALS(signals);
    WHOLE_HOLD(hold);
    CANCEL_STATE(cancel);

    announce(&mine, inode, &range);
    inflight_land(io->leg); /* announced, and others may wait for us to have landed */
    wait_for_evidence(io->fd, inode);
    signals_block(&signals);
    if (!whole_begin(&hold, inode, range.start, range.end, &mine)) {
        signals_back(&signals);
        return write_plain(io);
    }
    stat_add(STAT_whole_begun, 1);
    settle_range(inode, range.start, range.end, WHY_write);
    while (done < bytes) {
        uint64_t began_ns = rl_now_ns();
        uint64_t began_cpu_ns = cpu_ns();
        bool crowded = pace_crowded(inode, began_ns, &view);
        size_t len = write_next_piece(
            io, done, policy_whole_piece(rl_load_64(&fs->whole_rate), fs->hold_target_ns), part,
            &parts);
        off_t off = io->off + (off_t)done;
        ssize_t n =
            write_rest(io, part, parts, off, io->issue(io, part, parts, off), len, saved, word);

        if (n < 0 && done == 0)
            return n;
        if (n < 0) { /* a short count is a success */
            errno = saved;
            break;
        }
        done += (size_t)n;
        cancel_off(&cancel); /* begun, so it is finished, as in the kernel */
        stat_add(STAT_whole_pieces, 1);
        if ((size_t)n < len)
            break;
        rl_store_64(&fs->whole_rate, policy_whole_rate(rl_load_64(&fs->whole_rate),
                                                       &(struct whole_sample){
                                                           .bytes = len,
                                                           .wall_ns = rl_now_ns() - began_ns,
                                                           .cpu_ns = cpu_ns() - began_cpu_ns,
                                                           .alone = view.n == 0,
                                                       }));
        if (done < bytes && crowded) {
            inflight_beside(inode, &view);
            pace_give_way(&view, fs->hold_target_ns / 8);
        }
    }
    return (ssize_t)done;
}

struct rl_inode *execute_whole_file(const struct io *io, size_t bytes, int flags)
{
    struct inflight_view view;
    struct rl_inode *inode;
    struct file_state *fs;

    if (bytes < WHOLE_LEAST_BYTES || !io->positional || io->flags != 0 || __libc_single_threaded ||
        io->off < 0 || bytes > RL_FOREVER - (uint64_t)io->off || flags < 0 ||
        (flags & (O_DIRECT | O_APPEND | O_SYNC | O_DSYNC)) != 0 ||
        (inode = file_inode(io->fd, true)) == NULL)
        return NULL;
    fs = file_state(inode);
    /* Readers do not wait for buffered writers on ext4, and on btrfs only within the range. */
    if (fs->kind != FILE_KIND_XFS + 1 || fs->split_bytes == CFG_OFF ||
        !pace_crowded(inode, rl_now_ns(), &view))
        return NULL;
    return !write_size_limited() ? inode : NULL;
}
