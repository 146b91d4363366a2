#!/bin/bash
# SPDX-License-Identifier: MIT
#
# lab_small gives real errors: a buffered write that the device cannot store is accepted and fails
# at fsync, a direct one fails at once, a full file system refuses in write(2), and the rest of the
# file system goes on working. Whoever builds error tests on lab_small relies on this.
# timeout: 120

set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lab.sh disable=SC1091
. "$here/lab.sh"
bad=0

fail() {
    echo "FAIL: $*"
    bad=1
}

# The kernel maps the loop device's ENOSPC to ENOSPC or, in older ones, to EIO.
refused='No space left on device|Input/output error'

dd_says() { # leaves dd's complaint in $out
    out=$(LC_ALL=C dd if=/dev/zero status=none "$@" 2>&1)
}

try() { # FS
    local fs=$1
    lab_small "$fs" || return

    dd_says of="$LAB_DOOMED" bs=64k count=1 conv=notrunc ||
        fail "$fs: a buffered write into the doomed file is not accepted: $out"
    dd_says of="$LAB_DOOMED" bs=64k count=1 seek=16 conv=notrunc,fsync &&
        fail "$fs: fsync of what the device cannot store succeeds"
    echo "$out" | grep -Eq "fsync failed.*($refused)" ||
        fail "$fs: not fsync, but something else failed: $out"
    dd_says of="$LAB_DOOMED" bs=64k count=1 seek=32 conv=notrunc oflag=direct &&
        fail "$fs: a direct write that the device cannot store succeeds"
    echo "$out" | grep -Eq "$refused" || fail "$fs: a direct write says: $out"

    dd_says of="$LAB_DIR/new" bs=64k count=320 && fail "$fs: 20 MiB fit on a full file system"
    echo "$out" | grep -q 'error writing.*No space left on device' ||
        fail "$fs: the full file system says: $out"
    rm "$LAB_DIR/new" || fail "$fs: cannot remove a file"
    : >"$LAB_DIR/empty" || fail "$fs: cannot make a file after the errors"
    [ -w "$LAB_DIR" ] || fail "$fs: became read-only"
    if [ "$fs" != btrfs ]; then # which has no block free
        dd_says of="$LAB_DIR/small" bs=4k count=4 conv=fsync ||
            fail "$fs: an ordinary small file cannot be written: $out"
    fi

    lab_small_relieve
    dd_says of="$LAB_DOOMED" bs=64k count=1 seek=48 conv=notrunc,fsync ||
        fail "$fs: with room on the device a write still fails: $out"
    lab_small_fill
    dd_says of="$LAB_DOOMED" bs=64k count=1 seek=64 conv=notrunc,fsync &&
        fail "$fs: filled again, the device stores a new block"
    lab_down
}

tested=0
for fs in ext4 xfs btrfs; do
    out=
    try "$fs" >"${TMPDIR:-/tmp}/small_full_disk.$$"
    rc=$?
    said=$(cat "${TMPDIR:-/tmp}/small_full_disk.$$")
    rm -f "${TMPDIR:-/tmp}/small_full_disk.$$"
    case $rc in
    0)
        tested=$((tested + 1))
        [ -z "$said" ] || echo "$said"
        ;;
    77) echo "not tested, $fs: ${said#SKIP: }" ;;
    *) fail "$fs: the lab did not come up: $said" ;;
    esac
done
if [ "$tested" = 0 ] && [ "$bad" = 0 ]; then
    echo "SKIP: no small full disk here: ${said#SKIP: }"
    exit 77
fi
exit "$bad"
