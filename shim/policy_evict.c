/* SPDX-License-Identifier: MIT */
/* policy_evict: see policy_evict.h. */
#include "policy_evict.h"

#define FREE_SHARE   10u
#define FORGET_SHARE 16u
#define MIB          (double)(1 << 20)
#define S_IN_NS      UINT64_C(1000000000)

bool policy_evict_pays(const struct evict_facts *f)
{
    if (!f->works || !f->defers || !f->regular || !f->last_name || f->bytes == 0)
        return false;
    if (f->kind == FILE_KIND_NONE || f->kind == FILE_KIND_TMPFS || f->bytes < f->min_bytes)
        return false;
    if (f->min_bytes == 0 || f->ns_per_mib == EVICT_COST_UNKNOWN)
        return true;
    return (double)f->ns_per_mib * (double)f->bytes >= (double)EVICT_PAYS_NS * MIB;
}

uint64_t policy_evict_learn(uint64_t ns_per_mib, uint64_t bytes, uint64_t took_ns)
{
    uint64_t seen = bytes != 0 ? (uint64_t)((double)took_ns * MIB / (double)bytes) : 0;
    uint64_t kept = ns_per_mib != EVICT_COST_UNKNOWN ? ns_per_mib - ns_per_mib / FORGET_SHARE : 0;

    return seen > kept ? seen : kept;
}

bool policy_evict_fits(const struct evict_room *r, uint64_t bytes)
{
    uint64_t most = r->bytes_max != 0 ? r->bytes_max : r->free_bytes / FREE_SHARE;

    if (r->files >= r->files_max || r->files >= r->free_files / FREE_SHARE ||
        r->oldest_ns >= r->hold_max_ns)
        return false;
    /* At this rate the last would be held for too long. */
    if (r->rate != 0 &&
        (double)r->bytes / (double)r->rate >= (double)r->hold_max_ns / (double)S_IN_NS)
        return false;
    return r->bytes <= most && bytes <= most - r->bytes;
}

uint64_t policy_evict_pause_ns(uint64_t bytes, uint64_t took_ns, uint64_t rate)
{
    uint64_t fair_ns;

    if (rate == 0)
        return 0;
    fair_ns = (uint64_t)((double)bytes / (double)rate * (double)S_IN_NS);
    return fair_ns > took_ns ? fair_ns - took_ns : 0;
}
