#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The lab's disks come up on each file system, its throttle holds direct writes to the rate asked
# for, and nothing stays behind however the lab ends: normally, by failure, by SIGINT, SIGTERM or
# SIGKILL.
# timeout: 240

set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lab=$here/lab.sh
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
bad=0

fail() {
    echo "FAIL: $*"
    bad=1
}

# Complains about each trace of the lab that was mounted at $2, after the event $1.
nothing_left() {
    local state=${2%/mnt} f file
    [ -n "$2" ] || fail "$1: the lab never came up" || return
    [ ! -e "$state" ] || fail "$1: $state is left"
    ! grep -q " $state/" /proc/self/mountinfo || fail "$1: a mount is left under $state"
    for f in /sys/block/loop*/loop/backing_file; do
        read -r file 2>/dev/null <"$f" || continue
        [[ $file != "$state"/* ]] || fail "$1: loop device ${f#/sys/block/} is left"
    done
    file=$(find /sys/fs/cgroup -maxdepth 2 -name "${state##*/}" 2>/dev/null)
    [ -z "$file" ] || fail "$1: control group $file is left"
}

wait_for_file() {
    local i
    for ((i = 0; i < 200; i++)); do
        [ ! -s "$1" ] || return 0
        sleep 0.1
    done
    return 1
}

# What runs in the lab: $MIB of direct writes, timed; tells its duration and the place.
# shellcheck disable=SC2016 # expanded in the lab
writer='begin=${EPOCHREALTIME/[.,]/}
dd if=/dev/zero of="$LAB_DIR/f" bs=1M count="$MIB" oflag=direct status=none || exit 1
echo "$((${EPOCHREALTIME/[.,]/} - begin)) $LAB_DIR"'

# One try at measuring FS under a throttle of RATE. Too fast is wrong at once: the throttle does
# not hold. Too slow may be a busy machine: returns 1 for another try.
one_rate() { # FS RATE
    local out us rc
    export MIB=$(($2 * 9 / 10))
    out=$("$lab" with "$1" 512 "$2" -- bash -c "$writer")
    rc=$?
    if [ "$rc" = 77 ]; then
        echo "not tested, $1: ${out#SKIP: }"
        return 77
    fi
    [ "$rc" = 0 ] || fail "$1: direct writes in the lab: exit status $rc" || return 0
    us=${out%% *}
    rate=$((MIB * 1000000 / us))
    nothing_left "$1, normal end" "${out#* }"
    [ "$rate" -le $(($2 * 2)) ] || fail "$1: $rate MiB/s under a throttle of $2 MiB/s"
    [ "$rate" -ge $(($2 / 2)) ]
}

tested=0
reason=
for fs in ext4 xfs btrfs; do
    for try in 1 2 3; do
        one_rate "$fs" 300 >"$dir/try"
        rc=$?
        cat "$dir/try"
        [ "$rc" = 1 ] || break
    done
    case $rc in
    77) reason=$(cat "$dir/try") ;;
    0)
        tested=$((tested + 1))
        echo "$fs: throttle of 300 MiB/s held ($rate MiB/s)"
        ;;
    *) fail "$fs: only $rate MiB/s under a throttle of 300 MiB/s in $try tries" ;;
    esac
done
if [ "$tested" = 0 ] && [ "$bad" = 0 ]; then
    echo "SKIP: no lab with a throttle here (${reason#*: })"
    exit 77
fi

# shellcheck disable=SC2016 # expanded in the lab
"$lab" with ext4 64 -- sh -c 'echo "$LAB_DIR" >"$0"; exit 7' "$dir/place"
[ $? = 7 ] || fail "the command's exit status is not the lab's"
nothing_left "failing command" "$(cat "$dir/place")"

# shellcheck disable=SC2016 # expanded in the lab
stays='dd if=/dev/zero of="$LAB_DIR/f" bs=1M count=4 oflag=direct status=none
cd "$LAB_DIR" && exec 5>g && echo "$LAB_DIR" >"$PLACE" && sleep 300'
for sig in INT TERM KILL; do
    export PLACE=$dir/place.$sig
    env --default-signal=INT "$lab" with ext4 64 40 -- bash -c "$stays" &
    pid=$!
    wait_for_file "$PLACE" || fail "SIG$sig: the lab never came up"
    place=$(cat "$PLACE")
    kill "-$sig" "$pid"
    wait "$pid" 2>/dev/null
    rc=$?
    if [ "$sig" = KILL ]; then
        grep -q " $place " /proc/self/mountinfo || fail "SIGKILL: nothing was left to sweep"
        "$lab" sweep
    fi
    [ "$rc" = $((128 + $(kill -l "$sig"))) ] || fail "SIG$sig: exit status $rc"
    nothing_left "SIG$sig" "$place"
done

# Two labs of one script, which fails while both are up.
cat >"$dir/two.sh" <<'END'
set -u
. "$1" && lab_up ext4 32 || exit
echo "$LAB_DIR" && first=$LAB_DIR && touch "$LAB_DIR/first"
lab_up ext4 48 && echo "$LAB_DIR" && [ ! -e "$LAB_DIR/first" ] || exit 1
lab_use "$first" && [ -e "$LAB_DIR/first" ] && mountpoint -q "$LAB_DIR" || exit 1
lab_at_exit "echo the exit command ran"
sleep 300 >"$LAB_DIR/held" &
exit 5
END
bash "$dir/two.sh" "$lab" >"$dir/two"
[ $? = 5 ] || fail "two labs at once: $(cat "$dir/two")"
grep -q '^the exit command ran$' "$dir/two" || fail "lab_at_exit's command did not run"
{
    read -r one
    read -r two
} <"$dir/two"
[ "$one" != "$two" ] || fail "two labs at once are one"
nothing_left "first of two labs" "$one"
nothing_left "second of two labs" "$two"

# Another's lab is left alone by a sweep.
"$lab" tmpfs 8 -- bash -c "\"$lab\" sweep; mountpoint -q \"\$LAB_DIR\"" ||
    fail "a sweep took down a lab in use"

out=$("$lab" with reiserfs 64 -- true 2>&1)
[ $? = 1 ] || fail "an unknown file system: $out"
out=$("$lab" with ext4 -- true 2>&1)
[ $? = 2 ] || fail "a missing size is a usage error: $out"

exit "$bad"
