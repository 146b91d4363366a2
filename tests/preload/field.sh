#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 240
#
# What programs were reported to do, made small (field.c), with the shim as without it: delete until
# statvfs shows enough, delete beside reads, write and then set the size, empty a time stamp, have a
# log copied and truncated by somebody else. What the shim did is told by its counters.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/field
# shellcheck source=tests/lab/lab.sh
. "$SRC/tests/lab/lab.sh"
out=$(mktemp -d "${TMPDIR:-/tmp}/field.XXXXXX") || exit 1
lab_at_exit "rm -rf -- $out"
export RLSHIM_CONF=/dev/null
failed=0
skipped=

not_ok() {
    echo "not ok: $1"
    failed=1
}

counter() { # held|elided
    sed -n "\$s/.*$1 \\([0-9]*\\).*/\\1/p" "$out/err"
}

both() { # WHAT... : without the shim, then with it, and the same is said; settings are exported
    timeout 60 "$program" "$@" >"$out/plain" 2>"$out/err" || not_ok "$1: without the shim: $(cat "$out/err")"
    timeout 60 env LD_PRELOAD="$lib" "$program" "$@" >"$out/with" 2>"$out/err" ||
        not_ok "$1: with the shim: $(cat "$out/err")"
    diff "$out/plain" "$out/with" || not_ok "$1 ($LAB_FS): not as without the shim (<)"
}

deleting() {
    # Paced, so that most of it is still held when the next one is looked at.
    export RLSHIM_EVICT_MIN=0 RLSHIM_EVICT_BYTES_MAX=1G RLSHIM_EVICT_RATE=512M
    both until-free "$LAB_DIR/d" 24 12 150
    [ "$(counter held)" -ge 10 ] || not_ok "until-free: only $(counter held) of its files were held"
    grep -qx 'deleted 13' "$out/with" || not_ok "until-free: $(cat "$out/with"), 13 are enough"
    unset RLSHIM_EVICT_MIN RLSHIM_EVICT_BYTES_MAX RLSHIM_EVICT_RATE
    both until-free "$LAB_DIR/d" 24 12 150 # as it comes
    export RLSHIM_EVICT_FILES_MAX=4 RLSHIM_EVICT_MIN=0
    both delete-beside-reads "$LAB_DIR/d" 5 200
    [ "$(counter held)" -ge 10 ] || not_ok "delete-beside-reads: only $(counter held) files were held"
    grep -qx 'all is free: yes' "$out/with" || not_ok "delete-beside-reads: not all is free"
    unset RLSHIM_EVICT_FILES_MAX RLSHIM_EVICT_MIN
}

write_then_size() {
    both write-then-size "$LAB_DIR/d" 400
    [ "$(counter elided)" -ge 350 ] || not_ok "write-then-size: $(counter elided) of 400 were elided"
    grep -qx 'wrong 0 of 400' "$out/with" || not_ok "write-then-size: $(cat "$out/with")"
    RLSHIM_TRUNCATE=sync LD_PRELOAD="$lib" "$program" write-then-size "$LAB_DIR/d" 100 >"$out/with" 2>"$out/err"
    [ "$(counter elided)" = 0 ] || not_ok "write-then-size with truncate = sync: $(counter elided) elided"
}

# One shell empties the stamp again and again; make sees that it is newer each time.
stamps() {
    local stamp=$LAB_DIR/d/stamp target=$LAB_DIR/d/target
    printf '%s: %s\n\t@cp %s %s && echo made\n' "$target" "$stamp" "$stamp" "$target" >"$out/Makefile"
    # shellcheck disable=SC2016 # expanded by the inner shell
    RLSHIM_REPORT=$out/stamps.json LD_PRELOAD=$lib sh -c '
        for i in 1 2 3 4 5 6; do : >"$1"; make -s -f "$2"; sleep 0.02; done' sh "$stamp" "$out/Makefile" >"$out/made" 2>&1
    [ "$(grep -cx made "$out/made")" = 6 ] || not_ok "a stamp emptied six times: $(cat "$out/made")"
    [ "$(cat "$out"/stamps*.json | sed -n 's/.*"truncate_elided": \([0-9]*\).*/\1/p' | sort -n | tail -n 1)" -ge 3 ] ||
        not_ok "a stamp emptied six times: the truncations were not elided"
}

# logrotate's copytruncate; the appender is stopped while the log is copied and cut, since what is
# appended between the two is lost without the shim, too.
copytruncate() {
    local log=$LAB_DIR/d/log pid i
    rm -f "$log" "$out"/log.*
    LD_PRELOAD=$lib "$program" append "$log" 3000 2>"$out/err" &
    pid=$!
    for ((i = 0; i < 6; i++)); do
        sleep 0.03
        kill -STOP "$pid" 2>/dev/null || break
        while [ -e "/proc/$pid" ] && ! grep -q '^State:[[:space:]]*[TZ]' "/proc/$pid/status" 2>/dev/null; do sleep 0.001; done
        cp "$log" "$out/log.$i" 2>/dev/null
        : >"$log"
        kill -CONT "$pid" 2>/dev/null
    done
    wait "$pid" || not_ok "appending to a log that is rotated: $(cat "$out/err")"
    cat "$out"/log.* "$log" >"$out/whole" 2>/dev/null
    awk '{ if ($1 + 0 != NR - 1 || length($3) != $2 + 0) { bad = 1; exit } } END { exit bad || NR != 3000 }' "$out/whole" ||
        not_ok "appending to a log that is rotated: a line is lost, torn or out of order ($(wc -l <"$out/whole") lines)"
    rm -f "$log"
}

for fs in ext4 xfs btrfs; do
    lab_up $fs 512 || { skipped=$fs; continue; }
    mkdir "$LAB_DIR/d" || exit 1
    case $fs in
    ext4) deleting ;; # XFS and btrfs count what unlink has freed later by themselves
    xfs) write_then_size ;;
    esac
    [ $fs = xfs ] || stamps
    copytruncate
    lab_down || not_ok "$fs: cannot be unmounted"
    echo "$fs: done"
done
[ "$failed" = 0 ] || exit 1
[ -z "$skipped" ] || { echo "SKIP: no $skipped here; the others were tested"; exit 77; }
