#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# The system calls by which deleted files are held and freed fail: they are freed in the call then,
# and a program that deletes until enough is free deletes no more than without the shim. strace
# makes them fail, since nothing that is preloaded can.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/field
# shellcheck source=tests/lab/lab.sh
. "$SRC/tests/lab/lab.sh"
out=$(mktemp -d "${TMPDIR:-/tmp}/evict.XXXXXX") || exit 1
lab_at_exit "rm -rf -- $out"
export RLSHIM_CONF=/dev/null RLSHIM_EVICT_MIN=0 RLSHIM_EVICT_BYTES_MAX=1G RLSHIM_EVICT_RATE=512M
failures=0

command -v strace >/dev/null || { echo "SKIP: no strace here (make deps)"; exit 77; }
strace -f -qq -o "$out/trace" -e trace=mkdir -e inject=mkdir:error=EXDEV:when=1 mkdir "$out/x" 2>/dev/null &&
    { echo "SKIP: strace cannot make system calls fail here"; exit 77; }
lab_up ext4 512 || exit
mkdir "$LAB_DIR/d" || exit 1

# run HELD INJECTION...: HELD is "some" or "none"
run() {
    local held=$1 injections=() calls=() i status
    shift
    for i in "$@"; do
        injections+=(-e "inject=$i")
        calls+=("${i%%:*}")
    done
    rm -f "$out/r.json"
    if [ $# -gt 0 ]; then
        set -- strace -f -qq -o "$out/trace" -e "trace=$(IFS=,; echo "${calls[*]}")" \
            "${injections[@]}" -E "LD_PRELOAD=$lib"
    else
        set -- env "LD_PRELOAD=$lib"
    fi
    timeout 60 "$@" "$program" until-free "$LAB_DIR/d" 24 12 150 >"$out/said" 2>"$out/err"
    status=$?
    i="${calls[*]-no fault} ${injections[*]-}"
    if [ "$status" != 0 ] || ! grep -qx 'deleted 13' "$out/said"; then
        echo "not ok: $i: exit status $status, $(cat "$out/said" "$out/err")"
        failures=$((failures + 1))
    fi
    case $held,$(sed -n '$s/^held \([0-9]*\) .*/\1/p' "$out/err") in
    none,0 | some,[1-9]*) ;;
    *)
        echo "not ok: $i: $(tail -n 1 "$out/err"), expected $held"
        failures=$((failures + 1))
        ;;
    esac
    [ "$(wc -l <"$out/err")" = 1 ] || {
        echo "not ok: $i: it said: $(cat "$out/err")"
        failures=$((failures + 1))
    }
    if [ ${#calls[@]} -gt 0 ] && ! grep -q INJECTED "$out/trace"; then
        echo "not ok: $i: no call failed: nothing was tested"
        failures=$((failures + 1))
    fi
    rm -f "$LAB_DIR"/d/*
}

run some
run none clone:error=EAGAIN clone3:error=EAGAIN
for fault in close_range:error=ENOSYS pidfd_open:error=EMFILE statx:error=ENOSYS fstatfs:error=EIO; do
    run none "$fault"
done
run some fstatfs:error=EIO:when=2          # one is refused, and the file system not known for a moment
run some futex:error=EINTR:when=1..50      # waits that end for no reason
run some nanosleep:error=EINTR:when=1..20  # a pause that is cut short
run some quotactl_fd:error=EPERM           # nobody may ask for the quota
run some sched_setaffinity:error=EPERM sched_getaffinity:error=EINVAL prctl:error=EINVAL
echo "$failures checks failed"
[ "$failures" = 0 ]
