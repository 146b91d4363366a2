#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 200
#
# Strangers: another process, without rlshim, gets at the file that punches are deferred for: by its
# name, by a descriptor or a map from before the unlink, by one that is sent to it, from another pid
# namespace (strangers.c). With the defaults none of its writes may be lost and none of its reads be
# stale. Where the stranger reaches into the program itself (/proc/PID/fd, pidfd_getfd), which README
# names among what cannot be seen, the figures are shown. In a pid namespace of our own nothing may
# be deferred that somebody outside may have.
set -u
build=${BUILD:-build}
export STRANGERS_SO=${SHIM_SO:-$build/librlshim.so}
prog=$build/tests/preload/strangers
dir=$(mktemp -d "${TMPDIR:-/tmp}/strangers.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
export RLSHIM_CONF=/dev/null
status=0

fail() {
    echo "FAIL: $1"
    status=1
}
run() { # run WAY TRIES [COMMAND...]: leaves $out, $deferred
    local way=$1 tries=$2
    shift 2
    rm -f "$dir"/*.json
    out=$(RLSHIM_REPORT=$dir "$@" "$prog" "$dir" "$way" "$tries" 2>&1)
    rc=$?
    deferred=$(cat "$dir"/*.json 2>/dev/null | sed -n 's/.*"punch_deferred": \([0-9]*\).*/\1/p' | sort -n | tail -n 1)
    deferred=${deferred:-0}
}

run alone 2000 env
[ "$rc" = 0 ] || fail "alone: $out"
if [ "$deferred" = 0 ]; then
    echo "SKIP: without any stranger nothing is deferred here (auto needs root and all of /proc)"
    exit 77
fi
for way in named before mapped passed space; do
    run "$way" 3000 env
    [ "$rc" = 77 ] && { echo "$out"; continue; }
    [ "$rc" = 0 ] || fail "$way: $out"
    echo "$out, $deferred deferred"
    # Sent late: what was deferred before was settled by the sending.
    [ "$way" = passed ] && [ "$deferred" = 0 ] && fail "$way: nothing was ever deferred, so nothing was tried"
    [ "$way" = passed ] || [ "$deferred" = 0 ] || fail "$way: $deferred punches deferred beside a stranger"
done
for way in fd taken; do
    run "$way" 1000 env
    [ "$rc" -le 1 ] || fail "$way: $out"
    echo "cannot be seen: $out, $deferred deferred"
done
if unshare --pid --fork --mount-proc true 2>/dev/null; then
    run alone 500 unshare --pid --fork --mount-proc
    [ "$rc" = 0 ] || fail "alone in a pid namespace: $out"
    [ "$deferred" = 0 ] || fail "alone in a pid namespace: $deferred deferred, and nobody knows who is outside"
fi
exit "$status"
