#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 60
#
# A stat right after a deferred punch shows times no older than the punch; see times.c.

set -u
SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/times
failures=0

work=$(mktemp -d "${TMPDIR:-/tmp}/times.XXXXXX") || exit 1
trap 'rm -rf -- "$work"' EXIT
"${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -O1 -shared -fPIC -o "$work/slowstat.so" \
    "$SRC/tests/preload/lib/slowstat.c" -ldl || exit 1

try() { # try DIR
    local dir out
    dir=$(mktemp -d "$1/times.XXXXXX" 2>/dev/null) || return
    out=$("$program" "$dir" 0.3) || { echo "not ok: without the shim, in $1: $out"; failures=1; }
    out=$(RLSHIM_CONF=/dev/null RLSHIM_SHARE=private RLSHIM_PUNCH_DELAY=100us LD_PRELOAD=$lib \
        timeout 30 "$program" "$dir" 4) || { echo "not ok: with the shim, in $1"; failures=1; }
    # Long enough for the punch to be applied, and then also for the file to be turned off.
    for ms in 30 300; do
        out+=" $(RLSHIM_CONF=/dev/null RLSHIM_SHARE=private RLSHIM_PUNCH_DELAY=10ms SLOWSTAT_MS=$ms \
            LD_PRELOAD="$lib $work/slowstat.so" timeout 30 "$program" "$dir" 3)" ||
            { echo "not ok: with looks that take $ms ms, in $1"; failures=1; }
    done
    echo "$out"
    [[ $out != *"deferred 0"* ]] || echo "note: no punch was deferred in $1"
    rm -rf -- "$dir"
}

try /dev/shm
try "${TMPDIR:-/tmp}"
[ "$failures" = 0 ]
