#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 150
#
# rlshim bench: measures, says what rlshim did, stays within the room there is, and leaves nothing
# behind, however it ends.

set -u

SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
rlshim=$BUILD/rlshim
. "$SRC/tests/lab/lab.sh"
out=$(mktemp -d "/dev/shm/bench_cmd.XXXXXX") || exit 1
lab_at_exit "rm -rf '$out'"
trap 'rm -rf "$out"' EXIT
failures=0
unset LD_PRELOAD
export RLSHIM_CONF=/dev/null

not_ok() {
    echo "not ok: $1"
    failures=$((failures + 1))
}
same() { # same WHAT EXPECTED GOT
    [ "$2" = "$3" ] || not_ok "$1: expected '$2', got '$3'"
}
has() { # has WHAT FILE PATTERN
    grep -q -- "$3" "$2" || not_ok "$1: '$3' is not in: $(cat "$2")"
}
complains() { # complains STATUS PATTERN ARGUMENT...: one line on stderr, nothing else
    local want=$1 pattern=$2
    shift 2
    "$rlshim" bench "$@" >"$out/stdout" 2>"$out/stderr" </dev/null
    same "status of bench $*" "$want" $?
    same "stdout of bench $*" "" "$(cat "$out/stdout")"
    same "lines of bench $*" 1 "$(wc -l <"$out/stderr")"
    has "bench $*" "$out/stderr" "$pattern"
}

complains 2 "no directory"
complains 2 "one directory" /tmp /var
complains 2 "no option '--fast'" --fast /tmp
complains 2 "from 0.1 to 5" --seconds 9 /tmp
complains 2 "'banana' is not a value" --set punch=banana /tmp
complains 1 "/absent" --library "$lib" "$out/absent"
complains 1 "lies in memory" --library "$lib" "$out"

lab_up ext4 1024 || exit
dir=$LAB_DIR
left() { # left WHAT: nothing may be
    local found
    found=$(find "$dir" -mindepth 1 ! -name lost+found)
    same "left by $1" "" "$found"
}

# --- what it prints; rlshim acted where it is on, and did not where it is switched off -------------

"$rlshim" bench --library "$lib" --seconds 0.3 --set truncate=sync "$dir" >"$out/table" 2>"$out/err"
same "bench" 0 $?
has bench "$out/table" "ext4"
has bench "$out/table" "RLSHIM_TRUNCATE=sync"
has bench "$out/table" "rlshim did nothing here (truncate)"
has bench "$out/table" "(gate, split)"
has bench "$out/table" "longest read "
if grep -q "did nothing here (gate, split)" "$out/table"; then
    not_ok "no big write went in pieces: $(cat "$out/table")"
fi
has "progress" "$out/err" "without"
same "lines wider than a terminal" "" "$(awk 'length > 80 && !/^settings|^\//' "$out/table")"
left "a run"

# --- small, read-only and interrupted ----------------------------------------------------------------

"$rlshim" bench --library "$lib" --seconds 5 --quiet "$dir" >"$out/table" 2>"$out/err" &
pid=$!
for _ in $(seq 100); do
    [ -n "$(find "$dir" -name one)" ] && break
    sleep 0.05
done
sleep 0.3
kill -TERM "$pid"
wait "$pid"
same "status after SIGTERM" 143 $?
has "SIGTERM" "$out/err" "nothing is left"
left "an interrupted run"

free=$(($(stat -f -c '%a * %S' "$dir") / 1048576))
fallocate -l $((free - 300))M "$dir/full" || not_ok "the lab's disk could not be filled"
complains 1 "MiB free; it needs" --library "$lib" "$dir"
rm -f "$dir/full"
left "a refused run"
mount -o remount,ro "$dir" && complains 1 "read-only" --library "$lib" "$dir"

if [ "$failures" != 0 ]; then
    echo "$failures checks failed"
    exit 1
fi
echo "all checks hold"
