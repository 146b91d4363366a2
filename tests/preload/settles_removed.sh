#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 300
#
# settles.sh would notice: the interposed functions are built once more without their settles
# (settles_removed.h), and then every entry of settles.def must be reported, except those that must
# not settle anyway and the few that are covered in another place too.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
CC=${CC:-gcc}
program=$BUILD/tests/preload/settles
dir=$(mktemp -d "${TMPDIR:-/tmp}/removed.XXXXXX") || exit 1
trap 'rm -rf -- "$dir"' EXIT

# fork and what libc builds on it: pthread_atfork's handlers settle. exit and its like: the
# library's destructor does.
elsewhere='fork underscored_fork seen_by_forked_child forkpty daemon exit main_thread_leaves'

skip() {
    echo "SKIP: $1"
    exit 77
}

command -v "$CC" >/dev/null || skip "no compiler ($CC)"
core=$BUILD/obj/shim_core.a
make -s -C "$SRC" "${core#"$SRC"/}" "${BUILD#"$SRC"/}/librangelock.a" "${BUILD#"$SRC"/}/exports.map" >/dev/null 2>&1
[ -e "$core" ] || skip "no $core: build the unit tests first"

objects=()
for source in "$SRC"/shim/call_*.c; do
    object=$dir/$(basename "$source" .c).o
    "$CC" -std=gnu11 -D_GNU_SOURCE= -DRLSHIM_VERSION='"removed"' -O1 -fPIC -fvisibility=hidden \
        -ftls-model=initial-exec -fexceptions -w -U_FORTIFY_SOURCE \
        -include "$SRC/tests/preload/settles_removed.h" -c "$source" -o "$object" || exit 1
    objects+=("$object")
done
"$CC" -shared -Wl,-z,now -Wl,--no-undefined -Wl,--version-script="$BUILD/exports.map" -o "$dir/librlshim.so" \
    "${objects[@]}" -Wl,--whole-archive "$core" -Wl,--no-whole-archive "$BUILD/librangelock.a" \
    -Wl,-Bstatic -lck -Wl,-Bdynamic -ldl || exit 1

removed() {
    env RLSHIM_SHARE=private RLSHIM_PUNCH_DELAY=10s "$@" LD_PRELOAD="$dir/librlshim.so" \
        "$program" "$dir" ${only:+"$only"}
}
only='' removed >"$dir/out"
[ $? = 77 ] && skip "no punch can be queued in $dir"
only=exact_ removed RLSHIM_STAT=settle >>"$dir/out"

# Every entry that expects a settle.
settling=$(sed -n 's/^ENTRY(\([A-Za-z0-9_]*\), \([A-Z_]*\),.*/\1 \2/p' "$SRC/tests/preload/settles.def" |
    awk '$2 != "QUEUED" { print $1 }' | sort)
reported=$(awk '/ left the punch queued$/ { print $1 }' "$dir/out" | sort)
unnoticed=$(comm -23 <(comm -23 <(echo "$settling") <(echo "$reported")) \
    <(tr ' ' '\n' <<<"$elsewhere" | sort))

# Once in hundreds the worker applies a punch early for a reason of its own, and the entry seems fine.
for entry in $unnoticed; do
    for _ in 1 2 3; do
        env=()
        [[ $entry == exact_* ]] && env=(RLSHIM_STAT=settle)
        only=$entry removed "${env[@]}" | tee -a "$dir/out" | grep -q ' left the punch queued$' || continue
        unnoticed=$(grep -vx "$entry" <<<"$unnoticed")
        reported+=$'\n'$entry
        break
    done
done

if [ -n "$unnoticed" ]; then
    echo "without their settles these entries of settles.def are not caught: ${unnoticed//$'\n'/ }" >&2
    grep -v ' left the punch queued$' "$dir/out" >&2
    exit 1
fi
echo "$(wc -l <<<"$reported") of $(wc -l <<<"$settling") settling entries fail without their settle"
