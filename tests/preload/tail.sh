#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 300
#
# Files that are extended ahead of big direct writes (preextend): see tail.c. Nobody in the program
# may see it; the counters say that it happened; and with one of its rules left out (RL_MUTANT in
# tail.c) the same program does see it, each time.
#
# TAIL_SECONDS: of each round (2). TAIL_MUTANTS: which (80 82 83 85; 81 and 84 are about
# moments that a busy machine may not come to: make stress).
set -u

SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
CC=${CC:-gcc}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/tail
seconds=${TAIL_SECONDS:-2}
read -r -a mutants <<<"${TAIL_MUTANTS:-80 82 83 85}"

# Runs itself inside the lab, which knows the directory only then.
if [ -z "${TAIL_INSIDE:-}" ]; then
    export TAIL_INSIDE=1
    "$SRC/tests/lab/lab.sh" with ext4 3000 300 -- "$0"
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
    cat "$reports"/*.json 2>/dev/null | sed -n "s/.*\"$1\": \\([0-9]*\\).*/\\1/p" | awk '{ n += $1 } END { print n + 0 }'
}

run() { # run LIBRARY [SETTING...] -- [NAME]
    local library=$1
    local -a settings=()
    shift
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    rm -rf -- "$reports" && mkdir "$reports"
    out=$(timeout 120 env ${library:+LD_PRELOAD="$library" RLSHIM_REPORT="$reports"} \
        ${settings[@]+"${settings[@]}"} "$program" "$LAB_DIR" "$seconds" "$@" 2>&1)
}

run '' -- || not_ok "without the shim: $out"

run "$lib" -- || not_ok "the defaults, a file without a name: $out"
begun=$(counter tail_begun)
if [ "$begun" = 0 ]; then
    [ "$(counter evidence_granted)" = 0 ] && echo "SKIP: no file is evidently used by one process here" && exit 77
    not_ok "no file was extended: preextend = auto did not act"
fi
[ "$(counter tail_cut)" -gt 0 ] || not_ok "nothing took an extension back"

# A disk that gets full: most of it is taken, so that this takes no time.
head -c 2600M /dev/zero >"$LAB_DIR/most"
for library in '' "$lib"; do
    if ! seconds=full run "$library" -- || ! grep -q 'ok: until the disk is full' <<<"$out"; then
        not_ok "a disk that gets full${library:+, with the shim}: $out"
    fi
done
rm -f -- "$LAB_DIR/most"
[ "$(counter tail_begun)" -gt 0 ] || not_ok "nothing was extended on a disk that got full"

run "$lib" RLSHIM_PREEXTEND=off -- || not_ok "preextend = off: $out"
[ "$(counter tail_begun)" = 0 ] || not_ok "preextend = off extends files"

run "$lib" RLSHIM_SHARE=private -- named || not_ok "a file with a name: $out"
[ "$(counter tail_begun)" = 0 ] || not_ok "preextend = auto extends a file with a name"

run "$lib" RLSHIM_SHARE=private RLSHIM_PREEXTEND=on -- named ||
    not_ok "preextend = on, a file with a name: $out"
[ "$(counter tail_begun)" -gt 0 ] || not_ok "preextend = on did not act"

core=$BUILD/obj/shim_core.a
if ! command -v "$CC" >/dev/null || ! make -s -C "$SRC" "${core#"$SRC"/}" "${BUILD#"$SRC"/}/librangelock.a" "${BUILD#"$SRC"/}/exports.map" >/dev/null 2>&1; then
    echo "the rules are not left out in turn: no compiler ($CC), or $core cannot be built"
    mutants=()
fi
for mutant in ${mutants[@]+"${mutants[@]}"}; do
    broken=$LAB_DIR/$mutant.so
    "$CC" -std=gnu11 -D_GNU_SOURCE= -DRLSHIM_VERSION='"mutant"' -O2 -fPIC -fvisibility=hidden \
        -ftls-model=initial-exec -fexceptions -w -U_FORTIFY_SOURCE -DRL_MUTATE="$mutant" \
        -c "$SRC/shim/tail.c" -o "$LAB_DIR/tail.o" || exit 1
    "$CC" -shared -Wl,-z,now -Wl,--no-undefined -Wl,--version-script="$BUILD/exports.map" \
        -Wl,--allow-multiple-definition -o "$broken" "$LAB_DIR/tail.o" "$BUILD"/obj/shim/call_*.o \
        -Wl,--whole-archive "$core" -Wl,--no-whole-archive "$BUILD/librangelock.a" \
        -Wl,-Bstatic -lck -Wl,-Bdynamic -ldl || exit 1
    noticed=
    for _ in 1 2 3 4 5; do
        run "$broken" -- || { noticed=$out && break; }
    done
    if [ -n "$noticed" ]; then
        echo "rule $mutant left out: $(grep -m1 'not ok' <<<"$noticed")"
    else
        not_ok "rule $mutant of tail.c was left out, and nobody noticed in 5 runs"
    fi
done

[ "$failures" = 0 ] && echo "all checks hold; extended $begun times"
[ "$failures" = 0 ]
