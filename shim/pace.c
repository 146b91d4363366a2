/* SPDX-License-Identifier: MIT */
/* pace: see pace.h. */
#include "pace.h"
#include "policy_split.h"
#include "stats.h"

#define DEVICES      16 /* that are written to in pieces; more share places */
#define CROWDED_NS   100000000u
#define WINDOW_NS    300000000u
#define GAP_NS       50000000u /* longer between two pieces: the writer did something else */
#define CREDIT_NS    20000000u /* of waiting that a late piece saves the next ones */
#define NAP_LEAST_NS 200000u
#define MORE_LEAST   3u /* sixty-fourths: a twentieth */
#define MORE_MOST    64u
#define PAUSE_MOST   63u /* windows between tries with longer pieces */

static struct device {
    uint64_t dev, rate;
} devices[DEVICES];

static struct device *device_of(uint64_t dev)
{
    return &devices[(dev ^ dev >> 8) % DEVICES];
}

uint64_t pace_rate(const struct rl_inode *inode)
{
    uint64_t dev = rl_load_64(&inode->dev);
    uint64_t best = rl_load_64(&file_state(inode)->pace.best);
    struct device *d = device_of(dev);

    if (best != 0)
        return best;
    return rl_load_64(&d->dev) == dev ? rl_load_64(&d->rate) : 0;
}

/* Twice as long, for a window: worth it if the rate goes up by more than a sixteenth. Otherwise not
 * again for a while, and then for twice as long. */
static void probe(struct pace *p, uint64_t rate, uint32_t calm)
{
    uint64_t before = rl_load_64(&p->before);
    uint64_t piece = rl_load_64(&p->piece);
    uint32_t pause = rl_load_32(&p->pause);

    if (before != 0 && rate <= before + before / 16) {
        rl_store_64(&p->before, 0);
        rl_store_64(&p->least, rl_load_64(&p->least) / 2);
        rl_store_32(&p->pause, pause < PAUSE_MOST ? pause * 2 + 1 : pause);
    } else if (before != 0 || calm > pause) {
        rl_store_64(&p->before, rate);
        rl_store_64(&p->least, piece < SPLIT_HURRIED_BYTES / 2 ? piece * 2 : SPLIT_HURRIED_BYTES);
        rl_store_32(&p->calm, 0);
        if (piece >= SPLIT_HURRIED_BYTES)
            rl_store_64(&p->before, 0);
    }
}

static void window_ends(const struct rl_inode *inode, struct pace *p, uint64_t rate)
{
    struct device *d = device_of(inode->dev);
    uint64_t best = rl_load_64(&p->best);
    uint64_t mean = rl_load_64(&p->mean);
    uint32_t calm = rl_load_32(&p->calm) + 1;
    uint32_t boost = rl_load_32(&p->more);
    bool behind;

    /* One window may hold a grant more than its share: means, therefore. */
    mean = mean == 0 ? rate : mean / 2 + rate / 2;
    best -= best / 32; /* a limit that fell is believed after seconds */
    behind = mean < best - best / 16;
    /* Faster than before: no limit is in the way yet, so ask for more, and more again. */
    rl_store_32(&p->more, rate > mean + mean / 64 && boost < MORE_MOST ? boost * 2 : MORE_LEAST);
    if (mean > best)
        best = mean;
    if (behind)
        calm = 0;
    rl_store_32(&p->behind, behind);
    rl_store_32(&p->calm, calm);
    probe(p, rate, behind ? UINT32_MAX : calm);
    rl_store_64(&p->mean, mean);
    rl_store_64(&p->best, best);
    rl_store_64(&d->rate, best);
    rl_store_64(&d->dev, inode->dev);
}

void pace_passed(const struct rl_inode *inode, size_t bytes, uint64_t began_ns, uint64_t ended_ns)
{
    struct pace *p = &file_state(inode)->pace;
    uint64_t first_ns = rl_load_64(&p->first_ns);
    uint64_t sum = rl_load_64(&p->bytes);

    if (first_ns == 0 || began_ns - rl_load_64(&p->last_ns) > GAP_NS) {
        first_ns = began_ns;
        sum = 0;
    }
    sum += bytes;
    if (ended_ns - first_ns > WINDOW_NS) {
        window_ends(inode, p, (uint64_t)((double)sum * 1e9 / (double)(ended_ns - first_ns)));
        first_ns = ended_ns;
        sum = 0;
    }
    rl_store_64(&p->piece, bytes);
    rl_store_64(&p->bytes, sum);
    rl_store_64(&p->first_ns, first_ns);
    rl_store_64(&p->last_ns, ended_ns);
}

bool pace_crowded(const struct rl_inode *inode, uint64_t now_ns, struct inflight_view *view)
{
    struct pace *p = &file_state(inode)->pace;

    inflight_beside(inode, view);
    if (view->n != 0)
        rl_store_64(&p->beside_ns, now_ns);
    return now_ns - rl_load_64(&p->beside_ns) <= CROWDED_NS;
}

bool pace_wait(const struct rl_inode *inode, size_t bytes)
{
    struct pace *p = &file_state(inode)->pace;
    uint64_t rate = rl_load_64(&p->mean);
    uint64_t now_ns = rl_now_ns();
    uint64_t due_ns = rl_load_64(&p->due_ns);
    uint32_t never = 0;
    bool waits;

    if (rate == 0 || rl_load_32(&p->behind) != 0)
        return false;
    if (due_ns + CREDIT_NS < now_ns)
        due_ns = now_ns - CREDIT_NS;
    waits = due_ns > now_ns + NAP_LEAST_NS && due_ns < now_ns + WINDOW_NS;
    if (waits) {
        rl_futex_wait(&never, 0, due_ns - now_ns);
        stat_add(STAT_write_paced, 1);
    }
    rate += rate / 64 * rl_load_32(&p->more);
    rl_store_64(&p->due_ns, due_ns + (uint64_t)((double)bytes * 1e9 / (double)rate));
    return waits;
}

void pace_give_way(const struct inflight_view *view, uint64_t most_ns)
{
    uint64_t until_ns;

    if (inflight_moved(view))
        return;
    stat_add(STAT_write_gave_way, 1);
    until_ns = rl_now_ns() + most_ns;
    do
        rl_raw(SYS_sched_yield);
    while (!inflight_moved(view) && rl_now_ns() < until_ns);
}
