/* SPDX-License-Identifier: MIT */
/* policy_truncate: see policy_truncate.h. */
#include <fcntl.h>
#include <sys/stat.h>

#include "policy_truncate.h"

#if defined(__x86_64__)
#define PAGE_BYTES 4096u
#else
#define PAGE_BYTES 65536u /* the largest that a kernel may have been built with */
#endif

enum cut policy_cut(const struct cut_facts *f)
{
    if (!f->works || !f->elides || !f->regular || f->size != f->wanted || f->append_only ||
        (f->mode & (S_ISUID | S_ISGID)) != 0)
        return CUT_REAL;
    if (f->size == 0)
        return (f->kind == FILE_KIND_EXT4 || f->kind == FILE_KIND_BTRFS) && f->blocks == 0
                   ? CUT_TIMES
                   : CUT_REAL;
    if (f->kind != FILE_KIND_XFS || (f->swaps && f->size >= CUT_SWAP_MIN_BYTES) ||
        (f->maps && f->size % PAGE_BYTES != 0))
        return CUT_REAL;
    return CUT_TIMES_IF_NONE_PAST;
}

bool policy_cut_flags(int flags)
{
    int access = flags & O_ACCMODE;

    return (flags & O_TRUNC) != 0 && (access == O_WRONLY || access == O_RDWR) &&
           (flags & (O_EXCL | O_PATH | O_DIRECTORY)) == 0;
}

int policy_cut_mode(const char *mode)
{
    int flags = O_WRONLY;

    if (mode[0] != 'w')
        return -1;
    for (const char *p = mode + 1; *p != '\0'; p++) {
        if (*p == '+')
            flags = (flags & ~O_ACCMODE) | O_RDWR;
        else if (*p == 'e')
            flags |= O_CLOEXEC;
        else if (*p != 'b' || p - mode > 5)
            return -1;
    }
    return flags | O_CREAT | O_TRUNC;
}
