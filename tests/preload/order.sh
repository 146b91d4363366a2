#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 180
#
# Before and behind libraries that people preload themselves: jemalloc (its start-up maps memory
# before any constructor), libeatmydata (it replaces the fsync family), and the runtime of
# AddressSanitizer, which wants to be first. A program writes, punches, reads and syncs, with threads
# and children: it says the same in each order as without the shim, and punches are still deferred.
#
# Not installed (Debian: libeatmydata1, libjemalloc2): that one is skipped.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
CC=${CC:-gcc}
work=$(mktemp -d "${TMPDIR:-/tmp}/order.XXXXXX") || exit 1
trap 'rm -rf -- "$work"' EXIT
cd "$work" || exit 1
failed=0
skipped=
lib=$work/librlshim.so
cp "${SHIM_SO:-$BUILD/librlshim.so}" "$lib" || exit 1
export RLSHIM_CONF=/dev/null

command -v "$CC" >/dev/null || {
    echo "SKIP: no compiler ($CC)"
    exit 77
}
cat >work.c <<'END'
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
enum { BLOCK = 4096, BLOCKS = 512 };
static int fd;
static int wrong;
static void *churn(void *arg)
{
    unsigned x = (unsigned)(uintptr_t)arg + 1;

    for (int i = 0; i < 3000; i++) {
        char *big = (x = x * 1103515245 + 12345, malloc(x >> 12 & 0xffff));

        if (big != NULL)
            big[0] = 1;
        free(big);
    }
    return NULL;
}
static uint64_t sum(void)
{
    static unsigned char b[BLOCK];
    uint64_t h = 14695981039346656037u;

    for (int i = 0; i < BLOCKS; i++) {
        wrong += pread(fd, b, BLOCK, (off_t)i * BLOCK) != BLOCK;
        for (int k = 0; k < BLOCK; k++)
            h = (h ^ b[k]) * 1099511628211u;
    }
    return h;
}
int main(int argc, char **argv)
{
    pthread_t t[3];
    char *b = malloc(BLOCK);
    struct stat st;
    unsigned x = 7;
    int status = 0;
    FILE *f;

    (void)argc;
    fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (uintptr_t i = 0; i < 3; i++)
        pthread_create(&t[i], NULL, churn, (void *)i);
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < BLOCKS; i += 1 + round % 3) {
            memset(b, round + i, BLOCK);
            wrong += pwrite(fd, b, BLOCK, (off_t)i * BLOCK) != BLOCK;
        }
        for (int i = 0; i < 100; i++) {
            x = x * 1103515245 + 12345;
            wrong += fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(x >> 16) % BLOCKS * BLOCK,
                               BLOCK) != 0;
        }
        if (round % 10 == 9)
            printf("%d %d %016llx\n", round, fsync(fd) + fdatasync(fd), (unsigned long long)sum());
    }
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    fflush(stdout);
    if (fork() == 0) {
        printf("child %016llx\n", (unsigned long long)sum());
        exit(3);
    }
    wait(&status);
    errno = 5;
    f = fopen(argv[1], "r+");
    wrong += f == NULL || fseek(f, 100, SEEK_SET) != 0 || fputc('x', f) != 'x' || fclose(f) != 0;
    fstat(fd, &st);
    printf("%d %d %lld %016llx", wrong, WEXITSTATUS(status), (long long)st.st_size, (unsigned long long)sum());
    printf(" %d %d", close(fd), fsync(fd));
    printf(" %d\n", errno == EBADF);
    free(b);
    return unlink(argv[1]);
}
END
"$CC" -D_GNU_SOURCE -O1 -w -o work work.c -pthread || exit 1

# same WHAT PRELOAD PROGRAM [VARIABLE=VALUE…]: says what it says with the same preloads but ours, which $lib is.
same() {
    local what=$1 preload=$2 program=$3 without with
    shift 3
    without=$(timeout 60 env "$@" LD_PRELOAD="${preload//$lib/}" "$program" "$work/file" 2>&1; echo "status $?")
    for forced in auto private; do
        rm -f "$work"/rlshim-*
        with=$(timeout 60 env "$@" RLSHIM_SHARE=$forced RLSHIM_PUNCH_DELAY=1ms RLSHIM_REPORT="$work" LD_PRELOAD="$preload" \
            "$program" "$work/file" 2>&1; echo "status $?")
        if [ "$without" != "$with" ]; then
            failed=1
            printf 'not ok: %s, share = %s\n--- without\n%s\n--- with\n%s\n' "$what" "$forced" "$without" "$with" | head -n 40
        elif [ "${without##*status }" != 0 ]; then
            failed=1
            printf 'not ok: %s: does not run without the shim\n%s\n' "$what" "$without" | head -n 20
        elif [ "$forced" = private ] && ! grep -hEq '"punch_deferred": *[1-9]' "$work"/rlshim-*.json; then
            failed=1
            echo "not ok: $what: no punch was deferred"
        else
            echo "ok: $what, share = $forced"
        fi
    done
}

# library NAME: its path into $found
library() {
    found=
    for found in /usr/lib/*/"$1" /usr/lib/"$1" /usr/lib64/"$1" /usr/lib/*/*/"$1"; do
        [ -e "$found" ] && return 0
    done
    skipped="$skipped $1"
    return 1
}

same "alone" "$lib" ./work
jemalloc=
if library libjemalloc.so.2; then
    jemalloc=$found
    same "jemalloc before the shim" "$jemalloc:$lib" ./work
    same "the shim before jemalloc" "$lib:$jemalloc" ./work
fi
if library libeatmydata.so; then
    same "libeatmydata before the shim" "$found:$lib" ./work
    same "the shim before libeatmydata" "$lib:$found" ./work
    [ -z "$jemalloc" ] || same "the shim between both" "$found:$lib:$jemalloc" ./work
fi
# What jemalloc does, so that it is tried where jemalloc is not; and the same way to a file of ours, which
# has to end deferral: it could be read around us.
cat >lookups.c <<'END'
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((constructor)) static void begin(void)
{
    const char *name[] = {"/proc/sys/vm/overcommit_memory", "/sys/kernel/mm/transparent_hugepage/enabled"};
    char b[64];

    for (int i = 0; i < 2; i++) {
        long fd = syscall(SYS_openat, AT_FDCWD, name[i], O_RDONLY | O_CLOEXEC);

        syscall(SYS_read, fd, b, sizeof b);
        syscall(SYS_close, fd);
    }
}
END
"$CC" -D_GNU_SOURCE -O1 -w -shared -fPIC -o lookups.so lookups.c || exit 1
same "look-ups by number before the shim" "$work/lookups.so:$lib" ./work
same "look-ups by number behind the shim" "$lib:$work/lookups.so" ./work
for how in SYS_read,fd,b,1 SYS_close,dup\(fd\) SYS_openat,AT_FDCWD,\"file2\",O_RDONLY SYS_openat,AT_FDCWD,\"/proc/self/fd/1\",O_RDWR; do
    cat >around.c <<'END'
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void)
{
    char b[8192] = "";
    int file = open("file2", O_RDWR | O_CREAT | O_TRUNC, 0600), fd;
    char name[64];

    write(file, b, sizeof b);
    sprintf(name, "/proc/self/fd/%d", file);
    fd = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY);
    syscall(HOW);
    for (int i = 0; i < 20; i++) {
        fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
        usleep(300);
    }
    return 0;
}
END
    "$CC" -D_GNU_SOURCE -w -DHOW="$how" -o around around.c || exit 1
    rm -f "$work"/rlshim-*
    env RLSHIM_SHARE=private RLSHIM_REPORT="$work" LD_PRELOAD="$lib" ./around >out
    if grep -hEq '"punch_no_foreign": *20,' "$work"/rlshim-*.json; then
        echo "ok: syscall($how) ends deferral"
    else
        failed=1
        echo "not ok: syscall($how): $(grep -hE 'punch_(deferred|no_foreign)' "$work"/rlshim-*.json | tr -d '\n')"
    fi
done

if "$CC" -D_GNU_SOURCE -O1 -w -fsanitize=address -o with_asan work.c -pthread 2>/dev/null; then
    asan=$("$CC" -print-file-name=libasan.so)
    same "AddressSanitizer's runtime before the shim" "$(realpath "$asan"):$lib" ./with_asan
    same "the shim before AddressSanitizer's runtime" "$lib" ./with_asan ASAN_OPTIONS=verify_asan_link_order=0
    "$CC" -D_GNU_SOURCE -O1 -w -fsanitize=address -static-libasan -o with_static_asan work.c -pthread 2>/dev/null &&
        same "AddressSanitizer linked in" "$lib" ./with_static_asan
else
    skipped="$skipped AddressSanitizer"
fi

[ -z "$skipped" ] || echo "not installed, not tried:$skipped"
exit "$failed"
