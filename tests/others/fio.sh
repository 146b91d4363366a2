#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 600
#
# fio's own verification of what it reads back, without the shim, with it, and with everything forced
# on: the engines that go through libc (psync, pvsync2, in threads and in processes, buffered and
# direct), those that go around it (libaio, io_uring), fallocate, and hole punches beside verified writes.
#
# OTHERS_MB  per job (16)      OTHERS_DIR  where files go (/var/tmp)

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=tests/others/lib.bash
. "$SRC/tests/others/lib.bash"
others_begin fio
mb=${OTHERS_MB:-16}

# job NAME OPTION…
job() {
    others_three "fio $1" fio --minimal --name="$1" --directory="$others_dir" --filesize="${mb}M" --randseed=7 \
        --fallocate=none --verify_fatal=1 --exitall_on_error --bs=4k --unlink=1 "${@:2}"
}
verified=(--verify=crc32c --do_verify=1)
for engine in psync pvsync2 libaio io_uring; do
    direct="--direct=1"
    depth=1
    case $engine in libaio | io_uring) depth=8 ;; esac
    job "$engine-random" --ioengine=$engine --iodepth=$depth --rw=randwrite "${verified[@]}"
    job "$engine-direct" --ioengine=$engine --iodepth=$depth --rw=randwrite $direct "${verified[@]}"
    job "$engine-threads" --ioengine=$engine --iodepth=$depth --rw=randwrite --numjobs=3 --thread "${verified[@]}" --fsync=64
    job "$engine-big" --ioengine=$engine --iodepth=$depth --rw=write --bs=2m $direct "${verified[@]}"
    # fio trims files only through its falloc engine: a second thread punches the other half of the file.
    others_three "fio $engine-punched" fio --minimal --thread --filename="$others_dir/shared" --randseed=7 \
        --fallocate=none --verify_fatal=1 --exitall_on_error --bs=16k \
        --name=writes --ioengine=$engine --iodepth=$depth --rw=randwrite --filesize="${mb}M" --size="${mb}M" "${verified[@]}" --loops=2 \
        --name=punches --verify=0 --do_verify=0 --ioengine=falloc --rw=randtrim --offset="${mb}M" --size="${mb}M" --filesize="$((2 * mb))M" --loops=4
    job "$engine-backlog" --ioengine=$engine --iodepth=$depth --rw=randwrite --bs=16k --verify=crc32c --verify_backlog=32 \
        --trim_percentage=30 --trim_verify_zero=1 --trim_backlog=32 --thread
done
for what in randwrite randtrim randtrimwrite; do job "falloc-$what" --ioengine=falloc --rw=$what; done
job "preallocated" --ioengine=psync --fallocate=posix --rw=randwrite --overwrite=1 "${verified[@]}"
job "truncated" --ioengine=psync --fallocate=truncate --rw=randrw "${verified[@]}" --direct=1
others_end
