/* SPDX-License-Identifier: MIT */
/*
 * lock_rivals: what the range lock is measured against, each behind the same four functions.
 *
 *   none    nothing: the floor, and no lock at all
 *   rwlock  one pthread_rwlock a file: shared ones share, anything exclusive excludes the whole
 * file tree    a mutex over an interval tree (a treap with the largest end below each node);
 * whoever is excluded sleeps on a condition variable until something is released list    the sorted
 * lock-free list of Kogan, Dice and Issa (EuroSys 2020), written anew from the paper: insertion by
 * compare-and-swap, release by marking, marked nodes are unlinked by whoever passes; a lone range
 * takes the head only. Two things in its favour: nodes are reclaimed after a membarrier, so a call
 * pays no fence for that, and waiting gives the processor away after a short spin, as more threads
 * than processors need it slots   ours
 *
 * A rival's hold is a union member that the caller keeps until release.
 */
#ifndef TESTS_LOCK_RIVALS_H
#define TESTS_LOCK_RIVALS_H

#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../include/rlshim/range_lock.h"

#define LIST_NODES  4096
#define RIVAL_LINE  64
#define MAX_THREADS 16

/* --- tree --- */

struct tree_node {
    struct tree_node *left, *right;
    uint64_t start, end, max_end;
    uint32_t priority;
    bool exclusive;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t released;
    struct tree_node *root;
    unsigned waiting;
} tree = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0};

static void tree_update(struct tree_node *n)
{
    n->max_end = n->end;
    if (n->left != NULL && n->left->max_end > n->max_end)
        n->max_end = n->left->max_end;
    if (n->right != NULL && n->right->max_end > n->max_end)
        n->max_end = n->right->max_end;
}

static void tree_split(struct tree_node *t, const struct tree_node *at, struct tree_node **l,
                       struct tree_node **r)
{
    if (t == NULL) {
        *l = *r = NULL;
    } else if (t->start < at->start || (t->start == at->start && t < at)) {
        tree_split(t->right, at, &t->right, r);
        tree_update(t);
        *l = t;
    } else {
        tree_split(t->left, at, l, &t->left);
        tree_update(t);
        *r = t;
    }
}

static struct tree_node *tree_merge(struct tree_node *l, struct tree_node *r)
{
    if (l == NULL || r == NULL)
        return l != NULL ? l : r;
    if (l->priority > r->priority) {
        l->right = tree_merge(l->right, r);
        tree_update(l);
        return l;
    }
    r->left = tree_merge(l, r->left);
    tree_update(r);
    return r;
}

static struct tree_node *tree_insert(struct tree_node *t, struct tree_node *n)
{
    if (t == NULL || n->priority > t->priority) {
        tree_split(t, n, &n->left, &n->right);
        tree_update(n);
        return n;
    }
    if (n->start < t->start || (n->start == t->start && n < t))
        t->left = tree_insert(t->left, n);
    else
        t->right = tree_insert(t->right, n);
    tree_update(t);
    return t;
}

static struct tree_node *tree_remove(struct tree_node *t, const struct tree_node *n)
{
    if (t == n)
        return tree_merge(t->left, t->right);
    if (n->start < t->start || (n->start == t->start && n < t))
        t->left = tree_remove(t->left, n);
    else
        t->right = tree_remove(t->right, n);
    tree_update(t);
    return t;
}

static bool tree_excludes(const struct tree_node *t, uint64_t start, uint64_t end, bool exclusive)
{
    if (t == NULL || t->max_end <= start)
        return false;
    if (tree_excludes(t->left, start, end, exclusive))
        return true;
    if (t->start < end && t->end > start && (exclusive || t->exclusive))
        return true;
    return t->start < end && tree_excludes(t->right, start, end, exclusive);
}

static __thread uint32_t tree_random = 2463534242u;

static void tree_take(struct tree_node *n, uint64_t start, uint64_t end, bool exclusive)
{
    tree_random ^= tree_random << 13;
    tree_random ^= tree_random >> 17;
    tree_random ^= tree_random << 5;
    *n = (struct tree_node){NULL, NULL, start, end, end, tree_random, exclusive};
    pthread_mutex_lock(&tree.mutex);
    while (tree_excludes(tree.root, start, end, exclusive)) {
        tree.waiting++;
        pthread_cond_wait(&tree.released, &tree.mutex);
        tree.waiting--;
    }
    tree.root = tree_insert(tree.root, n);
    pthread_mutex_unlock(&tree.mutex);
}

static void tree_drop(struct tree_node *n)
{
    bool waiting;

    pthread_mutex_lock(&tree.mutex);
    tree.root = tree_remove(tree.root, n);
    waiting = tree.waiting != 0;
    pthread_mutex_unlock(&tree.mutex);
    if (waiting)
        pthread_cond_broadcast(&tree.released);
}

/* --- list --- */

struct list_node {
    uintptr_t next; /* bit 0: this node is released; in the head: a lone range, taken directly */
    uint64_t start, end;
    bool exclusive;
    struct list_node *free;
};

static struct list_thread {
    uint64_t inside; /* odd while it walks */
    struct list_node *node, *free, *retired;
    unsigned n_free, n_retired;
    char pad[RIVAL_LINE];
} list_threads[MAX_THREADS] __attribute__((aligned(64)));
static uintptr_t list_head __attribute__((aligned(64)));

#define LIST_MARK ((uintptr_t)1)

static struct list_node *list_at(uintptr_t p)
{
    return (struct list_node *)(p & ~LIST_MARK);
}

static void list_make(void)
{
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    for (int t = 0; t < MAX_THREADS; t++) {
        struct list_thread *self = &list_threads[t];

        self->node = aligned_alloc(64, LIST_NODES * 64);
        if (self->node == NULL)
            abort();
        memset(self->node, 0, LIST_NODES * 64);
        for (int i = 0; i < LIST_NODES; i++) {
            struct list_node *n = (struct list_node *)((char *)self->node + i * 64);

            n->free = self->free;
            self->free = n;
        }
        self->n_free = LIST_NODES;
    }
}

/* What was unlinked by this thread can be used again when nobody walks who might stand on it. */
static void list_reclaim(struct list_thread *self)
{
    uint64_t then[MAX_THREADS];

    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    for (int t = 0; t < MAX_THREADS; t++)
        then[t] = __atomic_load_n(&list_threads[t].inside, __ATOMIC_ACQUIRE);
    for (int t = 0; t < MAX_THREADS; t++)
        while (&list_threads[t] != self && (then[t] & 1) != 0 &&
               __atomic_load_n(&list_threads[t].inside, __ATOMIC_ACQUIRE) == then[t])
            sched_yield();
    while (self->retired != NULL) {
        struct list_node *n = self->retired;

        self->retired = n->free;
        n->free = self->free;
        self->free = n;
        self->n_free++;
    }
    self->n_retired = 0;
}

static void list_enter(struct list_thread *self)
{
    __atomic_store_n(&self->inside, self->inside + 1, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* the barrier is in list_reclaim */
}

static void list_leave(struct list_thread *self)
{
    __atomic_store_n(&self->inside, self->inside + 1, __ATOMIC_RELEASE);
}

static bool list_cas(uintptr_t *p, uintptr_t old, uintptr_t v)
{
    return __atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Unlinks what *prev leads to, which is released. */
static bool list_unlink(struct list_thread *self, uintptr_t *prev, uintptr_t cur)
{
    struct list_node *n = list_at(cur);
    uintptr_t next = __atomic_load_n(&n->next, __ATOMIC_ACQUIRE) & ~LIST_MARK;

    if (!list_cas(prev, cur, next))
        return false;
    n->free = self->retired;
    self->retired = n;
    self->n_retired++;
    return true;
}

static void list_mark(struct list_node *n)
{
    __atomic_fetch_or(&n->next, LIST_MARK, __ATOMIC_SEQ_CST);
}

static bool list_released(const struct list_node *n)
{
    return (__atomic_load_n(&n->next, __ATOMIC_ACQUIRE) & LIST_MARK) != 0;
}

static void list_await(const struct list_node *n)
{
    for (unsigned i = 0; !list_released(n); i++)
        if (i > 100)
            sched_yield();
}

/* Between which two nodes n belongs. -1: after cur; 1: before it; 0: it excludes n. */
static int list_compare(const struct list_node *cur, const struct list_node *n)
{
    if (cur->start >= n->end)
        return 1;
    if (cur->end <= n->start)
        return -1;
    if (!cur->exclusive && !n->exclusive)
        return cur->start >= n->start ? 1 : -1;
    return 0;
}

/* A reader was inserted: writers behind it that overlap must go first. */
static void list_validate_shared(struct list_thread *self, struct list_node *n)
{
    uintptr_t *prev = &n->next;
    uintptr_t cur = __atomic_load_n(prev, __ATOMIC_ACQUIRE) & ~LIST_MARK;

    while (cur != 0 && list_at(cur)->start < n->end) {
        struct list_node *c = list_at(cur);

        if (list_released(c)) {
            if (!list_unlink(self, prev, cur))
                prev = &c->next; /* the node before it was released too: pass it by */
            cur = __atomic_load_n(prev, __ATOMIC_ACQUIRE) & ~LIST_MARK;
        } else if (!c->exclusive) {
            prev = &c->next;
            cur = __atomic_load_n(prev, __ATOMIC_ACQUIRE) & ~LIST_MARK;
        } else {
            list_await(c);
        }
    }
}

/* A writer was inserted: it gives way to readers before it that overlap. */
static bool list_validate_exclusive(struct list_node *n)
{
    uintptr_t cur = __atomic_load_n(&list_head, __ATOMIC_ACQUIRE) & ~LIST_MARK;

    while (cur != 0 && list_at(cur) != n) {
        struct list_node *c = list_at(cur);

        if (!list_released(c) && c->end > n->start && c->start < n->end)
            return false;
        cur = __atomic_load_n(&c->next, __ATOMIC_ACQUIRE) & ~LIST_MARK;
    }
    return true;
}

static bool list_insert(struct list_thread *self, struct list_node *n)
{
again:
    for (uintptr_t *prev = &list_head;;) {
        uintptr_t cur = __atomic_load_n(prev, __ATOMIC_ACQUIRE);
        struct list_node *c = list_at(cur);
        int order;

        if ((cur & LIST_MARK) != 0) {
            if (prev != &list_head)
                goto again;                        /* the node before was released */
            list_cas(prev, cur, cur & ~LIST_MARK); /* a lone range becomes an ordinary one */
            continue;
        }
        if (c != NULL && list_released(c)) {
            list_unlink(self, prev, cur);
            continue;
        }
        order = c == NULL ? 1 : list_compare(c, n);
        if (order < 0) {
            prev = &c->next;
        } else if (order == 0) {
            list_await(c);
        } else {
            __atomic_store_n(&n->next, cur, __ATOMIC_RELAXED);
            if (list_cas(prev, cur, (uintptr_t)n))
                return true;
        }
    }
}

static struct list_node *list_take(struct list_thread *self, uint64_t start, uint64_t end,
                                   bool exclusive)
{
    for (;;) {
        struct list_node *n;

        if (self->free == NULL)
            list_reclaim(self);
        while ((n = self->free) == NULL) {
            sched_yield();
            list_reclaim(self);
        }
        self->free = n->free;
        self->n_free--;
        n->start = start;
        n->end = end;
        n->exclusive = exclusive;
        __atomic_store_n(&n->next, 0, __ATOMIC_RELAXED);
        if (__atomic_load_n(&list_head, __ATOMIC_RELAXED) == 0 &&
            list_cas(&list_head, 0, (uintptr_t)n | LIST_MARK))
            return n;
        list_enter(self);
        list_insert(self, n);
        if (!exclusive) {
            list_validate_shared(self, n);
            list_leave(self);
            return n;
        }
        if (list_validate_exclusive(n)) {
            list_leave(self);
            return n;
        }
        list_mark(n);
        list_leave(self);
        sched_yield();
    }
}

static void list_drop(struct list_thread *self, struct list_node *n)
{
    if (__atomic_load_n(&list_head, __ATOMIC_RELAXED) == ((uintptr_t)n | LIST_MARK) &&
        list_cas(&list_head, (uintptr_t)n | LIST_MARK, 0)) {
        n->free = self->free;
        self->free = n;
        self->n_free++;
        return;
    }
    list_mark(n);
}

/* --- all of them --- */

union rival_hold {
    struct tree_node tree;
    struct list_node *list;
    struct rl_range_hold slots;
};

struct rival {
    const char *name;
    void (*take)(union rival_hold *h, unsigned me, uint64_t start, uint64_t end, bool exclusive);
    void (*drop)(union rival_hold *h, unsigned me);
};

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static struct rl_range_lock slots __attribute__((aligned(64)));

static void none_take(union rival_hold *h, unsigned me, uint64_t start, uint64_t end,
                      bool exclusive)
{
    (void)me, (void)start, (void)end, (void)exclusive;
    __asm__ volatile("" : : "r"(h) : "memory");
}

static void none_drop(union rival_hold *h, unsigned me)
{
    (void)me;
    __asm__ volatile("" : : "r"(h) : "memory");
}

static void rwlock_take(union rival_hold *h, unsigned me, uint64_t start, uint64_t end,
                        bool exclusive)
{
    (void)h, (void)me, (void)start, (void)end;
    if (exclusive)
        pthread_rwlock_wrlock(&rwlock);
    else
        pthread_rwlock_rdlock(&rwlock);
}

static void rwlock_drop(union rival_hold *h, unsigned me)
{
    (void)h, (void)me;
    pthread_rwlock_unlock(&rwlock);
}

static void tree_take_rival(union rival_hold *h, unsigned me, uint64_t start, uint64_t end,
                            bool exclusive)
{
    (void)me;
    tree_take(&h->tree, start, end, exclusive);
}

static void tree_drop_rival(union rival_hold *h, unsigned me)
{
    (void)me;
    tree_drop(&h->tree);
}

static void list_take_rival(union rival_hold *h, unsigned me, uint64_t start, uint64_t end,
                            bool exclusive)
{
    h->list = list_take(&list_threads[me], start, end, exclusive);
}

static void list_drop_rival(union rival_hold *h, unsigned me)
{
    list_drop(&list_threads[me], h->list);
}

static void slots_take(union rival_hold *h, unsigned me, uint64_t start, uint64_t end,
                       bool exclusive)
{
    (void)me;
    if (rl_range_acquire(&slots, &h->slots, start, end, exclusive ? RL_EXCLUSIVE : RL_SHARED) != 0)
        abort();
}

static void slots_drop(union rival_hold *h, unsigned me)
{
    (void)me;
    rl_range_release(&h->slots);
}

enum { NONE, RWLOCK, TREE, LIST, SLOTS, RIVALS };

static const struct rival rivals[RIVALS] = {
    {"none", none_take, none_drop},
    {"rwlock", rwlock_take, rwlock_drop},
    {"tree", tree_take_rival, tree_drop_rival},
    {"list", list_take_rival, list_drop_rival},
    {"slots", slots_take, slots_drop},
};

#endif
