#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 100
#
# A stranger writes into punched ranges of a named file, 10,000 times: with the defaults nothing may
# be lost. What happens with share = private, the operator's word that there is no stranger, is shown
# for comparison: there his writes may be destroyed, unless he is noticed first.
set -u
build=${BUILD:-build}
so=${SHIM_SO:-$build/librlshim.so}
dir=$(mktemp -d "${TMPDIR:-/tmp}/stranger.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT

if ! LD_PRELOAD=$so "$build/tests/preload/stranger" "$dir" 10000; then
    echo "FAIL: with the defaults a write that came after the punch is gone"
    exit 1
fi
if out=$(RLSHIM_SHARE=private LD_PRELOAD=$so "$build/tests/preload/stranger" "$dir" 3000); then
    echo "with share = private, where this is the operator's own risk: $out (seen in time)"
else
    echo "with share = private, where this is the operator's own risk: $out"
fi
exit 0
