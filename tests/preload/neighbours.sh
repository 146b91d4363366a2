#!/bin/bash
# SPDX-License-Identifier: MIT
# timeout: 120
#
# The shim beside other libraries: one whose constructor runs before ours and does I/O, another
# preload library behind us (it must still get the calls), one that does I/O inside malloc, and
# liburing loaded late and privately by a plugin, whose calls the dynamic linker binds to us.

set -u

SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD=${BUILD:-$SRC/build}
CC=${CC:-gcc}
work=$(mktemp -d "${TMPDIR:-/tmp}/neighbours.XXXXXX") || exit 1
trap 'rm -rf -- "$work"' EXIT
cd "$work" || exit 1
failed=0

command -v "$CC" >/dev/null || {
    echo "SKIP: no compiler ($CC)"
    exit 77
}
cp "${SHIM_SO:-$BUILD/librlshim.so}" librlshim.so || exit 1

# build NAME FLAGS…: NAME from NAME.c, which comes on stdin
build() {
    cat >"$1.c"
    "$CC" -D_GNU_SOURCE -O1 -w "${@:2}" -o "$1" "$1.c" || exit 1
}
# expect WHAT WANTED GOT
expect() {
    if [ "$2" = "$3" ]; then
        echo "ok: $1"
    else
        printf 'not ok: %s\n--- wanted\n%s\n--- got\n%s\n' "$1" "$2" "$3"
        failed=1
    fi
}

# --- before our constructor ---

build early.so -shared -fPIC <<'END'
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((constructor)) static void early(void)
{
    char a[64] = "", b[64] = "";
    struct stat st;
    int fd = open("early", O_RDWR | O_CREAT | O_TRUNC, 0600), status = 0;
    pid_t pid;

    write(fd, "hello", 5);
    pread(fd, a, sizeof a, 0);
    fstat(fd, &st);
    ftruncate(fd, 3);
    lseek(fd, 0, SEEK_SET);
    read(fd, b, sizeof b);
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
    if ((pid = vfork()) == 0)
        _exit(4);
    waitpid(pid, &status, 0);
    dprintf(1, "%s %s %d %d %d\n", a, b, (int)st.st_size, WEXITSTATUS(status), close(fd));
}
END
expect "a constructor that runs before ours" "hello hel 5 4 0" \
    "$(timeout 20 env LD_PRELOAD="$work/librlshim.so $work/early.so" true 2>&1)"

# --- a preload library behind us: we chain to it, by every name ---

build behind.so -shared -fPIC -ldl <<'END'
#include <dlfcn.h>
#include <sys/types.h>
static int calls;
ssize_t pread(int fd, void *buf, size_t n, off_t off)
{
    calls++;
    return ((ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread"))(fd, buf, n, off);
}
int fsync(int fd)
{
    return fd == 1234 ? 42 : ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
int seen(void)
{
    return calls;
}
END
build asks -ldl <<'END'
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(void)
{
    char c;
    int (*seen)(void) = dlsym(RTLD_DEFAULT, "seen");

    pread(0, &c, 1, 0);
    pread(0, &c, 1, 1);
    printf("%d %d\n", seen(), fsync(1234));
    return 0;
}
END
expect "a preload library behind us gets the calls" "2 42" \
    "$(timeout 20 env LD_PRELOAD="$work/librlshim.so $work/behind.so" ./asks <asks 2>&1)"

# --- an allocator that maps, opens and reads whenever it is called, from the first time on ---

build allocator.so -shared -fPIC <<'END'
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static void *fresh(size_t n)
{
    char c;
    int fd = open("/proc/self/statm", O_RDONLY);
    size_t *p;

    read(fd, &c, 1);
    close(fd);
    p = mmap(NULL, n + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *p = n;
    return (char *)p + 64;
}
void *malloc(size_t n) { return fresh(n); }
void *calloc(size_t n, size_t m) { return fresh(n * m); }
void free(void *p) { (void)p; }
void *realloc(void *p, size_t n)
{
    void *q = fresh(n);
    size_t had = p ? *(size_t *)((char *)p - 64) : 0;

    if (p)
        memcpy(q, p, had < n ? had : n);
    return q;
}
END
expect "I/O inside malloc" "fine" \
    "$(timeout 20 env LD_PRELOAD="$work/librlshim.so $work/allocator.so" sh -c 'echo fine | cat' 2>&1)"
expect "I/O inside malloc, the allocator first" "fine" \
    "$(timeout 20 env LD_PRELOAD="$work/allocator.so $work/librlshim.so" sh -c 'echo fine | cat' 2>&1)"

# --- liburing that comes with a plugin ---

if echo 'int main(void){return 0;}' | "$CC" -x c - -luring -o /dev/null 2>/dev/null; then
    build plugin.so -shared -fPIC -luring <<'END'
#include <liburing.h>
int plugged(void)
{
    struct io_uring ring;
    struct io_uring_cqe *cqe;
    int r = io_uring_queue_init(4, &ring, 0);

    if (r != 0)
        return r;
    io_uring_prep_nop(io_uring_get_sqe(&ring));
    io_uring_submit(&ring);
    r = io_uring_wait_cqe(&ring, &cqe);
    return r != 0 ? r : cqe->res == 0 ? 7 : -1;
}
END
    build host -ldl <<'END'
#include <dlfcn.h>
#include <stdio.h>
int main(void)
{
    void *h = dlopen("./plugin.so", RTLD_NOW | RTLD_LOCAL);
    int (*f)(void) = h ? dlsym(h, "plugged") : NULL;

    printf("%d\n", f ? f() : -999);
    return 0;
}
END
    expect "liburing loaded late and privately" "$(timeout 20 ./host 2>&1)" \
        "$(timeout 20 env LD_PRELOAD="$work/librlshim.so" ./host 2>&1)"
else
    echo "skipped: no liburing to link a plugin with"
fi

exit "$failed"
