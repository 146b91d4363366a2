/* SPDX-License-Identifier: MIT */
/*
 * Shrinking: a failing plan loses threads, then spans of steps, as long as it still fails. The
 * schedule is the machine's, so "still fails" means within a number of runs, and a smaller plan
 * that did not fail may have been unlucky: the result is small, not minimal.
 */
#include "stage.h"

#include <string.h>
#include <time.h>

struct shrinker {
    struct stage *st;
    int tries;
    time_t until;
};

static bool fails(struct shrinker *s, const struct plan *p)
{
    static struct trace t;
    struct finding f;

    for (int i = 0; i < s->tries && time(NULL) < s->until; i++)
        if (stage_run(s->st, p, &t, &f) == OUTCOME_BAD)
            return true;
    return false;
}

static void drop_thread(struct plan *p, int t)
{
    for (; t + 1 < p->threads; t++) {
        memcpy(p->step[t], p->step[t + 1], sizeof(p->step[t]));
        p->steps[t] = p->steps[t + 1];
        p->direct[t] = p->direct[t + 1];
    }
    p->threads--;
}

static void drop_steps(struct plan *p, int t, unsigned from, unsigned n)
{
    memmove(&p->step[t][from], &p->step[t][from + n],
            (p->steps[t] - from - n) * sizeof(p->step[t][0]));
    p->steps[t] = (uint16_t)(p->steps[t] - n);
}

static bool try_threads(struct shrinker *s, struct plan *p)
{
    static struct plan smaller;
    bool any = false;

    for (int t = p->threads - 1; t >= 0 && p->threads > 1; t--) {
        smaller = *p;
        drop_thread(&smaller, t);
        if (fails(s, &smaller)) {
            *p = smaller;
            any = true;
        }
    }
    return any;
}

static bool try_steps(struct shrinker *s, struct plan *p, unsigned span)
{
    static struct plan smaller;
    bool any = false;

    for (int t = 0; t < p->threads; t++) {
        for (unsigned from = 0; from < p->steps[t];) {
            unsigned n = p->steps[t] - from < span ? p->steps[t] - from : span;

            smaller = *p;
            drop_steps(&smaller, t, from, n);
            if (fails(s, &smaller)) {
                *p = smaller;
                any = true;
            } else {
                from += n;
            }
        }
    }
    return any;
}

void shrink(struct stage *st, struct plan *p, int tries, int seconds)
{
    struct shrinker s = {st, tries, time(NULL) + seconds};
    bool any = true;

    while (any && time(NULL) < s.until) {
        any = try_threads(&s, p);
        for (unsigned span = 32; span; span /= 2)
            any = try_steps(&s, p, span) || any;
    }
}
