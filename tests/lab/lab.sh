#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The lab: throw-away file systems on which the kernel's stalls and errors can be met on demand.
# A library for bash scripts, and a command:
#
#   tests/lab/lab.sh with FS SIZE_MB [THROTTLE_MBPS] -- CMD...   a disk on RAM
#   tests/lab/lab.sh small FS -- CMD...                          a disk that cannot store all
#   tests/lab/lab.sh tmpfs SIZE_MB -- CMD...                     a tmpfs
#   tests/lab/lab.sh slow [SLOWFS OPTIONS] -- CMD...             a slow FUSE file system
#   tests/lab/lab.sh slowdisk FS SIZE_MB FLUSH_MS -- CMD...      a disk with slow flushes
#   tests/lab/lab.sh sweep                                       clean up after killed runs
#
# FS is ext4, xfs (300 MB or more) or btrfs (120 MB or more). CMD finds LAB_DIR (where it is
# mounted), LAB_DEV (the loop device, if any) and LAB_FS, and runs inside the throttle group;
# everything is gone when it ends, and its exit status is the command's.
#
# As a library (". tests/lab/lab.sh"):
#
#   lab_up FS SIZE_MB [THROTTLE_MBPS]   loop device with direct I/O on a sparse file on /dev/shm.
#                     THROTTLE_MBPS: MiB/s that processes started by lab_exec or lab_spawn may
#                     write directly. Only the process that issues the I/O is throttled (the kernel
#                     charges writeback to a kernel thread), so it must be started by one of these.
#   lab_small FS      $LAB_DOOMED is a file of 8 MiB whose blocks the device cannot store: writes
#                     into it are accepted by the page cache and fail when they are written back.
#                     Elsewhere 2 MiB or less (btrfs) are free, so that a new file soon meets ENOSPC
#                     in write(2). lab_small_relieve gives the device room, lab_small_fill takes it
#                     again: after a relief, only blocks not yet written fail.
#   lab_tmpfs SIZE_MB
#   lab_slow [OPTIONS]    slowfs.c over $LAB_BACK (same files, without delay); $LAB_COUNTS says how
#                     often each operation came. Files made in LAB_BACK have names that the kernel
#                     has not looked up yet: only for those does O_CREAT hold the directory's lock.
#   lab_slowdisk FS SIZE_MB FLUSH_MS    as lab_up, on a file of a slowfs: a device flush takes long.
#   lab_exec CMD...   runs CMD in the throttle group of the current lab; its status.
#   lab_spawn CMD...  the same in the background, LAB_PID is its process id and process group.
#   lab_use DIR       makes the lab with that LAB_DIR the current one (several may be up).
#   lab_down [DIR]    takes the current lab (or DIR's) down; the one made before it is current then.
#   lab_at_exit CMD   runs CMD when the script ends, before the labs go down.
#
# Rules. The functions that set variables must not run in $(...) or a pipe. Where a lab cannot be
# had here they print "SKIP: reason" and return 77: write "lab_up xfs 512 || exit". The first lab
# takes over the traps for EXIT, HUP, INT and TERM: use lab_at_exit. A subshell that makes a lab
# takes down its own only. After SIGKILL the next lab of anybody cleans up: every directory, mount,
# loop device and control group is named rlshim-lab-PID-START-NAMESPACE-NUMBER by its owner.

_lab_root=${LAB_ROOT:-/dev/shm}
_lab_prefix=rlshim-lab
_lab_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
_lab_mine=()    # "pid:state directory" of each lab of this script
_lab_spawned=() # "pid:pid spawned"
_lab_exits=()
_lab_armed=
case :$PATH: in
*:/usr/sbin:*) ;;
*) PATH=$PATH:/usr/sbin:/sbin ;;
esac

_lab_skip() {
    echo "SKIP: $*"
    return 77
}

_lab_error() {
    echo "lab: $*" >&2
    return 1
}

# REPLY = start time of process $1, which tells it from a later one with the same id. A zombie is
# dead: nobody may come to collect it.
_lab_birth() {
    local s f
    s=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    read -ra f <<<"${s##*) }"
    [ "${f[0]}" != Z ] || return 1
    REPLY=${f[19]}
}

# Is the owner that the name of a lab tells about still there? Of an owner in another pid
# namespace nothing can be known, so it counts as alive.
_lab_alive() {
    local pid birth ns n
    IFS=- read -r pid birth ns n <<<"${1#"$_lab_prefix"-}"
    [ -n "$n" ] || return 0
    [ "$ns" = "$_lab_ns" ] || return 0
    _lab_birth "$pid" && [ "$REPLY" = "$birth" ]
}

_lab_ns=$(readlink /proc/self/ns/pid)
_lab_ns=${_lab_ns//[!0-9]/}

# Sets _lab_v1 and _lab_v2 to the mount points of the blkio controller and of cgroup v2.
_lab_find_groups() {
    local at type opts
    _lab_v1='' _lab_v2=''
    while read -r _ at type opts _; do
        case $type,$opts, in
        cgroup,*,blkio,*) _lab_v1=$at ;;
        cgroup2,*) _lab_v2=$at ;;
        esac
    done </proc/self/mounts
}

_lab_kill_group_members() {
    local group=$1 sig=$2 p
    while read -r p; do
        [ "$p" = "$$" ] || [ "$p" = "$BASHPID" ] || kill "-$sig" "$p" 2>/dev/null
    done <"$group/cgroup.procs"
}

# Ends the processes in the control groups of lab $1 and removes the groups.
_lab_drop_groups() {
    local name=$1 root group i
    for root in "$_lab_v1" "$_lab_v2"; do
        group=$root/$name
        if [ -z "$root" ] || [ ! -d "$group" ]; then continue; fi
        # Writes that wait for the throttle would delay their process's death.
        if [ "$root" = "$_lab_v1" ]; then
            sed 's/ .*/ 0/' "$group/blkio.throttle.write_bps_device" 2>/dev/null |
                while read -r i; do echo "$i" >"$group/blkio.throttle.write_bps_device"; done
        else
            sed 's/ .*/ wbps=max/' "$group/io.max" 2>/dev/null |
                while read -r i; do echo "$i" >"$group/io.max"; done
        fi
        _lab_kill_group_members "$group" TERM
        for i in {1..100}; do
            rmdir "$group" 2>/dev/null && break
            [ "$i" -lt 20 ] || _lab_kill_group_members "$group" KILL
            sleep 0.05
        done
    done
}

_lab_detach_under() {
    local f file
    for f in /sys/block/loop*/loop/backing_file; do
        read -r file 2>/dev/null <"$f" || continue
        f=${f#/sys/block/}
        case $file in
        "$1"/*) losetup -d "/dev/${f%%/*}" 2>/dev/null ;;
        esac
    done
}

_lab_unmount() {
    local at=$1 link pid try
    for try in 1 2 3 4 5; do
        umount "$at" 2>/dev/null || fusermount3 -u "$at" 2>/dev/null && return
        mountpoint -q "$at" || return 0
        if [ "$try" -ge 3 ]; then # what still holds it outlived its lab
            while read -r link; do
                pid=${link#/proc/}
                pid=${pid%%/*}
                [ "$pid" = "$$" ] || [ "$pid" = "$BASHPID" ] || kill -KILL "$pid" 2>/dev/null
            done < <(find /proc/[0-9]*/{cwd,root,exe} /proc/[0-9]*/fd \
                \( -lname "$at" -o -lname "$at/*" \) 2>/dev/null)
        fi
        sleep 0.2
    done
    umount -l "$at" 2>/dev/null || fusermount3 -uz "$at" 2>/dev/null
}

# Takes down whatever belongs to state directory $1, however far it had come.
_lab_tear() {
    local state=$1 at mounts=()
    case $PWD/ in
    "$state"/*) cd / ;;
    esac
    _lab_find_groups
    _lab_drop_groups "${state##*/}"
    while read -r _ _ _ _ at _; do
        case $at in
        "$state"/*) mounts=("$at" "${mounts[@]}") ;; # the last one first
        esac
    done </proc/self/mountinfo
    for at in "${mounts[@]}"; do
        _lab_detach_under "$at"
        _lab_unmount "$at"
    done
    _lab_detach_under "$state"
    rm -rf --one-file-system -- "$state"
}

lab_sweep() {
    local d lock
    [ -r "$_lab_root" ] && exec {lock}<"$_lab_root" || return 0
    flock -w 60 "$lock"
    for d in "$_lab_root/$_lab_prefix"-*; do
        if [ ! -d "$d" ] || [ ! -O "$d" ]; then continue; fi
        _lab_alive "${d##*/}" || _lab_tear "$d"
    done
    _lab_find_groups
    for d in "$_lab_v1/$_lab_prefix"-* "$_lab_v2/$_lab_prefix"-*; do
        if [ ! -d "$d" ] || [ ! -w "$d" ]; then continue; fi
        _lab_alive "${d##*/}" || _lab_drop_groups "${d##*/}"
    done
    exec {lock}<&-
}

_lab_end_spawned() {
    local s pids=() i
    for s in "${_lab_spawned[@]}"; do
        [ "${s%%:*}" != "$BASHPID" ] || pids+=("${s#*:}")
    done
    _lab_spawned=()
    for s in "${pids[@]}"; do kill -TERM -- "-$s" 2>/dev/null || kill -TERM "$s" 2>/dev/null; done
    for i in {1..40}; do
        for s in "${pids[@]}"; do kill -0 -- "-$s" 2>/dev/null && sleep 0.05 && continue 2; done
        break
    done
    for s in "${pids[@]}"; do kill -KILL -- "-$s" 2>/dev/null || kill -KILL "$s" 2>/dev/null; done
}

_lab_exit() {
    local status=$? i m
    trap '' HUP INT TERM
    [ "$_lab_armed" = "$BASHPID" ] || exit "$status"
    for m in "${_lab_exits[@]}"; do eval "$m"; done
    _lab_end_spawned
    for ((i = ${#_lab_mine[@]} - 1; i >= 0; i--)); do
        m=${_lab_mine[i]}
        [ "${m%%:*}" != "$BASHPID" ] || _lab_tear "${m#*:}"
    done
    exit "$status"
}

_lab_arm() {
    [ "$_lab_armed" != "$BASHPID" ] || return 0
    _lab_armed=$BASHPID
    _lab_exits=()
    trap _lab_exit EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

lab_at_exit() {
    _lab_arm
    _lab_exits+=("$1")
}

# Makes the state directory of a new lab: _lab_state.
_lab_new() {
    local n=0 me=$BASHPID
    _lab_need_place || return
    lab_sweep
    _lab_birth "$me"
    until mkdir -m 755 "$_lab_root/$_lab_prefix-$me-$REPLY-$_lab_ns-$n" 2>/dev/null; do
        n=$((n + 1))
        [ "$n" -lt 1000 ] || _lab_error "cannot make a directory in $_lab_root" || return
    done
    _lab_state=$_lab_root/$_lab_prefix-$me-$REPLY-$_lab_ns-$n
    _lab_mine+=("$me:$_lab_state")
    _lab_arm
    mkdir "$_lab_state/mnt"
    LAB_DIR=$_lab_state/mnt LAB_DEV='' LAB_FS='' LAB_GROUP='' LAB_DOOMED='' LAB_BACK='' LAB_COUNTS=''
}

_lab_ready() {
    export LAB_DIR LAB_DEV LAB_FS LAB_GROUP LAB_DOOMED LAB_BACK LAB_COUNTS
    declare -p LAB_DIR LAB_DEV LAB_FS LAB_GROUP LAB_DOOMED LAB_BACK LAB_COUNTS |
        sed 's/^declare -[^ ]*/export/' >"$_lab_state/vars"
}

lab_use() {
    _lab_state=${1%/mnt}
    # shellcheck disable=SC1091 # written by _lab_ready
    [ ! -e "$_lab_state/vars" ] || . "$_lab_state/vars" # a half-made lab has none
}

lab_down() {
    local state m left=()
    state=${1:-${LAB_DIR-}}
    state=${state%/mnt}
    [ -n "$state" ] || return 0
    _lab_tear "$state"
    for m in "${_lab_mine[@]}"; do [ "$m" = "$BASHPID:$state" ] || left+=("$m"); done
    _lab_mine=("${left[@]}")
    [ "${LAB_DIR-}" = "$state/mnt" ] || return 0
    unset LAB_DIR LAB_DEV LAB_FS LAB_GROUP LAB_DOOMED LAB_BACK LAB_COUNTS
    [ ${#left[@]} = 0 ] || lab_use "${left[-1]#*:}"
}

# Takes the half-made lab down again; the status it was called with.
_lab_give_up() {
    local status=$?
    lab_down "$LAB_DIR"
    return "$status"
}

_lab_need_place() {
    if [ ! -d "$_lab_root" ] || [ ! -w "$_lab_root" ]; then
        _lab_skip "cannot write to $_lab_root, where labs keep their files"
    fi
}

_lab_need_root() {
    [ "$EUID" = 0 ] || _lab_skip "labs mount file systems and need root"
}

_lab_need_disk() { # FS SIZE_MB
    local free
    _lab_need_root && _lab_need_place || return
    case $1 in
    ext4 | xfs | btrfs) ;;
    *) _lab_error "unknown file system $1: ext4, xfs or btrfs" || return ;;
    esac
    command -v "mkfs.$1" >/dev/null || _lab_skip "mkfs.$1 is not installed" || return
    command -v losetup >/dev/null || _lab_skip "losetup is not installed" || return
    [ -e /dev/loop-control ] || _lab_skip "no loop devices here (/dev/loop-control)" || return
    if ! grep -qw "$1" /proc/filesystems; then
        modprobe "$1" 2>/dev/null
        grep -qw "$1" /proc/filesystems || _lab_skip "the kernel has no $1" || return
    fi
    free=$(df --output=avail -BM "$_lab_root" | tail -n 1)
    free=${free//[!0-9]/}
    [ "$free" -ge "$2" ] || _lab_skip "$_lab_root has $free MB free, the lab may need $2" || return
}

# Makes a file system FS of SIZE_MB on a loop device on a sparse file in directory $3, and mounts it
# with the options $4.
_lab_disk() {
    local fs=$1 mb=$2 image=$3/image mount_opts=${4:-rw} out opts=()
    truncate -s "${mb}M" "$image" || return 1
    # Direct I/O keeps the device's data out of a second page cache. tmpfs has it since Linux 6.6;
    # before, the device is as good but for memory.
    if ! LAB_DEV=$(losetup --find --show --direct-io=on "$image" 2>/dev/null) &&
        ! LAB_DEV=$(losetup --find --show "$image" 2>/dev/null); then
        out=$(losetup --find --show "$image" 2>&1)
        _lab_detach_under "$3"
        _lab_skip "no loop device can be had: ${out##*$'\n'}"
        return
    fi
    case $fs in
    # Nothing is left to be initialised in the background.
    ext4) opts=(-q -F -b 4096 -E 'lazy_itable_init=0,lazy_journal_init=0') ;;
    xfs) opts=(-q -f) ;;
    btrfs) opts=(-q -f) ;;
    esac
    if ! out=$("mkfs.$fs" "${opts[@]}" "$LAB_DEV" 2>&1); then
        _lab_error "mkfs.$fs on $mb MB failed: ${out%%$'\n'*}"
        return
    fi
    if ! out=$(mount -t "$fs" -o "$mount_opts" "$LAB_DEV" "$LAB_DIR" 2>&1); then
        _lab_skip "$fs cannot be mounted here: ${out##*$'\n'}"
        return
    fi
    LAB_FS=$fs
}

# Makes the control group of the current lab with a write limit of $1 MiB/s on LAB_DEV.
_lab_throttle() {
    local name=${_lab_state##*/} dev bps=$(($1 * 1048576)) error
    read -r dev <"/sys/block/${LAB_DEV##*/}/dev"
    _lab_find_groups
    if [ -n "$_lab_v1" ] && [ -e "$_lab_v1/blkio.throttle.write_bps_device" ]; then
        LAB_GROUP=$_lab_v1/$name
        mkdir "$LAB_GROUP" 2>/dev/null &&
            echo "$dev $bps" 2>/dev/null >"$LAB_GROUP/blkio.throttle.write_bps_device" && return
        error="$_lab_v1 refuses a write limit"
    elif [ -n "$_lab_v2" ] && grep -qsw io "$_lab_v2/cgroup.controllers"; then
        LAB_GROUP=$_lab_v2/$name
        # Stays on afterwards: other labs may need it, and without limits it costs nothing.
        echo +io 2>/dev/null >"$_lab_v2/cgroup.subtree_control"
        mkdir "$LAB_GROUP" 2>/dev/null && [ -e "$LAB_GROUP/io.max" ] &&
            echo "$dev wbps=$bps" 2>/dev/null >"$LAB_GROUP/io.max" && return
        error="$_lab_v2 refuses a write limit"
    else
        error="no blkio or io control group is mounted"
    fi
    LAB_GROUP=
    _lab_skip "writes cannot be throttled here: $error"
}

lab_up() {
    local fs=$1 mb=$2 mbps=${3-}
    _lab_need_disk "$fs" "$mb" && _lab_new || return
    _lab_disk "$fs" "$mb" "$_lab_state" || { _lab_give_up; return; }
    if [ -n "$mbps" ]; then
        _lab_throttle "$mbps" || { _lab_give_up; return; }
    fi
    _lab_ready
}

lab_tmpfs() {
    _lab_need_root && _lab_new || return
    mount -t tmpfs -o "size=${1}m" "${_lab_state##*/}" "$LAB_DIR" || { _lab_give_up; return; }
    LAB_FS=tmpfs
    _lab_ready
}

# shellcheck source-path=SCRIPTDIR source=lab_kinds.bash disable=SC1091
. "$_lab_here/lab_kinds.bash"

# In a session of its own, so that it can be ended with all its children, and in the group before
# it does anything. Background jobs of a shell ignore SIGINT: env undoes that.
lab_spawn() {
    local group=${LAB_GROUP-}
    _lab_arm
    (
        [ -z "$group" ] || echo "$BASHPID" >"$group/cgroup.procs" || exit 125
        case $(type -t "$1") in
        file) exec setsid env --default-signal=INT,QUIT "$@" ;;
        *) "$@" ;;
        esac
    ) <&0 &
    LAB_PID=$!
    _lab_spawned+=("$BASHPID:$LAB_PID")
}

lab_exec() {
    local status s left=()
    lab_spawn "$@"
    wait "$LAB_PID"
    status=$?
    for s in "${_lab_spawned[@]}"; do [ "$s" = "$BASHPID:$LAB_PID" ] || left+=("$s"); done
    _lab_spawned=("${left[@]}")
    return "$status"
}

_lab_main() {
    local kind=${1-} args=()
    [ $# = 0 ] || shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        args+=("$1")
        shift
    done
    if [ "$kind" = sweep ]; then
        lab_sweep
        return
    fi
    case $kind,${#args[@]} in
    with,[23] | small,1 | tmpfs,1 | slow,* | slowdisk,3) ;;
    *) kind= ;;
    esac
    if [ -z "$kind" ] || [ $# -lt 2 ]; then
        sed -n '/^#   tests/s/^# *//p' "${BASH_SOURCE[0]}" >&2
        return 2
    fi
    shift
    [ "$kind" != with ] || kind=up
    "lab_$kind" "${args[@]}" || return
    if [ -t 0 ]; then # a person's shell keeps its terminal
        (
            [ -z "$LAB_GROUP" ] || echo "$BASHPID" >"$LAB_GROUP/cgroup.procs"
            exec "$@"
        )
    else
        lab_exec "$@"
    fi
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    set -u
    _lab_main "$@"
fi
