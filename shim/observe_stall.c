/* SPDX-License-Identifier: MIT */
/* observe_stall: slow calls one by one, and the stacks they were made from. */
#include <elf.h>
#include <link.h>
#include <string.h>
#include <time.h>

#include "observe_impl.h"

#define PROBES 32u

/* --- objects that code lies in --- */

/* From the notes of a loaded object. */
static void keep_build_id(struct observed_module *m, const struct callsite_object *object)
{
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)object->begin;
    const ElfW(Phdr) * p;

    if (object->end - object->begin < sizeof *head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_phentsize != sizeof *p)
        return;
    p = (const ElfW(Phdr) *)(object->begin + head->e_phoff);
    for (unsigned i = 0; i < head->e_phnum && (uintptr_t)(p + 1) <= object->end; i++, p++) {
        uintptr_t at = object->base + p->p_vaddr, end = at + p->p_filesz;

        if (p->p_type != PT_NOTE || at < object->begin || end > object->end)
            continue;
        while (at + sizeof(ElfW(Nhdr)) <= end) {
            const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)at;
            uintptr_t desc = at + sizeof *note + ((note->n_namesz + 3u) & ~3u);

            if (desc + note->n_descsz > end)
                break;
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
                memcmp(note + 1, "GNU", 4) == 0 && note->n_descsz <= sizeof m->build_id) {
                memcpy(m->build_id, (const void *)desc, note->n_descsz);
                m->build_id_bytes = (uint8_t)note->n_descsz;
                return;
            }
            at = desc + ((note->n_descsz + 3u) & ~3u);
        }
    }
}

static uint32_t module_of(const struct callsite_object *object)
{
    uint64_t used = rl_load_64(&observation->modules_used);
    struct observed_module *m;

    for (uint64_t i = 0; i < used && i < MODULES_MAX; i++) {
        m = &observation->module[i];
        if (__atomic_load_n(&m->state, __ATOMIC_ACQUIRE) == READY && m->begin == object->begin &&
            m->end == object->end)
            return (uint32_t)i;
    }
    if (used >= MODULES_MAX || (used = rl_add_64(&observation->modules_used, 1)) >= MODULES_MAX)
        return CALLSITE_NO_MODULE;
    m = &observation->module[used];
    m->begin = object->begin;
    m->end = object->end;
    m->path = object->name[0] != '\0' ? observe_keep(object->name, strlen(object->name)) : 0;
    keep_build_id(m, object);
    __atomic_store_n(&m->state, READY, __ATOMIC_RELEASE);
    return (uint32_t)used;
}

/* --- stacks --- */

static uint64_t hash_of(enum act act, const struct callsite_frame *frame, unsigned n)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ act;

    for (unsigned i = 0; i < n; i++) {
        h = (h ^ frame[i].address) * 0x9e3779b97f4a7c15u;
        h = (h ^ h >> 29 ^ frame[i].module) * 0xbf58476d1ce4e5b9u;
    }
    return h | 1;
}

static uint32_t site_of(enum act act, const struct callsite_frame *frame, unsigned n, bool cut)
{
    uint64_t hash = hash_of(act, frame, n);

    for (uint32_t i = 0; i < PROBES; i++) {
        uint32_t index = (uint32_t)((hash >> 8) + i) % SITES_MAX;
        struct observed_site *s = &observation->site[index];
        uint64_t seen = rl_load_64(&s->hash);

        if (seen == 0 && rl_cas_64(&s->hash, &seen, hash)) {
            s->act = act;
            s->depth = n;
            s->cut = cut;
            memcpy(s->frame, frame, n * sizeof *frame);
            __atomic_store_n(&s->state, READY, __ATOMIC_RELEASE);
            return index;
        }
        if (seen == hash)
            return index;
    }
    return SITE_NONE;
}

static uint32_t trace(enum act act, uint64_t ns)
{
    struct callsite_frame frame[CALLSITE_FRAMES];
    bool cut = false;
    unsigned n = callsite_take(frame, &cut, module_of);
    uint32_t site = n != 0 ? site_of(act, frame, n, cut) : SITE_NONE;
    struct observed_site *s;
    uint64_t worst;

    if (site == SITE_NONE)
        return site;
    s = &observation->site[site];
    rl_add_64(&s->calls, 1);
    rl_add_64(&s->total_ns, ns);
    worst = rl_load_64(&s->worst_ns);
    while (ns > worst && !rl_cas_64(&s->worst_ns, &worst, ns))
        ;
    rl_add_64(&observation->stalls_traced, 1);
    return site;
}

/* --- one by one --- */

static uint64_t real_now(void)
{
    struct timespec now = {0};

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The worst of its kind is kept whole; where two come at once, one of them. */
static void keep_worst(const struct observed_stall *stall, uint64_t would_ns)
{
    struct observed_cure *c = &observation->cure[stall->remedy];
    uint32_t none = 0;

    if (stall->ns <= rl_load_64(&c->worst.ns) || !rl_cas_32(&c->writing, &none, 1))
        return;
    c->worst = *stall;
    c->would_ns = would_ns;
    __atomic_store_n(&c->writing, 0, __ATOMIC_RELEASE);
}

/* As far as it can be told without a call of our own. */
static void keep(struct observed_stall *stall, uint64_t n, uint64_t ns)
{
    struct observed_stall *place = &observation->stall[n % STALLS_MAX];

    rl_store_64(&place->ns, 0);
    *place = *stall;
    __atomic_store_n(&place->ns, ns, __ATOMIC_RELEASE);
    stall->ns = ns;
}

void observe_stall(const struct timed *t, uint64_t ns, enum remedy remedy, uint64_t would_ns)
{
    uint64_t n = rl_add_64(&observation->stalls_seen, 1), mask;
    struct observed_stall stall = {.start_ns = real_now() - ns,
                                   .act = t->act,
                                   .remedy = remedy,
                                   .file = t->file,
                                   .site = SITE_NONE};

    if (!observe_may_ask()) {
        keep(&stall, n, ns);
        return;
    }
    if (t->path != NULL && t->before.known)
        observe_name_path(t->file, t->dirfd, t->path);
    else if (t->fd >= 0 && t->act != ACT_close)
        observe_name_fd(t->file, t->fd);
    observe_aside_begins(&mask);
    stall.tid = (uint32_t)rl_raw(SYS_gettid);
    stall.site = trace(t->act, ns);
    keep(&stall, n, ns);
    if (remedy != REMEDY_NONE)
        keep_worst(&stall, would_ns);
    observe_look_if_due();
    observe_aside_ends(&mask);
}
