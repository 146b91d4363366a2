/* SPDX-License-Identifier: MIT */
/*
 * create: see create.h. Decisions are policy_create's; what is remembered are place's hints.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "create.h"
#include "place.h"
#include "real.h"
#include "stats.h"

#define HELD       64   /* opens that may look at one time */
#define ABOVE      256u /* how far our descriptor lies above the program's next */
#define DOUBT_MAX  6u
#define OLD_NS     2000000000
#define TURNS      16u
#define LOOK_MASK  (STATX_TYPE | STATX_UID | STATX_INO)
#define LOOK_FLAGS (AT_EMPTY_PATH | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT)

/* What an open under way holds. `at` is the address of its create_hold, 0 free: a holder whose
 * address lies below the stack of the same thread's next open was jumped out of. */
struct create_mine {
    uint64_t at;
    int fd;                              /* O_PATH, -1 none */
    struct rl_name_flight flight, first; /* creating, and looking for all */
};

EARLY uint32_t create_care;

EARLY static uint32_t reads_left; /* policy_create_left; not counted if `always` */
EARLY static bool always;         /* a setting asks for it everywhere */
static struct place sampled;      /* no place: the open's descriptor is to be asked about */
static __thread uint32_t opens;
/* Who creates a missing name; and who looks first, where many looks of one name take turns in the
 * kernel: a name that is not there is asked for again by each. */
static struct rl_name_table flights, firsts;
static struct create_mine held[HELD];
static uint32_t fsuid_moved;
static uint32_t numbers;   /* RLIMIT_NOFILE when it was first asked for */
EARLY static bool by_path; /* a [path ...] section sets it: each name has to be compared */
static __thread struct create_mine *mine;

static uint64_t self(void)
{
    return (uint64_t)(uintptr_t)&mine;
}

/* Not if the program has closed it, or put a file of its own there: ours has O_PATH. */
static void close_ours(struct create_mine *m)
{
    int fd = m->fd;

    m->fd = -1;
    if (fd >= 0 && (rl_raw(SYS_fcntl, fd, F_GETFL) & (O_PATH | ~INT_MAX)) == O_PATH)
        rl_raw(SYS_close, fd);
}

static void give_back(struct create_mine *m)
{
    rl_name_end(&m->flight);
    rl_name_end(&m->first);
    close_ours(m);
    rl_store_64(&m->at, 0);
}

/* NULL: a handler of this thread's interrupted one, or there are too many. */
static struct create_mine *take(struct create_hold *hold)
{
    struct create_mine *m = mine;

    if (m != NULL) {
        if ((uint64_t)(uintptr_t)hold < rl_load_64(&m->at))
            return NULL;
        mine = NULL;
        give_back(m);
    }
    for (unsigned i = 0; i < HELD; i++) {
        uint64_t free_ = 0;

        m = &held[(self() / 64 + i) % HELD];
        if (rl_load_64(&m->at) == 0 && rl_cas_64(&m->at, &free_, (uint64_t)(uintptr_t)hold)) {
            m->fd = -1;
            m->flight.slot = m->first.slot = NULL;
            mine = m;
            return m;
        }
    }
    return NULL;
}

void create_drop(struct create_hold *hold)
{
    struct create_mine *m = hold->mine;

    hold->mine = NULL;
    if (rl_load_64(&m->at) != (uint64_t)(uintptr_t)hold)
        return; /* forked: the child has let go of everything */
    mine = NULL;
    give_back(m);
}

/* --- looking --- */

enum found { FOUND_OWN, FOUND_OTHER, FOUND_NOTHING };

/* Moves the descriptor out of the way of the program's next one. -1: it cannot be had. */
static int move_up(int fd)
{
    struct rlimit limit;
    uint32_t most = rl_load_32(&numbers);
    int up = -1;

    /* A limit that was lowered meanwhile is met by the kernel. */
    if (most == 0 && rl_raw(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit) == 0) {
        most = limit.rlim_cur < INT_MAX ? (uint32_t)limit.rlim_cur : INT_MAX;
        rl_store_32(&numbers, most);
    }
    /* With the lower half in use, one more could be the one that the program lacks. */
    if ((uint32_t)fd + ABOVE < most && (uint32_t)fd < most / 2)
        up = (int)rl_raw(SYS_fcntl, fd, F_DUPFD_CLOEXEC, fd + (int)ABOVE);
    rl_raw(SYS_close, fd);
    return up < 0 ? -1 : up;
}

static void name_in_proc(char *buf, int fd)
{
    char digits[12];
    size_t k = sizeof digits;
    unsigned n = (unsigned)fd;

    digits[--k] = '\0';
    do
        digits[--k] = (char)('0' + n % 10);
    while ((n /= 10) != 0);
    /* Not self: a thread may have a descriptor table of its own. */
    memcpy(buf, "/proc/thread-self/fd/", 21);
    memcpy(buf + 21, digits + k, sizeof digits - k);
}

/* One look-up, in a call that can be cancelled as the open could have been. */
static enum found look(struct create_hold *hold, int dirfd)
{
    struct create_mine *m = hold->mine;
    struct statx sx;
    int fd;

    stat_add(STAT_create_looked, 1);
    fd = real.openat(dirfd, hold->given, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT) {
            place_note(hold->tag, false);
            if (rl_load_32(&hold->place->turns) != TURNS)
                rl_store_32(&hold->place->turns, TURNS);
            return FOUND_NOTHING;
        }
        /* The signal has been handled: the same call once more might wait for ever. */
        hold->interrupted = errno == EINTR;
        return FOUND_OTHER;
    }
    m->fd = fd;
    place_note(hold->tag, true);
    if (rl_raw(SYS_statx, fd, "", LOOK_FLAGS, LOOK_MASK, &sx) != 0 ||
        (sx.stx_mask & LOOK_MASK) != LOOK_MASK ||
        !policy_create_keeps(sx.stx_mode, sx.stx_uid, (uint32_t)rl_raw(SYS_geteuid)) ||
        ((hold->flags & O_TRUNC) == 0 && (m->fd = move_up(fd)) < 0)) {
        close_ours(m);
        return FOUND_OTHER;
    }
    rl_store_32(&hold->place->missing, 0);
    if ((hold->flags & O_TRUNC) != 0) {
        close_ours(m);
        hold->cuts = true;
        return FOUND_OWN;
    }
    hold->dev = (uint64_t)sx.stx_dev_major << 32 | sx.stx_dev_minor;
    hold->ino = sx.stx_ino;
    name_in_proc(hold->proc, m->fd);
    hold->path = hold->proc;
    hold->looked = true;
    return FOUND_OWN;
}

/* Is fd what was looked at? */
static bool as_looked_at(const struct create_hold *hold, int fd)
{
    struct statx sx;

    return rl_raw(SYS_statx, fd, "", LOOK_FLAGS, STATX_INO, &sx) == 0 &&
           ((uint64_t)sx.stx_dev_major << 32 | sx.stx_dev_minor) == hold->dev &&
           sx.stx_ino == hold->ino;
}

/* --- one flight a name --- */

static enum rl_name_role join(struct create_hold *hold, int dirfd, size_t bytes,
                              struct rl_name_table *table, struct rl_name_flight *flight)
{
    struct rl_name_key key = {.name = hold->given, .bytes = (uint32_t)bytes};
    bool rooted = hold->given[0] == '/';
    struct statx sx;

    flight->slot = NULL;
    /* Threads may have a root or a working directory of their own, and numbers move: the directory
     * itself is the key, and the mount, since what is mounted below it hangs on that. */
    if (rl_raw(SYS_statx, rooted ? AT_FDCWD : dirfd, rooted ? "/" : "", LOOK_FLAGS,
               STATX_INO | STATX_MNT_ID, &sx) != 0)
        return RL_NAME_NONE;
    key.dev = (uint64_t)sx.stx_dev_major << 32 | sx.stx_dev_minor;
    key.ino = sx.stx_ino;
    key.mount = sx.stx_mnt_id;
    return rl_name_join(table, &key, self(), flight);
}

static void wait_for(const struct rl_name_flight *flight)
{
    uint64_t begin_ns = rl_now_ns();

    stat_add(STAT_create_waited, 1);
    if (!rl_name_wait(flight, RL_NAME_WAIT_NS))
        stat_add(STAT_create_overdue, 1);
    stat_add(STAT_create_wait_ns, rl_now_ns() - begin_ns);
}

/* The name is missing. After this the real call is made, whatever was found. */
static void fly(struct create_hold *hold, int dirfd, size_t bytes)
{
    struct rl_name_flight flight;

    if (rl_load_32(&hold->place->missing) == 0)
        rl_store_32(&hold->place->missing, 1);
    switch (join(hold, dirfd, bytes, &flights, &flight)) {
    case RL_NAME_LEADER:
        /* Another's flight may have ended between our look and our joining. */
        if (place_knows(hold->tag) && look(hold, dirfd) == FOUND_OWN) {
            rl_name_end(&flight);
            return;
        }
        hold->mine->flight = flight;
        hold->leads_new = true;
        stat_add(STAT_create_led, 1);
        return;
    case RL_NAME_WAITER:
        wait_for(&flight);
        look(hold, dirfd);
        return;
    default:
        return;
    }
}

/* Somebody who looked for us found the name missing: who creates it now may be waited for as if the
 * look had been ours. */
static void wait_for_creation(struct create_hold *hold, int dirfd, size_t bytes)
{
    struct rl_name_flight flight;

    switch (join(hold, dirfd, bytes, &flights, &flight)) {
    case RL_NAME_LEADER: /* it is over already */
        rl_name_end(&flight);
        break;
    case RL_NAME_WAITER:
        wait_for(&flight);
        break;
    default:
        break;
    }
}

/* One looks, and creates what is missing; the others wait, and then look for themselves. */
static void look_in_turn(struct create_hold *hold, int dirfd, size_t bytes)
{
    struct rl_name_flight first;
    uint32_t turns;

    switch (join(hold, dirfd, bytes, &firsts, &first)) {
    case RL_NAME_LEADER:
        hold->mine->first = first;
        if (look(hold, dirfd) == FOUND_NOTHING)
            fly(hold, dirfd, bytes);
        else if ((turns = rl_load_32(&hold->place->turns)) != 0)
            rl_store_32(&hold->place->turns, turns - 1);
        rl_name_end(&hold->mine->first);
        return;
    case RL_NAME_WAITER:
        rl_name_wait(&first, RL_NAME_WAIT_NS);
        if (!place_knows(hold->tag))
            wait_for_creation(hold, dirfd, bytes);
        break;
    default:
        break;
    }
    if (look(hold, dirfd) == FOUND_NOTHING)
        fly(hold, dirfd, bytes);
}

static void lead_or_look(struct create_hold *hold, int dirfd, size_t bytes, bool lead)
{
    struct rl_name_flight flight;

    if (lead && join(hold, dirfd, bytes, &flights, &flight) == RL_NAME_LEADER) {
        hold->mine->flight = flight;
        stat_add(STAT_create_led, 1);
        return;
    }
    /* Looks of names that exist need not take turns: 1.25 times the time if they do. */
    if (!lead && rl_load_32(&hold->place->kind) == CREATE_KIND_REMOTE &&
        rl_load_32(&hold->place->turns) != 0) {
        look_in_turn(hold, dirfd, bytes);
        return;
    }
    /* A flight that has not found the name missing may hang in a FIFO: it is waited for only after
     * a look of our own. */
    if (look(hold, dirfd) == FOUND_NOTHING)
        fly(hold, dirfd, bytes);
}

/* --- what the wrappers call --- */

/* The absolute name that [path ...] sections are compared with. */
static enum cfg_create setting_of(int dirfd, const char *path, size_t bytes)
{
    const struct config *config = state_config();
    struct settings own;
    char name[2 * PATH_MAX];
    char link[40];
    long n = 0;

    if (!by_path)
        return proc.settings.create;
    if (path[0] != '/') {
        if (dirfd == AT_FDCWD) {
            n = rl_raw(SYS_getcwd, name, PATH_MAX) - 1;
        } else {
            name_in_proc(link, dirfd);
            n = rl_raw(SYS_readlinkat, AT_FDCWD, link, name, PATH_MAX);
        }
        if (n <= 0)
            return proc.settings.create;
        if (name[n - 1] != '/')
            name[n++] = '/';
    }
    memcpy(name + n, path, bytes);
    name[(size_t)n + bytes] = '\0';
    if (!cfg_path_matches(config, name))
        return proc.settings.create;
    cfg_settings(config, proc.program, name, &own);
    return own.create;
}

static __attribute__((noinline)) void help(struct create_hold *hold, int dirfd, size_t bytes,
                                           enum cfg_create setting)
{
    struct place *p = hold->place;
    struct create_facts f = {.setting = setting,
                             .kind = (enum create_kind)rl_load_32(&p->kind),
                             .missing = rl_load_32(&p->missing),
                             .look_ns = rl_load_32(&p->look_ns),
                             .plain_ns = rl_load_32(&p->plain_ns)};
    enum create_plan plan;
    int before = errno;

    hold->tag = place_name_tag(p, hold->given, bytes);
    f.known = place_knows(hold->tag);
    f.turn = rl_add_32(&p->turn, 1);
    if (f.missing != 0)
        f.missing = rl_add_32(&p->missing, 1); /* no two threads see the same number */
    plan = policy_create(&f);
    hold->begin_ns = rl_now_ns();
    hold->timed = plan == CREATE_TIMED;
    if (plan == CREATE_PLAIN || plan == CREATE_TIMED)
        return;
    hold->mine = take(hold);
    if (hold->mine == NULL)
        return;
    lead_or_look(hold, dirfd, bytes, plan == CREATE_LEAD);
    errno = hold->interrupted ? EINTR : before;
}

/* Threads may overwrite each other's count: it is a hint. */
static void care(enum create_kind kind)
{
    uint32_t left = rl_load_32(&reads_left), then = policy_create_left(left, kind);

    if (always)
        return;
    if (then != left)
        rl_store_32(&reads_left, then);
    if (rl_load_32(&create_care) != (then != 0 ? CREATE_READS : CREATE_WATCHES))
        rl_store_32(&create_care, then != 0 ? CREATE_READS : CREATE_WATCHES);
}

void create_look(struct create_hold *hold, int dirfd, const char *path, int flags)
{
    enum cfg_create setting;
    struct place *p;
    size_t bytes;

    if (likely(rl_load_32(&create_care) == CREATE_WATCHES)) {
        if (opens++ % CREATE_SAMPLE == 0)
            hold->place = &sampled;
        return;
    }
    bytes = place_path_bytes(path);
    /* A trailing slash means a directory, and has errors of its own. */
    if (bytes == 0 || path[bytes - 1] == '/' || rl_load_32(&fsuid_moved) != 0)
        return;
    p = place_of(dirfd, path, bytes);
    care((enum create_kind)rl_load_32(&p->kind));
    if (rl_load_32(&p->kind) == CREATE_KIND_PLAIN && !always)
        return;
    setting = setting_of(dirfd, path, bytes);
    if (setting == CFG_CREATE_SYNC ||
        (setting == CFG_CREATE_AUTO && rl_load_32(&p->kind) == CREATE_KIND_PLAIN))
        return;
    hold->given = path;
    hold->place = p;
    hold->before = (uint32_t)errno;
    hold->flags = flags;
    hold->looked = hold->cuts = hold->timed = hold->leads_new = false;
    help(hold, dirfd, bytes, setting);
}

/* Did the name exist before a plain open? Size and age tell, if anything does. Wrong guesses (a
 * server's clock may be behind) make believing rarer. */
static void learn(struct create_hold *hold, int fd)
{
    struct place *p = hold->place;
    uint32_t doubted = rl_load_32(&p->doubted);
    struct timespec now;
    struct statx sx;

    if (rl_raw(SYS_statx, fd, "", LOOK_FLAGS, STATX_SIZE | STATX_CTIME | STATX_NLINK, &sx) != 0)
        return;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (sx.stx_size == 0 && sx.stx_nlink < 2 &&
        now.tv_sec - sx.stx_ctime.tv_sec <= OLD_NS / 1000000000)
        return;
    if (rl_load_32(&p->turn) % (1u << (doubted < DOUBT_MAX ? doubted : DOUBT_MAX)) != 0)
        return;
    rl_store_32(&p->doubted, doubted + 1); /* until a look finds something */
    rl_store_32(&p->missing, 0);
}

static void found(const struct create_hold *hold)
{
    stat_add(STAT_create_found, 1);
    rl_store_32(&hold->place->doubted, 0);
    place_mean(&hold->place->look_ns, rl_now_ns() - hold->begin_ns);
}

bool create_more(struct create_hold *hold, int fd)
{
    if (hold->place == &sampled) {
        if (fd >= 0)
            care(place_kind_fd(fd));
        return false;
    }
    if (!hold->looked) {
        if (fd >= 0) {
            if (hold->cuts)
                found(hold);
            else if (hold->timed)
                place_mean(&hold->place->plain_ns, rl_now_ns() - hold->begin_ns);
            else if (hold->mine != NULL && hold->mine->flight.slot != NULL && !hold->leads_new)
                learn(hold, fd);
            place_note(hold->tag, true);
        }
        return false;
    }
    if (fd >= 0 && as_looked_at(hold, fd)) {
        /* So ours was there a moment ago, and needs no check before it is closed. */
        fd = hold->mine->fd;
        hold->mine->fd = -1;
        if (fd >= 0)
            rl_raw(SYS_close, fd);
        found(hold);
        return false;
    }
    if (fd < 0 && errno == EINTR)
        return false; /* by a signal that the plain call would have met as well */
    hold->looked = hold->timed = false;
    hold->path = hold->given;
    place_note(hold->tag, false);
    stat_add(STAT_create_retried, 1);
    errno = (int)hold->before;
    return true;
}

void create_start(void)
{
    const struct config *config = state_config();

    place_start();
    for (unsigned s = 0; config != NULL && s < config->nsections; s++)
        for (unsigned i = 0; i < config->sections[s].count; i++)
            by_path |= config->sections[s].kind == CFG_IN_PATH &&
                       config->assigns[config->sections[s].first + i].row == CFG_ROW_create;
    always = by_path || proc.settings.create == CFG_CREATE_DEDUPE;
    reads_left = CREATE_LOOKS;
    rl_store_32(&create_care,
                !always && proc.settings.create == CFG_CREATE_SYNC ? CREATE_NEVER : CREATE_READS);
}

void create_forked(void)
{
    memset(&flights, 0, sizeof flights);
    memset(&firsts, 0, sizeof firsts);
    for (unsigned i = 0; i < HELD; i++)
        if (held[i].at != 0) {
            close_ours(&held[i]);
            held[i].at = 0;
        }
    mine = NULL;
}

void create_fsuid(void)
{
    rl_store_32(&fsuid_moved, 1);
}
