/* SPDX-License-Identifier: MIT */
/*
 * timed_io: reads and writes, timed. They come by the million, so they get by with less than other
 * calls: the file is looked up in the cache of descriptors, and only a slow one is looked at.
 *
 * All of it inline: on its way back from a system call the processor predicts no jump and no return
 * (it forgets them on purpose), and each costs 10 to 15 ns.
 */
#ifndef SHIM_TIMED_IO_H
#define SHIM_TIMED_IO_H

#include "observe_impl.h"

struct timed_io {
    uint64_t start, bytes; /* bytes: that a write leaves dirty */
    enum act act;
    int fd;
    uint32_t file;
};

static inline __attribute__((always_inline)) void timed_io_over(const struct timed_io *t)
{
    uint64_t ns = clock_ns(t->start, clock_ticks());
    unsigned bucket = hist_bucket(ns);
    struct observed_file *f = &observation->file[t->file];

    observe_count(t->act, ns, bucket);
    rl_add_64(&f->hist[bucket], 1);
    if (t->bytes != 0) {
        rl_add_64(&f->dirty_bytes, t->bytes);
        rl_add_64(&observation->dirty_all_bytes, t->bytes);
    }
    if (unlikely(ns >= observe_slow_ns))
        observe_io_slow(t->act, t->fd, t->start, ns, t->file, bucket);
}

/* Until the end of the block. The file is not FILE_NOT. */
#define TIMED_IO(act_, fd_, file_, bytes_)                                                         \
    const struct timed_io timed_ __attribute__((unused, cleanup(timed_io_over))) = {               \
        .act = (act_), .fd = (fd_), .file = (file_), .bytes = (bytes_), .start = clock_ticks()}

#endif
