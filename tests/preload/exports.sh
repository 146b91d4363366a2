#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 60
#
# The library exports what shim/calls.def lists, and rl_*, and nothing else: a stray symbol would
# silently replace somebody's function, a missing one leaves a way around the shim. And the list is
# complete: of every call on it, each public variant that this libc has is on it too (64-bit,
# underscored, fortified, old stdio names, old stat names).

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
status=0

skip() {
    echo "SKIP: $1"
    exit 77
}

complain() {
    echo "$1" >&2
    status=1
}

command -v nm >/dev/null || skip "no nm (binutils)"
[ -e "$lib" ] || {
    echo "$lib is not built: run make first" >&2
    exit 1
}

listed=$(sed -n 's/^CALL([^,]*, *\([A-Za-z0-9_]*\),.*/\1/p' "$SRC/shim/calls.def")
lines=$(grep -c '^CALL(' "$SRC/shim/calls.def")
[ "$(wc -l <<<"$listed")" = "$lines" ] || complain "calls.def: a line is not of the form CALL(type, name, …"

twice=$(sort <<<"$listed" | uniq -d)
[ -z "$twice" ] || complain "listed twice: ${twice//$'\n'/ }"

listed=$(sort -u <<<"$listed")
exported=$(nm -D --defined-only "$lib" | awk '{ sub(/@.*/, "", $3); print $3 }' | sort -u)
calls=$(grep -v '^rl_' <<<"$exported")

stray=$(comm -13 <(echo "$listed") <(echo "$calls"))
[ -z "$stray" ] || complain "exported, but not in calls.def: ${stray//$'\n'/ }"
missing=$(comm -23 <(echo "$listed") <(echo "$calls"))
[ -z "$missing" ] || complain "in calls.def, but not exported: ${missing//$'\n'/ }"

# The libc this shell runs on: names it offers to programs, so neither private ones nor ones kept
# only for programs linked long ago.
libc=$(ldd "$(command -v bash)" | awk '$1 ~ /^libc\.so/ { print $3 }')
[ -r "$libc" ] || skip "cannot tell which libc is in use"
offered=$(nm -D --defined-only "$libc" | awk '$2 ~ /[TWi]/ && $3 ~ /@@/ && $3 !~ /GLIBC_PRIVATE/ {
    sub(/@.*/, "", $3); print $3 }' | sort -u)
[ "$(grep -c . <<<"$offered")" -gt 1000 ] || complain "cannot read the names in $libc"

# Every name that a variant of one of these calls may have.
variants() {
    local n

    while IFS= read -r n; do
        printf '%s\n' "${n}64" "__$n" "__${n}64" "__${n}_2" "__${n}64_2" "__${n}_chk" \
            "__${n}64_chk" "_IO_$n" "_$n" "v$n" "__v${n}_chk" "${n}v" "${n}v64" "${n}v2" \
            "${n}v64v2" "p$n" "l$n" "f$n" "${n}at" "${n}2" "${n}_np"
        case $n in
        stat | lstat | fstat | fstatat) printf '%s\n' "__${n/stat/xstat}" "__${n/stat/xstat}64" ;;
        esac
    done
}

# The variants of $1 that libc has and $1 lacks. fread and fwrite come out of the rules, but are for
# streams, whose files are never deferred (call_stream.c).
lacking() {
    comm -23 <(comm -12 <(variants <<<"$1" | sort -u) <(echo "$offered")) \
        <(printf '%s\n' "$1" fread fwrite | sort -u)
}

lacks=$(lacking "$listed")
[ -z "$lacks" ] || complain "variants of interposed calls that calls.def lacks: ${lacks//$'\n'/ }"

# The rules find what is missing.
for name in __read_chk pread64 preadv64v2 __open64_2 fstatat64 __fxstat; do
    [ "$(lacking "$(grep -vx "$name" <<<"$listed")")" = "$name" ] ||
        complain "this test would not notice that $name is missing"
done

[ "$status" = 0 ] && echo "$lines calls, all exported, with every variant in $libc"
exit "$status"
