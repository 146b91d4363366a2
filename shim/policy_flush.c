/* SPDX-License-Identifier: MIT */
/* policy_flush: see policy_flush.h. */
#include <errno.h>

#include "policy_flush.h"

bool policy_flush_shares(const struct flush_facts *f)
{
    if (!f->share || f->inside)
        return false;
    return f->kind == FILE_KIND_XFS || f->kind == FILE_KIND_BTRFS ||
           (f->kind == FILE_KIND_EXT4 && f->crowd >= FLUSH_CROWD_EXT4);
}

bool policy_flush_is_about_data(int error)
{
    switch (error) {
    case EBADF:
    case EINVAL:
    case ESPIPE:
    case EINTR:
    case ENOSYS:
    case EPERM:
    case EACCES:
    case EOPNOTSUPP:
        return false;
    default:
        return true;
    }
}

bool policy_flush_told(int leader_fd, int fd)
{
    return leader_fd == fd;
}
