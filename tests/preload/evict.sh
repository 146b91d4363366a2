#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 240
#
# evict = defer: what a program sees of deleting, replacing and closing big files is the same as
# without the shim, and they were held where that pays; with evict = sync nothing is; the bounds
# hold.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/evict
# shellcheck source=tests/lab/lab.sh
. "$SRC/tests/lab/lab.sh"
out=$(mktemp -d "${TMPDIR:-/tmp}/evict.XXXXXX") || exit 1
lab_at_exit "rm -rf -- $out"
export RLSHIM_CONF=/dev/null
failed=0
skipped=
exact=

not_ok() {
    echo "not ok: $1"
    failed=1
}

with() { # SETTING...: the program with the shim
    env "$@" LD_PRELOAD="$lib" "$program" "$LAB_DIR/d" $exact >"$out/with" 2>"$out/held"
}

held_for() { # WHAT
    sed -n "s/^held \([0-9]*\): $1\$/\1/p" "$out/held"
}

one() { # FS HELD: 1 where it pays
    local what
    exact=
    [ "$1" != ext4 ] || exact=exact
    "$program" "$LAB_DIR/d" $exact >"$out/plain" 2>/dev/null || { not_ok "$1: without the shim"; cat "$out/plain"; return; }
    with RLSHIM_EVICT_BYTES_MAX=1G RLSHIM_EVICT_MIN=0 || not_ok "$1: with the shim: $(tail -n 1 "$out/held")"
    diff "$out/plain" "$out/with" || not_ok "$1: not as without the shim (<)"
    for what in unlink unlinkat remove 'rename over' 'renameat over' 'renameat2 over' \
        'unlink by a relative name' 'close of an unlinked file' 'close of an O_TMPFILE file' \
        'unlink with descriptors exhausted' 'dup2 over the last descriptor' 'dup3 over it' \
        'close_range' fclose freopen; do
        [ "$(held_for "$what")" = "$2" ] || not_ok "$1: $what: held $(held_for "$what"), expected $2"
    done
    [ "$2" = 0 ] || grep -q '^the thread that frees was seen' "$out/held" ||
        not_ok "$1: no thread that frees was there to be looked at"
    what='closefrom, two of them'
    [ "$(held_for "$what")" = $((2 * $2)) ] || not_ok "$1: $what: held $(held_for "$what")"
    for what in 'dup2 of nothing over it' 'close_range that only marks it' 'rename to itself' \
        'unlinkat AT_REMOVEDIR' 'one of two names' 'a symbolic link' 'no such file' \
        'renameat2 RENAME_NOREPLACE' 'renameat2 RENAME_EXCHANGE' 'a directory' 'close of nothing'; do
        [ "$(held_for "$what")" = 0 ] || not_ok "$1: $what: held $(held_for "$what"), expected 0"
    done
    with RLSHIM_EVICT=sync || not_ok "$1: evict = sync"
    diff "$out/plain" "$out/with" || not_ok "$1: evict = sync: not as without the shim (<)"
    grep -qx 'held 0' "$out/held" || not_ok "$1: evict = sync: $(tail -n 1 "$out/held")"
    with RLSHIM_EVICT_BYTES_MAX=1G RLSHIM_EVICT_MIN=1M || not_ok "$1: the defaults"
    diff "$out/plain" "$out/with" || not_ok "$1: the defaults: not as without the shim (<)"
    with RLSHIM_EVICT_BYTES_MAX=16M RLSHIM_EVICT_MIN=1M || not_ok "$1: evict_bytes_max"
    grep -qx 'held 0' "$out/held" || not_ok "$1: held in spite of evict_bytes_max: $(tail -n 1 "$out/held")"
    with RLSHIM_EVICT_MIN=1G || not_ok "$1: evict_min"
    grep -qx 'held 0' "$out/held" || not_ok "$1: held in spite of evict_min: $(tail -n 1 "$out/held")"
}

while read -r fs held; do
    case $fs in
    tmpfs) lab_tmpfs 512 ;;
    *) lab_up "$fs" 512 ;;
    esac || { skipped=$fs; continue; }
    mkdir "$LAB_DIR/d" && one "$fs" "$held"
    echo "$fs: done"
    lab_down || not_ok "$fs: cannot be unmounted"
done <<'END'
ext4 1
xfs 1
btrfs 1
tmpfs 0
END
[ "$failed" = 0 ] || exit 1
[ -z "$skipped" ] || { echo "SKIP: no $skipped here; the others were tested"; exit 77; }
