/* SPDX-License-Identifier: MIT */
/*
 * symbols: addresses of a report into functions and lines (view_frame), with elfutils.
 *
 * A module is read from where it lay when the program ran, and only believed if its build id is
 * still the same. What separate debug files there are is found by elfutils' own rules.
 */
#include <dlfcn.h>
#include <elfutils/libdwfl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../text.h"
#include "view.h"

static char *debuginfo_path; /* elfutils' default */
static const Dwfl_Callbacks callbacks = {
    .find_elf = dwfl_build_id_find_elf,
    .find_debuginfo = dwfl_standard_find_debuginfo,
    .section_address = dwfl_offline_section_address,
    .debuginfo_path = &debuginfo_path,
};

enum { STATE_NEW, STATE_THERE, STATE_MISSING, STATE_OTHER };

/* One a module of one struct observed, made when it is first asked for. */
static struct {
    const struct observed *of;
    struct opened {
        int state;
        Dwfl *dwfl;
        Dwfl_Module *module;
        GElf_Addr bias;
    } * opened;
} cache;

static char *(*demangle)(const char *, char *, size_t *, int *);

void view_frames_end(void)
{
    for (uint32_t i = 0; cache.opened != NULL && i < cache.of->nmodules; i++)
        if (cache.opened[i].dwfl != NULL)
            dwfl_end(cache.opened[i].dwfl);
    free(cache.opened);
    cache.opened = NULL;
    cache.of = NULL;
}

static bool same_build(Dwfl_Module *module, const char *want)
{
    static const char digit[] = "0123456789abcdef";
    const unsigned char *bits;
    GElf_Addr at;
    int n = dwfl_module_build_id(module, &bits, &at);

    if (want[0] == '\0' || n <= 0)
        return true; /* nothing to tell by */
    for (int i = 0; i < n; i++)
        if (want[2 * i] != digit[bits[i] >> 4] || want[2 * i + 1] != digit[bits[i] & 15])
            return false;
    return want[2 * n] == '\0';
}

static void open_module(struct opened *o, const struct seen_module *m)
{
    GElf_Addr bias;
    struct stat st;

    o->state = STATE_MISSING;
    /* The report may name anything: a FIFO would be waited for. */
    if (m->path[0] != '/' || stat(m->path, &st) != 0 || !S_ISREG(st.st_mode))
        return;
    o->dwfl = dwfl_begin(&callbacks);
    if (o->dwfl == NULL)
        return;
    dwfl_report_begin(o->dwfl);
    o->module = dwfl_report_offline(o->dwfl, m->path, m->path, -1);
    dwfl_report_end(o->dwfl, NULL, NULL);
    if (o->module == NULL || dwfl_module_getelf(o->module, &bias) == NULL)
        return;
    o->bias = bias;
    o->state = same_build(o->module, m->build_id) ? STATE_THERE : STATE_OTHER;
}

static struct opened *find(const struct observed *o, uint32_t module)
{
    if (cache.of != o) {
        view_frames_end();
        cache.opened = calloc(o->nmodules != 0 ? o->nmodules : 1, sizeof *cache.opened);
        cache.of = cache.opened != NULL ? o : NULL;
        demangle = (char *(*)(const char *, char *, size_t *, int *))dlsym(
            dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL), "__cxa_demangle");
    }
    if (cache.opened == NULL)
        return NULL;
    if (cache.opened[module].state == STATE_NEW)
        open_module(&cache.opened[module], &o->modules[module]);
    return &cache.opened[module];
}

/* As the author wrote it: C++ by the C++ library if there is one, gfortran's by its rules. */
static void put_name(struct cfg_text *t, const char *name)
{
    const char *mod = strstr(name, "_MOD_");
    size_t len = strlen(name);
    char *plain;
    int status;

    if (strncmp(name, "_Z", 2) == 0 && demangle != NULL &&
        (plain = demangle(name, NULL, NULL, &status)) != NULL) {
        text_safe(t, plain, strlen(plain));
        free(plain);
    } else if (strncmp(name, "__", 2) == 0 && mod != NULL && mod > name + 2) {
        text_safe(t, name + 2, (size_t)(mod - name) - 2);
        cfg_text_add(t, "::");
        text_safe(t, mod + 5, strlen(mod + 5));
    } else if (strcmp(name, "MAIN__") == 0) {
        cfg_text_add(t, "main program");
    } else if (len > 2 && name[len - 1] == '_' && name[0] != '_' && name[len - 2] != '_') {
        text_safe(t, name, len - 1);
    } else {
        text_safe(t, name, len);
    }
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static void put_hex(struct cfg_text *t, uint64_t n)
{
    char hex[24];

    snprintf(hex, sizeof hex, "0x%llx", (unsigned long long)n);
    cfg_text_add(t, hex);
}

static bool is_beginning(const char *name)
{
    static const char *const known[] = {"__libc_start", "_start", "start_thread", "__clone",
                                        "clone"};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(name, known[i], strlen(known[i])) == 0)
            return true;
    return false;
}

bool view_frame(struct cfg_text *t, const struct observed *o, const struct seen_frame *frame)
{
    const struct seen_module *m = frame->module < o->nmodules ? &o->modules[frame->module] : NULL;
    struct opened *at = m != NULL ? find(o, frame->module) : NULL;
    GElf_Addr address = frame->address - 1; /* the call, not what follows it */
    Dwfl_Line *line;
    GElf_Off offset;
    GElf_Sym sym;
    const char *name, *source;
    int number;

    if (m == NULL) {
        cfg_text_add(t, "(code of no file)");
        return true;
    }
    if (at == NULL || at->state != STATE_THERE) {
        const char *base = base_name(m->path);

        text_safe(t, base, strlen(base));
        cfg_text_add(t, "+");
        put_hex(t, frame->address);
        if (at != NULL && at->state == STATE_OTHER)
            cfg_text_add(t, " (the file was replaced since)");
        return true;
    }
    name = dwfl_module_addrinfo(at->module, address + at->bias, &offset, &sym, NULL, NULL, NULL);
    if (name != NULL) {
        put_name(t, name);
        cfg_text_add(t, "+");
        put_hex(t, offset + 1);
    } else {
        put_hex(t, frame->address);
    }
    line = dwfl_module_getsrc(at->module, address + at->bias);
    source = line != NULL ? dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
    cfg_text_add(t, " (");
    if (source != NULL) {
        source = base_name(source);
        text_safe(t, source, strlen(source));
        cfg_text_add(t, ":");
        cfg_text_number(t, (uint64_t)number);
    } else {
        source = base_name(m->path);
        text_safe(t, source, strlen(source));
    }
    cfg_text_add(t, ")");
    return name == NULL || !is_beginning(name);
}
