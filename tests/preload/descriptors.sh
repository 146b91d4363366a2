#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# Descriptors that are closed, reused, replaced, passed on and inherited while punches are queued;
# see descriptors.c.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/descriptors
dir=$(mktemp -d /dev/shm/descriptors.XXXXXX 2>/dev/null || mktemp -d "${TMPDIR:-/tmp}/descriptors.XXXXXX") || exit 1
trap 'rm -rf -- "$dir"' EXIT

"$program" "$dir" 1 || { echo "not ok: without the shim"; exit 1; }
got=$(RLSHIM_CONF=/dev/null RLSHIM_SHARE=private LD_PRELOAD=$lib "$program" "$dir" "${1:-5}")
status=$?
echo "$got"
[ "$status" = 0 ] || { echo "not ok: with the shim: exit status $status"; exit 1; }
if [[ $got == *"deferred 0" ]]; then
    echo "SKIP: no punch is deferred in $dir ($(stat -f -c %T "$dir")): only inline ones were tested"
    exit 77
fi
