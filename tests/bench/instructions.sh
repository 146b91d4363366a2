#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# instructions.sh [--json]: how many instructions a cached 4 KiB pread executes in user space,
# without and with the shim, counted by callgrind; fails above a difference of 30
# (INSTRUCTIONS_MAX). A count does not depend on the machine's load, unlike a time.
# Two runs of different length are subtracted, so start-up and exit are not in it.

set -u
SRC=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 2
# shellcheck source=tests/bench/lib.sh
. "$SRC/tests/bench/lib.sh"
limit=${INSTRUCTIONS_MAX:-30}
short=5000
long=105000

command -v valgrind >/dev/null || { echo "SKIP: valgrind is not installed"; exit 77; }
[[ -f $SHIM_SO ]] || { echo "SKIP: $SHIM_SO is not built"; exit 77; }
SHIM_SO=$(realpath -- "$SHIM_SO")
loop=$(find_tool pread_loop tests/bench/pread_loop.c) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# collected COUNT [VARIABLE=VALUE...]: instructions of a whole run
collected() {
    local count=$1
    shift
    env -u LD_PRELOAD "$@" valgrind --tool=callgrind --callgrind-out-file=/dev/null \
        "$loop" "$work/file" "$count" 2>"$work/log" >"$work/out" || {
        echo "instructions.sh: the run under callgrind failed:" >&2
        tail -n 5 "$work/log" >&2
        return 1
    }
    sed -n 's/.*Collected *: *\([0-9]*\).*/\1/p' "$work/log"
}

: >"$work/empty.conf"
shim=("LD_PRELOAD=$SHIM_SO" "RLSHIM_CONF=$work/empty.conf" "RLSHIM_REPORT=$work")
a1=$(collected $short) && a2=$(collected $long) || exit 1
b1=$(collected $short "${shim[@]}") && b2=$(collected $long "${shim[@]}") || exit 1
[[ -n $a1 && -n $a2 && -n $b1 && -n $b2 ]] || { echo "callgrind printed no count" >&2; exit 1; }
if ! why=$(acted "$work") && [[ ${CALIBRATE:-0} != 1 ]]; then
    echo "FAIL: $why"
    exit 1
fi
per_call() {
    awk -v a="$1" -v b="$2" -v n=$((long - short)) 'BEGIN { printf "%.1f\n", (b - a) / n }'
}
plain=$(per_call "$a1" "$a2")
with=$(per_call "$b1" "$b2")
more=$(awk -v a="$plain" -v b="$with" 'BEGIN { printf "%.1f\n", b - a }')
if [[ ${1:-} == --json ]]; then
    printf '{"plain":%s,"shim":%s}\n' "$plain" "$with"
else
    printf 'cached 4 KiB pread: %s instructions plain, %s with the shim: %s more (limit %s)\n' \
        "$plain" "$with" "$more" "$limit"
fi
awk -v m="$more" -v l="$limit" 'BEGIN { exit !(m <= l) }' || { echo "FAIL: more than $limit" >&2; exit 1; }
