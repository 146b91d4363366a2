/* SPDX-License-Identifier: MIT */
/*
 * The programs that die with hole punches queued; see keeper.h. Started by keeper.c.
 *
 *   keeper_victim WHAT DIR STATS     works, restarts, or a way to end
 */
#include "keeper.h"

#include "../../lockmgr/rawcall.h"

static int data_fd;

static void do_punch(int block)
{
    journal->about[block] = 0;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (fallocate(data_fd, PUNCH, (off_t)block * BLOCK, BLOCK) != 0)
        die("fallocate");
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    journal->done[block] = 0;
}

static void do_write(int block, uint64_t value)
{
    unsigned char buf[BLOCK];

    fill(buf, value, block);
    journal->about[block] = value;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (pwrite(data_fd, buf, BLOCK, (off_t)block * BLOCK) != BLOCK)
        die("pwrite");
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    journal->done[block] = value;
}

/* Punches two of three, in runs and alone; writes the rest, often where it has just punched. */
static void *hand(void *arg)
{
    int first = (int)(intptr_t)arg * (BLOCKS / HANDS);
    uint64_t seed = (uint64_t)getpid() * 2654435761u + (uint64_t)first + 1;
    uint64_t value = 100;

    for (;;) {
        uint64_t r = next_random(&seed);
        int block = first + (int)(r >> 8) % (BLOCKS / HANDS);

        if (block < first)
            block += BLOCKS / HANDS;
        if (r % 16 == 0)
            do_write(block, ++value);
        else if (r % 16 == 1)
            for (int i = block; i < block + 16 && i < first + BLOCKS / HANDS; i++)
                do_punch(i);
        else
            do_punch(block);
        if (r % 64 == 7)
            sched_yield();
    }
    return NULL;
}

static void open_data(void)
{
    data_fd = open(data, O_RDWR);
    if (data_fd < 0)
        die(data);
}

/* Long enough for a keeper to come and evidence to be found; the last ones are then queued. */
static void punch_for_a_while(void)
{
    for (int i = 0; i < 40; i++) {
        for (int k = 0; k < 8; k++)
            do_punch((i * 8 + k) % 256);
        nap_us(3000);
    }
}

static void come_to(uint32_t step)
{
    __atomic_store_n(&journal->step, step, __ATOMIC_SEQ_CST);
}

static int works(void)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t thread;

    open_data();
    if (flock(data_fd, LOCK_EX | LOCK_NB) != 0)
        die("flock");
    if (fcntl(data_fd, F_OFD_SETLK, &whole) != 0)
        die("F_OFD_SETLK");
    if (bind(listener, (struct sockaddr *)&in, sizeof in) != 0 || listen(listener, 5) != 0 ||
        getsockname(listener, (struct sockaddr *)&in, &len) != 0)
        die("listen");
    journal->port = in.sin_port;
    for (intptr_t i = 1; i < HANDS; i++)
        if (pthread_create(&thread, NULL, hand, (void *)i) != 0)
            die("pthread_create");
    come_to(1);
    hand((void *)0);
    return 0;
}

static void exit_from_handler(int sig)
{
    (void)sig;
    _exit(0);
}

static void *exit_from_thread(void *arg)
{
    (void)arg;
    exit(0);
}

/* Sums up in `result` how often a wait for children of any kind did not say that there are none. */
static void *wait_for_any(void *arg)
{
    int32_t met = 0;

    while (__atomic_load_n(&journal->order, __ATOMIC_SEQ_CST) == 0) {
        siginfo_t info;
        int status;

        if (waitpid(-1, &status, __WALL) != -1 || errno != ECHILD)
            met++;
        if (waitpid(-1, &status, __WCLONE | WNOHANG) != -1 || errno != ECHILD)
            met++;
        if (wait4(-1, &status, WNOHANG, NULL) != -1 || errno != ECHILD)
            met++;
        if (waitid(P_ALL, 0, &info, WEXITED | __WALL | WNOHANG) != -1 || errno != ECHILD)
            met++;
    }
    journal->result = met;
    (void)arg;
    return NULL;
}

static int ends(const char *how)
{
    pthread_t thread;
    int fd;

    if (strcmp(how, "setsid") == 0)
        setsid();
    if (strcmp(how, "daemon") == 0) {
        if (fork() != 0)
            _exit(0);
        setsid();
        for (int i = 0; i < 256; i++)
            close(i);
        open("/dev/null", O_RDWR);
        dup2(0, 1);
        dup2(0, 2);
    }
    if (strcmp(how, "reaper") == 0)
        prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (strcmp(how, "waits") == 0) {
        pthread_create(&thread, NULL, wait_for_any, NULL);
        /* The worker, and with it the keeper, leaves and comes again. */
        for (int i = 0; i < 12; i++) {
            open_data();
            punch_for_a_while();
            close(data_fd);
            nap_us(350000);
        }
        journal->order = 1;
        pthread_join(thread, NULL);
        return 0;
    }
    if (strcmp(how, "leases") == 0) {
        for (int i = 0; i < 100; i++) {
            open_data();
            for (int k = 0; k < 30; k++) {
                do_punch(k);
                nap_us(300);
            }
            close(data_fd);
            /* Nobody else has it open for writing now; a keeper that still had it would be. */
            fd = open(data, O_RDWR);
            if (fcntl(fd, F_SETLEASE, F_WRLCK) != 0)
                journal->result++;
            close(fd);
        }
        return 0;
    }
    open_data();
    punch_for_a_while();
    for (int i = 256; i < 1024; i += 2)
        do_punch(i);
    come_to(1);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "fault") == 0)
        raise(SIGSEGV);
    if (strcmp(how, "handler") == 0) {
        signal(SIGALRM, exit_from_handler);
        raise(SIGALRM);
    }
    if (strcmp(how, "thread") == 0)
        pthread_create(&thread, NULL, exit_from_thread, NULL);
    if (strcmp(how, "exec") == 0)
        execl("/bin/true", "true", (char *)NULL);
    if (strcmp(how, "unseen") == 0) {
        char *const args[] = {(char *)(uintptr_t) "sleep", (char *)(uintptr_t) "20", NULL};
        char *const none[] = {NULL};

        rl_raw(SYS_execve, "/bin/sleep", args, none); /* not through libc */
    }
    if (strcmp(how, "no_exec") == 0) {
        execl("/nowhere/at/all", "x", (char *)NULL);
        punch_for_a_while(); /* the exec has ended deferral: it comes again */
        for (int i = 257; i < 1024; i += 2)
            do_punch(i);
        raise(SIGKILL);
    }
    if (strcmp(how, "term") == 0)
        raise(SIGTERM);
    if (strcmp(how, "return") == 0)
        return 0;
    for (;;) { /* killed, or told to go on */
        if (__atomic_load_n(&journal->order, __ATOMIC_SEQ_CST) == 1) {
            punch_for_a_while();
            come_to(2);
            journal->order = 2;
        }
        nap_us(1000);
    }
}

/* A second run of the program: opens the file, writes into what the first had punched. */
static int restarts(void)
{
    come_to(11);
    open_data();
    for (int i = 256; i < 1024; i += 2)
        do_write(i, 7);
    come_to(12);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    find_paths(argv[2], argv[3]);
    journal = map_journal(false);
    return strcmp(argv[1], "works") == 0      ? works()
           : strcmp(argv[1], "restarts") == 0 ? restarts()
                                              : ends(argv[1]);
}
