/* SPDX-License-Identifier: MIT */
/*
 * init: see init.h.
 *
 * Start-up costs every process that is started with the library, so it does little: resolve names,
 * read the configuration, reserve (not touch) memory. No thread, no ring, no descriptor.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "family.h"
#include "init.h"
#include "log.h"
#include "real.h"
#include "report.h"
#include "settle.h"
#include "worker.h"

#define ARENA_MAGIC    0x6e726c72u /* "rlrn" */
#define ARENA_VERSION  1
#define POOL_RESERVE   1024u /* nodes for the worker, beyond punch_backlog */
#define VFORK_QUIET_NS 200000000u

uint64_t state_word_value = WORD_COLD;
struct process proc;

static struct config config;
static char config_text[CFG_FILE_BYTES_MAX];
static bool configured;
static uint32_t init_begun;
static uint32_t ended;
static char start_dir[PATH_MAX];

const struct config *state_config(void)
{
    return configured ? &config : NULL;
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

    r = cfg_load(&config, &io, environ, (uid_t)rl_raw(SYS_getuid), secure, config_text,
                 sizeof config_text, &error);
    configured = true;
    cfg_settings(&config, proc.program, NULL, &proc.settings);
    log_start(&proc.settings, start_dir);
    if (proc.settings.mode != CFG_MODE_OFF)
        report_start(&proc.settings, start_dir);
    if (r != 0) {
        cfg_error_line(&error, line, sizeof line);
        say(CFG_LOG_OFF, without_prefix(line));
    }
    if (!log_wanted(CFG_LOG_INFO))
        return;
    if (cfg_skip_line(&config, line, sizeof line) > 0)
        say(CFG_LOG_INFO, without_prefix(line));
    while (cfg_later_next(&config, &at, &notice))
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
#define INHERITED_MAX 32

static void look_for_direct(void)
{
    for (int fd = 0; fd < INHERITED_MAX; fd++) {
        long flags = rl_raw(SYS_fcntl, fd, F_GETFL);

        if (flags >= 0 && (flags & O_DIRECT) != 0)
            state_direct();
    }
}

static void reserve_memory(void)
{
    struct arena *arena;

    proc.arena_bytes = arena_size((uint32_t)proc.settings.punch_backlog + POOL_RESERVE + 1);
    arena = map_shared(proc.arena_bytes, NULL);
    family = map_shared(sizeof *family, NULL);
    if (arena == NULL || family == NULL) {
        log_line(CFG_LOG_ERROR, LOG_S("no memory for its tables: the program runs without rlshim"));
        return;
    }
    arena_fill(arena);
    proc.arena = arena;
    look_for_direct();
}

/* --- fork --- */

void fork_announce(void)
{
    rl_add_32(&proc.forking, 1);
    rl_add_32(&proc.forks, 1);
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
    rl_add_32(&proc.forks, 1);
    rl_fence(); /* as above */
    settle_end_all(WHY_fork);
}

static void start_counting(void)
{
    struct stats_page *page = NULL;

    if (proc.settings.stats_path[0] != '\0')
        page = report_map_stats(proc.settings.stats_path, proc.pid, proc.program);
    if (page != NULL)
        stats_use(page);
    else
        stats_page_init(stats, proc.pid, proc.program);
}

/* The child has copies of everything but the worker, and of the shared mapping the very thing: it
 * gets an empty one in its place before it can do anything. */
void fork_child(void)
{
    static struct stats_page own;
    uint32_t counting = (uint32_t)state_word_value & WORD_COUNT;

    proc.pid = (uint32_t)rl_raw(SYS_getpid);
    proc.forking = 0;
    proc.quiet_ns = 0;
    ended = 0;
    worker_forked();
    file_forked();
    if (proc.arena != NULL && map_shared(proc.arena_bytes, proc.arena) != NULL)
        arena_fill(proc.arena);
    else
        proc.arena = NULL;
    /* The high half stays: descriptors' words that rest on an epoch must not meet it again. */
    state_word_value = (state_word_value & ~(uint64_t)UINT32_MAX) | counting;
    stats = &own;
    start_counting();
}

/* --- start and end --- */

static void remember_program(void)
{
    const char *slash =
        strrchr(program_invocation_name != NULL ? program_invocation_name : "", '/');
    const char *name = slash != NULL ? slash + 1 : program_invocation_name;
    char exe[PATH_MAX];
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

/* `children = off`: what this process starts does not get the library. */
static void leave_environment(void)
{
    char *preload = getenv("LD_PRELOAD");
    char *at;

    if (preload == NULL || proc.settings.children)
        return;
    at = preload;
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

void state_init(void)
{
    uint32_t none = 0;

    /* Other constructors may call us before ours runs; then this is the first call of the process,
     * and there is one thread. A call from inside (the loader's) finds the names it needs. */
    if (!rl_cas_32(&init_begun, &none, 1))
        return;
    real_init();
    proc.pid = (uint32_t)rl_raw(SYS_getpid);
    remember_program();
    if (rl_raw(SYS_getcwd, start_dir, sizeof start_dir) <= 0)
        start_dir[0] = '\0';
    read_configuration();
    start_counting();
    if (proc.settings.mode == CFG_MODE_ON)
        reserve_memory();
    rl_store_64(&state_word_value,
                proc.settings.mode != CFG_MODE_OFF && (proc.settings.report_path[0] != '\0' ||
                                                       proc.settings.stats_path[0] != '\0' ||
                                                       proc.settings.mode == CFG_MODE_OBSERVE)
                    ? WORD_COUNT
                    : 0);
}

__attribute__((constructor)) static void begin(void)
{
    state_init();
    leave_environment();
    /* Registered before the program's own: prepare runs last, child first. */
    pthread_atfork(fork_announce, fork_done, fork_child);
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
            report_write(stats, &proc.settings, start_dir);
        report_unmap_stats();
    }
    errno = saved;
}

__attribute__((destructor)) static void end(void)
{
    process_ends();
}
