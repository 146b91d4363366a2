#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# Vectors and lengths that the kernel refuses are refused with the same error through the shim, idle
# and with punches queued, and change nothing; RWF_NOWAIT does not wait for what is queued.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/vectors
dir=$(mktemp -d "${TMPDIR:-/tmp}/vectors.XXXXXX") || exit 1
trap 'rm -rf -- "$dir"' EXIT
failed=0

same() {
    diff "$dir/plain.out" "$dir/$1.out" >"$dir/diff" && cmp "$dir/plain" "$dir/$1" && return
    echo "not ok: $1: differs from a run without the shim:"
    cat "$dir/diff"
    failed=1
}

"$program" "$dir/plain" >"$dir/plain.out" || exit 1
LD_PRELOAD="$lib" RLSHIM_CONF=/dev/null "$program" "$dir/idle" >"$dir/idle.out" || failed=1
same idle
LD_PRELOAD="$lib" RLSHIM_CONF=/dev/null RLSHIM_SHARE=private RLSHIM_PUNCH_DELAY=10s \
    "$program" "$dir/queued" queued >"$dir/queued.out"
status=$?
if [ "$status" = 77 ]; then
    echo "only compared while idle: no punch can be queued in $dir"
    exit "$failed"
fi
[ "$status" = 0 ] || failed=1
grep -v ' = ' "$dir/queued.out"
diff "$dir/plain.out" "$dir/queued.out" || {
    echo "not ok: queued: differs from a run without the shim"
    failed=1
}
[ "$(wc -l <"$dir/plain.out")" -gt 40 ] || failed=1
exit "$failed"
