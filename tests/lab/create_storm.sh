#!/bin/bash
# SPDX-License-Identifier: MIT
#
# O_CREAT storms on a FUSE server whose every look-up, open and creation takes 2 ms and whose
# creations keep the directory to themselves: what each way costs, and what the server got to do.
# The server's counts and the shim's must agree; of times, only a gain that is far
# from the limit is asserted, since on a busy machine 32 processes or threads wait for it. With
# figures, intervals and the other limits: PAIRS=12 tests/lab/create_storm.sh
# timeout: 300

# shellcheck disable=SC2317 # what `both` calls
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SRC=${SRC:-$(cd "$here/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
# shellcheck source-path=SCRIPTDIR source=lab.sh disable=SC1091
. "$here/lab.sh"
# shellcheck source-path=SCRIPTDIR source=../bench/lib.sh disable=SC1091
. "$SRC/tests/bench/lib.sh"
storm=$BUILD/tests/bench/create_storm
pairs_tool=$BUILD/tests/bench/pairs
pairs=${PAIRS:-3}
measuring=${PAIRS:+1}
names=20 workers=16
run=0 bad=0

[ -x "$storm" ] || { echo "SKIP: $storm is not built"; exit 77; }
lab_slow --lookup-ms 2 --open-ms 2 --create-ms 2 --dir-lock || exit
work=$(mktemp -d) || exit 1
lab_at_exit "rm -rf -- '$work'"
use_defaults "$work"

fail() {
    echo "FAIL: $*"
    bad=1
}

counted() { # OPERATION
    awk -v op="$1" '$1 == op { print $2 }' "$LAB_COUNTS"
}

# Files that the kernel has not looked up yet.
files() { # PREFIX
    local i
    for ((i = 0; i < names; i++)); do : >"$LAB_BACK/$1$i"; done
}

# storm HOW WAY [OPTION...]: HOW is plain, or a value of the setting `create`. Sets ms, list_ms, and
# what the server counted meanwhile: lookups, opens, creates.
storm() {
    local how=$1 way=$2 out before
    shift 2
    prefix=${prefix:-r$((run++)).}
    rm -rf "$work/reports" && mkdir "$work/reports"
    before=("$(counted lookup)" "$(counted open)" "$(counted create)")
    if [ "$how" = plain ]; then
        out=$(run_plain "$storm" "$@" "$way" "$LAB_DIR" "$prefix" $names $workers)
    else
        out=$(RLSHIM_CREATE=$how run_shimmed "$work/reports" "$SHIM_SO" \
            "$storm" "$@" "$way" "$LAB_DIR" "$prefix" $names $workers)
    fi || fail "an open failed: $how $way $*"
    prefix=
    ms=$(json_get ms <<<"$out")
    list_ms=$(json_get list_ms <<<"$out")
    lookups=$(($(counted lookup) - before[0]))
    opens=$(($(counted open) - before[1]))
    creates=$(($(counted create) - before[2]))
}
prefix=

existing() { # HOW WAY [OPTION...]
    prefix=r$((run++)).
    files "$prefix"
    storm "$@"
    [ "$creates" = 0 ] || fail "$creates creations of names that existed: $*"
}

report() { # COUNTER WANTED WHAT
    local got
    got=$(report_sum "$work/reports" "$1")
    [ "$got" = "$2" ] || fail "$3: $1 is $got, not $2"
}

# compare WHAT LIMIT < pairs: prints the ratio and its interval; fails above LIMIT, if there is one.
compare() {
    local out ratio
    out=$("$pairs_tool" </dev/stdin)
    printf '%-66s %s\n' "$1" "$out"
    [ -n "$2" ] || return 0
    ratio=$(sed -n 's/.*B\/A *\([0-9.]*\).*/\1/p' <<<"$out")
    awk -v r="$ratio" -v l="$2" 'BEGIN { exit !(r > 0 && r <= l) }' || fail "$1: $ratio, more than $2"
}

# One measurement of each kind that is compared; what the server got to do is checked at once.
read_only() { # [OPTION...]
    existing plain ro "$@"
    ro=$ms ro_list=$list_ms ro_lookups=$lookups
}
looked_up() { # [OPTION...]
    existing auto creat "$@"
    report create_found "$all" "existing names $*"
    report create_led 0 "existing names $*"
    report create_retried 0 "existing names $*"
    [ "$opens" = "$all" ] || fail "$opens opens of $all at the server"
    with=$ms with_list=$list_ms with_lookups=$lookups
}
queued() {
    existing plain creat
    without=$ms
}
made_plain() { # [OPTION...]
    storm plain creat "$@"
    without=$ms
}
made_once() {
    storm auto creat
    with=$ms
    [ "$creates" = "$names" ] || fail "$creates creations of $names new names"
    led=$(report_sum "$work/reports" create_led)
    [ "$led" -ge "$names" ] || fail "only $led opens went ahead for $names new names"
}
made_each() {
    storm auto creat --own
    with=$ms
    [ "$creates" = "$all" ] || fail "$creates creations of $all new names"
}

# both A B: one after the other, the other way round every second time.
both() {
    if ((p % 2)); then $2 && $1; else $1 && $2; fi
}

all=$((names * workers))
for ((p = 0; p < pairs; p++)); do
    both "read_only --list" "looked_up --list"
    echo "$ro $with" >>"$work/ro"
    echo "$ro_list $with_list" >>"$work/ro_list"
    [ "$with_lookups" -le $((ro_lookups + names)) ] ||
        fail "$with_lookups look-ups, and $ro_lookups for read-only opens"
    both queued looked_up
    echo "$without $with" >>"$work/gain"
    both made_plain made_once
    echo "$without $with" >>"$work/new"
    both "made_plain --own" made_each
    echo "$without $with" >>"$work/own"
    both "read_only --processes" "looked_up --processes"
    echo "$ro $with" >>"$work/proc"
done

existing auto trunc
report create_found "$all" "existing names, with O_TRUNC"
existing auto fopen
report create_found "$all" "existing names, fopen"
existing sync creat
report create_found 0 "create = sync"

echo "$workers workers, the same $names names, 2 ms a request; A, then B:"
compare "existing names: read-only, O_CREAT with the shim" "${measuring:+1.4}" <"$work/ro"
compare "  a listing meanwhile" "${measuring:+2.5}" <"$work/ro_list"
compare "existing names, O_CREAT: without the shim, with it" 0.7 <"$work/gain"
compare "new names: without the shim, with it" 0.75 <"$work/new"
compare "new names, each worker its own: without the shim, with it" "${measuring:+1.25}" <"$work/own"
compare "existing names, processes: read-only, O_CREAT with the shim" "${measuring:+1.4}" <"$work/proc"
exit "$bad"
