#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# The rlshim command: what each subcommand does, and that every mistake costs one clear line.

set -u

SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
rlshim=$BUILD/rlshim
# Many small files: in memory where that can be had, since a busy disk takes seconds for each.
dir=$(mktemp -d "/dev/shm/cli.XXXXXX" 2>/dev/null || mktemp -d "${TMPDIR:-/tmp}/cli.XXXXXX") || exit 1
# ... unless programs cannot be started there.
if ! cp "$(type -P true)" "$dir/probe" || ! "$dir/probe" 2>/dev/null; then
    rm -rf "$dir"
    dir=$(mktemp -d "${TMPDIR:-/tmp}/cli.XXXXXX") || exit 1
fi
failures=0
left_out=

trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
unset LD_PRELOAD
export RLSHIM_CONF=/dev/null

not_ok() {
    echo "not ok: $1"
    failures=$((failures + 1))
}
same() { # same WHAT EXPECTED GOT
    [ "$2" = "$3" ] || not_ok "$1: expected '$2', got '$3'"
}
holds() { # holds WHAT TEXT PATTERN
    [[ $2 == *$3* ]] || not_ok "$1: '$3' is not in: $2"
}
# complains STATUS PATTERN COMMAND...: that status, nothing on stdout, one line on stderr.
complains() {
    local want=$1 pattern=$2 rc
    shift 2
    "$@" >out 2>err </dev/null
    rc=$?
    same "status of '$*'" "$want" "$rc"
    same "stdout of '$*'" "" "$(cat out)"
    same "lines of '$*'" 1 "$(wc -l <err)"
    holds "'$*'" "$(cat err)" "$pattern"
}

# --- help and mistakes ------------------------------------------------------------------------

same "--version" 0 "$("$rlshim" --version | grep -q '^rlshim [0-9]*\.[0-9]*\.[0-9]*$'; echo $?)"
holds "help" "$("$rlshim" help)" "usage: rlshim"
for command in run observe check stat report bench set reload off on; do
    holds "help names $command" "$("$rlshim" help)" "  $command "
    holds "help $command" "$("$rlshim" help "$command")" "rlshim $command "
    same "$command --help" "$("$rlshim" help "$command")" "$("$rlshim" "$command" --help)"
done
complains 2 "rlshim help" "$rlshim"
complains 2 "no command 'fly'" "$rlshim" fly
complains 2 "no command" "$rlshim" $'fly\nnow'
complains 2 "no program" "$rlshim" run
complains 2 "no program" "$rlshim" run --
complains 2 "no option" "$rlshim" observe --library=x --bogus true
complains 2 "no option '--fast'" "$rlshim" run --fast true
complains 2 "KEY=VALUE" "$rlshim" run --set
complains 2 "KEY=VALUE" "$rlshim" run --set punch true
complains 2 "no value" "$rlshim" run --set punch= true
complains 2 "no setting 'colour'" "$rlshim" run --set colour=red true
complains 2 "'banana' is not a value" "$rlshim" run --set punch=banana true
complains 2 "--library needs FILE" "$rlshim" run --library
complains 1 "/nonexistent" "$rlshim" run --library /nonexistent true
complains 2 "no option" "$rlshim" check --all
complains 2 "a PID, or --all" "$rlshim" stat
complains 2 "not a process number" "$rlshim" stat 12x
complains 2 "not a process number" "$rlshim" stat 99999999999999999999
complains 2 "number of seconds" "$rlshim" stat 1 never
complains 2 "number of lines" "$rlshim" stat 1 1 0
complains 2 "INTERVAL and a COUNT" "$rlshim" stat --all 1 2 3
complains 2 "takes no INTERVAL" "$rlshim" stat --prometheus --all 1
complains 2 "no option" "$rlshim" stat --fast 1
complains 1 "no directory with counters" "$rlshim" stat 1
complains 1 "/nonexistent" "$rlshim" stat --dir /nonexistent --all
complains 1 "no process" "$rlshim" off 2147483647
complains 2 "one process number" "$rlshim" off
complains 2 "no option" "$rlshim" on -1
complains 2 "not a process number" "$rlshim" off 0
complains 1 "does not run with librlshim.so" "$rlshim" off $$
complains 2 "no file" "$rlshim" report
complains 1 "No such file" "$rlshim" report absent.json
complains 1 "directory" "$rlshim" report .
if [ -w /dev/full ]; then
    "$rlshim" help >/dev/full 2>err
    same "help on a full disk" 1 $?
    holds "help on a full disk" "$(cat err)" "could not be written"
fi

lines=$("$rlshim" --help | awk 'length > 80 { exit 1 } END { print NR }') || not_ok "--help is too wide"
[ "$lines" -le 24 ] || not_ok "--help is $lines lines long"

# --- completion ---------------------------------------------------------------------------------

complete_words() { # complete_words WORD...: what bash would offer for the last of them
    bash -c '. "$1"; shift; compopt() { :; }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _rlshim
        printf "%s\n" "${COMPREPLY[@]}"' - "$SRC/docs/rlshim.bash" "$@"
}
same "completion of a command" reload "$(complete_words rlshim rel)"
same "completion of an option" "--html" "$(complete_words rlshim report --h | grep html)"
same "completion of a setting" "punch_delay=" \
    "$(PATH=$BUILD:$PATH complete_words rlshim run --set punch_d)"

# --- run, observe -----------------------------------------------------------------------------

same "exit status" 37 "$("$rlshim" run -- bash -c 'exit 37'; echo $?)"
complains 127 "cannot be started" "$rlshim" run ./absent
touch plain_file
complains 126 "cannot be started" "$rlshim" run ./plain_file
own=$("$rlshim" run printenv LD_PRELOAD)
same "LD_PRELOAD" librlshim.so "${own##*/}"
[ "${own#/}" != "$own" ] || not_ok "LD_PRELOAD holds a relative path: $own"
same "LD_PRELOAD of others" "$lib:$lib" \
    "$(LD_PRELOAD=$lib "$rlshim" run --library "$lib" printenv LD_PRELOAD)"
same "--set" 5ms "$("$rlshim" run --set punch_delay=5ms -- printenv RLSHIM_PUNCH_DELAY)"
same "observe" observe "$("$rlshim" observe printenv RLSHIM_MODE)"
same "options of the program" "--set x" "$("$rlshim" run echo --set x)"

# The library is found beside the command and in ../lib, and nowhere else.
mkdir -p tree/bin tree/lib "with blank"
cp "$rlshim" tree/bin/
cp "$lib" tree/lib/librlshim.so
same "../lib" "$dir/tree/lib/librlshim.so" "$(tree/bin/rlshim run printenv LD_PRELOAD)"
cp "$rlshim" "$lib" "with blank/"
[ -e "with blank/librlshim.so" ] || mv "with blank/${lib##*/}" "with blank/librlshim.so"
complains 1 "blank or colon" "with blank/rlshim" run true

# --- programs that cannot be helped -------------------------------------------------------------

make_program() { # make_program NAME FLAG...: from stdin
    local name=$1
    shift
    ${CC:-gcc} -x c -o "$name" "$@" - 2>/dev/null
}
warned() { # warned PROGRAM PATTERN: run warns and still runs it
    "$rlshim" run "$1" >out 2>err
    same "status of $1" 7 $?
    holds "run $1" "$(cat err)" "$2"
    "$rlshim" check "$1" >out 2>err
    holds "check $1" "$(cat out)" "$2"
}

if echo 'int main(void) { return 7; }' | make_program static -static; then
    warned ./static "statically linked"
    holds "a static program" "$("$rlshim" run ./static 2>&1)" "WITHOUT rlshim"
    same "check of a static program" 1 "$("$rlshim" check ./static >/dev/null; echo $?)"
    printf '#!%s/static\n' "$dir" >script
    chmod +x script
    warned ./script "statically linked"
else
    left_out="static programs (no compiler or no static libc)"
fi
if make_program go <<'END'; then
__asm__(".section .note.go.buildid,\"a\",@note\n .p2align 2\n .long 4, 4, 4\n .asciz \"Go\"\n"
        " .byte 0\n .ascii \"abcd\"\n .text");
int main(void) { return 7; }
END
    warned ./go "written in Go"
    same "check of a Go program" 0 "$("$rlshim" check ./go >/dev/null; echo $?)"
fi
if echo 'int main(void) { return 7; }' | make_program dynamic; then
    same "run of a dynamic program" "" "$("$rlshim" run ./dynamic 2>&1)"
    same "check of a dynamic program" 0 "$("$rlshim" check ./dynamic >out; echo $?)"
    holds "check of a dynamic program" "$(cat out)" "dynamically linked"
    cp dynamic foreign
    printf '\001' | dd of=foreign bs=1 seek=4 conv=notrunc status=none
    holds "check of a 32-bit program" "$("$rlshim" check ./foreign)" "another architecture"
    # Whatever a damaged program file holds, nothing but a verdict comes of it.
    size=$(stat -c %s dynamic)
    for ((at = 0; at < 1024; at += 13)); do
        cp dynamic damaged
        printf '\377\377\377\377' | dd of=damaged bs=1 seek=$at conv=notrunc status=none
        "$rlshim" check ./damaged >/dev/null 2>&1
        [ $? -le 1 ] || not_ok "check of a program damaged at $at ended with $?"
    done
    for keep in 1 4 63 64 100 $((size / 2)); do
        head -c "$keep" dynamic >damaged
        "$rlshim" check ./damaged >/dev/null 2>&1
        [ $? -le 1 ] || not_ok "check of a program cut to $keep bytes"
    done
    if [ "$(id -u)" = 0 ] && chown 65534 foreign 2>/dev/null; then
        cp dynamic setuid
        chown 65534 setuid
        chmod 4755 setuid
        warned ./setuid "set-user-ID"
    fi
fi
if echo 'int io_uring_get_probe(void); int main(void) { return io_uring_get_probe() != 0; }' |
    make_program uring -Wl,--no-as-needed -luring; then
    holds "check of a program with liburing" "$("$rlshim" check ./uring)" "needs liburing"
fi

# --- check --------------------------------------------------------------------------------------

"$rlshim" check >out 2>err
same "check" 0 $?
same "check, stderr" "" "$(cat err)"
holds "check" "$(cat out)" "punch_delay     = 10ms"
holds "check" "$(cat out)" "Linux $(uname -r)"
printf '[default]\npunch = sync\n[app ca?]\npunch_delay = 3ms\n[path /d/*]\nsplit = 1M\n' >ok.conf
RLSHIM_CONF=ok.conf "$rlshim" check cat >out
same "check with a file" 0 $?
holds "check of a path" "$(RLSHIM_CONF=ok.conf "$rlshim" check --path /d/x cat)" "for /d/x in cat:
    * punch_delay     = 3ms
    * split           = 1M"
holds "check of file systems" "$(cat out)" "file systems, and what can be on there"
holds "check with a file" "$(cat out)" "* punch           = sync"
holds "check with a file" "$(cat out)" "* punch_delay     = 3ms"
holds "check with a file" "$(cat out)" "/d/*: split = 1M"
printf 'punch = sync\npunch = banana\n' >bad.conf
RLSHIM_CONF=bad.conf "$rlshim" check >out
same "check of a bad file" 1 $?
holds "check of a bad file" "$(cat out)" "bad.conf:2: punch: "
complains 0 "bad.conf:2: punch: " env RLSHIM_CONF=bad.conf LD_PRELOAD="$lib" true
same "check of nothing" 1 "$("$rlshim" check ./absent >/dev/null; echo $?)"

# --- damaged counters -----------------------------------------------------------------------------

mkdir live
printf 'not counters' >live/rlshim-1.stats
head -c 100000 /dev/urandom >live/rlshim-2.stats
mkdir live/rlshim-3.stats
for n in 1 2 3; do
    complains 1 "live/rlshim-$n.stats: " "$rlshim" stat --dir live "$n"
done
"$rlshim" stat --dir live --all >out 2>err
same "stat --all of damaged files" "1 3" "$? $(wc -l <err)"

if [ "$failures" != 0 ]; then
    echo "$failures checks failed"
    exit 1
fi
echo "all checks hold${left_out:+; left out: $left_out}"
