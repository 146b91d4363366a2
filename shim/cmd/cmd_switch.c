/* SPDX-License-Identifier: MIT */
/*
 * cmd_switch: rlshim off PID, rlshim on PID.
 *
 * Everything is read from the process's memory, not from the library's file: that may have been
 * replaced, deleted, or lie in another mount namespace. The memory is not trusted to be well
 * formed.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd.h"

#define WAIT_MS  5000
#define LOOK_MS  20
#define FILES_ON (((uint64_t)1 << 28) - 1) /* WORD_FILES in state.h */

struct target {
    const char *cmd;
    unsigned pid;
    int mem;
    uint64_t base;          /* of librlshim.so */
    uint64_t control, done; /* addresses */
    uint64_t word;          /* address of the state word */
};

static bool get(const struct target *t, uint64_t address, void *buf, size_t n)
{
    return pread(t->mem, buf, n, (off_t)address) == (ssize_t)n;
}

static bool put(const struct target *t, uint64_t address, uint32_t value)
{
    return pwrite(t->mem, &value, sizeof value, (off_t)address) == (ssize_t)sizeof value;
}

/* The address of a symbol through the System V or GNU tables of the dynamic section. */
struct symbols {
    uint64_t table, strings, strings_size, count;
};

/* How many symbols there are, from DT_GNU_HASH: the end of the longest chain. */
static uint64_t count_gnu(const struct target *t, uint64_t hash)
{
    uint32_t head[4], bucket, last = 0, link;
    uint64_t buckets, chains;

    if (!get(t, hash, head, sizeof head) || head[0] > 65536 || head[2] > 65536)
        return 0;
    buckets = hash + sizeof head + (uint64_t)head[2] * 8;
    chains = buckets + (uint64_t)head[0] * 4;
    for (uint32_t i = 0; i < head[0]; i++)
        if (get(t, buckets + (uint64_t)i * 4, &bucket, 4) && bucket > last)
            last = bucket;
    if (last < head[1])
        return head[1];
    for (; last < 1u << 20; last++)
        if (!get(t, chains + (uint64_t)(last - head[1]) * 4, &link, 4) || (link & 1) != 0)
            break;
    return (uint64_t)last + 1;
}

static bool read_symbols(const struct target *t, struct symbols *s)
{
    Elf64_Ehdr e;
    Elf64_Phdr p;
    Elf64_Dyn d;
    uint64_t dynamic = 0, hash = 0, end = 0;

    memset(s, 0, sizeof *s);
    if (!get(t, t->base, &e, sizeof e) || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 ||
        e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_phentsize != sizeof p)
        return false;
    for (unsigned i = 0; i < e.e_phnum && i < 64; i++) {
        if (!get(t, t->base + e.e_phoff + (uint64_t)i * sizeof p, &p, sizeof p))
            return false;
        if (p.p_type == PT_DYNAMIC) {
            dynamic = t->base + p.p_vaddr;
            end = dynamic + p.p_memsz;
        }
    }
    for (; dynamic != 0 && dynamic < end && get(t, dynamic, &d, sizeof d); dynamic += sizeof d) {
        /* glibc has relocated these in place, musl has not. */
        uint64_t at = d.d_un.d_ptr < t->base ? d.d_un.d_ptr + t->base : d.d_un.d_ptr;

        if (d.d_tag == DT_NULL)
            break;
        if (d.d_tag == DT_SYMTAB)
            s->table = at;
        else if (d.d_tag == DT_STRTAB)
            s->strings = at;
        else if (d.d_tag == DT_STRSZ)
            s->strings_size = d.d_un.d_val;
        else if (d.d_tag == DT_GNU_HASH)
            hash = at;
    }
    if (hash != 0)
        s->count = count_gnu(t, hash);
    return s->table != 0 && s->strings != 0 && s->count != 0;
}

static uint64_t find_symbol(const struct target *t, const struct symbols *s, const char *name)
{
    char seen[64];
    size_t n = strlen(name) + 1;

    for (uint64_t i = 0; i < s->count; i++) {
        Elf64_Sym sym;

        if (!get(t, s->table + i * sizeof sym, &sym, sizeof sym))
            return 0;
        if (sym.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(sym.st_info) == STT_OBJECT &&
            sym.st_name < s->strings_size && get(t, s->strings + sym.st_name, seen, n) &&
            memcmp(seen, name, n) == 0)
            return t->base + sym.st_value;
    }
    return 0;
}

/* The lowest mapping of a file called librlshim.so… */
static int find_base(struct target *t)
{
    char path[64], line[8192];
    FILE *f;

    snprintf(path, sizeof path, "/proc/%u/maps", t->pid);
    f = fopen(path, "re");
    if (f == NULL)
        return errno;
    while (t->base == 0 && fgets(line, sizeof line, f) != NULL) {
        const char *slash = strrchr(line, '/');

        if (slash != NULL && strncmp(slash, "/librlshim.so", 13) == 0)
            t->base = strtoull(line, NULL, 16);
    }
    fclose(f);
    return 0;
}

static int refused(const struct target *t, int error)
{
    int scope = 0;
    FILE *f;

    if (error == ENOENT || error == ESRCH)
        return fail(t->cmd, "there is no process %u", t->pid);
    if (error != EACCES && error != EPERM)
        return fail(t->cmd, "process %u: %s", t->pid, strerror(error));
    f = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    if (f != NULL) {
        if (fscanf(f, "%d", &scope) != 1)
            scope = 0;
        fclose(f);
    }
    if (scope != 0)
        return fail(t->cmd,
                    "process %u may not be changed from outside: kernel.yama.ptrace_scope is %d; "
                    "run this as root",
                    t->pid, scope);
    if (geteuid() == 0)
        return fail(t->cmd,
                    "process %u may not be changed from outside, even by root: it is part "
                    "of the system, or in a user namespace of others",
                    t->pid);
    return fail(t->cmd,
                "process %u may not be changed from outside: it belongs to another user, or "
                "protects itself; run this as root",
                t->pid);
}

/* Quiet: the library says so, or no file is on in three looks: what was about to turn one on when
 * the switch went over has long looked at it again. */
static bool is_quiet(const struct target *t, unsigned *looks)
{
    uint32_t done = 0;
    uint64_t word = 1;

    if (get(t, t->done, &done, sizeof done) && done != 0)
        return true;
    if (!get(t, t->word, &word, sizeof word) || (word & FILES_ON) != 0) {
        *looks = 0;
        return false;
    }
    return ++*looks >= 3;
}

static int wait_quiet(const struct target *t)
{
    struct timespec pause = {.tv_nsec = LOOK_MS * 1000000l};
    unsigned looks = 0;
    char byte;

    for (int ms = 0; ms <= WAIT_MS; ms += LOOK_MS) {
        if (is_quiet(t, &looks)) {
            printf("process %u: rlshim is off and everything is applied\n", t->pid);
            return EXIT_WORKED;
        }
        if (!get(t, t->base, &byte, 1)) {
            printf("process %u has ended\n", t->pid);
            return EXIT_WORKED;
        }
        nanosleep(&pause, NULL);
    }
    return fail(t->cmd,
                "process %u is told, but has not become quiet within %d s (is it stopped, or the "
                "disk very busy?); nothing new is deferred",
                t->pid, WAIT_MS / 1000);
}

static int find_switch(struct target *t)
{
    struct symbols s;
    char path[64];
    uint64_t state_at = 0;
    int error = find_base(t);

    if (error != 0)
        return refused(t, error);
    if (t->base == 0)
        return fail(t->cmd, "process %u does not run with librlshim.so", t->pid);
    snprintf(path, sizeof path, "/proc/%u/mem", t->pid);
    t->mem = open(path, O_RDWR | O_CLOEXEC);
    if (t->mem < 0)
        return refused(t, errno);
    if (read_symbols(t, &s)) {
        t->control = find_symbol(t, &s, "rl_control");
        t->done = find_symbol(t, &s, "rl_control_done");
        state_at = find_symbol(t, &s, "rl_state_at");
    }
    if (t->control == 0 || t->done == 0 || state_at == 0 ||
        !get(t, state_at, &t->word, sizeof t->word))
        return fail(t->cmd, "the librlshim.so in process %u has no switch: another version?",
                    t->pid);
    return EXIT_WORKED;
}

int cmd_switch(int argc, char **argv)
{
    struct target t = {.cmd = argv[0], .mem = -1};
    uint32_t value = strcmp(argv[0], "off") == 0;
    uint64_t pid;
    int status;

    if (argc != 2)
        return misuse(argv[0],
                      argc < 2 ? "no process number was given" : "it takes one process number");
    if (!parse_number(argv[1], INT32_MAX, &pid) || pid == 0)
        return misuse(argv[0], "'%.80s' is not a process number", argv[1]);
    t.pid = (unsigned)pid;
    status = find_switch(&t);
    if (status == EXIT_WORKED) {
        if (!put(&t, t.done, 0) || !put(&t, t.control, value))
            status = refused(&t, errno);
        else if (value != 0)
            status = wait_quiet(&t);
        else
            printf("process %u: rlshim is on again\n", t.pid);
    }
    if (t.mem >= 0)
        close(t.mem);
    return status;
}
