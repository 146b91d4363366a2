/* SPDX-License-Identifier: MIT */
/*
 * one_inode: one file, one inode lock, three threads that never touch the same byte.
 *
 *   [0, R)            a reader: random 4 KiB O_DIRECT preads
 *   [R, R + P)        a puncher: every 4 KiB block once, FALLOC_FL_PUNCH_HOLE, as fast as they go
 *   [R + P + 1M, ..)  an appender: big O_DIRECT pwrites at the end of the file
 *
 * Each has a descriptor of its own, and the name is gone after the opens unless --named. A punch
 * takes the inode lock exclusively and waits for all direct I/O in flight, so it waits for the
 * whole big write, and the reader, who takes the lock shared, waits behind the punch.
 * Run it as it is and under LD_PRELOAD=librlshim.so, and compare.
 *
 * "stalled" is the share of wall time that the reader spends inside reads of 5 ms or more. A
 * percentile over reads hides a stall: a reader that is stuck issues few reads.
 *
 * The reader checks what it reads while it runs; afterwards the punched range must read as zeros,
 * everything else as written, and st_blocks must agree with the layout.
 *
 * Exit: 0 done, 1 data or an I/O call was wrong, 2 usage, 3 this directory cannot show it (space,
 * O_DIRECT, hole punching), with one line that says so.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define TOOL_NAME "one_inode"
#include "blocks.h"
#include "latency.h"
#include "layout.h"
#include "tool.h"

/* Stamping every block would be a pause between appends in which the puncher gets ahead. */
#define STAMP_STRIDE_BYTES (256u * 1024u)
#define GAP_BYTES          ((uint64_t)MIB)  /* keeps the last punch and the first append apart */
#define SPARE_BYTES        (64ull * MIB)    /* free space that is left to others */
#define BLOCKS_SLACK_BYTES ((long long)MIB) /* the file system's own blocks in st_blocks */

static struct {
    const char *dir;
    double seconds;
    uint64_t read_bytes, punch_bytes, append_bytes, max_bytes;
    uint64_t punch_only; /* number of punches of the microbenchmark; 0: the workload */
    int named, own_inode, random, json;
} opt = {.dir = ".",
         .seconds = 4,
         .read_bytes = 64ull * MIB,
         .punch_bytes = 512ull * MIB,
         .append_bytes = 128ull * MIB};

/* Each part belongs to its thread until the thread is joined. */
static struct {
    struct latency lat;
    uint64_t wall_ns;
} reader;
static struct {
    uint64_t done, total, worst_ns, wall_ns;
} puncher;
static struct {
    uint64_t bytes, writes, worst_ns, wall_ns;
} appender;

static struct {
    double close_ms;         /* closing every descriptor, so also settling what was put off */
    double blocks_settle_ms; /* until st_blocks agreed after that */
    int64_t excess_at_close; /* st_blocks (bytes) minus the layout, right after the last close */
    int64_t excess;          /* the same at the end */
    bool ok;
} check;

static int read_fd = -1, punch_fd = -1, append_fd = -1;
static atomic_bool stop, failed, out_of_room;
static pthread_barrier_t start_line;
static char names[2][PATH_MAX]; /* what is to be removed; empty: nothing */

static void remove_names(void)
{
    for (int i = 0; i < 2; i++) {
        if (names[i][0])
            unlink(names[i]);
        names[i][0] = 0;
    }
}

static void on_signal(int sig)
{
    remove_names();
    _exit(128 + sig);
}

/* Something was wrong: the run ends, and main makes it exit code 1. Always false. */
__attribute__((format(printf, 1, 2))) static bool fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
    atomic_store(&failed, true);
    atomic_store(&stop, true);
    return false;
}

/* ---- the three threads ---- */

static void *read_loop(void *unused)
{
    void *buf = big_buffer(BLOCK_BYTES);
    uint64_t random = 88172645463325252ull, blocks = opt.read_bytes / BLOCK_BYTES;

    pthread_barrier_wait(&start_line);
    uint64_t begin = now_ns();
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        uint64_t offset = next_random(&random) % blocks * BLOCK_BYTES;
        uint64_t before = now_ns();
        ssize_t got = pread(read_fd, buf, BLOCK_BYTES, (off_t)offset);
        latency_add(&reader.lat, now_ns() - before);
        if (got != BLOCK_BYTES)
            fail("pread of 4096 bytes at %llu: %s", (unsigned long long)offset,
                 got < 0 ? strerror(errno) : "short");
        else if (!block_is_right(buf, offset))
            fail("pread at %llu returned other data than was written", (unsigned long long)offset);
    }
    reader.wall_ns = now_ns() - begin;
    return unused;
}

static bool punch_one(uint64_t block)
{
    uint64_t offset = opt.read_bytes + block * BLOCK_BYTES;
    if (!fallocate(punch_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                   BLOCK_BYTES))
        return true;
    if (errno == EOPNOTSUPP && puncher.done == 0)
        die(3, "%s cannot punch holes: choose a directory on ext4, XFS or btrfs with --dir",
            opt.dir);
    return fail("punching a hole at %llu: %s", (unsigned long long)offset, strerror(errno));
}

static void *punch_loop(void *unused)
{
    pthread_barrier_wait(&start_line);
    uint64_t begin = now_ns(), before = begin;
    while (puncher.done < puncher.total && !atomic_load_explicit(&stop, memory_order_relaxed)) {
        if (!punch_one(puncher.done))
            break;
        uint64_t after = now_ns();
        if (after - before > puncher.worst_ns)
            puncher.worst_ns = after - before;
        before = after;
        puncher.done++;
    }
    puncher.wall_ns = now_ns() - begin;
    return unused;
}

static void *append_loop(void *buf)
{
    uint64_t base = opt.read_bytes + opt.punch_bytes + GAP_BYTES;

    pthread_barrier_wait(&start_line);
    uint64_t begin = now_ns();
    while (!atomic_load(&stop) && !atomic_load(&out_of_room)) {
        uint64_t offset = base + appender.bytes;
        block_stamp(buf, opt.append_bytes, offset, STAMP_STRIDE_BYTES);
        uint64_t before = now_ns();
        ssize_t put = pwrite(append_fd, buf, opt.append_bytes, (off_t)offset);
        uint64_t took = now_ns() - before;
        if (put <= 0 || put % BLOCK_BYTES) {
            if (put < 0 && (errno == ENOSPC || errno == EDQUOT))
                atomic_store(&out_of_room, true);
            else
                fail("pwrite at %llu: %s", (unsigned long long)offset,
                     put < 0 ? strerror(errno) : "not a multiple of 4096 bytes were written");
            break;
        }
        appender.bytes += (uint64_t)put;
        appender.writes++;
        if (took > appender.worst_ns)
            appender.worst_ns = took;
        /* A short write means a full disk or a limit, too. */
        if ((uint64_t)put < opt.append_bytes || appender.bytes + opt.append_bytes > opt.max_bytes)
            atomic_store(&out_of_room, true);
    }
    appender.wall_ns = now_ns() - begin;
    return NULL;
}

/* ---- layout and check ---- */

static int open_more(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0)
        die(3, "cannot open %s%s: %s%s", path, flags & O_DIRECT ? " with O_DIRECT" : "",
            strerror(errno),
            errno == EINVAL ? ": choose a directory on ext4, XFS or btrfs with --dir" : "");
    return fd;
}

static void check_room(uint64_t layout_bytes)
{
    struct statvfs vfs;
    if (statvfs(opt.dir, &vfs))
        die(3, "%s: %s: choose a directory with --dir", opt.dir, strerror(errno));
    uint64_t free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    uint64_t need = layout_bytes + SPARE_BYTES + (opt.punch_only ? 0 : 2 * opt.append_bytes);
    if (free_bytes < need)
        die(3, "%s has %llu MiB free, this needs %llu MiB: choose another --dir or smaller sizes",
            opt.dir, mib(free_bytes), mib(need));
    uint64_t room = (free_bytes - layout_bytes - SPARE_BYTES) / 20 * 19;
    if (!opt.max_bytes || opt.max_bytes > room)
        opt.max_bytes = room;
}

static void open_files(void)
{
    char path[PATH_MAX - 16], reader_path[PATH_MAX];
    uint64_t data_bytes = opt.read_bytes + opt.punch_bytes;

    if (snprintf(path, sizeof(path), "%s/one_inode.%d", opt.dir, getpid()) >= (int)sizeof(path))
        die(2, "--dir is too long");
    snprintf(reader_path, sizeof(reader_path), "%s.reader", path);
    snprintf(names[0], sizeof(names[0]), "%s", path);
    int layout_fd = lay_out(path, data_bytes, data_bytes + GAP_BYTES);
    punch_fd = open_more(path, O_RDWR);
    if (!opt.punch_only) {
        append_fd = open_more(path, O_WRONLY | O_DIRECT);
        if (opt.own_inode) {
            snprintf(names[1], sizeof(names[1]), "%s", reader_path);
            close(lay_out(reader_path, opt.read_bytes, opt.read_bytes));
        }
        read_fd = open_more(opt.own_inode ? reader_path : path, O_RDONLY | O_DIRECT);
    }
    if (!opt.named)
        remove_names();
    close(layout_fd);
}

/* Reads a piece at each stride; expects zeros, or what was written. */
static bool check_range(int fd, void *buf, uint64_t from, uint64_t to, uint64_t piece,
                        uint64_t stride, bool zero)
{
    for (uint64_t at = from; at < to; at += stride) {
        uint64_t want = to - at < piece ? to - at : piece;
        ssize_t got = pread(fd, buf, want, (off_t)at);
        if (got != (ssize_t)want)
            return fail("checking: pread of %llu bytes at %llu: %s", (unsigned long long)want,
                        (unsigned long long)at, got < 0 ? strerror(errno) : "short");
        for (uint64_t in = 0; in < want; in += BLOCK_BYTES) {
            const char *block = (char *)buf + in;
            if (zero ? !block_is_zero(block) : !block_is_right(block, at + in))
                return fail("wrong data at %llu: expected %s", (unsigned long long)(at + in),
                            zero ? "zeros, it was punched" : "what was written");
        }
    }
    return true;
}

/*
 * Appended data is sampled at the stamps (reading it all would take as long as writing it took),
 * and so is what the puncher did not reach. Everything else is read whole.
 */
static void check_data(int fd)
{
    void *buf = big_buffer(MIB);
    uint64_t punch_end = opt.read_bytes + opt.punch_bytes;
    uint64_t punched_to = opt.read_bytes + puncher.done * BLOCK_BYTES;
    uint64_t from = punch_end + GAP_BYTES, to = from + appender.bytes;
    /* Many appends: every third stamp is enough to meet each MiB. */
    uint64_t stride = STAMP_STRIDE_BYTES * (appender.bytes > 4096ull * MIB ? 3 : 1);

    check_range(fd, buf, 0, opt.read_bytes, MIB, MIB, false);
    check_range(fd, buf, opt.read_bytes, punched_to, MIB, MIB, true);
    check_range(fd, buf, punched_to, punch_end, BLOCK_BYTES, MIB, false);
    for (; from < to; from += opt.append_bytes)
        check_range(fd, buf, from, from + opt.append_bytes < to ? from + opt.append_bytes : to,
                    BLOCK_BYTES, stride, false);
    if (opt.own_inode)
        check_range(read_fd, buf, 0, opt.read_bytes, MIB, MIB, false);
    munmap(buf, MIB);
}

static struct stat stat_of(int fd)
{
    struct stat st;
    if (fstat(fd, &st))
        die(1, "fstat: %s", strerror(errno));
    return st;
}

/*
 * Closes everything and looks at the file from outside. An O_PATH descriptor through /proc keeps an
 * unlinked file reachable without being one of its users.
 */
static void settle_and_check(void)
{
    char path[64];
    uint64_t data_bytes = opt.read_bytes + opt.punch_bytes;
    uint64_t size_bytes = data_bytes + GAP_BYTES + appender.bytes;
    int64_t expected = (int64_t)(data_bytes - puncher.done * BLOCK_BYTES + appender.bytes);

    snprintf(path, sizeof(path), "/proc/self/fd/%d", punch_fd);
    int hold = open_more(path, O_PATH);
    uint64_t before = now_ns();
    if (append_fd >= 0)
        close(append_fd);
    if (read_fd >= 0 && !opt.own_inode)
        close(read_fd);
    close(punch_fd);
    uint64_t closed = now_ns();
    check.close_ms = (double)(closed - before) / 1e6;

    /* btrfs accounts a direct write a moment after it returned, so st_blocks gets a second. */
    check.excess_at_close = check.excess = (int64_t)stat_of(hold).st_blocks * 512 - expected;
    while (llabs(check.excess) > BLOCKS_SLACK_BYTES && now_ns() - closed < 1000000000u) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        check.excess = (int64_t)stat_of(hold).st_blocks * 512 - expected;
        check.blocks_settle_ms = (double)(now_ns() - closed) / 1e6;
    }
    if (llabs(check.excess) > BLOCKS_SLACK_BYTES)
        fail("st_blocks is off by %lld KiB from what was written and punched",
             (long long)check.excess / 1024);
    if ((uint64_t)stat_of(hold).st_size != size_bytes)
        fail("the file's size is %lld instead of %llu", (long long)stat_of(hold).st_size,
             (unsigned long long)size_bytes);

    snprintf(path, sizeof(path), "/proc/self/fd/%d", hold);
    int fd = open_more(path, O_RDONLY | O_DIRECT);
    check_data(fd);
    close(fd);
    close(hold);
    check.ok = !atomic_load(&failed);
}

/* ---- output ---- */

static double stalled_share(void)
{
    return reader.wall_ns ? (double)reader.lat.stalled_ns / (double)reader.wall_ns : 0;
}

static double append_mib_s(void)
{
    return appender.wall_ns ? (double)appender.bytes / MIB / ((double)appender.wall_ns / 1e9) : 0;
}

static const char *file_kind(void)
{
    return opt.own_inode ? "own-inode" : opt.named ? "named" : "unlinked";
}

static void print_json_check(void)
{
    printf("\"close_ms\":%.3f,\"blocks_excess_at_close_bytes\":%lld,\"blocks_excess_bytes\":%lld,"
           "\"blocks_settle_ms\":%.1f,\"peak_rss_kib\":%ld,\"data_ok\":%s}\n",
           check.close_ms, (long long)check.excess_at_close, (long long)check.excess,
           check.blocks_settle_ms, peak_rss_kib(), check.ok ? "true" : "false");
}

static void print_json(void)
{
    const struct latency *lat = &reader.lat;
    char all_ms[32] = "null";

    if (puncher.done == puncher.total)
        snprintf(all_ms, sizeof(all_ms), "%.3f", ms(puncher.wall_ns));
    printf("{\"program\":\"one_inode\",\"file\":\"%s\",\"append_bytes\":%llu,\"seconds\":%.3f,"
           "\"ended_by\":\"%s\",",
           file_kind(), (unsigned long long)opt.append_bytes, (double)reader.wall_ns / 1e9,
           atomic_load(&out_of_room) ? "space" : "time");
    printf("\"reads\":%llu,\"stalled_share\":%.6f,\"read_worst_ms\":%.3f,\"read_p50_us\":%.1f,"
           "\"read_p99_us\":%.1f,\"read_p999_us\":%.1f,",
           (unsigned long long)lat->count, stalled_share(), ms(lat->worst_ns),
           latency_percentile_us(lat, 0.5), latency_percentile_us(lat, 0.99),
           latency_percentile_us(lat, 0.999));
    printf("\"punches\":%llu,\"punches_wanted\":%llu,\"punch_all_ms\":%s,\"punch_worst_ms\":%.3f,",
           (unsigned long long)puncher.done, (unsigned long long)puncher.total, all_ms,
           ms(puncher.worst_ns));
    printf("\"append_mib_s\":%.2f,\"appends\":%llu,\"append_worst_ms\":%.3f,", append_mib_s(),
           (unsigned long long)appender.writes, ms(appender.worst_ns));
    latency_print_json(lat);
    printf(",");
    print_json_check();
}

static void print_table(void)
{
    const struct latency *lat = &reader.lat;

    printf("%s file in %s, %.1f s%s\n", file_kind(), opt.dir, (double)reader.wall_ns / 1e9,
           atomic_load(&out_of_room) ? " (ended early: no more room to append)" : "");
    printf("  reader    %llu reads, p50 %.0f us, p99 %.0f us, p99.9 %.0f us, worst %.1f ms\n",
           (unsigned long long)lat->count, latency_percentile_us(lat, 0.5),
           latency_percentile_us(lat, 0.99), latency_percentile_us(lat, 0.999), ms(lat->worst_ns));
    printf("            stalled %.1f %% of the time (inside reads of 5 ms or more)\n",
           100 * stalled_share());
    printf("  puncher   %llu of %llu punches in %.0f ms, worst %.1f ms\n",
           (unsigned long long)puncher.done, (unsigned long long)puncher.total, ms(puncher.wall_ns),
           ms(puncher.worst_ns));
    printf("  appender  %.0f MiB/s in %llu writes, worst %.0f ms\n", append_mib_s(),
           (unsigned long long)appender.writes, ms(appender.worst_ns));
    printf("  data      %s; last close %.1f ms; st_blocks off by %lld KiB\n",
           check.ok ? "as it must be" : "WRONG", check.close_ms, (long long)check.excess / 1024);
    latency_print_bars(lat, reader.wall_ns);
}

static void print_punches(void)
{
    double mean_ns = (double)puncher.wall_ns / (double)puncher.total;

    if (opt.json) {
        printf("{\"program\":\"one_inode\",\"file\":\"%s\",\"order\":\"%s\",\"punches\":%llu,"
               "\"punch_mean_ns\":%.1f,",
               file_kind(), opt.random ? "random" : "ascending", (unsigned long long)puncher.done,
               mean_ns);
        print_json_check();
        return;
    }
    printf("%s file in %s: %llu punches of 4 KiB, %s: %.0f ns each, last close %.1f ms, data %s\n",
           file_kind(), opt.dir, (unsigned long long)puncher.done,
           opt.random ? "random order" : "ascending", mean_ns, check.close_ms,
           check.ok ? "as it must be" : "WRONG");
}

/* ---- the two runs ---- */

static void run_workload(void)
{
    pthread_t threads[3];
    void *buf = big_buffer(opt.append_bytes);

    block_fill(buf, opt.append_bytes);
    puncher.total = opt.punch_bytes / BLOCK_BYTES;
    pthread_barrier_init(&start_line, NULL, 4);
    if (pthread_create(&threads[0], NULL, read_loop, NULL) ||
        pthread_create(&threads[1], NULL, punch_loop, NULL) ||
        pthread_create(&threads[2], NULL, append_loop, buf))
        die(3, "cannot start three threads");
    pthread_barrier_wait(&start_line);
    uint64_t end = now_ns() + (uint64_t)(opt.seconds * 1e9);
    while (now_ns() < end && !atomic_load(&stop) && !atomic_load(&out_of_room))
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    munmap(buf, opt.append_bytes);
}

/* How long a caller waits for one punch to be accepted, with nothing beside it. */
static void run_punches(void)
{
    uint64_t count = opt.punch_only, random = 88172645463325252ull;
    uint32_t *order = big_buffer(count * sizeof(*order));

    for (uint64_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (uint64_t i = count - 1; opt.random && i > 0; i--) {
        uint64_t j = next_random(&random) % (i + 1);
        uint32_t swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    puncher.total = count;
    uint64_t begin = now_ns();
    while (puncher.done < count && punch_one(order[puncher.done]))
        puncher.done++;
    puncher.wall_ns = now_ns() - begin;
    munmap(order, count * sizeof(*order));
}

static const char usage[] =
    "usage: one_inode [options]      (try it with and without LD_PRELOAD=librlshim.so)\n"
    "  --dir DIR           where the file goes, a few GiB free (default: .)\n"
    "  --seconds S         how long (default: 4)\n"
    "  --append-size SIZE  one append (default: 128M)\n"
    "  --read-size SIZE    the range that is read (default: 64M)\n"
    "  --punch-size SIZE   the range that is punched (default: 512M)\n"
    "  --max-bytes SIZE    end when this much was appended (default: by free space)\n"
    "  --named             keep the file's name while it runs (default: unlinked)\n"
    "  --own-inode         the reader gets a file of its own: the best one could hope for\n"
    "  --punch-only COUNT  only punches, nothing beside them: mean time of one\n"
    "  --random            with --punch-only: in random order\n"
    "  --json              one line of JSON instead of the table\n"
    "Sizes take K, M, G and are multiples of 4K, at most 1G (--max-bytes: any).\n";

static void parse_options(int argc, char **argv)
{
    static const struct option longs[] = {{"dir", 1, NULL, 'd'},
                                          {"seconds", 1, NULL, 's'},
                                          {"append-size", 1, NULL, 'a'},
                                          {"read-size", 1, NULL, 'r'},
                                          {"punch-size", 1, NULL, 'p'},
                                          {"max-bytes", 1, NULL, 'm'},
                                          {"punch-only", 1, NULL, 'P'},
                                          {"named", 0, &opt.named, 1},
                                          {"own-inode", 0, &opt.own_inode, 1},
                                          {"random", 0, &opt.random, 1},
                                          {"json", 0, &opt.json, 1},
                                          {"help", 0, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int c, at = 0;
    while ((c = getopt_long(argc, argv, "", longs, &at)) != -1) {
        const char *name = longs[at].name;
        if (c == '?') {
            fputs(usage, stderr);
            exit(2);
        } else if (c == 'h') {
            fputs(usage, stdout);
            exit(0);
        } else if (c == 'd') {
            opt.dir = optarg;
        } else if (c == 's') {
            opt.seconds = parse_number(name, optarg, 3600);
        } else if (c == 'a') {
            opt.append_bytes = parse_range(name, optarg);
        } else if (c == 'r') {
            opt.read_bytes = parse_range(name, optarg);
        } else if (c == 'p') {
            opt.punch_bytes = parse_range(name, optarg);
        } else if (c == 'm') {
            opt.max_bytes = parse_size(name, optarg);
        } else if (c == 'P') {
            opt.punch_only = (uint64_t)parse_number(name, optarg, 1 << 20);
        }
    }
    if (optind < argc)
        die(2, "unexpected argument: %s (see --help)", argv[optind]);
    if (opt.random && !opt.punch_only)
        die(2, "--random goes with --punch-only");
    if (opt.punch_only) {
        opt.own_inode = false;
        opt.read_bytes = BLOCK_BYTES;
        opt.punch_bytes = opt.punch_only * BLOCK_BYTES;
    }
}

int main(int argc, char **argv)
{
    parse_options(argc, argv);
    block_init();
    check_room(opt.punch_bytes + opt.read_bytes * (opt.own_inode ? 2 : 1));
    atexit(remove_names);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    signal(SIGHUP, on_signal);
    open_files();
    if (opt.punch_only)
        run_punches();
    else
        run_workload();
    settle_and_check();
    if (opt.punch_only)
        print_punches();
    else if (opt.json)
        print_json();
    else
        print_table();
    return check.ok ? 0 : 1;
}
