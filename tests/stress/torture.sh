#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# The lock manager's torture tests, short. Longer: make stress.
set -u
build=${BUILD:-build}
seconds=${1:-6}
seed=${TORTURE_SEED:-$(date +%s)}
for t in range_torture gate_torture range_lock_torture; do
    if ! "$build/tests/stress/$t" --seconds "$seconds" --seed "$seed"; then
        echo "$t: failed with --seed $seed"
        exit 1
    fi
done
