/* SPDX-License-Identifier: MIT */
/* policy_punch: see policy_punch.h. */
#include "policy_punch.h"

static struct punch_plan inline_because(enum stat_id reason)
{
    return (struct punch_plan){PUNCH_INLINE, reason};
}

struct punch_plan policy_punch(const struct punch_facts *f)
{
    if (!f->whole || !f->works || !f->defer)
        return inline_because(STAT_punch_no_setting);
    if (!f->known_fs)
        return inline_because(STAT_punch_no_fs);
    if (f->foreign)
        return inline_because(STAT_punch_no_foreign);
    if (f->never != 0)
        return inline_because((enum stat_id)f->never);
    if (f->long_ || f->far)
        return inline_because(STAT_punch_no_size);
    if (f->on)
        return (struct punch_plan){PUNCH_DEFER, STAT_punch_deferred};
    if (f->refusal_holds)
        return inline_because((enum stat_id)f->refusal);
    if (f->asked || f->quiet)
        return inline_because(STAT_punch_no_evidence_yet);
    return (struct punch_plan){PUNCH_INLINE_AND_ASK, STAT_punch_no_evidence_yet};
}
