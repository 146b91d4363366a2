#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 420
#
# Programs as they are: each case runs in a fresh directory without the shim, with it, and with it
# counting every call and deferring wherever it may; output, errors, exit status and the files it
# leaves (names, modes, sizes, contents, times where the program sets them) must be the same.

# Cases are run by name, in a shell of their own:
# shellcheck disable=SC2317

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
own=$BUILD/tests/preload/transparent
work=$(mktemp -d "${TMPDIR:-/tmp}/transparent.XXXXXX") || exit 1
trap 'rm -rf -- "$work"' EXIT
failed=0
ran=0
# Copies, so that a build going on meanwhile changes nothing between two runs.
mkdir "$work/src" && cp "$SRC"/lockmgr/*.[ch] "$work/src" && cp "$lib" "$work/librlshim.so" || exit 1
lib=$work/librlshim.so
export LC_ALL=C TZ=UTC HOME=$work GIT_CONFIG_NOSYSTEM=1 RLSHIM_CONF=/dev/null PYTHONDONTWRITEBYTECODE=1
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_AUTHOR_DATE='1000000000 +0000'
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org GIT_COMMITTER_DATE='1000000000 +0000'

# --- the cases: run in an empty directory ---

coreutils() {
    truncate -s 3M sparse && printf data | dd of=sparse bs=1 seek=1M conv=notrunc status=none
    seq 20000 >dense && touch -d 2001-02-03T04:05:06 sparse dense && chmod 640 dense
    cp -p --sparse=always sparse copy && cp -p --sparse=always dense copy2
    cmp sparse copy && stat -c '%n %s %a %Y %b' sparse copy copy2
    fallocate -p -o 0 -l 8192 dense && touch -d @1000000000 dense && stat -c '%n %s %Y' dense
    ln dense hard && mv hard moved && cat moved dense | sha256sum
    sort -rn dense | uniq | tail -3 | tee last && wc -c last && install -m 755 last bin
    split -l 5000 dense part. && cat part.* | cmp - dense && tac dense | md5sum && rm part.*
    dd if=/dev/zero of=direct bs=1M count=4 oflag=direct status=none && sync direct
    cp --reflink=auto direct again && shred -u -n 1 again && find /proc/self/fd -mindepth 1 | wc -l
}

archives() {
    mkdir tree && seq 5000 >tree/a && truncate -s 2M tree/hole && ln -s a tree/link
    touch -d @1000000000 tree/a tree/hole && touch -h -d @1000000000 tree/link
    tar --sort=name --mtime=@0 --owner=0 --group=0 -Scf t.tar tree && sha256sum t.tar
    mkdir out && tar -xf t.tar -C out && diff -r tree out/tree && tar -tvf t.tar
    gzip -nk t.tar && sha256sum t.tar.gz && gzip -dc t.tar.gz | cmp - t.tar
}

shell() {
    bash -c 'exec 3>log; echo one >&3; (echo two >&3; exec 3>&-; exit 4); echo $?; cat <log
        read -r x <log; echo "$x"; echo a | { read -r y; echo "$y"; }; kill -TERM $$; echo no'
    echo "status $?"
    bash -c 'trap "echo bye" EXIT; sleep 0.1 & wait; exec 9<>rw; echo z >&9; exec 9>&-; cat rw; exit 7'
    echo "status $?"
    bash -c 'coproc cat; echo through >&"${COPROC[1]}"; read -r l <&"${COPROC[0]}"; echo "$l"; exec /bin/echo end'
    sh -c 'ulimit -n 16; cat /dev/null; ls / >/dev/null && echo fine'
}

versions() {
    git init -q -b main repo && cd repo || return
    for i in 1 2 3 4 5; do
        seq "$i" 3000 >"f$i" && git add . && git commit -q -m "c$i" || return
    done
    git gc -q && git fsck --full && git log --format='%H %s' && git checkout -q -b side HEAD~2
    echo x >>f1 && git commit -qam side && git merge -q -m m main && git status --short && git rev-parse HEAD
    git clone -q . ../clone && git -C ../clone rev-parse HEAD && cd .. && rm -rf repo/.git clone/.git
}

compiler() {
    cp "${src:?}"/* . && for f in ranges gate range_table; do
        gcc -std=gnu11 -D_GNU_SOURCE -O1 -c "$f.c" -o "$f.o" || return
    done
    ar rcsD l.a ./*.o && nm l.a | sort | sha256sum && sha256sum ./*.o
    printf 'all: b\nb: a\n\tcp a b\na:\n\techo 1 > a\n' >Makefile && make -j2 && cat b
    echo 'int main(void){return 3;}' >m.c && gcc -pipe m.c -o m && ./m
    echo "status $?"
    echo broken >n.c && gcc -c n.c
}

database() {
    sqlite3 d.db 'pragma journal_mode=wal; create table t(a,b); with recursive n(i) as
        (select 1 union all select i+1 from n where i<2000) insert into t select i, i*i from n;
        select count(*), sum(b) from t; delete from t where a%2; vacuum; select sum(a) from t;'
    for i in 1 2 3 4; do
        sqlite3 -cmd '.timeout 20000' d.db "begin immediate; insert into t values ($i, 0); commit" &
    done
    wait
    sqlite3 d.db 'pragma integrity_check; pragma journal_mode=delete; select count(*) from t'
    ls
}

python() {
    python3 - <<'END'
import mmap, os, subprocess, sys, tempfile, fcntl, socket, threading, array, shutil, multiprocessing
f = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(f, b"x" * 65536, 0)
m = mmap.mmap(f, 65536); m[10:20] = b"y" * 10; m.flush(); m.close()
print(os.pread(f, 30, 0), os.lseek(f, 0, os.SEEK_END), os.fstat(f).st_size)
fcntl.lockf(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_UN); os.ftruncate(f, 100); os.fsync(f)
print(subprocess.run(["cat"], stdin=open("f", "rb"), capture_output=True).stdout[:25])
print(subprocess.run(["sh", "-c", "echo e >&2; exit 5"], capture_output=True))
print(subprocess.Popen(["ls", "/nonexistent"], stderr=subprocess.PIPE, close_fds=True).communicate()[1])
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
socket.send_fds(a, [b"m"], [f]); msg, fds, _, _ = socket.recv_fds(b, 10, 4)
print(msg, os.pread(fds[0], 5, 8), len(fds))
r, w = os.pipe(); pid = os.fork()
if pid == 0:
    os.write(w, b"from the child"); os._exit(9)
print(os.read(r, 99), os.waitpid(pid, 0)[1] >> 8)
ts = [threading.Thread(target=lambda i=i: os.pwrite(f, bytes([65 + i]) * 1000, i * 1000)) for i in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
print([os.pread(f, 1, i * 1000) for i in range(8)])
with tempfile.TemporaryFile() as t:
    t.write(b"z" * 10000); t.seek(5); print(t.read(3))
shutil.copy2("f", "g"); os.link("f", "h"); os.replace("g", "i"); print(sorted(os.listdir(".")))
with multiprocessing.Pool(2) as p:
    print(p.map(abs, range(-5, 0)))
try: os.posix_spawn("/nonexistent", ["a"], {})
except OSError as e: print(e)
sys.exit(3)
END
}

own_main_leaves() { "$own" main_leaves; }
own_errors() { "$own" errors; }
own_numbers() { "$own" numbers; }
own_interruptions() { "$own" interruptions; }
own_vforks() { "$own" vforks; }

# --- running and comparing ---

# What is left: kind, mode, size and contents. st_blocks is the file system's business.
tree() {
    find . -mindepth 1 -printf '%P %y %m %l\n' | sort
    find . -type f ! -name '*.db' ! -name index -print0 | sort -z | xargs -0r sha256sum
}

# run_in DIR CASE [VAR=VALUE…]: the preload is set for the programs of the case, not for this shell.
run_in() {
    local dir=$1 case=$2
    shift 2
    mkdir -p "$dir/at" "$dir/reports"
    (
        cd "$dir/at" || exit 99
        env "$@" bash -c "$(declare -f "$case"); $case" "$0" >"$dir/out" 2>"$dir/err" </dev/null
        echo "status $?" >>"$dir/out"
    )
    (cd "$dir/at" && tree >"$dir/tree")
    # What differs from run to run by itself: process numbers, directory names.
    sed -i -e "s|$dir|DIR|g" -e 's/line [0-9]*: *[0-9]* /line N: PID /' "$dir/out" "$dir/err"
    rm -rf "$dir/at"
}

compare() {
    local case=$1 with=$2 what
    for what in out err tree; do
        if ! cmp -s "$work/plain/$what" "$work/$with/$what"; then
            echo "not ok: $case ($with): $what differs"
            diff "$work/plain/$what" "$work/$with/$what" | head -10
            failed=1
        fi
    done
}

try() {
    local case=$1 needs
    for needs in "${@:2}"; do
        command -v "$needs" >/dev/null || {
            echo "$case: skipped, no $needs here"
            return
        }
    done
    rm -rf "$work/plain" "$work/shim" "$work/busy"
    run_in "$work/plain" "$case" src="$work/src" own="$own"
    run_in "$work/shim" "$case" src="$work/src" own="$own" LD_PRELOAD="$lib"
    run_in "$work/busy" "$case" src="$work/src" own="$own" LD_PRELOAD="$lib" RLSHIM_SHARE=private \
        RLSHIM_REPORT="$work/busy/reports/"
    compare "$case" shim
    compare "$case" busy
    if [ -z "$(ls "$work/busy/reports")" ]; then
        echo "not ok: $case: no report, so the library was not there"
        failed=1
    fi
    if ! grep -q . "$work/plain/out"; then
        echo "not ok: $case: printed nothing, so nothing was compared"
        failed=1
    fi
    ran=$((ran + 1))
}

try coreutils cp dd shred fallocate
try archives tar gzip
try shell bash
try versions git
try compiler gcc ar make
try database sqlite3
try python python3
for case in own_main_leaves own_errors own_numbers own_interruptions own_vforks; do
    try "$case" "$own"
done
echo "$ran cases compared"
exit "$failed"
