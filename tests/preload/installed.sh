#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 240
#
# What is installed works where it is, for an ordinary place and for Debian's, and uninstall leaves
# nothing: a program builds against the installed lock manager through pkg-config, the command finds
# the library of its own installation.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
work=$(mktemp -d "${TMPDIR:-/tmp}/installed.XXXXXX") || exit 1
trap 'rm -rf -- "$work"' EXIT
[ "$(basename "$BUILD")" = build ] || { echo "SKIP: only what \"make\" builds is installed"; exit 77; }
failed=0
no() {
    echo "not ok: $*"
    failed=1
}

# A tree of its own, with what is built already: nobody else's build directory is touched.
mkdir "$work/tree" && cp -a "$SRC"/{Makefile,shim,lockmgr,include,docs,examples,README.md,CHANGELOG.md,LICENSE,rlshim.conf.example} "$work/tree" &&
    mkdir "$work/tree/build" && cp -a "$BUILD"/{obj,exports.map,librlshim.so,librangelock.a,rlshim,examples} "$work/tree/build" || exit 1
[ ! -e "$BUILD/dirs" ] || cp -a "$BUILD/dirs" "$work/tree/build"
cd "$work/tree" || exit 1
unset MAKEFLAGS MAKELEVEL MFLAGS DESTDIR PREFIX LIBDIR

for place in /usr/local:/usr/local/lib "/usr:/usr/lib/$(${CC:-gcc} -print-multiarch)" "/opt/a:/opt/a/lib"; do
    prefix=${place%%:*} lib=${place#*:}
    stage=$work/stage
    mkdir "$stage"
    vars=("DESTDIR=$stage" "PREFIX=$prefix" "LIBDIR=$lib")
    make -s "${vars[@]}" install >"$work/log" 2>&1 || { tail -n 20 "$work/log"; no "install to $place"; break; }
    grep -q -- "$stage" "$stage$lib/pkgconfig/rangelock.pc" && no "rangelock.pc names DESTDIR"
    grep -qx "libdir=$lib" "$stage$lib/pkgconfig/rangelock.pc" || no "rangelock.pc has another libdir than $lib"
    grep -qa "$lib/librlshim.so\|$lib" "$stage$prefix/bin/rlshim" || no "the command looks elsewhere than in $lib"
    flags=$(PKG_CONFIG_SYSROOT_DIR=$stage PKG_CONFIG_PATH=$stage$lib/pkgconfig pkg-config --cflags --libs rangelock) || no "pkg-config"
    # shellcheck disable=SC2086 # words
    ${CC:-gcc} -D_GNU_SOURCE -o "$work/locks" "$SRC/examples/lock_ranges.c" -I"$stage$prefix/include" -L"$stage$lib" $flags -lck -pthread ||
        no "a program does not build against what is installed in $place"
    timeout 30 "$work/locks" >/dev/null || no "that program failed"
    [ "$(RLSHIM_CONF=/dev/null LD_PRELOAD=$stage$lib/librlshim.so sh -c 'echo a >"$1"; cat "$1"' sh "$work/a" 2>&1)" = a ] || no "the library in $place does not work"
    make -s "${vars[@]}" uninstall >"$work/log" 2>&1 || { tail "$work/log"; no "uninstall from $place"; }
    left=$(find "$stage" -mindepth 1)
    [ -z "$left" ] || no "uninstall from $place left: $left"
    rm -rf "$stage"
    [ "$failed" != 0 ] || echo "ok: $prefix, libraries in $lib"
done
exit "$failed"
