#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# Corners of the core that were wrong once; see corners.c.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/corners
failures=0
notes=

try() { # try DIR
    local dir got
    dir=$(mktemp -d "$1/corners.XXXXXX" 2>/dev/null) || return
    got=$(timeout 40 "$program" "$dir") || { echo "not ok: without the shim, in $1: $got"; failures=1; }
    got=$(RLSHIM_CONF=/dev/null RLSHIM_SHARE=private RLSHIM_PUNCH_DELAY=1s RLSHIM_SPLIT=256K \
        LD_PRELOAD=$lib timeout 40 "$program" "$dir" 2>&1) ||
        { echo "not ok: with the shim, in $1: status $?"; failures=1; }
    echo "$got"
    [[ $got != *"deferred 0"* ]] || notes+=" no punch was deferred in $1;"
    rm -rf -- "$dir"
}

try /dev/shm
try "${TMPDIR:-/tmp}"
[ "$failures" = 0 ] || exit 1
[ -z "$notes" ] || echo "note:$notes"
