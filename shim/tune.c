/* SPDX-License-Identifier: MIT */
/*
 * tune: see tune.h. Whoever takes an order may be in a signal handler or be the worker: nothing of
 * libc but mem and str functions, little stack, and no signal meanwhile (a handler that jumps away
 * would leave everything switched off).
 */
#include "tune.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include "config.h"
#include "config_text.h"
#include "state.h"
#include "window.h"

#define KEY_BYTES 40 /* RLSHIM_ and the longest key */

struct rl_order rl_order __attribute__((visibility("default"))) = {.version = ORDER_VERSION};

/* Used in turns: one of each pair may be in use. Only whoever has made rl_control CONTROL_TAKING
 * touches any of this. */
static struct {
    struct config config[2];
    char text[2][CFG_FILE_BYTES_MAX];
    unsigned config_at, text_at;
    char block[CFG_ENV_BYTES + CFG_ROWS * (KEY_BYTES + 2)];
    char *env[CFG_ROWS + 1];
    struct settings settings;
    struct cfg_error error;
} tune;

static bool refuse(const char *reason, const char *more)
{
    struct cfg_text t = cfg_text_in(rl_order.reason, sizeof rl_order.reason);

    cfg_text_add(&t, reason);
    if (more[0] != '\0') {
        cfg_text_add(&t, "; ");
        cfg_text_add(&t, more);
    }
    return false;
}

/* "RLSHIM_KEY=VALUE" at the end of the block. */
static bool put_variable(int *n, size_t *used, int row, const char *value, size_t len)
{
    struct cfg_text t = cfg_text_in(tune.block + *used, sizeof tune.block - *used);

    if (*n == CFG_ROWS || len + KEY_BYTES + 2 > sizeof tune.block - *used)
        return false;
    cfg_text_add(&t, "RLSHIM_");
    for (const char *c = cfg_rows[row].key; *c != '\0'; c++) {
        char up = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);

        cfg_text_bytes(&t, &up, 1);
    }
    cfg_text_add(&t, "=");
    cfg_text_bytes(&t, value, len);
    tune.env[(*n)++] = tune.block + *used;
    *used += t.len + 1;
    return true;
}

/* What the order sets, then what was set by the environment, or an order before: the first of two
 * counts. */
static bool make_environment(const struct config *now)
{
    uint64_t given = 0;
    size_t used = 0;
    int n = 0;

    _Static_assert(CFG_ROWS <= 64, "a bit for each");
    rl_order.set[sizeof rl_order.set - 1] = '\0';
    for (const char *line = rl_order.set; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        const char *equal = memchr(line, '=', len);
        int row = 0;

        while (equal != NULL && row < CFG_ROWS &&
               (strlen(cfg_rows[row].key) != (size_t)(equal - line) ||
                memcmp(cfg_rows[row].key, line, (size_t)(equal - line)) != 0))
            row++;
        if (equal != NULL && row < CFG_ROWS && (given >> row & 1) != 0) {
            line += len + (line[len] == '\n'); /* the first counts */
            continue;
        }
        if (equal == NULL || row == CFG_ROWS || !tune_may(row) ||
            !put_variable(&n, &used, row, equal + 1, (size_t)(line + len - equal) - 1))
            return refuse("it asks for what cannot be changed in a running program", "");
        given |= UINT64_C(1) << row;
        line += len + (line[len] == '\n');
    }
    for (unsigned s = 0; s < now->nsections; s++) {
        const struct cfg_section *in = &now->sections[s];

        if (in->kind != CFG_IN_ENV)
            continue;
        for (unsigned a = in->first; a < (unsigned)in->first + in->count; a++) {
            const struct cfg_assign *was = &now->assigns[a];

            if ((given >> was->row & 1) == 0 &&
                !put_variable(&n, &used, was->row, was->text, was->text_len))
                return refuse("there is no room for all that was set", "");
        }
    }
    tune.env[n] = NULL;
    return true;
}

/* The file named by the order, into memory that is not in use. */
static const char *read_file(void)
{
    char *to = tune.text[tune.text_at ^ 1];
    size_t n = 0;
    long got = 1;
    long fd;

    rl_order.file[sizeof rl_order.file - 1] = '\0';
    fd = rl_raw(SYS_openat, AT_FDCWD, rl_order.file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                0);
    if (fd < 0)
        return NULL;
    while (got > 0 && n + 1 < CFG_FILE_BYTES_MAX) {
        got = rl_raw(SYS_read, fd, to + n, CFG_FILE_BYTES_MAX - 1 - n);
        n += got > 0 ? (size_t)got : 0;
    }
    rl_raw(SYS_close, fd);
    if (got != 0)
        return NULL;
    to[n] = '\0';
    return to;
}

static void store(const struct cfg_row *row)
{
    char *to = (char *)&proc.settings + row->offset;
    const char *from = (const char *)&tune.settings + row->offset;

    /* Whole, since other threads read them. */
    if (row->kind == CFG_KIND_BOOL)
        __atomic_store_n((bool *)to, *(const bool *)from, __ATOMIC_RELAXED);
    else if (row->kind == CFG_KIND_ENUM)
        rl_store_32((uint32_t *)to, *(const uint32_t *)from);
    else
        rl_store_64((uint64_t *)to, *(const uint64_t *)from);
}

static bool take(void)
{
    const struct config *now = state_config();
    struct config *next = &tune.config[tune.config_at ^ 1];
    const char *text = state_config_text();
    const char *file = now != NULL ? now->file : "";

    if (now == NULL || now->off)
        return refuse("its configuration was refused at its start", "");
    if (!make_environment(now))
        return false;
    if (rl_order.file[0] != '\0') {
        text = read_file();
        file = rl_order.file;
        if (text == NULL)
            return refuse("the program cannot read the file", "");
    }
    cfg_reset(next);
    if (text[0] != '\0' && cfg_parse(next, text, strlen(text), file, &tune.error) != 0)
        return refuse(tune.error.reason, tune.error.hint);
    if (cfg_env(next, tune.env, &tune.error) != 0)
        return refuse(tune.error.reason, tune.error.hint);
    memcpy(next->file, file, strlen(file) + 1);
    if (text == tune.text[tune.text_at ^ 1])
        tune.text_at ^= 1;
    tune.config_at ^= 1;
    state_use_config(next, text);
    cfg_settings(next, proc.program, NULL, &tune.settings);
    for (int i = 0; i < CFG_ROWS; i++)
        if (tune_may(i))
            store(&cfg_rows[i]);
    window_reconfigured();
    rl_add_32(&proc.tuned, 1); /* what files were found to be set to is out of date */
    return true;
}

bool tune_taken(void)
{
    uint32_t ordered = CONTROL_ORDERED, taking = CONTROL_TAKING;
    uint64_t all = ~(uint64_t)0, mask;

    if (rl_load_32(&rl_control) != CONTROL_ORDERED)
        return rl_load_32(&rl_control) == 0;
    rl_raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof mask);
    if (rl_cas_32(&rl_control, &ordered, CONTROL_TAKING)) {
        rl_store_32(&rl_order.result, take() ? ORDER_TAKEN : ORDER_REFUSED);
        rl_cas_32(&rl_control, &taking, 0); /* unless it was switched off meanwhile */
    }
    rl_raw(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
    return rl_load_32(&rl_control) == 0;
}

void tune_forked(void)
{
    if (rl_load_32(&rl_control) == CONTROL_TAKING)
        rl_store_32(&rl_control, 0);
}
