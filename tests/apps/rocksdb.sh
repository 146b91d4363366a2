#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 300
#
# RocksDB through its C interface: synced writes from several threads, deletions, flushes and
# compactions with direct I/O, and readers beside them. After a kill every acknowledged key is there,
# `ldb checkconsistency` and `sst_dump` are content.

# shellcheck disable=SC2034,SC2317
APP_NAME=rocksdb
APP_AS_ROOT=yes
# shellcheck source=tests/apps/lib.sh
. "$(dirname "$0")/lib.sh"
app_need python3 ldb sst_dump
ldconfig -p | grep -q librocksdb.so || app_skip "librocksdb is not installed (make deps-apps)"
app_begin

cat >"$app_work/db.py" <<'END'
import ctypes, ctypes.util, os, random, sys, threading, time
L = ctypes.CDLL(ctypes.util.find_library("rocksdb"))
P, Z, B = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_ubyte
for name in ("options_create", "writeoptions_create", "readoptions_create", "open", "get", "flushoptions_create"):
    getattr(L, "rocksdb_" + name).restype = P
base, me = sys.argv[1:]
def call(name, *args):
    err = ctypes.c_char_p()
    r = getattr(L, "rocksdb_" + name)(*args, ctypes.byref(err))
    if err.value:
        sys.exit("%s: %s" % (name, err.value.decode()))
    return r
o = P(L.rocksdb_options_create())
L.rocksdb_options_set_create_if_missing(o, B(1))
L.rocksdb_options_set_write_buffer_size(o, Z(1 << 20))
L.rocksdb_options_set_target_file_size_base(o, ctypes.c_uint64(4 << 20))
L.rocksdb_options_set_level0_file_num_compaction_trigger(o, 2)
L.rocksdb_options_set_compression(o, 0)
L.rocksdb_options_set_use_direct_io_for_flush_and_compaction(o, B(1))
L.rocksdb_options_set_use_direct_reads(o, B(1))
L.rocksdb_options_set_bytes_per_sync(o, ctypes.c_uint64(1 << 20))
db = P(call("open", o, (base + "/db").encode()))
w = P(L.rocksdb_writeoptions_create())
L.rocksdb_writeoptions_set_sync(w, B(1))
r = P(L.rocksdb_readoptions_create())
L.rocksdb_readoptions_set_verify_checksums(r, B(1))
def put(k, v):
    call("put", db, w, k, Z(len(k)), v, Z(len(v)))
def get(k):
    n = Z()
    p = call("get", db, r, k, Z(len(k)), ctypes.byref(n))
    if not p:
        return None
    v = ctypes.string_at(p, n.value)
    L.rocksdb_free(P(p))
    return v
body = lambda k: (k * 400)[:4000]
if me == "check":
    for k in open(base + "/acked", "rb").read().split():
        v = get(k)
        if v is not None and v != body(k):
            sys.exit("value of %s is damaged" % k.decode())
        if v is not None:
            print(k.decode())
    L.rocksdb_close(db)
    sys.exit(0)
acked = os.open(base + "/acked", os.O_WRONLY | os.O_APPEND)
late = os.open(base + "/latency", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def work(t):
    n = 0
    while True:
        k = ("%s.%d.%d" % (me, t, n)).encode()
        at = time.monotonic()
        put(k, body(k))
        os.write(late, b"%f\n" % (time.monotonic() - at))
        os.write(acked, k + b"\n")
        put(b"filler%d" % random.randrange(64), os.urandom(60000))
        if n > 20:
            old = ("%s.%d.%d" % (me, t, random.randrange(n))).encode()
            if get(old) != body(old):
                print("read %s wrong" % old.decode(), file=sys.stderr)
                os.abort()
        f = b"filler%d" % random.randrange(64)
        call("delete", db, w, f, Z(len(f)))
        n += 1
for t in range(4):
    threading.Thread(target=work, args=(t,)).start()
END

setup() { :; }

start_load() {
    app_run python3 "$app_work/db.py" "$APP_DIR" "$1" 2>>"$app_work/log"
}

recover_and_check() {
    if grep -q wrong "$app_work/log"; then cat "$app_work/log" >&2; return 1; fi
    app_run python3 "$app_work/db.py" "$APP_DIR" check >"$app_work/found" 2>>"$app_work/log"
    wait "$APP_PID" || { tail -n 5 "$app_work/log" >&2; return 1; }
    app_compare "$app_work/found" || return 1
    if ! ldb --db="$APP_DIR/db" checkconsistency >"$app_work/checked" 2>&1 || ! grep -q OK "$app_work/checked"; then
        cat "$app_work/checked" >&2
        return 1
    fi
    sst_dump --file="$APP_DIR/db" --command=verify >"$app_work/checked" 2>&1 &&
        ! grep -iE 'corrupt|mismatch|not OK' "$app_work/checked" >&2
}

app_main
