#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 240
#
# Cancellation, jumps out of handlers, handlers that do I/O, and every way to end, while writes go in
# pieces and punches are queued; see cancel.c.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/cancel
failures=0
notes=

# try DIR: in memory, where a punch is cheap, and on a disk, where there is a gate.
try() {
    local dir got status
    dir=$(mktemp -d "$1/cancel.XXXXXX" 2>/dev/null) || return
    timeout 100 "$program" "$dir" >/dev/null || { echo "not ok: without the shim, in $1"; failures=1; }
    got=$(RLSHIM_CONF=/dev/null RLSHIM_SHARE=private RLSHIM_SPLIT=256K LD_PRELOAD=$lib \
        timeout 100 "$program" "$dir" 2>&1)
    status=$?
    echo "$got"
    if [ "$status" != 0 ]; then
        echo "not ok: with the shim, in $1: exit status $status"
        failures=1
    fi
    [[ $got != *"deferred 0"* ]] || notes+=" no punch was deferred in $1;"
    [[ $got != *"split 0"* ]] || notes+=" no write was split in $1;"
    rm -rf -- "$dir"
}

try /dev/shm
try "${TMPDIR:-/tmp}"
[ "$failures" = 0 ] || exit 1
[ -z "$notes" ] || echo "note:$notes"
