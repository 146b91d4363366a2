/* SPDX-License-Identifier: MIT */
/* See plan.h. Chances are per cent. */
#include "plan.h"

#include <inttypes.h>
#include <string.h>

static const char *const call_names[CALLS] = {
    [CALL_PREAD] = "pread",         [CALL_PREADV] = "preadv",   [CALL_READ] = "read",
    [CALL_READV] = "readv",         [CALL_PWRITE] = "pwrite",   [CALL_PWRITEV] = "pwritev",
    [CALL_WRITE] = "write",         [CALL_APPEND] = "append",   [CALL_PUNCH] = "punch",
    [CALL_ZERO] = "zero",           [CALL_ALLOC] = "alloc",     [CALL_TRUNCATE] = "truncate",
    [CALL_STAT] = "stat",           [CALL_SEEKEND] = "seekend", [CALL_FSYNC] = "fsync",
    [CALL_FDATASYNC] = "fdatasync", [CALL_MMAP] = "mmap",       [CALL_SENDFILE] = "sendfile",
    [CALL_COPY] = "copy",           [CALL_REOPEN] = "reopen",   [CALL_DECOY] = "decoy",
    [CALL_UNLINK] = "unlink",       [CALL_FORK] = "fork",       [CALL_EXEC] = "exec",
    [CALL_SHARED] = "shared",       [CALL_PAUSE] = "pause",     [CALL_STREAM] = "stream",
    [CALL_FREAD] = "fread",         [CALL_FWRITE] = "fwrite",   [CALL_SPLICE] = "splice",
    [CALL_ADVISE] = "advise",
};

static const char *const settle_names[SETTLES] = {
    "fsync", "fdatasync", "seek",   "flock",  "fcntl", "lockf",
    "mmap",  "chmod",     "utimes", "sendfd", "close",
};

const char *plan_call_name(unsigned call)
{
    return call < CALLS ? call_names[call] : "?";
}

const char *plan_settle_name(unsigned settle)
{
    return settle < SETTLES ? settle_names[settle] : "?";
}

uint32_t plan_calls_of(const char *list)
{
    uint32_t calls = 0;

    while (*list) {
        size_t n = strcspn(list, ",");
        unsigned c = 0;

        while (c < CALLS && (strlen(call_names[c]) != n || strncmp(call_names[c], list, n)))
            c++;
        if (c == CALLS)
            return 0;
        calls |= 1u << c;
        list += n + (list[n] == ',');
    }
    return calls;
}

enum { SPELL = 256 };

struct maker {
    struct plan *p;
    const struct wishes *w;
    uint64_t rng;
    unsigned next_id;
    unsigned weight[CALLS];
    bool unaligned, far;
    int64_t unit;
    int nhot;
    int64_t hot_off[5], hot_len[5];
};

static uint64_t draw(struct maker *m)
{
    uint64_t x = m->rng += 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static int64_t below(struct maker *m, int64_t n)
{
    return (int64_t)(draw(m) % (uint64_t)n);
}

static bool chance(struct maker *m, int percent)
{
    return below(m, 100) < percent;
}

static int64_t end_of_islands(const struct plan *p)
{
    int64_t end = 0;

    for (int i = 0; i < p->islands; i++)
        if (p->base[i] + p->island_len > end)
            end = p->base[i] + p->island_len;
    return end;
}

static void lay_out(struct maker *m)
{
    struct plan *p = m->p;
    int r = (int)below(m, 100);

    m->unit = BLOCK;
    p->islands = 1;
    p->island_len = (chance(m, 60) ? 64 : 12) * BLOCK;
    if (r < 55)
        return;
    if (r >= 96) {
        m->unit = 16 * BLOCK;
        p->island_len = 4 << 20;
        return;
    }
    p->islands = (uint8_t)(2 + below(m, PLAN_ISLANDS - 1));
    p->island_len = (4 + below(m, 12)) * BLOCK;
    m->far = r >= 86;
    for (int i = 1; i < p->islands; i++) {
        /* Whole multiples of 64 MiB fall into the same class of a 64-bit offset mask. */
        int64_t step = m->far ? (int64_t)1 << 37 : (int64_t)64 << 20;

        p->base[i] = p->base[i - 1] + step;
        if (chance(m, 40))
            p->base[i] += below(m, 256) * BLOCK;
    }
}

static void clip(const struct plan *p, int64_t base, int64_t *off, int64_t *len)
{
    if (*len > IO_MAX)
        *len = IO_MAX;
    if (*off + *len > base + p->island_len)
        *len = base + p->island_len - *off;
}

static void pick_fresh(struct maker *m, int64_t *off, int64_t *len)
{
    const struct plan *p = m->p;
    int64_t base = p->base[below(m, p->islands)];
    int64_t blocks = p->island_len / m->unit;
    int64_t at = below(m, blocks);
    int64_t n = chance(m, 60) ? 1 + below(m, 3) : 1 + below(m, blocks);

    *off = base + at * m->unit;
    *len = n * m->unit;
    clip(p, base, off, len);
}

/* Most ranges are near one of a few hot ones, so that calls meet. */
static void pick(struct maker *m, bool aligned, int64_t *off, int64_t *len)
{
    if (m->nhot && chance(m, 60)) {
        int h = (int)below(m, m->nhot);

        *off = m->hot_off[h];
        *len = m->hot_len[h];
    } else {
        pick_fresh(m, off, len);
    }
    if (aligned || !chance(m, 50))
        return;
    int64_t front = below(m, *len < BLOCK ? *len : BLOCK);

    *off += front;
    *len -= front;
    if (*len > 1)
        *len -= below(m, *len < BLOCK ? *len : BLOCK);
    if (*len < 1)
        *len = 1;
}

static void set_weights(struct maker *m)
{
    struct plan *p = m->p;
    unsigned *w = m->weight;
    bool shrink = chance(m, 25);

    w[CALL_PREAD] = 22;
    w[CALL_PREADV] = w[CALL_READ] = 4;
    w[CALL_READV] = 2;
    w[CALL_PWRITE] = 14;
    w[CALL_PWRITEV] = w[CALL_WRITE] = 3;
    w[CALL_PUNCH] = chance(m, 50) ? 16 : 8;
    w[CALL_ZERO] = m->w->can_zero ? 3 : 0;
    w[CALL_ALLOC] = 2;
    w[CALL_STAT] = 4;
    w[CALL_SEEKEND] = 1;
    w[CALL_PAUSE] = 4;
    w[CALL_TRUNCATE] = shrink ? 4 : 0;
    /* The kernel's direct appends are not appends: two at once overlap on XFS, and btrfs leaves a
     * wrong file position when it falls back to the page cache (both seen on 6.18). */
    w[CALL_APPEND] = p->mode == MODE_BUFFERED && chance(m, 12) ? 4 : 0;
    w[CALL_FSYNC] = w[CALL_FDATASYNC] = chance(m, 12) ? 1 : 0;
    w[CALL_REOPEN] = chance(m, 35) ? 3 : 0;
    w[CALL_DECOY] = chance(m, 20) ? 4 : 0;
    w[CALL_SHARED] = chance(m, 15) ? 3 : 0;
    w[CALL_SENDFILE] = chance(m, 8) ? 2 : 0;
    w[CALL_COPY] = m->w->can_copy && chance(m, 8) ? 2 : 0;
    w[CALL_UNLINK] = p->kind == FILE_NAMED && chance(m, 20) ? 1 : 0;
    /* A library may stay careful for a second after a child was made, which is a hundred histories:
     * so children come in spells, a quarter of the seeds. */
    if (p->seed / SPELL % 4 == 0) {
        w[CALL_FORK] = chance(m, 24) ? 2 : 0;
        w[CALL_EXEC] = chance(m, 12) ? 1 : 0;
    }
    w[CALL_STREAM] = chance(m, 12) ? 3 : 0;
    w[CALL_SPLICE] = chance(m, 6) ? 2 : 0;
    w[CALL_ADVISE] = chance(m, 10) ? 2 : 0;
    if (p->mode != MODE_DIRECT && chance(m, 10))
        w[CALL_FREAD] = w[CALL_FWRITE] = 2;
    /* An interrupted fallocate may have done a part, which no model can know. */
    if (p->signals)
        w[CALL_ZERO] = w[CALL_ALLOC] = 0;
    /* A mapping beyond the end of a file that shrinks meanwhile would be killed by SIGBUS. */
    w[CALL_MMAP] = !shrink && chance(m, 6) ? 2 : 0;
    for (int c = 0; c < CALLS; c++)
        if (!(m->w->calls & (1u << c)))
            w[c] = 0;
}

static unsigned pick_call(struct maker *m)
{
    unsigned sum = 0, c;

    for (c = 0; c < CALLS; c++)
        sum += m->weight[c];
    if (!sum)
        return CALL_PREAD;
    unsigned at = (unsigned)below(m, sum);

    for (c = 0; at >= m->weight[c]; c++)
        at -= m->weight[c];
    return c;
}

static struct step *new_step(struct maker *m, int thread)
{
    struct plan *p = m->p;

    return p->steps[thread] < PLAN_STEPS ? &p->step[thread][p->steps[thread]++] : NULL;
}

static void pick_punch(struct maker *m, struct step *s)
{
    const struct plan *p = m->p;
    int64_t end = end_of_islands(p);

    pick(m, !m->unaligned, &s->off, &s->len);
    if (chance(m, 6)) {
        s->off = end + below(m, 64) * (1 << 20) - BLOCK;
        s->len = (1 + below(m, 256)) * BLOCK;
    } else if (!m->far && chance(m, 10)) {
        s->off = below(m, end / BLOCK) * BLOCK;
        s->len = (1 + below(m, (end - s->off) / BLOCK + 4)) * BLOCK;
    } else if (chance(m, 1) && chance(m, 20)) {
        s->len = ((int64_t)1 << 40) - s->off;
    }
}

/* Neighbouring punches, in order or not, so that a queue of them merges. */
static void punch_series(struct maker *m, int thread)
{
    const struct plan *p = m->p;
    int64_t base = p->base[below(m, p->islands)], blocks = p->island_len / m->unit;
    int64_t first = below(m, blocks), n = 3 + below(m, 12);
    bool shuffled = chance(m, 30);

    for (int64_t i = 0; i < n && first + i < blocks; i++) {
        struct step *s = new_step(m, thread);

        if (!s)
            return;
        int64_t k = shuffled ? below(m, blocks) : first + i;

        *s = (struct step){CALL_PUNCH, (uint8_t)below(m, 2), 0, 0, base + k * m->unit, m->unit};
    }
}

static bool writes(unsigned call)
{
    return call == CALL_PWRITE || call == CALL_PWRITEV || call == CALL_WRITE ||
           call == CALL_APPEND || call == CALL_STREAM || call == CALL_FWRITE;
}

static void fill(struct maker *m, struct step *s, unsigned call)
{
    struct plan *p = m->p;
    bool aligned = p->mode != MODE_BUFFERED || !m->unaligned;

    s->call = (uint8_t)call;
    s->slot = (uint8_t)below(m, 2);
    s->arg = (uint8_t)below(m, 256);
    pick(m, aligned, &s->off, &s->len);
    switch (call) {
    case CALL_READ:
    case CALL_READV:
    case CALL_WRITE:
        s->slot = 0; /* only this one has a position of its own */
        break;
    case CALL_APPEND:
        s->slot = 2;
        break;
    case CALL_STREAM:
        s->off = 0;
        if (s->len > STREAM_MAX)
            s->len = STREAM_MAX;
        break;
    case CALL_PUNCH:
        pick_punch(m, s);
        break;
    case CALL_ZERO:
        pick(m, !m->unaligned, &s->off, &s->len);
        if (aligned)
            s->arg |= 1; /* the size stays aligned where direct I/O must reach it */
        break;
    case CALL_TRUNCATE:
        s->off += chance(m, 50) ? s->len : 0;
        if (chance(m, 10))
            s->off = 0;
        s->len = 0;
        break;
    default:
        break;
    }
    if (writes(call) || (call == CALL_SHARED && chance(m, 50))) {
        if (m->next_id > ID_MAX)
            s->call = writes(call) ? CALL_STAT : CALL_PREAD;
        else
            s->id = (uint8_t)m->next_id++;
    }
}

static void child_steps(struct maker *m, int thread, struct step *fork_step)
{
    static const uint8_t kinds[] = {CALL_PREAD, CALL_PWRITE, CALL_PREAD,
                                    CALL_PUNCH, CALL_STAT,   CALL_STREAM};
    int n = 1 + (int)below(m, 4), made = 0;

    for (; made < n; made++) {
        struct step *s = new_step(m, thread);
        unsigned c = kinds[below(m, (int64_t)sizeof(kinds))];

        if (!s)
            break;
        if (c == CALL_STREAM ? !m->weight[c] : !(m->w->calls & (1u << c)))
            c = CALL_PREAD;
        fill(m, s, c);
    }
    fork_step->arg = (uint8_t)made;
}

static void make_steps(struct maker *m, int thread)
{
    int n = 8 + (int)below(m, chance(m, 70) ? 24 : 56), forks = 0;

    for (int i = 0; i < n; i++) {
        unsigned call = pick_call(m);

        if (call == CALL_PUNCH && chance(m, 15)) {
            punch_series(m, thread);
            continue;
        }
        /* Each child takes a lane of the trace, each start of a program a millisecond. */
        if ((call == CALL_FORK || call == CALL_EXEC) && forks++ >= 2)
            call = CALL_PREAD;
        struct step *s = new_step(m, thread);

        if (!s)
            return;
        fill(m, s, call);
        if (call == CALL_FORK)
            child_steps(m, thread, s);
    }
}

void plan_make(struct plan *p, uint64_t seed, const struct wishes *w)
{
    struct maker m = {.p = p, .w = w, .rng = seed * 0xd1342543de82ef95u + 1, .next_id = 2};

    memset(p, 0, sizeof(*p));
    p->seed = seed;
    int r = (int)below(&m, 100);

    p->mode = r < 50 ? MODE_BUFFERED : r < 80 ? MODE_DIRECT : MODE_MIXED;
    if (w->mode >= 0)
        p->mode = (uint8_t)w->mode;
    if (!w->can_direct)
        p->mode = MODE_BUFFERED;
    r = (int)below(&m, 100);
    p->kind = r < 45 ? FILE_UNLINKED : r < 80 ? FILE_NAMED : FILE_TMPFILE;
    if (w->kind >= 0)
        p->kind = (uint8_t)w->kind;
    if (p->kind == FILE_TMPFILE && !w->can_tmpfile)
        p->kind = FILE_UNLINKED;
    p->threads = (uint8_t)(w->threads ? w->threads : 2 + below(&m, PLAN_THREADS - 1));
    p->settle = (uint8_t)below(&m, SETTLES);
    p->drop_base = chance(&m, 50);
    p->sync_init = chance(&m, 10);
    p->unlink_late = chance(&m, 50);
    p->check_late = chance(&m, 4);
    p->signals = chance(&m, 8);
    p->warm = chance(&m, 60);
    m.unaligned = chance(&m, 50);
    lay_out(&m);
    set_weights(&m);
    if (p->settle == SETTLE_CLOSE && (p->kind != FILE_NAMED || m.weight[CALL_UNLINK]))
        p->settle = SETTLE_SEEK;

    for (int t = 0; t < p->threads; t++)
        p->direct[t] = p->mode == MODE_DIRECT  ? 7
                       : p->mode == MODE_MIXED ? (uint8_t)below(&m, 8)
                                               : 0;
    int hot = (int)below(&m, 6);

    for (int i = 0; i < hot; i++)
        pick_fresh(&m, &m.hot_off[i], &m.hot_len[i]);
    m.nhot = hot;
    for (int i = 0; i < p->islands; i++) {
        int64_t len = chance(&m, 80) ? p->island_len : p->island_len / 2 / BLOCK * BLOCK;

        if (len > IO_MAX)
            len = IO_MAX;
        if (chance(&m, 90))
            p->init[p->inits++] = (struct step){CALL_PWRITE, 0, ID_INIT, 0, p->base[i], len};
    }
    for (int t = 0; t < p->threads; t++)
        make_steps(&m, t);
    for (int i = (int)below(&m, PLAN_LASTS + 1); i > 0 && (w->calls & (1u << CALL_PUNCH)); i--)
        fill(&m, &p->last[p->lasts++], CALL_PUNCH);
}

static void save_steps(FILE *f, const struct step *s, int n)
{
    for (int i = 0; i < n; i++)
        fprintf(f, "%s %u %u %u %" PRId64 " %" PRId64 "\n", plan_call_name(s[i].call), s[i].slot,
                s[i].id, s[i].arg, s[i].off, s[i].len);
}

int plan_save(const struct plan *p, FILE *f)
{
    fprintf(f, "model-plan 1\n");
    fprintf(f, "seed %" PRIu64 " mode %u kind %u settle %u threads %u\n", p->seed, p->mode, p->kind,
            p->settle, p->threads);
    fprintf(f, "drop_base %d sync_init %d unlink_late %d check_late %d signals %d warm %d\n",
            p->drop_base, p->sync_init, p->unlink_late, p->check_late, p->signals, p->warm);
    fprintf(f, "islands %u of %" PRId64 "\n", p->islands, p->island_len);
    for (int i = 0; i < p->islands; i++)
        fprintf(f, "at %" PRId64 "\n", p->base[i]);
    fprintf(f, "init %u\n", p->inits);
    save_steps(f, p->init, p->inits);
    fprintf(f, "last %u\n", p->lasts);
    save_steps(f, p->last, p->lasts);
    for (int t = 0; t < p->threads; t++) {
        fprintf(f, "thread direct %u steps %u\n", p->direct[t], p->steps[t]);
        save_steps(f, p->step[t], p->steps[t]);
    }
    return ferror(f) ? -1 : 0;
}

static int load_steps(FILE *f, struct step *s, unsigned n, unsigned max)
{
    if (n > max)
        return -1;
    for (unsigned i = 0; i < n; i++, s++) {
        char name[16];
        unsigned c = 0;

        if (fscanf(f, "%15s %" SCNu8 " %" SCNu8 " %" SCNu8 " %" SCNd64 " %" SCNd64, name, &s->slot,
                   &s->id, &s->arg, &s->off, &s->len) != 6)
            return -1;
        while (c < CALLS && strcmp(name, call_names[c]))
            c++;
        if (c == CALLS || s->slot >= PLAN_SLOTS || s->off < 0 || s->len < 0)
            return -1;
        s->call = (uint8_t)c;
    }
    return 0;
}

int plan_load(struct plan *p, FILE *f)
{
    int version, drop, sync, late_unlink, late_check, signals, warm;

    memset(p, 0, sizeof(*p));
    if (fscanf(f,
               "model-plan %d seed %" SCNu64 " mode %" SCNu8 " kind %" SCNu8 " settle %" SCNu8
               " threads %" SCNu8,
               &version, &p->seed, &p->mode, &p->kind, &p->settle, &p->threads) != 6 ||
        version != 1 || p->mode >= MODES || p->kind >= FILE_KINDS || p->settle >= SETTLES ||
        !p->threads || p->threads > PLAN_THREADS)
        return -1;
    if (fscanf(f, " drop_base %d sync_init %d unlink_late %d check_late %d signals %d warm %d",
               &drop, &sync, &late_unlink, &late_check, &signals, &warm) != 6)
        return -1;
    p->drop_base = drop;
    p->sync_init = sync;
    p->unlink_late = late_unlink;
    p->check_late = late_check;
    p->signals = signals;
    p->warm = warm;
    if (fscanf(f, " islands %" SCNu8 " of %" SCNd64, &p->islands, &p->island_len) != 2 ||
        p->islands > PLAN_ISLANDS)
        return -1;
    for (int i = 0; i < p->islands; i++)
        if (fscanf(f, " at %" SCNd64, &p->base[i]) != 1)
            return -1;
    if (fscanf(f, " init %" SCNu8, &p->inits) != 1 || load_steps(f, p->init, p->inits, PLAN_INITS))
        return -1;
    if (fscanf(f, " last %" SCNu8, &p->lasts) != 1 || load_steps(f, p->last, p->lasts, PLAN_LASTS))
        return -1;
    for (int t = 0; t < p->threads; t++) {
        if (fscanf(f, " thread direct %" SCNu8 " steps %" SCNu16, &p->direct[t], &p->steps[t]) != 2)
            return -1;
        if (load_steps(f, p->step[t], p->steps[t], PLAN_STEPS))
            return -1;
    }
    return 0;
}
