/* SPDX-License-Identifier: MIT */
/*
 * init: see init.h.
 *
 * Start-up costs every process that is started with the library, so it does little: resolve names,
 * read the configuration. No thread, no ring, no descriptor, no memory that is not in the library;
 * and what it writes to and calls lies on few pages (EARLY in state.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include "create.h"
#include "evict.h"
#include "family.h"
#include "inflight.h"
#include "init.h"
#include "log.h"
#include "real.h"
#include "report.h"
#include "settle.h"
#include "timed.h"
#include "tune.h"
#include "window.h"
#include "worker.h"

#define ARENA_MAGIC    0x6e726c72u /* "rlrn" */
#define ARENA_VERSION  1
#define POOL_RESERVE   1024u /* nodes for the worker, beyond punch_backlog */
#define VFORK_QUIET_NS 200000000u

EARLY uint64_t state_word_value = WORD_COLD;
EARLY uint32_t state_forks;
struct process proc;

EARLY static bool configured;
EARLY static uint32_t init_begun;
EARLY static uint32_t ended;

/* First in .bss, because init.o is the first in the link: so the head of it, all that is used where
 * there is no file, shares the page that .data ends in. */
static struct {
    struct config config;
    char text[CFG_FILE_BYTES_MAX]; /* the file */
    char dir[PATH_MAX];            /* where the program started, if somebody asks */
} start;

/* Instead of start.config, once settings were changed; NULL before. */
static const struct config *tuned_config;
static const char *tuned_text;

const struct config *state_config(void)
{
    const struct config *tuned = __atomic_load_n(&tuned_config, __ATOMIC_ACQUIRE);

    return tuned != NULL ? tuned : configured ? &start.config : NULL;
}

const char *state_config_text(void)
{
    return tuned_text != NULL ? tuned_text : start.text;
}

static void remember_program(void);

void state_use_config(const struct config *config, const char *text)
{
    if (config->nsections != 0 && proc.program[0] == '\0')
        remember_program();
    tuned_text = text;
    __atomic_store_n(&tuned_config, config, __ATOMIC_RELEASE);
}

/* --- configuration --- */

static int io_open(const char *path, int flags)
{
    return (int)rl_raw(SYS_openat, AT_FDCWD, path, flags, 0);
}

static ssize_t io_read(int fd, void *buf, size_t n)
{
    return rl_raw(SYS_read, fd, buf, n);
}

static int io_fstat(int fd, struct stat *st)
{
    return (int)rl_raw(SYS_fstat, fd, st);
}

static int io_close(int fd)
{
    return (int)rl_raw(SYS_close, fd);
}

static void say(enum cfg_log level, const char *line)
{
    log_line(level, LOG_S(line));
}

/* Relative paths are meant from where the program started: asked for if there are any, for it costs
 * a page of memory. */
static bool relative(const char *path)
{
    return path[0] != '\0' && path[0] != '/';
}

static void remember_directory(const struct settings *s)
{
    if ((relative(s->report_path) || relative(s->log_path) || relative(s->stats_path)) &&
        rl_raw(SYS_getcwd, start.dir, sizeof start.dir) <= 0)
        start.dir[0] = '\0';
}

/* For [app] sections and reports. */
static void remember_program(void)
{
    const char *slash =
        strrchr(program_invocation_name != NULL ? program_invocation_name : "", '/');
    const char *name = slash != NULL ? slash + 1 : program_invocation_name;
    static char exe[PATH_MAX]; /* whoever takes an order may have a small stack */
    long n = rl_raw(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", exe, sizeof exe - 1);

    /* The executable's own name where it can be had: scripts and multi-call programs set argv[0]
     * as they like, and before libc is set up there is none. */
    if (n > 0) {
        exe[n] = '\0';
        slash = strrchr(exe, '/');
        name = slash != NULL ? slash + 1 : exe;
    }
    for (size_t i = 0; name != NULL && name[i] != '\0' && i < sizeof proc.program - 1; i++)
        proc.program[i] = name[i];
}

/* log_line says who speaks, and so do the lines about the configuration. */
static const char *without_prefix(const char *line)
{
    static const char prefix[] = "rlshim: ";

    return strncmp(line, prefix, sizeof prefix - 1) == 0 ? line + sizeof prefix - 1 : line;
}

static void read_configuration(void)
{
    static const struct cfg_io io = {io_open, io_read, io_fstat, io_close};
    struct cfg_error error;
    struct cfg_notice notice;
    char line[1024];
    unsigned at = 0;
    bool secure = getauxval(AT_SECURE) != 0;
    int r;

    r = cfg_load(&start.config, &io, environ, (uid_t)rl_raw(SYS_getuid), secure, start.text,
                 sizeof start.text, &error);
    configured = true;
    if (start.config.nsections != 0) /* else nobody can ask */
        remember_program();
    cfg_settings(&start.config, proc.program, NULL, &proc.settings);
    remember_directory(&proc.settings);
    log_start(&proc.settings, start.dir);
    if (proc.settings.mode != CFG_MODE_OFF)
        report_start(&proc.settings, start.dir);
    if (r != 0) {
        cfg_error_line(&error, line, sizeof line);
        say(CFG_LOG_OFF, without_prefix(line));
    }
    if (!log_wanted(CFG_LOG_INFO))
        return;
    if (cfg_skip_line(&start.config, line, sizeof line) > 0)
        say(CFG_LOG_INFO, without_prefix(line));
    while (cfg_later_next(&start.config, &at, &notice))
        if (cfg_later_line(&notice, line, sizeof line) > 0)
            say(CFG_LOG_INFO, without_prefix(line));
}

/* --- memory --- */

static void *map_shared(size_t bytes, void *where)
{
    long p = rl_raw(SYS_mmap, where, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | (where != NULL ? MAP_FIXED : 0),
                    -1, 0L);

    return p < 0 && p > -4096 ? NULL : (void *)p;
}

static size_t arena_size(uint32_t nodes)
{
    return sizeof(struct arena) + (size_t)nodes * sizeof(struct rl_node);
}

/* The same in a System V segment, which a process without our memory can attach by its number, and
 * which goes with the last that has it: removed already. *id: the number or -errno. NULL: not to be
 * had. */
static void *map_segment(size_t bytes, void *where, int32_t *id)
{
    long segment = rl_raw(SYS_shmget, IPC_PRIVATE, bytes, IPC_CREAT | SHM_NORESERVE | 0600);
    long p;

    *id = (int32_t)segment;
    if (segment < 0)
        return NULL;
    p = rl_raw(SYS_shmat, segment, where, where != NULL ? SHM_REMAP : 0);
    rl_raw(SYS_shmctl, segment, IPC_RMID, NULL);
    if (p >= 0 || p <= -4096)
        return (void *)p;
    *id = (int32_t)p;
    return NULL;
}

/* Where a keeper may be needed (keeper.h) in a segment. Not to be had: then without keeper. */
static struct arena *map_arena(size_t bytes, void *where)
{
    int32_t id = -ENOENT;
    struct arena *arena = proc.keeper ? map_segment(bytes, where, &id) : NULL;

    if (arena == NULL)
        arena = map_shared(bytes, where);
    if (arena != NULL)
        arena->shm = id;
    return arena;
}

static void arena_fill(struct arena *arena)
{
    uint32_t limit = (uint32_t)proc.settings.punch_backlog;

    arena->magic = ARENA_MAGIC;
    arena->version = ARENA_VERSION;
    arena->pid = proc.pid;
    arena->pool.limit = limit;
    arena->pool.capacity = limit + POOL_RESERVE + 1;
}

/* Descriptors that came from whoever started us. That many are asked for; above them a direct one
 * is found at its first big write. */
#define INHERITED_MAX 10

static void look_for_direct(void)
{
    for (int fd = 0; fd < INHERITED_MAX; fd++) {
        long flags = rl_raw(SYS_fcntl, fd, F_GETFL);

        if (flags >= 0 && (flags & O_DIRECT) != 0)
            state_direct();
    }
}

/* Two threads may come here at once: one mapping stays. */
static bool keep(void **place, void *made, size_t bytes)
{
    void *none = NULL;

    if (made == NULL)
        return false;
    if (!__atomic_compare_exchange_n(place, &none, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        rl_raw(SYS_munmap, made, bytes);
    return true;
}

/* At the first need, and before the first fork: it has to be the same page on both sides. */
static bool have_family(void)
{
    return __atomic_load_n(&family, __ATOMIC_ACQUIRE) != NULL ||
           keep((void **)&family, map_shared(sizeof *family, NULL), sizeof *family);
}

/* Named files may be deferred, and a keeper of an earlier run may still be at one of them: every
 * open looks (family.h). */
static void look_for_keeper(void)
{
    if (!proc.settings.keeper || !cfg_vouches(state_config()) || !have_family())
        return;
    proc.keeper = 1;
    family_watch();
}

static bool make_arena(void)
{
    size_t bytes = arena_size((uint32_t)proc.settings.punch_backlog + POOL_RESERVE + 1);
    struct arena *arena = map_arena(bytes, NULL);

    if (arena == NULL)
        return false;
    arena_fill(arena);
    rl_store_64(&proc.arena_bytes, bytes);
    return keep((void **)&proc.arena, arena, bytes);
}

bool state_arena(void)
{
    if (__atomic_load_n(&proc.arena, __ATOMIC_ACQUIRE) != NULL)
        return true;
    if (rl_load_32(&proc.works) == 0)
        return false;
    if (have_family() && make_arena())
        return true;
    if (rl_swap_32(&proc.works, 0) != 0)
        log_line(CFG_LOG_ERROR, LOG_S("no memory for its tables: the program runs without rlshim"));
    return false;
}

/* --- this process --- */

static void remember_process(void)
{
    struct timespec now = {0};

    proc.pid = (uint32_t)rl_raw(SYS_getpid);
    rl_raw(SYS_clock_gettime, CLOCK_REALTIME_COARSE, &now); /* as file times, see evidence.c */
    proc.started_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- fork --- */

void fork_announce(void)
{
    rl_add_32(&proc.forking, 1);
    rl_add_32(&state_forks, 1);
    if (proc.works != 0)
        have_family();
    rl_fence(); /* pairs with the one in the worker between turning a file on and looking again */
    settle_end_all(WHY_fork);
}

void fork_done(void)
{
    rl_add_32(&proc.forking, (uint32_t)-1);
}

void fork_announce_vfork(void)
{
    rl_store_64(&proc.quiet_ns, rl_now_ns() + VFORK_QUIET_NS);
    rl_add_32(&state_forks, 1);
    rl_fence(); /* as above */
    settle_end_all(WHY_fork);
}

static void start_counting(void)
{
    struct stats_page *page = NULL;

    if (proc.settings.stats_path[0] != '\0')
        page = report_map_stats(proc.settings.stats_path, proc.pid, proc.started_ns, proc.program);
    if (page != NULL)
        stats_use(page);
    else if (proc.settings.report_path[0] != '\0')
        stats_page_init(stats, proc.pid, proc.started_ns, proc.program);
}

/* The child has copies of everything but the worker, and of the shared mapping the very thing: it
 * gets an empty one in its place before it can do anything. */
void fork_child(void)
{
    static struct stats_page own;
    uint32_t counting = (uint32_t)state_word_value & (WORD_COUNT | WORD_TIME | WORD_WINDOW);

    remember_process();
    proc.forking = 0;
    proc.quiet_ns = 0;
    ended = 0;
    worker_forked();
    evict_forked();
    file_forked();
    create_forked();
    window_forked();
    inflight_forked();
    family_forked();
    observe_forked();
    tune_forked();
    if (proc.arena != NULL) {
        if (map_arena(proc.arena_bytes, proc.arena) != NULL) {
            arena_fill(proc.arena);
        } else {
            proc.arena = NULL;
            proc.works = 0;
        }
    }
    /* The high half stays: descriptors' words that rest on an epoch must not meet it again. */
    state_word_value = (state_word_value & ~(uint64_t)UINT32_MAX) | counting;
    stats = &own;
    start_counting();
}

/* --- start and end --- */

extern void *__dso_handle __attribute__((visibility("hidden")));
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso);

/* `children = off`: what this process starts does not get the library. */
static void leave_environment(void)
{
    char *preload = proc.settings.children ? NULL : getenv("LD_PRELOAD");
    char *at = preload;

    if (preload == NULL)
        return;
    while (*at != '\0') {
        size_t len = strcspn(at, ": ");

        if (len >= 12 && memmem(at, len, "librlshim.so", 12) != NULL) {
            char *rest = at + len;

            rest += *rest != '\0';
            memmove(at, rest, strlen(rest) + 1);
        } else {
            at += len;
            at += *at != '\0';
        }
    }
    if (*preload == '\0')
        unsetenv("LD_PRELOAD");
}

/* What every call has to do although nothing is queued. */
static uint32_t wanted(void)
{
    const struct settings *s = &proc.settings;
    bool observe = s->mode == CFG_MODE_OBSERVE;
    uint32_t word = 0;

    if (s->mode == CFG_MODE_OFF)
        return 0;
    if (observe || s->report_path[0] != '\0' || s->stats_path[0] != '\0')
        word |= WORD_COUNT;
    if ((observe || s->timing) && observe_start(s))
        word |= WORD_TIME;
    /* The second question is a page of code for those who may have asked for it in a file. */
    if (s->mode == CFG_MODE_ON &&
        (s->writeback_window_bytes != 0 || cfg_has_paths(&start.config)) && window_configured())
        word |= WORD_WINDOW;
    return word;
}

void state_init(void)
{
    uint32_t none = 0;

    /* Other constructors may call us before ours runs; then this is the first call of the process,
     * and there is one thread. A call from inside (the loader's) finds the names it needs. */
    if (!rl_cas_32(&init_begun, &none, 1))
        return;
    real_init();
    remember_process();
    read_configuration();
    start_counting();
    if (proc.settings.mode == CFG_MODE_ON) {
        proc.works = 1;
        look_for_direct();
        look_for_keeper();
        create_start();
    }
    rl_store_64(&state_word_value, wanted());
}

__attribute__((constructor)) static void begin(void)
{
    state_init();
    leave_environment();
    observe_start_late();
    /* Registered before the program's own: prepare runs last, child first. The function that
     * pthread_atfork is a page of code for. */
    __register_atfork(fork_announce, fork_done, fork_child, __dso_handle);
}

void process_ends(void)
{
    int saved = errno;

    rl_store_32(&proc.ending, 1);
    if (rl_load_32(&proc.sandboxed) != 0) /* a report is not worth the program's life */
        return;
    settle_end_all(WHY_exit);
    family_leave_all();
    if (rl_swap_32(&ended, 1) == 0) {
        if (proc.settings.report_path[0] != '\0' && proc.settings.mode != CFG_MODE_OFF)
            report_write(stats, &proc.settings, start.dir);
        if (proc.settings.stats_path[0] != '\0')
            report_unmap_stats();
    }
    errno = saved;
}

__attribute__((destructor)) static void end(void)
{
    process_ends();
}
