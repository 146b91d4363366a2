#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 420
#
# MariaDB: commits into page-compressed InnoDB tables, which punch a hole behind every page they
# write, and DROP of a big table beside it. After a kill every committed row is there and CHECK
# TABLE is content. APP_NATIVE_AIO=1 uses libaio or io_uring, where the shim stands back.

# shellcheck disable=SC2034,SC2317
APP_NAME=mariadb
# shellcheck source=tests/apps/lib.sh
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin
app_need python3 mariadbd mariadb mariadb-install-db
aio=${APP_NATIVE_AIO:-0}
app_begin
printf '[path %s/*/data/test/*.ibd]\nshare = private\n' "$app_work" >"$app_work/rlshim.conf"

sql() { app_do mariadb --no-defaults -S "$APP_DIR/socket" -u root -BN "$@"; }

setup() {
    local mode=$APP_MODE status
    # mariadb-install-db starts the server to make system tables.
    app_do mariadb-install-db --no-defaults --datadir="$APP_DIR/data" --auth-root-authentication-method=normal \
        --skip-test-db --skip-name-resolve --innodb-log-file-size=32M --innodb-use-native-aio="$aio" || return 1
    APP_MODE=without
    server && sql -e "create database test; create table test.t (name varchar(40) primary key, body mediumtext) page_compressed=1" && app_stop "$SERVER"
    status=$?
    APP_MODE=$mode
    return "$status"
}

server() {
    app_run mariadbd --no-defaults --datadir="$APP_DIR/data" --socket="$APP_DIR/socket" --skip-networking --skip-grant-tables \
        --pid-file="$APP_DIR/pid" --innodb-buffer-pool-size=24M --innodb-log-file-size=32M --innodb-flush-method=O_DIRECT \
        --innodb-use-native-aio="$aio" --innodb-flush-log-at-trx-commit=1 --innodb-max-dirty-pages-pct=0 --innodb-max-dirty-pages-pct-lwm=0 \
        --innodb-io-capacity=2000 --plugin-load-add= >>"$app_work/log" 2>&1
    SERVER=$APP_PID
    app_wait 90 sql -e 'select 1'
}

cat >"$app_work/client.sh" <<'END'
base=$1 me=$2 n=0
while :; do
    name=$me.$n
    echo "insert into test.t values ('$name', left(repeat('$name', 4000), 20000)); select '$name';"
    n=$((n + 1))
done | mariadb --no-defaults -S "$base/socket" -u root -BN --unbuffered |
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
base=$1 me=$2
while :; do
    for what in "set max_recursive_iterations = 100000; create or replace table test.big (g int primary key, b text) page_compressed=1 select seq as g, repeat('x', 3000) as b from test.seq_like" \
        "drop table test.big"; do
        t=$EPOCHREALTIME
        mariadb --no-defaults -S "$base/socket" -u root -BN -e "$what" || exit
        case $what in drop*) python3 -c 'import sys; print(float(sys.argv[2]) - float(sys.argv[1]))' "$t" "$EPOCHREALTIME" >>"$base/drop" ;; esac
    done
done
END
sed -i 's/select seq as g, repeat(.x., 3000) as b from test.seq_like/with recursive s(g) as (select 1 union all select g+1 from s where g < 4000) select g, repeat("x", 3000) as b from s/' "$app_work/big.sh"

start_load() {
    server || { tail -n 20 "$app_work/log" >&2; return 1; }
    local c mode=$APP_MODE
    APP_MODE=without # the clients
    for c in 0 1 2; do app_run bash "$app_work/client.sh" "$APP_DIR" "$1.$c" 2>>"$app_work/log"; done
    app_run bash "$app_work/big.sh" "$APP_DIR" "$1" 2>>"$app_work/log"
    APP_MODE=$mode
}

recover_and_check() {
    server || { tail -n 20 "$app_work/log" >&2; return 1; }
    sql -e 'select name from test.t where body = left(repeat(name, 4000), 20000)' >"$app_work/found" || return 1
    app_compare "$app_work/found" || return 1
    sql -e 'check table test.t extended' >"$app_work/checked" 2>&1
    grep -q 'status.*OK' "$app_work/checked" || { cat "$app_work/checked" >&2; return 1; }
    app_stop "$SERVER" 90
}

app_main
