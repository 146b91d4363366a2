#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# Wrong configurations, poor surroundings, damaged files: one clear line each, and the program does
# what it does without the library.

# shellcheck disable=SC2016 # the inner shells expand what stands in single quotes
set -u

SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
rlshim=$BUILD/rlshim
program=$BUILD/tests/preload/report
without=$BUILD/tests/preload/without
# Many small files: in memory where that can be had, since a busy disk takes seconds for each.
dir=$(mktemp -d "/dev/shm/bad_input.XXXXXX" 2>/dev/null ||
    mktemp -d "${TMPDIR:-/tmp}/bad_input.XXXXXX") || exit 1
failures=0
left_out=()

trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
chmod 755 "$dir"
unset LD_PRELOAD
export RLSHIM_CONF=/dev/null
plain=$("$program" data 100) || exit 1

not_ok() {
    echo "not ok: $1"
    failures=$((failures + 1))
}

# unharmed WHAT LINES PATTERN COMMAND...: the command, in whose environment LD_PRELOAD is the
# library, ends with 0, prints what the program prints without, and LINES lines on stderr, the first
# of which has PATTERN in it.
unharmed() {
    local what=$1 lines=$2 pattern=$3 rc
    shift 3
    LD_PRELOAD=$lib "$@" >out 2>err </dev/null
    rc=$?
    [ "$rc" = 0 ] || not_ok "$what: status $rc: $(head -n 3 err)"
    [ "$(cat out)" = "$plain" ] || not_ok "$what: output $(head -c 300 out)"
    [ "$(wc -l <err)" = "$lines" ] || not_ok "$what: not $lines lines: $(head -n 5 err)"
    [[ $(head -n 1 err) == *$pattern* ]] || not_ok "$what: '$pattern' is not in: $(head -n 1 err)"
    case $(head -n 1 err) in
    '' | rlshim*) ;;
    *) not_ok "$what: the line does not say who speaks: $(head -n 1 err)" ;;
    esac
}
# The settings are seen at all: a bad one is complained about, a good one is not.
unharmed "nothing wrong" 0 "" "$program" data 100

# --- configuration ------------------------------------------------------------------------------

bad_file() { # bad_file WHAT PATTERN: the file bad.conf
    unharmed "$1" 1 "$2" env RLSHIM_CONF=./bad.conf "$program" data 100
    rm -rf bad.conf
}
unharmed "a file that is not there" 1 "absent.conf" \
    env RLSHIM_CONF=./absent.conf "$program" data 100
mkdir bad.conf
bad_file "a directory" "is a directory"
mkfifo bad.conf
bad_file "a FIFO" "not a regular file"
ln -s bad.conf bad.conf
bad_file "a link to itself" "symbolic links"
head -c 3000000 /dev/zero | tr '\0' '#' >bad.conf
bad_file "a huge file" "larger than 1 MiB"
cp "$program" bad.conf
bad_file "a program" "bad.conf:"
head -c 5000 /dev/urandom >bad.conf
bad_file "random bytes" "bad.conf:"
printf 'mode = on\npunch = banana\n' >bad.conf
bad_file "a wrong value" "bad.conf:2: punch: "
printf 'mode = on\ncolour = red\n' >bad.conf
bad_file "an unknown key" "bad.conf:2: colour: "
printf 'mode\n' >bad.conf
bad_file "a line without a value" "bad.conf:1: "
printf '[nonsense]\n' >bad.conf
bad_file "an unknown section" "bad.conf:1: "
printf 'punch_delay = 10\n' >bad.conf
bad_file "a time without its unit" "bad.conf:1: punch_delay: "
printf 'punch_delay = 99999999999999999999s\n' >bad.conf
bad_file "a number beyond all bounds" "bad.conf:1: punch_delay: "
yes '[app x]' | head -n 1000 >bad.conf
bad_file "a thousand sections" "bad.conf:"
printf 'punch = "a\033[31m\n' >bad.conf
bad_file "bytes that a terminal would obey" "bad.conf:1: "
grep -q $'\033' err && not_ok "an escape sequence got to the terminal"

printf 'punch = sync\n' >secret.conf
chmod 000 secret.conf
if [ "$(id -u)" != 0 ]; then
    unharmed "an unreadable file" 1 "permission denied" \
        env RLSHIM_CONF=./secret.conf "$program" data 100
elif command -v setpriv >/dev/null; then
    mkdir -m 777 open
    # The path of the library must be one that this user can reach.
    cp "$lib" open/librlshim.so
    cp "$program" open/program
    reach=$lib
    lib=$dir/open/librlshim.so
    unharmed "an unreadable file" 1 "permission denied" \
        setpriv --reuid 65534 --regid 65534 --clear-groups \
        env RLSHIM_CONF="$dir/secret.conf" "$dir/open/program" open/data 100
    lib=$reach
else
    left_out+=("an unreadable file (setpriv is missing)")
fi

# ./rlshim.conf that others may write is passed over without a word.
mkdir here
printf 'mode = banana\n' >here/rlshim.conf
chmod 666 here/rlshim.conf
(cd here && unset RLSHIM_CONF && HOME=/nonexistent && export HOME &&
    XDG_CONFIG_HOME=/nonexistent LD_PRELOAD=$lib "$program" data 100 >../out 2>../err)
[ "$(cat out)$(cat err)" = "$plain" ] || not_ok "rlshim.conf that others may write: $(cat err)"
chmod 600 here/rlshim.conf
(cd here && unset RLSHIM_CONF && LD_PRELOAD=$lib "$program" data 100 >../out 2>../err)
[ "$(cat out) $(grep -c banana err)" = "$plain 1" ] || not_ok "a wrong ./rlshim.conf: $(cat err)"

unharmed "RLSHIM_PUNCH=banana" 1 "RLSHIM_PUNCH: 'banana'" env RLSHIM_PUNCH=banana "$program" data 100
unharmed "an unknown variable" 1 "RLSHIM_COLOUR" env RLSHIM_COLOUR=red "$program" data 100
unharmed "two mistakes" 1 "rlshim" env RLSHIM_PUNCH=banana RLSHIM_MODE=x "$program" data 100
unharmed "a value of 100 KB" 1 "RLSHIM_LOG" \
    env RLSHIM_LOG="$(head -c 100000 /dev/zero | tr '\0' /)" "$program" data 100
unharmed "an empty variable" 0 "" env RLSHIM_PUNCH= "$program" data 100
unharmed "a wrong configuration and no stderr" 0 "" \
    bash -c 'unset LD_PRELOAD; exec env RLSHIM_PUNCH=banana LD_PRELOAD="$1" "$2" data 100 2>&-' \
    - "$lib" "$program"

# --- places to write to --------------------------------------------------------------------------

unharmed "a report nowhere" 1 "no report in /nonexistent/r.json" \
    env RLSHIM_REPORT=/nonexistent/r.json "$program" data 100
unharmed "counters nowhere" 1 "no live counters in /nonexistent" \
    env RLSHIM_STATS=/nonexistent "$program" data 100
unharmed "messages nowhere" 0 "" env RLSHIM_LOG=error:/nonexistent/log "$program" data 100
unharmed "messages into a FIFO that nobody reads" 1 "cannot be written" \
    bash -c 'unset LD_PRELOAD; mkfifo pipe
        exec env RLSHIM_LOG=info:./pipe RLSHIM_TRUNCATE=replace LD_PRELOAD="$1" "$2" data 100' \
    - "$lib" "$program"
unharmed "a report into a device" 1 "no report in /dev/full" \
    env RLSHIM_REPORT=/dev/full "$program" data 100

# --- limits and sandboxes ------------------------------------------------------------------------

unharmed "16 descriptors" 0 "" bash -c 'ulimit -n 16 && exec "$0" data 100' "$program"
# What started the tests may have left descriptors open, and this counts on having one free.
unharmed "4 descriptors" 0 "" bash -c 'for f in /proc/self/fd/*; do
    f=${f##*/}; [ "$f" -le 2 ] || eval "exec $f>&-"; done; ulimit -n 4 && exec "$0" data 100' "$program"
for call in io_uring_setup pidfd_getfd clone3; do
    for error in 1 38; do
        "$without" "$call" "$error" true 2>/dev/null
        if [ $? = 77 ]; then
            left_out+=("$call refused (no seccomp here)")
            break
        fi
        unharmed "$call refused with $error" 0 "" \
            "$without" "$call" "$error" env RLSHIM_REPORT="$dir/r-$call-$error.json" \
            "$program" data 100
        [ -s "r-$call-$error.json" ] || not_ok "$call refused with $error: no report"
        if [ "$call" = io_uring_setup ]; then
            grep -q '"ring_calls": 0,' "r-$call-$error.json" ||
                not_ok "$call refused with $error: a ring was used, so it was not refused"
        fi
    done
done
unharmed "no memory to lock" 0 "" bash -c 'ulimit -l 0; exec "$0" data 100' "$program"
if [ "$(id -u)" != 0 ]; then
    unharmed "no more processes" 0 "" bash -c 'ulimit -u 1; exec "$0" data 100' "$program"
fi

# A file system root that cannot be written, with nothing but one tmpfs for the program's data.
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    mkdir scratch
    unharmed "a read-only /" 0 "" unshare -m bash -c '
        mount -t tmpfs none scratch && mount -o remount,bind,ro / || exit 9
        cd scratch && exec "$0" data 100' "$program"
    unharmed "a report onto a read-only /" 1 "read-only file system" unshare -m bash -c '
        unset LD_PRELOAD
        mount -t tmpfs none scratch && mount -o remount,bind,ro / || exit 9
        cd scratch && exec env LD_PRELOAD="$1" RLSHIM_REPORT=/r.json "$0" data 100' \
        "$program" "$lib"
    # The disk is full: a report costs its line, live counters must not kill the program later.
    unharmed "counters on a full disk" 1 "no space left" unshare -m bash -c '
        unset LD_PRELOAD
        mount -t tmpfs -o size=4k none scratch && printf x >scratch/x || exit 9
        exec env LD_PRELOAD="$1" RLSHIM_STATS=./scratch "$0" data 100' "$program" "$lib"
    unharmed "a report on a full disk" 1 "no space left" unshare -m bash -c '
        unset LD_PRELOAD
        mount -t tmpfs -o size=4k none scratch && printf x >scratch/x || exit 9
        exec env LD_PRELOAD="$1" RLSHIM_REPORT=./scratch "$0" data 100' "$program" "$lib"
else
    left_out+=("a read-only / and full disks (root and mount namespaces are needed)")
fi

# --- damaged reports -----------------------------------------------------------------------------

RLSHIM_REPORT=./good.json LD_PRELOAD=$lib "$program" data 100 >/dev/null
size=$(stat -c %s good.json) || not_ok "no report to damage"
refuses() { # refuses WHAT PATTERN: the file bad.json
    local rc
    "$rlshim" report bad.json >out 2>err
    rc=$?
    [ "$rc $(wc -l <err) $(wc -l <out)" = "1 1 0" ] ||
        not_ok "report of $1: status $rc, $(wc -l <err) lines: $(head -n 2 err)"
    [[ $(cat err) == *"bad.json: "*$2* ]] || not_ok "report of $1: $(cat err)"
}
: >bad.json
refuses "an empty file" "empty"
for keep in 1 2 100 $((size / 2)) $((size - 3)); do
    head -c "$keep" good.json >bad.json
    refuses "$keep bytes of one" ""
done
head -c 10000 /dev/urandom >bad.json
refuses "random bytes" ""
head -c 2000000 /dev/zero >bad.json
refuses "2 MB of zeros" ""
printf '{"schema": "rlshim-report", "version": 99}' >bad.json
refuses "a later version" "another version"
printf '[1, 2]' >bad.json
refuses "another JSON file" ""
"$rlshim" report good.json bad.json >out 2>err
[ "$? $(wc -l <err)" = "1 1" ] || not_ok "a good and a bad one: $(cat err)"
grep -q "50 punches" out || not_ok "a good and a bad one: the good one was not shown"

if [ "$failures" != 0 ]; then
    echo "$failures checks failed"
    exit 1
fi
echo "all checks hold"
for what in ${left_out[@]+"${left_out[@]}"}; do
    echo "left out: $what"
done
