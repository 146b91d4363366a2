#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# mode = observe: what is timed, what slow calls are told of, and that nothing is changed by it.
# shellcheck disable=SC2016  # what jq calls $o is jq's

set -u

SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
program=$BUILD/tests/preload/observe
for tool in jq addr2line; do
    command -v "$tool" >/dev/null || { echo "SKIP: $tool is not installed"; exit 77; }
done
dir=$(mktemp -d "/dev/shm/observe.XXXXXX" 2>/dev/null || mktemp -d "${TMPDIR:-/tmp}/observe.XXXXXX") || exit 1
failures=0
child=

cleanup() {
    exec 9>&- 8>&-
    [ -z "$child" ] || kill -KILL "$child" 2>/dev/null
    rm -rf -- "$dir"
}
trap cleanup EXIT
export RLSHIM_CONF=/dev/null

not_ok() {
    echo "not ok: $case_name: $1"
    failures=$((failures + 1))
}
same() { # same WHAT EXPECTED GOT
    [ "$2" = "$3" ] || not_ok "$1: expected '$2', got '$3'"
}
true_that() { # true_that WHAT FILTER: of the report
    jq -e "$2" "$dir/report.json" >/dev/null 2>&1 || not_ok "$1 ($2): $(jq -c "${3:-$2}" "$dir/report.json" 2>&1 | head -c 300)"
}
# observed CASE [ARGUMENT...]: runs it, its output in $got, its report in $dir/report.json
observed() {
    case_name=$1
    rm -rf "${dir:?}"/*
    mkdir "$dir/data"
    got=$(timeout 60 env RLSHIM_MODE="${MODE:-observe}" RLSHIM_REPORT="$dir/report.json" \
        LD_PRELOAD="$lib" "$program" "$1" "$dir/data" "${@:2}" 2>&1) || not_ok "exit status $?: $got"
    [ -f "$dir/report.json" ] || { not_ok "there is no report"; return 1; }
}
# calls ACT: how many were seen
calls() {
    jq --arg act "$1" '.observed as $o | $o.calls[$o.acts | index($act)].calls' "$dir/report.json"
}

# A slow call is told with its file, and the stack it came from.
export RLSHIM_STALL_THRESHOLD=500us
if observed stall; then
    true_that "the write stalled" '.observed | .stalls_seen >= 1 and .stalls_traced >= 1' '.observed.stalls'
    same "the file" "$dir/data/stall" "$(jq -r '.observed as $o | $o.files[$o.stalls[0][4]].path' "$dir/report.json")"
    same "the act" write "$(jq -r '.observed as $o | $o.acts[$o.stalls[0][2]]' "$dir/report.json")"
    read -r module address < <(jq -r '.observed as $o | $o.sites[$o.stalls[0][5]].frames as $f |
        "\($o.modules[$f[0]].path) \($f[1] - 1)"' "$dir/report.json")
    same "the module" "$(realpath "$program")" "$module"
    where=$(addr2line -f -s -e "$module" "$(printf '%x' "$address")" | tr '\n' ' ')
    where=${where%% (discriminator*}
    same "the place" "writes_slowly observe.c:$got" "${where% }"
    true_that "its callers" '.observed.sites[0].frames | length >= 8' '.observed.sites[0]'
    true_that "times agree" '.observed.stalls[0] as $s | ($s[0] >= .started_ns - 20000000) and ($s[0] + $s[1] <= .ended_ns)'
    true_that "the sums agree" '.observed as $o | $o.calls[$o.acts | index("write")] |
        .stalled >= 1 and .stalled_ns <= .total_ns and .worst_ns <= .stalled_ns and .worst_ns >= $o.stalls[0][1]'
fi

# Nothing of it where nobody asked.
MODE=on
if observed stall; then
    true_that "mode = on does not time" 'has("observed") | not'
fi
export RLSHIM_TIMING=on
if observed stall; then
    true_that "mode = on, timing = on does" '.observed.stalls_seen >= 1'
fi
unset RLSHIM_TIMING MODE

# Everything is counted once, in every histogram it belongs to.
export RLSHIM_STALL_THRESHOLD=1s
if observed many 50 20; then
    same "opens" 1000 "$(calls open_create)"
    same "writes" 1000 "$(calls write)"
    same "reads" 1000 "$(calls read)"
    same "closes" 1000 "$(calls close)"
    same "unlinks" 50 "$(calls unlink)"
    true_that "no stall" '.observed | .stalls_seen == 0 and .stalls == [] and .sites == []'
    true_that "the histograms add up" '[.observed.calls[] | .calls == ([.hist | to_entries[] |
        select(.key % 2 == 1) | .value] | add // 0)] | all'
    true_that "each file has its calls" '[.observed.files[] | select(.path | test("many-")) | .calls >= 61] | all'
    same "files with a name" 50 "$(jq '[.observed.files[] | select(.path | test("/many-[0-9]+$"))] | length' "$dir/report.json")"
fi

# More files and stalls than are kept: what is too much is counted, and memory stays bounded.
export RLSHIM_STALL_THRESHOLD=10us
if observed many 20000 1; then
    true_that "the table is full" '.observed | (.files | length) == 16383 and .other_files.calls > 3000' \
        '[(.observed.files | length), .observed.other_files.calls]'
    same "all opens are counted" 20000 "$(calls open_create)"
    true_that "the ring is bounded" '.observed | (.stalls | length) <= 32768 and .stalls_seen >= (.stalls | length)' \
        '[.observed.stalls_seen, (.observed.stalls | length)]'
    true_that "so are the stacks" '.observed | .stalls_traced <= .stalls_seen and (.sites | length) <= 1024'
fi

# In handlers on 8 KiB of stack, and jumped out of.
if observed handlers; then
    true_that "the handler's writes were seen" ".observed as \$o | [\$o.files[] | select(.path | test(\"/handled\$\"))] |
        .[0].stalled >= $(echo "$got" | head -n 1)" '.observed.files'
    true_that "with stacks that lead through the handler" '[.observed.sites[] | (.frames | length)] | max >= 10' \
        '.observed.sites[0]'
fi

# A child begins with nothing of its parent's.
if observed forks; then
    same "the child's reads" 3 "$(calls read)" # it ends first
    same "the child's writes" 0 "$(calls write)"
    mv "$dir"/report.[0-9]*.json "$dir/report.json" 2>/dev/null
    same "the parent's write" 1 "$(calls write)"
    same "the parent's reads" 0 "$(calls read)"
fi

# Waiting for people is no stall.
export RLSHIM_STALL_THRESHOLD=10ms
if observed pipes; then
    true_that "a pipe is no file" '.observed.stalls_seen == 0' '.observed.stalls'
    same "the file's read" 1 "$(calls read)"
fi

# Who else has a file open is seen; whose file nobody else has, too.
case_name=waits
rm -rf "${dir:?}"/*
mkdir "$dir/data"
timeout 60 env RLSHIM_MODE=observe RLSHIM_REPORT="$dir/report.json" LD_PRELOAD="$lib" \
    "$program" waits "$dir/data" >"$dir/out" 2>&1 &
child=$!
for ((i = 0; i < 500; i++)); do
    grep -q ready "$dir/out" && break
    sleep 0.02
done
tail -f /dev/null 8<"$dir/data/theirs" >/dev/null 2>&1 &
stranger=$!
sleep 0.1
rm -f "$dir/data/go"
wait "$child" || not_ok "exit status $?: $(cat "$dir/out")"
child=
kill "$stranger" 2>/dev/null
wait "$stranger" 2>/dev/null
other() {
    jq -r --arg name "/$1" '[.observed.files[] | select(.path | endswith($name))][0].other' "$dir/report.json"
}
true_that "the machine was looked at" '.observed.looks >= 1'
same "a file that a stranger has open" "$stranger" "$(other theirs)"
same "a file of its own" 0 "$(other mine)"

[ "$failures" = 0 ]
