#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 240
#
# Redis with an append-only file that is synced for every write, rewritten all the time beside
# background saves: every write that was answered is there after a kill.

# shellcheck disable=SC2034,SC2317
APP_NAME=redis
# shellcheck source=tests/apps/lib.sh
. "$(dirname "$0")/lib.sh"
app_need python3 redis-cli redis-check-aof redis-check-rdb
app_begin
# One binary under several names; the server's own comes with a package that starts a service.
ln -s "$(command -v redis-check-rdb)" "$app_work/redis-server"

cat >"$app_work/client.py" <<'END'
import os, socket, sys, time
base, me = sys.argv[1:]
s = socket.socket(socket.AF_UNIX)
s.connect(base + "/socket")
r = s.makefile("rb")
acked = os.open(base + "/acked", os.O_WRONLY | os.O_APPEND)
late = os.open(base + "/latency", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def ask(*words):
    s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
    return r.readline()
n = 0
while True:
    name = ("%s.%d" % (me, n)).encode()
    t = time.monotonic()
    if ask(b"SET", name, (name * 1000)[:5000]) != b"+OK\r\n":
        sys.exit("SET was refused")
    os.write(late, b"%f\n" % (time.monotonic() - t))
    os.write(acked, name + b"\n")
    ask(b"SET", b"filler:" + str(n % 100).encode(), b"x" * 100000)
    if n % 50 == 10:
        ask(b"BGREWRITEAOF" if n % 100 == 10 else b"BGSAVE")
    n += 1
END

server() {
    app_run "$app_work/redis-server" --port 0 --unixsocket "$APP_DIR/socket" --dir "$APP_DIR" \
        --appendonly yes --appendfsync always --save '' --daemonize no >>"$app_work/log" 2>&1
    SERVER=$APP_PID
    app_wait 60 answers
}
answers() { [ "$(redis-cli -s "$APP_DIR/socket" ping)" = PONG ]; }

setup() { :; }

start_load() {
    server || return 1
    local c mode=$APP_MODE
    APP_MODE=without # the clients
    for c in 0 1 2; do app_run python3 "$app_work/client.py" "$APP_DIR" "$1.$c" 2>>"$app_work/log"; done
    APP_MODE=$mode
}

recover_and_check() {
    server || { tail -n 5 "$app_work/log" >&2; return 1; }
    python3 - "$APP_DIR" >"$app_work/found" <<'END' || return 1
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1] + "/socket")
r = s.makefile("rb")
names = open(sys.argv[1] + "/acked").read().split()
for name in names:
    s.sendall(b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(name), name.encode()))
    head = r.readline()
    if head == b"$-1\r\n":
        continue
    body = r.read(int(head[1:]) + 2)[:-2].decode()
    if body != (name * 1000)[:5000]:
        sys.exit("value of %s is damaged" % name)
    print(name)
END
    app_compare "$app_work/found" || return 1
    if ! redis-cli -s "$APP_DIR/socket" save >/dev/null || ! app_stop "$SERVER"; then
        echo "it does not end" >&2
        return 1
    fi
    if ! redis-check-rdb "$APP_DIR/dump.rdb" >"$app_work/checked" 2>&1 ||
        ! redis-check-aof "$APP_DIR"/appendonlydir/*.manifest >>"$app_work/checked" 2>&1; then
        cat "$app_work/checked" >&2
        return 1
    fi
}

app_main
