/* SPDX-License-Identifier: GPL-2.0-or-later */
/* aio: see aio.h. */
#include <assert.h>
#include <errno.h>
#include <libaio.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "drivers/aio.h"
#include "drivers/thread.h"

#define MAX_EVENTS  128u		/* of fs.aio-max-nr, per engine */
#define SECTOR      512u
#define DISCARD_PIECE (64u << 20)	/* bytes */
#define STACK_BYTES (128 * 1024)	/* locked in memory: keep it small */

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
	struct iocb        cb;
	struct io         *io;
	struct iovec      *iov;		/* what is left of it */
	int                iovcnt;
	uint64_t           left;	/* bytes */
	int                error;	/* -errno, of one that is finished */
	STAILQ_ENTRY(slot) link;
};
STAILQ_HEAD(slot_list, slot);

/* The thread for what has no asynchronous form. */
struct helper {
	pthread_t        thread;
	int              event_fd;	/* the engine's */
	aio_discard     *discard;
	struct slot_list waiting;	/* aio_submit() to aio_reap() */
	pthread_mutex_t  mutex;		/* for all below */
	pthread_cond_t   wake;
	struct slot_list todo;
	struct slot_list done;
	unsigned         nr_done;	/* read without the mutex */
	bool             stop;
};

struct aio {
	struct channel  *ch;
	io_context_t     ctx;
	struct ring     *ring;		/* NULL: ask the kernel instead */
	int              event_fd;
	unsigned         max_inflight;	/* the kernel holds at most this */
	unsigned         inflight;	/* and holds this many now */
	unsigned         nr_used;	/* slots that carry an I/O */
	unsigned         nr_queued;
	struct iocb    **queue;		/* for the kernel, oldest first */
	struct slot     *slots;
	struct slot_list free;
	struct slot_list failed;	/* the kernel refused them */
	struct helper   *helper;	/* NULL: the kernel does it all */
	bool             kernel_flushes;
	bool             zero_beyond_end;
	bool             reaping;
};

/* Raise an edge by hand. */
static void
event_raise(int event_fd)
{
	/* It fails only when the counter is full or the fd is not ours. */
	if (eventfd_write(event_fd, 1) == -1)
		abort();
}

/*
 * The helper thread.
 */

/* A long discard must not hold the storage's queue for itself. */
static int
discard_pieces(struct helper *s, const struct slot *slot)
{
	uint64_t offset = slot->io->offset, left = slot->io->length, n;
	int rc = 0;

	for (; rc == 0 && left > 0; offset += n, left -= n) {
		n = left < DISCARD_PIECE ? left : DISCARD_PIECE;
		rc = s->discard(slot->cb.aio_fildes, offset, n);
	}
	return rc;
}

static void *
helper_main(void *arg)
{
	struct helper *s = arg;
	struct slot *slot;

	pthread_mutex_lock(&s->mutex);
	while (!s->stop) {
		slot = STAILQ_FIRST(&s->todo);
		if (slot == NULL) {
			pthread_cond_wait(&s->wake, &s->mutex);
			continue;
		}
		STAILQ_REMOVE_HEAD(&s->todo, link);
		pthread_mutex_unlock(&s->mutex);

		slot->error = 0;
		if (slot->io->op == IO_DISCARD)
			slot->error = discard_pieces(s, slot);
		else if (fdatasync(slot->cb.aio_fildes) == -1)
			slot->error = -errno;

		pthread_mutex_lock(&s->mutex);
		STAILQ_INSERT_TAIL(&s->done, slot, link);
		__atomic_store_n(&s->nr_done, s->nr_done + 1,
		    __ATOMIC_RELEASE);
		event_raise(s->event_fd);
	}
	pthread_mutex_unlock(&s->mutex);
	return NULL;
}

static int
helper_open(struct helper **sp, int event_fd, aio_discard *discard)
{
	struct helper *s;
	int rc;

	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	s->event_fd = event_fd;
	s->discard = discard;
	STAILQ_INIT(&s->waiting);
	STAILQ_INIT(&s->todo);
	STAILQ_INIT(&s->done);
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->wake, NULL);
	rc = thread_start(&s->thread, STACK_BYTES, helper_main, s);
	if (rc < 0) {
		pthread_cond_destroy(&s->wake);
		pthread_mutex_destroy(&s->mutex);
		free(s);
		return rc;
	}
	*sp = s;
	return 0;
}

static void
helper_close(struct helper *s)
{
	pthread_mutex_lock(&s->mutex);
	s->stop = true;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->mutex);
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->mutex);
	free(s);
}

static void
helper_push(struct helper *s, struct channel *ch)
{
	if (STAILQ_EMPTY(&s->waiting))
		return;
	pthread_mutex_lock(&s->mutex);
	STAILQ_CONCAT(&s->todo, &s->waiting);
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->mutex);
	ch->submits++;
}

/* Move what has finished to 'list'. */
static void
helper_take(struct helper *s, struct slot_list *list)
{
	/* Read the list only after the count that covers it. */
	if (__atomic_load_n(&s->nr_done, __ATOMIC_ACQUIRE) == 0)
		return;
	pthread_mutex_lock(&s->mutex);
	STAILQ_CONCAT(list, &s->done);
	__atomic_store_n(&s->nr_done, 0, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&s->mutex);
}

/*
 * Slots.
 */

/* Queue what is left of a read or write, as far as one iocb can carry. */
static void
slot_queue(struct aio *a, struct slot *slot)
{
	struct iocb *cb = &slot->cb;
	bool write = slot->io->op == IO_WRITE;

	if (slot->iovcnt == 1) {
		cb->aio_lio_opcode = write ? IO_CMD_PWRITE : IO_CMD_PREAD;
		cb->u.c.buf = slot->iov->iov_base;
		cb->u.c.nbytes = slot->iov->iov_len;
	} else {
		cb->aio_lio_opcode = write ? IO_CMD_PWRITEV : IO_CMD_PREADV;
		cb->u.c.buf = slot->iov;
		cb->u.c.nbytes = (unsigned long)
		    (slot->iovcnt < IOV_MAX ? slot->iovcnt : IOV_MAX);
	}
	a->queue[a->nr_queued++] = cb;
}

/* 'n' bytes less than all that is left were transferred. */
static void
slot_advance(struct slot *slot, uint64_t n)
{
	slot->cb.u.c.offset += (long long)n;
	slot->left -= n;
	while (n >= slot->iov->iov_len) {
		n -= slot->iov->iov_len;
		slot->iov++;
		slot->iovcnt--;
	}
	slot->iov->iov_base = (char *)slot->iov->iov_base + n;
	slot->iov->iov_len -= n;
}

/* The one place where an I/O ends. */
static void
slot_finish(struct aio *a, struct slot *slot, int error)
{
	struct io *io = slot->io;

	STAILQ_INSERT_HEAD(&a->free, slot, link);
	a->nr_used--;
	io->done(io, error);
}

/* The file has ended 'n' bytes into what was left to read. */
static void
slot_zero(struct slot *slot, uint64_t n)
{
	int i;

	slot_advance(slot, n);
	for (i = 0; i < slot->iovcnt; i++)
		memset(slot->iov[i].iov_base, 0, slot->iov[i].iov_len);
}

/*
 * What the kernel says about one iocb.  Only whole sectors count as
 * progress: direct I/O cannot go on in the middle of one.
 * 1 when the I/O has ended, 0 when there is more of it to do.
 */
static unsigned
slot_result(struct aio *a, struct slot *slot, long res)
{
	uint64_t n;

	if (res < 0) {
		slot_finish(a, slot, (int)res);
		return 1;
	}
	n = (uint64_t)res;
	if (n >= slot->left) {
		slot_finish(a, slot, 0);
		return 1;
	}
	if (a->zero_beyond_end && slot->io->op == IO_READ &&
	    (n == 0 || n % SECTOR != 0)) {
		slot_zero(slot, n);
		slot_finish(a, slot, 0);
		return 1;
	}
	n -= n % SECTOR;
	if (n == 0) {
		slot_finish(a, slot, slot->io->op == IO_READ ? -EIO : -ENOSPC);
		return 1;
	}
	slot_advance(slot, n);
	slot_queue(a, slot);
	return 0;
}

static unsigned
slots_finish(struct aio *a, struct slot_list *list)
{
	struct slot *slot;
	unsigned n = 0;

	while ((slot = STAILQ_FIRST(list)) != NULL) {
		STAILQ_REMOVE_HEAD(list, link);
		slot_finish(a, slot, slot->error);
		n++;
	}
	return n;
}

/*
 * Submit and reap.
 */

void
aio_submit(struct aio *a, int fd, struct io *io)
{
	struct slot *slot = STAILQ_FIRST(&a->free);

	assert(slot != NULL);		/* more than 'depth' at a time */
	STAILQ_REMOVE_HEAD(&a->free, link);
	a->nr_used++;

	slot->io = io;
	slot->iov = io->iov;
	slot->iovcnt = io->iovcnt;
	slot->left = io->length;

	memset(&slot->cb, 0, sizeof(slot->cb));
	slot->cb.data = slot;
	slot->cb.aio_fildes = fd;
	io_set_eventfd(&slot->cb, a->event_fd);
	if (io->op == IO_READ || io->op == IO_WRITE) {
		slot->cb.u.c.offset = (long long)io->offset;
		slot_queue(a, slot);
	} else if (io->op == IO_DISCARD || !a->kernel_flushes) {
		STAILQ_INSERT_TAIL(&a->helper->waiting, slot, link);
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
		slot->error = n;
		STAILQ_INSERT_TAIL(&a->failed, slot, link);
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
		helper_push(a->helper, a->ch);
}

unsigned
aio_reap(struct aio *a)
{
	struct slot_list synced = STAILQ_HEAD_INITIALIZER(synced);
	unsigned n;

	assert(!a->reaping);		/* a done() called us */
	a->reaping = true;
	aio_push_all(a);

	n = a->ring != NULL ? aio_drain_ring(a) : aio_drain_kernel(a);
	n += slots_finish(a, &a->failed);
	if (a->helper != NULL) {
		helper_take(a->helper, &synced);
		n += slots_finish(a, &synced);
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
		event_raise(a->event_fd);
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
		STAILQ_INSERT_TAIL(&a->free, &a->slots[i], link);
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
aio_setup_helper(struct aio *a, int fd, aio_discard *discard, const char *path,
    char why[WHY_MAX])
{
	int rc;

	rc = aio_probe_flush(a, fd);
	if (rc < 0) {
		why_set(why, "flush %.200s: %s; see the kernel log (dmesg) "
		    "for what is wrong with its storage", path, strerror(-rc));
		return rc;
	}
	a->kernel_flushes = rc == 1;
	if (a->kernel_flushes && discard == NULL)
		return 0;
	rc = helper_open(&a->helper, a->event_fd, discard);
	if (rc < 0)
		why_set(why, "start the helper thread of %.200s: %s; raise "
		    "the limits of memory and threads (ulimit -u, TasksMax= "
		    "of the unit)", path, strerror(-rc));
	return rc;
}

int
aio_open(struct aio **aio, struct channel *ch, unsigned depth, int fd,
    aio_discard *discard, const char *path, char why[WHY_MAX])
{
	struct aio *a;
	int rc;

	a = calloc(1, sizeof(*a));
	if (a == NULL || aio_alloc(a, depth) < 0) {
		rc = -ENOMEM;
		why_set(why, "open a channel of %.200s: out of memory", path);
		goto err_free;
	}
	a->ch = ch;
	a->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (a->event_fd == -1) {
		rc = -errno;
		why_set(why, "open an eventfd for %.200s: %s; raise the limit "
		    "of open files (ulimit -n, LimitNOFILE= of the unit)",
		    path, strerror(-rc));
		goto err_free;
	}
	rc = aio_setup(a, path, why);
	if (rc < 0)
		goto err_eventfd;
	rc = aio_setup_helper(a, fd, discard, path, why);
	if (rc < 0)
		goto err_ctx;

	ch->event_fd = a->event_fd;
	*aio = a;
	return 0;

err_ctx:
	io_destroy(a->ctx);
err_eventfd:
	close(a->event_fd);
err_free:
	if (a != NULL) {
		free(a->queue);
		free(a->slots);
	}
	free(a);
	return rc;
}

void
aio_zero_beyond_end(struct aio *a)
{
	a->zero_beyond_end = true;
}

void
aio_close(struct aio *a)
{
	int rc;

	if (a == NULL)
		return;
	assert(a->nr_used == 0 && !a->reaping);
	if (a->helper != NULL)
		helper_close(a->helper);
	rc = io_destroy(a->ctx);
	assert(rc == 0);
	(void)rc;
	close(a->event_fd);
	free(a->queue);
	free(a->slots);
	free(a);
}
