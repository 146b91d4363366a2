# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # what is set here is read by bench, and the other way round
#
# scenarios: what the bench can measure, as data. Sourced by bench, never run.
#
# define_scenario NAME DIR sets
#   A_IS, B_IS    the two sides, in words
#   A_CMD, B_CMD  one run of each (arrays); it prints one line of flat JSON
#   A_ENV, B_ENV  settings of the shim for it (arrays)
#   A_WANTS, B_WANTS  plain: no library in that run; loaded: an exit report must be there; otherwise
#                 the counters that must be above zero in it
#   WHOLE         pairs: one command prints all pairs ("A B" a line); check: one command is the
#                 verdict; empty: bench runs A and B in turn
#   METRICS       the figures: name|JSON key|scale|unit|ratio or diff|target
#
# A target is a condition over a, b (medians), est, low, high (of the ratio or difference). What is
# to be reached (b <= ...) stands on the median of B. "No worse than" stands on the interval, so that
# two things that are equal do not miss it every second time.

SCENARIOS=()
for scenario_fs in ext4 xfs btrfs; do
    for scenario_kind in named unlinked private gate-unlinked gate-private floor; do
        SCENARIOS+=("$scenario_kind-$scenario_fs")
    done
done
for scenario_fs in ext4 xfs btrfs; do
    SCENARIOS+=("punch-ascending-$scenario_fs" "punch-random-$scenario_fs")
done
for scenario_fs in ext4 xfs btrfs; do
    SCENARIOS+=("vfsmix-$scenario_fs")
done
for scenario_fs in ext4 btrfs; do
    for scenario_kind in unlink rename close; do
        SCENARIOS+=("delete-$scenario_kind-$scenario_fs")
    done
done
for scenario_fs in ext4 xfs btrfs; do
    SCENARIOS+=("commits-1-$scenario_fs" "commits-4-$scenario_fs" "commits-32-$scenario_fs")
done
SCENARIOS+=(delete-until-free delete-beside-reads write-then-size-xfs)
SCENARIOS+=(pread-instructions pread-cached observe-pread observe-fio open-close create-existing create-new unlink-small start-up)
OPTIONAL_SCENARIOS='^floor-' # only when asked for by name
QUICK_SCENARIOS='^(named|unlinked)-|^(pread|open|create|start|unlink-small)|^punch-.*-ext4'
THROTTLED_SCENARIOS='^(named|unlinked|private|gate-.*|floor)-'
SLOW_FLUSH_SCENARIOS='^commits-'
ANYWHERE_SCENARIOS='^(pread-.*|start-up)$'

# What ext4 reaches without pre-extension: an extending direct write holds the lock for its I/O.
declare -A STALLED_MAX_PERCENT=([ext4]=45 [xfs]=5 [btrfs]=5)
ALL_PUNCHES=131072
BYTES_TO_MIB=0.00000095367431640625

define_workload() { # KIND FS DIR
    local run=("$one_inode" --json --dir "$3" --seconds "$SECONDS_EACH")
    local punches='high >= 1' stalled="b <= ${STALLED_MAX_PERCENT[$2]:-45}"
    ((quick)) && run+=(--append-size 64M --punch-size 64M)
    A_CMD=("${run[@]}" --named) B_CMD=("${run[@]}" --named)
    A_IS='named file, no shim' B_IS='named file, shim with its defaults'
    A_WANTS=plain B_WANTS=$COUNTER_PIECES
    case $1 in
    unlinked)
        A_IS='unlinked file, no shim' B_IS='unlinked file, shim with its defaults'
        A_CMD=("${run[@]}") B_CMD=("${run[@]}")
        ;;
    private) B_IS='named file, shim with share = private' B_ENV=(RLSHIM_SHARE=private) ;;
    gate-*)
        A_IS='named file, shim: the gate alone' A_WANTS=$COUNTER_PIECES
        B_IS='unlinked file, shim: punches deferred too'
        if [[ $1 == gate-private ]]; then
            B_IS='named file, share = private: punches deferred too' B_ENV=(RLSHIM_SHARE=private)
        else
            B_CMD=("${run[@]}")
        fi
        stalled='low <= 0'
        ;;
    floor)
        A_IS='reader on an inode of its own, no shim'
        A_CMD=("${run[@]}" --named --own-inode)
        stalled=''
        ;;
    esac
    if [[ $1 =~ unlinked|private ]]; then
        B_WANTS="$COUNTER_PIECES $COUNTER_DEFERRED"
        punches="b == $ALL_PUNCHES"
    fi
    METRICS=("time stalled|stalled_share|100|%|$([[ $1 =~ gate|floor ]] && echo diff || echo ratio)|$stalled"
        'worst read|read_worst_ms|1|ms|ratio|'
        'p99 of reads|read_p99_us|0.001|ms|ratio|'
        'median read|read_p50_us|1|us|ratio|'
        "punches accepted|punches|1||ratio|$punches"
        'worst punch|punch_worst_ms|1|ms|ratio|'
        'all punches after|punch_all_ms|1|ms|ratio|'
        "append rate|append_mib_s|1|MiB/s|ratio|$([[ $1 =~ gate|floor ]] || echo 'est >= 0.95')"
        'last close|close_ms|1|ms|diff|'
        "blocks off at last close|blocks_excess_at_close_bytes|$BYTES_TO_MIB|MiB|diff|b <= 1 && b >= -1")
}

define_punches() { # ascending|random DIR
    A_CMD=("$one_inode" --json --dir "$2" --punch-only "$((quick ? 8192 : ALL_PUNCHES))")
    [[ $1 == random ]] && A_CMD+=(--random)
    B_CMD=("${A_CMD[@]}")
    A_IS="$ALL_PUNCHES punches, $1, unlinked file, no shim" B_IS='the same with the shim'
    A_WANTS=plain B_WANTS=$COUNTER_DEFERRED
    METRICS=("one punch|punch_mean_ns|1|ns|ratio|$([[ $1 == ascending ]] && echo 'b < 1000')"
        'last close|close_ms|1|ms|diff|'
        'peak memory|peak_rss_kib|1|KiB|diff|est <= 8192'
        "blocks off at last close|blocks_excess_at_close_bytes|$BYTES_TO_MIB|MiB|diff|b <= 1 && b >= -1")
}

define_loop() { # PROGRAM PATH COUNT WHAT KIND TARGET
    A_IS="$4, no shim" B_IS='the same with the shim'
    A_CMD=("$1" "$2" "$((quick ? $3 / 10 : $3))")
    B_CMD=("${A_CMD[@]}")
    A_WANTS=plain B_WANTS=loaded
    METRICS=("one call|ns|1|ns|$5|$6" 'resident memory|rss_kib|1|KiB|diff|est <= 1024')
}

# On Linux 6.12 and later there is nothing to gain on a local file system, and nothing to be lost.
define_create() { # existing|new DIR
    local count=$((quick ? 10000 : 100000))
    A_IS="open with O_CREAT + close, $1 names, no shim" B_IS='the same with the shim'
    A_CMD=("$create_loop" "$2" "$count")
    [[ $1 == existing ]] && A_CMD=("$create_loop" --existing "$2" "$count")
    B_CMD=("${A_CMD[@]}")
    A_WANTS=plain B_WANTS=loaded
    METRICS=('processor time of one|cpu_ns|1|ns|ratio|low <= 1.03'
        'one open and close|ns|1|ns|ratio|low <= 1.03')
}

define_vfsmix() { # FS DIR
    A_CMD=("$vfsmix" --json --dir "$2" --seconds "$SECONDS_EACH")
    B_CMD=("${A_CMD[@]}")
    A_IS='create, reopen with O_TRUNC, write, map, unlink; no shim' B_IS='the same with the shim'
    A_WANTS=plain B_WANTS=loaded
    [[ $1 == xfs ]] || B_WANTS=truncate_elided
    METRICS=("loops with O_TRUNC, share of those without|ratio|100|%|ratio|$([[ $1 == xfs ]] && echo 'high >= 0.95' || echo 'b >= 85')"
        'loops with O_TRUNC|truncating_per_s|1|/s|ratio|'
        'loops without|plain_per_s|1|/s|ratio|high >= 0.95')
}

define_delete() { # unlink|rename|close DIR
    PAIRS=$((PAIRS < 3 ? PAIRS : 3)) # each run writes 5 GiB
    A_CMD=("$delete_bench" big "$2" "$((quick ? 2 : 20))" "$((quick ? 64 : 256))" "$1")
    B_CMD=("${A_CMD[@]}")
    A_IS="$1 of files of 256 MiB, no shim" B_IS='the same with the shim'
    A_WANTS=plain B_WANTS=evict_files
    METRICS=('worst of 20 calls|call_worst_ms|1|ms|ratio|b < 1'
        'median call|call_p50_ms|1|ms|ratio|'
        'until the space is free|freed_ms|1|ms|ratio|low <= 1.05')
}

# The targets are those of a disk whose flush takes a millisecond. On one where it costs next to nothing
# (--dir) there is less to gain.
define_commits() { # THREADS FS DIR
    local rate='low >= 1.3' p99='low <= 1'
    A_CMD=("$committers" --json --dir "$3" --seconds "$SECONDS_EACH" --threads "$1")
    B_CMD=("${A_CMD[@]}")
    A_IS="$1 threads append 4 KiB to one file and fdatasync it, no shim" B_IS='the same with the shim'
    A_WANTS=plain B_WANTS=flush_shared
    case $1-$2 in
    1-*) rate='high >= 0.98' B_WANTS=loaded ;;
    32-xfs) rate='low >= 1.1' ;;
    32-*) rate='low >= 2' p99='high <= 0.5' ;;
    esac
    METRICS=("commits|commits_s|1|/s|ratio|$rate"
        "p99 of a commit|p99_ms|1|ms|ratio|$p99"
        'worst commit|worst_ms|1|ms|ratio|')
}

define_observe_fio() { # DIR
    type -P fio >/dev/null || {
        echo "== observe-fio: skipped: fio is not installed"
        return 77
    }
    # shellcheck disable=SC2016 # for the other shell
    A_CMD=(sh -c 'fio "$@" --output-format=json | jq -c "{iops: .jobs[0].read.iops}"' fio --name=reads
        --directory="$1" --size=256M --bs=4k --rw=randread --direct=1 --ioengine=psync --thread
        --time_based --runtime="$SECONDS_EACH")
    B_CMD=("${A_CMD[@]}") B_ENV=(RLSHIM_MODE=observe)
    A_IS='fio, random direct reads of 4 KiB, no shim' B_IS='the same with mode = observe'
    A_WANTS=plain B_WANTS=calls_read
    METRICS=('reads|iops|1|/s|ratio|high >= 0.97')
}

define_scenario() { # NAME DIR
    A_ENV=() B_ENV=() A_CMD=() B_CMD=() METRICS=() WHOLE='' A_WANTS='' B_WANTS=''
    case $1 in
    punch-ascending-*) define_punches ascending "$2" ;;
    punch-random-*) define_punches random "$2" ;;
    pread-cached)
        define_loop "$pread_loop" "$2/file" 500000 'cached 4 KiB pread' diff ''
        ;;
    observe-pread)
        define_loop "$pread_loop" "$2/file" 500000 'cached 4 KiB pread' diff ''
        B_IS='the same with mode = observe' B_ENV=(RLSHIM_MODE=observe) B_WANTS=calls_read
        METRICS=('one call|ns|1|ns|diff|')
        ;;
    observe-fio)
        define_observe_fio "$2"
        ;;
    open-close)
        PAIRS=$((quick ? PAIRS : PAIRS * 3))
        define_loop "$open_loop" "$2/file" 200000 'open + close of one file' ratio ''
        METRICS+=('processor time of one|cpu_ns|1|ns|ratio|est <= 1.05')
        ;;
    unlink-small)
        A_IS='unlink of 100,000 small files, shim switched off' B_IS='switched on' WHOLE=pairs
        PAIRS=$((quick ? 10 : 100))
        A_CMD=(env "LD_PRELOAD=$SHIM_SO" "$unlink_loop" "$2" "$((quick ? 10000 : 100000))" "$PAIRS")
        ((${CALIBRATE:-0} == 0)) || A_CMD+=(calibrate)
        METRICS=('one call|value|1|ns|diff|high <= 3000')
        ;;
    create-*) define_create "${1#*-}" "$2" ;;
    start-up)
        A_IS='true' B_IS='LD_PRELOAD=the shim true' WHOLE=pairs
        PAIRS=$((quick ? 40 : 200))
        A_CMD=("$spawn_loop" "$(type -P true)" "$PAIRS" "$SHIM_SO")
        METRICS=('start to end|value|1|us|diff|est <= 500')
        ;;
    delete-until-free)
        PAIRS=$((PAIRS < 3 ? PAIRS : 3))
        A_CMD=("$delete_bench" until "$2" "$((quick ? 6 : 24))" 100 "$((quick ? 300 : 1024))")
        B_CMD=("${A_CMD[@]}")
        A_IS='deletes files of 100 MiB until statvfs shows 1 GiB, no shim' B_IS='the same with the shim'
        A_WANTS=plain B_WANTS=evict_files
        METRICS=('files deleted|deleted|1||diff|est <= 0')
        ;;
    delete-beside-reads)
        PAIRS=$((PAIRS < 5 ? PAIRS : 5))
        A_CMD=("$delete_bench" beside "$2" "$((quick ? 500 : 2500))" nothing)
        B_CMD=("$delete_bench" beside "$2" "$((quick ? 500 : 2500))" deletes)
        A_IS='direct reads, nothing deleted, no shim' B_IS='five threads delete files of 1 MiB, with the shim'
        A_WANTS=plain B_WANTS=loaded
        METRICS=('p99 of reads|read_p99_us|1|us|ratio|low <= 1.2'
            'median read|read_p50_us|1|us|ratio|')
        ;;
    delete-*-ext4 | delete-*-btrfs)
        [[ $1 =~ ^delete-([a-z]+)- ]] && define_delete "${BASH_REMATCH[1]}" "$2"
        ;;
    write-then-size-xfs)
        A_CMD=("$delete_bench" size "$2" "$((quick ? 200 : 1000))")
        B_CMD=("${A_CMD[@]}")
        A_IS='create, write 4 KiB, ftruncate to 4096, close; no shim' B_IS='the same with the shim'
        A_WANTS=plain B_WANTS=truncate_elided
        METRICS=('loops with ftruncate, share of those without|ratio|100|%|ratio|high >= 1 && b >= 80'
            'loops with ftruncate|with_per_s|1|/s|ratio|')
        ;;
    commits-*)
        [[ $1 =~ ^commits-([0-9]+)-([a-z0-9]+)$ ]] || return 1
        define_commits "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "$2"
        ;;
    vfsmix-*) define_vfsmix "${1#*-}" "$2" ;;
    pread-instructions)
        A_IS='cached 4 KiB pread, no shim' B_IS='with the shim, counted by callgrind' WHOLE=check
        A_CMD=("$SRC/tests/bench/instructions.sh")
        ;;
    named-* | unlinked-* | private-* | gate-*-* | floor-*)
        define_workload "${1%-*}" "${1##*-}" "$2"
        ;;
    *) return 1 ;;
    esac
}
