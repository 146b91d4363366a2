/* SPDX-License-Identifier: MIT */
/* elf: see elf.h. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "elf.h"

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OUR_MACHINE EM_AARCH64
#endif

enum { LIBRARIES_MAX = 256 };

struct image {
    const unsigned char *bytes;
    size_t size;
};

/* n bytes at offset, or NULL: all accesses to a file go through here. */
static const void *at(const struct image *f, uint64_t offset, uint64_t n)
{
    return offset <= f->size && n <= f->size - offset ? f->bytes + offset : NULL;
}

/* A NUL-terminated string at offset, or NULL. */
static const char *string_at(const struct image *f, uint64_t offset)
{
    const char *s = at(f, offset, 1);

    return s != NULL && memchr(s, '\0', f->size - offset) != NULL ? s : NULL;
}

static int map(const char *path, struct image *f)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int error = 0;
    void *p = MAP_FAILED;

    if (fd < 0)
        return errno;
    if (fstat(fd, &st) != 0)
        error = errno;
    else if (!S_ISREG(st.st_mode))
        error = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    else if (st.st_size == 0)
        error = ENOEXEC;
    else if ((p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED)
        error = errno;
    close(fd);
    if (error == 0) {
        f->bytes = p;
        f->size = (size_t)st.st_size;
    }
    return error;
}

static void unmap(struct image *f)
{
    munmap((void *)f->bytes, f->size);
}

static const Elf64_Phdr *phdr(const struct image *f, const Elf64_Ehdr *e, unsigned i)
{
    if (e->e_phentsize != sizeof(Elf64_Phdr) || i >= e->e_phnum || e->e_phoff % 8 != 0)
        return NULL;
    return at(f, e->e_phoff + (uint64_t)i * sizeof(Elf64_Phdr), sizeof(Elf64_Phdr));
}

/* File offset of a virtual address, or UINT64_MAX. */
static uint64_t offset_of(const struct image *f, const Elf64_Ehdr *e, uint64_t address)
{
    const Elf64_Phdr *p;

    for (unsigned i = 0; (p = phdr(f, e, i)) != NULL; i++)
        if (p->p_type == PT_LOAD && address >= p->p_vaddr && address - p->p_vaddr < p->p_filesz)
            return p->p_offset + (address - p->p_vaddr);
    return UINT64_MAX;
}

static void read_script(const struct image *f, struct elf_facts *out)
{
    const char *s = (const char *)f->bytes + 2;
    const char *end = memchr(s, '\n', f->size - 2);
    const char *word;

    if (end == NULL)
        end = (const char *)f->bytes + f->size;
    while (s < end && (*s == ' ' || *s == '\t'))
        s++;
    for (word = s; s < end && *s != ' ' && *s != '\t' && *s != '\r';)
        s++;
    snprintf(out->interpreter, sizeof out->interpreter, "%.*s", (int)(s - word), word);
    while (s < end && (*s == ' ' || *s == '\t'))
        s++;
    for (word = s; s < end && *s != ' ' && *s != '\t' && *s != '\r';)
        s++;
    snprintf(out->script_argument, sizeof out->script_argument, "%.*s", (int)(s - word), word);
}

/* Go programs carry a note of the name "Go" with their build id. */
static void read_notes(const struct image *f, const Elf64_Phdr *p, struct elf_facts *out)
{
    uint64_t pos = 0;

    while (pos + 12 <= p->p_filesz) {
        uint32_t head[3]; /* sizes of name and description, type */
        const void *h = at(f, p->p_offset + pos, sizeof head);
        const char *name;

        if (h == NULL)
            return;
        memcpy(head, h, sizeof head);
        name = at(f, p->p_offset + pos + sizeof head, head[0]);
        if (name == NULL)
            return;
        if (head[0] == 4 && memcmp(name, "Go\0", 4) == 0)
            out->go = true;
        pos += sizeof head + (((uint64_t)head[0] + 3) & ~(uint64_t)3) +
               (((uint64_t)head[1] + 3) & ~(uint64_t)3);
    }
}

/* Bytes that read as system calls, in executable segments. */
static uint64_t count_syscalls(const struct image *f, const Elf64_Phdr *p)
{
    const unsigned char *code = at(f, p->p_offset, p->p_filesz);
    uint64_t n = 0;

    if (code == NULL)
        return 0;
#if defined(__x86_64__)
    for (uint64_t i = 0; i + 1 < p->p_filesz; i++)
        n += code[i] == 0x0f && code[i + 1] == 0x05;
#else
    for (uint64_t i = 0; i + 3 < p->p_filesz; i += 4)
        n += memcmp(code + i, "\x01\x00\x00\xd4", 4) == 0;
#endif
    return n;
}

struct walk {
    struct elf_facts *facts;
    unsigned count;
    char *seen[LIBRARIES_MAX];
};

static void walk_library(struct walk *w, const char *name, const char *search, const char *origin);

static void read_dynamic(struct walk *w, const char *path, const struct image *f,
                         const Elf64_Ehdr *e, const Elf64_Phdr *p)
{
    uint64_t strings = UINT64_MAX, search = UINT64_MAX;
    const Elf64_Dyn *d = at(f, p->p_offset, p->p_filesz);
    const char *search_text = NULL;
    size_t n = p->p_filesz / sizeof *d;
    char origin[4096] = "";
    const char *slash = strrchr(path, '/');

    if (d == NULL || p->p_offset % 8 != 0)
        return;
    for (size_t i = 0; i < n && d[i].d_tag != DT_NULL; i++) {
        if (d[i].d_tag == DT_STRTAB)
            strings = offset_of(f, e, d[i].d_un.d_ptr);
        else if (d[i].d_tag == DT_RUNPATH || d[i].d_tag == DT_RPATH)
            search = d[i].d_un.d_val;
    }
    if (strings == UINT64_MAX)
        return;
    if (slash != NULL)
        snprintf(origin, sizeof origin, "%.*s", (int)(slash - path), path);
    if (search < f->size)
        search_text = string_at(f, strings + search);
    for (size_t i = 0; i < n && d[i].d_tag != DT_NULL; i++) {
        const char *name;

        if (d[i].d_tag != DT_NEEDED || d[i].d_un.d_val >= f->size)
            continue;
        name = string_at(f, strings + d[i].d_un.d_val);
        if (name != NULL)
            walk_library(w, name, search_text, origin);
    }
}

static const Elf64_Ehdr *header(const struct image *f)
{
    const Elf64_Ehdr *e = at(f, 0, sizeof *e);

    return e != NULL && memcmp(e->e_ident, ELFMAG, SELFMAG) == 0 &&
                   e->e_ident[EI_CLASS] == ELFCLASS64 && e->e_ident[EI_DATA] == ELFDATA2LSB &&
                   e->e_machine == OUR_MACHINE
               ? e
               : NULL;
}

/* What makes system calls for a living, and what the library stands in front of. */
static bool is_c_library(const char *name)
{
    static const char *const known[] = {"libc.so",       "libpthread.so", "libdl.so",   "librt.so",
                                        "ld-linux",      "libm.so",       "librlshim.", "libanl.so",
                                        "libresolv.so.", "libnsl.so"};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(name, known[i], strlen(known[i])) == 0)
            return true;
    return false;
}

static void count_in_library(struct walk *w, const char *path, const struct image *f,
                             const Elf64_Ehdr *e)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    const Elf64_Phdr *p;
    uint64_t n = 0;

    if (is_c_library(name))
        return;
    for (unsigned i = 0; (p = phdr(f, e, i)) != NULL; i++)
        if (p->p_type == PT_LOAD && (p->p_flags & PF_X) != 0)
            n += count_syscalls(f, p);
    w->facts->library_syscalls += n;
    if (n > w->facts->most) {
        w->facts->most = n;
        snprintf(w->facts->library, sizeof w->facts->library, "%s", name);
    }
}

static bool walk_file(struct walk *w, const char *path)
{
    struct image f;
    const Elf64_Ehdr *e;
    const Elf64_Phdr *p;

    if (map(path, &f) != 0)
        return false;
    e = header(&f);
    if (e != NULL)
        count_in_library(w, path, &f, e);
    if (e != NULL)
        for (unsigned i = 0; (p = phdr(&f, e, i)) != NULL; i++)
            if (p->p_type == PT_DYNAMIC)
                read_dynamic(w, path, &f, e, p);
    unmap(&f);
    return e != NULL;
}

/* Each directory of a colon-separated list, $ORIGIN replaced. */
static bool walk_list(struct walk *w, const char *list, const char *origin, const char *name)
{
    char path[8192];

    for (; list != NULL && *list != '\0'; list += *list == ':') {
        size_t len = strcspn(list, ":");
        bool relative = strncmp(list, "$ORIGIN", 7) == 0 || strncmp(list, "${ORIGIN}", 9) == 0;
        size_t skip = !relative ? 0 : list[1] == '{' ? 9 : 7;

        snprintf(path, sizeof path, "%s%.*s/%s", relative ? origin : "", (int)(len - skip),
                 list + skip, name);
        if (len != 0 && walk_file(w, path))
            return true;
        list += len;
    }
    return false;
}

static void walk_library(struct walk *w, const char *name, const char *search, const char *origin)
{
#if defined(__x86_64__)
    static const char usual[] = "/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib64:/usr/lib64:"
                                "/usr/local/lib:/lib:/usr/lib";
#else
    static const char usual[] = "/lib/aarch64-linux-gnu:/usr/lib/aarch64-linux-gnu:/lib64:"
                                "/usr/lib64:/usr/local/lib:/lib:/usr/lib";
#endif

    for (unsigned i = 0; i < w->count; i++)
        if (strcmp(w->seen[i], name) == 0)
            return;
    if (w->count == LIBRARIES_MAX || (w->seen[w->count] = strdup(name)) == NULL)
        return;
    w->count++;
    w->facts->uses_uring |= strncmp(name, "liburing.so", 11) == 0;
    w->facts->uses_aio |= strncmp(name, "libaio.so", 9) == 0;
    if (strchr(name, '/') != NULL)
        walk_file(w, name);
    else if (!walk_list(w, search, origin, name) &&
             !walk_list(w, getenv("LD_LIBRARY_PATH"), origin, name))
        walk_list(w, usual, origin, name);
}

static void read_program(const char *path, const struct image *f, bool deep, struct elf_facts *out)
{
    const Elf64_Ehdr *e = header(f);
    const Elf64_Phdr *p;
    struct walk *w = deep ? calloc(1, sizeof *w) : NULL;

    out->kind = ELF_STATIC;
    if (w != NULL)
        w->facts = out;
    for (unsigned i = 0; (p = phdr(f, e, i)) != NULL; i++) {
        if (p->p_type == PT_INTERP) {
            const char *s = string_at(f, p->p_offset);

            out->kind = ELF_DYNAMIC;
            snprintf(out->interpreter, sizeof out->interpreter, "%s", s != NULL ? s : "");
        } else if (p->p_type == PT_NOTE) {
            read_notes(f, p, out);
        } else if (p->p_type == PT_LOAD && (p->p_flags & PF_X) != 0 && deep) {
            out->syscalls += count_syscalls(f, p);
        } else if (p->p_type == PT_DYNAMIC && w != NULL) {
            read_dynamic(w, path, f, e, p);
        }
    }
    for (unsigned i = 0; w != NULL && i < w->count; i++)
        free(w->seen[i]);
    free(w);
}

void elf_examine(const char *path, bool deep, struct elf_facts *out)
{
    struct image f;

    memset(out, 0, sizeof *out);
    out->error = map(path, &f);
    if (out->error == ENOEXEC)
        out->kind = ELF_OTHER;
    if (out->error != 0)
        return;
    if (f.size >= 2 && memcmp(f.bytes, "#!", 2) == 0) {
        out->kind = ELF_SCRIPT;
        read_script(&f, out);
    } else if (f.size < sizeof(Elf32_Ehdr) || memcmp(f.bytes, ELFMAG, SELFMAG) != 0) {
        out->kind = ELF_OTHER;
    } else if (header(&f) == NULL) {
        uint16_t machine;

        memcpy(&machine, f.bytes + offsetof(Elf32_Ehdr, e_machine), sizeof machine);
        out->kind = ELF_FOREIGN;
        out->bits = f.bytes[EI_CLASS] == ELFCLASS32 ? 32 : 64;
        out->machine = machine;
    } else {
        read_program(path, &f, deep, out);
    }
    unmap(&f);
}
