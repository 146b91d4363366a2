/* SPDX-License-Identifier: MIT */
/*
 * callsite: see callsite.h.
 *
 * libunwind is used as for a foreign process (its "remote" interface) that happens to be this one:
 * then it asks us for everything, tables and memory, and has no way of its own to find them.
 */
#include <dlfcn.h>
#include <libunwind.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "../lockmgr/gate.h"
#include "callsite.h"
#include "readable.h"
#include "state.h"

#define STACK_BYTES ((size_t)128 << 10)
#define GUARD_BYTES ((size_t)4096)
#define WINDOW_NS   100000000u
#define REACH_BYTES ((uintptr_t)8 << 20) /* of the program's stack that is followed */
#define PAGE_MASK   (~(uintptr_t)4095)

#define QUOTE(x) #x
#define NAME(x)  QUOTE(x)
#if defined(__x86_64__)
#define LIBRARY "libunwind-x86_64.so.8"
#else
#define LIBRARY "libunwind-aarch64.so.8"
#endif

/* libunwind's, and glibc's. */
static struct {
    unw_addr_space_t (*create)(unw_accessors_t *, int);
    int (*init)(unw_cursor_t *, unw_addr_space_t, void *);
    int (*step)(unw_cursor_t *);
    int (*get)(unw_cursor_t *, int, unw_word_t *);
    int (*is_signal)(unw_cursor_t *);
    int (*search)(unw_addr_space_t, unw_word_t, unw_dyn_info_t *, unw_proc_info_t *, int, void *);
    int (*find_object)(void *, struct dl_find_object *);
} use;

static unw_addr_space_t space;
static uint32_t ready; /* callsite_start has succeeded */

struct place {
    uint32_t taken;
    char *stack; /* lowest address, above its guard */
};
static struct place places[CALLSITE_STACKS];

/* The registers that a function keeps, as they are in callsite_take's frame. */
struct registers {
    uintptr_t pc, sp;
#if defined(__x86_64__)
    uintptr_t rbx, rbp, r12, r13, r14, r15;
#else
    uintptr_t x[12]; /* x19 to x30 */
#endif
};

struct walk {
    struct registers regs;
    uintptr_t known_page; /* that can be read */
    struct callsite_frame *frame;
    unsigned n;
    bool cut;
    uint32_t (*module)(const struct callsite_object *object);
};

/* --- what libunwind asks --- */

static bool object_at(uintptr_t pc, struct callsite_object *object, void **tables)
{
    struct dl_find_object found;

    if (use.find_object((void *)pc, &found) != 0 || found.dlfo_link_map == NULL)
        return false;
    object->begin = (uintptr_t)found.dlfo_map_start;
    object->end = (uintptr_t)found.dlfo_map_end;
    object->base = found.dlfo_link_map->l_addr;
    object->name = found.dlfo_link_map->l_name != NULL ? found.dlfo_link_map->l_name : "";
    if (tables != NULL)
        *tables = found.dlfo_eh_frame;
    return true;
}

/* The sorted table in .eh_frame_hdr (Linux Standard Base, "Exception Frame Header"), in the one
 * encoding that linkers write. */
struct tables {
    uint8_t version, frame_encoding, count_encoding, table_encoding;
    int32_t frame;
    uint32_t count;
    int32_t entries[];
};
#define ENC_UDATA4         0x03
#define ENC_DATAREL_SDATA4 0x3b
#define ENC_SDATA4         0x0b /* what the other half of frame_encoding is relative to matters not */

static int find_proc_info(unw_addr_space_t as, unw_word_t pc, unw_proc_info_t *info, int need,
                          void *arg)
{
    unw_dyn_info_t di;
    struct callsite_object object;
    const struct tables *t;
    void *tables;

    if (!object_at(pc, &object, &tables) || tables == NULL)
        return -UNW_ENOINFO;
    t = tables;
    if ((uintptr_t)t < object.begin || (uintptr_t)(t + 1) > object.end || t->version != 1 ||
        (t->frame_encoding & 0x0f) != ENC_SDATA4 || t->count_encoding != ENC_UDATA4 ||
        t->table_encoding != ENC_DATAREL_SDATA4)
        return -UNW_ENOINFO;
    memset(&di, 0, sizeof di);
    di.format = UNW_INFO_FORMAT_REMOTE_TABLE;
    di.start_ip = object.begin;
    di.end_ip = object.end;
    di.u.rti.segbase = (unw_word_t)t;
    di.u.rti.table_data = (unw_word_t)t->entries;
    di.u.rti.table_len = (unw_word_t)t->count * 2 * sizeof(int32_t) / sizeof(unw_word_t);
    return use.search(as, pc, &di, info, need, arg);
}

static void put_unwind_info(unw_addr_space_t as, unw_proc_info_t *info, void *arg)
{
    (void)as, (void)info, (void)arg;
}

static int no_dynamic_code(unw_addr_space_t as, unw_word_t *at, void *arg)
{
    (void)as, (void)at, (void)arg;
    return -UNW_ENOINFO;
}

static int access_mem(unw_addr_space_t as, unw_word_t at, unw_word_t *value, int write, void *arg)
{
    struct walk *w = arg;

    (void)as;
    if (write != 0 || (at & (sizeof *value - 1)) != 0)
        return -UNW_EINVAL;
    if ((at & PAGE_MASK) != w->known_page) {
        if (!readable((const void *)at, sizeof *value))
            return -UNW_EINVAL;
        w->known_page = at & PAGE_MASK;
    }
    *value = *(const unw_word_t *)at;
    return 0;
}

static int access_reg(unw_addr_space_t as, unw_regnum_t reg, unw_word_t *value, int write,
                      void *arg)
{
    const struct registers *r = &((struct walk *)arg)->regs;

    (void)as;
    if (write != 0)
        return -UNW_EREADONLYREG;
    *value = 0;
#if defined(__x86_64__)
    switch (reg) {
    case UNW_X86_64_RIP:
        *value = r->pc;
        break;
    case UNW_X86_64_RSP:
        *value = r->sp;
        break;
    case UNW_X86_64_RBX:
        *value = r->rbx;
        break;
    case UNW_X86_64_RBP:
        *value = r->rbp;
        break;
    case UNW_X86_64_R12:
        *value = r->r12;
        break;
    case UNW_X86_64_R13:
        *value = r->r13;
        break;
    case UNW_X86_64_R14:
        *value = r->r14;
        break;
    case UNW_X86_64_R15:
        *value = r->r15;
        break;
    default:
        break;
    }
#else
    if (reg == UNW_AARCH64_PC)
        *value = r->pc;
    else if (reg == UNW_AARCH64_SP)
        *value = r->sp;
    else if (reg >= UNW_AARCH64_X19 && reg <= UNW_AARCH64_X30)
        *value = r->x[reg - UNW_AARCH64_X19];
#endif
    return 0;
}

static int access_fpreg(unw_addr_space_t as, unw_regnum_t reg, unw_fpreg_t *value, int write,
                        void *arg)
{
    (void)as, (void)reg, (void)value, (void)write, (void)arg;
    return -UNW_EBADREG;
}

static int resume(unw_addr_space_t as, unw_cursor_t *cursor, void *arg)
{
    (void)as, (void)cursor, (void)arg;
    return -UNW_EINVAL;
}

static int get_proc_name(unw_addr_space_t as, unw_word_t at, char *buf, size_t n, unw_word_t *off,
                         void *arg)
{
    (void)as, (void)at, (void)buf, (void)n, (void)off, (void)arg;
    return -UNW_ENOINFO;
}

/* --- the walk --- */

extern void *__dso_handle __attribute__((visibility("hidden")));

/* On a stack of ours, all signals blocked. */
static void walk(struct walk *w)
{
    struct callsite_object own, object;
    unw_cursor_t cursor;
    unw_word_t pc, sp;
    bool outside = false;

    if (!object_at((uintptr_t)&__dso_handle, &own, NULL) || use.init(&cursor, space, w) != 0)
        return;
    for (unsigned depth = 0; depth < 2 * CALLSITE_FRAMES; depth++) {
        bool interrupted;

        if (use.get(&cursor, UNW_REG_IP, &pc) != 0 || pc == 0 ||
            use.get(&cursor, UNW_REG_SP, &sp) != 0 || sp - w->regs.sp > REACH_BYTES)
            return;
        interrupted = use.is_signal(&cursor) > 0;
        /* A return address may be the beginning of the next function. */
        if (!object_at(pc - !interrupted, &object, NULL)) {
            object.begin = 0;
            object.base = 0;
        }
        outside = outside || object.begin != own.begin;
        if (outside) {
            if (w->n == CALLSITE_FRAMES) {
                w->cut = true;
                return;
            }
            w->frame[w->n++] = (struct callsite_frame){
                .module = object.begin != 0 ? w->module(&object) : CALLSITE_NO_MODULE,
                .address = pc - object.base,
            };
        }
        if (use.step(&cursor) <= 0)
            return;
    }
}

/* Calls walk(w) with `top` as the stack. */
static void on_stack(char *top, struct walk *w)
{
#if defined(__x86_64__)
    __asm__ volatile("movq %%rsp, %%rbx\n\t"
                     "movq %1, %%rsp\n\t"
                     "call *%2\n\t"
                     "movq %%rbx, %%rsp"
                     : "+D"(w)
                     : "r"(top), "r"(walk)
                     : "rbx", "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc",
                       "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#else
    register struct walk *x0 __asm__("x0") = w;

    __asm__ volatile("mov x19, sp\n\t"
                     "mov sp, %1\n\t"
                     "blr %2\n\t"
                     "mov sp, x19"
                     : "+r"(x0)
                     : "r"(top), "r"(walk)
                     : "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12",
                       "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x30", "memory", "cc");
#endif
}

static inline __attribute__((always_inline)) void take_registers(struct registers *r)
{
#if defined(__x86_64__)
    __asm__ volatile("leaq 0(%%rip), %%rax\n\t"
                     "movq %%rax, 0(%0)\n\t"
                     "movq %%rsp, 8(%0)\n\t"
                     "movq %%rbx, 16(%0)\n\t"
                     "movq %%rbp, 24(%0)\n\t"
                     "movq %%r12, 32(%0)\n\t"
                     "movq %%r13, 40(%0)\n\t"
                     "movq %%r14, 48(%0)\n\t"
                     "movq %%r15, 56(%0)"
                     :
                     : "r"(r)
                     : "rax", "memory");
#else
    __asm__ volatile("adr x9, .\n\t"
                     "mov x10, sp\n\t"
                     "stp x9, x10, [%0]\n\t"
                     "stp x19, x20, [%0, #16]\n\t"
                     "stp x21, x22, [%0, #32]\n\t"
                     "stp x23, x24, [%0, #48]\n\t"
                     "stp x25, x26, [%0, #64]\n\t"
                     "stp x27, x28, [%0, #80]\n\t"
                     "stp x29, x30, [%0, #96]"
                     :
                     : "r"(r)
                     : "x9", "x10", "memory");
#endif
}

/* --- who may, and where --- */

static bool rate_allows(void)
{
    static uint64_t window; /* number 24-63, taken 0-23 */
    uint64_t now = rl_now_ns() / WINDOW_NS << 24;
    uint64_t seen = rl_load_64(&window);

    for (;;) {
        uint64_t next = (seen & ~(uint64_t)0xffffff) == now ? seen + 1 : now + 1;

        if ((next & 0xffffff) > CALLSITE_RATE)
            return false;
        if (rl_cas_64(&window, &seen, next))
            return true;
    }
}

static struct place *place_take(void)
{
    for (int i = 0; i < CALLSITE_STACKS; i++) {
        uint32_t none = 0;

        if (places[i].stack != NULL && rl_cas_32(&places[i].taken, &none, 1))
            return &places[i];
    }
    return NULL;
}

__attribute__((noinline)) unsigned
callsite_take(struct callsite_frame *frame, bool *cut,
              uint32_t (*module)(const struct callsite_object *object))
{
    struct walk w = {.frame = frame, .module = module};
    uint64_t all = ~(uint64_t)0, mask = 0;
    struct place *place;
    int type;

    if (rl_load_32(&ready) == 0 || !rate_allows())
        return 0;
    /* libunwind blocks signals itself, by libc's function, which never blocks that of cancellation
     * and, restoring, lets it in. In a thread that is to be cancelled later its handler does
     * nothing. */
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    if (type != PTHREAD_CANCEL_DEFERRED) {
        pthread_setcanceltype(type, NULL);
        return 0;
    }
    rl_raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof mask);
    place = place_take();
    if (place != NULL) {
        take_registers(&w.regs);
        on_stack(place->stack + STACK_BYTES, &w);
        __atomic_store_n(&place->taken, 0, __ATOMIC_RELEASE);
    }
    rl_raw(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
    *cut = w.cut;
    return w.n;
}

static bool stacks_make(void)
{
    for (int i = 0; i < CALLSITE_STACKS; i++) {
        long p = rl_raw(SYS_mmap, NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0L);

        if (p < 0 && p > -4096)
            return i != 0;
        rl_raw(SYS_mprotect, p, GUARD_BYTES, PROT_NONE);
        places[i].stack = (char *)p + GUARD_BYTES;
    }
    return true;
}

bool callsite_start(void)
{
    static unw_accessors_t accessors = {
        .find_proc_info = find_proc_info,
        .put_unwind_info = put_unwind_info,
        .get_dyn_info_list_addr = no_dynamic_code,
        .access_mem = access_mem,
        .access_reg = access_reg,
        .access_fpreg = access_fpreg,
        .resume = resume,
        .get_proc_name = get_proc_name,
    };
    void *lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    *(void **)&use.find_object = dlsym(RTLD_DEFAULT, "_dl_find_object");
    if (lib == NULL || use.find_object == NULL)
        return false;
    *(void **)&use.create = dlsym(lib, NAME(UNW_OBJ(create_addr_space)));
    *(void **)&use.init = dlsym(lib, NAME(UNW_OBJ(init_remote)));
    *(void **)&use.step = dlsym(lib, NAME(UNW_OBJ(step)));
    *(void **)&use.get = dlsym(lib, NAME(UNW_OBJ(get_reg)));
    *(void **)&use.is_signal = dlsym(lib, NAME(UNW_OBJ(is_signal_frame)));
    *(void **)&use.search = dlsym(lib, NAME(UNW_OBJ(dwarf_search_unwind_table)));
    if (use.create == NULL || use.init == NULL || use.step == NULL || use.get == NULL ||
        use.is_signal == NULL || use.search == NULL || !stacks_make())
        return false;
    space = use.create(&accessors, 0);
    rl_store_32(&ready, space != NULL);
    return space != NULL;
}

/* A walk of another thread that was under way may have held a lock of libunwind's for ever. */
void callsite_forked(void)
{
    for (int i = 0; i < CALLSITE_STACKS; i++)
        if (rl_load_32(&places[i].taken) != 0)
            rl_store_32(&ready, 0);
}
