#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 240
#
# Shared syncs (fsync = share): see flush.c. With sharing off every caller makes its own sync, which
# is how this test knows that sharing is what it sees; on a device that fails, no error is lost.

set -u
SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/flush
# shellcheck source=tests/lab/lab.sh
. "$SRC/tests/lab/lab.sh"
dir=$(mktemp -d "${TMPDIR:-/tmp}/flush.XXXXXX") || exit 1
lab_at_exit "rm -rf -- '$dir'"
export RLSHIM_CONF=/dev/null
schedules=${FLUSH_SCHEDULES:-10000}
failures=0
notes=()

not_ok() {
    echo "not ok: $1"
    failures=$((failures + 1))
}

counter() { # counter REPORTS NAME
    cat "$1"/*.json 2>/dev/null | sed -n "s/.*\"$2\": \\([0-9]*\\).*/\\1/p" | sort -n | tail -n 1
}

"${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -O1 -shared -fPIC -o "$dir/slowsync.so" \
    "$SRC/tests/preload/lib/slowsync.c" || exit 1

share() { # share WHAT DIRECTORY PRELOAD [SETTING]
    local what=$1 at=$2 preload=$3
    shift 3
    out=$(timeout 60 env LD_PRELOAD="$preload" "$@" "$program" share "$at" 2>&1)
    local rc=$?
    [ "$rc" = 0 ] || not_ok "$what: exit status $rc: $out"
    syncs=$(sed -n 's/^syncs \([0-9]*\) of.*/\1/p' <<<"$out")
    at_once=$(sed -n 's/^syncs .* \([0-9]*\) at a time.*/\1/p' <<<"$out")
    syncs=${syncs:-0} at_once=${at_once:-0}
}

disk() { # disk DIRECTORY: ext4, XFS or btrfs there
    mkdir -p "$1"
    share "without the shim" "$1" "$dir/slowsync.so"
    [ "$syncs" = 160 ] || not_ok "without the shim $syncs of 160 syncs are made"
    share "fsync = sync" "$1" "$lib $dir/slowsync.so" RLSHIM_FSYNC=sync
    [ "$syncs" = 160 ] || not_ok "fsync = sync: $syncs of 160 syncs are made"
    share "fsync = share" "$1" "$lib $dir/slowsync.so" RLSHIM_REPORT="$1"
    if [ "$syncs" -lt 1 ] || [ "$syncs" -ge 160 ]; then
        not_ok "fsync = share: $syncs of 160 syncs are made"
    fi
    # ext4 shares once it has seen a crowd: the first calls go each their own way.
    [ "$syncs" -lt 110 ] || not_ok "fsync = share: $syncs syncs are too many"
    [ "$(counter "$1" flush_shared)" -gt 0 ] || not_ok "the report does not say that syncs were shared"
}

case $(stat -f -c %T "$dir") in
ext2/ext3 | xfs | btrfs) disk "$dir/disk" ;;
*) notes+=("sharing: ${TMPDIR:-/tmp} is none of ext4, XFS and btrfs") ;;
esac
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ]; then
    shm=$(mktemp -d /dev/shm/flush.XXXXXX) && lab_at_exit "rm -rf -- '$shm'"
    share "tmpfs" "$shm" "$lib $dir/slowsync.so"
    [ "$syncs" = 160 ] || not_ok "tmpfs, where there is nothing to share: $syncs of 160 syncs are made"
fi

# Where few callers are enough to share, one round runs while the next one fills.
few_at_once() { # FS
    lab_up "$1" 320 || return
    share "$1, without the shim" "$LAB_DIR" "$dir/slowsync.so"
    [ "$at_once" -gt 2 ] || not_ok "$1, without the shim: $at_once syncs at a time: this shows nothing"
    share "$1" "$LAB_DIR" "$lib $dir/slowsync.so"
    if [ "$at_once" -lt 1 ] || [ "$at_once" -gt 2 ]; then
        not_ok "$1: $at_once syncs at a time, two are enough"
    fi
    if [ "$syncs" -lt 1 ] || [ "$syncs" -gt 80 ]; then
        not_ok "$1: $syncs of 160 syncs are made"
    fi
    echo "$1: $syncs of 160 syncs, $at_once at a time"
    lab_down
}

fails() { # fails FS
    lab_small "$1" || return
    mkdir "$dir/$1"
    out=$(timeout 100 env LD_PRELOAD="$lib" RLSHIM_REPORT="$dir/$1" "$program" errors "$LAB_DOOMED" \
        "$schedules" 2>&1) || not_ok "$1, a device that fails: $out"
    [ "$(counter "$dir/$1" flush_errors)" -gt 0 ] ||
        not_ok "$1: no error came by way of a shared sync"
    out=$(timeout 100 "$program" errors "$LAB_DOOMED" 800 2>&1) ||
        not_ok "$1, without the shim: $out"
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

for fs in xfs btrfs; do
    few_at_once "$fs" >"$dir/said"
    case $? in
    77) notes+=("$fs, syncs at a time: $(sed 's/^SKIP: //' "$dir/said")") ;;
    0) cat "$dir/said" ;;
    *) cat "$dir/said"; not_ok "the lab on $fs did not come up" ;;
    esac
done

for note in ${notes[@]+"${notes[@]}"}; do
    echo "left out: $note"
done
[ "$failures" = 0 ]
