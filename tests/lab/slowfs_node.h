// SPDX-License-Identifier: MIT
//
// The nodes of slowfs: one for each file that the kernel knows, found by device and inode number.
// A node keeps an O_PATH descriptor, so its inode number cannot be reused while it exists.
//
// Rules: nodes are found, counted and freed only under table_lock. Each node_find that succeeds is
// one look-up that the kernel, or the caller if the reply could not be sent, gives back by
// node_forget. The root is static and is never forgotten.

#ifndef SLOWFS_NODE_H
#define SLOWFS_NODE_H

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NODE_BUCKETS 4096

struct node {
    struct node *next; // in its bucket; table_lock
    int fd;            // O_PATH
    dev_t dev;         // of the shown directory's file
    ino_t ino;
    uint64_t lookups;       // what the kernel will forget again; table_lock
    uint64_t generation;    // tells a node from an earlier one at the same address
    pthread_rwlock_t names; // --dir-lock: of a directory, see names_enter
};

static struct node root;
static struct node *table[NODE_BUCKETS];
static uint64_t generations;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

static bool dir_lock;

// As a metadata server of old: creating a name takes its directory's lock for itself, looking names
// up and listing them share it. Who creates comes before who looks, so that neither starves.
static void names_init(struct node *n)
{
    pthread_rwlockattr_t attr;

    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&n->names, &attr);
    pthread_rwlockattr_destroy(&attr);
}

static void names_enter(struct node *n, bool creates)
{
    if (dir_lock && creates)
        pthread_rwlock_wrlock(&n->names);
    else if (dir_lock)
        pthread_rwlock_rdlock(&n->names);
}

static void names_leave(struct node *n)
{
    if (dir_lock)
        pthread_rwlock_unlock(&n->names);
}

static struct node *node_of(fuse_ino_t ino)
{
    return ino == FUSE_ROOT_ID ? &root : (struct node *)(uintptr_t)ino;
}

static struct node **bucket_of(dev_t dev, ino_t ino)
{
    return &table[(ino * 2654435761u + dev) % NODE_BUCKETS];
}

// The way back from an O_PATH descriptor to one that can do I/O.
static int reopen(const struct node *n, int flags)
{
    char path[40];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", n->fd);
    return open(path, flags | O_CLOEXEC);
}

// Finds or makes the node of `name` and counts one look-up on it. 0 or an errno.
static int node_find(fuse_ino_t parent, const char *name, struct fuse_entry_param *e)
{
    struct node **bucket, *n;
    int fd = openat(node_of(parent)->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

    memset(e, 0, sizeof(*e));
    if (fd < 0)
        return errno;
    if (fstatat(fd, "", &e->attr, AT_EMPTY_PATH) != 0) {
        int err = errno;
        close(fd);
        return err;
    }
    pthread_mutex_lock(&table_lock);
    bucket = bucket_of(e->attr.st_dev, e->attr.st_ino);
    for (n = *bucket; n; n = n->next)
        if (n->dev == e->attr.st_dev && n->ino == e->attr.st_ino)
            break;
    if (n) {
        close(fd);
    } else {
        n = calloc(1, sizeof(*n));
        if (!n) {
            pthread_mutex_unlock(&table_lock);
            close(fd);
            return ENOMEM;
        }
        names_init(n);
        n->fd = fd;
        n->dev = e->attr.st_dev;
        n->ino = e->attr.st_ino;
        n->generation = ++generations;
        n->next = *bucket;
        *bucket = n;
    }
    n->lookups++;
    e->ino = (uintptr_t)n;
    e->generation = n->generation;
    pthread_mutex_unlock(&table_lock);
    return 0;
}

static void node_forget(fuse_ino_t ino, uint64_t lookups)
{
    struct node *n = node_of(ino), **p;

    if (n == &root)
        return;
    pthread_mutex_lock(&table_lock);
    n->lookups -= lookups;
    if (n->lookups == 0) {
        for (p = bucket_of(n->dev, n->ino); *p != n; p = &(*p)->next)
            ;
        *p = n->next;
        close(n->fd);
        pthread_rwlock_destroy(&n->names);
        free(n);
    }
    pthread_mutex_unlock(&table_lock);
}

#endif
