/* SPDX-License-Identifier: MIT */
/*
 * observe_impl: what observe's files share: the mapping and what is in it.
 *
 * Fields are atomic words without order between them, except where a `state` says that the rest of
 * an entry is there.
 */
#ifndef SHIM_OBSERVE_IMPL_H
#define SHIM_OBSERVE_IMPL_H

#include <limits.h>

#include "callsite.h"
#include "clock.h"
#include "fs_kind.h"
#include "timed.h"

enum {
    SHARDS_OWN = 64,    /* threads that count for themselves */
    SHARDS_SHARED = 16, /* for those that come later, by locked additions */
    FILES_MAX = 16384,  /* the first is for all that found no room */
    FILE_SLOTS = 2 * FILES_MAX,
    FD_SLOTS = 4096,
    TEXT_BYTES = 4 << 20,
    STALLS_MAX = 32768,
    SITES_MAX = 1024,
    MODULES_MAX = 256,
    SCRATCHES = 8,
};

#define FILE_OTHERS  0u
#define FILE_NOT     0xffffu /* a pipe, a socket, a terminal */
#define FILE_UNASKED 0xfffeu
#define SITE_NONE    UINT32_MAX

struct shard {
    uint64_t total_ns[ACT_COUNT];
    uint64_t hist[ACT_COUNT][HIST_BUCKETS];
};

enum { READY = 2 }; /* of state; 1: being made */

struct observed_file {
    uint64_t dev, ino;
    uint32_t state;
    uint32_t path;  /* in text; 0 not known */
    uint32_t other; /* the process that has it open, too */
    uint8_t kind;   /* enum file_kind + 1, 0 not asked */
    uint8_t nameless, received, cut_before;
    uint32_t big, drains, syncs; /* under way */
    uint64_t big_end, drain_end; /* when the last one was over, in ticks */
    uint64_t dirty_bytes;
    uint64_t worst_ns, stalled, stalled_ns;
    uint64_t by_calls[REMEDY_COUNT], by_saved_ns[REMEDY_COUNT];
    uint64_t hist[HIST_BUCKETS];
};

struct observed_stall {
    uint64_t ns; /* written last; 0: not there */
    uint64_t start_ns;
    uint32_t act, remedy, file, site, tid;
};

struct observed_cure {
    uint64_t total_ns, worst_ns, stalled, stalled_ns, saved_ns;
    uint64_t hist[HIST_BUCKETS];
    uint32_t writing; /* the next three */
    struct observed_stall worst;
    uint64_t would_ns;
};

struct observed_act {
    uint64_t worst_ns, stalled, stalled_ns;
};

struct observed_site {
    uint64_t hash; /* 0 free */
    uint32_t state, act, depth, cut;
    uint64_t calls, total_ns, worst_ns;
    struct callsite_frame frame[CALLSITE_FRAMES];
};

struct observed_module {
    uint64_t begin, end; /* addresses */
    uint32_t state, path;
    uint8_t build_id[20];
    uint8_t build_id_bytes;
};

struct observation {
    struct observed_act act[ACT_COUNT];
    struct observed_cure cure[REMEDY_COUNT];
    uint64_t creates_running, dirty_all_bytes;
    uint64_t stalls_seen, stalls_traced;
    uint64_t files_used, text_used, modules_used;
    uint64_t looks, looks_blind;
    uint64_t fds[FD_SLOTS];
    uint32_t slots[FILE_SLOTS];
    struct observed_site site[SITES_MAX];
    struct observed_module module[MODULES_MAX];
    struct observed_stall stall[STALLS_MAX];
    struct shard shard[SHARDS_OWN + SHARDS_SHARED];
    struct observed_file file[FILES_MAX];
    uint32_t scratch_taken[SCRATCHES];
    char scratch[SCRATCHES][PATH_MAX + 1];
    char text[TEXT_BYTES];
};

extern struct observation *observation __attribute__((visibility("hidden")));
extern uint64_t observe_threshold_ns __attribute__((visibility("hidden")));
extern uint64_t observe_slow_ns __attribute__((visibility("hidden"))); /* for reads and writes */

/* A call is over: into the histogram of its act. */
uint32_t observe_shard_take(void);
extern __thread uint32_t observe_own_shard; /* + 1; 0 none yet */

static inline void observe_count(enum act act, uint64_t ns, unsigned bucket)
{
    uint32_t n = observe_own_shard;
    struct shard *s;

    if (unlikely(n == 0))
        n = observe_shard_take();
    if (likely(n <= SHARDS_OWN)) { /* nobody else writes here */
        s = &observation->shard[n - 1];
        rl_store_64(&s->hist[act][bucket], s->hist[act][bucket] + 1);
        rl_store_64(&s->total_ns[act], s->total_ns[act] + ns);
        return;
    }
    s = &observation->shard[SHARDS_OWN + n % SHARDS_SHARED];
    rl_add_64(&s->hist[act][bucket], 1);
    rl_add_64(&s->total_ns[act], ns);
}

void observe_io_slow(enum act act, int fd, uint64_t start, uint64_t ns, uint32_t file,
                     unsigned bucket);

/* The rest, for every call but quick reads and writes. */
void observe_over(const struct timed *t, uint64_t ns, unsigned bucket);

/* No call of our own after a sandbox was entered. */
static inline bool observe_may_ask(void)
{
    return rl_load_32(&proc.sandboxed) == 0;
}

/* Copies n bytes into text[]; 0: no room. */
uint32_t observe_keep(const char *text, size_t n);

/* All signals wait: a handler that jumps out, or a cancellation, would leave as taken what is taken
 * in between. Not while observe_may_ask says no. */
void observe_aside_begins(uint64_t *mask);
void observe_aside_ends(const uint64_t *mask);

/* With signals aside: room for a path, which a handler's stack may not have. NULL: all are in use,
 * do without. */
char *observe_scratch(void);
void observe_scratch_back(const char *scratch);

/* --- observe_file.c --- */

/* The file of an identity; FILE_OTHERS if the table is full. */
uint32_t observe_file_at(uint64_t dev, uint64_t ino);
uint32_t observe_file_known(uint64_t dev, uint64_t ino); /* FILE_NOT: never seen */

/* The file behind fd, or FILE_NOT. *direct: it is open with O_DIRECT. */
uint32_t observe_file(int fd, bool *direct);

/* Takes the name, unless it has been. */
void observe_name_fd(uint32_t file, int fd);
void observe_name_path(uint32_t file, int dirfd, const char *path);
void observe_name_open(void); /* of all that are open */

bool observe_before(int dirfd, const char *path, bool follow, struct timed_before *b);

/* By the descriptor, or (-1) by a path that can be read (NULL: only if it is known). */
enum file_kind observe_kind(uint32_t file, int fd, int dirfd, const char *path);

/* --- observe_stall.c --- */

/* A call of `ns` is over. */
void observe_stall(const struct timed *t, uint64_t ns, enum remedy remedy, uint64_t would_ns);

/* --- observe_look.c --- */

/* Looks which other processes have our files open. */
void observe_look(void);
void observe_look_if_due(void);

#endif
