/* SPDX-License-Identifier: MIT */
/* policy_remedy: see policy_remedy.h. */
#include "policy_remedy.h"

#define MIB (UINT64_C(1) << 20)

#define PUNCH_NS  1000u   /* to queue one */
#define ELIDE_NS  20000u  /* to look at the size and move the times */
#define DELETE_NS 100000u /* an unlink, or truncation, of a file that is held */

#define WINDOW_BYTES (8 * MIB)  /* the writeback_window that was measured */
#define CROWD_BYTES  (32 * MIB) /* so much that is dirty elsewhere is in the way of a sync */
#define CROWD_PART   3          /* worst fdatasync beside bursts: a third with the window */

/* Two syncs of a file serve everybody: one under way, one that begins after it. */
#define SYNCS_SHARED 3
#define SYNC_PART    2
#define CREATE_PART  3

static struct remedy_guess guess(enum remedy remedy, uint64_t would_ns)
{
    return (struct remedy_guess){remedy, would_ns};
}

static struct remedy_guess none(const struct remedy_facts *f)
{
    return guess(REMEDY_NONE, f->took_ns);
}

/* Who waits on the inode's lock for a big write, or behind somebody who does. */
static struct remedy_guess locked_out(const struct remedy_facts *f)
{
    if (f->beside_big)
        return guess(REMEDY_gate, f->hold_ns);
    if (f->act == ACT_punch)
        return guess(REMEDY_punch, PUNCH_NS);
    if (f->beside_drain && (f->act == ACT_read || f->act == ACT_write))
        return guess(REMEDY_punch, f->hold_ns);
    return none(f);
}

static struct remedy_guess removal(const struct remedy_facts *f)
{
    if (f->cut_before)
        return guess(REMEDY_elide, DELETE_NS);
    if (f->known_fs && f->frees_bytes >= f->evict_min_bytes && f->frees_bytes != 0)
        return guess(REMEDY_evict, DELETE_NS);
    return none(f);
}

static struct remedy_guess cut(const struct remedy_facts *f)
{
    if (f->cut_nothing)
        return guess(REMEDY_elide, ELIDE_NS);
    if (f->beside_big)
        return guess(REMEDY_gate, f->hold_ns);
    if (f->known_fs && f->frees_bytes >= MIB)
        return guess(REMEDY_truncate, DELETE_NS);
    return none(f);
}

static struct remedy_guess sync(const struct remedy_facts *f)
{
    if (f->syncs >= SYNCS_SHARED)
        return guess(REMEDY_fsync, f->took_ns / SYNC_PART);
    if (f->dirty_bytes > WINDOW_BYTES)
        return guess(REMEDY_writeback,
                     (uint64_t)((unsigned __int128)f->took_ns * WINDOW_BYTES / f->dirty_bytes));
    if (f->dirty_all_bytes > CROWD_BYTES)
        return guess(REMEDY_writeback, f->took_ns / CROWD_PART);
    return none(f);
}

static struct remedy_guess creation(const struct remedy_facts *f)
{
    uint32_t part = f->creates < CREATE_PART ? f->creates : CREATE_PART;

    if (!f->existed || !f->lookup_pays || part < 2)
        return none(f);
    return guess(REMEDY_create, f->took_ns / part);
}

static struct remedy_guess by_act(const struct remedy_facts *f)
{
    switch (f->act) {
    case ACT_read:
    case ACT_write:
    case ACT_punch:
    case ACT_fallocate:
        return locked_out(f);
    case ACT_unlink:
    case ACT_rename:
    case ACT_close:
        return removal(f);
    case ACT_open_cut:
    case ACT_truncate:
        return cut(f);
    case ACT_fsync:
    case ACT_fdatasync:
        return sync(f);
    case ACT_open_create:
        return creation(f);
    default:
        return none(f);
    }
}

struct remedy_guess policy_remedy(const struct remedy_facts *f)
{
    struct remedy_guess g = by_act(f);

    return g.would_ns < f->took_ns ? g : none(f);
}
