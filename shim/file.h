/* SPDX-License-Identifier: MIT */
/*
 * file: descriptor -> inode entry, and what is known about each.
 *
 * A descriptor's word says nothing until somebody asks: identity is taken with fstat at the first
 * question (at every open it would cost a third of an open+close). It is forgotten before every
 * close and at every open, so a number that was closed and reused meets no stale identity as long
 * as closes and opens pass by here; where they do not (raw system calls), whoever is about to
 * change what the program sees or what is on disk calls file_verify first.
 *
 * Two levels, generation-counted words, compare-and-swap: no lock, callable anywhere.
 */
#ifndef SHIM_FILE_H
#define SHIM_FILE_H

#include "../include/rlshim/range_lock.h"
#include "fs_kind.h"
#include "state.h"

enum {                     /* origin and use of a descriptor */
       FILE_OPENED = 1,    /* came from an open in this process, or from a dup of such a one */
       FILE_STREAM = 2,    /* stdio or POSIX aio works on it behind our back */
       FILE_SHARED = 4,    /* its file position may be moved through another descriptor or thread */
       FILE_WRITES = 8,    /* open for writing (seen with F_GETFL) */
       FILE_PASSED = 16,   /* was sent to, or came from, another process */
       FILE_NAMELESS = 32, /* O_TMPFILE or memfd_create: nobody else can have opened it */
};

#define FILE_WRITING 8

/* Share the syncs of a file, or not: what was learnt (policy_flush.h). One thread at a time. */
struct flush_choice {
    bool now, best;      /* true: share */
    uint32_t left;       /* stretches until the other way is tried again */
    uint32_t patience;   /* and how many from then on, 0: nothing is known yet */
    uint32_t crowd;      /* at the last trial */
    uint64_t mean_ns[2]; /* what a call takes alone and shared, 0: not known */
};

/* What this process decided about an inode; indexed like the inode table. Plain fields are written
 * by the worker or before the entry is found by others; the rest atomically. */
struct file_state {
    uint32_t gen;     /* of the inode entry this belongs to */
    uint32_t tuned;   /* proc.tuned that the settings below are of */
    uint32_t kind;    /* enum file_kind + 1, 0 not known yet */
    uint32_t never;   /* never defer: enum stat_id that says why, 0 none */
    uint32_t asked;   /* evidence is being gathered */
    uint32_t refusal; /* enum stat_id that says why not, until refused_ns */
    uint32_t refusals;
    uint64_t refused_ns;   /* CLOCK_MONOTONIC: ask again after this */
    uint64_t queued_at_ns; /* CLOCK_REALTIME_COARSE of the newest queued punch, since 1970 */
    /* settings in force for this file */
    uint64_t punch_delay_ns, punch_call_max_bytes, split_bytes, hold_target_ns;
    uint64_t window_bytes;
    uint8_t gate, share, punch, stat_mode, fsync_mode, preextend;
    struct flushes {               /* flush.c */
        uint32_t syncing, callers; /* real syncs under way; callers there */
        uint32_t crowd[2];         /* callers at one time, at the most: in this stretch and the last */
        uint32_t calls[2];         /* of this stretch, alone and shared */
        uint64_t sum_ns[2];        /* what they took */
        uint32_t way;              /* enum flush_way */
        uint32_t learning;         /* a thread does, and alone uses: */
        struct flush_choice choice;
    } flush;
    /* Calls under way that a punch must not be queued beside (announce.h): packed like the table's
     * wants, and those that do not fit or whose place is not known. */
    uint64_t writing[FILE_WRITING];
    uint32_t writing_anywhere;
    uint32_t putting;   /* punches between their look at those and their queueing */
    struct pace {       /* of pieces, see pace.h */
        uint64_t mean;  /* bytes a second over the last windows */
        uint64_t best;  /* the best that was lately */
        uint64_t piece; /* length of the last one */
        uint64_t least; /* and of the next one at least */
        uint64_t due_ns, beside_ns;
        uint64_t first_ns, last_ns, bytes; /* the window under way */
        uint64_t before;      /* the rate before longer pieces were tried, 0: none are */
        uint32_t calm, pause; /* windows since the last try, and until the next */
        uint32_t more;        /* sixty-fourths of mean that are asked for beyond it */
        uint32_t behind;      /* the last window stayed behind the best */
    } pace;
    struct window {            /* of writeback, see window.h */
        uint64_t window_bytes; /* in force now */
        uint64_t bytes, blind; /* written since the last start; of these, nobody asked where */
        uint64_t low, high;    /* where the others are */
        uint64_t owed;         /* written and not known to be on the disk */
        uint64_t wrote_ns;
        uint32_t turn; /* thread that acts, 0 none; a futex. What it alone stores: */
        uint32_t error, error_fd, error_gen; /* told to us, not to the program: window_synced */
        uint64_t turn_ns;                    /* its last sign of life */
        uint64_t started;                    /* where the last start ended */
        uint64_t before_start, before_end, before_bytes; /* the last start, if not awaited yet */
    } window;
    uint32_t tail;              /* tail.h: flags and members; a futex */
    uint32_t tail_seq;          /* tails begun */
    uint64_t shown, extended;   /* the size as the program knows it, and as the kernel does */
    uint64_t whole_rate;        /* bytes a second, while nobody waits: policy_whole */
    uint32_t whole;             /* whole.h: buffered writes in pieces under way; a futex */
    struct rl_range_lock range; /* theirs, and of those who come beside them */
    uint64_t reach; /* offset up to which the kernel is known to punch (policy_punch.h), 0 none */
    uint32_t armed; /* on, and every call that began before it was is over: punches may queue */
};

struct file_state *file_state(const struct rl_inode *inode);

/* Deferral is on, or about to be (file_armed). */
static inline bool file_on(const struct rl_inode *inode)
{
    return (rl_load_32(&inode->table.act) & RL_ACT_STATE) == RL_ACT_ON;
}

/* Punches may be queued, and no call is under way that does not ask first. */
static inline bool file_armed(const struct rl_inode *inode)
{
    return rl_load_32(&file_state(inode)->armed) != 0;
}

/* The entry of the inode behind fd, or NULL: not a regular file on a file system we know, no such
 * descriptor, or (make = false) no entry and so nothing queued. Leaves errno alone. */
struct rl_inode *file_inode(int fd, bool make);

/* The entry if its range table is on or draining; NULL means that nothing can be queued for fd. */
struct rl_inode *file_active(int fd);

/* By identity, for calls that know a path; no entry is made. */
struct rl_inode *file_by_identity(uint64_t dev, uint64_t ino);

/* Deferral is refused for this counter's reason; evidence is asked for again after 0.1 s, then
 * after twice as long each time, up to 3.2 s. */
void file_refuse(struct file_state *fs, uint32_t reason);

/* What the settings say about one file. Not all of them: handlers ask, on stacks of 8 KiB. */
struct file_rules {
    uint64_t punch_delay_ns, punch_call_max_bytes, split_bytes, hold_target_ns;
    uint64_t evict_min_bytes, evict_hold_max_ns;
    uint64_t window_bytes;
    enum cfg_share share;
    enum cfg_punch punch;
    enum cfg_stat_mode stat_mode;
    enum cfg_fsync_mode fsync_mode;
    enum cfg_preextend preextend;
    enum cfg_truncate_mode truncate_mode;
    enum cfg_evict evict;
    bool gate;
};

/* For the file behind fd, by its present name, or at a path that was given to a call, and that the
 * kernel has read before (it may lead nowhere). False where it cannot be made absolute. */
void file_rules_of(int fd, struct file_rules *rules);
bool file_rules_at(int dirfd, const char *path, struct file_rules *rules);

/* Takes the settings anew, by the name that fd's file has now. */
void file_settings(int fd, const struct rl_inode *inode);

/* Asks the kernel: is fd still this inode? */
bool file_verify(int fd, const struct rl_inode *inode);

void file_opened(int fd);                     /* fd was just opened here */
void file_forget(int fd);                     /* fd is about to be closed, or came from elsewhere */
int file_next(unsigned first, unsigned last); /* the first that was opened here, -1 none */
void file_forget_range(unsigned first, unsigned last);
void file_duplicated(int from, int to); /* to was just made from from */
uint32_t file_flags(int fd);

/* Moves with every open and close of the number: equal before and after, it was the same file. */
uint32_t file_generation(int fd);
void file_mark(int fd, uint32_t flags);

/*
 * True if nobody else moves the file position of fd before the caller's flight (inflight.h) is
 * over, so that "position, then call" is one step: fd was opened here, not copied, no fork happened
 * since, and no other thread has moved it. One that comes later takes it away for good, and waits
 * here for the flight of the first. all_ask: every other call that moves a position asks here
 * first, as those on a file with armed deferral do. Otherwise only a process with one thread can
 * know.
 */
bool file_claim_position(int fd, bool all_ask);

/* Was there a fork since fd was opened, so that a child may have it? */
bool file_forked_since(int fd);

/* The thread is about to make a child that runs in its place and memory (vfork): what that opens
 * and closes are descriptors of its own, and nothing is noted down until the thread is back. */
void file_vfork(void);

/* Makes the child's view after fork: positions are shared from now on. */
void file_forked(void);

#endif
