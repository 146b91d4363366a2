#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 480
#
# Write-behind (writeback_window, writeback_budget): see window.h. The kernel is asked how much is
# dirty, the counters say who saw to it, and with the setting off neither holds. On a device that
# fails no error is lost, also where the kernel lacks cachestat(2).

set -u
SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/window
# shellcheck source=tests/lab/lab.sh
. "$SRC/tests/lab/lab.sh"
dir=$(mktemp -d "${TMPDIR:-/tmp}/window.XXXXXX") || exit 1
lab_at_exit "rm -rf -- '$dir'"
export RLSHIM_CONF=/dev/null
failures=0
notes=()
reports=$dir/reports

not_ok() {
    echo "not ok: $1"
    failures=$((failures + 1))
}

counter() { # counter NAME
    cat "$reports"/*.json 2>/dev/null | sed -n "s/.*\"$1\": \\([0-9]*\\).*/\\1/p" | sort -n | tail -n 1
}

# run WHAT [SETTING...] -- ARGUMENTS: with the shim; without if WHAT begins so
run() {
    local what=$1 rc
    local -a settings=()
    shift
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    rm -rf -- "$reports" && mkdir "$reports"
    [ "$what" = without ] || settings+=("LD_PRELOAD=$lib" "RLSHIM_REPORT=$reports")
    out=$(timeout 150 env ${settings[@]+"${settings[@]}"} "$program" "$@" 2>&1)
    rc=$?
    [ "$rc" = 0 ] || not_ok "$what: $1: exit status $rc: $out"
    most=$(sed -n 's/^most \([0-9]*\) KiB$/\1/p' <<<"$out")
}

at_most() { # at_most WHAT VALUE LIMIT
    [ "${2:-0}" -gt 0 ] || not_ok "$1: nothing was counted"
    [ "${2:-0}" -le "$3" ] || not_ok "$1: $2 instead of $3 at most"
}

disk() { # disk DIRECTORY: ext4, XFS or btrfs there
    local window=1048576
    run without -- contents "$1"
    run window RLSHIM_WRITEBACK_WINDOW=1M -- contents "$1"
    [ "$(counter window_started)" -gt 100 ] || not_ok "only $(counter window_started) windows were started"
    at_most "dirty bytes of one file" "$(counter window_dirty_max_bytes)" $((2 * window))

    run without -- bound "$1" 64
    if [ -z "$most" ]; then
        notes+=("what the kernel has dirty: it has no cachestat")
    elif [ "$most" -le 4096 ]; then
        notes+=("the bound: without the shim no more than $most KiB are dirty here")
    else
        run off RLSHIM_WRITEBACK_WINDOW=0 -- bound "$1" 64
        [ "$most" -gt 4096 ] || not_ok "writeback_window = 0: only $most KiB were dirty"
        [ "$(counter window_started)" = 0 ] || not_ok "writeback_window = 0 starts writeback"
        run window RLSHIM_WRITEBACK_WINDOW=1M -- bound "$1" 64
        at_most "KiB dirty, says the kernel" "$most" 2112 # two windows and a call
    fi
    run window RLSHIM_WRITEBACK_WINDOW=1M -- bound "$1" 64
    at_most "dirty bytes behind the tail" "$(counter window_dirty_max_bytes)" $((2 * window))
    [ "$(counter window_started_bytes)" -ge $((63 * window)) ] || not_ok "not all of the file was started"
    # A call longer than a window dirties what it dirties; afterwards no more is left than usual.
    run window RLSHIM_WRITEBACK_WINDOW=1M -- bound "$1" 8192
    at_most "dirty bytes after calls of 8 MiB" "$(counter window_dirty_max_bytes)" $((10 * window))
    [ -z "$most" ] || [ "$most" -le 2048 ] || not_ok "after calls of 8 MiB $most KiB are dirty"

    # Threads that append to one file: two windows, and for each thread a call before either.
    run window RLSHIM_WRITEBACK_WINDOW=1M -- one "$1" 8
    at_most "dirty bytes of 8 threads' file" "$(counter window_dirty_max_bytes)" $((2 * (window + 9 * 65536)))

    # 16 files of 8M each would be 256M; the budget cuts that to 8M and 64K a file.
    run budget RLSHIM_WRITEBACK_WINDOW=8M RLSHIM_WRITEBACK_BUDGET=8M -- many "$1" 16
    at_most "dirty bytes of 16 files" "$(counter window_all_max_bytes)" $((12 * window))
    run "no budget" RLSHIM_WRITEBACK_WINDOW=8M RLSHIM_WRITEBACK_BUDGET=1G -- many "$1" 16
    [ "$(counter window_all_max_bytes)" -gt $((24 * window)) ] ||
        notes+=("the budget: without it 16 files have only $(counter window_all_max_bytes) bytes dirty")

    run window RLSHIM_WRITEBACK_WINDOW=64K -- left "$1"
    [ "$(counter window_started)" = 0 ] || not_ok "direct, synchronous, deleted or mapped files are touched"
    [ "$(counter window_left)" -gt 0 ] || not_ok "nothing says that they were left alone"

    run window RLSHIM_WRITEBACK_WINDOW=128K -- handlers "$1"
    [ "$(counter window_started)" -gt 0 ] || not_ok "beside handlers nothing was started"

    printf '[path %s/b*]\nwriteback_window = 1M\n' "$1" >"$dir/conf"
    chmod 600 "$dir/conf"
    run path RLSHIM_CONF="$dir/conf" -- bound "$1" 64
    [ "$(counter window_started)" -gt 0 ] || not_ok "[path]: the setting for this file has no effect"
    run path RLSHIM_CONF="$dir/conf" -- one "$1" 1
    [ "$(counter window_started)" = 0 ] || not_ok "[path]: another file is touched"

    run "no cachestat" RLSHIM_WRITEBACK_WINDOW=1M -- without-cachestat "$program" bound "$1" 64
    [ "$(counter window_started)" -ge 60 ] || not_ok "without cachestat nothing was started"
    at_most "dirty bytes without cachestat" "$(counter window_dirty_max_bytes)" $((2 * window))
}

case $(stat -f -c %T "$dir") in
ext2/ext3 | xfs | btrfs)
    mkdir "$dir/disk"
    disk "$dir/disk"
    ;;
*) notes+=("bounds: ${TMPDIR:-/tmp} is none of ext4, XFS and btrfs") ;;
esac

fails() { # fails FS
    lab_small "$1" || return
    run without -- errors "$LAB_DOOMED" 10
    run "$1, a device that fails" RLSHIM_WRITEBACK_WINDOW=64K -- errors "$LAB_DOOMED" 40
    [ "$(counter window_started)" -gt 0 ] || not_ok "$1: nothing was started on the device that fails"
    run "$1, the same without cachestat" RLSHIM_WRITEBACK_WINDOW=64K -- without-cachestat \
        "$program" errors "$LAB_DOOMED" 40
    # Whether the kernel has a word of its own left for the next fsync is a matter of moments; that
    # the program is told exactly once is not, and `errors` has looked at that.
    [ "$(counter window_errors)" -gt 0 ] || notes+=("$1: the kernel told each error itself, none had to be kept")
    run without -- untold "$LAB_DOOMED"
    run "$1, untold" RLSHIM_WRITEBACK_WINDOW=64K -- untold "$LAB_DOOMED"
    lab_down
}
for fs in ext4 xfs btrfs; do
    fails "$fs" >"$dir/said"
    case $? in
    77) notes+=("$fs on a device that fails: $(sed 's/^SKIP: //' "$dir/said")") ;;
    0) cat "$dir/said" ;;
    *) cat "$dir/said"; not_ok "the lab on $fs did not come up" ;;
    esac
done

for note in ${notes[@]+"${notes[@]}"}; do
    echo "left out: $note"
done
[ "$failures" = 0 ]
