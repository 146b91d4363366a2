/* SPDX-License-Identifier: MIT */
/*
 * Looks at what programs that die with hole punches queued leave (keeper_victim.c, keeper.h).
 *
 *   keeper kills DIR STATS N SEED     N kills of a program that punches and writes
 *   keeper ends DIR STATS             every other way to end, and what a keeper must not disturb
 *
 * The library under test comes in KEEPER_SO, not in LD_PRELOAD: this program has no part in it.
 * Data lie in DIR; STATS, best in memory, is where victims leave their counters. With KEEPER_OFF
 * set `kills` must see losses.
 */
#include "keeper.h"

#include "../../shim/stats.h"

static const char *dir, *counts;
static char victim[4096];
static pid_t victims[64]; /* of the ways to end */
static int started;

static pid_t start(const char *what, const char *delay, const char *keeper)
{
    pid_t pid = fork();

    if (pid < 0)
        die("fork");
    if (pid == 0) {
        setenv("LD_PRELOAD", getenv("KEEPER_SO"), 1);
        setenv("RLSHIM_SHARE", "private", 1);
        setenv("RLSHIM_PUNCH_DELAY", delay, 1);
        setenv("RLSHIM_PUNCH_BACKLOG", "16384", 1);
        setenv("RLSHIM_STATS", counts, 1);
        setenv("RLSHIM_KEEPER", keeper, 1);
        execl(victim, "keeper_victim", what, dir, counts, (char *)NULL);
        die("exec");
    }
    if (started < 64)
        victims[started++] = pid;
    return pid;
}

static uint64_t counter(pid_t pid, enum stat_id id)
{
    struct stats_page page;
    char path[4000];
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "%s/rlshim-%d.stats", counts, (int)pid);
    fd = open(path, O_RDONLY);
    if (fd < 0)
        return 0;
    n = pread(fd, &page, sizeof page, 0);
    close(fd);
    return n == sizeof page ? page.value[id] : 0;
}

static void forget(pid_t pid)
{
    char path[4000];

    snprintf(path, sizeof path, "%s/rlshim-%d.stats", counts, (int)pid);
    unlink(path);
}

static bool wait_counter(pid_t pid, enum stat_id id, uint64_t at_least, unsigned ms)
{
    uint64_t until = now_ns() + ms * UINT64_C(1000000);

    while (counter(pid, id) < at_least) {
        if (now_ns() > until)
            return false;
        nap_us(200);
    }
    return true;
}

/* The keeper of a program, 0 none; *state: of the process. */
static pid_t find_keeper(pid_t program, char *state)
{
    char want[64];
    size_t len = (size_t)snprintf(want, sizeof want, "rlshim-keeper%c%d", 0, (int)program) + 1;
    DIR *d = opendir("/proc");
    struct dirent *e;
    pid_t found = 0;

    while (d != NULL && found == 0 && (e = readdir(d)) != NULL) {
        char path[300], buf[512];
        ssize_t n;
        int fd;

        if (e->d_name[0] < '0' || e->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
        fd = open(path, O_RDONLY);
        n = fd < 0 ? -1 : read(fd, buf, sizeof buf);
        if (fd >= 0)
            close(fd);
        if (n < (ssize_t)len || memcmp(buf, want, len) != 0)
            continue;
        found = (pid_t)atoi(e->d_name);
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        fd = open(path, O_RDONLY);
        n = fd < 0 ? -1 : read(fd, buf, sizeof buf - 1);
        if (fd >= 0)
            close(fd);
        if (n > 0 && state != NULL) {
            buf[n] = '\0';
            *state = strrchr(buf, ')')[2];
        }
    }
    closedir(d);
    return found;
}

static void fresh_data(void)
{
    unsigned char buf[BLOCK];
    int fd = open(data, O_RDWR | O_CREAT | O_TRUNC, 0600);

    if (fd < 0)
        die(data);
    memset(journal, 0, sizeof *journal);
    for (int i = 0; i < BLOCKS; i++) {
        fill(buf, 1, i);
        journal->about[i] = journal->done[i] = 1;
        if (pwrite(fd, buf, BLOCK, (off_t)i * BLOCK) != BLOCK)
            die("pwrite");
    }
    close(fd);
}

/* Compares the file with the journal. */
static void compare(unsigned long *lost, unsigned long *damaged)
{
    unsigned char got[BLOCK], want[BLOCK];
    int fd = open(data, O_RDONLY);

    for (int i = 0; i < BLOCKS; i++) {
        bool ok;

        if (pread(fd, got, BLOCK, (off_t)i * BLOCK) != BLOCK)
            die("pread");
        fill(want, journal->done[i], i);
        ok = memcmp(got, want, BLOCK) == 0;
        if (!ok && journal->about[i] != journal->done[i]) {
            fill(want, journal->about[i], i);
            ok = memcmp(got, want, BLOCK) == 0;
        }
        if (!ok && journal->done[i] == 0)
            ++*lost;
        else if (!ok)
            ++*damaged;
    }
    close(fd);
}

/* What the killed program held must be free now, whatever the keeper still does. */
static unsigned what_is_still_held(int pipe_end)
{
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = (in_port_t)journal->port};
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct pollfd p = {.fd = pipe_end, .events = POLLIN};
    int s = socket(AF_INET, SOCK_STREAM, 0);
    int fd = open(data, O_RDWR);
    unsigned held = 0;

    held += flock(fd, LOCK_EX | LOCK_NB) != 0;
    held += fcntl(fd, F_OFD_SETLK, &whole) != 0;
    held += bind(s, (struct sockaddr *)&in, sizeof in) != 0;
    held += poll(&p, 1, 0) != 1 || (p.revents & POLLHUP) == 0;
    close(s);
    close(fd);
    return held;
}

static int kills(int n, uint64_t seed)
{
    unsigned long lost = 0, damaged = 0, still_held = 0, ranges = 0;
    uint64_t longest_ns = 0;
    int queued = 0;
    bool on = getenv("KEEPER_OFF") == NULL;

    for (int round = 0; round < 2 * n && queued < n; round++) {
        int ends[2], status;
        uint64_t began, took;
        pid_t pid;

        fresh_data();
        if (pipe2(ends, O_CLOEXEC) != 0)
            die("pipe");
        fcntl(ends[1], F_SETFD, 0); /* the victim gets this one */
        pid = start("works", "40ms", on ? "on" : "off");
        close(ends[1]);
        if (!wait_counter(pid, STAT_punch_deferred, 50, 20000)) {
            printf("round %d: nothing was deferred: %d inline for want of a keeper\n", round,
                   (int)counter(pid, STAT_punch_no_keeper));
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return 1;
        }
        nap_us((long)(next_random(&seed) % 60000));
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        began = now_ns();
        still_held += what_is_still_held(ends[0]);
        close(ends[0]);
        if (on && !wait_counter(pid, STAT_keeper_finished, 1, 20000)) {
            printf("round %d: the keeper did not finish\n", round);
            return 1;
        }
        took = now_ns() - began;
        longest_ns = took > longest_ns ? took : longest_ns;
        /* Without a keeper: what of the work was queued cannot be known, but it is lost. */
        queued += !on || counter(pid, STAT_keeper_ranges) != 0;
        ranges += counter(pid, STAT_keeper_ranges);
        compare(&lost, &damaged);
        if (counter(pid, STAT_keeper_dropped) != 0)
            damaged++;
        forget(pid);
    }
    printf("%d kills with punches queued: %lu ranges left, %lu punches lost, %lu blocks damaged, "
           "%lu things still held; longest until it was finished %.1f ms\n",
           queued, ranges, lost, damaged, still_held, (double)longest_ns / 1e6);
    if (!on) /* the test must be able to see a loss */
        return lost != 0 && damaged == 0 ? 0 : 1;
    return queued == n && lost == 0 && damaged == 0 && still_held == 0 ? 0 : 1;
}

/* --- ways to end --- */

static int failures;

static void expect(bool ok, const char *how, const char *what)
{
    if (!ok) {
        printf("%s: not so: %s\n", how, what);
        failures++;
    }
}

static void expect_exact(const char *how)
{
    unsigned long lost = 0, damaged = 0;

    compare(&lost, &damaged);
    if (lost + damaged != 0)
        printf("%s: %lu punches lost, %lu blocks damaged\n", how, lost, damaged);
    failures += lost + damaged != 0;
}

/* Dies by itself. `left`: with punches queued, so that the keeper has something to do. */
static void ends_by(const char *how, bool left)
{
    pid_t pid;

    fresh_data();
    pid = start(how, "10s", "on");
    waitpid(pid, NULL, 0);
    if (left) {
        expect(wait_counter(pid, STAT_keeper_finished, 1, 5000), how, "the keeper finished");
        expect(counter(pid, STAT_keeper_ranges) > 100, how, "it had something to do");
    }
    expect_exact(how);
    forget(pid);
}

static void kill_ends(const char *how)
{
    pid_t pid, keeper;

    fresh_data();
    pid = start(how, "10s", "on");
    expect(wait_word(&journal->step, 1, 10000), how, "it came so far");
    keeper = find_keeper(pid, NULL);
    expect(keeper > 0 && getsid(keeper) == keeper && getpgid(keeper) == keeper, how,
           "the keeper is a session of its own");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    expect(wait_counter(pid, STAT_keeper_finished, 1, 5000), how, "the keeper finished");
    expect(counter(pid, STAT_keeper_ranges) > 100, how, "it had something to do");
    expect_exact(how);
    forget(pid);
}

/* The pid of the daemon is not known: its counters are the only ones left. */
static void daemon_is_killed(void)
{
    struct dirent *e;
    DIR *d;
    pid_t pid = 0;

    fresh_data();
    waitpid(start("daemon", "10s", "on"), NULL, 0);
    expect(wait_word(&journal->step, 1, 10000), "daemon", "it came so far");
    d = opendir(counts);
    while ((e = readdir(d)) != NULL)
        if (sscanf(e->d_name, "rlshim-%d.stats", &pid) == 1 && kill(pid, 0) == 0)
            break;
    closedir(d);
    expect(pid > 0 && kill(pid, SIGKILL) == 0, "daemon", "it is there");
    expect(wait_counter(pid, STAT_keeper_finished, 1, 5000), "daemon", "the keeper finished");
    expect_exact("daemon");
    forget(pid);
}

static void stopped_and_killed(void)
{
    uint64_t deferred;
    pid_t pid;

    fresh_data();
    pid = start("stop", "10s", "on");
    expect(wait_word(&journal->step, 1, 10000), "stop", "it came so far");
    kill(pid, SIGSTOP);
    nap_us(300000);
    expect(counter(pid, STAT_keeper_finished) == 0, "stop",
           "the keeper leaves a stopped one alone");
    expect(find_keeper(pid, NULL) > 0, "stop", "it stays");
    deferred = counter(pid, STAT_punch_deferred);
    kill(pid, SIGCONT);
    journal->order = 1;
    expect(wait_word(&journal->step, 2, 10000), "stop", "it goes on");
    expect(counter(pid, STAT_punch_deferred) > deferred, "stop", "and defers");
    kill(pid, SIGSTOP);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    expect(wait_counter(pid, STAT_keeper_finished, 1, 5000), "stop", "the keeper finished");
    expect_exact("stop");
    forget(pid);
}

/* A second run waits in its open for the keeper of the first. */
static void restart_waits(void)
{
    pid_t pid, keeper, second;

    fresh_data();
    pid = start("kill", "10s", "on");
    expect(wait_word(&journal->step, 1, 10000), "restart", "it came so far");
    keeper = find_keeper(pid, NULL);
    if (keeper <= 0) {
        expect(false, "restart", "there is a keeper");
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return;
    }
    kill(keeper, SIGSTOP); /* late */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    second = start("restarts", "10ms", "on");
    expect(wait_word(&journal->step, 11, 10000), "restart", "the second run began");
    nap_us(300000);
    expect(journal->step == 11, "restart", "it waits in open");
    expect(counter(pid, STAT_keeper_finished) == 0, "restart", "the keeper has not worked yet");
    kill(keeper, SIGCONT);
    waitpid(second, NULL, 0);
    expect(journal->step == 12, "restart", "it went on");
    expect(counter(pid, STAT_keeper_ranges) > 100, "restart", "the keeper had something to do");
    expect_exact("restart");
    forget(pid);
    forget(second);
}

/* Somebody kills the keeper: another comes, and what was promised holds again. */
static void keeper_is_killed(void)
{
    pid_t pid, keeper;

    fresh_data();
    pid = start("kill", "20ms", "on");
    expect(wait_word(&journal->step, 1, 10000), "lost", "it came so far");
    keeper = find_keeper(pid, NULL);
    expect(keeper > 0 && kill(keeper, SIGKILL) == 0, "lost", "there is a keeper");
    journal->order = 1;
    expect(wait_word(&journal->step, 2, 10000), "lost", "the program goes on");
    journal->step = 0;
    journal->order = 1;
    expect(wait_word(&journal->step, 2, 10000), "lost", "and on");
    expect(counter(pid, STAT_keeper_lost) == 1, "lost", "the loss was seen");
    expect(counter(pid, STAT_keeper_started) >= 2, "lost", "another was started");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    nap_us(100000);
    expect_exact("lost");
    forget(pid);
}

/* Where no keeper can be had punches stay inline. */
static void no_keeper_no_deferral(void)
{
    pid_t pid;

    fresh_data();
    pid = start("reaper", "10s", "on");
    expect(wait_word(&journal->step, 1, 10000), "reaper", "it came so far");
    expect(counter(pid, STAT_punch_no_keeper) > 0, "reaper", "inline for want of a keeper");
    expect(counter(pid, STAT_punch_deferred) == 0, "reaper", "nothing was deferred");
    expect(find_keeper(pid, NULL) == 0, "reaper", "there is none");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    expect_exact("reaper");
    forget(pid);
}

/* The victim's own findings are in `result`. */
static void finds_nothing_itself(const char *how, uint64_t keepers)
{
    uint64_t until = now_ns() + UINT64_C(40000000000);
    uint64_t seen = 0;
    pid_t pid;

    fresh_data();
    pid = start(how, "10ms", "on");
    while (waitpid(pid, NULL, WNOHANG) == 0 && now_ns() < until) {
        uint64_t n = counter(pid, STAT_keeper_started);

        seen = n > seen ? n : seen;
        nap_us(2000);
    }
    expect(seen >= keepers, how, "keepers came and went");
    if (journal->result != 0)
        printf("%s: %d times\n", how, journal->result);
    expect(journal->result == 0, how, "it met nothing of the keeper");
    expect_exact(how);
    forget(pid);
}

/* An exec that nobody sees: the process lives on as another program, and what was queued is made.
 */
static void exec_unseen(void)
{
    uint64_t until = now_ns() + UINT64_C(3000000000);
    unsigned long lost, damaged;
    pid_t pid;

    fresh_data();
    pid = start("unseen", "10s", "on");
    expect(wait_word(&journal->step, 1, 10000), "unseen exec", "it came so far");
    do {
        lost = damaged = 0;
        compare(&lost, &damaged);
    } while (lost != 0 && now_ns() < until);
    expect(waitpid(pid, NULL, WNOHANG) == 0, "unseen exec", "the process lives");
    expect_exact("unseen exec");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    forget(pid);
}

static void no_keeper_stays(void)
{
    uint64_t until = now_ns() + UINT64_C(10000000000);

    for (int i = 0; i < started; i++) {
        while (find_keeper(victims[i], NULL) != 0 && now_ns() < until)
            nap_us(10000);
        expect(find_keeper(victims[i], NULL) == 0, "end", "no keeper stays");
    }
    /* Nor is one a child of whoever started the program. */
    expect(waitpid(-1, NULL, WNOHANG | __WALL) == -1 && errno == ECHILD, "end", "no child is left");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (argc < 4)
        return 2;
    dir = argv[2];
    counts = argv[3];
    snprintf(victim, sizeof victim, "%s_victim", argv[0]);
    find_paths(dir, counts);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    journal = map_journal(true);
    if (strcmp(what, "kills") == 0 && argc == 6)
        return kills(atoi(argv[4]), strtoull(argv[5], NULL, 0) * 2654435761u + 1);
    if (strcmp(what, "ends") != 0)
        return 2;
    ends_by("abort", true);
    ends_by("fault", true);
    ends_by("term", true);
    ends_by("no_exec", true);
    ends_by("handler", false);
    ends_by("thread", false);
    ends_by("exec", false);
    ends_by("return", false);
    kill_ends("kill");
    kill_ends("setsid");
    daemon_is_killed();
    stopped_and_killed();
    restart_waits();
    keeper_is_killed();
    no_keeper_no_deferral();
    finds_nothing_itself("waits", 3);
    finds_nothing_itself("leases", 1);
    exec_unseen();
    no_keeper_stays();
    printf("%d failures\n", failures);
    return failures != 0;
}
