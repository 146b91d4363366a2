#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 180
#
# After calls that look at free space, at mounts, or that start another program, what this program
# deleted before is free; other calls do not wait for it. The entries are in held.def.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
# shellcheck source=tests/lab/lab.sh
. "$SRC/tests/lab/lab.sh"
export RLSHIM_CONF=/dev/null

lab_up ext4 512 || exit
mkdir "$LAB_DIR/d" || exit 1
# The first file is freed at once, and then nothing for 64 MiB / 16 MiB/s.
RLSHIM_EVICT_MIN=0 RLSHIM_EVICT_BYTES_MAX=1G RLSHIM_EVICT_RATE=16M RLSHIM_EVICT_HOLD_MAX=10s \
    LD_PRELOAD="$lib" "$BUILD/tests/preload/held" "$LAB_DIR/d" "$@"
status=$?
[ "$status" != 77 ] || echo "not ok: no deleted file is held at all"
[ "$status" = 0 ] || exit 1
