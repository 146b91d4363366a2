/* SPDX-License-Identifier: MIT */
/* evict: see evict.h. What the program's threads do. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "call.h"
#include "evict_impl.h"
#include "execute_impl.h"
#include "policy_evict.h"

#define LOOK_MASK (STATX_TYPE | STATX_NLINK | STATX_INO | STATX_SIZE | STATX_BLOCKS)
#define SECTOR    512u
#define PATIENCE_NS                                                                                \
    50000000u               /* for an answer: many times what it takes, little beside the freeing */
#define DRAIN_NS 100000000u /* then look again */
#define STUCK_NS UINT64_C(30000000000)

/* A look costs a system call, so they are rationed: one per so many ns, and some saved up. A storm
 * of thousands of unlinks is one of small files; a big one among them that was not looked at takes
 * so long that the next ones are again. */
struct ration {
    uint32_t each_ns, burst;
    uint64_t next_ns; /* when the next one is due. Racing callers may get one too many */
};
static struct ration names = {60000, 1024, 0};
static struct ration closes = {60000, 64, 0};

struct evict evict;

/* --- what is held --- */

static void flag_held(bool on)
{
    uint64_t word = state_word();

    while (
        !rl_cas_64(&state_word_value, &word, on ? word | WORD_HELD : word & ~(uint64_t)WORD_HELD))
        ;
}

/* Threads may pass each other here: the next one puts it right, and the last is alone. */
static void show_held(void)
{
    stat_gauge(GAUGE_held_files, rl_load_32(&evict.files));
    stat_gauge(GAUGE_held_bytes, rl_load_64(&evict.bytes));
}

void evict_count(uint64_t bytes)
{
    rl_add_64(&evict.bytes, bytes);
    if (rl_add_32(&evict.files, 1) == 0)
        stat_gauge(GAUGE_held_since_ns, rl_now_ns());
    show_held();
    flag_held(true);
}

void evict_uncount(uint64_t bytes)
{
    bool last;

    rl_add_64(&evict.bytes, (uint64_t)0 - bytes);
    last = rl_add_32(&evict.files, (uint32_t)-1) == 1;
    show_held();
    if (!last)
        return;
    stat_gauge(GAUGE_held_since_ns, 0);
    flag_held(false);
    if (rl_load_32(&evict.files) != 0) /* counted between the two */
        flag_held(true);
}

/* --- what freeing costs: a word a device, number 32-63, ns for a MiB 0-31 --- */

#define COSTS 16u

static uint64_t costs[COSTS];

static uint64_t *cost_of(uint32_t major, uint32_t minor, uint32_t *dev)
{
    *dev = major << 20 | (minor & 0xfffff);
    return &costs[(*dev ^ *dev >> 20) % COSTS];
}

uint64_t evict_cost(uint32_t major, uint32_t minor)
{
    uint32_t dev;
    uint64_t word = rl_load_64(cost_of(major, minor, &dev));

    return word != 0 && word >> 32 == dev ? (uint32_t)word : EVICT_COST_UNKNOWN;
}

void evict_cost_seen(uint32_t major, uint32_t minor, uint64_t bytes, uint64_t took_ns)
{
    uint64_t ns = policy_evict_learn(evict_cost(major, minor), bytes, took_ns);
    uint32_t dev;
    uint64_t *place = cost_of(major, minor, &dev);

    rl_store_64(place, (uint64_t)dev << 32 | (ns < UINT32_MAX ? ns : UINT32_MAX));
}

/* --- the queue --- */

/* The reference is the closer's from now on. */
static void queue(int fd, uint64_t dev, uint64_t bytes, bool gone)
{
    for (unsigned i = 0;; i = (i + 1) % EVICT_HELD) {
        struct evict_held *h = &evict.held[i];
        uint32_t none = HELD_FREE;

        if (rl_load_32(&h->state) != HELD_FREE || !rl_cas_32(&h->state, &none, HELD_FILLING))
            continue; /* there is one: as many as there can be files */
        h->fd = fd;
        h->dev = dev;
        h->bytes = bytes;
        h->gone = gone;
        h->since_ns = rl_now_ns();
        h->number = rl_add_32(&evict.queued, 1);
        rl_store_32(&h->state, HELD_READY);
        rl_add_32(&evict.posted, 1);
        rl_futex_wake(&evict.posted, 1);
        return;
    }
}

/* --- asking --- */

static void wake_opener(void)
{
    rl_add_32(&evict.asked, 1);
    rl_futex_wake(&evict.asked, 1);
}

static bool have_progress(void)
{
    struct evict_progress *none = NULL;
    struct evict_progress *made;
    long p;

    if (__atomic_load_n(&evict.progress, __ATOMIC_ACQUIRE) != NULL)
        return true;
    p = rl_raw(SYS_mmap, 0, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
               0L);
    made = p < 0 && p > -4096 ? NULL : (struct evict_progress *)p;
    if (made == NULL)
        return false;
    made->pid = proc.pid;
    if (!__atomic_compare_exchange_n(&evict.progress, &none, made, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        rl_raw(SYS_munmap, p, sizeof *made);
    return true;
}

static bool running(void)
{
    uint32_t seen = EVICT_NONE;
    int saved = errno;
    bool ok;

    if (rl_load_32(&evict.leave) != 0 || rl_load_32(&proc.forking) != 0 ||
        (proc.quiet_ns != 0 && rl_now_ns() < rl_load_64(&proc.quiet_ns)) || !have_progress())
        return false;
    if (!rl_cas_32(&evict.runs, &seen, EVICT_RUNS)) {
        if (seen == EVICT_RUNS)
            return true;
        /* The last one is on its way out: only when it is gone is its stack free. */
        if (rl_load_32(&evict.opener.tid) != 0 || !rl_cas_32(&evict.runs, &seen, EVICT_RUNS))
            return false;
    }
    ok = raw_thread_start(&evict.opener, evict_open_loop);
    if (!ok)
        rl_store_32(&evict.runs, EVICT_NONE);
    errno = saved;
    return ok;
}

static struct evict_ask *take_slot(void)
{
    for (int i = 0; i < EVICT_ASKS; i++) {
        uint32_t none = ASK_FREE;

        if (rl_cas_32(&evict.ask[i].state, &none, ASK_FILLING))
            return &evict.ask[i];
    }
    return NULL;
}

/* Asks for a reference and waits for it. */
static void ask(const struct statx *stx, int dirfd, const char *path, bool follow,
                uint64_t hold_max_ns, struct evict_hold *hold)
{
    size_t len = strlen(path);
    struct evict_ask *a;
    uint64_t began_ns;
    uint32_t state;

    /* A child of vfork runs in its parent's memory: the thread it started would die with it. */
    if (len >= PATH_MAX || (uint32_t)rl_raw(SYS_getpid) != proc.pid || !running() ||
        (a = take_slot()) == NULL)
        return;
    /* A copy: the caller's may go before we have looked, if a handler jumps out of the wait. */
    memcpy(a->path, path, len + 1);
    a->dirfd = path[0] == '/' ? AT_FDCWD : dirfd;
    a->follow = follow;
    a->dev = (uint64_t)stx->stx_dev_major << 32 | stx->stx_dev_minor;
    a->ino = stx->stx_ino;
    a->bytes = stx->stx_blocks * SECTOR;
    a->hold_max_ns = hold_max_ns;
    a->turn++;
    rl_store_32(&a->state, ASK_ASKED);
    wake_opener();
    rl_fence(); /* pairs with the one in the opener: it sees the question, or we see it leave */
    began_ns = rl_now_ns();
    while ((state = rl_load_32(&a->state)) == ASK_ASKED || state == ASK_OPENING) {
        if (state == ASK_ASKED &&
            (rl_load_32(&evict.runs) != EVICT_RUNS || rl_now_ns() - began_ns > PATIENCE_NS)) {
            if (rl_cas_32(&a->state, &state, ASK_FREE)) {
                stat_add(STAT_evict_no_reference, 1);
                return;
            }
            continue;
        }
        rl_futex_wait(&a->state, state, PATIENCE_NS);
    }
    if (state == ASK_READY) {
        hold->turn = a->turn;
        hold->slot = (int)(a - evict.ask);
    } else {
        rl_store_32(&a->state, ASK_FREE);
    }
}

static bool may_hold(void)
{
    return state_works() && rl_load_32(&proc.ending) == 0;
}

static bool pays(const struct statx *stx, uint32_t links, const struct file_rules *s)
{
    return policy_evict_pays(&(struct evict_facts){
        .works = true,
        .defers = s->evict == CFG_EVICT_DEFER,
        .regular = S_ISREG(stx->stx_mode),
        .last_name = stx->stx_nlink == links,
        .kind = fs_kind_known(stx->stx_dev_major, stx->stx_dev_minor),
        .bytes = stx->stx_blocks * SECTOR,
        .min_bytes = s->evict_min_bytes,
        .ns_per_mib = evict_cost(stx->stx_dev_major, stx->stx_dev_minor),
    });
}

/* Not held: if it is not small, how long it takes is worth knowing. */
static void watch(const struct statx *stx, const struct file_rules *s, struct evict_hold *hold)
{
    if (stx->stx_blocks * SECTOR < s->evict_min_bytes || s->evict != CFG_EVICT_DEFER ||
        hold->slot != EVICT_NOTHING)
        return;
    hold->slot = EVICT_WATCH;
    hold->major = stx->stx_dev_major;
    hold->minor = stx->stx_dev_minor;
    hold->bytes = stx->stx_blocks * SECTOR;
    hold->began_ns = rl_now_ns();
}

static void consider(int dirfd, const char *path, const struct statx *stx, struct evict_hold *hold)
{
    struct file_rules rules;

    if (!file_rules_at(dirfd, path, &rules))
        return;
    if (pays(stx, 1, &rules))
        ask(stx, dirfd, path, false, rules.evict_hold_max_ns, hold);
    watch(stx, &rules, hold);
}

static bool look(int dirfd, const char *path, struct statx *stx)
{
    return rl_raw(SYS_statx, dirfd, path, AT_SYMLINK_NOFOLLOW, LOOK_MASK, stx) == 0 &&
           S_ISREG(stx->stx_mode);
}

static bool worth_a_look(struct ration *r)
{
    uint64_t saved_ns = (uint64_t)r->each_ns * r->burst;
    uint64_t now_ns = rl_now_ns();
    uint64_t next = rl_load_64(&r->next_ns);

    if (next > now_ns)
        return false;
    if (now_ns - next > saved_ns)
        next = now_ns - saved_ns;
    rl_store_64(&r->next_ns, next + r->each_ns);
    return true;
}

/* Is this the file, and big enough to be considered? Then it is in stx. */
static bool is_big(int dirfd, const char *path, struct statx *stx)
{
    const struct config *config = state_config();

    if (!may_hold() || !worth_a_look(&names) || !look(dirfd, path, stx))
        return false;
    evict_nameless();
    return stx->stx_nlink == 1 && stx->stx_blocks != 0 &&
           (stx->stx_blocks * SECTOR >= proc.settings.evict_min_bytes ||
            (config != NULL && cfg_has_paths(config)));
}

void evict_begin(int dirfd, const char *path, struct evict_hold *hold)
{
    struct statx stx;

    hold->slot = EVICT_NOTHING;
    if (is_big(dirfd, path, &stx))
        consider(dirfd, path, &stx, hold);
}

void evict_begin_rename(int fromfd, const char *from, int tofd, const char *to,
                        struct evict_hold *hold)
{
    struct statx stx, other;

    hold->slot = EVICT_NOTHING;
    if (!is_big(tofd, to, &stx))
        return;
    /* Two ways to write one name: nothing goes. */
    if (look(fromfd, from, &other) && other.stx_ino == stx.stx_ino &&
        other.stx_dev_major == stx.stx_dev_major && other.stx_dev_minor == stx.stx_dev_minor)
        return;
    consider(tofd, to, &stx, hold);
}

static void consider_close(int fd, const struct statx *stx, struct evict_hold *hold)
{
    char path[32] = "/proc/self/fd/";
    struct file_rules rules;
    size_t len = strlen(path);
    char digits[12];
    int n = 0;

    for (int left = fd; n == 0 || left != 0; left /= 10)
        digits[n++] = (char)('0' + left % 10);
    while (n > 0)
        path[len++] = digits[--n];
    path[len] = '\0';
    file_rules_of(fd, &rules);
    if (pays(stx, 0, &rules))
        ask(stx, AT_FDCWD, path, true, rules.evict_hold_max_ns, hold);
    watch(stx, &rules, hold);
}

void evict_begin_close(int fd, struct evict_hold *hold)
{
    struct statx stx;

    hold->slot = EVICT_NOTHING;
    if (fd >= 0 && rl_load_32(&proc.nameless) != 0 && may_hold() && worth_a_look(&closes) &&
        rl_raw(SYS_statx, fd, "", AT_EMPTY_PATH, LOOK_MASK, &stx) == 0 && S_ISREG(stx.stx_mode) &&
        stx.stx_nlink == 0 && stx.stx_blocks != 0)
        consider_close(fd, &stx, hold);
}

/* With signals blocked. */
static void hand_over(struct evict_ask *a, uint32_t turn, bool gone)
{
    uint32_t ready = ASK_READY;
    uint64_t dev, bytes;
    int fd;

    if (!rl_cas_32(&a->state, &ready, ASK_FILLING))
        return;            /* taken back, since it took so long */
    if (a->turn != turn) { /* and given to another */
        rl_store_32(&a->state, ASK_READY);
        return;
    }
    bytes = a->bytes;
    dev = a->dev;
    fd = a->fd;
    if (gone) {
        stat_add(STAT_evict_files, 1);
        stat_add(STAT_evict_bytes, bytes);
    }
    queue(fd, dev, bytes, gone);
    rl_store_32(&a->state, ASK_FREE);
}

void evict_end(struct evict_hold *hold, bool gone)
{
    int slot = hold->slot;

    hold->slot = EVICT_NOTHING;
    if (slot >= 0) {
        SIGNALS(signals);

        signals_block(&signals);
        hand_over(&evict.ask[slot], hold->turn, gone);
    } else if (slot == EVICT_WATCH && gone) {
        evict_cost_seen(hold->major, hold->minor, hold->bytes, rl_now_ns() - hold->began_ns);
    }
}

void evict_let_go(struct evict_hold *hold)
{
    if (unlikely(hold->slot >= 0))
        evict_end(hold, false);
}

/* --- waiting --- */

/* `freed` has not come to target yet, and *seen is what it was. */
static bool is_behind(const struct evict_progress *p, uint32_t target, uint32_t *seen)
{
    *seen = rl_load_32(&p->freed);
    return (int32_t)(*seen - target) < 0;
}

/* On a file system that somebody has frozen nothing is freed before the thaw, and whoever asks for
 * its space is not to hang until then. */
static bool is_stuck(void)
{
    uint64_t since_ns = rl_load_64(&evict.closing_ns);

    return since_ns != 0 && rl_now_ns() - since_ns > STUCK_NS;
}

void evict_drain(enum why why)
{
    uint32_t target = rl_load_32(&evict.queued);
    struct evict_progress *p = evict.progress;
    uint64_t began_ns;
    uint32_t freed;

    if (!evict_held() || p == NULL || !is_behind(p, target, &freed) || is_stuck())
        return;
    began_ns = rl_now_ns();
    rl_add_32(&evict.hurry, 1);
    while (is_behind(p, target, &freed) && rl_load_32(&evict.opener.tid) != 0 && !is_stuck())
        evict_freed_wait(p, freed, DRAIN_NS);
    rl_add_32(&evict.hurry, (uint32_t)-1);
    stat_add(STAT_evict_drains, 1);
    stat_peak(STAT_evict_drain_max_ns, rl_now_ns() - began_ns);
    rl_add_64(&stats->settled[why], 1);
}

void evict_stop(void)
{
    if (rl_load_32(&evict.opener.tid) == 0)
        return;
    rl_add_32(&evict.leave, 1);
    rl_add_32(&evict.hurry, 1);
    raw_thread_gone(&evict.opener, wake_opener);
    rl_add_32(&evict.hurry, (uint32_t)-1);
    rl_add_32(&evict.leave, (uint32_t)-1);
}

/* What this process, a forked child, got from its parent: how far that has to come. */
static struct {
    struct evict_progress *progress; /* NULL: nothing was held. Never unmapped, others may look */
    uint32_t target;
} parents;

void evict_forked(void)
{
    struct evict_progress *p = evict.progress;
    char *opener = evict.opener.stack;
    char *closer = evict.closer.stack;
    uint32_t freed;

    if (opener == NULL)
        return;
    if (p != NULL && is_behind(p, evict.queued, &freed)) {
        parents.progress = p;
        parents.target = evict.queued;
    }
    memset(&evict, 0, sizeof evict);
    evict.opener.stack = opener;
    evict.closer.stack = closer;
}

void evict_before_exec(void)
{
    struct evict_progress *p = parents.progress;
    uint64_t began_ns, now_ns;
    uint32_t freed;

    if (evict_held() && (uint32_t)rl_raw(SYS_getpid) != proc.pid)
        evict_drain(WHY_exec);
    if (likely(p == NULL))
        return;
    began_ns = now_ns = rl_now_ns();
    while (is_behind(p, parents.target, &freed) && now_ns - began_ns < STUCK_NS &&
           !family_is_dead(p->pid, now_ns - began_ns)) {
        rl_store_64(&p->hurry_ns, now_ns + 2 * (uint64_t)DRAIN_NS);
        evict_freed_wait(p, freed, DRAIN_NS);
        now_ns = rl_now_ns();
    }
    parents.progress = NULL;
}
