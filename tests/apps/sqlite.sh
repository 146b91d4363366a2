#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 240
#
# SQLite from Python, several processes on one database, first with a rollback journal, then with a
# write-ahead log: every row that was committed is there after a kill, and integrity_check is content.

# shellcheck disable=SC2034,SC2317
APP_NAME=sqlite
APP_AS_ROOT=yes
# shellcheck source=tests/apps/lib.sh
. "$(dirname "$0")/lib.sh"
app_need python3
python3 -c 'import sqlite3' 2>/dev/null || app_skip "python3 has no sqlite3"
app_begin

cat >"$app_work/writer.py" <<'END'
import os, sqlite3, sys, time
base, me, journal = sys.argv[1:]
db = sqlite3.connect(base + "/db", timeout=60, isolation_level=None)
db.execute("pragma journal_mode=" + journal)
db.execute("pragma synchronous=full")
acked = os.open(base + "/acked", os.O_WRONLY | os.O_APPEND)
late = os.open(base + "/latency", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
n = 0
while True:
    name = "%s.%d" % (me, n)
    t = time.monotonic()
    db.execute("begin immediate")
    db.execute("insert into t values (?, ?)", (name, (name * 500)[:3000]))
    if n % 37 == 36:
        db.execute("delete from t2")
    else:
        db.execute("insert into t2 values (zeroblob(40000))")
    db.execute("commit")
    os.write(late, b"%f\n" % (time.monotonic() - t))
    os.write(acked, name.encode() + b"\n")
    if n % 23 == 22 and me.endswith("0"):  # frees pages at the end of the file: ftruncate
        try:
            db.execute("vacuum")
        except sqlite3.OperationalError:
            pass
    n += 1
END

setup() {
    python3 - "$APP_DIR" <<'END'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1] + "/db")
db.execute("pragma auto_vacuum=full")
db.execute("create table t (name primary key, body)")
db.execute("create table t2 (body)")
db.commit()
END
}

start_load() {
    local w journals=(delete wal truncate persist)
    for w in 0 1 2; do
        app_run python3 "$app_work/writer.py" "$APP_DIR" "$1.$w" "${journals[$1 % 4]}" 2>>"$app_work/log"
    done
}

recover_and_check() {
    app_run python3 - "$APP_DIR" >"$app_work/found" 2>"$app_work/said" <<'END'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1] + "/db", timeout=60, isolation_level=None)
sys.stderr.write(db.execute("pragma integrity_check").fetchone()[0])
for name, body in db.execute("select name, body from t"):
    if body != (name * 500)[:3000]:
        sys.exit("row %s is damaged" % name)
    print(name)
db.execute("pragma wal_checkpoint(truncate)")
db.execute("pragma journal_mode=delete")
END
    if ! wait "$APP_PID" || [ "$(cat "$app_work/said")" != ok ]; then
        cat "$app_work/said" >&2
        return 1
    fi
    app_compare "$app_work/found"
}

app_main
