#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 100
#
# rlshim set and reload: settings of a running program change, what was queued is applied first, what
# is wrong changes nothing and costs one line.

set -u

SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
rlshim=$BUILD/rlshim
program=$BUILD/tests/preload/report
dir=$(mktemp -d "/dev/shm/tune.XXXXXX" 2>/dev/null || mktemp -d "${TMPDIR:-/tmp}/tune.XXXXXX") || exit 1
failures=0
child=
# shellcheck disable=SC2317
clean() {
    [ -z "$child" ] || kill -KILL "$child" 2>/dev/null
    rm -rf "$dir"
}
trap clean EXIT
cd "$dir" || exit 1
unset LD_PRELOAD

not_ok() {
    echo "not ok: $1"
    failures=$((failures + 1))
}
same() { # same WHAT EXPECTED GOT
    [ "$2" = "$3" ] || not_ok "$1: expected '$2', got '$3'"
}
holds() { # holds WHAT TEXT PATTERN
    [[ $2 == *$3* ]] || not_ok "$1: '$3' is not in: $2"
}
complains() { # complains STATUS PATTERN COMMAND...
    local want=$1 pattern=$2
    shift 2
    "$@" >out 2>err </dev/null
    same "status of '$*'" "$want" $?
    same "stdout of '$*'" "" "$(cat out)"
    same "lines of '$*'" 1 "$(wc -l <err)"
    holds "'$*'" "$(cat err)" "$pattern"
}
start() { # start VARIABLE=VALUE...
    rm -f to from
    mkfifo to from
    env "$@" LD_PRELOAD="$lib" "$program" data 400 wait <to >from &
    child=$!
    exec 8>to 9<from
    hear
}
hear() {
    local line
    heard=
    while IFS= read -r -t 30 line <&9; do
        [ "$line" = ready ] && return
        heard+=$line$'\n'
    done
    not_ok "no answer from the program"
}
ask() {
    echo "$1" >&8
    hear
}
finish() {
    exec 8>&- 9<&-
    wait "$child"
    same "exit status" 0 $?
    child=
}
deferred() {
    sed -n 's/^control:.* deferred=\([0-9]*\) .*/\1/p' <<<"$heard"
}
grows() { # are punches deferred within 200 rounds?
    local before tries
    before=$(deferred)
    for ((tries = 0; tries < 200; tries++)); do
        ask round
        [ "$(deferred)" -gt "$before" ] && return 0
        before=$(deferred)
    done
    return 1
}
stays() { # in five rounds nothing is deferred
    local before
    ask round
    before=$(deferred)
    for _ in 1 2 3 4 5; do ask round; done
    same "deferred $1" "$before" "$(deferred)"
}

# --- set ----------------------------------------------------------------------------------------------

complains 2 "a process number and KEY=VALUE" "$rlshim" set 1
complains 2 "not a process number" "$rlshim" set x punch=sync
complains 2 "no setting 'colour'" "$rlshim" set 1 colour=red
complains 2 "'banana' is not a value" "$rlshim" set 1 punch=banana
complains 2 "'rlshim off'" "$rlshim" set 1 mode=off
complains 2 "read when a program starts" "$rlshim" set 1 report=/tmp/x
complains 1 "no process" "$rlshim" set 2147483647 punch=sync
complains 1 "does not run with librlshim.so" "$rlshim" set $$ punch=sync
complains 2 "one process number" "$rlshim" reload

start RLSHIM_CONF=/dev/null RLSHIM_PUNCH_DELAY=10s
if ! grows; then
    finish
    echo "SKIP: punches are not deferred in $dir ($(stat -f -c %T .), uid $(id -u))"
    exit 77
fi
"$rlshim" set "$child" punch=sync >out 2>err
same "set" "0 " "$? $(cat err)"
holds "set" "$(cat out)" "process $child: the settings hold, from its next call on"
stays "after punch=sync"
"$rlshim" set "$child" PUNCH=defer split=1M >out || not_ok "set failed"
grows || not_ok "nothing was deferred after punch=defer"
holds "active" "$heard" "active=1"
# Two orders before the program takes either: both hold, and the later one of one setting.
"$rlshim" set "$child" punch=sync split=2M >/dev/null || not_ok "set failed"
"$rlshim" set "$child" split=4M >/dev/null || not_ok "set failed"
stays "after two orders"
"$rlshim" set "$child" punch=sync >/dev/null || not_ok "set failed"
"$rlshim" set "$child" punch=defer >/dev/null || not_ok "set failed"
grows || not_ok "the later of two orders did not hold"
"$rlshim" off "$child" >/dev/null || not_ok "off failed"
complains 1 "rlshim on" "$rlshim" set "$child" punch=sync
"$rlshim" on "$child" >/dev/null || not_ok "on failed"
grows || not_ok "nothing was deferred after off and on"
finish

# --- reload -------------------------------------------------------------------------------------------

printf '[default]\npunch_delay = 10s\n' >rlshim.conf
start RLSHIM_STAT=settle
grows || not_ok "nothing was deferred with a file"
printf '[default]\npunch_delay = 10s\npunch = banana\n' >rlshim.conf
complains 1 "rlshim.conf:3: punch: " "$rlshim" reload "$child"
grows || not_ok "a bad file changed something"
printf '[default]\npunch_delay = 10s\n[app report]\npunch = sync\n' >rlshim.conf
"$rlshim" reload "$child" >out 2>err
same "reload" "0 " "$? $(cat err)"
holds "reload" "$(cat out)" "process $child: $dir/rlshim.conf is in force"
stays "after a reload"
"$rlshim" set "$child" punch=defer >out || not_ok "set failed"
grows || not_ok "what was set did not win over the file"
"$rlshim" reload "$child" >out || not_ok "reload failed"
grows || not_ok "what was set did not survive a reload"
rm rlshim.conf
complains 1 "there is no rlshim.conf" "$rlshim" reload "$child"
finish

if [ "$failures" != 0 ]; then
    echo "$failures checks failed"
    exit 1
fi
echo "all checks hold"
