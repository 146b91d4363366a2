#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 600
#
# stress-ng's file stressors with --verify, without the shim, with it, and with everything forced on:
# each has to end as without, and nothing may be said to have failed. What does not pass without the
# shim (no such stressor here, no permission) is skipped.
#
# OTHERS_SECONDS  for each stressor and mode (1)      OTHERS_DIR  where files go (/var/tmp)

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=tests/others/lib.bash
. "$SRC/tests/others/lib.bash"
others_begin stress-ng
seconds=${OTHERS_SECONDS:-1}

for stressor in fpunch fallocate open unlink link rename hdd iomix readahead seek sync-file copy-file dup mmap aio \
    aiol io-uring sendfile splice tee flock fiemap filename fstat lease utime; do
    options=()
    case $stressor in
    hdd) options=(--hdd-bytes 16M) ;;
    iomix) options=(--iomix-bytes 16M) ;;
    seek) options=(--seek-size 8M) ;;
    readahead) options=(--readahead-bytes 8M) ;;
    sync-file) options=(--sync-file-bytes 8M) ;;
    fallocate) options=(--fallocate-bytes 16M) ;;
    mmap) options=(--mmap-bytes 8M --mmap-file) ;;
    esac
    others_three "stress-ng $stressor" stress-ng --temp-path "$others_dir" --verify --no-rand-seed --timeout "$seconds" \
        --"$stressor" 2 "${options[@]}"
done
others_end
