#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# A thousand signals a second whose handler does I/O, the same with jumps out of calls, and children
# of every kind, while threads punch and write: every block holds what it should; see storm.c.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/storm
failures=0
notes=

# try DIR: in memory, where a punch is cheap, and on a disk, where there is a gate.
try() {
    local dir got kind
    dir=$(mktemp -d "$1/storm.XXXXXX" 2>/dev/null) || return
    for kind in signals jumps forks; do
        timeout 20 "$program" "$dir" "$kind" 0.5 >"$dir/out" ||
            { echo "not ok: without the shim, $kind in $1: $(head -n 3 "$dir/out")"; failures=1; }
        got=$(RLSHIM_CONF=/dev/null RLSHIM_SHARE=private LD_PRELOAD=$lib \
            timeout 40 "$program" "$dir" "$kind" 2.5 2>&1) ||
            { echo "not ok: $kind in $1: status $?"; failures=1; }
        echo "$kind: $got"
        # Jumps out of calls leave them under way for all one knows, and nothing is turned on.
        [ "$kind" = jumps ] || [[ $got != *"deferred 0"* ]] ||
            notes+=" no punch was deferred beside $kind in $1;"
    done
    rm -rf -- "$dir"
}

try /dev/shm
try "${TMPDIR:-/tmp}"
[ "$failures" = 0 ] || exit 1
[ -z "$notes" ] || echo "note:$notes"
