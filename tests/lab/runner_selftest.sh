#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The runner reports passing, failing, crashing, skipping, hanging and empty runs for what they
# are. It runs tests/run on small scripts written here and reads its output and exit status.
# timeout: 240

# shellcheck disable=SC2317 # the conditions are called through check

set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
runner=$here/../run
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
bad=0

script() { # NAME BODY
    printf '#!/bin/bash\n%s\n' "$2" >"$dir/$1"
    chmod +x "$dir/$1"
}

run() { # ARGS...: leaves $out and $rc
    out=$(RLTEST_GRACE=1 "$runner" "$@" 2>&1)
    rc=$?
}

check() { # WHAT CONDITION...
    local what=$1
    shift
    if ! "$@"; then
        echo "FAIL: $what (exit status $rc); the runner said:"
        printf '%s\n' "$out" | sed 's/^/    > /'
        bad=1
    fi
}

# A killed orphan may stay a zombie for as long as the machine's first process likes.
gone() {
    for _ in {1..50}; do
        grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$(cat "$PIDS")/status" || return 0
        sleep 0.1
    done
    return 1
}
last_is() { [ "$(printf '%s\n' "$out" | tail -n 1)" = "$1" ]; }
says() { printf '%s\n' "$out" | grep -q -- "$1"; }
silent_on() { ! says "$1"; }
status() { [ "$rc" = "$1" ]; }

script good 'exit 0'
script fails 'echo some text; echo the reason stands here; exit 3'
script crashes 'kill -SEGV $$'
script skips 'echo "SKIP: no such hardware"; exit 77'
script mute_skip 'exit 77'
# shellcheck disable=SC2016 # expanded by the script written
script hangs '# timeout: 1
trap "" TERM
sleep 300 & echo $! >"$PIDS"; wait; sleep 300'
# shellcheck disable=SC2016
script polite '# timeout: 1
trap "echo cleaned >\"$PIDS\"; exit 1" TERM
sleep 300 & wait'
# shellcheck disable=SC2016
script escapes 'setsid bash -c "echo \$\$ >\"\$PIDS\"; sleep 300; exit" &
until [ -s "$PIDS" ]; do sleep 0.05; done; exit 0'
# shellcheck disable=SC2016
script surroundings '[ -d "$TMPDIR" ] && [ -d "$SRC/tests" ] && [ -n "$BUILD" ] && [ -n "$SHIM_SO" ] &&
! env | grep -q "^RLSHIM_" && [ "$PWD" = "$SRC" ] && touch "$TMPDIR/x" && echo "$TMPDIR" >"$PIDS"'
# A SIGINT that is ignored when a program starts stays ignored unless the program objects.
# shellcheck disable=SC2016
script interruptible 'kill -INT $$; sleep 5; exit 0'
printf 'exit 0\n' >"$dir/plain.sh"
export PIDS=$dir/pids

run "$dir/good"
check "one good test passes" status 0
check "one good test is counted" last_is "1 passed, 0 failed, 0 skipped"

run "$dir/plain.sh"
check "a script without x permission runs" last_is "1 passed, 0 failed, 0 skipped"

run "$dir/good" "$dir/fails" "$dir/good"
check "a failure fails the run" status 1
check "a failure is counted" last_is "2 passed, 1 failed, 0 skipped"
check "a failure's exit status is told" says 'fails: exit status 3'
check "a failure's output is repeated" says 'the reason stands here'

run "$dir/good" "$dir/crashes"
check "a crash fails the run" status 1
check "a crash names its signal" says 'crashes: killed by SIGSEGV'

run "$dir/interruptible"
check "a test can be interrupted by SIGINT" says 'interruptible: killed by SIGINT'

run "$dir/good" "$dir/skips"
check "a skip does not fail the run" status 0
check "a skip is counted" last_is "1 passed, 0 failed, 1 skipped"
check "a skip's reason is told" says '^  .*skips: no such hardware$'

run "$dir/good" "$dir/mute_skip"
check "a skip without a reason says so" says 'mute_skip: gave no reason'

run "$dir/skips"
check "a run of skips only is no success" status 1
check "a run of skips only says that nothing ran" says '^nothing ran'
check "a run of skips only is counted" last_is "0 passed, 0 failed, 1 skipped"

run
check "an empty run is no success" status 1
check "an empty run says that nothing ran" says '^nothing ran'
check "an empty run is counted" last_is "0 passed, 0 failed, 0 skipped"

run "$dir/good" "$dir/absent"
check "a missing test fails the run" status 1
check "a missing test is named" says 'absent: no such file'

run "$dir/hangs" "$dir/good"
check "a hanging test fails the run" status 1
check "a hanging test is a timeout" says '^TIMEOUT .*hangs'
check "a hanging test does not stop the others" last_is "1 passed, 1 failed, 0 skipped"
check "a hanging test's children are gone" gone

rm -f "$PIDS"
run "$dir/polite"
check "a test whose time is up can clean up" grep -q cleaned "$PIDS"

rm -f "$PIDS"
run "$dir/escapes"
check "a process that left the group is told" says 'left 2 process(es) behind'
check "a process that left the group is gone" gone

RLSHIM_PUNCH=banana run "$dir/surroundings"
check "a test finds its surroundings" last_is "1 passed, 0 failed, 0 skipped"
check "a test's TMPDIR is removed" test ! -e "$(cat "$PIDS")"

run -v "$dir/good" "$dir/skips"
check "-v shows output" says '| SKIP: no such hardware'
run "$dir/good" "$dir/skips"
check "without -v it is quiet" silent_on '| SKIP'

run -j 3 "$dir/good" "$dir/fails" "$dir/skips" "$dir/good" "$dir/crashes"
check "three at a time count the same" last_is "2 passed, 2 failed, 1 skipped"

many=()
for _ in {1..40}; do many+=("$dir/good"); done
run -j 3 "${many[@]}" "$dir/fails"
check "tests that end at once are not lost" last_is "40 passed, 1 failed, 0 skipped"

mkdir -p "$dir/b/tests/unit"
cp "$dir/hangs" "$dir/b/tests/unit/sidecar"
sed -i '/timeout: 1/d' "$dir/b/tests/unit/sidecar"
echo 1 >"$dir/b/tests/unit/sidecar.timeout"
BUILD=$dir/b run "$dir/b/tests/unit/sidecar"
check "a timeout beside the test counts" says 'still running after 1 s'
run --scale 2 "$dir/hangs"
check "--scale stretches a timeout" says 'still running after 2 s'
sed '/timeout: 1/d' "$dir/hangs" >"$dir/undeclared"
run --timeout 1 "$dir/undeclared"
check "--timeout is for tests that declare none" says 'still running after 1 s'

sed -i 's/timeout: 1$/timeout: 100/' "$dir/hangs"
rm -f "$PIDS"
RLTEST_GRACE=1 "$runner" "$dir/hangs" "$dir/good" >"$dir/out" 2>&1 &
pid=$!
for _ in {1..100}; do
    [ -s "$PIDS" ] && break
    sleep 0.1
done
kill -TERM "$pid"
wait "$pid"
rc=$?
out=$(cat "$dir/out")
check "an interrupted run says so by its status" status 130
check "an interrupted run kills its test" gone
check "an interrupted run does not count what it did not run" \
    last_is "0 passed, 1 failed, 0 skipped"

run --timeout banana "$dir/good"
check "a bad option is a usage error" status 2

[ "$bad" = 0 ] && echo "the runner tells passes, failures, crashes, skips and timeouts apart"
exit "$bad"
