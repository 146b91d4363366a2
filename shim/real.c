/* SPDX-License-Identifier: MIT */
/*
 * real: see real.h.
 *
 * dlsym(RTLD_NEXT) for 258 names costs 0.35 ms, most of what a preload library may cost at
 * start-up, and allocates for every name that is missing. So the names are looked up here, in the
 * libraries behind us in the dynamic linker's own list, through the hash table that each library
 * carries (System V gABI and the DT_GNU_HASH layout as used by binutils and glibc): 0.03 ms. dlsym
 * is only asked where a library has no such table.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>

#include "real.h"
#include "state.h"

EARLY struct real_calls real;

/* One after another, in the order of real's members. Not pointers: each of them would have to be
 * relocated in every process. */
static const char names[] =
#define CALL(ret, name, params) #name "\0"
#include "calls.def"
#undef CALL
    ;

extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

struct library {
    const ElfW(Sym) * symbols;
    const char *strings;
    const ElfW(Versym) * versions;
    const uint32_t *hash;
    uintptr_t base;
};

/* glibc relocates the addresses in the dynamic section in place, except for the vDSO's. */
static const void *dyn_pointer(const struct link_map *map, const ElfW(Dyn) * dyn)
{
    uintptr_t p = (uintptr_t)dyn->d_un.d_ptr;

    return (const void *)(p < map->l_addr ? p + map->l_addr : p);
}

static struct library library_of(const struct link_map *map)
{
    struct library lib = {.base = map->l_addr};

    for (const ElfW(Dyn) *dyn = map->l_ld; dyn->d_tag != DT_NULL; dyn++) {
        if (dyn->d_tag == DT_SYMTAB)
            lib.symbols = dyn_pointer(map, dyn);
        else if (dyn->d_tag == DT_STRTAB)
            lib.strings = dyn_pointer(map, dyn);
        else if (dyn->d_tag == DT_VERSYM)
            lib.versions = dyn_pointer(map, dyn);
        else if (dyn->d_tag == DT_GNU_HASH)
            lib.hash = dyn_pointer(map, dyn);
    }
    return lib;
}

/* Returns the end of the name. */
static const char *gnu_hash(const char *name, uint32_t *hash)
{
    uint32_t h = 5381;

    for (; *name != '\0'; name++)
        h = h * 33 + (unsigned char)*name;
    *hash = h;
    return name;
}

/* Not strcmp, which is one page of libc more that few programs need as they start. */
static bool same(const char *a, const char *b)
{
    while (*a == *b && *a != '\0')
        a++, b++;
    return *a == *b;
}

/* A definition of `name` that a plain reference would get: defined here, of the default version. */
static void *library_find(const struct library *lib, const char *name, uint32_t h)
{
    uint32_t buckets = lib->hash[0];
    uint32_t first = lib->hash[1];
    uint32_t words = lib->hash[2];
    const ElfW(Addr) *bloom = (const ElfW(Addr) *)(lib->hash + 4);
    const uint32_t *bucket = (const uint32_t *)(bloom + words);
    const uint32_t *chain = bucket + buckets;
    unsigned bits = 8 * sizeof(ElfW(Addr));
    ElfW(Addr) word = bloom[h / bits % words];
    uint32_t i;

    if ((word >> h % bits & word >> (h >> lib->hash[3]) % bits & 1) == 0 || buckets == 0)
        return NULL;
    i = bucket[h % buckets];
    for (; i >= first; i++) {
        const ElfW(Sym) *sym = &lib->symbols[i];
        uint32_t link = chain[i - first];

        if ((link | 1) == (h | 1) && same(lib->strings + sym->st_name, name) &&
            sym->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(sym->st_info) == STT_FUNC &&
            (lib->versions == NULL || (lib->versions[i] & 0x8000) == 0))
            return (void *)(lib->base + sym->st_value);
        if ((link & 1) != 0)
            break;
    }
    return NULL;
}

void real_init(void)
{
    struct library libs[64];
    size_t count = 0;
    bool ask_dlsym = false;
    const struct link_map *map = _r_debug.r_map;
    const char *name = names;

    while (map != NULL && map->l_ld != _DYNAMIC)
        map = map->l_next;
    for (map = map != NULL ? map->l_next : NULL; map != NULL; map = map->l_next) {
        struct library lib = library_of(map);

        if (lib.hash == NULL || lib.symbols == NULL || lib.strings == NULL || count == 64)
            ask_dlsym = true;
        else
            libs[count++] = lib;
    }
    for (void **place = (void **)&real; *name != '\0'; place++) {
        uint32_t h;
        const char *end = gnu_hash(name, &h);

        for (size_t l = 0; *place == NULL && l < count; l++)
            *place = library_find(&libs[l], name, h);
        if (*place == NULL && (ask_dlsym || count == 0))
            *place = dlsym(RTLD_NEXT, name);
        name = end + 1;
    }
}

void *real_vdso(const char *name, const char *other)
{
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)getauxval(AT_SYSINFO_EHDR);
    const struct link_map *map = head != NULL ? _r_debug.r_map : NULL;
    struct library lib;
    uint32_t h;
    void *found;

    /* By its dynamic section: where the vDSO was linked to differs. */
    for (; map != NULL; map = map->l_next)
        if ((uintptr_t)map->l_ld - (uintptr_t)head < 16384)
            break;
    if (map == NULL)
        return NULL;
    lib = library_of(map);
    if (lib.hash == NULL || lib.symbols == NULL || lib.strings == NULL)
        return NULL;
    gnu_hash(name, &h);
    found = library_find(&lib, name, h);
    if (found != NULL)
        return found;
    gnu_hash(other, &h);
    return library_find(&lib, other, h);
}
