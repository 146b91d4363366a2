#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# mutants: breaks the lock manager in one place at a time and demands that a test notices.
#
#   tests/stress/mutants.sh [NUMBER...]       all, or only these
#
# Each number builds the lock manager's tests with RL_MUTATE=NUMBER and runs them, quick ones first,
# until one fails or hangs; 60 s a test. Mutant 0 is the code as it is, which must pass them all.
# timeout: 3600
set -u

SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
CC=${CC:-gcc}
out=$BUILD/mutants
seconds=${MUTANT_SECONDS:-30}

if ! echo 'int main(void) { return 0; }' | "$CC" -x c - -o /dev/null -lcmocka 2>/dev/null; then
    echo "SKIP: no compiler, or no cmocka to link with"
    exit 77
fi
mkdir -p "$out" || exit 1

what=(
    "nothing: the code as it is"
    "free list: the tag of a head does not move"
    "tail: merges over a gap of one block"
    "tail: emptied before its range is in a node"
    "put: the generation does not move"
    "put: does not look at the activation again after its push"
    "overlaps: leaves out the wide list"
    "removal: the generation does not move"
    "pass: throws the tails away"
    "pass: counts as done when it begins"
    "cut: drops the right part"
    "applied: takes along what came meanwhile"
    "pool: refuses the consumer while putters are counted"
    "put: takes the tail of a newer activation for a leftover"
    "overlaps: believes a look during a removal"
    "close: does not look again, and looks believe a closing table"
    "removal: the generation moves before only"
    "removal: walkers over wide are not warned"
    "pass: claims ranges of older activations"
    "stretch: grows over ranges of older activations"
    "want: applies ranges of older activations"
    "cut: the generation does not move"
    "gate: whoever is lost is never forgotten"
    "gate: a lost waiter starves the other side"
    "gate: a waiter does not notice the new era"
    "gate: an exclusive does not wait for pieces"
    "gate: pieces pass waiting exclusives"
    "gate: the turn of the pieces never ends"
    "gate: stale tickets let others out"
    "gate: pieces never get a turn"
    "gate: withdrawing wakes nobody"
    "inodes: look-ups see entries whose key changes"
    "inodes: a lost inserter's lock stays for ever"
    "inodes: an entry with an open table gives way"
    "inodes: an entry with a busy gate gives way"
    "inodes: does not look again under the lock"
    "flight: a round forgets that one of its callers wants a full one"
    "flight: callers take a seat in the round that runs"
    "flight: every round serves"
    "flight: a leader that is gone is waited for"
    "range lock: every range reaches to the end"
    "range lock: does not look at wide ranges"
    "range lock: groups are not marked used"
    "range lock: sleeps without a barrier on the others"
    "range lock: does not know its own thread"
    "range lock: a holder waits for those who wait for it"
    "range lock: waiting ones are passed"
    "range lock: marking itself waiting wakes nobody"
    "range lock: does not look again before it goes"
    "range lock: does not look after its claim"
    "range lock: letting go wakes nobody"
    "range lock: does not follow groups of rooms that ran over"
    "names: two different names meet"
    "names: a lost leader's slot stays its own"
    "names: the end of a flight wakes nobody"
    "names: does not look again under the lock"
    "names: a thread waits for itself"
)
what[75]="leftover: leaves out the tails"
what[76]="leftover: leaves out the wide list"
what[77]="leftover: takes ranges of older activations"
what[78]="leftover: takes what a closed table holds"
what[79]="leftover: merges over a gap of one block"

tests_of() {
    if [ "$1" -eq 0 ]; then
        echo ranges_test range_table_test range_interleave_test range_life_interleave_test range_torture gate_test \
            gate_torture inode_table_test inode_interleave_test single_flight_interleave_test \
            range_lock_test queue_test range_lock_interleave_test range_lock_torture leftover_test name_table_test
    elif [ "$1" -le 21 ]; then
        echo ranges_test range_table_test range_interleave_test range_life_interleave_test range_torture
    elif [ "$1" -le 30 ]; then
        echo gate_test gate_torture
    elif [ "$1" -le 35 ]; then
        echo inode_table_test inode_interleave_test
    elif [ "$1" -le 39 ]; then
        echo single_flight_interleave_test
    elif [ "$1" -ge 75 ] && [ "$1" -le 79 ]; then
        echo leftover_test
    elif [ "$1" -ge 52 ] && [ "$1" -le 59 ]; then
        echo name_table_test
    else
        echo range_lock_interleave_test range_lock_test range_lock_torture
    fi
}

build() {
    local n=$1 name=$2 bin=$3 src mutate=()
    local flags=(-std=gnu11 -O2 -pthread -I"$SRC")

    [ "$n" -eq 0 ] || mutate=(-DRL_MUTATE="$n")
    case $name in
    range_lock_torture) src=("$SRC/tests/stress/$name.c" "$SRC/lockmgr/gate.c") ;;
    *_torture) src=("$SRC/tests/stress/$name.c") ;;
    *_interleave_test | leftover_test) src=("$SRC/tests/unit/$name.c") ;;
    *) src=("$SRC/tests/unit/$name.c" "$SRC"/lockmgr/*.c) ;;
    esac
    "$CC" "${flags[@]}" ${mutate[@]+"${mutate[@]}"} "${src[@]}" -o "$bin" -lcmocka
}

passed=0
failed=0
numbers=("$@")
[ ${#numbers[@]} -gt 0 ] || numbers=("${!what[@]}")
printf '%-7s %-62s %-24s %s\n' mutant "what it breaks" "caught by" seconds
for n in "${numbers[@]}"; do
    by=
    took=
    broken=
    for name in $(tests_of "$n"); do
        bin=$out/$name.$n
        args=()
        if ! build "$n" "$name" "$bin"; then
            broken=$name
            break
        fi
        case $name in
        *_torture) args=(--seconds "$seconds" --seed "$((n + 1))") ;;
        esac
        begin=${EPOCHREALTIME/[.,]/}
        timeout -k 1 60 "$bin" ${args[@]+"${args[@]}"} >"$out/$name.$n.log" 2>&1
        rc=$?
        took=$(((${EPOCHREALTIME/[.,]/} - begin) / 100000))
        rm -f "$bin"
        if [ "$rc" -ne 0 ]; then
            by=$name
            [ "$rc" -ne 124 ] || by="$name (hangs)"
            break
        fi
    done
    if [ -n "$broken" ]; then
        by="does not build: $broken" took=0
        failed=$((failed + 1))
    elif [ "$n" -eq 0 ] && [ -z "$by" ]; then
        by="(rightly nobody)"
        passed=$((passed + 1))
    elif [ "$n" -ne 0 ] && [ -n "$by" ]; then
        passed=$((passed + 1))
    else
        by=${by:-"NOBODY"}
        failed=$((failed + 1))
    fi
    printf '%-7s %-62s %-24s %d.%d\n' "$n" "${what[$n]}" "$by" $((took / 10)) $((took % 10))
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
