#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 14400
#
# The long form of what `make check` runs briefly: the model on every file system and the torture
# tests, SECONDS each; 1,000 kills with punches queued. What ran is added up in STRESS_LOG (build/stress.log): seeds, histories, commit.
set -u
build=${BUILD:-build}
src=${SRC:-.}
seconds=${STRESS_SECONDS:-600}
seed=${STRESS_SEED:-$(date +%s)}
log=${STRESS_LOG:-$build/stress.log}
commit=$(git -C "$src" describe --always --dirty 2>/dev/null || echo unknown)
status=0
for fs in ext4 xfs btrfs tmpfs; do
    out=$(mktemp)
    MODEL_FS=$fs MODEL_SEED=$seed MODEL_SAVE=$build "$src/tests/model/run.sh" "$seconds" 2>&1 | tee "$out"
    if [ "${PIPESTATUS[0]}" != 0 ]; then
        echo "FAIL: the model on $fs, seed $seed"
        status=1
    fi
    awk -v fs="$fs" -v commit="$commit" -v seed="$seed" '/^model .*histories/ {
            for (i = 1; i < NF; i++) { if ($(i + 1) ~ /^histories/) h += $i; if ($(i + 1) ~ /^calls/) c += $i }
            if (/DIVERGED|HANG/) bad++ }
        END { printf "%s fs=%s seed=%s histories=%d calls=%d diverged=%d\n", commit, fs, seed, h, c, bad }' \
        "$out" | tee -a "$log"
    rm -f "$out"
done
KEEPER_KILLS=1000 "$src/tests/preload/keeper.sh" | tee -a "$log"
[ "${PIPESTATUS[0]}" = 0 ] || status=1
"$src/tests/model/self_test.sh" || status=1
TAIL_SECONDS=10 TAIL_MUTANTS="81 84" "$src/tests/preload/tail.sh" || status=1
WHOLE_SECONDS=20 WHOLE_MUTANTS="87 88" "$src/tests/preload/whole.sh" || status=1
APPEND_SECONDS=10 "$src/tests/preload/append.sh" || status=1
TORTURE_SEED=$seed "$src/tests/stress/torture.sh" "$seconds" || status=1
exit "$status"
