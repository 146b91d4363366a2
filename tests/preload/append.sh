#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# O_APPEND loggers: no line is torn or lost (append.c), on each file system that can be had, with
# punches of the same file deferred and, on ext4, pieces beside. Without root: where TMPDIR is.
#
# APPEND_SECONDS: of each run (1).
set -u

SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/append
seconds=${APPEND_SECONDS:-1}
export RLSHIM_CONF=/dev/null

if [ -n "${APPEND_INSIDE:-}" ]; then
    reports=$LAB_DIR/reports
    mkdir -p "$reports"
    if ! out=$("$program" "$LAB_DIR" "$seconds" 2>&1); then
        echo "not ok: $LAB_FS without the shim: $out"
        exit 1
    fi
    for try in 1 4 12; do # on a busy machine the loggers may leave a punch no moment of its own
        if ! out=$(LD_PRELOAD=$lib RLSHIM_SHARE=private RLSHIM_REPORT=$reports \
            "$program" "$LAB_DIR" "$((seconds * try))" 2>&1); then
            echo "not ok: $LAB_FS: $out"
            exit 1
        fi
        deferred=$(cat "$reports"/*.json | sed -n 's/.*"punch_deferred": \([0-9]*\).*/\1/p' |
            sort -n | tail -n 1)
        [ "${deferred:-0}" = 0 ] || break
    done
    if [ "${deferred:-0}" = 0 ]; then
        echo "not ok: $LAB_FS: no punch was deferred, so nothing was tried"
        exit 1
    fi
    echo "$LAB_FS: $deferred punches deferred beside"
    exit 0
fi

export APPEND_INSIDE=1
ran=0
for place in "with ext4 1500" "with xfs 1500" "with btrfs 1500" "tmpfs 1000"; do
    read -r -a where <<<"$place"
    "$SRC/tests/lab/lab.sh" "${where[@]}" -- "$0"
    case $? in
    0) ran=$((ran + 1)) ;;
    77) ;;
    *) exit 1 ;;
    esac
done
if [ "$ran" = 0 ]; then
    echo "SKIP: no file system to try it on can be made here"
    exit 77
fi
echo "all checks hold on $ran file systems"
