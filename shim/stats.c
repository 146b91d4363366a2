/* SPDX-License-Identifier: MIT */
/* stats: see stats.h. */
#include <string.h>

#include "state.h"
#include "stats.h"

static struct stats_page first_page;
EARLY struct stats_page *stats = &first_page;

static const struct {
    char name[24], help[96]; /* no pointers: those have to be relocated in every process */
    bool peak;
} counters[] = {
#define COUNT(name, help) {#name, help, false},
#define PEAK(name, help)  {#name, help, true},
#include "stats.def"
#undef COUNT
#undef PEAK
};

static const struct {
    char name[16], help[72];
} reasons[] = {
#define WHY(name, help) {#name, help},
#include "why.def"
#undef WHY
};

void stats_page_init(struct stats_page *page, uint32_t pid, uint64_t started_ns,
                     const char *program)
{
    memset(page, 0, sizeof *page);
    page->magic = STATS_MAGIC;
    page->version = STATS_VERSION;
    page->bytes = sizeof *page;
    page->pid = pid;
    page->counters = STAT_COUNT;
    page->reasons = WHY_COUNT;
    page->started_ns = started_ns;
    strncpy(page->program, program, sizeof page->program - 1);
}

void stats_use(struct stats_page *page)
{
    struct stats_page *old = stats;

    for (int i = 0; i < STAT_COUNT; i++)
        rl_add_64(&page->value[i], rl_load_64(&old->value[i]));
    for (int i = 0; i < WHY_COUNT; i++)
        rl_add_64(&page->settled[i], rl_load_64(&old->settled[i]));
    for (int i = 0; i < GAUGE_COUNT; i++)
        rl_store_64(&page->gauge[i], rl_load_64(&old->gauge[i]));
    __atomic_store_n(&stats, page, __ATOMIC_RELEASE); /* pairs with the plain loads in stat_add:
                                                       * dependent on the pointer */
}

const char *stat_name(enum stat_id id)
{
    return counters[id].name;
}

const char *stat_help(enum stat_id id)
{
    return counters[id].help;
}

bool stat_is_peak(enum stat_id id)
{
    return counters[id].peak;
}

const char *why_name(enum why why)
{
    return reasons[why].name;
}

const char *why_help(enum why why)
{
    return reasons[why].help;
}
