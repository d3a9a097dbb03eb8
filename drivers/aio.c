/* SPDX-License-Identifier: GPL-2.0-or-later */
/* aio: see aio.h. */
#include <assert.h>
#include <errno.h>
#include <libaio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/aio.h"
#include "drivers/threads.h"

#define MAX_EVENTS  128u		/* of fs.aio-max-nr, per engine */

/*
 * The completion ring, as Linux has mapped it at the address that serves as
 * the context's handle since 2.5 (fs/aio.c, struct aio_ring).  The kernel
 * moves the tail, whoever takes events moves the head; both stay below 'nr'.
 */
struct ring {
	unsigned        id;
	unsigned        nr;		/* slots in events[] */
	unsigned        head;
	unsigned        tail;
	unsigned        magic;
	unsigned        compat_features;
	unsigned        incompat_features;
	unsigned        header_length;	/* bytes */
	struct io_event events[];
};

#define RING_MAGIC    0xa10a10a1u
#define RING_COMPAT   1u
#define RING_INCOMPAT 0u

/* One I/O in flight. */
struct slot {
	struct iocb     cb;
	struct transfer t;
};

struct aio {
	struct engine        engine;	/* must be first */
	struct channel      *ch;
	io_context_t         ctx;
	struct ring         *ring;	/* NULL: ask the kernel instead */
	int                  event_fd;
	unsigned             max_inflight; /* the kernel holds at most this */
	unsigned             inflight;	/* and holds this many now */
	unsigned             nr_used;	/* slots that carry an I/O */
	unsigned             nr_queued;
	struct iocb        **queue;	/* for the kernel, oldest first */
	struct slot         *slots;
	struct transfer_list free;
	struct transfer_list failed;	/* the kernel refused them */
	struct threads      *helper;	/* NULL: the kernel does it all */
	struct threads_user  helped;
	bool                 kernel_flushes;
	bool                 zero_beyond_end;
	bool                 reaping;
};

/*
 * Slots.
 */

/* Queue what is left of a read or write, as far as one iocb can carry. */
static void
slot_queue(struct aio *a, struct slot *slot)
{
	struct iocb *cb = &slot->cb;
	struct transfer *t = &slot->t;
	bool write = t->io->op == IO_WRITE;

	cb->u.c.offset = (long long)t->offset;
	if (t->iovcnt == 1) {
		cb->aio_lio_opcode = write ? IO_CMD_PWRITE : IO_CMD_PREAD;
		cb->u.c.buf = t->iov->iov_base;
		cb->u.c.nbytes = t->iov->iov_len;
	} else {
		cb->aio_lio_opcode = write ? IO_CMD_PWRITEV : IO_CMD_PREADV;
		cb->u.c.buf = t->iov;
		cb->u.c.nbytes = (unsigned long)transfer_iovcnt(t);
	}
	a->queue[a->nr_queued++] = cb;
}

/* The one place where an I/O ends. */
static void
slot_finish(struct aio *a, struct transfer *t)
{
	struct io *io = t->io;

	STAILQ_INSERT_HEAD(&a->free, t, link);
	a->nr_used--;
	io->done(io, t->error);
}

/*
 * What the kernel says about one iocb.  1 when the I/O has ended, 0 when there
 * is more of it to do.
 */
static unsigned
slot_result(struct aio *a, struct slot *slot, long res)
{
	if (transfer_goes_on(&slot->t, res, a->zero_beyond_end)) {
		slot_queue(a, slot);
		return 0;
	}
	slot_finish(a, &slot->t);
	return 1;
}

static unsigned
slots_finish(struct aio *a, struct transfer_list *list)
{
	struct transfer *t;
	unsigned n = 0;

	while ((t = STAILQ_FIRST(list)) != NULL) {
		STAILQ_REMOVE_HEAD(list, link);
		slot_finish(a, t);
		n++;
	}
	return n;
}

/*
 * Submit and reap.
 */

static void
aio_submit(struct engine *e, int fd, struct io *io)
{
	struct aio *a = container_of(e, struct aio, engine);
	struct transfer *t = STAILQ_FIRST(&a->free);
	struct slot *slot;

	assert(t != NULL);		/* more than 'depth' at a time */
	STAILQ_REMOVE_HEAD(&a->free, link);
	a->nr_used++;
	slot = container_of(t, struct slot, t);

	transfer_begin(t, a->ch, fd, io);
	memset(&slot->cb, 0, sizeof(slot->cb));
	slot->cb.data = slot;
	slot->cb.aio_fildes = fd;
	io_set_eventfd(&slot->cb, a->event_fd);
	if (io->op == IO_READ || io->op == IO_WRITE) {
		slot_queue(a, slot);
	} else if (io->op == IO_DISCARD || !a->kernel_flushes) {
		STAILQ_INSERT_TAIL(&a->helped.waiting, t, link);
	} else {
		slot->cb.aio_lio_opcode = IO_CMD_FDSYNC;
		a->queue[a->nr_queued++] = &slot->cb;
	}
}

/*
 * Hand the queue to the kernel as far as there is room.  The kernel stops at
 * the first iocb that it does not take and, asked again, says why: EAGAIN
 * means no resources just now, anything else is that iocb's own fault.
 */
static void
aio_push(struct aio *a)
{
	unsigned room, want, i = 0;
	struct slot *slot;
	int n;

	while (i < a->nr_queued && a->inflight < a->max_inflight) {
		room = a->max_inflight - a->inflight;
		want = a->nr_queued - i < room ? a->nr_queued - i : room;
		n = io_submit(a->ctx, (long)want, a->queue + i);
		a->ch->submits++;
		if (n > 0) {
			a->inflight += (unsigned)n;
			i += (unsigned)n;
			continue;
		}
		if (n == 0 || n == -EAGAIN || n == -EINTR)
			break;
		slot = container_of(a->queue[i], struct slot, cb);
		slot->t.error = n;
		STAILQ_INSERT_TAIL(&a->failed, &slot->t, link);
		i++;
	}
	a->nr_queued -= i;
	memmove(a->queue, a->queue + i, a->nr_queued * sizeof(*a->queue));
}

static unsigned
aio_event(struct aio *a, const struct io_event *ev)
{
	a->inflight--;
	return slot_result(a, ev->data, (long)ev->res);
}

static unsigned
aio_drain_ring(struct aio *a)
{
	struct ring *r = a->ring;
	unsigned n = 0, head = r->head, tail;

	/* Read the events only after the tail that covers them. */
	tail = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);
	if (head == tail)
		return 0;
	do {
		n += aio_event(a, &r->events[head]);
		if (++head == r->nr)
			head = 0;
	} while (head != tail);

	/* The kernel may write over the events only once they were read. */
	__atomic_store_n(&r->head, head, __ATOMIC_RELEASE);
	return n;
}

/* The same for a kernel whose ring looks unlike the one we know. */
static unsigned
aio_drain_kernel(struct aio *a)
{
	struct timespec now = { 0, 0 };
	struct io_event events[MAX_EVENTS];
	unsigned n = 0;
	int i, nr;

	if (a->inflight == 0)
		return 0;
	do
		nr = io_getevents(a->ctx, 0, MAX_EVENTS, events, &now);
	while (nr == -EINTR);
	assert(nr >= 0);
	for (i = 0; i < nr; i++)
		n += aio_event(a, &events[i]);
	return n;
}

static void
aio_push_all(struct aio *a)
{
	if (a->nr_queued > 0)
		aio_push(a);
	if (a->helper != NULL)
		threads_push(&a->helped, a->ch);
}

static unsigned
aio_reap(struct engine *e)
{
	struct transfer_list helped = STAILQ_HEAD_INITIALIZER(helped);
	struct aio *a = container_of(e, struct aio, engine);
	unsigned n;

	assert(!a->reaping);		/* a done() called us */
	a->reaping = true;
	aio_push_all(a);

	n = a->ring != NULL ? aio_drain_ring(a) : aio_drain_kernel(a);
	n += slots_finish(a, &a->failed);
	if (a->helper != NULL) {
		threads_take(&a->helped, &helped);
		n += slots_finish(a, &helped);
	}

	/*
	 * Now there may be room for those that waited, and transfers that
	 * fell short or I/Os that a done() submitted may have joined them.
	 * Push again, but look no further: this must end even if each done()
	 * submits the next I/O.  What the kernel has, it will announce; what
	 * it has not, nobody but us can.
	 */
	aio_push_all(a);
	if (!STAILQ_EMPTY(&a->failed) ||
	    (a->nr_queued > 0 && a->inflight == 0))
		engine_raise(a->event_fd);
	a->reaping = false;
	return n;
}

/*
 * Open and close.
 */

/*
 * Does the kernel flush by itself?  Only trying tells: an old kernel, and a
 * new one on a file system that cannot, refuse the iocb with EINVAL.
 * 1 yes, 0 no, -errno when the flush itself fails.
 */
static int
aio_probe_flush(struct aio *a, int fd)
{
	struct iocb cb, *cbp = &cb;
	struct io_event ev;
	int n;

	io_prep_fdsync(&cb, fd);
	n = io_submit(a->ctx, 1, &cbp);
	if (n == -EINVAL)
		return 0;
	if (n != 1)
		return n < 0 ? n : -EAGAIN;
	do
		n = io_getevents(a->ctx, 1, 1, &ev, NULL);
	while (n == -EINTR);
	if (n != 1)
		return n < 0 ? n : -EIO;
	return (long)ev.res < 0 ? (int)(long)ev.res : 1;
}

static int
aio_alloc(struct aio *a, unsigned depth)
{
	unsigned i;

	STAILQ_INIT(&a->free);
	STAILQ_INIT(&a->failed);
	a->max_inflight = depth < MAX_EVENTS ? depth : MAX_EVENTS;
	a->slots = calloc(depth, sizeof(*a->slots));
	a->queue = calloc(depth, sizeof(struct iocb *));
	if (a->slots == NULL || a->queue == NULL)
		return -ENOMEM;
	for (i = 0; i < depth; i++)
		STAILQ_INSERT_TAIL(&a->free, &a->slots[i].t, link);
	return 0;
}

static int
aio_setup(struct aio *a, const char *path, char why[WHY_MAX])
{
	struct ring *r;
	int rc;

	rc = io_setup((int)a->max_inflight, &a->ctx);
	if (rc == -EAGAIN)
		why_set(why, "set up AIO for %.200s: the host's limit on AIO "
		    "events, fs.aio-max-nr, is reached; raise it, for "
		    "instance with 'sysctl fs.aio-max-nr=1048576' (fs.aio-nr "
		    "shows what is in use), and keep it in a file below "
		    "/etc/sysctl.d", path);
	else if (rc < 0)
		why_set(why, "set up AIO for %.200s: %s; the kernel must be "
		    "built with CONFIG_AIO and have memory to spare", path,
		    strerror(-rc));
	if (rc < 0)
		return rc;

	r = (struct ring *)a->ctx;
	if (r->magic == RING_MAGIC && r->compat_features == RING_COMPAT &&
	    r->incompat_features == RING_INCOMPAT &&
	    r->header_length == sizeof(*r))
		a->ring = r;
	return 0;
}

static int
aio_setup_helper(struct aio *a, const struct engine_config *c,
    char why[WHY_MAX])
{
	int rc;

	rc = aio_probe_flush(a, c->fd);
	if (rc < 0) {
		why_set(why, "flush %.200s: %s; see the kernel log (dmesg) "
		    "for what is wrong with its storage", c->path,
		    strerror(-rc));
		return rc;
	}
	a->kernel_flushes = rc == 1;
	if (a->kernel_flushes && c->discard == NULL)
		return 0;
	threads_user_init(&a->helped, NULL, a->event_fd, c);
	rc = threads_open(&a->helper, 1, c->path, why);
	a->helped.threads = a->helper;
	return rc;
}

static void
aio_free(struct aio *a)
{
	free(a->queue);
	free(a->slots);
	free(a);
}

static void
aio_close(struct engine *e)
{
	struct aio *a = container_of(e, struct aio, engine);
	int rc;

	assert(a->nr_used == 0 && !a->reaping);
	threads_close(a->helper);
	rc = io_destroy(a->ctx);
	assert(rc == 0);
	(void)rc;
	close(a->event_fd);
	aio_free(a);
}

static const struct engine_ops aio_ops = {
	.close  = aio_close,
	.submit = aio_submit,
	.reap   = aio_reap,
};

int
aio_open(struct engine **e, struct channel *ch, const struct engine_config *c,
    char why[WHY_MAX])
{
	struct aio *a;
	int rc;

	a = calloc(1, sizeof(*a));
	if (a == NULL || aio_alloc(a, c->depth) < 0) {
		why_set(why, "open a channel of %.200s: out of memory",
		    c->path);
		if (a != NULL)
			aio_free(a);
		return -ENOMEM;
	}
	a->engine.ops = &aio_ops;
	a->ch = ch;
	a->zero_beyond_end = c->zero_beyond_end;
	a->event_fd = rc = engine_eventfd(c->path, why);
	if (rc < 0)
		goto err_free;
	rc = aio_setup(a, c->path, why);
	if (rc < 0)
		goto err_eventfd;
	rc = aio_setup_helper(a, c, why);
	if (rc < 0)
		goto err_ctx;

	ch->event_fd = a->event_fd;
	*e = &a->engine;
	return 0;

err_ctx:
	io_destroy(a->ctx);
err_eventfd:
	close(a->event_fd);
err_free:
	aio_free(a);
	return rc;
}
