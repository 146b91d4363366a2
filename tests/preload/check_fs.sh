#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 300
#
# What `rlshim check` says can be on for a file system is what happens there: each mitigation is
# given its chance on ext4, XFS, btrfs, tmpfs and FUSE, and its counter has to agree, yes or no.

set -u
SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
rlshim=$BUILD/rlshim
# shellcheck source=tests/lab/lab.sh
. "$SRC/tests/lab/lab.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/check_fs.XXXXXX") || exit 1
lab_at_exit "rm -rf -- '$work'"
export RLSHIM_CONF=/dev/null
failures=0
tried=0
notes=()

"${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -O1 -shared -fPIC -o "$work/slowsync.so" \
    "$SRC/tests/preload/lib/slowsync.c" || exit 1

# runs [SETTING...] -- PROGRAM...: with the library; its report says what happened
runs() {
    local -a settings=()
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    rm -rf "$work/reports" && mkdir "$work/reports"
    timeout 60 env ${settings[@]+"${settings[@]}"} RLSHIM_REPORT="$work/reports" \
        LD_PRELOAD="$lib${preload:+ $preload}" "$@" >"$work/out" 2>&1
}

counted() { # counted NAME
    cat "$work/reports"/*.json 2>/dev/null | sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" |
        awk '{ n += $1 } END { print n + 0 }'
}

# What gives each mitigation its chance in $dir, and prints how often it acted.
try_split() {
    runs -- "${one_inode[@]}"
    counted write_pieces
}
try_gate() { # pieces pass it everywhere; punches where it is for them
    runs -- "${one_inode[@]}" --named
    echo $((($(counted gate_entered) - $(counted write_pieces)) * 2 > $(counted punch_calls)))
}
try_preextend() {
    runs -- "${one_inode[@]}"
    counted tail_begun
}
try_punch() {
    runs -- "$BUILD/examples/one_inode" --json --dir "$dir" --punch-only 131072
    counted punch_deferred
}
try_evict() {
    runs RLSHIM_EVICT_MIN=0 -- "$BUILD/tests/bench/delete_bench" big "$dir" 4 8 unlink
    counted evict_files
}
try_truncate() {
    local empty
    runs -- "$BUILD/examples/vfsmix" --json --dir "$dir" --seconds 0.3
    empty=$(counted truncate_elided)
    runs -- "$BUILD/tests/bench/delete_bench" size "$dir" 50
    echo $((empty + $(counted truncate_elided)))
}
try_fsync() {
    preload=$work/slowsync.so runs -- "$BUILD/tests/preload/flush" share "$dir"
    counted flush_shared
}
try_writeback_window() {
    runs RLSHIM_WRITEBACK_WINDOW=1M -- "$BUILD/tests/preload/window" bound "$dir" 64
    counted window_started
}
try_create() {
    runs -- "$BUILD/tests/bench/create_storm" creat "$dir" "new$RANDOM." 10 8
    counted create_looked
}

# Its line is cut at a semicolon or colon, which explain.
compare() { # DIRECTORY
    local what n i says is
    dir=$1 preload=
    one_inode=("$BUILD/examples/one_inode" --json --dir "$dir" --seconds 0.5 --append-size 16M --punch-size 16M)
    line=$(cd "$dir" && "$rlshim" check | sed -n "s|^ *[a-z]* *$dir ([a-z0-9.]*): ||p" | head -n 1)
    line=${line%%[;:]*}
    tried=$((tried + 1))
    for what in split gate preextend punch evict truncate fsync writeback_window create; do
        says=no is=no
        [[ ", $line," == *" $what,"* ]] && says=yes
        # On a busy machine evidence may come too late: what should act has three chances.
        for ((i = 0; i < 3; i++)); do
            n=$("try_$what")
            [[ $n == 0 && $says == yes ]] || break
        done
        [ "$n" = 0 ] || is=yes
        if [ $says != $is ]; then
            echo "not ok: $fs: check says $says to $what, and its counter says $n (check: $line)"
            head -n 3 "$work/out"
            failures=$((failures + 1))
        fi
    done
    says=no
    (cd "$dir" && "$rlshim" check) | grep -q 'file leases work here' && says=yes
    is=$(python3 - "$dir" <<'END'
import fcntl, os, sys
try:
    fd = os.open(sys.argv[1], os.O_TMPFILE | os.O_RDWR, 0o600)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    print("yes" if fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_WRLCK else "no")
except OSError:
    print("no")
END
)
    [ "$says" = "${is:-}" ] || { echo "not ok: $fs: check says $says to leases, and a try ${is:-}"; failures=$((failures + 1)); }
    [ -n "$line" ] || { echo "not ok: $fs: check has no line for $dir"; failures=$((failures + 1)); }
}

for fs in ext4 xfs btrfs tmpfs fuse; do
    case $fs in
    tmpfs) lab_tmpfs 1024 ;;
    fuse) lab_slow --lookup-ms 2 --open-ms 2 --create-ms 2 ;;
    *) lab_up "$fs" 1024 ;;
    esac >"$work/said"
    case $? in
    0)
        compare "$LAB_DIR"
        lab_down
        ;;
    77) notes+=("$fs: $(sed 's/^SKIP: //' "$work/said")") ;;
    *)
        echo "not ok: the lab on $fs did not come up: $(cat "$work/said")"
        failures=$((failures + 1))
        ;;
    esac
done

# What the system allows: with io_uring switched off, and under a filter, check says so.
says() { # says WHAT YES|NO PATTERN < the output of check
    local is=no
    grep -qE "$3" && is=yes
    [ $is = "$2" ] || { echo "not ok: $1: check says $is to '$3'"; failures=$((failures + 1)); }
}
disabled=/proc/sys/kernel/io_uring_disabled
if [ -w $disabled ]; then
    before=$(<$disabled)
    lab_at_exit "echo $before >$disabled"
    echo 0 >$disabled
    "$rlshim" check | says "io_uring on" yes 'ok +io_uring can be used'
    echo 2 >$disabled
    "$rlshim" check | says "io_uring off" no 'ok +io_uring can be used'
    echo "$before" >$disabled
else
    notes+=("io_uring switched off: only root can, on Linux 6.6 and later")
fi
"$rlshim" check | says "no filter" no 'system calls are filtered'
"$BUILD/tests/preload/window" without-cachestat "$rlshim" check | says "a filter" yes 'system calls are filtered'

for note in ${notes[@]+"${notes[@]}"}; do
    echo "left out: $note"
done
[ "$failures" = 0 ] || exit 1
[ "$tried" -gt 0 ] || { echo "SKIP: no file system can be mounted here"; exit 77; }
echo "check agrees with what happens on $tried file systems"
