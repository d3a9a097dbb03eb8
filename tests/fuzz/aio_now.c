/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * In place of drivers/aio.c, for a fuzz target: the same contract, but each
 * I/O is done by the one who reaps it.
 *
 * An AIO context of the kernel takes 20 ms to go away, and its I/Os end when
 * they like; this one costs nothing and does the same thing every time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/fuzz/aio_now.h"

struct queued {
	struct io *io;
	int        fd;
};

struct aio {
	struct engine   engine;		/* must be first */
	struct channel *ch;
	engine_discard *discard;
	bool            zero_beyond_end;
	unsigned        nr;		/* queued */
	unsigned        room;
	struct queued  *queue;
};

unsigned aio_now_order;

static void
aio_close(struct engine *e)
{
	struct aio *a = container_of(e, struct aio, engine);

	if (a->nr != 0)
		abort();
	close(a->ch->event_fd);
	free(a->queue);
	free(a);
}

static void
aio_submit(struct engine *e, int fd, struct io *io)
{
	struct aio *a = container_of(e, struct aio, engine);

	if (a->nr == a->room)
		abort();
	a->queue[a->nr].io = io;
	a->queue[a->nr++].fd = fd;
}

/* One element of the vector.  0 or -errno. */
static int
transfer(const struct aio *a, int fd, const struct io *io,
    const struct iovec *v, uint64_t at)
{
	char *buf = v->iov_base;
	size_t done = 0;
	ssize_t n;

	while (done < v->iov_len) {
		if (io->op == IO_READ)
			n = pread(fd, buf + done, v->iov_len - done,
			    (off_t)(at + done));
		else
			n = pwrite(fd, buf + done, v->iov_len - done,
			    (off_t)(at + done));
		if (n < 0)
			return -errno;
		done += (size_t)n;
		if (n > 0 && done % 512 == 0)
			continue;
		/* The end of the file. */
		if (io->op == IO_WRITE)
			return -ENOSPC;
		if (!a->zero_beyond_end)
			return -EIO;
		memset(buf + done, 0, v->iov_len - done);
		return 0;
	}
	return 0;
}

static int
perform(const struct aio *a, int fd, const struct io *io)
{
	uint64_t at = io->offset;
	int rc = 0, i;

	switch (io->op) {
	case IO_FLUSH:
		return fdatasync(fd) == 0 ? 0 : -errno;
	case IO_DISCARD:
		return a->discard(fd, io->offset, io->length);
	default:
		for (i = 0; i < io->iovcnt && rc == 0; i++) {
			rc = transfer(a, fd, io, &io->iov[i], at);
			at += io->iov[i].iov_len;
		}
		return rc;
	}
}

static unsigned
aio_reap(struct engine *e)
{
	struct aio *a = container_of(e, struct aio, engine);
	unsigned todo = aio_now_order & AIO_NOW_SINGLY && a->nr > 1 ? 1 :
	    a->nr, n, at;
	struct io *io;
	int fd;

	for (n = 0; n < todo; n++) {
		at = aio_now_order & AIO_NOW_NEWEST ? a->nr - 1 : 0;
		io = a->queue[at].io;
		fd = a->queue[at].fd;
		a->nr--;
		memmove(&a->queue[at], &a->queue[at + 1],
		    (a->nr - at) * sizeof(a->queue[0]));
		io->done(io, perform(a, fd, io));
	}
	if (a->nr > 0 && eventfd_write(a->ch->event_fd, 1) == -1)
		abort();
	return n;
}

static const struct engine_ops aio_now_ops = {
	.close  = aio_close,
	.submit = aio_submit,
	.reap   = aio_reap,
};

int
aio_open(struct engine **e, struct channel *ch, const struct engine_config *c,
    char why[WHY_MAX])
{
	struct aio *a = calloc(1, sizeof(*a));

	if (a != NULL)
		a->queue = calloc(c->depth, sizeof(*a->queue));
	ch->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (a == NULL || a->queue == NULL || ch->event_fd == -1) {
		why_set(why, "open a channel of %.200s: no memory", c->path);
		abort();
	}
	a->engine.ops = &aio_now_ops;
	a->ch = ch;
	a->discard = c->discard;
	a->zero_beyond_end = c->zero_beyond_end;
	a->room = c->depth;
	*e = &a->engine;
	return 0;
}
