#!/bin/bash
# SPDX-License-Identifier: MIT
#
# slowfs keeps files like the directory below it, makes each operation last at least what was
# asked for, counts them, and lets requests wait side by side; a disk on it has slow flushes.
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

counted() { # OPERATION
    awk -v op="$1" '$1 == op { print $2 }' "$LAB_COUNTS"
}

now_us() {
    echo "${EPOCHREALTIME/[.,]/}"
}

lab_slow --open-ms 100 --flush-ms 60 || exit
cd "$LAB_DIR" || exit 1

begin=$(now_us)
dd if=/dev/zero of=flushed bs=4k count=1 conv=fsync status=none || fail "cannot write and fsync"
[ $(($(now_us) - begin)) -ge 120000 ] || fail "an fsync and a close take less than 2 x 60 ms"
[ "$(counted fsync)" = 1 ] || fail "$(counted fsync) fsyncs counted after 1"
[ "$(counted create)" = 1 ] || fail "$(counted create) creations counted after 1"
[ "$(counted open)" = 0 ] || fail "$(counted open) opens counted after none"

# Ten opens of 100 ms in ten processes: a second in a row, little more than one side by side.
echo text >"$LAB_BACK/shared"
begin=$(now_us)
pids=()
for _ in {1..10}; do
    (: <shared) &
    pids+=($!)
done
wait "${pids[@]}"
us=$(($(now_us) - begin))
[ "$us" -ge 100000 ] || fail "ten opens took less than one should"
[ "$us" -lt 900000 ] || fail "ten opens of 100 ms took $us us: they wait for each other"
[ "$(counted open)" = 10 ] || fail "$(counted open) opens counted after 10"

{
    mkdir d && echo one >d/a && echo two >>d/a && ln d/a b && ln -s d/a c && mv d/a d/e
} || fail "names cannot be made and moved"
[ "$(cat b)" = $'one\ntwo' ] || fail "a file reads: $(cat b)"
[ "$(stat -c %h,%s b)" = 2,8 ] || fail "links and size of a file: $(stat -c %h,%s b)"
{
    truncate -s 3 b && chmod 640 b && touch -d '2001-02-03 04:05:06 UTC' b
} || fail "cannot set attributes"
[ "$(stat -c %s,%a,%Y "$LAB_BACK/b")" = 3,640,981173106 ] ||
    fail "attributes below: $(stat -c %s,%a,%Y "$LAB_BACK/b")"
[ "$(readlink c)" = d/a ] || fail "a symbolic link reads: $(readlink c)"
[ "$(echo *)" = "b c d flushed shared" ] || fail "the directory lists: $(echo *)"
(
    exec 5<>held && rm held && echo kept >&5 && [ "$(cat /proc/self/fd/5)" = kept ]
) || fail "an unlinked open file does not live on"
rm -r d b c
[ ! -e "$LAB_BACK/d" ] || fail "names cannot be removed"
cd / && lab_down

if lab_slowdisk ext4 64 150; then
    begin=$(now_us)
    dd if=/dev/zero of="$LAB_DIR/f" bs=4k count=1 conv=fsync status=none || fail "slow disk: fsync"
    [ $(($(now_us) - begin)) -ge 150000 ] || fail "a flush of the slow disk takes less than 150 ms"
    lab_down
elif [ $? != 77 ]; then
    fail "the slow disk did not come up"
fi
exit "$bad"
