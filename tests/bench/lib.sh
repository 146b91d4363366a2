# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# lib: what the bench and the demo share. Sourced, never run. It finds the built programs (and
# builds one that is missing), reads the one-line JSON that they print, asks the exit reports of the
# shim whether a mitigation acted, and names kernel, file system and device.
#
# In: SRC (source root). BUILD, SHIM_SO, CC are taken from the environment where they are set.

BUILD=${BUILD:-$SRC/build}
SHIM_SO=${SHIM_SO:-$BUILD/librlshim.so}

# The counters of the exit report that prove that something was done, and the only place that names
# them: pieces that big direct writes were issued in; hole punches answered before they were applied.
# shellcheck disable=SC2034 # used by the scripts that source this
COUNTER_PIECES=write_pieces COUNTER_DEFERRED=punch_deferred

# find_tool NAME SOURCE: path of a built program; compiles it where make has not.
find_tool() {
    local dir out
    for dir in "$BUILD/$(dirname "$2")" "$BUILD"; do
        if [[ -x $dir/$1 && -f $dir/$1 &&
            -z $(find "$SRC/${2%/*}" -maxdepth 1 -name '*.[ch]' -newer "$dir/$1" \
                \( -name '*.h' -o -path "$SRC/$2" \)) ]]; then
            printf '%s\n' "$dir/$1"
            return 0
        fi
    done
    out=$BUILD/$(dirname "$2")/$1
    mkdir -p "${out%/*}" &&
        "${CC:-cc}" -std=gnu11 -O2 -g -Wall -Wextra "$SRC/$2" -o "$out" -lpthread -lm &&
        printf '%s\n' "$out"
}

# A library that does nothing: what being preloaded costs by itself, and how noisy a machine is.
find_empty_library() {
    local out=$BUILD/tests/bench/empty.so
    mkdir -p "${out%/*}" || return 1
    [[ -f $out ]] ||
        printf 'extern int rl_bench_empty;\nint rl_bench_empty;\n' |
        "${CC:-cc}" -shared -fPIC -x c - -o "$out" || return 1
    printf '%s\n' "$out"
}

# json_get KEY < one line of flat JSON
json_get() {
    sed -n "s/.*\"$1\":\"\\{0,1\\}\\([^,\"}]*\\).*/\\1/p"
}

# json_list KEY: the numbers of an array, a space between them
json_list() {
    sed -n "s/.*\"$1\":\\[\\([^]]*\\)\\].*/\\1/p" | tr , ' '
}

# report_sum DIR COUNTER: the counter over all JSON reports in DIR; nothing if there is no report
report_sum() {
    local files=("$1"/*.json)
    [[ -e ${files[0]} ]] || return 0
    grep -ho "\"$2\"[[:space:]]*:[[:space:]]*[0-9]*" "${files[@]}" |
        awk -F: '{ sum += $2 } END { printf "%.0f\n", sum }'
}

# acted DIR COUNTER...: true if a report is there and each counter is above zero. Without a counter:
# true if a report is there at all, so the library was in the process. Says what is missing.
acted() {
    local dir=$1 counter value
    shift
    local files=("$dir"/*.json)
    if [[ ! -e ${files[0]} ]]; then
        echo "no exit report was written: the library was not loaded, or is switched off"
        return 1
    fi
    for counter in "$@"; do
        value=$(report_sum "$dir" "$counter")
        if [[ ! ${value:-0} =~ ^[1-9] ]]; then
            echo "the exit report says $counter = ${value:-missing}: the mitigation did not act"
            return 1
        fi
    done
}

fs_of() { findmnt -n -o FSTYPE -T "$1" 2>/dev/null | tail -n 1; }

# device_of DIR: "/dev/sda1 (Model, SSD)", for a loop device what lies behind it
device_of() {
    local source disk model rotational='' kind=''
    source=$(findmnt -n -o SOURCE -T "$1" 2>/dev/null | tail -n 1)
    source=${source%%\[*} # btrfs adds the subvolume
    if [[ ! -b $source ]]; then
        printf '%s\n' "${source:-unknown device}"
        return
    fi
    disk=$(lsblk -n -d -o PKNAME "$source" 2>/dev/null | head -n 1)
    disk=${disk:-${source##*/}}
    model=$(lsblk -n -d -o MODEL "/dev/$disk" 2>/dev/null | sed 's/^ *//; s/ *$//')
    if [[ $disk == loop* ]]; then
        model="loop on $(losetup -n -O BACK-FILE "/dev/$disk" 2>/dev/null)"
        [[ $model == */dev/shm/* ]] && model='loop on RAM'
    else
        # virtual disks have no model, and what they say about rotation means nothing
        [[ -n $model ]] && rotational=$(cat "/sys/block/$disk/queue/rotational" 2>/dev/null)
        [[ $rotational == 1 ]] && kind=rotating
        [[ $rotational == 0 ]] && kind='not rotating'
    fi
    printf '%s (%s)\n' "$source" "${model:-no model name}${kind:+, $kind}"
}

machine() {
    printf 'Linux %s, %s CPUs, %s\n' "$(uname -r)" "$(getconf _NPROCESSORS_ONLN)" \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
}

# run_shimmed REPORTS LIBRARY PROGRAM ARGS...: one run with the library and nothing but its
# defaults (plus what the caller exports), its exit report in REPORTS. The preload starts at the
# program, so that `timeout` stays a plain one.
# RUN_TIMEOUT_S bounds it; with RUN_EXEC set it takes the place of the (background) shell, so that the
# shell's process id is one that can be told to stop.
run_shimmed() {
    local reports=$1 library=$2
    shift 2
    ${RUN_EXEC:+exec} timeout --foreground -k 5 "${RUN_TIMEOUT_S:-120}" env LD_PRELOAD="$library" RLSHIM_REPORT="$reports" "$@"
}

# The same without a report.
run_idle() { # LIBRARY PROGRAM ARGS...
    local library=$1
    shift
    ${RUN_EXEC:+exec} timeout --foreground -k 5 "${RUN_TIMEOUT_S:-120}" env LD_PRELOAD="$library" "$@"
}

run_plain() {
    ${RUN_EXEC:+exec} timeout --foreground -k 5 "${RUN_TIMEOUT_S:-120}" env -u LD_PRELOAD "$@"
}

# The shim's defaults are what is shown and measured, not what this user has configured.
use_defaults() { # TMP
    local name
    while IFS= read -r name; do
        [[ $name =~ ^RLSHIM_(SO|CALIBRATE|BENCH_.*|DEMO_.*)$ ]] || unset "$name"
    done < <(compgen -e RLSHIM_)
    : >"$1/empty.conf"
    export RLSHIM_CONF=$1/empty.conf
}
