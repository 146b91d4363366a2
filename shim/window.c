/* SPDX-License-Identifier: MIT */
/* window: see window.h. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "policy_flush.h"
#include "policy_window.h"
#include "stats.h"
#include "window.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* Linux 6.5; the same on every processor */
#endif

#define ACTIVE_NS    1000000000u /* written to that lately: has a share of the budget */
#define COUNT_NS     20000000u   /* between two counts of such files */
#define TURN_LOOK_NS 5000000u    /* a wake-up that went to somebody who is gone costs this */
#define NAP_LEAST_NS 100000u
#define NAP_MOST_NS  4000000u
#define BYTES_A_NS   2u           /* no device writes faster: nobody oversleeps */
#define WAIT_MOST_NS 30000000000u /* a device that stands still: the kernel's own limits hold */

struct range64 {
    uint64_t off, len;
};
struct cache_counts { /* as cachestat(2) has it, in pages */
    uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

static uint64_t owed_by_all; /* bytes written and not known to be on the disk */
static uint32_t active_files;
static uint64_t idle_bytes; /* of owed_by_all, what other files than those owe, at the last count */
static uint64_t counted_ns;
static uint32_t never;        /* nobody wakes this futex */
static uint32_t no_cachestat; /* this kernel lacks it, or a filter forbids it */

bool window_configured(void)
{
    const struct config *config = state_config();

    return proc.settings.writeback_window_bytes != 0 ||
           (config != NULL && cfg_any_path_sets(config, CFG_ROW_writeback_window_bytes));
}

void window_reconfigured(void)
{
    uint64_t word = state_word();
    bool on = proc.settings.mode == CFG_MODE_ON && window_configured();

    while (!rl_cas_64(&state_word_value, &word,
                      on ? word | WORD_WINDOW : word & ~(uint64_t)WORD_WINDOW))
        ;
}

/* --- counting --- */

static void owe(struct file_state *fs, uint64_t n)
{
    stat_peak(STAT_window_dirty_max_bytes, rl_add_64(&fs->window.owed, n) + n);
    stat_peak(STAT_window_all_max_bytes, rl_add_64(&owed_by_all, n) + n);
}

static void owe_less(struct file_state *fs, uint64_t n)
{
    uint64_t owed = rl_load_64(&fs->window.owed);
    uint64_t less;

    do
        less = n < owed ? n : owed;
    while (!rl_cas_64(&fs->window.owed, &owed, owed - less));
    rl_add_64(&owed_by_all, (uint64_t)-less);
}

static void lower(uint64_t *place, uint64_t to)
{
    uint64_t seen = rl_load_64(place);

    while (to < seen && !rl_cas_64(place, &seen, to))
        ;
}

static void raise(uint64_t *place, uint64_t to)
{
    uint64_t seen = rl_load_64(place);

    while (to > seen && !rl_cas_64(place, &seen, to))
        ;
}

static void forget(struct window *w)
{
    rl_store_64(&w->bytes, 0);
    rl_store_64(&w->blind, 0);
    rl_store_64(&w->low, WINDOW_NOWHERE);
    rl_store_64(&w->high, 0);
}

void window_reset(struct file_state *fs)
{
    rl_add_64(&owed_by_all, (uint64_t)-rl_swap_64(&fs->window.owed, 0));
    fs->window = (struct window){.low = WINDOW_NOWHERE};
}

void window_forked(void)
{
    owed_by_all = 0;
    active_files = 0;
    idle_bytes = 0;
    counted_ns = 0;
}

/* again: one more has begun. */
static void count_active(uint64_t now_ns, bool again)
{
    uint64_t last_ns = rl_load_64(&counted_ns);
    uint64_t bytes = 0, all;
    uint32_t n = 0;

    if (!again && (now_ns - last_ns < COUNT_NS || !rl_cas_64(&counted_ns, &last_ns, now_ns)))
        return;
    all = rl_load_64(&owed_by_all); /* first: what comes meanwhile is nobody's idle bytes */
    for (unsigned i = 0; i < RL_INODES; i++) {
        const struct window *w = &file_state(&proc.arena->inodes.inode[i])->window;
        uint64_t wrote_ns = rl_load_64(&w->wrote_ns);

        if (wrote_ns != 0 && now_ns - wrote_ns < ACTIVE_NS) {
            n++;
            bytes += rl_load_64(&w->owed);
        }
    }
    rl_store_32(&active_files, n);
    rl_store_64(&idle_bytes, all > bytes ? all - bytes : 0);
}

static uint64_t window_now(const struct file_state *fs)
{
    /* As of this moment: at the speed of memory a budget is spent between two counts. */
    uint64_t all = rl_load_64(&owed_by_all);
    uint64_t own = rl_load_64(&fs->window.owed) + rl_load_64(&idle_bytes);

    return policy_window_bytes(&(struct window_facts){
        .window_bytes = fs->window_bytes,
        .budget_bytes = proc.settings.writeback_budget_bytes,
        .active = rl_load_32(&active_files),
        .others_bytes = all > own ? all - own : 0,
    });
}

/* --- one thread a file --- */

/* Where on its stack this thread took its turn. */
static __thread const void *turn_at;

static bool turn_take(struct window *w)
{
    uint32_t me = (uint32_t)rl_raw(SYS_gettid);
    const void *here = __builtin_frame_address(0);
    uint32_t seen = 0;

    while (!rl_cas_32(&w->turn, &seen, me)) {
        bool alive = rl_now_ns() - rl_load_64(&w->turn_ns) < WINDOW_PATIENCE_NS;

        if (seen == me && here < turn_at && alive)
            return false; /* a handler above its own thread's turn */
        if (seen == 0 || seen == me || !alive)
            continue; /* free, jumped out of, or its thread is gone: taken from whom it was seen at
                       */
        rl_futex_wait(&w->turn, seen, TURN_LOOK_NS);
        seen = 0;
    }
    turn_at = here;
    rl_store_64(&w->turn_ns, rl_now_ns());
    return true;
}

static void turn_give(struct window *w)
{
    uint32_t me = (uint32_t)rl_raw(SYS_gettid);

    if (rl_cas_32(&w->turn, &me, 0))
        rl_futex_wake(&w->turn, INT32_MAX);
}

/* --- waiting --- */

static void keep_error(struct window *w, int fd, long error, uint32_t whose)
{
    if (!policy_flush_is_about_data((int)error))
        return;
    rl_store_32(&w->error_gen, file_generation(fd));
    rl_store_32(&w->error_fd, whose);
    rl_store_32(&w->error, (uint32_t)error);
}

static uint64_t nap_ns(uint64_t pages)
{
    uint64_t ns = pages * WINDOW_PAGE_BYTES / BYTES_A_NS;

    return ns < NAP_LEAST_NS ? NAP_LEAST_NS : ns > NAP_MOST_NS ? NAP_MOST_NS : ns;
}

/* Until nothing of [start, end) is under writeback. */
static void wait_for(struct window *w, int fd, uint64_t start, uint64_t end)
{
    struct range64 range = {start, end - start};
    struct cache_counts counts;
    uint64_t began_ns = rl_now_ns();
    uint64_t now_ns = began_ns;
    bool waited = false;
    long r;

    if (start >= end)
        return;
    while (rl_load_32(&no_cachestat) == 0) {
        r = rl_raw(SYS_cachestat, fd, &range, &counts, 0);
        if (r != 0 && r != -EBADF)
            rl_store_32(&no_cachestat, 1);
        now_ns = rl_now_ns();
        if (r != 0 || counts.writeback == 0)
            break;
        if (now_ns - began_ns > WAIT_MOST_NS) {
            stat_add(STAT_window_gave_up, 1);
            break;
        }
        waited = true;
        rl_store_64(&w->turn_ns, now_ns);
        rl_futex_wait(&never, 0, nap_ns(counts.writeback));
    }
    if (rl_load_32(&no_cachestat) != 0) {
        waited = true;
        r = rl_raw(SYS_sync_file_range, fd, start, end - start, SYNC_FILE_RANGE_WAIT_BEFORE);
        now_ns = rl_now_ns();
        if (r < 0)
            keep_error(w, fd, -r, (uint32_t)fd + 1);
    }
    if (!waited)
        return;
    stat_add(STAT_window_waited, 1);
    stat_add(STAT_window_wait_ns, now_ns - began_ns);
    stat_peak(STAT_window_wait_max_ns, now_ns - began_ns);
}

/* --- acting --- */

static void start(struct window *w, int fd, const struct window_range *r, uint64_t bytes)
{
    long e = rl_raw(SYS_sync_file_range, fd, r->start, r->end - r->start, SYNC_FILE_RANGE_WRITE);

    stat_add(STAT_window_started, 1);
    stat_add(STAT_window_started_bytes, bytes);
    if (e < 0)
        keep_error(w, fd, -e, 0);
}

/* Starts r, in which `bytes` were written, and waits for what was started before. */
static void go_on(struct file_state *fs, int fd, const struct window_range *r, uint64_t bytes)
{
    struct window *w = &fs->window;
    struct window_range before = {rl_load_64(&w->before_start), rl_load_64(&w->before_end), false};
    uint64_t before_bytes = rl_load_64(&w->before_bytes);
    bool apart = before_bytes == 0 || r->start >= before.end || r->end <= before.start;

    /* Both are awaited next time by whoever finds that this thread was jumped out of below. */
    if (before_bytes != 0) {
        lower(&w->before_start, r->start);
        raise(&w->before_end, r->end);
    } else {
        rl_store_64(&w->before_start, r->start);
        rl_store_64(&w->before_end, r->end);
    }
    rl_store_64(&w->before_bytes, before_bytes + bytes);
    /* Where they meet, what is awaited would include what was just started. */
    if (apart)
        start(w, fd, r, bytes);
    if (before_bytes != 0)
        wait_for(w, fd, before.start, before.end);
    owe_less(fs, before_bytes);
    rl_store_64(&w->before_bytes, bytes);
    if (!apart)
        start(w, fd, r, bytes);
    rl_store_64(&w->before_start, r->start);
    rl_store_64(&w->before_end, r->end);
}

/* Takes what was written since the last start. False: it is not to be touched, or not this file. */
static bool look(struct rl_inode *inode, struct file_state *fs, int fd, bool blind,
                 struct window_place *p)
{
    struct window *w = &fs->window;
    struct stat st;
    int flags = (int)rl_raw(SYS_fcntl, fd, F_GETFL);

    if (flags < 0 || rl_raw(SYS_fstat, fd, &st) != 0 || st.st_dev != rl_load_64(&inode->dev) ||
        st.st_ino != rl_load_64(&inode->ino))
        return false;
    if (!policy_window_takes(&(struct window_file){
            .kind = (enum file_kind)(fs->kind - 1), .open_flags = flags, .links = st.st_nlink})) {
        owe_less(fs, rl_load_64(&w->bytes));
        forget(w);
        stat_add(STAT_window_left, 1);
        return false;
    }
    *p = (struct window_place){
        .bytes = rl_swap_64(&w->bytes, 0),
        .blind = rl_swap_64(&w->blind, 0),
        .low = rl_swap_64(&w->low, WINDOW_NOWHERE),
        .high = rl_swap_64(&w->high, 0),
        .started = rl_load_64(&w->started),
        .now = WINDOW_NOWHERE,
        .size = (uint64_t)st.st_size,
    };
    if (blind) {
        long at = (flags & O_APPEND) != 0 ? (long)st.st_size : rl_raw(SYS_lseek, fd, 0L, SEEK_CUR);

        if (at >= 0)
            p->now = (uint64_t)at;
    } else if ((flags & O_APPEND) != 0) {
        p->blind = p->bytes; /* whatever the offset says, it went to the end */
        p->now = (uint64_t)st.st_size;
    }
    return true;
}

/* A window is full, or was a moment ago. */
static void act(struct rl_inode *inode, struct file_state *fs, int fd, bool blind, size_t n)
{
    struct window *w = &fs->window;
    struct window_place p;
    struct window_range all, r;
    uint64_t window = rl_load_64(&w->window_bytes);

    if (!turn_take(w))
        return;
    if (policy_window_full(rl_load_64(&w->bytes), n, window) && look(inode, fs, fd, blind, &p)) {
        all = policy_window_range(&p);
        r = all;
        if (all.start >= all.end) /* cut off meanwhile, or all in the tail's own page */
            owe_less(fs, p.bytes);
        /* A write longer than a window was not held up in its middle, but what it left is started
         * a window at a time all the same. */
        for (uint64_t left = p.bytes; r.start < all.end; r.start = r.end) {
            uint64_t bytes = left;

            r.end = all.end;
            if (all.tail && all.end - r.start > window + window / 2) {
                r.end = r.start + window / WINDOW_PAGE_BYTES * WINDOW_PAGE_BYTES;
                bytes = left < r.end - r.start ? left : r.end - r.start;
            }
            left -= bytes;
            go_on(fs, fd, &r, bytes);
        }
        rl_store_64(&w->started, p.now != WINDOW_NOWHERE && !all.tail
                                     ? p.now / WINDOW_PAGE_BYTES * WINDOW_PAGE_BYTES
                                     : all.end);
    }
    turn_give(w);
}

void window_wrote(int fd, int64_t off, size_t n)
{
    struct rl_inode *inode = state_works() ? file_inode(fd, true) : NULL;
    struct file_state *fs;
    struct window *w;
    uint64_t now_ns, before_ns, bytes;

    if (inode == NULL)
        return;
    fs = file_state(inode);
    if (fs->window_bytes == 0 || fs->kind == FILE_KIND_TMPFS + 1 ||
        (file_flags(fd) & FILE_NAMELESS) != 0)
        return;
    w = &fs->window;
    now_ns = rl_now_ns();
    before_ns = rl_load_64(&w->wrote_ns);
    rl_store_64(&w->wrote_ns, now_ns);
    count_active(now_ns, now_ns - before_ns > ACTIVE_NS);
    rl_store_64(&w->window_bytes, window_now(fs));
    if (off < 0) {
        rl_add_64(&w->blind, n);
    } else {
        lower(&w->low, (uint64_t)off);
        raise(&w->high, (uint64_t)off + n);
    }
    owe(fs, n);
    bytes = rl_add_64(&w->bytes, n) + n;
    /* Beside a thread that waits for the window before nobody fills a third one. */
    if (policy_window_full(bytes, n, rl_load_64(&w->window_bytes)) || rl_load_32(&w->turn) != 0)
        act(inode, fs, fd, off < 0, n);
}

/* --- syncs --- */

void window_syncs(int fd, struct window_sync *s)
{
    struct rl_inode *inode = state_works() ? file_inode(fd, false) : NULL;

    s->fs = inode != NULL ? file_state(inode) : NULL;
    s->bytes = s->fs != NULL ? rl_load_64(&s->fs->window.owed) : 0;
}

/* An error that the shim was told in the program's place. */
static uint32_t take_error(struct window *w, int fd)
{
    uint32_t whose = rl_load_32(&w->error_fd);

    if (rl_load_32(&w->error) == 0)
        return 0;
    if (whose != 0 && whose != (uint32_t)fd + 1)
        return 0;
    if (whose != 0 && rl_load_32(&w->error_gen) != file_generation(fd))
        return 0;
    return rl_swap_32(&w->error, 0);
}

int window_synced(int fd, const struct window_sync *s, int r)
{
    struct window *w;
    uint32_t error;

    if (s->fs == NULL)
        return r;
    w = &s->fs->window;
    error = take_error(w, fd); /* the kernel's own word on the same is enough */
    if (r != 0)
        return r;
    /* All clean: what was written since is counted again, a little too much rather than not. */
    owe_less(s->fs, s->bytes);
    if (rl_load_64(&w->owed) == 0)
        forget(w);
    if (error == 0)
        return 0;
    stat_add(STAT_window_errors, 1);
    errno = (int)error;
    return -1;
}
