#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 240
#
# HPC codes without and with the library, on a file system whose server takes 2 ms a request (FUSE)
# and on a local one: Fortran with OpenMP threads that open the same files (examples/hpc/storm.f90),
# with MPI ranks on one file (ranks.f90), and parallel HDF5 (examples/hpc/h5_slabs.c). They check their
# data themselves; with the library opens of names that exist must have been looked up first, and
# the threads that wait for one creation be counted.
#
# Needs gfortran, Open MPI and parallel HDF5: make deps-hpc.

set -u
SRC=${SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
lib=${SHIM_SO:-$BUILD/librlshim.so}
# shellcheck source=tests/lab/lab.sh
. "$SRC/tests/lab/lab.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/hpc.XXXXXX") || exit 1
lab_at_exit "rm -rf -- '$work'"
export RLSHIM_CONF=/dev/null OMP_NUM_THREADS=16 OMPI_MCA_btl_vader_single_copy_mechanism=none
failures=0
tried=0
notes=()

# build NAME COMPILER ARGUMENT...: false, with a note, where it cannot be had
build() {
    local name=$1 why
    shift
    if ! command -v "$1" >/dev/null; then
        notes+=("$name: $1 is not installed")
        return 1
    fi
    why=$("$@" -O1 -o "$work/$name" 2>&1) || { echo "not ok: $name is not compiled: $why"; failures=$((failures + 1)); return 1; }
}

counter() { # counter NAME: over all reports
    cat "$work/reports"/*.json 2>/dev/null | sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" | awk '{ n += $1 } END { print n + 0 }'
}

# both WHAT PROGRAM...: without and with; their own checks decide, and the line that they print is
# shown. HOW in an argument becomes that word, so that names are as new for the second run.
both() {
    local what=$1 how out
    local -a env
    shift
    tried=$((tried + 1))
    for how in without with; do
        env=()
        rm -rf "$work/reports" && mkdir "$work/reports"
        [ $how = without ] || env=(env "RLSHIM_REPORT=$work/reports" "LD_PRELOAD=$lib")
        out=$(timeout 60 ${env[@]+"${env[@]}"} "${@/HOW/$how}" 2>&1) || {
            echo "not ok: $what, $how rlshim: $out"
            failures=$((failures + 1))
        }
        printf '%-44s %-8s %s\n' "$what" "$how" "$(tail -n 1 <<<"$out")"
    done
}

acted() { # acted WHAT COUNTER MORE_THAN
    [ "$(counter "$2")" -gt "$3" ] || {
        echo "not ok: $1: $2 is $(counter "$2")"
        failures=$((failures + 1))
    }
}

mpi=(mpirun --oversubscribe --allow-run-as-root -x LD_PRELOAD -x RLSHIM_REPORT -x RLSHIM_CONF -np)
build storm gfortran -std=f2018 -fopenmp "$SRC/examples/hpc/storm.f90"
build ranks mpif90 -J "$work" "$SRC/examples/hpc/ranks.f90"
build h5_slabs h5pcc "$SRC/examples/hpc/h5_slabs.c"

everything() { # everything FS: in the current lab
    local fs=$1 i
    if [ -x "$work/storm" ]; then
        both "$fs: 16 threads, new names, unknown" "$work/storm" "$LAB_DIR" new.HOW. 20 unknown
        [ "$fs" != FUSE ] || acted "new names" create_waited 0
        if [ "$fs" = FUSE ]; then # that the kernel has not looked up yet
            for i in {old,cut}.{without,with}.{1..20}; do : >"$LAB_BACK/$i"; done
        fi
        both "$fs: 16 threads, names that exist, unknown" "$work/storm" "$LAB_DIR" old.HOW. 20 unknown
        [ "$fs" != FUSE ] || acted "names that exist" create_looked 19
        both "$fs: 16 threads, replace" "$work/storm" "$LAB_DIR" cut.HOW. 20 replace
    fi
    [ ! -x "$work/ranks" ] || both "$fs: 8 MPI ranks on one file, Fortran" "${mpi[@]}" 8 "$work/ranks" "$LAB_DIR" 2
    [ ! -x "$work/h5_slabs" ] || both "$fs: 8 MPI ranks, parallel HDF5" "${mpi[@]}" 8 "$work/h5_slabs" "$LAB_DIR/slabs.h5" 2
}

for fs in FUSE ext4 xfs; do
    case $fs in
    FUSE) lab_slow --lookup-ms 2 --open-ms 2 --create-ms 2 --dir-lock ;;
    *) lab_up "$fs" 1024 ;;
    esac >"$work/said"
    case $? in
    0)
        everything "$fs"
        lab_down
        ;;
    77) notes+=("$fs: $(sed 's/^SKIP: //' "$work/said")") ;;
    *)
        echo "not ok: the lab on $fs did not come up: $(cat "$work/said")"
        failures=$((failures + 1))
        ;;
    esac
done

for note in ${notes[@]+"${notes[@]}"}; do
    echo "left out: $note"
done
[ "$failures" = 0 ] || exit 1
[ "$tried" -gt 0 ] || { echo "SKIP: ${notes[*]:-nothing could be tried} (make deps-hpc)"; exit 77; }
