/* SPDX-License-Identifier: MIT */
/* execute_impl: what the execute_*.c files share and nobody else needs. */
#ifndef SHIM_EXECUTE_IMPL_H
#define SHIM_EXECUTE_IMPL_H

#include <fcntl.h>
#include <unistd.h>

#include "execute.h"
#include "gate_hold.h"

static inline int open_flags(int fd)
{
    return (int)rl_raw(SYS_fcntl, fd, F_GETFL);
}

static inline off_t position(int fd)
{
    return (off_t)rl_raw(SYS_lseek, fd, 0L, SEEK_CUR);
}

#endif
