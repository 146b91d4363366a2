/* SPDX-License-Identifier: MIT */
/*
 * layout: makes a file of stamped blocks (blocks.h), on disk and out of the page cache, so that
 * punches free something and reads are real. Header only; ends the program where it cannot.
 */
#ifndef EXAMPLES_LAYOUT_H
#define EXAMPLES_LAYOUT_H

#include <fcntl.h>
#include <unistd.h>

#include "blocks.h"
#include "latency.h"
#include "tool.h"

#define LAYOUT_PIECE_BYTES (4 * MIB)
#define LAYOUT_MAX_NS      (90u * 1000000000ull)

/*
 * The ranges are written through the page cache (any size of device block, any file system) and
 * dropped from it. The size is set first: XFS would otherwise preallocate past the end, and
 * st_blocks could not be predicted.
 */
static inline int lay_out(const char *path, uint64_t data_bytes, uint64_t size_bytes)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        die(3, "cannot create %s: %s: choose a directory with --dir", path, strerror(errno));
    if (ftruncate(fd, (off_t)size_bytes))
        die(3, "cannot set the size of %s: %s", path, strerror(errno));

    char *buf = big_buffer(LAYOUT_PIECE_BYTES);
    uint64_t begin = now_ns(), at = 0;
    block_fill(buf, LAYOUT_PIECE_BYTES);
    while (at < data_bytes) {
        uint64_t left = data_bytes - at;
        uint64_t piece = left < LAYOUT_PIECE_BYTES ? left : LAYOUT_PIECE_BYTES;
        block_stamp(buf, piece, at, BLOCK_BYTES);
        ssize_t put = pwrite(fd, buf, piece, (off_t)at);
        if (put <= 0 || put % BLOCK_BYTES)
            die(3, "cannot lay out %s: %s", path, put < 0 ? strerror(errno) : "short write");
        at += (uint64_t)put;
        bool sync_now = at >= data_bytes || at / LAYOUT_PIECE_BYTES % 16 == 0;
        if (sync_now && fdatasync(fd))
            die(3, "cannot lay out %s: %s", path, strerror(errno));
        if (now_ns() - begin > LAYOUT_MAX_NS)
            die(3, "writing %llu MiB to %s takes more than 90 s: use smaller sizes",
                mib(data_bytes), path);
    }
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    munmap(buf, LAYOUT_PIECE_BYTES);
    return fd;
}

#endif
