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

# counts NAME [SETTING...] -- PROGRAM...: what the counter says after the program ran
counts() {
    local name=$1
    local -a settings=()
    shift
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    rm -rf "$work/reports" && mkdir "$work/reports"
    timeout 60 env ${settings[@]+"${settings[@]}"} RLSHIM_REPORT="$work/reports" \
        LD_PRELOAD="$lib${preload:+ $preload}" "$@" >"$work/out" 2>&1
    cat "$work/reports"/*.json 2>/dev/null | sed -n "s/.*\"$name\": \([0-9]*\).*/\1/p" |
        awk '{ n += $1 } END { print n + 0 }'
}

# agrees WHAT COUNT: with the line of `check`
agrees() {
    local says=no is=no
    [[ " $line," == *" $1,"* ]] && says=yes
    [ "$2" = 0 ] || is=yes
    [ "$says" = "$is" ] || {
        echo "not ok: $fs: check says $says to $1, and its counter says $2 (check: $line)"
        head -n 3 "$work/out"
        failures=$((failures + 1))
    }
}

# Where all is tried on one file system; its line is cut at a semicolon or colon, which explain.
compare() { # DIRECTORY
    local dir=$1 bench=$BUILD/tests/bench prefix preload=
    fs=$LAB_FS
    line=$(cd "$dir" && "$rlshim" check | sed -n "s|^ *[a-z]* *$dir ([a-z0-9.]*): ||p" | head -n 1)
    [ -n "$line" ] || {
        echo "not ok: $fs: check has no line for $dir"
        failures=$((failures + 1))
        return
    }
    line=${line%%[;:]*}
    tried=$((tried + 1))
    local -a run=("$BUILD/examples/one_inode" --json --dir "$dir" --seconds 0.5 --append-size 16M --punch-size 16M)
    agrees split "$(counts write_pieces -- "${run[@]}")"
    # Big writes pass it everywhere; on file systems that it is for, so do some of 4096 punches.
    agrees gate "$(($(counts gate_entered -- "${run[@]}" --named) / 100))"
    agrees preextend "$(counts tail_begun -- "${run[@]}")"
    agrees punch "$(counts punch_deferred -- "$BUILD/examples/one_inode" --json --dir "$dir" --punch-only 131072)"
    agrees evict "$(counts evict_files RLSHIM_EVICT_MIN=0 -- "$bench/delete_bench" big "$dir" 4 8 unlink)"
    agrees truncate "$(($(counts truncate_elided -- "$BUILD/examples/vfsmix" --json --dir "$dir" --seconds 0.3) +
        $(counts truncate_elided -- "$bench/delete_bench" size "$dir" 50)))"
    preload=$work/slowsync.so
    agrees fsync "$(counts flush_shared -- "$BUILD/tests/preload/flush" share "$dir")"
    preload=
    agrees writeback_window "$(counts window_started RLSHIM_WRITEBACK_WINDOW=1M -- \
        "$BUILD/tests/preload/window" bound "$dir" 64)"
    prefix=new
    agrees create "$(counts create_looked -- "$bench/create_storm" creat "$dir" $prefix 10 8)"
}

for fs in ext4 xfs btrfs tmpfs fuse; do
    case $fs in
    tmpfs) lab_tmpfs 1024 ;;
    fuse) lab_slow --lookup-ms 2 --open-ms 2 --create-ms 2 ;;
    *) lab_up "$fs" 1024 ;;
    esac >"$work/said"
    case $? in
    0)
        LAB_FS=$fs
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

for note in ${notes[@]+"${notes[@]}"}; do
    echo "left out: $note"
done
[ "$failures" = 0 ] || exit 1
[ "$tried" -gt 0 ] || { echo "SKIP: no file system can be mounted here"; exit 77; }
echo "check agrees with what happens on $tried file systems"
