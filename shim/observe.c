/* SPDX-License-Identifier: MIT */
/* observe: see observe.h. The timing itself, and who is to be helped how. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "fs_kind.h"
#include "observe_impl.h"
#include "policy_remedy.h"

#define SLOW_NS 1000000u /* of a read or write: below it nobody asks for the reason */
#define ASK_NS  100000u  /* of an open: the same */
#define SECTOR  512u

EARLY struct observation *observation;
uint64_t observe_threshold_ns, observe_slow_ns;

static uint32_t threads; /* that have a shard */
__thread uint32_t observe_own_shard;

static const struct {
    char name[16], text[24];
} acts[] = {
#define ACT(name, text) {#name, text},
#include "observe.def"
#undef ACT
};

static const char remedies[][16] = {
#define REMEDY(name, setting, value, others, cure) #name,
#include "observe.def"
#undef REMEDY
};

const char *act_name(enum act act)
{
    return acts[act].name;
}

const char *act_text(enum act act)
{
    return acts[act].text;
}

const char *remedy_name(enum remedy remedy)
{
    return remedy < REMEDY_COUNT ? remedies[remedy] : "";
}

bool observe_start(const struct settings *s)
{
    long p = rl_raw(SYS_mmap, NULL, sizeof *observation, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);

    if ((unsigned long)p > -4096UL)
        return false;
    observation = (struct observation *)p;
    observation->text_used = 1;  /* 0 means none */
    observation->files_used = 1; /* FILE_OTHERS */
    observe_threshold_ns = s->stall_threshold_ns;
    observe_slow_ns = observe_threshold_ns < SLOW_NS ? observe_threshold_ns : SLOW_NS;
    clock_start();
    observe_reports();
    return true;
}

void observe_start_late(void)
{
    if (observation != NULL)
        callsite_start();
}

void observe_forked(void)
{
    if (observation == NULL)
        return;
    rl_raw(SYS_madvise, observation, sizeof *observation, MADV_DONTNEED);
    observation->text_used = 1;
    observation->files_used = 1;
    callsite_forked();
}

uint32_t observe_keep(const char *text, size_t n)
{
    uint64_t at = rl_add_64(&observation->text_used, n + 1);

    if (at + n + 1 > TEXT_BYTES) {
        rl_add_64(&observation->text_used, (uint64_t)0 - (n + 1));
        return 0;
    }
    memcpy(observation->text + at, text, n);
    observation->text[at + n] = '\0';
    return (uint32_t)at;
}

char *observe_scratch(void)
{
    for (int i = 0; i < SCRATCHES; i++) {
        uint32_t none = 0;

        if (rl_cas_32(&observation->scratch_taken[i], &none, 1))
            return observation->scratch[i];
    }
    return NULL;
}

void observe_scratch_back(const char *scratch)
{
    if (scratch != NULL)
        __atomic_store_n(&observation->scratch_taken[(size_t)(scratch - observation->scratch[0]) /
                                                     sizeof observation->scratch[0]],
                         0, __ATOMIC_RELEASE);
}

void observe_aside_begins(uint64_t *mask)
{
    uint64_t all = ~(uint64_t)0;

    rl_raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, mask, sizeof all);
}

void observe_aside_ends(const uint64_t *mask)
{
    rl_raw(SYS_rt_sigprocmask, SIG_SETMASK, mask, NULL, sizeof *mask);
}

/* --- counting --- */

uint32_t observe_shard_take(void)
{
    observe_own_shard = rl_add_32(&threads, 1) + 1;
    return observe_own_shard;
}

static void peak(uint64_t *place, uint64_t ns)
{
    uint64_t seen = rl_load_64(place);

    while (ns > seen && !rl_cas_64(place, &seen, ns))
        ;
}

static void count_stalled(uint64_t *worst, uint64_t *stalled, uint64_t *stalled_ns, uint64_t ns)
{
    peak(worst, ns);
    if (ns < observe_threshold_ns)
        return;
    rl_add_64(stalled, 1);
    rl_add_64(stalled_ns, ns);
}

/* --- what was under way at the same time --- */

static struct observed_file *file_of(const struct timed *t)
{
    return t->file < FILES_MAX ? &observation->file[t->file] : NULL;
}

static uint32_t *running(const struct timed *t, struct observed_file *f)
{
    switch (t->act) {
    case ACT_write_big:
        return &f->big;
    case ACT_punch:
    case ACT_fallocate:
    case ACT_truncate:
    case ACT_open_cut:
        return &f->drains;
    case ACT_fsync:
    case ACT_fdatasync:
        return &f->syncs;
    default:
        return NULL;
    }
}

static void run_begins(struct timed *t)
{
    struct observed_file *f = file_of(t);
    uint32_t *n = f != NULL && t->file != FILE_OTHERS ? running(t, f) : NULL;

    if (t->act == ACT_open_create)
        t->beside = (uint32_t)rl_add_64(&observation->creates_running, 1) + 1;
    else if (n != NULL)
        t->beside = rl_add_32(n, 1) + 1;
    t->counted_in = t->act == ACT_open_create || n != NULL;
}

static void run_ends(const struct timed *t, uint64_t now)
{
    struct observed_file *f = file_of(t);
    uint32_t *n;

    if (!t->counted_in)
        return;
    if (t->act == ACT_open_create) {
        rl_add_64(&observation->creates_running, (uint64_t)-1);
        return;
    }
    n = running(t, f);
    if (n == &f->big)
        rl_store_64(&f->big_end, now);
    else if (n == &f->drains)
        rl_store_64(&f->drain_end, now);
    rl_add_32(n, (uint32_t)-1);
}

static bool was_beside(const uint32_t *n, const uint64_t *end, uint64_t start)
{
    return rl_load_32(n) != 0 || rl_load_64(end) > start;
}

/* --- slow calls --- */

static uint64_t frees(const struct timed *t)
{
    const struct timed_before *b = &t->before;

    if (!b->known)
        return 0;
    if (t->act == ACT_unlink || t->act == ACT_rename)
        return b->links == 1 ? b->blocks_bytes : 0;
    if (t->act == ACT_close)
        return b->links == 0 ? b->blocks_bytes : 0;
    if (t->act == ACT_open_cut || t->act == ACT_truncate)
        return b->bytes > t->amount && b->blocks_bytes > t->amount ? b->blocks_bytes - t->amount
                                                                   : 0;
    return 0;
}

/* Was the file made by the call that began ns ago? Where that is not told it counts as found: most
 * opens with O_CREAT are. */
static bool existed(int fd, uint64_t ns)
{
    struct timespec now;
    struct statx stx;
    uint64_t born;

    if (fd < 0 || rl_raw(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BTIME, &stx) != 0)
        return false;
    if ((stx.stx_mask & STATX_BTIME) == 0)
        return true;
    rl_raw(SYS_clock_gettime, CLOCK_REALTIME_COARSE, &now);
    born = (uint64_t)stx.stx_btime.tv_sec * 1000000000u + stx.stx_btime.tv_nsec;
    return born + ns + 10000000u < (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct remedy_guess judge(const struct timed *t, uint64_t ns, uint64_t dirty,
                                 uint64_t dirty_all)
{
    struct observed_file *f = file_of(t);
    struct remedy_facts facts = {
        .act = t->act,
        .took_ns = ns,
        .syncs = t->beside,
        .creates = t->beside,
        .frees_bytes = frees(t),
        .dirty_bytes = dirty,
        .dirty_all_bytes = dirty_all,
        .cut_nothing = (t->act == ACT_open_cut || t->act == ACT_truncate) && t->before.known &&
                       t->before.bytes == t->amount && t->before.blocks_bytes <= t->amount + 4096,
        .hold_ns = proc.settings.hold_target_ns,
        .evict_min_bytes = proc.settings.evict_min_bytes,
    };
    enum file_kind kind = FILE_KIND_NONE;

    if (f == NULL || t->file == FILE_OTHERS)
        return policy_remedy(&facts);
    if (facts.frees_bytes != 0 || facts.cut_nothing || t->act == ACT_open_create)
        kind = observe_kind(t->file, t->act == ACT_close ? -1 : t->fd, t->dirfd,
                            t->before.known ? t->path : NULL);
    facts.known_fs = kind != FILE_KIND_NONE && kind != FILE_KIND_TMPFS;
    facts.beside_big = was_beside(&f->big, &f->big_end, t->start);
    facts.beside_drain = was_beside(&f->drains, &f->drain_end, t->start);
    facts.cut_before = f->cut_before;
    if (t->act == ACT_open_create && ns >= ASK_NS && observe_may_ask()) {
        facts.lookup_pays = kind == FILE_KIND_NONE;
        facts.existed =
            facts.lookup_pays && t->beside > 1 && t->amount != TIMED_OPEN_NEW && existed(t->fd, ns);
    }
    if (facts.cut_nothing && kind == FILE_KIND_EXT4 && t->amount == 0)
        f->cut_before = 1;
    return policy_remedy(&facts);
}

static void note_cure(const struct timed *t, uint64_t ns, unsigned bucket,
                      const struct remedy_guess *g)
{
    struct observed_cure *c = &observation->cure[g->remedy];
    struct observed_file *f = file_of(t);

    rl_add_64(&c->hist[bucket], 1);
    rl_add_64(&c->total_ns, ns);
    rl_add_64(&c->saved_ns, ns - g->would_ns);
    count_stalled(&c->worst_ns, &c->stalled, &c->stalled_ns, ns);
    if (f != NULL) {
        rl_add_64(&f->by_calls[g->remedy], 1);
        rl_add_64(&f->by_saved_ns[g->remedy], ns - g->would_ns);
    }
}

void observe_over(const struct timed *t, uint64_t ns, unsigned bucket)
{
    struct observed_file *f = file_of(t);
    uint64_t dirty = 0, dirty_all = rl_load_64(&observation->dirty_all_bytes);
    struct remedy_guess g;

    if (f != NULL && (t->act == ACT_fsync || t->act == ACT_fdatasync)) {
        dirty = rl_swap_64(&f->dirty_bytes, 0);
        rl_add_64(&observation->dirty_all_bytes, (uint64_t)0 - dirty);
    }
    if (t->act == ACT_sync_all)
        rl_store_64(&observation->dirty_all_bytes, 0);
    g = judge(t, ns, dirty, dirty_all);
    if (g.remedy != REMEDY_NONE)
        note_cure(t, ns, bucket, &g);
    if (f != NULL && (t->act == ACT_unlink || t->act == ACT_rename) && t->before.links == 1)
        f->cut_before = 0; /* the number may be another file's from now on */
    count_stalled(&observation->act[t->act].worst_ns, &observation->act[t->act].stalled,
                  &observation->act[t->act].stalled_ns, ns);
    if (f != NULL)
        count_stalled(&f->worst_ns, &f->stalled, &f->stalled_ns, ns);
    if (ns >= observe_threshold_ns)
        observe_stall(t, ns, g.remedy, g.would_ns);
}

/* --- calls --- */

static bool by_removal(enum act act)
{
    return act == ACT_unlink || act == ACT_rename;
}

/* Which file is it about? Asked before the call where the answer is gone afterwards. */
static void find_before(struct timed *t)
{
    bool direct;

    if (t->path != NULL &&
        (by_removal(t->act) || t->act == ACT_open_cut || t->act == ACT_truncate)) {
        if (observe_before(t->dirfd, t->path, !by_removal(t->act), &t->before))
            t->file = observe_file_at(t->before.dev, t->before.ino);
        return;
    }
    if (t->fd < 0)
        return;
    t->file = observe_file(t->fd, &direct);
    if (t->file == FILE_NOT || (t->act != ACT_close && t->act != ACT_truncate))
        return;
    if (!observe_before(t->fd, NULL, true, &t->before) || t->act != ACT_close)
        return;
    observe_name_fd(t->file, t->fd);
    if (t->before.links == 0 && t->file != FILE_OTHERS)
        observe_kind(t->file, t->fd, AT_FDCWD, NULL);
}

void timed_begin(struct timed *t, enum act act, int fd, int dirfd, const char *path,
                 uint64_t amount)
{
    int saved = errno;

    t->act = act;
    t->fd = fd;
    t->dirfd = dirfd;
    t->path = path;
    t->amount = amount;
    t->beside = 0;
    t->file = FILE_UNASKED;
    t->before.known = false;
    t->before.links = 0;
    find_before(t);
    if (t->file != FILE_NOT) { /* pipes wait for people, not for disks */
        run_begins(t);
        t->start = clock_ticks();
    }
    errno = saved;
}

void timed_end(struct timed *t)
{
    uint64_t now = clock_ticks();
    uint64_t ns = clock_ns(t->start, now);
    unsigned bucket = hist_bucket(ns);
    int saved = errno;
    bool direct;

    run_ends(t, now);
    observe_count(t->act, ns, bucket);
    if (t->file == FILE_UNASKED && t->fd >= 0 && ns >= ASK_NS)
        t->file = observe_file(t->fd, &direct);
    if (t->file < FILES_MAX)
        rl_add_64(&observation->file[t->file].hist[bucket], 1);
    observe_over(t, ns, bucket);
    errno = saved;
}

void observe_io_slow(enum act act, int fd, uint64_t start, uint64_t ns, uint32_t file,
                     unsigned bucket)
{
    struct timed t = {.start = start, .act = act, .fd = fd, .dirfd = AT_FDCWD, .file = file};
    int saved = errno;

    observe_over(&t, ns, bucket);
    errno = saved;
}
