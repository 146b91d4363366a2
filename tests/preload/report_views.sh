#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# rlshim report of runs whose calls were timed: text, JSON and page say the same; several files of
# one run add up; two runs are compared; damaged files cost one line; a large run stays quick and
# small. The page is drawn by a browser where one is installed.

set -u

SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
rlshim=$BUILD/rlshim
if ! command -v jq >/dev/null || ! command -v python3 >/dev/null; then
    echo "SKIP: jq and python3 are needed"
    exit 77
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/views.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failures=0
left_out=

not_ok() {
    echo "not ok: $1"
    failures=$((failures + 1))
}
same() { # same WHAT EXPECTED GOT
    [ "$2" = "$3" ] || not_ok "$1: expected '$2', got '$3'"
}
has() { # has WHAT FILE PATTERN
    grep -q -e "$3" "$2" || not_ok "$1: '$3' is not in $2: $(head -c 3000 "$2")"
}
complains() { # complains STATUS PATTERN COMMAND...
    local want=$1 pattern=$2
    shift 2
    "$@" >out 2>err </dev/null
    same "status of '$*'" "$want" $?
    same "lines of '$*'" 1 "$(wc -l <err)"
    has "'$*'" err "$pattern"
}

cat >make.py <<'END'
import json, sys
# make.py PID FILES STALLS SCALE NAME
pid, files, stalls, scale = map(int, sys.argv[1:5])
def bucket(ns):
    if ns < 64: return 0
    top = ns.bit_length() - 1
    return 1 + (top - 6) * 4 + (ns >> (top - 2) & 3)
def calls(values):
    h = {}
    for v in values: h[bucket(v)] = h.get(bucket(v), 0) + 1
    slow = [v for v in values if v >= 10**7]
    return {"calls": len(values), "total_ns": sum(values), "worst_ns": max(values, default=0),
            "stalled": len(slow), "stalled_ns": sum(slow),
            "hist": [x for k in sorted(h) for x in (k, h[k])]}
acts = ["read", "punch", "unlink", "act_of_a_later_release"]
took = [[2000] * 50, [20000000 * scale], [693000000 * scale], [5]]
remedies = ["evict", "gate", "cure_of_a_later_release"]
start = 1796100000000000000
worst = [start + 2 * 10**9, 693000000 * scale, 2, 0, 0, 0, pid]
cures = [dict(calls(took[2]), saved_ns=692000000 * scale, worst=worst, worst_would_ns=100000),
         dict(calls(took[1]), saved_ns=1000000, worst=[start, 20000000 * scale, 1, 1, 0, 1, pid],
              worst_would_ns=2000000), dict(calls([]), saved_ns=0)]
o = {"clock": "tsc", "threshold_ns": 10**7, "acts": acts, "remedies": remedies,
     "bucket_bits": [6, 2], "calls": [calls(t) for t in took], "cures": cures,
     "files": [dict(calls([10**7 + i, 300]), path="/data/<x>&\"%d\".ibd" % i, dev=1, ino=i,
                    nameless=False, received=False, other=0, by=[0, 1, 5]) for i in range(files)],
     "other_files": calls([]), "modules": [{"path": "/nonexistent/app", "build_id": "ab12"}],
     "sites": [{"act": 2, "calls": 1, "total_ns": 693000000 * scale, "worst_ns": 693000000 * scale,
                "cut": False, "frames": [0, 4660, -1, 7]},
               {"act": 1, "calls": 1, "total_ns": 20000000, "worst_ns": 20000000, "cut": True,
                "frames": [0, 22136]}],
     "stalls": [[start + i * 1000000, 10**7 + i, i % 4, -1, i % files, -1, pid]
                for i in range(stalls)] + [worst],
     "stalls_seen": stalls + 1, "stalls_traced": 2, "looks": 1, "looks_blind": False}
json.dump({"schema": "rlshim-report", "version": 1, "host": "node", "pid": pid, "rank": None,
           "program": "app", "command": ["app"], "kernel": "6.18", "started_ns": start,
           "ended_ns": start + 4 * 10**9, "settings": {"mode": "observe"},
           "counters": {"punch_calls": 1}, "settled": {}, "observed": o}, open(sys.argv[5], "w"))
END
python3 make.py 41 5 20 2 before.json && python3 make.py 42 5 20 1 after.json &&
    python3 make.py 43 5 20 1 other.json || exit 1

# --- one run, several processes -------------------------------------------------------------------

"$rlshim" report after.json >text 2>err
same "status, stderr" "0 " "$? $(cat err)"
has "text" text "unlink of /data/<x>&\"0\".ibd took"
has "the cure that would have saved most comes first" text "1. evict = defer: about 692 ms of 693 ms in 1 call"
has "the module is gone" text "at app+0x1234"
same "lines wider than 80 columns" "" "$(grep -v '  command:' text | awk 'length > 80')"
"$rlshim" report --json after.json other.json >sum.json || not_ok "--json failed"
same "two processes add up" '[2,100,2,2,1386000000]' "$(jq -c '[.run.processes,
    .run.observed.calls.read.calls, .run.observed.calls.unlink.calls, .run.observed.cures[0].calls,
    .run.observed.calls.unlink.total_ns]' sum.json)"
same "files and stacks are the same ones" '[5,2,2,20]' "$(jq -c '[(.run.observed.files|length),
    (.run.observed.sites|length), .run.observed.sites[0].calls,
    .run.observed.files[0].calls * 5]' sum.json)"
same "stalls of acts that are not known are left out" 32 "$(jq '.run.observed.stalls|length' sum.json)"

# --- before and after -----------------------------------------------------------------------------

"$rlshim" report --before before.json after.json >text || not_ok "comparison failed"
has "comparison" text "time stalled  *1.38 s  *693 ms  2.0 x less"
same "comparison wider than 80 columns" "" "$(awk 'length > 80' text)"
same "comparison as JSON" 2 "$("$rlshim" report --json --before before.json after.json |
    jq '.before.observed.calls.unlink.worst_ns / .after.observed.calls.unlink.worst_ns')"

# --- mistakes and damage ----------------------------------------------------------------------------

complains 2 "no file" "$rlshim" report --before before.json
complains 2 "one of --json and --html" "$rlshim" report --json --html after.json
for ((cut = 1; cut < $(stat -c %s after.json); cut += 97)); do
    head -c "$cut" after.json >cut.json
    "$rlshim" report cut.json >out 2>err
    [ "$? $(wc -l <err) $(wc -c <out)" = "1 1 0" ] || not_ok "cut to $cut bytes"
done
spoil() { # spoil JQ-EXPRESSION
    jq "$1" after.json >bad.json
    complains 1 "bad.json: its\\? " "$rlshim" report bad.json
}
spoil '.observed.calls = []'
spoil '.observed.files[0].hist = [500, 1]'
spoil '.observed.files[0].calls = -1'
spoil '.observed.stalls[0] = 7'
spoil '.observed.sites[0].frames = [0, "x"]'
spoil '.observed.bucket_bits = [7, 2]'
spoil '.observed = []'

# --- the page -----------------------------------------------------------------------------------------

check_page() { # check_page FILE WHAT: well-formed, complete, and nothing is fetched
    python3 - "$1" <<'END' || not_ok "$2: the page"
import sys, html.parser
text = open(sys.argv[1], encoding="utf-8").read()
class P(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(); self.stack = []; self.marks = 0
    def handle_starttag(self, tag, attrs):
        if tag in ("meta", "br", "line"): return
        self.stack.append(tag); self.marks += tag == "rect"
        for name, value in attrs:
            assert name not in ("src", "href", "onload", "onclick"), (tag, name)
    def handle_startendtag(self, tag, attrs): pass
    def handle_endtag(self, tag):
        assert self.stack and self.stack.pop() == tag, tag
p = P(); p.feed(text); p.close()
assert not p.stack, p.stack
assert p.marks > 10, p.marks
assert "prefers-color-scheme:dark" in text and "<script" not in text and "url(" not in text
assert "<x>" not in text and "&lt;x&gt;&amp;&quot;0&quot;" in text
END
}
"$rlshim" report --html after.json >one.html || not_ok "--html failed"
"$rlshim" report --html --before before.json after.json >two.html || not_ok "--html failed"
check_page one.html "one run"
check_page two.html "two runs"
browser=$(command -v chromium || command -v chromium-shell || command -v google-chrome)
if [ -n "$browser" ]; then
    for scheme in light dark; do
        flag=
        [ "$scheme" = dark ] && flag=--blink-settings=preferredColorScheme=0
        # shellcheck disable=SC2086
        timeout 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars $flag \
            --user-data-dir="$dir/profile" --window-size=900,1400 --screenshot="$dir/$scheme.png" \
            "file://$dir/one.html" >browser.log 2>&1
        [ -s "$scheme.png" ] || not_ok "no picture of the page in $scheme: $(tail -n 3 browser.log)"
    done
    cmp -s light.png dark.png && not_ok "dark looks like light"
    [ -n "${KEEP:-}" ] && cp ./*.png one.html two.html "$KEEP"
else
    left_out="the picture of the page (no chromium is installed)"
fi

# --- large --------------------------------------------------------------------------------------------

# What is measured is processor time and memory: how long it takes depends on who else is at work.
python3 make.py 44 10000 32767 1 big.json || exit 1
jq -c '.observed.stalls_seen = 1000000' big.json >more.json
python3 - "$rlshim" <<'END' || not_ok "a large run takes too much"
import resource, subprocess, sys
for form in ([], ["--html"]):
    out = subprocess.run([sys.argv[1], "report", *form, "more.json"], capture_output=True)
    assert out.returncode == 0 and out.stderr == b"", out.stderr
    assert form or b"1,000,000 slow calls" in out.stdout
    assert len(out.stdout) < 3 << 20, len(out.stdout)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
seconds = (used.ru_utime + used.ru_stime) / 2
print("10,000 files, 1,000,000 slow calls, of which 32,768 kept: %.2f s, %d MiB"
      % (seconds, used.ru_maxrss / 1024))
assert seconds < 2 and used.ru_maxrss < 100 << 10
END

if [ "$failures" != 0 ]; then
    echo "$failures checks failed"
    exit 1
fi
echo "all checks hold${left_out:+; left out: $left_out}"
