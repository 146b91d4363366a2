/* SPDX-License-Identifier: MIT */
/* place: see place.h. */
#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

#include "readable.h"

#define PLACES      256u
#define NAMES       2048u
#define DEVICES     32u
#define PREFIX_MAX  1024u
#define PAGE_SHIFT  12 /* the smallest there is: larger ones are asked about more often */
#define MEAN_WEIGHT 8

static struct place places[PLACES];
static struct place nowhere = {.kind = CREATE_KIND_PLAIN};
static uint32_t names[NAMES];
static uint64_t devices[DEVICES]; /* device << 3 | kind + 1 */
EARLY static uint32_t kernel;

static __thread uint32_t uses;

void place_start(void)
{
    struct utsname u;
    const char *at = u.release;
    uint32_t part[2] = {0, 0};

    if (rl_raw(SYS_uname, &u) != 0)
        return; /* version 0: measure */
    for (int i = 0; i < 2; i++, at += *at == '.')
        while (*at >= '0' && *at <= '9' && part[i] < 1000)
            part[i] = part[i] * 10 + (uint32_t)(*at++ - '0');
    kernel = part[0] << 8 | (part[1] < 255 ? part[1] : 255);
}

/* Asked each time: a page that was readable once may be unmapped or protected since, and then the
 * kernel's answer is EFAULT. */
static bool page_readable(uintptr_t at)
{
    return readable((const void *)(at & ~(uintptr_t)7), 8);
}

size_t place_path_bytes(const char *path)
{
    uintptr_t at = (uintptr_t)path;

    while (at - (uintptr_t)path < PATH_MAX) {
        size_t room = ((size_t)1 << PAGE_SHIFT) - (at & (((size_t)1 << PAGE_SHIFT) - 1));
        const char *end;

        if (!page_readable(at))
            return 0;
        end = memchr((const char *)at, '\0', room);
        if (end != NULL)
            return (size_t)(end - path);
        at += room;
    }
    return 0;
}

/* 8 bytes at a time: on the path of every open with O_CREAT. */
static uint64_t hash(uint64_t h, const char *s, size_t bytes)
{
    uint64_t word = 0;

    for (; bytes >= 8; s += 8, bytes -= 8) {
        memcpy(&word, s, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    word = bytes;
    for (size_t i = 0; i < bytes; i++)
        word = word << 8 | (unsigned char)s[i];
    h = (h ^ word) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 29;
}

static void put(char *buf, size_t *n, const char *s, size_t bytes)
{
    memcpy(buf + *n, s, bytes);
    *n += bytes;
    buf[*n] = '\0';
}

/* A path by which statfs finds the directory; there is no statfsat. */
static void statfs_path(char *buf, int dirfd, const char *prefix, size_t bytes)
{
    char digits[12];
    size_t n = 0, k = sizeof digits;
    unsigned fd = (unsigned)dirfd;

    if (bytes > 0 && (prefix[0] == '/' || dirfd == AT_FDCWD)) {
        put(buf, &n, prefix, bytes);
    } else if (dirfd == AT_FDCWD) {
        put(buf, &n, ".", 1);
    } else {
        do
            digits[--k] = (char)('0' + fd % 10);
        while ((fd /= 10) != 0);
        put(buf, &n, "/proc/thread-self/fd/", 21);
        put(buf, &n, digits + k, sizeof digits - k);
        put(buf, &n, "/", 1);
        put(buf, &n, prefix, bytes);
    }
}

/* statfs may be slow (ext4 sums its counters over all processors): it is asked once a device. */
static uint64_t *device_of(const struct statx *sx, uint64_t *dev)
{
    *dev = (uint64_t)sx->stx_dev_major << 32 | sx->stx_dev_minor;
    return &devices[(sx->stx_dev_major * 31 + sx->stx_dev_minor) % DEVICES];
}

static bool device_known(const uint64_t *at, uint64_t dev, enum create_kind *kind)
{
    uint64_t seen = rl_load_64(at);

    *kind = (enum create_kind)((seen & 7) - 1);
    return seen >> 3 == dev && (seen & 7) != 0;
}

/* One look at the directory, which needs no round trip beyond its own name's. */
static enum create_kind learn(int dirfd, const char *prefix, size_t bytes)
{
    char path[PREFIX_MAX + 64];
    struct statx sx;
    struct statfs fs;
    uint64_t dev, *known;
    size_t n = 0;
    enum create_kind kind;

    if (bytes >= PREFIX_MAX || (bytes == 0 && dirfd < 0 && dirfd != AT_FDCWD))
        return CREATE_KIND_UNKNOWN;
    path[0] = '\0';
    put(path, &n, prefix, bytes);
    if (rl_raw(SYS_statx, dirfd, path, AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
               STATX_TYPE, &sx) != 0)
        return CREATE_KIND_UNKNOWN;
    known = device_of(&sx, &dev);
    if (device_known(known, dev, &kind))
        return kind;
    statfs_path(path, dirfd, prefix, bytes);
    if (rl_raw(SYS_statfs, path, &fs) != 0)
        return CREATE_KIND_UNKNOWN;
    kind = policy_create_kind((uint64_t)fs.f_type, kernel);
    rl_store_64(known, dev << 3 | (uint64_t)(kind + 1));
    return kind;
}

enum create_kind place_kind_fd(int fd)
{
    struct statx sx;
    struct statfs fs;
    uint64_t dev, *known;
    enum create_kind kind;

    if (rl_raw(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &sx) != 0)
        return CREATE_KIND_UNKNOWN;
    known = device_of(&sx, &dev);
    if (device_known(known, dev, &kind))
        return kind;
    if (rl_raw(SYS_fstatfs, fd, &fs) != 0)
        return CREATE_KIND_UNKNOWN;
    kind = policy_create_kind((uint64_t)fs.f_type, kernel);
    rl_store_64(known, dev << 3 | (uint64_t)(kind + 1));
    return kind;
}

static __attribute__((noinline)) struct place *learn_into(struct place *p, uint64_t tag, int dirfd,
                                                          const char *prefix, size_t bytes)
{
    enum create_kind kind = learn(dirfd, prefix, bytes);

    if (kind == CREATE_KIND_UNKNOWN)
        return &nowhere;
    if (rl_load_64(&p->tag) != tag) {
        p->missing = p->turn = p->turns = p->look_ns = p->plain_ns = p->doubted = 0;
        rl_store_64(&p->tag, tag);
    }
    rl_store_32(&p->kind, kind);
    return p;
}

struct place *place_of(int dirfd, const char *path, size_t bytes)
{
    const char *slash = memrchr(path, '/', bytes);
    size_t prefix = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    uint64_t tag = hash(path[0] == '/' ? 1 : (uint64_t)(uint32_t)dirfd << 1, path, prefix) | 1;
    struct place *p = &places[tag >> 24 & (PLACES - 1)];

    if (likely(rl_load_64(&p->tag) == tag && ++uses % PLACE_USES != 0))
        return p;
    return learn_into(p, tag, dirfd, path, prefix);
}

uint32_t place_name_tag(const struct place *place, const char *path, size_t bytes)
{
    return (uint32_t)hash(place->tag, path, bytes) | 1;
}

bool place_knows(uint32_t tag)
{
    return rl_load_32(&names[tag / 2 % NAMES]) == tag;
}

void place_note(uint32_t tag, bool exists)
{
    uint32_t seen = tag;

    if (exists)
        rl_store_32(&names[tag / 2 % NAMES], tag);
    else
        rl_cas_32(&names[tag / 2 % NAMES], &seen, 0);
}

void place_mean(uint32_t *mean_ns, uint64_t ns)
{
    uint32_t old = rl_load_32(mean_ns);
    uint64_t new = ns < 1000000000u ? ns : 1000000000u;

    if (old != 0)
        new = (old * (uint64_t)(MEAN_WEIGHT - 1) + new) / MEAN_WEIGHT;
    rl_store_32(mean_ns, (uint32_t) new | 1);
}
