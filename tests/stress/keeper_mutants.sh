#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# timeout: 900
#
# The keeper with one step left out at a time (KEEPER_MUTANT in shim/keeper*.c and keeper/image.c): the
# tests of tests/preload/keeper.c must notice each.
#
#   tests/stress/keeper_mutants.sh [NUMBER...]
set -u

SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
CC=${CC:-gcc}
prog=$BUILD/tests/preload/keeper
relative=${BUILD#"$SRC"/} # as make knows it: dependencies are kept by name
what=(
    "nothing: the code as it is"
    "a file is not given back when deferral ends"
    "the keeper does not mark its files"
    "files are copied, not opened anew"
    "the child in between is not reaped"
    "the keeper stays in the program's session"
    "the worker does not see that the keeper is gone"
    "the end of the worker is taken for the end of the work"
    "an exec that nobody sees is waited out"
)
if ! command -v "$CC" >/dev/null || ! make -s -C "$SRC" BUILD="$relative" all "$relative/obj/shim_core.a" "${prog#"$SRC"/}" "${prog#"$SRC"/}_victim" >/dev/null; then
    echo "SKIP: no compiler ($CC), or the library cannot be built"
    exit 77
fi
dir=$(mktemp -d /dev/shm/keeper-mutants.XXXXXX) || exit 1
trap 'rm -rf "$dir"' EXIT
failures=0
numbers=("$@")
[ $# -gt 0 ] || numbers=("${!what[@]}")

build() {
    local n=$1 name
    local flags=(-std=gnu11 -D_GNU_SOURCE= -O2 -fPIC -fvisibility=hidden -ftls-model=initial-exec -fexceptions
        -fno-strict-aliasing -w -U_FORTIFY_SOURCE -DKEEPER_MUTATE="$n" "-DKEEPER_IMAGE=\"$dir/obj/keeper_image\"")

    rm -rf "$dir/obj"
    make -s -C "$SRC" BUILD="$dir" CPPFLAGS="-DKEEPER_MUTATE=$n" "$dir/obj/keeper_image" >/dev/null || return
    for name in keeper keeper_start; do
        "$CC" "${flags[@]}" -c "$SRC/shim/$name.c" -o "$dir/$name.o" || return
    done
    "$CC" -shared -Wl,-z,now -Wl,--no-undefined -Wl,--version-script="$BUILD/exports.map" \
        -Wl,--allow-multiple-definition -o "$dir/mutant.so" "$dir/keeper.o" "$dir/keeper_start.o" \
        "$BUILD"/obj/shim/call_*.o -Wl,--whole-archive "$BUILD/obj/shim_core.a" -Wl,--no-whole-archive \
        "$BUILD/librangelock.a" -Wl,-Bstatic -lck -Wl,-Bdynamic -ldl
}

for n in "${numbers[@]}"; do
    if ! build "$n"; then
        echo "$n does not build"
        failures=$((failures + 1))
        continue
    fi
    rm -rf "$dir/counts" && mkdir -p "$dir/counts/data"
    by=
    export KEEPER_SO=$dir/mutant.so
    out=$(timeout 100 "$prog" ends "$dir/counts/data" "$dir/counts" 2>&1) ||
        by=$(grep -m1 -E 'not so|lost' <<<"$out" || echo "the ways to end hang")
    [ -n "$by" ] || out=$(timeout 100 "$prog" kills "$dir/counts/data" "$dir/counts" 20 "$n" 2>&1) || by=${out##*$'\n'}
    if { [ "$n" = 0 ] && [ -z "$by" ]; } || { [ "$n" != 0 ] && [ -n "$by" ]; }; then
        echo "$n ${what[$n]}: ${by:-rightly nobody notices}"
    else
        echo "not ok: $n ${what[$n]}: ${by:-NOBODY notices}"
        failures=$((failures + 1))
    fi
done
echo "$failures failures"
[ "$failures" = 0 ]
