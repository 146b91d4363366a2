/* SPDX-License-Identifier: MIT */
/* policy_tail: see policy_tail.h. */
#include "policy_tail.h"

bool policy_tail(const struct tail_facts *f)
{
    /* XFS extends under the exclusive lock too, but only for as long as it zeroes what lies between
     * the old end and the write; btrfs holds no lock over the I/O. tmpfs has no direct I/O. */
    if (f->kind != FILE_KIND_EXT4 || !f->shared_kernel)
        return false;
    if (f->setting == CFG_PREEXTEND_OFF || (f->setting == CFG_PREEXTEND_AUTO && !f->nameless))
        return false;
    return f->size % TAIL_ALIGN == 0 && f->start <= f->size && f->end > f->size;
}

static unsigned number(const char **text)
{
    unsigned n = 0;

    while (**text >= '0' && **text <= '9')
        n = n * 10 + (unsigned)(*(*text)++ - '0');
    return n;
}

bool policy_tail_kernel(const char *release)
{
    unsigned major = number(&release);
    unsigned minor = *release == '.' ? (release++, number(&release)) : 0;

    return major > 6 || (major == 6 && minor >= 6);
}
