#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 240
#
# truncate = elide: what truncations return and leave behind is the same with the shim as without,
# on every file system; where it pays they are elided, and with truncate = sync none is.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/elide
# shellcheck source=tests/lab/lab.sh
. "$SRC/tests/lab/lab.sh"
out=$(mktemp -d "${TMPDIR:-/tmp}/elide.XXXXXX") || exit 1
lab_at_exit "rm -rf -- $out"
export RLSHIM_CONF=/dev/null
failed=0
skipped=

one() { # FS DIR: at least one is elided where WANTED is above 0
    local fs=$1 dir=$2 wanted=$3 elided
    "$program" "$dir" >"$out/plain" 2>"$out/err" || { echo "not ok: $fs: without the shim"; failed=1; return; }
    LD_PRELOAD=$lib "$program" "$dir" >"$out/elide" 2>"$out/count" || { echo "not ok: $fs: with the shim"; failed=1; }
    elided=$(sed -n 's/^elided \([0-9]*\) .*/\1/p' "$out/count")
    if ! diff "$out/plain" "$out/elide"; then
        echo "not ok: $fs: not as without the shim (<)"
        failed=1
    fi
    if ((${elided:-0} < wanted || (wanted == 0 && ${elided:-1} != 0))); then
        echo "not ok: $fs: ${elided:-no count of} elided, expected $wanted or more (0: none)"
        failed=1
    fi
    printf '[path %s/*]\ntruncate = elide\n' "$dir" >"$out/conf"
    RLSHIM_CONF=$out/conf LD_PRELOAD=$lib "$program" "$dir" >"$out/elide" 2>"$out/count" ||
        { echo "not ok: $fs: with settings for a path"; failed=1; }
    elided=$(sed -n 's/^elided \([0-9]*\) .*/\1/p' "$out/count")
    if ! diff "$out/plain" "$out/elide" || ((${elided:-0} < wanted)); then
        echo "not ok: $fs: with settings for a path: ${elided:-no count of} elided, expected $wanted or more"
        failed=1
    fi
    RLSHIM_TRUNCATE=sync LD_PRELOAD=$lib "$program" "$dir" 2>"$out/count" >"$out/sync"
    if ! grep -qx 'elided 0 late 0' "$out/count" || ! diff "$out/plain" "$out/sync"; then
        echo "not ok: $fs: truncate = sync"
        failed=1
    fi
    echo "$fs: $elided elided of $(grep -c '^[^ ]' "$out/plain") cases"
}

while read -r fs wanted; do
    case $fs in
    tmpfs) lab_tmpfs 64 ;;
    *) lab_up "$fs" 320 ;;
    esac || { skipped=$fs; continue; }
    mkdir "$LAB_DIR/d" && one "$fs" "$LAB_DIR/d" "$wanted"
    lab_down
done <<'END'
ext4 17
xfs 8
btrfs 17
tmpfs 0
END
[ "$failed" = 0 ] || exit 1
[ -z "$skipped" ] || { echo "SKIP: no $skipped here; the others were tested"; exit 77; }
