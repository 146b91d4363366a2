#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# The worker's own system calls fail, late: what was answered stays answered, or one line says what
# was lost. strace makes them fail, since nothing that is preloaded can; its counts (when=) are of
# each thread by itself.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
work=$BUILD/tests/fault/work
out=$(mktemp -d "${TMPDIR:-/tmp}/worker.XXXXXX") || exit 1
dir=$(mktemp -d /dev/shm/worker.XXXXXX 2>/dev/null || mktemp -d "${TMPDIR:-/tmp}/worker.XXXXXX") || exit 1
trap 'rm -rf -- "$dir" "$out"' EXIT
failures=0
case_name=

skip() {
    echo "SKIP: $1"
    exit 77
}
not_ok() {
    failures=$((failures + 1))
    echo "not ok: $case_name: $1"
}

# run [INJECTION...]: the workload with the shim, under strace if a call is to fail. Leaves $got (what
# it said), $status, $out/err, $out/r.json.
run() {
    local injections=() calls=() i
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
    got=$(RLSHIM_CONF=/dev/null RLSHIM_SHARE=private RLSHIM_LOG=${log-error} \
        RLSHIM_REPORT=$out/r.json timeout 60 "$@" "$work" "$dir" "${phase-punches}" defer 2>"$out/err")
    status=$?
}
counter() {
    local n
    n=$(sed -n "s/^ *\"$1\": \([0-9]*\),*\$/\1/p" "$out/r.json" 2>/dev/null)
    echo "${n:-0}"
}
lines_said() { # besides the workload's own
    grep -vc '^deferred' "$out/err"
}
unharmed() { # results and contents as without the shim and without faults
    [ "$status" = 0 ] || not_ok "exit status $status, $(grep WRONG <<<"$got")"
    [ "$got" = "$expected" ] ||
        not_ok "not as without the shim: $(diff <(echo "$expected") <(echo "$got") | head -n 8)"
}
counts() { # counts NAME
    [ "$(counter "$1")" -gt 0 ] || not_ok "the report's $1 is 0: nothing was tested"
}
counts_none() {
    [ "$(counter "$1")" = 0 ] || not_ok "the report's $1 is $(counter "$1")"
}
silent() {
    [ "$(lines_said)" = 0 ] || not_ok "it said: $(cat "$out/err")"
}

command -v strace >/dev/null || skip "no strace here (make deps)"
strace -f -qq -o "$out/trace" -e trace=mkdir -e inject=mkdir:error=EXDEV:when=1 mkdir "$dir/x" 2>/dev/null &&
    skip "strace cannot make system calls fail here"
[ -s "$out/trace" ] || skip "strace may not trace here"

expected=$("$work" "$dir" punches 2>/dev/null) || { echo "the workload fails by itself"; exit 1; }
case_name="no fault"
run
unharmed
silent
[ "$(counter punch_deferred)" -gt 0 ] ||
    skip "no punch is deferred in $dir ($(stat -f -c %T "$dir"))"
with_ring=$(counter ring_calls)
with_names=$(counter punch_deferred) # the workload has files with a name, and without
counts keeper_files

# The worker without a ring, so that its punches are system calls. The first two are let pass: as many
# punches of a file are made by the program itself before deferral begins.
no_ring=io_uring_setup:error=ENOSYS

for error in ENOSPC EIO EOPNOTSUPP EROFS EPERM; do
    case_name="late fallocate: $error"
    run "$no_ring" "fallocate:error=$error:when=3+"
    # The program's later punches that go through inline fail, as they must: nothing deferred them.
    [ "$status" = 0 ] || not_ok "exit status $status, $(grep WRONG <<<"$got")"
    counts punch_zeroed
    counts_none punch_dropped
    silent
done

case_name="late fallocate: EINTR, a hundred times"
run "$no_ring" fallocate:error=EINTR:when=3..102
[ "$status" = 0 ] || not_ok "exit status $status, $(grep WRONG <<<"$got")"
counts plain_calls
counts_none punch_zeroed
counts_none punch_dropped

case_name="late fallocate and the zeros in its place: both fail for ever"
run "$no_ring" fallocate:error=EIO:when=3+ pwrite64:error=EIO
counts punch_dropped
grep -q "could not be applied (.*): inode [0-9,]*, bytes [0-9,]* to [0-9,]*" "$out/err" ||
    not_ok "no line says what was lost: $(cat "$out/err")"
[ "$(lines_said)" -le "$(counter punch_dropped)" ] || not_ok "more lines than losses: $(cat "$out/err")"

# The third of the worker's punches, and the zeros in its place, fail four and three times.
for error in ENOSPC EIO; do
    case_name="late fallocate and the zeros in its place: both fail for a while, $error"
    run "$no_ring" "fallocate:error=$error:when=3..6" "pwrite64:error=$error:when=1..3"
    [ "$status" = 0 ] || not_ok "exit status $status, $(grep WRONG <<<"$got")"
    counts punch_postponed
    counts_none punch_dropped
    silent
done

for error in ENOSYS EPERM ENOMEM; do
    case_name="no io_uring: $error"
    run "io_uring_setup:error=$error"
    unharmed
    silent
    counts ring_refused
    counts plain_calls
    counts punch_deferred
    counts_none ring_calls
done

if [ "$with_ring" -gt 0 ]; then
    for when in 1+ 2+ 3; do
        case_name="the ring breaks: io_uring_enter EBADF, $when"
        run "io_uring_enter:error=EBADF:when=$when"
        unharmed
        silent
        counts plain_calls
    done
    case_name="io_uring_enter is interrupted"
    run io_uring_enter:error=EINTR:when=1..20
    unharmed
    silent
fi

case_name="no thread can be had: clone EAGAIN"
run clone:error=EAGAIN clone3:error=EAGAIN
unharmed
silent
counts punch_no_worker
counts_none punch_deferred

for fault in pidfd_getfd:error=EPERM pidfd_open:error=EMFILE close_range:error=ENOSYS; do
    case_name="the worker cannot get at files: $fault"
    run "$fault"
    unharmed
    silent
    counts_none punch_deferred
done

# Without a keeper a named file is not deferred: one line of log = info says why.
for fault in shmget:error=ENOSPC shmat:error=ENOMEM semget:error=ENOSPC semop:error=EACCES \
    socketpair:error=EMFILE memfd_create:error=ENOSYS prctl:error=EPERM:when=2+; do
    case_name="no keeper: $fault"
    log=info run "$fault"
    unharmed
    [ "$(grep -c "no keeper process for named files" "$out/err")" = 1 ] ||
        not_ok "not said once: $(cat "$out/err")"
    counts punch_no_keeper
    counts_none keeper_files
    [ "$(counter punch_deferred)" -lt "$with_names" ] || not_ok "files with names are deferred"
done
case_name="keeper = off needs none of it"
RLSHIM_KEEPER=off run shmget:error=ENOSPC semget:error=ENOSPC socketpair:error=EMFILE memfd_create:error=ENOSYS
unharmed
silent
counts punch_deferred
counts_none keeper_started

case_name="no memory for the tables"
export RLSHIM_KEEPER=off # which has them in other memory
# The tables are made at the first punch. The library's mappings are the ones that reserve nothing;
# the first line of the trace is the main thread's, and so are the numbers.
for which in 1 2; do
    run mmap:error=ENOMEM:when=65535
    n=$(awk -v which=$which 'NR == 1 { main = $1 } $1 == main && /mmap\(/ { n++ }
        $1 == main && /MAP_SHARED\|MAP_ANONYMOUS\|MAP_NORESERVE/ && ++seen == which { print n; exit }' "$out/trace")
    if [ -n "$n" ]; then
        run "mmap:error=ENOMEM:when=$n"
        unharmed
        grep -q "no memory for its tables: the program runs without rlshim" "$out/err" ||
            not_ok "nothing says so: $(cat "$out/err")"
        [ "$(lines_said)" = 1 ] || not_ok "more than one line: $(cat "$out/err")"
        counts_none punch_deferred
    else
        not_ok "the tables' mapping was not found"
    fi
done

echo "$failures checks failed"
[ "$failures" = 0 ]
