/* SPDX-License-Identifier: MIT */
/* timeout: 900 */
/*
 * create_race DIR SECONDS SEED [PRELOADED]: two processes, each with threads, open, create,
 * replace, delete and look at one name at random, and every result must be one the kernel could
 * have given. The second process runs with LD_PRELOAD=PRELOADED, or, without that argument, as this
 * one does.
 *
 * The name is a register: absent, or one of the files that were created under it. A file is known
 * by its inode number and time of birth. A history (some dozens of calls) is right if its calls can
 * be put into one order that agrees with the times of their begins and ends, and in which each
 * finds what the name is then; that is searched for, call by call, with what was seen before
 * remembered. Many names go round, so that files are new, and old ones still open.
 *
 * Prints "histories N, calls N, seeds A..B". 0: all right; 1: a history that is not (printed); 2
 * usage.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 2, THREADS = 3, LANES = PROCESSES * THREADS, OPS = 6, ALL = LANES * OPS };

enum what { CREATE, CREATE_CUT, CREATE_FOPEN, EXCLUSIVE, OPEN, LOOK, UNLINK, REPLACE, WHATS };
static const char *const names[WHATS] = {"open(O_CREAT)", "open(O_CREAT|O_TRUNC)",
                                         "fopen(\"a\")",  "open(O_CREAT|O_EXCL)",
                                         "open",          "stat",
                                         "unlink",        "rename over"};

struct id {
    uint64_t ino;
    int64_t born_s;
    uint32_t born_ns;
};

struct op {
    enum what what;
    int error; /* 0: it succeeded */
    struct id id;
    uint32_t begin, end; /* tickets */
};

/* Shared by both processes. */
static struct arena {
    atomic_uint round; /* goes up to start one; 0xffffffff: the end */
    atomic_uint done;  /* lanes */
    atomic_uint ticket;
    char path[400];
    uint64_t seed;
    struct op op[LANES][OPS];
} * arena;

static int arena_fd;

static uint64_t mix(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void die(const char *what)
{
    fprintf(stderr, "create_race: %s: %s\n", what, strerror(errno));
    exit(3);
}

static struct id id_of(int fd, const char *path)
{
    struct statx stx;

    if (statx(fd >= 0 ? fd : AT_FDCWD, fd >= 0 ? "" : path, fd >= 0 ? AT_EMPTY_PATH : 0,
              STATX_INO | STATX_BTIME, &stx) != 0)
        return (struct id){0, -1, (uint32_t)errno};
    return (struct id){stx.stx_ino, stx.stx_btime.tv_sec, stx.stx_btime.tv_nsec};
}

static bool same(const struct id *a, const struct id *b)
{
    return a->ino == b->ino && a->born_s == b->born_s && a->born_ns == b->born_ns;
}

/* What is kept open until the next round: no inode number comes back within one. */
static __thread int kept[OPS];
static __thread unsigned nkept;

static int opened(struct op *op, int fd)
{
    if (fd < 0)
        return errno;
    op->id = id_of(fd, NULL);
    kept[nkept++] = fd;
    return 0;
}

static int with_stream(struct op *op)
{
    FILE *f = fopen(arena->path, "a");
    int r;

    if (f == NULL)
        return errno;
    r = opened(op, fcntl(fileno(f), F_DUPFD_CLOEXEC, 0));
    fclose(f);
    return r;
}

/* A file of our own takes the name. Its birth is before the call: only the rename is timed. */
static int replace(struct op *op, unsigned lane, unsigned i)
{
    char from[440];
    int fd, r;

    snprintf(from, sizeof from, "%s.%u.%u", arena->path, lane, i);
    fd = open(from, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        die(from);
    r = opened(op, fd);
    op->begin = atomic_fetch_add(&arena->ticket, 1);
    if (r == 0 && rename(from, arena->path) != 0)
        die("rename");
    return r;
}

static void perform(struct op *op, unsigned lane, unsigned i)
{
    struct id id;

    op->begin = atomic_fetch_add(&arena->ticket, 1);
    switch (op->what) {
    case CREATE:
        op->error = opened(op, open(arena->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
        break;
    case CREATE_CUT:
        op->error = opened(op, open(arena->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
        break;
    case CREATE_FOPEN:
        op->error = with_stream(op);
        break;
    case EXCLUSIVE:
        op->error = opened(op, open(arena->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        break;
    case OPEN:
        op->error = opened(op, open(arena->path, O_RDWR | O_CLOEXEC));
        break;
    case LOOK:
        id = id_of(-1, arena->path);
        op->error = id.born_s == -1 ? (int)id.born_ns : 0;
        op->id = id;
        break;
    case UNLINK:
        op->error = unlink(arena->path) == 0 ? 0 : errno;
        break;
    default:
        op->error = replace(op, lane, i);
        break;
    }
    op->end = atomic_fetch_add(&arena->ticket, 1);
}

static bool begins(unsigned round)
{
    for (unsigned spins = 0; atomic_load(&arena->round) != round; spins++)
        if (atomic_load(&arena->round) == UINT32_MAX)
            return false;
        else if (spins > 50)
            sched_yield();
    return true;
}

static void *lane_loop(void *arg)
{
    unsigned lane = (unsigned)(size_t)arg;

    for (unsigned round = 1; begins(round); round++) {
        while (nkept > 0) /* of the round before: all lanes are through with it */
            close(kept[--nkept]);
        for (unsigned i = 0; i < OPS; i++)
            perform(&arena->op[lane][i], lane, i);
        atomic_fetch_add(&arena->done, 1);
    }
    return NULL;
}

static void be_process(unsigned number)
{
    pthread_t thread[THREADS];

    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, lane_loop, (void *)(number * THREADS + i)) != 0)
            die("pthread_create");
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

/* --- is there an order? --- */

struct tried { /* states that lead nowhere; position in each lane and what the name is */
    uint64_t key;
};
enum { TRIED = 1 << 16 };
static struct tried tried[TRIED];
static unsigned ntried;

static int known; /* files of this history, numbered from 1 */
static struct id file[ALL];

static int number_of(const struct id *id)
{
    for (int i = 0; i < known; i++)
        if (same(&file[i], id))
            return i + 1;
    file[known] = *id;
    return ++known;
}

static uint8_t number[LANES][OPS];

/* What the name is after the call, if it can come now; -1: it cannot. created: a bit a file. */
static int after(const struct op *op, int n, int now, uint64_t created)
{
    bool fresh = n != 0 && (created >> n & 1) == 0;

    switch (op->what) {
    case CREATE:
    case CREATE_CUT:
    case CREATE_FOPEN:
        return op->error != 0 ? -1 : now != 0 ? (now == n ? n : -1) : fresh ? n : -1;
    case EXCLUSIVE:
        return op->error == EEXIST ? (now != 0 ? now : -1)
               : op->error != 0    ? -1
               : now == 0 && fresh ? n
                                   : -1;
    case OPEN:
    case LOOK:
        return op->error == ENOENT ? (now == 0 ? 0 : -1) : op->error == 0 && now == n ? now : -1;
    case UNLINK:
        return op->error == ENOENT ? (now == 0 ? 0 : -1) : op->error == 0 && now != 0 ? 0 : -1;
    default:
        return op->error == 0 && fresh ? n : -1;
    }
}

static bool was_tried(uint64_t key)
{
    for (unsigned i = (unsigned)(key * 0x9e3779b97f4a7c15u >> 48) % TRIED;; i = (i + 1) % TRIED) {
        if (tried[i].key == key)
            return true;
        if (tried[i].key == 0) {
            if (ntried < TRIED / 2) {
                tried[i].key = key;
                ntried++;
            }
            return false;
        }
    }
}

static bool search(uint8_t at[LANES], int now, uint64_t created)
{
    uint32_t first_end = UINT32_MAX;
    uint64_t key = (uint64_t)now << 1 | 1;
    bool over = true;

    for (unsigned l = 0; l < LANES; l++) {
        key |= (uint64_t)at[l] << (8 + 8 * l);
        if (at[l] == OPS)
            continue;
        over = false;
        if (arena->op[l][at[l]].end < first_end)
            first_end = arena->op[l][at[l]].end;
    }
    if (over)
        return true;
    if (was_tried(key)) /* what was created follows from the positions */
        return false;
    for (unsigned l = 0; l < LANES; l++) {
        const struct op *op = &arena->op[l][at[l] % OPS];
        int n, next;

        if (at[l] == OPS || op->begin > first_end)
            continue;
        n = number[l][at[l]];
        next = after(op, n, now, created);
        if (next < 0)
            continue;
        at[l]++;
        if (search(at, next, n != 0 && next == n ? created | (uint64_t)1 << n : created))
            return true;
        at[l]--;
    }
    return false;
}

static bool explained(void)
{
    uint8_t at[LANES] = {0};

    memset(tried, 0, sizeof tried);
    ntried = 0;
    known = 0;
    for (unsigned l = 0; l < LANES; l++)
        for (unsigned i = 0; i < OPS; i++) {
            const struct op *op = &arena->op[l][i];

            number[l][i] = op->error == 0 && op->what != UNLINK ? (uint8_t)number_of(&op->id) : 0;
        }
    return search(at, 0, 0);
}

static void print_history(void)
{
    printf("not ok: seed %llu: no order of these calls explains what they found\n",
           (unsigned long long)arena->seed);
    for (uint32_t t = 0; t < 2 * ALL + LANES; t++)
        for (unsigned l = 0; l < LANES; l++)
            for (unsigned i = 0; i < OPS; i++) {
                const struct op *op = &arena->op[l][i];

                if (op->begin == t)
                    printf("  [%3u, %3u] process %u thread %u  %-22s %s %u\n", op->begin, op->end,
                           l / THREADS, l % THREADS, names[op->what],
                           op->error != 0 ? strerror(op->error) : "file", number[l][i]);
            }
}

/* Creations and deletions in different proportions; some histories have one kind of open only. */
static void plan(uint64_t seed)
{
    uint64_t s = seed * 0xd1342543de82ef95u + 1;
    unsigned weight[WHATS], sum = 0;

    for (unsigned w = 0; w < WHATS; w++)
        sum += weight[w] = (unsigned)(mix(&s) % 4) * (w == CREATE || w == UNLINK ? 3 : 1);
    for (unsigned l = 0; l < LANES; l++)
        for (unsigned i = 0; i < OPS; i++) {
            unsigned r = sum != 0 ? (unsigned)(mix(&s) % sum) : 0, w = 0;

            while (w < WHATS - 1 && r >= weight[w])
                r -= weight[w++];
            arena->op[l][i] = (struct op){.what = (enum what)w};
        }
}

static void start_second(char **argv, const char *preload)
{
    char fd[16];

    if (preload == NULL) {
        be_process(1);
        exit(0);
    }
    snprintf(fd, sizeof fd, "%d", arena_fd);
    if (*preload != '\0')
        setenv("LD_PRELOAD", preload, 1);
    else
        unsetenv("LD_PRELOAD");
    fcntl(arena_fd, F_SETFD, 0);
    execl("/proc/self/exe", argv[0], "--second", fd, (char *)NULL);
    die("exec");
}

static void *first(void *arg)
{
    be_process(0);
    return arg;
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    bool second = argc == 3 && strcmp(argv[1], "--second") == 0;
    unsigned long histories = 0;
    uint64_t from, seed;
    pthread_t thread;
    bool good = true;
    double end;

    if (!second && argc != 4 && argc != 5)
        return 2;
    arena_fd = second ? atoi(argv[2]) : memfd_create("create_race", MFD_CLOEXEC);
    if (arena_fd < 0 || (!second && ftruncate(arena_fd, sizeof *arena) != 0))
        die("memfd");
    arena = mmap(NULL, sizeof *arena, PROT_READ | PROT_WRITE, MAP_SHARED, arena_fd, 0);
    if (arena == MAP_FAILED)
        die("mmap");
    if (second) {
        be_process(1);
        return 0;
    }
    end = now_s() + atof(argv[2]);
    from = seed = strtoull(argv[3], NULL, 10);
    if (fork() == 0)
        start_second(argv, argc == 5 ? argv[4] : NULL);
    if (pthread_create(&thread, NULL, first, NULL) != 0)
        die("pthread_create");
    for (; good && now_s() < end; seed++, histories++) {
        plan(seed);
        arena->seed = seed;
        /* A name comes again: what was held of it must not be what it is now. */
        snprintf(arena->path, sizeof arena->path, "%s/name-%u", argv[1], (unsigned)(seed % 3));
        atomic_store(&arena->ticket, 0);
        atomic_store(&arena->done, 0);
        atomic_fetch_add(&arena->round, 1);
        for (double limit = now_s() + 60; atomic_load(&arena->done) != LANES; sched_yield())
            if (now_s() > limit) {
                printf("not ok: seed %llu: it does not end\n", (unsigned long long)seed);
                exit(1);
            }
        good = explained();
        syscall(SYS_unlinkat, AT_FDCWD, arena->path, 0);
    }
    if (!good)
        print_history();
    printf("histories %lu, calls %lu, seeds %llu..%llu\n", histories, histories * ALL,
           (unsigned long long)from, (unsigned long long)seed - 1);
    fflush(stdout);
    atomic_store(&arena->round, UINT32_MAX);
    wait(NULL);
    pthread_join(thread, NULL);
    return good ? 0 : 1;
}
