#!/bin/bash
# SPDX-License-Identifier: MIT
#
# demo.sh: what `make demo` shows in under a minute: one_inode without and with the shim, in turn,
# on a disk of this machine, as a table and as two histograms side by side.
#
# It looks for a directory on ext4, XFS or btrfs: DEMO_DIR, else TMPDIR, /var/tmp, /tmp, HOME.
# As root it falls back to the lab (a RAM-backed loop device, direct writes throttled to 300 MiB/s)
# where there is none, or where the disk cannot show the stall; DEMO_LAB=ext4, xfs or btrfs
# goes there at once. DEMO_SECONDS (2) is the length of one run. With
# DEMO_CALIBRATE=1 a library that does nothing takes the shim's place: that shows the noise.
#
# Exit: 0; 1 if data was wrong or the shim did not act; 77 if there is no place to run in.

set -u
SRC=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit 2
# shellcheck source=tests/bench/lib.sh
. "$SRC/tests/bench/lib.sh"

LAB=$SRC/tests/lab/lab.sh
LAB_SIZE_MB=5120
LAB_THROTTLE_MB=300
NEED_MIB=6144        # layout, two seconds of a fast disk, and room for others
ENOUGH_S=${DEMO_ENOUGH_S:-38} # no further pair is begun after this
STALL_SHOWS=0.05     # below this share nothing is stalled that could be shown
# For lib.sh: one run, layout included; and runs in the background that can be stopped.
RUN_TIMEOUT_S=100
RUN_EXEC=1
seconds=${DEMO_SECONDS:-2}
calibrate=${DEMO_CALIBRATE:-0}

fatal() { # STATUS TEXT
    printf 'demo: %s\n' "$2" >&2
    exit "$1"
}

stop_child() {
    [[ -z ${child:-} ]] || { kill -TERM "$child" && wait "$child"; } 2>/dev/null
    exit 130
}

say_progress() {
    if [[ -t 2 ]]; then
        printf '\r\033[K%s' "$1" >&2
    elif [[ -n $1 && $1 != *' s' ]]; then
        printf '%s\n' "$1" >&2
    fi
}

# ---- one run and a series ----

# one_run FILE SIDE: FILE is named, unlinked or own; SIDE plain or shim. JSON to $tmp/FILE.SIDE
one_run() {
    local file=$1 side=$2 reports status begin=$SECONDS why args label
    args=(--json --dir "$dir" --seconds "$seconds" "${sizes[@]}")
    label="$file file, $([[ $side == shim ]] && echo with || echo without) the shim"
    case $file in
    named) args+=(--named) ;;
    own) args+=(--named --own-inode) label='for comparison, a reader on a file of its own' ;;
    esac
    reports=$(mktemp -d "$tmp/reports.XXXXXX") || return 1
    say_progress "  running: $label"
    if [[ $side == shim ]]; then
        run_shimmed "$reports" "$SHIM_SO" "$one_inode" "${args[@]}" >"$tmp/out" 2>"$tmp/err" &
    else
        run_plain "$one_inode" "${args[@]}" >"$tmp/out" 2>"$tmp/err" &
    fi
    child=$!
    while kill -0 "$child" 2>/dev/null; do
        sleep 0.2
        ((SECONDS - begin >= 2)) && say_progress "  running: $label, $((SECONDS - begin)) s"
    done
    wait "$child"
    status=$?
    child=''
    say_progress ''
    if ((status)); then
        cat "$tmp/err" >&2
        ((status == 124)) && fatal 1 "one_inode ($label) took longer than $RUN_TIMEOUT_S s"
        ((status == 3)) && exit 77
        fatal 1 "one_inode ($label) failed with status $status"
    fi
    if [[ $side == shim && $calibrate != 1 ]]; then
        local counters=("$COUNTER_PIECES")
        [[ $file == unlinked ]] && counters+=("$COUNTER_DEFERRED")
        why=$(acted "$reports" "${counters[@]}") || fatal 1 "$label: $why"
    fi
    cat "$tmp/out" >>"$tmp/$file.$side"
}

# pairs_of FILE: without, with, with, without; stops between pairs when time is short
pairs_of() {
    one_run "$1" plain
    one_run "$1" shim
    if ((SECONDS > ENOUGH_S)); then
        echo "  ($1 file: one pair only, this disk is slow)"
        return
    fi
    one_run "$1" shim
    one_run "$1" plain
}

# figure FILE SIDE KEY mean|max
figure() {
    json_get "$3" <"$tmp/$1.$2" | awk -v how="$4" '$1 != "null" {
        sum += $1; n++; if ($1 > max || n == 1) max = $1
    } END { printf "%.9g\n", how == "max" ? max : n ? sum / n : 0 }'
}

is_true() { # AWK CONDITION
    awk "BEGIN { exit !($1) }"
}

# ---- what is printed ----

table_line() { # FILE NAME KEY HOW SCALE UNIT
    local a b
    a=$(figure "$1" plain "$3" "$4") b=$(figure "$1" shim "$3" "$4")
    awk -v name="$2" -v a="$a" -v b="$b" -v scale="$5" -v unit="$6" '
        function show(v) { return sprintf(v >= 1000 ? "%.0f" : "%.4g", v) }
        BEGIN {
            ratio = a > 0 ? sprintf("%.3g", b / a) : "-"
            printf "  %-24s %12s %12s %-6s %9s\n", name, show(a * scale), show(b * scale), unit, ratio
        }'
}

print_table() { # FILE
    printf '\n  %-24s %12s %12s %-6s %9s\n' "$1 file" without with '' with/without
    table_line "$1" 'time stalled' stalled_share mean 100 %
    table_line "$1" 'worst read' read_worst_ms max 1 ms
    table_line "$1" 'p99 of reads' read_p99_us mean 0.001 ms
    table_line "$1" 'reads' reads mean 1 ''
    table_line "$1" 'punches accepted' punches mean 1 ''
    table_line "$1" 'worst punch' punch_worst_ms max 1 ms
    table_line "$1" 'append rate' append_mib_s mean 1 MiB/s
}

# Bars are shares of the reader's time: one read that is stuck is nothing among many reads.
print_histograms() { # FILE
    local side
    for side in plain shim; do
        json_list hist_reads <"$tmp/$1.$side" | sed "s/^/$side reads /"
        json_list hist_ms <"$tmp/$1.$side" | sed "s/^/$side ms /"
    done | awk -v file="$1" '
        { for (i = 3; i <= NF; i++) {
              v[$1, $2, i - 3] += $i
              if ($2 == "ms") total[$1] += $i
              if (i - 2 > n) n = i - 2 } }
        function name(i) {
            if (i < 9) return sprintf("%d - %d us", i ? 2 ^ i : 0, 2 ^ (i + 1))
            if (i == 9) return "0.5 - 1 ms"
            if (i < 19) return sprintf("%d - %d ms", 2 ^ (i - 10), 2 ^ (i - 9))
            return sprintf("%.3g - %.3g s", 2 ^ (i - 20), 2 ^ (i - 19))
        }
        function part(side, i,    share, bar) {
            share = total[side] ? v[side, "ms", i] / total[side] : 0
            bar = substr("########################", 1, int(24 * share + 0.5))
            return sprintf("%8d %5.1f %% %-24s", v[side, "reads", i], 100 * share, bar)
        }
        END {
            printf "\n  %s file: how long reads took, and where the reader\047s time went\n", file
            printf "  %-14s %-42s %s\n", "", "without: reads, time", "with: reads, time"
            for (i = 0; i < n; i++)
                if (v["plain", "reads", i] || v["shim", "reads", i])
                    printf "  %-14s %s  %s\n", name(i), part("plain", i), part("shim", i)
        }' | sed 's/ *$//'
}

percent() {
    awk -v v="$1" 'BEGIN { printf "%.3g %%", 100 * v }'
}

explain() {
    local before after floor rate a b why=''
    before=$(figure named plain stalled_share mean) after=$(figure named shim stalled_share mean)
    floor=$(figure own plain stalled_share mean)
    rate=$(awk -v a="$(figure named plain append_mib_s mean)" \
        -v b="$(figure named shim append_mib_s mean)" 'BEGIN { printf "%.2f", (a > 0 ? b / a : 0) }')
    a=$(figure unlinked plain punches mean) b=$(figure unlinked shim punches mean)
    is_true "$b > 2 * $a && $b > 1.2 * $(figure named shim punches mean)" &&
        why=', as a file that nobody else can reach lets them be applied a little later'
    fold -s -w 98 <<<"
What was seen
Without the shim the reader was stuck for $(percent "$before") of the time, behind punches that wait \
for whole big writes; with it $(percent "$after"), and its worst read took \
$(printf %.1f "$(figure named shim read_worst_ms max)") ms instead of \
$(printf %.1f "$(figure named plain read_worst_ms max)") ms. \
The appender wrote $rate times as fast, and of the unlinked file $(printf %.0f "$b") punches were \
accepted instead of $(printf %.0f "$a")$why. \
A reader on a file of its own was stuck for $(percent "$floor") of the time: that is the disk, and \
the floor for any cure." | sed 's, *$,,'
    why=''
    if is_true "$before < $STALL_SHOWS"; then
        why='There was hardly a stall to remove: here a big write is over before a reader notices.'
    elif is_true "$floor > 0.5 * $before"; then
        why='The disk itself makes reads wait (see the floor): its queue is full of writes, or somebody
shares the machine. No program can remove that: look at a quieter disk, or at the lab.'
    elif is_true "$after > $STALL_SHOWS && ($after > 2 * $floor || $after > 0.5 * $before)"; then
        is_true "$after > 0.5 * $before" && why='It did not: more than half of the stall is left. '
        why+='What is left above the floor are locks the shim could not avoid'
        [[ $(fs_of "$dir") == ext4 ]] &&
            why+=': ext4 holds the inode lock for the whole of each write that extends the file'
        why+='. With RLSHIM_REPORT=DIR a report says what acted and what did not, and why.'
    else
        why='It did help. Where reads do not share a file with big direct writes and punches, it will not.'
    fi
    is_true "$rate < 0.9" && why+=" The price here: the append rate fell to $rate of what it was."
    fold -s -w 98 <<<"If it does not help here
$why" | sed 's, *$,,'
}

# ---- where ----

print_header() {
    printf 'one_inode: a reader, an appender and a hole puncher in one file, nothing overlaps\n'
    printf '  machine      %s\n' "$(machine)"
    printf '  file system  %s on %s, in %s\n' "$(fs_of "$dir")" "$(device_of "$dir")" "$dir"
    [[ -z ${LAB_FS:-} ]] || printf '  lab          direct writes throttled to %s MiB/s\n' "$LAB_THROTTLE_MB"
    printf '  library      %s%s\n' "$SHIM_SO" \
        "$([[ $calibrate == 1 ]] && echo ' (does nothing: calibration)')"
}

free_mib() {
    df -P -k "$1" 2>/dev/null | awk 'NR == 2 { printf "%d\n", $4 / 1024 }'
}

find_dir() {
    local candidate
    for candidate in ${DEMO_DIR:+"$DEMO_DIR"} "${TMPDIR:-/var/tmp}" /var/tmp /tmp "${HOME:-/tmp}"; do
        if [[ -d $candidate && -w $candidate && $(fs_of "$candidate") =~ ^(ext4|xfs|btrfs)$ ]] &&
            (($(free_mib "$candidate") >= NEED_MIB)); then
            (cd "$candidate" && pwd)
            return 0
        fi
        [[ $candidate == "${DEMO_DIR:-}" ]] && return 1
    done
    return 1
}

# On a slow disk the layout of every run would take the minute: punch a smaller range there.
choose_sizes() {
    local begin end probe=$dir/rlshim-demo-probe.$$ mib_s
    sizes=()
    if [[ -n ${LAB_FS:-} ]]; then
        sizes=(--punch-size 256M) # the throttle makes laying out 576 MiB take two seconds
        return
    fi
    begin=$(date +%s%N)
    dd if=/dev/zero of="$probe" bs=4M count=16 oflag=direct conv=fsync 2>/dev/null
    end=$(date +%s%N)
    rm -f "$probe"
    mib_s=$((64 * 1000000000 / (end - begin + 1)))
    ((mib_s >= 250)) && return
    sizes=(--punch-size 128M --read-size 32M)
    ((mib_s >= 100)) || sizes+=(--append-size 32M)
    echo "  (a slow disk, about $mib_s MiB/s: smaller ranges, so that this stays short)"
}

run_in_lab() {
    say_progress ''
    DEMO_LAB=$1 "$LAB" with "$1" "$LAB_SIZE_MB" "$LAB_THROTTLE_MB" -- bash "$0" --in-lab
}

main() {
    local before floor
    print_header
    choose_sizes
    one_run named plain
    one_run own plain
    before=$(figure named plain stalled_share mean) floor=$(figure own plain stalled_share mean)
    if ((EUID == 0)) && [[ -z ${LAB_FS:-} && -z ${DEMO_DIR:-} ]] &&
        is_true "$before < $STALL_SHOWS || $floor > 0.5 * $before"; then
        one_run named shim
        print_table named
        printf '\nThis disk cannot show it (without the shim stalled %s, a reader on its own file %s): ' \
            "$(percent "$before")" "$(percent "$floor")"
        printf 'on to the lab.\n\n'
        DEMO_ENOUGH_S=$((ENOUGH_S - SECONDS)) run_in_lab xfs
        return
    fi
    one_run named shim
    if ((SECONDS < ENOUGH_S)); then
        one_run named shim
        one_run named plain
    fi
    pairs_of unlinked
    print_table named
    print_table unlinked
    print_histograms named
    print_histograms unlinked
    explain
}

[[ $calibrate == 1 ]] && { SHIM_SO=$(find_empty_library) || fatal 1 'cannot compile the empty library'; }
[[ -f $SHIM_SO ]] || fatal 1 "$SHIM_SO is missing: run make first"
SHIM_SO=$(realpath -- "$SHIM_SO")
one_inode=$(find_tool one_inode examples/one_inode.c) || fatal 1 'cannot build examples/one_inode.c'
[[ $seconds =~ ^[0-9]*\.?[0-9]+$ ]] || fatal 2 "DEMO_SECONDS=$seconds: not a number of seconds"
tmp=$(mktemp -d) || fatal 1 'cannot make a temporary directory'
child=''
trap 'rm -rf "$tmp"' EXIT
trap stop_child INT TERM HUP
use_defaults "$tmp"

if [[ ${1:-} == --in-lab ]]; then
    dir=$LAB_DIR
    main
elif [[ -n ${DEMO_LAB:-} ]]; then
    run_in_lab "$DEMO_LAB"
elif dir=$(find_dir); then
    main
elif ((EUID == 0)) && [[ -z ${DEMO_DIR:-} ]]; then
    echo 'No directory on ext4, XFS or btrfs has enough room: making a lab in memory.'
    run_in_lab xfs
else
    echo "SKIP: ${DEMO_DIR:-no directory found} is not a writable directory on ext4, XFS or btrfs with $NEED_MIB MiB free: set DEMO_DIR, or run as root for a lab in memory"
    exit 77
fi
