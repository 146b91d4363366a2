#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 300
#
# Buffered writes in pieces on XFS (share = private): nobody may see that they are pieces (whole.c).
# The counters say that they were; with one of the rules left out (RL_MUTANT in shim/whole.c) the
# same program does see it.
#
# WHOLE_SECONDS: of each run (2). WHOLE_MUTANTS: which rules (87; 88 may take minutes to show; without 86 a read would have
# to be stopped for a whole piece between its look and the kernel's lock).
set -u

SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
CC=${CC:-gcc}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/whole
seconds=${WHOLE_SECONDS:-2}
read -r -a mutants <<<"${WHOLE_MUTANTS:-87}"

# Runs itself inside the lab, which knows the directory only then.
if [ -z "${WHOLE_INSIDE:-}" ]; then
    export WHOLE_INSIDE=1
    "$SRC/tests/lab/lab.sh" with xfs 1500 -- "$0"
    exit
fi

export RLSHIM_CONF=/dev/null
reports=$LAB_DIR/reports
failures=0
not_ok() {
    echo "not ok: $1"
    failures=$((failures + 1))
}

counter() { # counter NAME: its sum over the reports
    cat "$reports"/*.json 2>/dev/null | sed -n "s/.*\"$1\": \\([0-9]*\\).*/\\1/p" |
        awk '{ n += $1 } END { print n + 0 }'
}

run() { # run LIBRARY SHARE COMPANY
    rm -rf -- "$reports" && mkdir "$reports"
    out=$(timeout 120 env ${1:+LD_PRELOAD="$1" RLSHIM_REPORT="$reports" RLSHIM_SHARE="$2"} \
        "$program" "$LAB_DIR" "$seconds" "$3" 2>&1)
}

for company in one forks some many; do
    run '' '' "$company" || not_ok "without the shim, $company: $out"
    run "$lib" private "$company" || not_ok "$company: $out"
    begun=$((${begun:-0} + $(counter whole_begun)))
done
for _ in 1 2 3; do # on a busy machine
    [ "$begun" = 0 ] || break
    run "$lib" private one || not_ok "one: $out"
    begun=$(counter whole_begun)
done
[ "$begun" -gt 0 ] || not_ok "no write was made in pieces, so nothing was tried"
run "$lib" auto one || not_ok "share = auto: $out"
[ "$(counter whole_begun)" = 0 ] || not_ok "share = auto splits buffered writes of a file with a name"

core=$BUILD/obj/shim_core.a
if ! command -v "$CC" >/dev/null ||
    ! make -s -C "$SRC" "${core#"$SRC"/}" "${BUILD#"$SRC"/}/librangelock.a" "${BUILD#"$SRC"/}/exports.map" >/dev/null 2>&1; then
    echo "the rules are not left out in turn: no compiler ($CC), or $core cannot be built"
    mutants=()
fi
for mutant in ${mutants[@]+"${mutants[@]}"}; do
    broken=$LAB_DIR/$mutant.so
    "$CC" -std=gnu11 -D_GNU_SOURCE= -DRLSHIM_VERSION='"mutant"' -O2 -fPIC -fvisibility=hidden \
        -ftls-model=initial-exec -fexceptions -w -U_FORTIFY_SOURCE -DRL_MUTATE="$mutant" \
        -c "$SRC/shim/whole.c" -o "$LAB_DIR/whole.o" || exit 1
    "$CC" -shared -Wl,-z,now -Wl,--no-undefined -Wl,--version-script="$BUILD/exports.map" \
        -Wl,--allow-multiple-definition -o "$broken" "$LAB_DIR/whole.o" "$BUILD"/obj/shim/call_*.o \
        -Wl,--whole-archive "$core" -Wl,--no-whole-archive "$BUILD/librangelock.a" \
        -Wl,-Bstatic -lck -Wl,-Bdynamic -ldl || exit 1
    noticed=
    for _ in 1 2 3 4; do
        for company in one some; do
            [ -n "$noticed" ] || run "$broken" private "$company" || noticed=$out
        done
    done
    if [ -n "$noticed" ]; then
        echo "rule $mutant left out: $(grep -m1 'not ok' <<<"$noticed")"
    else
        not_ok "rule $mutant of whole.c was left out, and nobody noticed in 8 runs"
    fi
done

[ "$failures" = 0 ] && echo "all checks hold"
[ "$failures" = 0 ]
