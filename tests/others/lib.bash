# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Other people's tests without the shim, with its defaults, and with everything forced on.

BUILD=${BUILD:-$SRC/build}
others_lib=${SHIM_SO:-$BUILD/librlshim.so}
others_failed=0
others_passed=0
unset "${!RLSHIM_@}"
export LC_ALL=C RLSHIM_CONF=/dev/null
# evict_min as small as it gets and a short delay: most of what the tests do meets something.
others_forced=(RLSHIM_SHARE=private RLSHIM_PUNCH_DELAY=1ms RLSHIM_PUNCH_BACKLOG=16 RLSHIM_SPLIT=64K
    RLSHIM_PREEXTEND=on RLSHIM_EVICT=defer RLSHIM_EVICT_MIN=4K RLSHIM_TRUNCATE=elide RLSHIM_CREATE=dedupe
    RLSHIM_FSYNC=share RLSHIM_WRITEBACK_WINDOW=1M RLSHIM_TIMING=on)

# others_begin PROGRAM: skips the script where it is not installed
others_begin() {
    command -v "$1" >/dev/null || {
        echo "SKIP: $1 is not installed (make deps-others)"
        exit 77
    }
    others_dir=$(mktemp -d "${OTHERS_DIR:-/var/tmp}/others.XXXXXX") || exit 1
    others_reports=$(mktemp -d "${TMPDIR:-/tmp}/others.XXXXXX") || exit 1
    trap 'rm -rf -- "$others_dir" "$others_reports"' EXIT
    cd "$others_dir" || exit 1
}

# others_run MODE COMMAND…: its status; what it says goes to $others_dir/said.MODE
others_run() {
    local mode=$1 preload=(LD_PRELOAD="$others_lib")
    shift
    case $mode in
    without) preload=() ;;
    forced) preload+=("${others_forced[@]}" RLSHIM_REPORT="$others_reports") ;;
    esac
    timeout "${OTHERS_TIMEOUT:-60}" env "${preload[@]}" "$@" >"$others_dir/said.$mode" 2>&1
}

# others_three WHAT COMMAND…: each mode in a clean directory of its own
others_three() {
    local what=$1 mode status
    shift
    others_run without "$@" || {
        status=$?
        echo "skipped: $what ends with $status without the shim: $(grep -vE '^$' "$others_dir/said.without" | grep -m 1 -iE 'error|not |range' || echo "says nothing")"
        return
    }
    for mode in default forced; do
        find "$others_dir" -mindepth 1 ! -name 'said.*' -delete
        if others_run "$mode" "$@" && ! grep -qE 'rlshim: |fail:' "$others_dir/said.$mode"; then
            others_passed=$((others_passed + 1))
            echo "ok: $what, $mode"
        else
            others_failed=$((others_failed + 1))
            echo "not ok: $what, $mode"
            tail -n 15 "$others_dir/said.$mode"
        fi
    done
    find "$others_dir" -mindepth 1 ! -name 'said.*' -delete
}

others_end() {
    local counter
    echo "$others_passed ok, $others_failed not. With everything forced on:"
    for counter in punch_calls punch_deferred write_split write_pieces gate_entered tail_begun whole_begun \
        create_led flush_shared window_started truncate_elided evict_files; do
        find "$others_reports" -name '*.json' -exec cat {} + |
            awk -v c="\"$counter\":" '$1 == c { n += $2; seen = 1 } END { if (seen) print "   ", c, n }'
    done
    [ "$others_failed" = 0 ] || exit 1
    [ "$others_passed" != 0 ] || {
        echo "SKIP: nothing ran without the shim"
        exit 77
    }
    exit 0
}
