#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 360
#
# PostgreSQL: commits from several clients, pgbench, checkpoints, CREATE INDEX, DROP and TRUNCATE of
# big tables. After a kill of all its processes every committed row is there, pgbench's books agree,
# and amcheck finds every heap and index whole.

# shellcheck disable=SC2034,SC2317
APP_NAME=postgresql
# shellcheck source=tests/apps/lib.sh
. "$(dirname "$0")/lib.sh"
pg=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
[ -x "$pg/postgres" ] || app_skip "PostgreSQL is not installed (make deps-apps)"
app_need python3
app_begin

psql() { app_do "$pg/psql" -qAtX -v ON_ERROR_STOP=1 -h "$APP_DIR" -d postgres "$@"; }

setup() {
    app_do "$pg/initdb" -A trust -U postgres --no-sync -D "$APP_DIR/data" || return 1
    cat >>"$APP_DIR/data/postgresql.conf" <<END
listen_addresses = ''
unix_socket_directories = '$APP_DIR'
shared_buffers = 16MB
checkpoint_timeout = 30s
max_wal_size = 64MB
min_wal_size = 32MB
wal_recycle = off
restart_after_crash = off
END
    local mode=$APP_MODE
    APP_MODE=without
    server && psql -U postgres -c 'create table t (name text primary key, body text); create extension amcheck' &&
        app_do "$pg/pgbench" -q -i -s 1 -h "$APP_DIR" -U postgres postgres && app_stop "$SERVER"
    local status=$?
    APP_MODE=$mode
    return "$status"
}

server() {
    rm -f "$APP_DIR/data/postmaster.pid" # all its processes were killed
    app_run "$pg/postgres" -D "$APP_DIR/data" >>"$app_work/log" 2>&1
    SERVER=$APP_PID
    app_wait 60 psql -U postgres -c 'select 1'
}

cat >"$app_work/client.sh" <<'END'
psql=$1 base=$2 me=$3 n=0
while :; do
    name=$me.$n
    echo "insert into t values ('$name', left(repeat('$name', 300), 1500)); select '$name' as x;"
    n=$((n + 1))
done | "$psql" -qAtX -v ON_ERROR_STOP=1 -h "$base" -U postgres -d postgres |
    python3 -uc 'import os, sys, time
acked = os.open(sys.argv[1] + "/acked", os.O_WRONLY | os.O_APPEND)
late = os.open(sys.argv[1] + "/latency", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
t = time.monotonic()
for line in iter(sys.stdin.buffer.readline, b""):
    os.write(acked, line)
    now = time.monotonic()
    os.write(late, b"%f\n" % (now - t))
    t = now' "$base"
END
cat >"$app_work/big.sh" <<'END'
psql=$1 base=$2 me=$3
while :; do
    for what in "create table big_$me as select g, repeat('x', 800) as b from generate_series(1, 12000) g" \
        "create index on big_$me (g)" checkpoint "drop table big_$me" "create table cut_$me as select g, repeat('y', 800) from generate_series(1, 6000) g" \
        "truncate cut_$me" "drop table cut_$me"; do
        t=$EPOCHREALTIME
        "$psql" -qAtX -h "$base" -U postgres -d postgres -c "$what" >/dev/null || exit
        case $what in drop*big*) python3 -c 'import sys; print(float(sys.argv[2]) - float(sys.argv[1]))' "$t" "$EPOCHREALTIME" >>"$base/drop" ;; esac
    done
done
END

start_load() {
    server || return 1
    local c mode=$APP_MODE
    APP_MODE=without # the clients
    psql -U postgres -c "do \$\$ declare r record; begin for r in select oid::regclass as n from pg_class
        where relname ~ '^(big|cut)_' and relkind = 'r' loop execute 'drop table ' || r.n; end loop; end \$\$" || return 1
    for c in 0 1; do app_run bash "$app_work/client.sh" "$pg/psql" "$APP_DIR" "$1.$c" 2>>"$app_work/log"; done
    app_run bash "$app_work/big.sh" "$pg/psql" "$APP_DIR" "$1" 2>>"$app_work/log"
    app_run "$pg/pgbench" -n -c 2 -T 60 -h "$APP_DIR" -U postgres postgres >>"$app_work/log" 2>&1
    APP_MODE=$mode
}

recover_and_check() {
    server || { tail -n 15 "$app_work/log" >&2; return 1; }
    psql -U postgres -c "select name from t where body = left(repeat(name, 300), 1500)" >"$app_work/found" || return 1
    app_compare "$app_work/found" || return 1
    local books
    books=$(psql -U postgres -c 'select (select sum(abalance) from pgbench_accounts) = (select coalesce(sum(delta), 0) from pgbench_history)
        and (select sum(bbalance) from pgbench_branches) = (select sum(tbalance) from pgbench_tellers)') || return 1
    [ "$books" = t ] || { echo "pgbench's books do not agree" >&2; return 1; }
    psql -U postgres -c "select bt_index_check(c.oid, true) from pg_class c join pg_am a on a.oid = c.relam
        where a.amname = 'btree' and c.relkind = 'i' and c.relpersistence = 'p' and (c.relnamespace = 'public'::regnamespace)" >/dev/null || return 1
    [ -z "$(psql -U postgres -c "select v.* from pg_class c, verify_heapam(c.oid) v where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace")" ] || {
        echo "verify_heapam finds damage" >&2
        return 1
    }
    kill -INT "$SERVER"
    app_wait 60 app_gone "$SERVER"
}

app_main
