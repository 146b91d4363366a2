#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 180
#
# selftest.sh: the measuring tools can fail. Small libraries that lie take the shim's place: punches
# that never happen, reads that return something else, writes that are lost, exit reports with
# nothing in them. one_inode and bench must notice each, and must be content without them.

set -u
SRC=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 2
# shellcheck source=tests/bench/lib.sh
. "$SRC/tests/bench/lib.sh"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/bench-selftest.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
use_defaults "$work"
export BUILD
one_inode=$(find_tool one_inode examples/one_inode.c) && pairs=$(find_tool pairs tests/bench/pairs.c) ||
    exit 1
failures=0

# liar NAME: a library from C on standard input
liar() {
    { printf '#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <errno.h>\n#include <stdio.h>\n'
      printf '#include <stdlib.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n'
      cat; } >"$work/$1.c"
    "${CC:-cc}" -shared -fPIC -O1 -w "$work/$1.c" -o "$work/$1.so" -ldl || exit 1
}

# expect STATUS WHAT COMMAND...; with a pattern in $say the output must match it, too
expect() {
    local want=$1 what=$2 got
    shift 2
    "$@" >"$work/out" 2>&1
    got=$?
    if [[ $got != "$want" ]] || { [[ -n ${say:-} ]] && ! grep -q -- "$say" "$work/out"; }; then
        printf 'FAIL: %s: status %s, expected %s%s\n' "$what" "$got" "$want" "${say:+ and \"$say\"}"
        tail -n 5 "$work/out" | sed 's/^/    /'
        failures=$((failures + 1))
    else
        echo "ok: $what"
    fi
}

small=("$one_inode" --json --dir "$work" --seconds 0.3 --read-size 1M --punch-size 1M --append-size 1M
    --max-bytes 64M)
"${small[@]}" >/dev/null 2>"$work/err"
if [[ $? == 3 ]]; then
    echo "SKIP: $(cat "$work/err")"
    exit 77
fi

liar drops_punches <<'C'
int fallocate(int fd, int mode, off_t offset, off_t len) { return 0; }
int fallocate64(int fd, int mode, off_t offset, off_t len) { return 0; }
C
liar damages_reads <<'C'
ssize_t pread(int fd, void *buf, size_t count, off_t offset)
{
    static int calls;
    ssize_t got = syscall(SYS_pread64, fd, buf, count, offset);
    if (got == 4096 && ++calls == 5)
        ((char *)buf)[4000] ^= 1;
    return got;
}
C
liar loses_a_write <<'C'
ssize_t pwrite(int fd, const void *buf, size_t count, off_t offset)
{
    static int calls;
    if (offset >= 3 << 20 && ++calls == 2)
        return count;
    return syscall(SYS_pwrite64, fd, buf, count, offset);
}
C
liar splits_wrongly <<'C'
ssize_t pwrite(int fd, const void *buf, size_t count, off_t offset)
{
    size_t half = count / 2;
    if (offset < 3 << 20)
        return syscall(SYS_pwrite64, fd, buf, count, offset);
    syscall(SYS_pwrite64, fd, buf, half, offset);
    syscall(SYS_pwrite64, fd, buf, half, offset + half);
    return count;
}
C
liar reports_of_nothing <<'C'
C
cat >"$work/reports.h" <<'C'
__attribute__((destructor)) static void report(void)
{
    char path[4096];
    FILE *f;
    if (!getenv("RLSHIM_REPORT"))
        return;
    snprintf(path, sizeof(path), "%s/%d.json", getenv("RLSHIM_REPORT"), getpid());
    if ((f = fopen(path, "w"))) {
        fprintf(f, "{\"counters\":{\"" PIECES "\": 7, \"" DEFERRED "\":%d}}\n", COUNT);
        fclose(f);
    }
}
C
for count in 0 9; do
    liar "reports_$count" <<C
#define PIECES "$COUNTER_PIECES"
#define DEFERRED "$COUNTER_DEFERRED"
#define COUNT $count
$(cat "$work/reports.h")
C
done
liar starts_slowly <<'C'
__attribute__((constructor)) static void slow(void) { usleep(3000); }
C

expect 0 'one_inode is content with the plain kernel' "${small[@]}"
expect 0 'and with a file of its own for the reader' "${small[@]}" --own-inode --named
expect 0 'and with nothing but punches in random order' "$one_inode" --dir "$work" --punch-only 300 --random
say='st_blocks is off' expect 1 'one_inode notices punches that never happened' \
    env LD_PRELOAD="$work/drops_punches.so" "${small[@]}" --punch-size 4M
say='zeros, it was punched' expect 1 'one_inode notices old data in a punched range' \
    env LD_PRELOAD="$work/drops_punches.so" "$one_inode" --dir "$work" --punch-only 16
say='other data than was written' expect 1 'one_inode notices a damaged read' \
    env LD_PRELOAD="$work/damages_reads.so" "${small[@]}"
expect 1 'one_inode notices a lost append' env LD_PRELOAD="$work/loses_a_write.so" "${small[@]}"
say='expected what was written' expect 1 'one_inode notices pieces with the wrong data' \
    env LD_PRELOAD="$work/splits_wrongly.so" "${small[@]}"
say='multiple of 4K' expect 2 'one_inode refuses a size that is no multiple of 4K' \
    "$one_inode" --append-size 5000
say='choose' expect 3 'one_inode says where it cannot run' "$one_inode" --dir "$work/missing"

bench=("$SRC/tests/bench/bench" --quick --pairs 1 --seconds 0.2 --dir "$work")
say='no exit report' expect 1 'bench fails when no exit report was written' \
    env SHIM_SO="$work/reports_of_nothing.so" "${bench[@]}" pread-cached
say="$COUNTER_DEFERRED = 0" expect 1 'bench fails when the report says that nothing was deferred' \
    env SHIM_SO="$work/reports_0.so" "${bench[@]}" punch-ascending-ext4
expect 0 'bench passes when the counters say that it acted' \
    env SHIM_SO="$work/reports_9.so" "${bench[@]}" punch-ascending-ext4 --out "$work/figures"
say='"scenario":"punch-ascending-ext4","metric":"one punch"' expect 0 'and its figures are in --out' \
    cat "$work/figures"
say='MISSED: est <= 500' expect 1 'bench fails when a target is missed' \
    env SHIM_SO="$work/starts_slowly.so" "$SRC/tests/bench/bench" start-up
expect 2 'bench refuses a scenario that does not exist' "${bench[@]}" --calibrate no-such
expect 2 'bench asks for the library to be built' \
    env SHIM_SO="$work/missing.so" "${bench[@]}" pread-cached

say='B/A 2  \[2, 2\] at 95' expect 0 'pairs finds an exact ratio' \
    "$pairs" < <(seq 1 10 | awk '{ print $1, 2 * $1 }')
say='B-A 3.5  \[1, 6\] at 96.9' expect 0 'six pairs are the first with a 95 % interval, their extremes' \
    "$pairs" --diff < <(seq 1 6 | awk '{ print 0, $1 }')
say='at 75.0' expect 0 'fewer say what their interval is worth' "$pairs" < <(printf '1 2\n1 3\n1 4\n')
say='difference instead' expect 0 'a zero makes it a difference' "$pairs" < <(printf '1 0\n1 0\n')
expect 2 'pairs refuses what is not a pair' "$pairs" < <(printf '1 2\n1 x\n')

((failures == 0)) || exit 1
