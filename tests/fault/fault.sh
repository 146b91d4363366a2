#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 600
#
# The Nth real call fails: for each call that the workload makes, N rising until a run has no
# failure, the program must see with the shim what it sees without.
#
#   fault.sh [--full]     --full: every error at every N (minutes); else one error at the first few
#                         N and then in growing steps, the others at the first
#
# What is compared, by phase of work.c:
#   plain, punch = sync    every line: results, errno, contents (at the first three N, without --full)
#   plain, deferring       every line, unless the call is one that deferral makes more or less often
#                          (fallocate, the read family, a write that finds the disk full or ends
#                          early): then contents, and each failure seen once
#   big, split = off       every line
#   big, in pieces         contents; a failed piece ends the call with what was done before it

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
work=$BUILD/tests/fault/work
out=$(mktemp -d "${TMPDIR:-/tmp}/fault.XXXXXX") || exit 1
# In memory where that can be had: thousands of fsyncs.
dir=$(mktemp -d /dev/shm/fault.XXXXXX 2>/dev/null || mktemp -d "${TMPDIR:-/tmp}/fault.XXXXXX") || exit 1
memory=$dir
trap 'rm -rf -- "$memory" "$out"' EXIT
faulty=$out/faulty.so
full=no
[ "${1-}" != --full ] || full=yes
failures=0
runs=0
struck=0

"${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -O1 -shared -fPIC -o "$faulty" "$SRC/tests/fault/lib/faulty.c" \
    2>"$out/cc" || {
    cat "$out/cc"
    echo "the library that makes calls fail cannot be built"
    exit 1
}
# Nothing is held: beside deleted files that are being freed, ENOSPC is rightly tried once more
# (tests/fault/evict.sh), and a failure of the test's would be hidden.
export RLSHIM_CONF=/dev/null RLSHIM_SHARE=private RLSHIM_EVICT=sync

not_ok() {
    failures=$((failures + 1))
    echo "not ok: $1"
    [ -z "${2-}" ] || printf '%s\n' "$2" | head -n 12
}

# plainly FAULT ARGUMENT...: without the shim, into $without.
plainly() {
    local fault=$1
    shift
    runs=$((runs + 1))
    without=$(LD_PRELOAD=$faulty FAULT=$fault "$work" "$dir" "$@" 2>/dev/null)
}
# shimmed FAULT ARGUMENT...: with it, into $with; the caller's RLSHIM_ variables hold.
shimmed() {
    local fault=$1
    shift
    runs=$((runs + 1))
    with=$(LD_PRELOAD="$lib $faulty" FAULT=$fault "$work" "$dir" "$@" 2>"$out/err")
}
same() { # same WHAT STATUS
    right "$@"
    [ "$without" = "$with" ] || not_ok "$1: without the shim (<) and with it (>)" \
        "$(diff <(echo "$without") <(echo "$with"))"
}
right() { # right WHAT STATUS
    [ "$2" = 0 ] || not_ok "$1: exit status $2" "$(grep WRONG <<<"$with"; cat "$out/err")"
}

# retries FAULT: "retried" if it could be taken for a full disk, which queued punches may help
retries() {
    case $1 in
    *write*:short | *write*:ENOSPC:* | *write*:EDQUOT:*) echo retried ;;
    esac
}

# deferral_changes FAULT: is the call made more or less often when punches are deferred?
deferral_changes() {
    case $1 in
    fallocate:* | read:* | pread:* | pread64:* | readv:* | preadv:* | clone:*) return 0 ;;
    *:short | *:ENOSPC:* | *:EDQUOT:*) return 0 ;;
    esac
    return 1
}

plain_at() { # plain_at FAULT; false when nothing failed: N is past the last call
    local fault=$1 status
    plainly "$fault" plain || not_ok "plain $fault: without the shim" "$without"
    case $full:$fault in
    yes:* | *:[123] | *:[123]:*)
        RLSHIM_PUNCH=sync shimmed "$fault" plain
        same "plain $fault, punch = sync" $?
        ;;
    esac
    shimmed "$fault" plain defer "$(retries "$fault")"
    status=$?
    if deferral_changes "$fault"; then
        right "plain $fault, deferring" $status
    else
        same "plain $fault, deferring" $status
    fi
    [[ $without != *$'\nhits 0' ]] || return 1
    struck=$((struck + 1))
}

big_at() { # big_at FAULT; false when nothing failed, in pieces, which are more
    local fault=$1
    plainly "$fault" big || not_ok "big $fault: without the shim" "$without"
    RLSHIM_PUNCH=sync RLSHIM_SPLIT=off shimmed "$fault" big
    same "big $fault, split = off" $?
    RLSHIM_SPLIT=256K shimmed "$fault" big defer pieces "$(retries "$fault")"
    right "big $fault, in pieces" $?
    [[ $with != *$'\nhits 0' ]] || return 1
    struck=$((struck + 1))
}

# rising PHASE NAME ERRNO SUFFIX
rising() {
    local n=1
    while "$1_at" "$2:$3:$n$4"; do
        if [ "$full" = yes ] || [ "$n" -lt 3 ]; then
            n=$((n + 1))
        else
            n=$((n * 2 - 1))
        fi
    done
    [ "$n" -gt 1 ] || not_ok "$1: nobody calls $2"
}

# calls PHASE NAME ERRNO...
calls() {
    local phase=$1 name=$2 first=$3 error
    shift 3
    rising "$phase" "$name" "$first" ""
    "${phase}_at" "$name:$first:1:forever"
    for error in "$@"; do
        if [ "$full" = yes ]; then
            rising "$phase" "$name" "$error" ""
            "${phase}_at" "$name:$error:2:forever"
        else
            "${phase}_at" "$name:$error:1"
        fi
    done
}

# --- can it be done here? -------------------------------------------------------------------------

shimmed none:EIO:1 plain defer || not_ok "the workload without a fault" "$with"
deferred=$(sed -n 's/^deferred //p' "$out/err")

# --- everything once ------------------------------------------------------------------------------

calls plain open EMFILE EACCES EINTR EROFS
calls plain write EIO ENOSPC EINTR EDQUOT EFBIG
calls plain pwrite EIO ENOSPC EINTR EDQUOT EFBIG
calls plain pwrite64 EIO ENOSPC EAGAIN
calls plain writev EIO ENOSPC EINTR
calls plain pwritev EIO ENOSPC EDQUOT
calls plain pwritev2 EIO EOPNOTSUPP EAGAIN
calls plain read EIO EINTR EAGAIN
calls plain readv EIO EINTR
calls plain pread EIO EINTR
calls plain pread64 EIO EAGAIN
calls plain preadv EIO EINTR
calls plain fallocate EIO EOPNOTSUPP ENOSPC EINTR EPERM EROFS
calls plain posix_fallocate ENOSPC EINTR
calls plain ftruncate EIO EINTR EFBIG EROFS
calls plain truncate EIO EACCES EROFS
calls plain fsync EIO ENOSPC EDQUOT EINTR
calls plain fdatasync EIO ENOSPC
calls plain dup EMFILE
calls plain dup2 EIO EINTR
calls plain fcntl EMFILE
calls plain close EIO EINTR ENOSPC
calls plain lseek EIO
calls plain fstat EIO
calls plain unlink EIO EROFS
calls plain fork EAGAIN ENOMEM
calls plain mmap ENOMEM EAGAIN
calls plain msync EIO
for name in write pwrite pwrite64 writev pwritev pwritev2 read readv pread pread64 preadv; do
    rising plain "$name" EIO :short
done
# No worker: everything inline. The program itself never calls it.
shimmed clone:EAGAIN:1:forever plain defer
right "clone, for ever" $?
if [ "$deferred" -gt 0 ]; then
    [ "$(sed -n 's/^deferred //p' "$out/err")" = 0 ] || not_ok "deferred without a worker"
    [[ $with != *$'\nhits 0' ]] || not_ok "the worker was made by something else than clone"
fi

plainly none:EIO:1 big
if [ $? = 77 ]; then
    direct=no
else
    direct=yes
    for name in pwrite pwrite64 write writev pwritev; do
        calls big "$name" EIO ENOSPC EINTR
        rising big "$name" EIO :short
    done
    calls big ftruncate EIO
    calls big fallocate EIO EOPNOTSUPP
    for name in read pread pread64; do
        calls big "$name" EIO
        rising big "$name" EIO :short
    done
    # In the first file system at hand with a gate, a few of them.
    dir=$out
    for fault in pwrite:EIO:1 pwrite:EIO:3 pwrite64:ENOSPC:2 write:EIO:2:short pwritev:EINTR:2; do
        plainly none:EIO:1 big
        [ $? = 77 ] || big_at "$fault"
    done
fi

echo "$struck failures in $runs runs, $failures checks failed"
[ "$failures" = 0 ] || exit 1
[ "$deferred" -gt 0 ] || echo "note: no punch is deferred in $dir ($(stat -f -c %T "$dir")): late punches were not in it"
[ "$direct" = yes ] || echo "note: no direct I/O in memory here: nothing in pieces was in it"
