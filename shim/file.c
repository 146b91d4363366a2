/* SPDX-License-Identifier: MIT */
/*
 * file: see file.h. A descriptor's word:
 *   bits  0-9   0 not known; 1..512 inode entry + 1; ABSENT, OTHER
 *   bits 10-39  generation of the inode entry, or for ABSENT the epoch (state.h) in which it had
 * none bits 40-51  generation of the descriptor: moves whenever it is forgotten, so that an
 * identity taken from a file that is being closed cannot stick to its successor bits 52-63  flags
 * (file.h)
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>

#include "file.h"
#include "inflight.h"
#include "window.h"

#define REFUSE_NS    100000000u
#define REFUSE_STEPS 5
#define LEAF_BITS    10
#define LEAF_SIZE    (1u << LEAF_BITS)
#define ROOT_SIZE    1024u /* descriptors above a million never defer, but see what others do */
#define AT_MASK      0x3ffu
#define AT_ABSENT    1000u
#define AT_OTHER     1001u
#define GEN_SHIFT    10
#define GEN_MASK     ((uint64_t)0x3fffffff)
#define DGEN_SHIFT   40
#define DGEN_MASK    ((uint64_t)0xfff)
#define FLAG_SHIFT   52

struct entry {
    uint64_t word;
    uint64_t mover; /* the only thread that moved the position so far, 0 none */
    uint64_t forks; /* state_forks when it was opened: afterwards a child shares the position */
};

#define FIRST_FEW 48u /* descriptors whose entries stand with what every call looks at anyway */

EARLY static struct entry few[FIRST_FEW];
static struct entry *root[ROOT_SIZE]; /* of a thousand each; those of the first few are not used */
static struct file_state states[RL_INODES];
static __thread char thread_mark; /* its address is this thread's identity */
static __thread bool vforked;     /* since then, nobody has looked who is running */

static __attribute__((noinline)) struct entry *leaf_make(struct entry **place)
{
    size_t bytes = LEAF_SIZE * sizeof(struct entry);
    struct entry *none = NULL;
    long p =
        rl_raw(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);

    if (p < 0 && p > -4096)
        return NULL;
    if (__atomic_compare_exchange_n(place, &none, (struct entry *)p, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return (struct entry *)p;
    rl_raw(SYS_munmap, p, bytes);
    return none;
}

static inline struct entry *entry_of(int fd, bool make)
{
    unsigned n = (unsigned)fd;
    struct entry *leaf;

    if (likely(n < FIRST_FEW))
        return &few[n];
    if (unlikely(n >= ROOT_SIZE * LEAF_SIZE))
        return NULL;
    leaf = __atomic_load_n(&root[n >> LEAF_BITS], __ATOMIC_ACQUIRE);
    if (unlikely(leaf == NULL) && make)
        leaf = leaf_make(&root[n >> LEAF_BITS]);
    return leaf != NULL ? &leaf[n & (LEAF_SIZE - 1)] : NULL;
}

static uint64_t word_make(uint64_t old, unsigned at, uint64_t gen)
{
    return (old & ~(GEN_MASK << GEN_SHIFT | AT_MASK)) | (gen & GEN_MASK) << GEN_SHIFT | at;
}

void file_vfork(void)
{
    vforked = true;
}

/* A child of vfork has its parent's memory, and numbers that mean other files. What it does to them
 * must not be taken for the parent's: a stream's number would pass for one that was opened here. */
static __attribute__((noinline)) bool in_vfork_child(void)
{
    if ((uint32_t)rl_raw(SYS_getpid) != proc.pid)
        return true;
    vforked = false;
    return false;
}

static inline void reset(int fd, uint32_t flags, bool make)
{
    struct entry *e = entry_of(fd, make);
    uint64_t old, dgen;

    if (e == NULL || (unlikely(vforked) && in_vfork_child()))
        return;
    old = rl_load_64(&e->word);
    dgen = ((old >> DGEN_SHIFT) + 1) & DGEN_MASK;
    /* A plain store: whoever loses a race with it took an identity from a dying descriptor. */
    rl_store_64(&e->word, dgen << DGEN_SHIFT | (uint64_t)flags << FLAG_SHIFT);
    rl_store_64(&e->mover, 0);
    rl_store_64(&e->forks, state_forks);
}

FREQUENT void file_opened(int fd)
{
    reset(fd, FILE_OPENED, true);
}

FREQUENT void file_forget(int fd)
{
    reset(fd, 0, false);
}

void file_forget_range(unsigned first, unsigned last)
{
    for (unsigned fd = first; fd < FIRST_FEW && fd <= last; fd++)
        file_forget((int)fd);
    for (unsigned r = first >> LEAF_BITS; r < ROOT_SIZE && r <= last >> LEAF_BITS; r++) {
        unsigned begin = r << LEAF_BITS > first ? r << LEAF_BITS : first;
        unsigned end = ((r + 1) << LEAF_BITS) - 1 < last ? ((r + 1) << LEAF_BITS) - 1 : last;

        if (__atomic_load_n(&root[r], __ATOMIC_ACQUIRE) == NULL)
            continue;
        for (unsigned fd = begin; fd <= end; fd++)
            file_forget((int)fd);
    }
}

int file_next(unsigned first, unsigned last)
{
    for (unsigned fd = first; fd <= last && fd < ROOT_SIZE * LEAF_SIZE; fd++) {
        if (fd >= FIRST_FEW && __atomic_load_n(&root[fd >> LEAF_BITS], __ATOMIC_ACQUIRE) == NULL)
            fd |= LEAF_SIZE - 1;
        else if ((file_flags((int)fd) & FILE_OPENED) != 0)
            return (int)fd;
    }
    return -1;
}

uint32_t file_flags(int fd)
{
    struct entry *e = entry_of(fd, false);

    return e != NULL ? (uint32_t)(rl_load_64(&e->word) >> FLAG_SHIFT) : 0;
}

uint32_t file_generation(int fd)
{
    struct entry *e = entry_of(fd, false);

    return e != NULL ? (uint32_t)(rl_load_64(&e->word) >> DGEN_SHIFT & DGEN_MASK) : 0;
}

void file_mark(int fd, uint32_t flags)
{
    struct entry *e = entry_of(fd, true);
    uint64_t old;

    if (e == NULL || (unlikely(vforked) && in_vfork_child()))
        return;
    old = rl_load_64(&e->word);
    while (!rl_cas_64(&e->word, &old, old | (uint64_t)flags << FLAG_SHIFT))
        ;
}

void file_duplicated(int from, int to)
{
    uint32_t flags = file_flags(from) & (FILE_OPENED | FILE_STREAM | FILE_PASSED | FILE_NAMELESS);
    struct entry *source = entry_of(from, false);
    struct entry *copy;

    file_mark(from, FILE_SHARED);
    reset(to, flags | FILE_SHARED, true);
    copy = entry_of(to, false);
    if (source != NULL && copy != NULL && !vforked)
        rl_store_64(&copy->forks, rl_load_64(&source->forks));
}

bool file_claim_position(int fd, bool all_ask)
{
    struct entry *e = entry_of(fd, true);
    uint64_t me = (uint64_t)&thread_mark;
    uint64_t seen = 0;

    if (e == NULL)
        return false;
    /* Our flight before the look: pairs with the read-modify-write in file_mark, after which the
     * other one looks for flights. */
    rl_fence();
    if (!(all_ask || __libc_single_threaded) || file_forked_since(fd) ||
        (file_flags(fd) & (FILE_OPENED | FILE_SHARED | FILE_PASSED)) != FILE_OPENED)
        return false;
    if (rl_cas_64(&e->mover, &seen, me) || seen == me)
        return true;
    file_mark(fd, FILE_SHARED);
    inflight_wait(fd);
    return false;
}

bool file_forked_since(int fd)
{
    struct entry *e = entry_of(fd, false);

    return e == NULL || rl_load_64(&e->forks) != rl_load_32(&state_forks);
}

struct file_state *file_state(const struct rl_inode *inode)
{
    return &states[rl_inode_index(&proc.arena->inodes, inode)];
}

/* The name fd's file has now, without the mark of an unlinked one. False if there is none. */
static bool name_of(int fd, char *path, size_t bytes)
{
    static const char deleted[] = " (deleted)";
    char link[32] = "/proc/self/fd/";
    char digits[12];
    size_t len = strlen(link);
    int n = 0;
    long got;

    do
        digits[n++] = (char)('0' + fd % 10);
    while ((fd /= 10) != 0);
    while (n > 0)
        link[len++] = digits[--n];
    link[len] = '\0';
    got = rl_raw(SYS_readlinkat, AT_FDCWD, link, path, bytes - 1);
    if (got <= 0)
        return false;
    path[got] = '\0';
    len = sizeof deleted - 1;
    if ((size_t)got > len && strcmp(path + got - len, deleted) == 0)
        path[(size_t)got - len] = '\0';
    return true;
}

static void rules_from(const struct settings *s, struct file_rules *rules)
{
    *rules = (struct file_rules){
        .punch_delay_ns = s->punch_delay_ns,
        .punch_call_max_bytes = s->punch_call_max_bytes,
        .split_bytes = s->split_bytes,
        .hold_target_ns = s->hold_target_ns,
        .evict_min_bytes = s->evict_min_bytes,
        .evict_hold_max_ns = s->evict_hold_max_ns,
        .window_bytes = s->writeback_window_bytes,
        .share = s->share,
        .punch = s->punch,
        .stat_mode = s->stat_mode,
        .fsync_mode = s->fsync_mode,
        .preextend = s->preextend,
        .truncate_mode = s->truncate_mode,
        .evict = s->evict,
        .gate = s->gate,
    };
}

/* Room for a path and all the settings, which is more than a handler's stack may have. Whoever is
 * jumped out of keeps his for good; where none is left the settings are the program's. */
#define SCRATCHES 16

static struct scratch {
    uint32_t taken;
    char path[PATH_MAX];
    struct settings settings;
} scratches[SCRATCHES];

static struct scratch *scratch_take(void)
{
    for (int i = 0; i < SCRATCHES; i++) {
        uint32_t none = 0;

        if (rl_cas_32(&scratches[i].taken, &none, 1))
            return &scratches[i];
    }
    return NULL;
}

/* The path that a call was given, from the root. */
static bool absolute(int dirfd, const char *path, char *to, size_t bytes)
{
    size_t n = 0;
    long got;

    if (path[0] != '/') {
        if (dirfd == AT_FDCWD) {
            got = rl_raw(SYS_getcwd, to, bytes);
            n = got > 1 ? (size_t)got - 1 : 0;
        } else if (name_of(dirfd, to, bytes)) {
            n = strlen(to);
        }
        if (n == 0 || n + strlen(path) + 2 > bytes)
            return false;
        to[n++] = '/';
    }
    if (n + strlen(path) + 1 > bytes)
        return false;
    strcpy(to + n, path);
    return true;
}

/* path NULL: of what fd is. */
static bool rules_by_name(const struct config *config, int fd, const char *path,
                          struct file_rules *rules)
{
    struct scratch *s = scratch_take();
    bool known;

    if (s == NULL)
        return true;
    known = path != NULL ? absolute(fd, path, s->path, sizeof s->path)
                         : name_of(fd, s->path, sizeof s->path);
    if (known && cfg_path_matches(config, s->path)) {
        cfg_settings(config, proc.program, s->path, &s->settings);
        rules_from(&s->settings, rules);
    }
    rl_store_32(&s->taken, 0);
    return known;
}

void file_rules_of(int fd, struct file_rules *rules)
{
    const struct config *config = state_config();

    rules_from(&proc.settings, rules);
    if (config != NULL && cfg_has_paths(config))
        rules_by_name(config, fd, NULL, rules);
}

bool file_rules_at(int dirfd, const char *path, struct file_rules *rules)
{
    const struct config *config = state_config();

    rules_from(&proc.settings, rules);
    return config == NULL || !cfg_has_paths(config) || rules_by_name(config, dirfd, path, rules);
}

/* The settings for this file. A [path] section goes by the name at the first question rather than
 * at the open, so that opens cost nothing. */
static void settings_of(int fd, struct file_state *fs)
{
    struct file_rules r;

    rl_store_32(&fs->tuned, rl_load_32(&proc.tuned)); /* before: what changes meanwhile is met */
    file_rules_of(fd, &r);
    fs->punch_delay_ns = r.punch_delay_ns;
    fs->punch_call_max_bytes = r.punch_call_max_bytes;
    fs->split_bytes = r.split_bytes;
    fs->hold_target_ns = r.hold_target_ns;
    fs->window_bytes = r.window_bytes;
    fs->gate = r.gate;
    fs->share = (uint8_t)r.share;
    fs->punch = (uint8_t)r.punch;
    fs->stat_mode = (uint8_t)r.stat_mode;
    fs->fsync_mode = (uint8_t)r.fsync_mode;
    fs->preextend = (uint8_t)r.preextend;
}

void file_refuse(struct file_state *fs, uint32_t reason)
{
    uint32_t step = fs->refusals < REFUSE_STEPS ? fs->refusals : REFUSE_STEPS;

    fs->refusals++;
    rl_store_64(&fs->refused_ns, rl_now_ns() + ((uint64_t)REFUSE_NS << step));
    rl_store_32(&fs->refusal, reason);
}

void file_settings(int fd, const struct rl_inode *inode)
{
    if (state_config() != NULL && cfg_has_paths(state_config()))
        settings_of(fd, file_state(inode));
}

/* Fills the state of a new entry. Two threads may do it at once: they write the same. */
static bool describe(int fd, struct rl_inode *inode, uint32_t gen)
{
    struct file_state *fs = file_state(inode);

    if (rl_load_32(&fs->gen) == gen) {
        if (rl_load_32(&fs->tuned) != rl_load_32(&proc.tuned))
            settings_of(fd, fs);
        return fs->kind != FILE_KIND_NONE + 1;
    }
    fs->kind = (uint32_t)fs_kind_of(fd) + 1;
    fs->never = fs->asked = fs->refusal = fs->refusals = 0;
    fs->refused_ns = fs->reach = 0;
    memset(fs->writing, 0, sizeof fs->writing);
    fs->writing_anywhere = fs->putting = fs->armed = fs->tail = fs->whole = 0;
    fs->whole_rate = 0;
    memset(&fs->range, 0, sizeof fs->range);
    memset(&fs->flush, 0, sizeof fs->flush);
    memset(&fs->pace, 0, sizeof fs->pace);
    window_reset(fs);
    settings_of(fd, fs);
    rl_add_32(&proc.entries, 1);
    rl_store_32(&fs->gen, gen);
    return fs->kind != FILE_KIND_NONE + 1;
}

static struct rl_inode *classify(int fd, struct entry *e, bool make)
{
    uint64_t word = rl_load_64(&e->word);
    uint32_t epoch = state_epoch(state_word()); /* before the look-up that it vouches for */
    struct rl_inode *inode = NULL;
    struct stat st;
    uint32_t gen = epoch;
    unsigned at = AT_OTHER;

    if (rl_raw(SYS_fstat, fd, &st) != 0)
        return NULL;
    if (S_ISREG(st.st_mode)) {
        inode = make ? rl_inode_get(&proc.arena->inodes, st.st_dev, st.st_ino, &gen)
                     : rl_inode_find(&proc.arena->inodes, st.st_dev, st.st_ino, &gen);
        if (inode == NULL) {
            if (make)
                return NULL;
            at = AT_ABSENT;
            gen = epoch;
        } else if (!describe(fd, inode, gen)) {
            return NULL;
        } else {
            at = rl_inode_index(&proc.arena->inodes, inode) + 1;
        }
    }
    /* In a vfork child descriptor numbers mean other files than in the parent, whose table this is.
     * One more system call, but only when an identity is taken. */
    if ((uint32_t)rl_raw(SYS_getpid) == proc.pid)
        rl_cas_64(&e->word, &word, word_make(word, at, gen));
    return inode;
}

struct rl_inode *file_inode(int fd, bool make)
{
    struct entry none = {0}; /* for a number beyond all entries: the kernel is asked each time */
    struct entry *e;
    uint64_t word;
    unsigned at;
    uint32_t gen;

    if (!(make ? state_arena() : proc.arena != NULL))
        return NULL;
    if (unlikely((e = entry_of(fd, true)) == NULL))
        e = &none;
    word = rl_load_64(&e->word);
    at = (unsigned)(word & AT_MASK);
    gen = (uint32_t)(word >> GEN_SHIFT & GEN_MASK);
    if (at == AT_OTHER)
        return NULL;
    if (at == AT_ABSENT && !make && gen == (state_epoch(state_word()) & GEN_MASK))
        return NULL;
    if (at >= 1 && at <= RL_INODES) {
        struct rl_inode *inode = &proc.arena->inodes.inode[at - 1];

        if ((rl_load_32(&inode->gen) & GEN_MASK) == gen &&
            rl_load_32(&file_state(inode)->tuned) == rl_load_32(&proc.tuned))
            return inode;
    }
    return classify(fd, e, make);
}

struct rl_inode *file_active(int fd)
{
    struct rl_inode *inode = file_inode(fd, false);

    if (inode == NULL || (rl_load_32(&inode->table.act) & RL_ACT_STATE) == RL_ACT_OFF)
        return NULL;
    return inode;
}

struct rl_inode *file_by_identity(uint64_t dev, uint64_t ino)
{
    uint32_t gen;

    return proc.arena != NULL ? rl_inode_find(&proc.arena->inodes, dev, ino, &gen) : NULL;
}

bool file_verify(int fd, const struct rl_inode *inode)
{
    struct stat st;

    return rl_raw(SYS_fstat, fd, &st) == 0 && st.st_dev == rl_load_64(&inode->dev) &&
           st.st_ino == rl_load_64(&inode->ino);
}

void file_forked(void)
{
    const uint64_t identity = AT_MASK | GEN_MASK << GEN_SHIFT;

    if (proc.arena == NULL) /* nobody asked for an identity yet, and most never do */
        return;
    memset(states, 0, sizeof states);
    for (unsigned i = 0; i < FIRST_FEW; i++)
        few[i].word &= ~identity;
    for (unsigned r = 0; r < ROOT_SIZE; r++)
        for (unsigned i = 0; root[r] != NULL && i < LEAF_SIZE; i++)
            root[r][i].word &= ~identity;
}
