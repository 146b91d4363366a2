/* SPDX-License-Identifier: MIT */
/*
 * Steps that go around the plain calls: a position that all share, stdio, pipes.
 *
 * The stream is a second file with one description for all threads and children, written with
 * write(2) and no lock: the kernel moves the shared position and writes in one step, so at the end
 * every write lies there whole, none over another, in an order that respects real time. Whoever
 * cuts a write into pieces must keep that. Its bytes do not depend on their place (nonce 0).
 */
#include "pattern.h"
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

void do_stream(struct actor *a, const struct step *s)
{
    const struct subject *f = a->subject;

    if (f->stream_fd < 0)
        return;
    pattern_fill(a->wbuf, 0, (size_t)s->len, s->id, 0);
    struct op *o = record_begin(a, s, EFFECT_NONE, 0, s->len);
    int64_t ret = write(f->stream_fd, a->wbuf, (size_t)s->len);

    record_end(a, o, ret);
    if (ret >= 0)
        o->len = ret;
    record_publish(a, o);
}

enum { WRITES_MAX = 256 };

struct stream_writes {
    const struct op *by_id[WRITES_MAX];
    const struct op *laid[WRITES_MAX]; /* in the order of the file */
    unsigned made, found;
};

static const char *take_run(struct stream_writes *w, const struct run *run)
{
    const struct op *o = run->id < WRITES_MAX ? w->by_id[run->id] : NULL;

    if (!o)
        return "bytes that no write to the shared position made, or a write in two parts";
    if (run->len != o->len)
        return "a write to the shared position is not whole";
    for (unsigned i = 0; i < w->found; i++)
        if (o->res < w->laid[i]->inv)
            return "a later write to the shared position lies before an earlier one";
    w->by_id[run->id] = NULL;
    w->laid[w->found++] = o;
    return NULL;
}

const char *stream_check(const struct subject *f, const struct trace *t, unsigned char *buf)
{
    static struct run run[WRITES_MAX];
    struct stream_writes w = {.made = 0};
    int64_t size = 0, sum = 0, got;
    struct run open_run = {0};
    const char *bad;

    for (size_t i = 0; i < t->nops; i++) {
        const struct op *o = t->ops[i];

        if (o->call != CALL_STREAM || o->err || !o->id)
            continue;
        w.by_id[o->id] = o;
        w.made++;
        sum += o->len;
    }
    /* A run may go on in the next buffer, so the last one of each is kept open. */
    while ((got = pread(f->stream_fd, buf, IO_MAX, size)) > 0) {
        unsigned n = pattern_runs(buf, size, (size_t)got, 0, run, WRITES_MAX);

        if (n > WRITES_MAX)
            return "bytes that no write to the shared position made";
        for (unsigned i = 0; i < n; i++) {
            if (open_run.len && open_run.id == run[i].id) {
                open_run.len += run[i].len;
                continue;
            }
            if (open_run.len && (bad = take_run(&w, &open_run)))
                return bad;
            open_run = run[i];
        }
        size += got;
    }
    if (open_run.len && (bad = take_run(&w, &open_run)))
        return bad;
    if (w.found != w.made || size != sum)
        return "a write to the shared position is lost";
    if (lseek(f->stream_fd, 0, SEEK_CUR) != sum)
        return "the shared position is not the sum of the writes";
    return NULL;
}

/* stdio reads and writes inside libc, where no library in front of it can see it. */
void do_stdio(struct actor *a, const struct step *s)
{
    bool out = s->call == CALL_FWRITE;
    char path[64];
    size_t n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", a->fd[s->slot]);
    FILE *f = fopen(path, out ? "r+" : "r");

    if (!f)
        return;
    setvbuf(f, NULL, _IONBF, 0);
    /* Others go on meanwhile: what they queue after the opening must not be missed either. */
    if (s->arg & 1)
        usleep(10u * s->arg);
    if (out)
        pattern_fill(a->wbuf, s->off, (size_t)s->len, s->id, a->subject->arena->nonce);
    fseeko(f, s->off, SEEK_SET);
    errno = 0;
    struct op *o = record_begin(a, s, out ? EFFECT_WRITE : EFFECT_READ, s->off, s->len);

    n = out ? fwrite(a->wbuf, 1, (size_t)s->len, f) : fread(a->rbuf, 1, (size_t)s->len, f);
    record_end(a, o, ferror(f) ? -1 : (int64_t)n);
    if (out)
        o->len = (int64_t)n;
    else
        record_seen(a, o, a->rbuf, o->ret, true);
    record_publish(a, o);
    fclose(f);
}

/* Through a pipe, which may hold references to the file's own pages until it is read. */
void do_splice(struct actor *a, const struct step *s)
{
    int64_t ret, got = 0;
    loff_t from = s->off;
    int pipe_fd[2];

    if (a->direct[s->slot] || pipe2(pipe_fd, O_CLOEXEC))
        return;
    struct op *o = record_begin(a, s, EFFECT_READ, s->off, s->len);

    ret = splice(a->fd[s->slot], &from, pipe_fd[1], NULL, (size_t)s->len, 0);
    while (got < ret) {
        int64_t n = read(pipe_fd[0], a->rbuf + got, (size_t)(ret - got));

        if (n <= 0)
            break;
        got += n;
    }
    record_end(a, o, ret < 0 ? ret : got);
    if (ret >= 0 && !a->subject->checks_unlocked)
        o->effect = EFFECT_NONE;
    else
        record_seen(a, o, a->rbuf, o->ret, false);
    record_publish(a, o);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
}
