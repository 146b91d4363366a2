#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 300
#
# The keeper finishes what killed programs leave queued: KEEPER_KILLS kills (60; `make stress` makes
# 1,000) over the file systems that can be had, each with punches queued at that moment; no punch
# lost, no byte damaged, no lock, socket or pipe of the program held, the file system free. With
# `keeper = off` the same must lose punches. Then every other way to end.
set -u
SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${BUILD:-$SRC/build}
export KEEPER_SO=${SHIM_SO:-$build/librlshim.so}
export SRC BUILD
kills=${KEEPER_KILLS:-60}
seed=${KEEPER_SEED:-$RANDOM}
prog=$build/tests/preload/keeper
status=0
# shellcheck source=tests/lab/lab.sh
. "$SRC/tests/lab/lab.sh"

counts=$(mktemp -d /dev/shm/rlshim-keeper.XXXXXX) || exit 1
lab_at_exit "rm -rf '$counts'"
trap 'rm -rf "$counts"' EXIT # until the first lab takes it over

fail() {
    echo "FAIL: $*"
    status=1
}

echo "seed $seed"
mkdir "$counts/data" || exit 1
out=$(KEEPER_OFF=1 "$prog" kills "$counts/data" "$counts" 4 "$seed") || fail "without a keeper nothing is lost, or more than punches: $out"
echo "keeper = off: $out"
"$prog" kills "$counts/data" "$counts" $((kills / 2)) "$seed" || fail "kills in memory"
"$prog" ends "$counts/data" "$counts" || fail "ways to end"

# As another user: nothing here needs root.
if [ "$(id -u)" = 0 ] && setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$prog" 2>/dev/null; then
    chown -R 65534:65534 "$counts"
    setpriv --reuid=65534 --regid=65534 --clear-groups "$prog" kills "$counts/data" "$counts" 4 "$seed" ||
        fail "kills as nobody"
    chown -R 0:0 "$counts"
fi

for fs in ext4 xfs btrfs; do
    lab_up "$fs" 400 >"$counts/log" 2>&1 || {
        echo "no $fs here: $(cat "$counts/log")"
        continue
    }
    "$prog" kills "$LAB_DIR" "$counts" $(((kills + 5) / 6)) "$seed" || fail "kills on $fs"
    # The keeper may still be at its last step.
    for _ in $(seq 100); do
        umount "$LAB_DIR" 2>/dev/null && break
        sleep 0.01
    done
    mountpoint -q "$LAB_DIR" && fail "$fs cannot be unmounted a second after the last kill"
    lab_down
done
[ "$status" = 0 ] && echo ok
exit "$status"
