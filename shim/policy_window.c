/* SPDX-License-Identifier: MIT */
/* policy_window: see policy_window.h. */
#include <fcntl.h>

#include "policy_window.h"

uint64_t policy_window_bytes(const struct window_facts *f)
{
    uint64_t share = f->budget_bytes / 2 / (f->active != 0 ? f->active : 1);
    uint64_t room = f->budget_bytes > f->others_bytes ? f->budget_bytes - f->others_bytes : 0;

    if (f->window_bytes == 0)
        return 0;
    if (room / 2 < share)
        share = room / 2;
    if (share < WINDOW_LEAST_BYTES)
        share = WINDOW_LEAST_BYTES;
    return f->window_bytes < share ? f->window_bytes : share;
}

bool policy_window_takes(const struct window_file *f)
{
    if (f->kind == FILE_KIND_NONE || f->kind == FILE_KIND_TMPFS || f->links == 0)
        return false;
    /* O_SYNC holds the bit of O_DSYNC, O_TMPFILE that of O_DIRECTORY. */
    return (f->open_flags & (O_DIRECT | O_DSYNC | (O_TMPFILE & ~O_DIRECTORY))) == 0;
}

bool policy_window_full(uint64_t bytes, uint64_t last, uint64_t window_bytes)
{
    return bytes + last > window_bytes;
}

static uint64_t page_down(uint64_t at)
{
    return at & ~(uint64_t)(WINDOW_PAGE_BYTES - 1);
}

/* Is [start, end) about what so many bytes fill, written one after the other? */
static bool dense(uint64_t start, uint64_t end, uint64_t bytes)
{
    return end > start && end - start <= bytes + bytes / 4 + 2 * (uint64_t)WINDOW_PAGE_BYTES;
}

struct window_range policy_window_range(const struct window_place *p)
{
    struct window_range r = {.start = p->low, .end = p->high};

    if (p->blind != 0 && p->now != WINDOW_NOWHERE && dense(p->started, p->now, p->bytes)) {
        /* One writer at the file position, or several that append. */
        r.start = p->started < p->low ? p->started : p->low;
        r.end = p->now > p->high ? p->now : p->high;
        r.tail = true;
    } else if (p->blind != 0) {
        r.start = 0;
        r.end = p->size;
    } else {
        if (p->started <= p->low && dense(p->started, p->high, p->bytes))
            r.start = p->started; /* the page that the last start left out */
        r.tail = dense(r.start, r.end, p->bytes);
    }
    if (r.end > p->size)
        r.end = p->size;
    if (r.start == WINDOW_NOWHERE || r.start > r.end)
        r.start = r.end;
    r.start = page_down(r.start);
    r.end = page_down(r.end);
    return r;
}
