/* SPDX-License-Identifier: MIT */
/* target: see target.h. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd.h"
#include "target.h"

#define WAIT_MS  5000
#define LOOK_MS  20
#define FILES_ON (((uint64_t)1 << 28) - 1) /* WORD_FILES in state.h */

bool target_get(const struct target *t, uint64_t address, void *buf, size_t n)
{
    return pread(t->mem, buf, n, (off_t)address) == (ssize_t)n;
}

bool target_put(const struct target *t, uint64_t address, const void *buf, size_t n)
{
    return pwrite(t->mem, buf, n, (off_t)address) == (ssize_t)n;
}

bool target_put_32(const struct target *t, uint64_t address, uint32_t value)
{
    return target_put(t, address, &value, sizeof value);
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

    if (!target_get(t, hash, head, sizeof head) || head[0] > 65536 || head[2] > 65536)
        return 0;
    buckets = hash + sizeof head + (uint64_t)head[2] * 8;
    chains = buckets + (uint64_t)head[0] * 4;
    for (uint32_t i = 0; i < head[0]; i++)
        if (target_get(t, buckets + (uint64_t)i * 4, &bucket, 4) && bucket > last)
            last = bucket;
    if (last < head[1])
        return head[1];
    for (; last < 1u << 20; last++)
        if (!target_get(t, chains + (uint64_t)(last - head[1]) * 4, &link, 4) || (link & 1) != 0)
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
    if (!target_get(t, t->base, &e, sizeof e) || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 ||
        e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_phentsize != sizeof p)
        return false;
    for (unsigned i = 0; i < e.e_phnum && i < 64; i++) {
        if (!target_get(t, t->base + e.e_phoff + (uint64_t)i * sizeof p, &p, sizeof p))
            return false;
        if (p.p_type == PT_DYNAMIC) {
            dynamic = t->base + p.p_vaddr;
            end = dynamic + p.p_memsz;
        }
    }
    for (; dynamic != 0 && dynamic < end && target_get(t, dynamic, &d, sizeof d);
         dynamic += sizeof d) {
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

        if (!target_get(t, s->table + i * sizeof sym, &sym, sizeof sym))
            return 0;
        if (sym.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(sym.st_info) == STT_OBJECT &&
            sym.st_name < s->strings_size && target_get(t, s->strings + sym.st_name, seen, n) &&
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

int target_refused(const struct target *t, int error)
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

    if (target_get(t, t->done, &done, sizeof done) && done != 0)
        return true;
    if (!target_get(t, t->word, &word, sizeof word) || (word & FILES_ON) != 0) {
        *looks = 0;
        return false;
    }
    return ++*looks >= 3;
}

int target_wait_quiet(const struct target *t, bool *ended)
{
    struct timespec pause = {.tv_nsec = LOOK_MS * 1000000l};
    unsigned looks = 0;
    char byte;

    *ended = false;
    for (int ms = 0; ms <= WAIT_MS; ms += LOOK_MS) {
        if (is_quiet(t, &looks)) {
            return EXIT_WORKED;
        }
        if (!target_get(t, t->base, &byte, 1)) {
            *ended = true;
            return EXIT_WORKED;
        }
        nanosleep(&pause, NULL);
    }
    return fail(t->cmd,
                "process %u is told, but has not become quiet within %d s (is it stopped, or the "
                "disk very busy?); nothing new is deferred",
                t->pid, WAIT_MS / 1000);
}

int target_find(struct target *t)
{
    struct symbols s;
    char path[64];
    uint64_t state_at = 0;
    int error = find_base(t);

    if (error != 0)
        return target_refused(t, error);
    if (t->base == 0)
        return fail(t->cmd, "process %u does not run with librlshim.so", t->pid);
    snprintf(path, sizeof path, "/proc/%u/mem", t->pid);
    t->mem = open(path, O_RDWR | O_CLOEXEC);
    if (t->mem < 0)
        return target_refused(t, errno);
    if (read_symbols(t, &s)) {
        t->control = find_symbol(t, &s, "rl_control");
        t->done = find_symbol(t, &s, "rl_control_done");
        state_at = find_symbol(t, &s, "rl_state_at");
        t->order = find_symbol(t, &s, "rl_order");
    }
    if (t->control == 0 || t->done == 0 || state_at == 0 ||
        !target_get(t, state_at, &t->word, sizeof t->word))
        return fail(t->cmd, "the librlshim.so in process %u has no switch: another version?",
                    t->pid);
    return EXIT_WORKED;
}
