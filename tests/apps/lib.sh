# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# What the scripts of this directory share: a server on a data directory and socket of its own is
# loaded, killed (-9) at a random moment, recovers, and its data is checked; first without the shim,
# then with it. A script sets APP_NAME, sources this file and gives to app_main the functions
#
#   setup             an empty database in $APP_DIR, without the shim
#   start_load        starts server and load with app_run, appends "ID" lines that were
#                     acknowledged as durable to $APP_DIR/acked
#   recover_and_check starts it again, with app_run as well, and checks its own way; says what is
#                     wrong on stderr and returns 1. It also has to find every acknowledged ID
#
# APP_MODE is "without" or "with" while they run. Environment: APPS_KILLS, kills of each mode (2; `make
# apps` 20); APPS_SEED, the moments of the kills; APPS_DIR, where data goes (/var/tmp);
# APPS_KEEP=1 leaves everything there.
#
# Exit status: 0; 1 if a check failed with the shim or without it; 77 if it cannot run here, or if no
# mitigation acted with the shim: then nothing was shown, and it says so.

set -u

SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
APPS_KILLS=${APPS_KILLS:-2}
APPS_SEED=${APPS_SEED:-$$}
RANDOM=$APPS_SEED
unset "${!RLSHIM_@}"
export LC_ALL=C TZ=UTC

app_skip() {
    echo "SKIP: $*"
    exit 77
}

app_need() {
    local c
    for c in "$@"; do
        PATH=$PATH:/usr/sbin command -v "$c" >/dev/null || app_skip "$c is not installed (make deps-apps)"
    done
}

# Everything that was started runs in sessions of which app_sessions knows the leaders.
app_sessions=()
app_end_sessions() {
    local s
    for s in "${app_sessions[@]}"; do kill -KILL -- "-$s" 2>/dev/null; done
    for s in "${app_sessions[@]}"; do wait "$s" 2>/dev/null; done
    app_sessions=()
}

app_exit() {
    local status=$?
    trap '' HUP INT TERM
    app_end_sessions
    [ -z "${app_work-}" ] || [ -n "${APPS_KEEP-}" ] || rm -rf -- "$app_work"
    exit "$status"
}

# Servers refuse to be root: they get a user without rights. What cannot change users stays.
app_user=()
app_begin() {
    trap app_exit EXIT
    trap 'exit 143' HUP INT TERM
    local under=${APPS_DIR:-${TMPDIR:-/tmp}}
    # The runner's own directory cannot be entered by the user that servers run as.
    [ -n "${APPS_DIR-}" ] || [ "$EUID" != 0 ] || under=/var/tmp
    app_work=$(mktemp -d "$under/rlshim-$APP_NAME.XXXXXX") || exit 1
    cp "${SHIM_SO:-$BUILD/librlshim.so}" "$app_work/librlshim.so" || exit 1
    mkdir "$app_work/counters" "$app_work/rlshim"
    if [ "${APP_AS_ROOT-}" != yes ] && [ "$EUID" = 0 ]; then
        app_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
        chmod 755 "$app_work" && chown 65534:65534 "$app_work" "$app_work/counters"
        local up=$app_work
        while up=$(dirname "$up") && [ "$up" != / ]; do
            "${app_user[@]}" test -x "$up" || app_skip "$up cannot be entered by another user"
        done
    fi
}

# app_run COMMAND…: under the shim or not, in a session of its own, in the background: APP_PID
app_run() {
    local env=() shim
    if [ "$APP_MODE" = with ]; then
        shim=/dev/null
        [ ! -e "$app_work/rlshim.conf" ] || shim=$app_work/rlshim.conf
        env=("LD_PRELOAD=$app_work/librlshim.so" "RLSHIM_CONF=$shim" "RLSHIM_STATS=$app_work/counters"
            "RLSHIM_REPORT=$app_work/counters")
    fi
    setsid "${app_user[@]}" env "HOME=$APP_DIR" "${env[@]}" "$@" <&0 &
    APP_PID=$!
    app_sessions+=("$APP_PID")
}

# app_do COMMAND…: as the same user, without the shim
app_do() {
    "${app_user[@]}" env "HOME=$APP_DIR" "$@"
}

# app_wait SECONDS COMMAND…: until the command succeeds
app_wait() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}

# The server of this round comes to an end of its own: its exit report is written.
app_stop() {
    kill -TERM "$1" 2>/dev/null
    app_wait "${2:-60}" app_gone "$1"
}
app_gone() { ! kill -0 "$1" 2>/dev/null; }

# app_counter NAME…: the sum over all processes, ended or killed
app_counter() {
    /usr/bin/env python3 - "$app_work/counters" "$BUILD/rlshim" "$@" <<'END'
import glob, json, re, subprocess, sys
where, rlshim, names = sys.argv[1], sys.argv[2], sys.argv[3:]
sums = dict.fromkeys(names, 0)
for f in glob.glob(where + "/*.json"):
    for name, value in json.load(open(f))["counters"].items():
        if name in sums:
            sums[name] += value
for f in glob.glob(where + "/rlshim-*.stats"):
    pid = re.search(r"(\d+)\.stats$", f).group(1)
    out = subprocess.run([rlshim, "stat", "--dir", where, pid], capture_output=True, text=True).stdout
    for line in out.splitlines():
        word = line.split()
        if len(word) > 1 and word[1] in sums and word[0].isdigit():
            sums[word[1]] += int(word[0])
print(" ".join(str(sums[n]) for n in names))
END
}

# What the mitigations of this run did, in words; status 1 if none acted.
app_acted() {
    local names=(punch_deferred write_split gate_waited tail_begun flush_shared truncate_elided evict_files)
    local sums i said=
    read -ra sums <<<"$(app_counter "${names[@]}")"
    for i in "${!names[@]}"; do
        [ "${sums[i]:-0}" = 0 ] || said+=" ${names[i]}=${sums[i]}"
    done
    echo "acted:${said:- nothing}"
    [ -n "$said" ]
}

# app_latency LABEL FILE_WITHOUT FILE_WITH: a line with the distribution of seconds in each
app_latency() {
    python3 - "$@" <<'END'
import sys
label, *files = sys.argv[1:]
said = []
for f in files:
    try:
        v = sorted(float(x) for x in open(f).read().split())
    except OSError:
        v = []
    said.append("%d, %.2f / %.2f / %.1f" % (len(v), v[len(v) // 2] * 1e3, v[int(len(v) * .99)] * 1e3, v[-1] * 1e3) if v else "none")
print("%s, number, median / p99 / worst ms: without %s; with %s" % (label, *said))
END
}

# Are all acknowledged IDs in the file of IDs that were found? app_compare FOUND
app_compare() {
    local lost
    lost=$(sort -u "$APP_DIR/acked" 2>/dev/null | comm -23 - <(sort -u "$1"))
    if [ -n "$lost" ]; then
        echo "acknowledged and lost ($APP_MODE): $(wc -l <<<"$lost"), first $(head -n 1 <<<"$lost")" >&2
        return 1
    fi
}

app_acked_more() { [ "$(wc -l <"$APP_DIR/acked")" -gt "$1" ]; }

app_round() { # MODE
    local i delay had
    APP_MODE=$1
    APP_DIR=$app_work/$1
    mkdir "$APP_DIR" && touch "$APP_DIR"/{acked,latency,drop} || return 1
    [ ${#app_user[@]} = 0 ] || chown -R 65534:65534 "$APP_DIR"
    setup >"$app_work/log" 2>&1 || { tail -n 20 "$app_work/log"; echo "$APP_NAME cannot be set up here" >&2; return 1; }
    for ((i = 1; i <= APPS_KILLS; i++)); do
        app_end_sessions
        had=$(wc -l <"$APP_DIR/acked")
        start_load "$i" || return 1
        if ! app_wait 60 app_acked_more "$had"; then
            tail -n 20 "$app_work/log" >&2
            echo "not ok: $APP_NAME $APP_MODE: nothing was committed in a minute" >&2
            return 1
        fi
        delay=$((300 + RANDOM % ${APP_SPREAD_MS:-1700}))
        sleep "$((delay / 1000)).$(printf %03d $((delay % 1000)))"
        app_end_sessions
        if ! recover_and_check "$i"; then
            echo "not ok: $APP_NAME $APP_MODE: kill $i of $APPS_KILLS, seed $APPS_SEED" >&2
            return 1
        fi
    done
    app_end_sessions
    echo "ok: $APP_NAME $APP_MODE the shim: $APPS_KILLS kills, $(wc -l <"$APP_DIR/acked") acknowledged, none lost"
}

app_main() {
    app_round without || exit 1
    app_round with || exit 1
    for what in latency drop; do
        [ ! -s "$app_work/without/$what" ] || app_latency "$APP_NAME $what" "$app_work/without/$what" "$app_work/with/$what"
    done
    app_acted || app_skip "no mitigation acted on $APP_NAME here: the checks passed and show nothing"
}
