#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 180
#
# Every way to look at a file, to hand it over or to leave applies a queued punch first, and calls
# that are none of its business do not. The entries are in settles.def.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/settles
dir=$(mktemp -d "${TMPDIR:-/tmp}/settles.XXXXXX") || exit 1
trap 'rm -rf -- "$dir"' EXIT

# share = private: what is tested is what ends a deferral, not what it needs to begin.
with_shim() {
    env RLSHIM_SHARE=private RLSHIM_PUNCH_DELAY=10s "$@"
}

with_shim LD_PRELOAD="$lib" "$program" "$dir"
status=$?
if [ "$status" = 77 ]; then
    echo "SKIP: no punch can be queued in $dir (no ext4, XFS, btrfs or tmpfs, or no worker)"
    exit 77
fi
[ "$status" = 0 ] || exit 1

# stat calls: only with stat = settle.
with_shim RLSHIM_STAT=settle LD_PRELOAD="$lib" "$program" "$dir" exact_ || exit 1
