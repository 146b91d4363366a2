#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 240
#
# `rlshim observe` on a program for each of the four stalls: the mitigation that takes it away is
# named first, and the stack of the slow calls leads to the function and line of that program.

set -u
SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
export RLSHIM_CONF=/dev/null
# shellcheck source=tests/lab/lab.sh
. "$SRC/tests/lab/lab.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/observe_examples.XXXXXX") || exit 1
lab_at_exit "rm -rf -- '$work'"
threshold=1ms
failures=0
tried=0
notes=()

not_ok() {
    echo "not ok: $1"
    sed -n '/^What would have/,/^[a-z].*: calls by duration/p' "$work/said" | head -n 40
    failures=$((failures + 1))
}

# first NAME REMEDY FUNCTIONS FILE -- PROGRAM...: in the current lab
first() {
    local name=$1 remedy=$2 functions=$3 file=$4 one line where
    shift 5
    tried=$((tried + 1))
    lab_exec timeout 60 "$BUILD/rlshim" observe --library "${SHIM_SO:-$BUILD/librlshim.so}" --set stall_threshold=$threshold \
        -- "$@" >"$work/out" 2>"$work/said" || not_ok "$name: exit status $?: $(head -n 2 "$work/said")"
    one=$(sed -n 's/^  1\. \([^:]*\):.*/\1/p' "$work/said" | head -n 1)
    [[ $one =~ ^($remedy)$ ]] || not_ok "$name: '$one' is named first, not '$remedy'"
    # The first frame in the program itself of the place with the most time.
    read -r where line < <(sed -n "s/^    \(at\|by\) \([a-z_]*\).* (\($file\):\([0-9]*\))\$/\2 \4/p" "$work/said" | head -n 1)
    [[ ${where:-none} =~ ^($functions)$ ]] || not_ok "$name: the slow calls are said to come from '${where:-}', not '$functions'"
    line=${line:-4}
    sed -n "$((line - 3)),$((line + 1))p" "$(find "$SRC/examples" "$SRC/tests/bench" -name "$file")" |
        grep -qE '(read|write|fallocate|sync|open|unlink) *\(' ||
        not_ok "$name: line $line of $file makes no file call"
    echo "$name: $one; $where ($file:$line)"
}

# up WHAT LAB...: a lab, or a note
up() {
    local what=$1 rc
    shift
    "$@" >"$work/lab"
    rc=$?
    [ $rc = 77 ] && notes+=("$what: $(sed 's/^SKIP: //' "$work/lab")")
    [ $rc = 0 ] || [ $rc = 77 ] || not_ok "$what: the lab did not come up: $(cat "$work/lab")"
    return $rc
}

if up "reads beside punches" lab_up xfs 3000 300; then
    first "reads beside punches" "gate = on|split = auto" "punch_one|read_loop|append_loop" one_inode.c -- \
        "$BUILD/examples/one_inode" --dir "$LAB_DIR" --named --seconds 2 --append-size 256M --punch-size 64M
    lab_down
fi
if up "O_TRUNC of empty files" lab_up ext4 1024; then
    threshold=20us # a disk in memory has no flush to wait for
    first "O_TRUNC of empty files" "truncate = elide" "once" vfsmix.c -- \
        "$BUILD/examples/vfsmix" --dir "$LAB_DIR" --seconds 2
    threshold=1ms
    # What this release lacks is not held out as a cure.
    dd if=/dev/zero of="$LAB_DIR/full" bs=1M count=300 2>"$work/out" && sync -f "$LAB_DIR"
    # shellcheck disable=SC2016 # for the other shell
    "$BUILD/rlshim" observe --library "${SHIM_SO:-$BUILD/librlshim.so}" --set stall_threshold=100us -- \
        bash -c ': >"$1"' bash "$LAB_DIR/full" 2>"$work/said"
    grep -A 9 'truncate = replace' "$work/said" | grep -q 'Not in this release' ||
        not_ok "truncating a full file: nothing says that truncate = replace has no effect yet"
    lab_down
fi
if up "syncs of one file" lab_slowdisk ext4 1024 5; then
    first "syncs of one file" "fsync = share" "commit" committers.c -- \
        "$BUILD/examples/committers" --dir "$LAB_DIR" --seconds 1 --threads 16
    lab_down
fi
if up "O_CREAT of one name" lab_slow --lookup-ms 2 --open-ms 2 --create-ms 2 --dir-lock; then
    for i in {0..9}; do : >"$LAB_BACK/old$i"; done # names that are there, and the kernel has not seen
    first "O_CREAT of one name" "create = auto" "work" create_storm.c -- \
        "$BUILD/tests/bench/create_storm" creat "$LAB_DIR" old 10 16
    lab_down
fi

for note in ${notes[@]+"${notes[@]}"}; do
    echo "left out: $note"
done
[ "$failures" = 0 ] || exit 1
[ "$tried" -gt 0 ] || { echo "SKIP: no lab can be had here"; exit 77; }
