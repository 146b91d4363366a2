/* SPDX-License-Identifier: MIT */
/*
 * tune: settings changed in a running process (`rlshim set`, `rlshim reload`).
 *
 * The command switches the library off and waits until nothing is queued, writes what it wants into
 * rl_order, and makes rl_control CONTROL_ORDERED. The next thread that asks whether mitigations may
 * act takes the order, and switches on again. So nothing is needed of a process that has nothing to
 * do, and no thread is interrupted.
 *
 * A change counts as if an RLSHIM_ variable had said it: above the file, [path] sections too. The
 * configuration is made anew in memory that nobody reads, then it is the one in use; who still
 * reads the one before finds it as it was, until the change after the next.
 */
#ifndef SHIM_TUNE_H
#define SHIM_TUNE_H

#include <stdbool.h>
#include <stdint.h>

#include "config.h"

/* Values of rl_control beside 0 (on) and 1 (off). */
#define CONTROL_ORDERED 2u
#define CONTROL_TAKING  3u

#define ORDER_VERSION 1

enum order_result { ORDER_WAITS, ORDER_TAKEN, ORDER_REFUSED };

struct rl_order {
    uint32_t version; /* ORDER_VERSION; another: do not touch */
    uint32_t result;  /* enum order_result */
    char file[1024];  /* an absolute path: read this file instead of the one in use; "" no */
    char set[2048];   /* "KEY=VALUE\n"... */
    char reason[512]; /* of ORDER_REFUSED, NUL-terminated */
};

/* Called where rl_control is not 0: may mitigations act now? Takes an order if there is one. */
bool tune_taken(void);

/* In a forked child: an order that another thread was taking is dropped. */
void tune_forked(void);

/* May it be changed in a running process? Others are read at its start only. row: of cfg_rows. */
static inline bool tune_may(int row)
{
    if (cfg_rows[row].path_offset != 0)
        return false;
    return cfg_rows[row].per_path || row == CFG_ROW_evict_bytes_max ||
           row == CFG_ROW_evict_files_max || row == CFG_ROW_evict_rate_bytes ||
           row == CFG_ROW_writeback_budget_bytes;
}

#endif
