#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 2000
#
# Two processes race to create, open, replace and delete one name; every result is one the kernel
# could have given (create_race.c), whatever `create` says. A library that answers from what it
# remembers is caught, and without look-ups and waits under `dedupe` nothing would be tested.
#
# CREATE_RACE_SECONDS: for each of seven runs (2). CREATE_RACE_SEED: the first seed (the clock).

set -u
SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/create_race
seconds=${CREATE_RACE_SECONDS:-2}
seed=${CREATE_RACE_SEED:-$(date +%s)}
export RLSHIM_CONF=/dev/null
work=$(mktemp -d "${TMPDIR:-/tmp}/create_race.XXXXXX") || exit 1
shm=$(mktemp -d /dev/shm/create_race.XXXXXX 2>/dev/null) || shm=$work/memory
# shellcheck source=tests/lab/lab.sh
. "$SRC/tests/lab/lab.sh"
lab_at_exit "rm -rf -- '$work' '$shm'"
mkdir -p "$shm" "$work/disk"
failures=0

not_ok() {
    echo "not ok: $1"
    failures=$((failures + 1))
}

counter() { # counter NAME: over all reports
    cat "$work/reports"/*.json 2>/dev/null | sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" | awk '{ n += $1 } END { print n + 0 }'
}

# races WHAT DIR [VARIABLE=VALUE...] -- [PRELOAD OF THE SECOND PROCESS]
races() {
    local what=$1 dir=$2
    local -a settings=()
    shift 2
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    rm -rf "$work/reports" && mkdir "$work/reports"
    out=$(timeout $((seconds + 120)) env "RLSHIM_REPORT=$work/reports" ${settings[@]+"${settings[@]}"} "$program" "$dir" "$seconds" "$seed" "$@" 2>&1)
    rc=$?
    seed=$((seed + 100000000))
    echo "$what: $(tail -n 1 <<<"$out")"
}

races "without the shim" "$shm" --
[ $rc = 0 ] || not_ok "the kernel itself is found wrong: $out"
for dir in "$shm" "$work/disk"; do
    races "dedupe, $(stat -f -c %T "$dir")" "$dir" "LD_PRELOAD=$lib" RLSHIM_CREATE=dedupe --
    [ $rc = 0 ] || not_ok "$out"
    [ "$(counter create_looked)" -gt 1000 ] || not_ok "dedupe looked $(counter create_looked) times only"
    [ "$(counter create_led)" -gt 0 ] || not_ok "nobody ever went ahead of others"
    races "dedupe beside a process without it, $(stat -f -c %T "$dir")" "$dir" "LD_PRELOAD=$lib" RLSHIM_CREATE=dedupe -- ""
    [ $rc = 0 ] || not_ok "$out"
done
races "auto" "$shm" "LD_PRELOAD=$lib" --
[ $rc = 0 ] || not_ok "$out"
# Where one looks for all.
if lab_slow --lookup-ms 0 --open-ms 0 --create-ms 0 >"$work/said"; then
    races "auto, FUSE" "$LAB_DIR" "LD_PRELOAD=$lib" --
    [ $rc = 0 ] || not_ok "$out"
    [ "$(counter create_waited)" -gt 0 ] || not_ok "on FUSE nobody waited for another"
    lab_down
else
    echo "left out: FUSE: $(sed 's/^SKIP: //' "$work/said")"
fi

"${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -O1 -shared -fPIC -o "$work/staleopen.so" \
    "$SRC/tests/preload/lib/staleopen.c" -ldl || exit 1
seconds=20
races "a library that answers from memory" "$shm" "LD_PRELOAD=$work/staleopen.so" --
[[ $rc == 1 && $out == *"no order of these calls"* ]] || not_ok "a library that is wrong is not noticed: $out"
[ "$failures" = 0 ]
