/* SPDX-License-Identifier: MIT */
/*
 * settles_removed: put before an interposed function's source (-include), it takes every settle out
 * of it, and leaves everything else. Only for settles_removed.sh.
 */
#include "../../shim/execute.h"
#include "../../shim/init.h"
#include "../../shim/stat_times.h"

/* Punches still get queued. */
static inline int removed_fallocate(const struct drain_call *call)
{
    return (call->mode & 2 /* FALLOC_FL_PUNCH_HOLE */) != 0 ? execute_fallocate(call)
                                                            : call->issue(call);
}

#define settle_inode(inode, why)             ((void)(inode), (void)(why))
#define settle_fd(fd, why)                   ((void)(fd), (void)(why))
#define settle_all(why)                      ((void)(why))
#define settle_end_inode(inode, why)         ((void)(inode), (void)(why))
#define settle_end_fd(fd, why)               ((void)(fd), (void)(why))
#define settle_end_all(why)                  ((void)(why))
#define settle_never_fd(fd, why, never)      ((void)(fd), (void)(why), (void)(never))
#define settle_foreign(why)                  ((void)(why))
#define settle_stop(why)                     ((void)(why))
#define settle_sandbox()                     ((void)0)
#define fork_announce()                      ((void)0)
#define fork_done()                          ((void)0)
#define fork_announce_vfork()                ((void)0)
#define process_ends()                       ((void)0)
#define execute_write(io)                    ((io)->issue((io), (io)->iov, (io)->count, (io)->off))
#define execute_fallocate(...)               removed_fallocate(__VA_ARGS__)
#define execute_truncate(...)                ((__VA_ARGS__)->issue(__VA_ARGS__))
#define execute_hold_path(dirfd, p, hold)    ((void)(dirfd), (void)(p), (void)(hold))
#define stat_settle(view)                    ((void)(view), false)
#define execute_beside_begins(fd, why, mine) ((void)(fd), (void)(why), (void)(mine))
