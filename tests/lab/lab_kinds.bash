#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Labs beyond a plain disk on RAM: one that cannot store everything, and slow ones. Part of lab.sh,
# which sources it and says how to use it.
# shellcheck disable=SC2154 # _lab_here and _lab_state are lab.sh's

# _lab_physical FILE: where the blocks of FILE lie on the current lab's device, "offset length" in
# bytes, one extent a line. btrfs reports addresses of its own, which its chunk tree translates.
_lab_physical() {
    filefrag -b4096 -v "$1" | awk -F'[ :.]+' '/^ *[0-9]+:/ { print $5 * 4096, $7 * 4096 }' |
        if [ "$LAB_FS" = btrfs ]; then
            btrfs inspect-internal dump-tree -t chunk "$LAB_DEV" >"$_lab_state/chunks" || return 1
            awk 'FNR == NR {
                    if ($4 ~ /CHUNK_TREE/ && $5 == "CHUNK_ITEM") logical = $6 + 0
                    if ($1 == "length") len[logical] = $2
                    if ($1 == "stripe" && $2 == 0 && $3 == "devid") physical[logical] = $6
                    next
                }
                {
                    for (l in len)
                        if ($1 >= l + 0 && $1 < l + len[l])
                            print $1 - l + physical[l], $2
                }' "$_lab_state/chunks" -
        else
            cat
        fi
}

# The device's tmpfs is resized to exactly what it holds: no page can be added.
lab_small_fill() {
    local used
    used=$(df --output=used -k "$_lab_state/box" | tail -n 1)
    mount -o "remount,size=$((used))k" "$_lab_state/box"
}

lab_small_relieve() {
    mount -o remount,size=1g "$_lab_state/box"
}

_lab_small_build() {
    local fs=$1 mb=$2 box=$_lab_state/box free at len ballast
    mkdir "$box"
    # Huge pages could not be given back by halves.
    mount -t tmpfs -o size=1g,huge=never "${_lab_state##*/}" "$box" 2>/dev/null ||
        mount -t tmpfs -o size=1g "${_lab_state##*/}" "$box" || return 1
    # A discard would give the device room behind our back.
    _lab_disk "$fs" "$mb" "$box" "$([ "$fs" != btrfs ] || echo nodiscard)" || return
    LAB_DOOMED=$LAB_DIR/doomed
    : >"$LAB_DOOMED"
    [ "$fs" != btrfs ] || chattr +C "$LAB_DOOMED" # or the blocks would move when written
    fallocate -l 8M "$LAB_DOOMED" || return 1
    free=$(df --output=avail -k "$LAB_DIR" | tail -n 1)
    ballast=$((free - 2048))
    # What df promises is not always to be had.
    until fallocate -l "${ballast}k" "$LAB_DIR/ballast" 2>/dev/null; do
        rm -f "$LAB_DIR/ballast"
        ballast=$((ballast - 1024))
        [ "$ballast" -gt 0 ] || _lab_error "cannot fill $fs" || return
    done
    sync -f "$LAB_DIR"
    # Everything gets pages, then the doomed blocks lose theirs: metadata stays writable, so that
    # only writes into that file fail and the file system does not shut itself down.
    _lab_physical "$LAB_DOOMED" >"$_lab_state/extents"
    [ -s "$_lab_state/extents" ] || _lab_error "cannot find the blocks of $LAB_DOOMED" || return
    fallocate -l "${mb}M" "$box/image" || return 1
    while read -r at len; do
        fallocate --punch-hole -o "$at" -l "$len" "$box/image" || return 1
    done <"$_lab_state/extents"
    lab_small_fill
}

lab_small() {
    local fs=$1 mb
    case $fs in
    ext4) mb=64 ;;
    xfs) mb=320 ;;
    *) mb=160 ;;
    esac
    _lab_need_disk "$fs" "$mb" && _lab_new || return
    _lab_small_build "$fs" "$mb" || { _lab_give_up; return; }
    _lab_ready
}

# _lab_slowfs BACK AT OPTIONS...: mounts slowfs; builds it where the build directory has none.
_lab_slowfs() {
    local back=$1 at=$2 bin=${BUILD-}/tests/lab/slowfs flags out
    shift 2
    [ -c /dev/fuse ] && [ -r /dev/fuse ] && [ -w /dev/fuse ] ||
        _lab_skip "no FUSE here (/dev/fuse)" || return
    if [ -z "${BUILD-}" ] || [ ! -x "$bin" ]; then
        bin=$_lab_state/slowfs
        flags=$(pkg-config --cflags --libs fuse3 2>/dev/null) ||
            _lab_skip "libfuse3 is not installed (libfuse3-dev, pkg-config)" || return
        # shellcheck disable=SC2086 # several flags
        out=$("${CC:-cc}" -std=gnu11 -O2 -o "$bin" "$_lab_here/slowfs.c" $flags -pthread 2>&1) ||
            _lab_error "slowfs cannot be built: $out" || return
    fi
    out=$("$bin" "$@" "$back" "$at" 2>&1) || _lab_skip "slowfs cannot be mounted here: $out"
}

lab_slow() {
    _lab_new || return
    mkdir "$_lab_state/back"
    LAB_BACK=$_lab_state/back LAB_COUNTS=$_lab_state/counts LAB_FS=fuse
    _lab_slowfs "$LAB_BACK" "$LAB_DIR" --counts "$LAB_COUNTS" "$@" || { _lab_give_up; return; }
    _lab_ready
}

lab_slowdisk() {
    local fs=$1 mb=$2 flush_ms=$3
    _lab_need_disk "$fs" "$mb" && _lab_new || return
    mkdir "$_lab_state/back" "$_lab_state/box"
    LAB_COUNTS=$_lab_state/counts
    # The close of the image is no device flush.
    if ! _lab_slowfs "$_lab_state/back" "$_lab_state/box" --counts "$LAB_COUNTS" \
        --fsync-ms "$flush_ms"; then
        _lab_give_up
        return
    fi
    _lab_disk "$fs" "$mb" "$_lab_state/box" || { _lab_give_up; return; }
    _lab_ready
}
