#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 60
#
# Another client removes or replaces what the kernel still trusts to be there, on FUSE: making the name
# once more gives what it gives without the library, whatever `create` says. See create_stale.c.

set -u
SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
export RLSHIM_CONF=/dev/null
# shellcheck source=tests/lab/lab.sh
. "$SRC/tests/lab/lab.sh"
lab_slow --lookup-ms 1 --open-ms 1 --create-ms 1 --cache-s 20 || exit
work=$(mktemp -d "${TMPDIR:-/tmp}/create_stale.XXXXXX") || exit 1
lab_at_exit "rm -rf -- '$work'"
failed=0

for setting in - auto dedupe sync; do
    mkdir "$LAB_BACK/$setting"
    run=(env)
    [ "$setting" = - ] || run+=("RLSHIM_CREATE=$setting" "LD_PRELOAD=$lib" "RLSHIM_REPORT=$work")
    timeout 20 "${run[@]}" "$BUILD/tests/preload/create_stale" "$LAB_DIR/$setting" "$LAB_BACK/$setting" \
        >"$work/out.$setting" 2>&1 || { echo "not ok: create = $setting: exit status $?"; failed=1; }
    if ! diff "$work/out.-" "$work/out.$setting" >"$work/diff"; then
        echo "not ok: create = $setting: not as without the library"
        cat "$work/diff"
        failed=1
    fi
done
[ "$(grep -c removed "$work/out.-")" = 5 ] || { echo "not ok: the plain run: $(cat "$work/out.-")"; failed=1; }
cat "$work"/*.json | grep -q '"create_found": *[1-9]' || { echo "not ok: nothing was looked for"; failed=1; }
exit $failed
