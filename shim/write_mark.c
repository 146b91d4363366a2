/* SPDX-License-Identifier: MIT */
/* write_mark: see write_mark.h. */
#include "write_mark.h"

void write_mark_set(struct write_mark *mark, struct file_state *fs, const struct rl_span *range)
{
    mark->fs = fs;
    mark->packed = range != NULL ? rl_range_pack(range->start, range->end) : 0;
    for (mark->slot = 0; mark->packed != 0 && mark->slot < FILE_WRITING; mark->slot++) {
        uint64_t none = 0;

        if (rl_cas_64(&fs->writing[mark->slot], &none, mark->packed))
            return;
    }
    mark->slot = -1;
    rl_add_32(&fs->writing_anywhere, 1);
}

void write_mark_clear(struct write_mark *mark)
{
    uint32_t n;

    if (mark->fs == NULL)
        return;
    if (mark->slot >= 0) {
        rl_cas_64(&mark->fs->writing[mark->slot], &mark->packed, 0);
    } else {
        /* Not below zero: the entry may have been given to another inode since. */
        n = rl_load_32(&mark->fs->writing_anywhere);
        while (n != 0 && !rl_cas_32(&mark->fs->writing_anywhere, &n, n - 1))
            ;
    }
    mark->fs = NULL;
}

bool write_mark_meets(const struct file_state *fs, uint64_t start, uint64_t end)
{
    if (rl_load_32(&fs->writing_anywhere) != 0)
        return true;
    for (int i = 0; i < FILE_WRITING; i++) {
        uint64_t packed = rl_load_64(&fs->writing[i]);

        if (packed != 0 && rl_range_unpack(packed).start < end &&
            rl_range_unpack(packed).end > start)
            return true;
    }
    return false;
}
