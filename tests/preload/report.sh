#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# Exit reports, live counters and the outside switch of a running program.

set -u

SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
rlshim=$BUILD/rlshim
program=$BUILD/tests/preload/report
# Many small files: in memory where that can be had, since a busy disk takes seconds for each.
dir=$(mktemp -d "/dev/shm/report.XXXXXX" 2>/dev/null || mktemp -d "${TMPDIR:-/tmp}/report.XXXXXX") || exit 1
failures=0
child=

cleanup() {
    [ -z "$child" ] || kill -KILL "$child" 2>/dev/null
    rm -rf "$dir"
}
trap cleanup EXIT
cd "$dir" || exit 1
export RLSHIM_CONF=/dev/null

not_ok() {
    echo "not ok: $case_name: $1"
    failures=$((failures + 1))
}
same() { # same WHAT EXPECTED GOT
    [ "$2" = "$3" ] || not_ok "$1: expected '$2', got '$3'"
}
holds() { # holds TEXT PATTERN
    [[ $1 == *$2* ]] || not_ok "'$2' is not in: $1"
}
with() { # with KEY=VALUE... -- PROGRAM ARGUMENT...
    local env=()
    while [ "$1" != -- ]; do
        env+=("RLSHIM_$1")
        shift
    done
    shift
    env "${env[@]}" LD_PRELOAD="$lib" "$@"
}
counter() { # counter NAME FILE...: from JSON, one member a line
    local name=$1
    shift
    sed -n "s/^ *\"$name\": \([0-9]*\),*\$/\1/p" "$@"
}
count_files() {
    find "$1" -maxdepth 1 -type f -name "$2" | wc -l
}

plain=$("$program" data 400) || exit 1

case_name="a directory gets JSON and text, and the program is as without"
mkdir d
got=$(with REPORT=./d -- "$program" data 400)
same "exit status" 0 $?
same "output" "$plain" "$got"
same "files" "1 1" "$(count_files d '*.json') $(count_files d '*.txt')"
same "punches" 200 "$(counter punch_calls d/*.json)"
same "reads" 400 "$(counter calls_read d/*.json)"
holds "$(cat d/*.txt)" "200 punches: "
same "text again" "$(cat d/*.txt)" "$("$rlshim" report d/*.json)"
if command -v jq >/dev/null; then
    same "schema" "rlshim-report 1 report" \
        "$(jq -r '"\(.schema) \(.version) \(.program)"' d/*.json)"
    same "command" "$program data 400" "$(jq -r '.command | join(" ")' d/*.json)"
fi

case_name="the name tells the rank, wherever it comes from"
for var in OMPI_COMM_WORLD_RANK PMI_RANK PMIX_RANK SLURM_PROCID; do
    mkdir "$var"
    with REPORT="./$var" -- env "$var=5" "$program" data 10 >/dev/null
    same "$var" 1 "$(count_files "$var" "rlshim-*-rank5.json")"
done

case_name="processes with one report file do not overwrite each other"
mkdir one
for i in 1 2 3; do
    with REPORT=./one/r.json -- "$program" "data$i" 20 >/dev/null &
done
wait
same "files" 3 "$(count_files one '*.json')"
same "left over" 0 "$(find one -name '*.tmp' | wc -l)"
holds "$("$rlshim" report one/*.json)" "30 punches: "
holds "$("$rlshim" report one/*.json)" "3 processes of report"

case_name="a .txt file gets text"
with REPORT=./r.txt -- "$program" data 20 >/dev/null
holds "$(cat r.txt)" "10 punches: "

case_name="relative paths are meant from where the program started"
mkdir start
# shellcheck disable=SC2016 # for the inner shell
got=$(with REPORT=./start/r.json CHILDREN=off -- bash -c 'cd / && echo "$PWD"')
same "output" / "$got"
same "files" 1 "$(count_files start 'r*.json')"

case_name="odd bytes in arguments make no invalid report"
with REPORT=./odd.json -- bash -c ':' $'a\nb"\\' $'\xff\xc3' $'\xc3\xa4' ''
"$rlshim" report odd.json >odd.txt || not_ok "the report cannot be read back"
holds "$(cat odd.txt)" "$(printf '\303\244')"
if command -v jq >/dev/null; then
    same "argument" $'a\nb"\\' "$(jq -r '.command[3]' odd.json)"
fi

case_name="exit codes stay"
with REPORT=./code.json -- bash -c 'exit 37'
same "status" 37 $?
with REPORT=./code2.json -- bash -c 'kill -TERM $$' 2>/dev/null
same "status" 143 $?

case_name="a report that cannot be written costs one line and nothing else"
got=$(with REPORT=/nonexistent/r.json -- "$program" data 400 2>err)
same "status" 0 $?
same "output" "$plain" "$got"
same "lines" 1 "$(wc -l <err)"
holds "$(cat err)" "no report in /nonexistent/r.json: "
with REPORT=/nonexistent/r.json -- "$program" data 400 >/dev/null 2>&-
same "status without stderr" 0 $?

case_name="a program whose output is closed is reported all the same"
with REPORT=./closed.json -- "$program" data 20 >&- 2>&- <&-
same "punches" 10 "$(counter punch_calls closed.json)"

# --- while a program runs ---------------------------------------------------------------------

# start KEY=VALUE...: the program under the library; rounds are asked for with `ask`.
start() {
    local env=() pair
    for pair in "$@"; do env+=("RLSHIM_$pair"); done
    rm -f to from
    mkfifo to from
    env "${env[@]}" LD_PRELOAD="$lib" "$program" data 400 wait <to >from &
    child=$!
    exec 8>to 9<from
    hear
}
# hear: the lines up to "ready" into $heard
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
metric() { # metric NAME: from the file metrics
    sed -n "s/^rlshim_$1{.*} //p" metrics
}
# The descriptor of the program's file, which has no name.
data_of() {
    find "/proc/$1/fd" -lname '*/data (deleted)' 2>/dev/null | head -n 1
}
deferred_so_far() {
    sed -n 's/^control:.* deferred=\([0-9]*\) .*/\1/p' <<<"$heard"
}
# Rounds until punches of one are deferred: evidence of sole use takes a moment. Fails if never.
until_deferred() {
    local before after tries
    before=$(deferred_so_far)
    for ((tries = 0; tries < 200; tries++)); do
        ask round
        after=$(deferred_so_far)
        [ "${after:-0}" -gt "${before:-0}" ] && return 0
        before=$after
    done
    return 1
}

case_name="live counters are there while the program runs, and gone afterwards"
mkdir stats
start STATS=./stats
ask round
holds "$heard" "${plain}"
"$rlshim" stat --dir stats "$child" >out || not_ok "stat failed"
same "punches" 400 "$(sed -n 's/^ *\([0-9]*\)  punch_calls .*/\1/p' out)"
same "listed" "$child" "$("$rlshim" stat --dir stats --all | awk 'NR == 2 { print $1 }')"
same "by RLSHIM_STATS" 0 "$(RLSHIM_STATS=./stats "$rlshim" stat "$child" >/dev/null && echo 0)"
same "interval lines" 3 "$("$rlshim" stat --dir stats "$child" 0.01 2 | wc -l)"
same "interval lines of all" 4 "$("$rlshim" stat --dir stats --all 0.01 2 | wc -l)"
holds "$("$rlshim" stat --dir stats --all 0.01 1)" "$child report"
"$rlshim" stat --dir stats --prometheus "$child" >metrics || not_ok "metrics failed"
same "metric" 400 "$(metric punch_calls_total)"
same "lines that are no metrics" "" "$(grep -Ev '^(# (HELP [a-z_]+ .+|TYPE [a-z_]+ (counter|gauge))|rlshim_[a-z_]+\{pid="[0-9]+",program="report"(,reason="[a-z_]+")?\} [0-9]+)$' metrics)"
same "only the owner can read them" 600 "$(stat -c %a "stats/rlshim-$child.stats")"
finish
same "files afterwards" 0 "$(find stats -type f | wc -l)"
"$rlshim" stat --dir stats "$BASHPID" 2>err && not_ok "stat of a stranger worked"
holds "$(cat err)" "does the program run with rlshim"

case_name="what a killed program counted can still be read"
start STATS=./stats
kill -KILL "$child"
wait "$child" 2>/dev/null
exec 8>&- 9<&-
holds "$("$rlshim" stat --dir stats --all)" "was killed"
holds "$("$rlshim" stat --dir stats "$child")" "punch_calls"
child=

can_defer=yes
case_name="a running program can be switched off and on from outside"
start PUNCH_DELAY=10s REPORT=./switch.json STATS=./stats
if ! until_deferred; then
    can_defer=no
    finish
else
    # The queue holds what the last round put there; off applies it.
    [ "$(stat -L -c %b "$(data_of "$child")")" -gt 1600 ] || not_ok "nothing was queued before off"
    for _ in $(seq 100); do
        "$rlshim" stat --dir stats "$child" >out
        grep -q '^  now: [0-9,]* ranges\? queued, the oldest for ' out && break
        sleep 0.05
    done
    holds "$(cat out)" "queued, the oldest for"
    "$rlshim" stat --dir stats --prometheus --all >metrics
    [ "$(metric punch_queued_ranges)" -ge 1 ] || not_ok "no metric of what is queued"
    [ "$(metric punch_queued_oldest_ns)" -ge 1 ] || not_ok "no metric of its age"
    got=$("$rlshim" off "$child")
    "$rlshim" stat --dir stats --prometheus "$child" >metrics
    same "queued after off" "0 0" "$(metric punch_queued_ranges) $(metric punch_queued_oldest_ns)"
    same "off" "0 process $child: rlshim is off and everything is applied" "$? $got"
    # 512-byte sectors of the 200 blocks that are left.
    same "sectors after off" 1600 "$(stat -L -c %b "$(data_of "$child")")"
    before=$(deferred_so_far)
    for _ in 1 2 3 4 5; do
        ask round
        holds "$heard" "$plain"
    done
    holds "$heard" "active=0"
    same "deferred while off" "$before" "$(deferred_so_far)"
    "$rlshim" on "$child" >/dev/null || not_ok "on failed"
    until_deferred || not_ok "nothing was deferred after it was on again"
    holds "$heard" "active=1"
    # Once more: the answer to the first off must not be taken for one to the second.
    "$rlshim" off "$child" >/dev/null || not_ok "the second off failed"
    finish
    holds "$(cat switch.json)" '"punch_no_setting": '
    [ "$(counter punch_no_setting switch.json)" -ge 1000 ] || not_ok "the reason was not counted"
fi

case_name="off in a program that defers nothing is done at once"
start MODE=observe
"$rlshim" off "$child" >out || not_ok "off failed"
holds "$(cat out)" "is off"
finish

case_name="an application can switch, settle and count through control.h"
start PUNCH_DELAY=10s
holds "$heard" "active=1 calls=200"
if [ "$can_defer" = yes ]; then
    until_deferred || not_ok "nothing was deferred"
    ask settle
    holds "$heard" "queued 0"
    until_deferred || not_ok "nothing was deferred after a settle"
fi
ask off
holds "$heard" "queued 0"
holds "$heard" "active=0"
holds "$heard" "$plain"
ask on
holds "$heard" "active=1"
finish

case_name="control.h answers 0 without the library"
got=$("$program" data 400 wait </dev/null)
holds "$got" "control: active=0 calls=0 deferred=0 off=0"

if [ "$failures" != 0 ]; then
    echo "$failures checks failed"
    exit 1
fi
if [ "$can_defer" = no ]; then
    # Everything else was checked and held.
    echo "SKIP: punches are not deferred in $dir ($(stat -f -c %T .), uid $(id -u)): switching off a queue was not tested"
    exit 77
fi
echo "all checks hold"
