#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# Opens with O_CREAT give what they give without the library, whatever `create` says: results, errno,
# descriptor numbers, modes, sizes, locks, FIFOs; and what fs.protected_regular and
# fs.protected_fifos refuse stays refused. `dedupe` must have looked, or nothing was tested.
set -u

SRC=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 2
BUILD=${BUILD:-$SRC/build}
SHIM_SO=$(realpath -- "${SHIM_SO:-$BUILD/librlshim.so}") || exit 2
program=$BUILD/tests/preload/create
work=$(mktemp -d) || exit 1
chmod 755 "$work"
declare -A before=()
mounted=
# shellcheck disable=SC2317 # called by the trap
cleanup() {
    for key in "${!before[@]}"; do echo "${before[$key]}" >"/proc/sys/fs/$key"; done
    [ -z "$mounted" ] || umount "$mounted"
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 143' TERM INT
failed=0

# one SETTING OUT [UID]: SETTING - is without the library
one() {
    local setting=$1 out=$2 dir=$work/dir
    shift 2
    local -a run=(env)
    [ "$setting" = - ] || run+=("RLSHIM_CREATE=$setting" "LD_PRELOAD=$SHIM_SO")
    if [ $# -eq 0 ]; then
        # Not as another user: the library writes no report into root's directory.
        mkdir -p "$work/$setting.rep"
        [ "$setting" = - ] || run+=("RLSHIM_REPORT=$work/$setting.rep")
        rm -rf "$dir"
        mkdir "$dir" || exit 1
    fi
    timeout 30 "${run[@]}" "$program" "$dir" "$@" >"$out" 2>&1 || echo "exit $?" >>"$out"
}
compare() { # WHAT FILE
    if ! diff -u "$work/plain" "$2" >"$work/diff"; then
        echo "FAIL: $1: not as without the library"
        head -n 30 "$work/diff"
        failed=1
    fi
}

one - "$work/plain"
[ "$(grep -c . "$work/plain")" -gt 100 ] || { echo "FAIL: the plain run did not get far"; cat "$work/plain"; exit 1; }
for setting in auto dedupe sync; do
    one "$setting" "$work/$setting"
    compare "create = $setting" "$work/$setting"
done
looked=$(grep -ho '"create_looked": *[0-9]*' "$work"/dedupe.rep/*.json | awk -F: '{ n += $2 } END { print n + 0 }')
[ "$looked" -gt 50 ] || { echo "FAIL: dedupe looked $looked times only"; failed=1; }
looked=$(grep -ho '"create_looked": *[0-9]*' "$work"/sync.rep/*.json | awk -F: '{ n += $2 } END { print n + 0 }')
[ "$looked" -eq 0 ] || { echo "FAIL: sync looked $looked times"; failed=1; }

if [ "$(id -u)" -ne 0 ] || [ ! -w /proc/sys/fs/protected_regular ]; then
    echo "not tried, only root can: fs.protected_regular, fs.protected_fifos"
    exit "$failed"
fi
for key in protected_regular protected_fifos; do before[$key]=$(<"/proc/sys/fs/$key"); done
rm -rf "$work/dir"
mkdir -p "$work/dir/sticky" "$work/dir/closed"
chmod 755 "$work/dir" "$work/dir/closed"
chmod 1777 "$work/dir/sticky"
for level in 0 1 2; do
    echo "$level" >/proc/sys/fs/protected_regular
    echo "$level" >/proc/sys/fs/protected_fifos
    refused=
    for setting in - auto dedupe; do
        rm -f "$work/dir/sticky/"*
        echo content >"$work/dir/sticky/file"
        mkfifo "$work/dir/sticky/fifo"
        chown 1:1 "$work/dir/sticky/file" "$work/dir/sticky/fifo"
        chmod 666 "$work/dir/sticky/file" "$work/dir/sticky/fifo"
        out=$work/$([ "$setting" = - ] && echo plain || echo "$setting")
        one "$setting" "$out" 12345 # no name, and not the overflow user
        echo "left: $(stat -c %s "$work/dir/sticky/file")" >>"$out"
        [ "$setting" = - ] && refused=$(grep -c 'EACCES' "$out")
        [ "$setting" = - ] || compare "protected = $level, create = $setting" "$out"
    done
    # Level 0 refuses the closed directory alone: else the comparison would show nothing.
    [ "$level" -eq 0 ] && [ "$refused" -ne 1 ] && { echo "FAIL: level 0 refuses $refused"; failed=1; }
    [ "$level" -eq 0 ] || [ "$refused" -gt 2 ] || { echo "FAIL: level $level refuses $refused"; failed=1; }
done
# A read-only file system: what exists can be opened to read, and everything else has its own error.
mkdir "$work/ro"
if mount -t tmpfs -o size=1m none "$work/ro" 2>/dev/null; then
    mounted=$work/ro
    echo content >"$work/ro/file"
    mkdir "$work/ro/dir"
    ln -s nothing "$work/ro/dangling"
    mknod "$work/ro/null" c 1 3
    mount -o remount,ro "$work/ro"
    for setting in - auto dedupe; do
        run=(env)
        [ "$setting" = - ] || run+=("RLSHIM_CREATE=$setting" "LD_PRELOAD=$SHIM_SO")
        out=$work/$([ "$setting" = - ] && echo plain || echo "$setting")
        timeout 30 "${run[@]}" "$program" "$work/ro" read-only >"$out" 2>&1 || echo "exit $?" >>"$out"
        [ "$setting" = - ] || compare "read-only, create = $setting" "$out"
    done
    [ "$(grep -c EROFS "$work/plain")" -ge 9 ] || { echo "FAIL: the plain run met no EROFS"; cat "$work/plain"; failed=1; }
else
    echo "not tried: nothing can be mounted here (EROFS)"
fi
exit "$failed"
