/* SPDX-License-Identifier: GPL-2.0-or-later */
/* sector: see sector.h. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "drivers/sector.h"

#define PAGE 4096u

/* An I/O that does not go down as it is, or has to be registered. */
struct sector_io {
	struct io              io;	/* what goes down */
	struct iovec           iov;	/* of the bounce buffer */
	struct sector_channel *sc;
	struct io             *orig;
	bool                   bounced;
	bool                   partial;	/* a write, not of whole blocks */
	uint64_t               first, end;	/* bytes, whole blocks */
	unsigned               nr_before;	/* writes it waits for */
	TAILQ_ENTRY(sector_io) write;
	STAILQ_ENTRY(sector_io) link;	/* free, granted or hungry */
	/* The piece in the bounce buffer. */
	void                  *buf;
	uint64_t               at;	/* bytes, whole blocks */
	uint32_t               bytes;
	int                    orig_iov;	/* copied up to here */
	size_t                 orig_done;	/* of that element */
};
STAILQ_HEAD(sector_list, sector_io);

struct sector_image {
	struct image     img;		/* must be first */
	struct image    *below;
	uint32_t         block;		/* bytes */
	uint32_t         alignment;	/* of memory, bytes */
	pthread_mutex_t  mutex;
	/* ---- under 'mutex', never held during I/O ---- */
	TAILQ_HEAD(, sector_io) writes;	/* waiting or not, oldest first */
	unsigned         nr_partial;	/* of them */
	unsigned         nr_waiting;	/* of them */
};

struct sector_channel {
	struct channel     ch;		/* must be first */
	struct channel    *below;
	int                wake_fd;	/* -1: the caller polls */
	unsigned           nr_caught;	/* ended below in this reap() ... */
	unsigned           nr_done;	/* ... and above */
	struct sector_io  *ios;
	struct sector_list free;
	struct sector_list hungry;	/* for a bounce buffer */
	void              *memory;
	void              *bounce[SECTOR_BOUNCES];	/* free ones */
	unsigned           nr_bounce;
	/* Under the image's mutex: */
	struct sector_list granted;	/* by another thread */
	unsigned           nr_granted;	/* read without it */
};

static struct sector_image *
image_of(const struct sector_channel *sc)
{
	return container_of(sc->ch.img, struct sector_image, img);
}

/* What the image below has counted is for ours to say. */
static void
sector_take_count(struct sector_image *s)
{
	if (atomic_load(&s->below->metadata_writes) != 0)
		atomic_fetch_add(&s->img.metadata_writes,
		    atomic_exchange(&s->below->metadata_writes, 0));
}

/*
 * Ranges of blocks.
 */

static bool
write_conflicts(const struct sector_io *a, const struct sector_io *b)
{
	return (a->partial || b->partial) && a->first < b->end &&
	    b->first < a->end;
}

/* False: it waits, and will be granted. */
static bool
write_enter(struct sector_image *s, struct sector_io *sio)
{
	struct sector_io *w;
	bool granted;

	sio->nr_before = 0;
	pthread_mutex_lock(&s->mutex);
	if (sio->partial || s->nr_partial > 0)
		TAILQ_FOREACH(w, &s->writes, write)
			sio->nr_before += write_conflicts(w, sio);
	TAILQ_INSERT_TAIL(&s->writes, sio, write);
	s->nr_partial += sio->partial;
	granted = sio->nr_before == 0;
	s->nr_waiting += !granted;
	pthread_mutex_unlock(&s->mutex);
	return granted;
}

/*
 * To another thread.  Under 'mutex', so that the channel cannot be closed
 * before its event is raised: it has to take the I/O first.
 */
static void
write_hand_over(struct sector_io *sio)
{
	struct sector_channel *sc = sio->sc;

	STAILQ_INSERT_TAIL(&sc->granted, sio, link);
	__atomic_store_n(&sc->nr_granted, sc->nr_granted + 1,
	    __ATOMIC_RELEASE);
	if (sc->nr_granted == 1 && sc->wake_fd != -1 &&
	    eventfd_write(sc->wake_fd, 1) == -1)
		abort();	/* the counter is full or the fd not ours */
}

/* Those of the same channel that may go on now are put into 'own'. */
static void
write_leave(struct sector_image *s, struct sector_io *sio,
    struct sector_list *own)
{
	struct sector_io *w;

	pthread_mutex_lock(&s->mutex);
	w = s->nr_waiting > 0 ? TAILQ_NEXT(sio, write) : NULL;
	TAILQ_REMOVE(&s->writes, sio, write);
	s->nr_partial -= sio->partial;
	for (; w != NULL; w = TAILQ_NEXT(w, write)) {
		if (!write_conflicts(w, sio) || --w->nr_before > 0)
			continue;
		s->nr_waiting--;
		if (w->sc == sio->sc)
			STAILQ_INSERT_TAIL(own, w, link);
		else
			write_hand_over(w);
	}
	pthread_mutex_unlock(&s->mutex);
}

/*
 * One I/O.  What runs here was called by submit(), or by reap(), of the
 * channel's own thread.
 */

static void sector_piece(struct sector_io *sio);

/* A bounce buffer is taken only by who waits for nothing else. */
static void
sector_start(struct sector_io *sio)
{
	struct sector_channel *sc = sio->sc;

	if (!sio->bounced) {
		channel_submit(sc->below, &sio->io);
		return;
	}
	if (sc->nr_bounce == 0) {
		STAILQ_INSERT_TAIL(&sc->hungry, sio, link);
		return;
	}
	sio->buf = sc->bounce[--sc->nr_bounce];
	sector_piece(sio);
}

static void
sector_feed(struct sector_channel *sc)
{
	struct sector_io *sio = STAILQ_FIRST(&sc->hungry);

	if (sio == NULL)
		return;
	STAILQ_REMOVE_HEAD(&sc->hungry, link);
	sector_start(sio);
}

/* The one place where it ends. */
static void
sector_finish(struct sector_io *sio, int error)
{
	struct sector_list own = STAILQ_HEAD_INITIALIZER(own);
	struct sector_channel *sc = sio->sc;
	struct io *orig = sio->orig;
	struct sector_io *w;

	if (orig->op == IO_WRITE)
		write_leave(image_of(sc), sio, &own);
	if (sio->bounced) {
		sc->bounce[sc->nr_bounce++] = sio->buf;
		sector_feed(sc);
	}
	STAILQ_INSERT_HEAD(&sc->free, sio, link);
	while ((w = STAILQ_FIRST(&own)) != NULL) {
		STAILQ_REMOVE_HEAD(&own, link);
		sector_start(w);
	}
	sc->nr_done++;
	orig->done(orig, error);
}

static void
sector_passed(struct io *io, int error)
{
	struct sector_io *sio = container_of(io, struct sector_io, io);

	sio->sc->nr_caught++;
	sector_finish(sio, error);
}

/* Between the bounce buffer and what of the caller's lies in this piece. */
static void
sector_copy(struct sector_io *sio)
{
	const struct io *orig = sio->orig;
	uint64_t from = sio->at, to = sio->at + sio->bytes;
	const struct iovec *v;
	char *p, *mine;
	size_t n;

	if (from < orig->offset)
		from = orig->offset;
	if (to > orig->offset + orig->length)
		to = orig->offset + orig->length;
	for (; from < to; from += n) {
		v = &orig->iov[sio->orig_iov];
		p = (char *)v->iov_base + sio->orig_done;
		mine = (char *)sio->buf + (from - sio->at);
		n = v->iov_len - sio->orig_done;
		if (n > to - from)
			n = (size_t)(to - from);
		memcpy(orig->op == IO_READ ? p : mine,
		    orig->op == IO_READ ? mine : p, n);
		sio->orig_done += n;
		if (sio->orig_done == v->iov_len) {
			sio->orig_iov++;
			sio->orig_done = 0;
		}
	}
}

/* Blocks 'from' to 'to' of the piece. */
static void
sector_below(struct sector_io *sio, enum io_op op, uint64_t from, uint64_t to,
    void (*done)(struct io *io, int error))
{
	sio->iov.iov_base = (char *)sio->buf + (from - sio->at);
	sio->iov.iov_len = (size_t)(to - from);
	sio->io = (struct io){
		.op = op, .offset = from, .length = to - from,
		.iov = &sio->iov, .iovcnt = 1, .done = done,
	};
	channel_submit(sio->sc->below, &sio->io);
}

static void
sector_next(struct sector_io *sio)
{
	sio->at += sio->bytes;
	if (sio->at == sio->end)
		sector_finish(sio, 0);
	else
		sector_piece(sio);
}

static void
sector_written(struct io *io, int error)
{
	struct sector_io *sio = container_of(io, struct sector_io, io);

	sio->sc->nr_caught++;
	if (error != 0)
		sector_finish(sio, error);
	else
		sector_next(sio);
}

static void
sector_merge(struct sector_io *sio)
{
	sector_copy(sio);
	sector_below(sio, IO_WRITE, sio->at, sio->at + sio->bytes,
	    sector_written);
}

static void
sector_was_read(struct io *io, int error)
{
	struct sector_io *sio = container_of(io, struct sector_io, io);

	sio->sc->nr_caught++;
	if (error != 0) {
		sector_finish(sio, error);
	} else if (sio->orig->op == IO_WRITE) {
		sector_merge(sio);
	} else {
		sector_copy(sio);
		sector_next(sio);
	}
}

/*
 * A write reads the block it begins in and the one it ends in, where it does
 * not fill them; with all between them, so that it is one I/O (and with all
 * before it, where its place in the buffer would not be aligned enough).
 */
static void
sector_piece(struct sector_io *sio)
{
	const struct sector_image *s = image_of(sio->sc);
	const struct io *orig = sio->orig;
	uint64_t from, to;
	bool head, tail;

	sio->bytes = SECTOR_BOUNCE;
	if (sio->bytes > sio->end - sio->at)
		sio->bytes = (uint32_t)(sio->end - sio->at);
	from = sio->at;
	to = sio->at + sio->bytes;
	if (orig->op == IO_WRITE) {
		head = orig->offset > from;
		tail = orig->offset + orig->length < to;
		if (!head && !tail) {
			sector_merge(sio);
			return;
		}
		if (!tail)
			to = from + s->block;
		else if (!head && s->block >= s->alignment)
			from = to - s->block;
	}
	sector_below(sio, IO_READ, from, to, sector_was_read);
}

/*
 * Submit and reap.
 */

/* May it go down as it is? */
static bool
sector_fits(const struct sector_image *s, const struct io *io)
{
	uintptr_t sizes = io->offset | io->length, places = 0;
	int i;

	for (i = 0; i < io->iovcnt; i++) {
		sizes |= io->iov[i].iov_len;
		places |= (uintptr_t)io->iov[i].iov_base;
	}
	return (sizes & (s->block - 1)) == 0 &&
	    (places & (s->alignment - 1)) == 0;
}

static void
sector_submit(struct channel *ch, struct io *io)
{
	struct sector_channel *sc = container_of(ch, struct sector_channel,
	    ch);
	struct sector_image *s = image_of(sc);
	uint64_t mask = s->block - 1;
	struct sector_io *sio;
	bool fits;

	fits = io->op == IO_FLUSH || io->op == IO_DISCARD ||
	    sector_fits(s, io);
	if (fits && io->op != IO_WRITE) {
		channel_submit(sc->below, io);
		return;
	}

	sio = STAILQ_FIRST(&sc->free);
	assert(sio != NULL);		/* more than 'depth' at a time */
	STAILQ_REMOVE_HEAD(&sc->free, link);
	sio->orig = io;
	sio->io = *io;
	sio->io.done = sector_passed;
	sio->bounced = !fits;
	sio->first = sio->at = io->offset & ~mask;
	sio->end = (io->offset + io->length + mask) & ~mask;
	sio->partial = io->op == IO_WRITE &&
	    ((io->offset | io->length) & mask) != 0;
	sio->orig_iov = 0;
	sio->orig_done = 0;
	if (io->op != IO_WRITE || write_enter(s, sio))
		sector_start(sio);
}

/* What another thread has let go on. */
static void
sector_take_granted(struct sector_channel *sc)
{
	struct sector_list granted = STAILQ_HEAD_INITIALIZER(granted);
	struct sector_image *s = image_of(sc);
	struct sector_io *sio;

	if (__atomic_load_n(&sc->nr_granted, __ATOMIC_ACQUIRE) == 0)
		return;
	pthread_mutex_lock(&s->mutex);
	STAILQ_CONCAT(&granted, &sc->granted);
	__atomic_store_n(&sc->nr_granted, 0, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&s->mutex);
	while ((sio = STAILQ_FIRST(&granted)) != NULL) {
		STAILQ_REMOVE_HEAD(&granted, link);
		sector_start(sio);
	}
}

/*
 * All that is submitted below in here is so before or during the reap()
 * below, whose business it then is that an edge tells of it.
 */
static unsigned
sector_reap(struct channel *ch)
{
	struct sector_channel *sc = container_of(ch, struct sector_channel,
	    ch);
	unsigned n;

	sector_take_granted(sc);
	sc->nr_caught = sc->nr_done = 0;
	n = channel_reap(sc->below);
	sc->ch.submits = sc->below->submits;
	sector_take_count(image_of(sc));
	return n - sc->nr_caught + sc->nr_done;
}

/*
 * The channel.
 */

static int
sector_alloc(struct sector_channel *sc, unsigned depth)
{
	size_t alignment = image_of(sc)->alignment;
	unsigned i;

	STAILQ_INIT(&sc->free);
	STAILQ_INIT(&sc->hungry);
	STAILQ_INIT(&sc->granted);
	sc->ios = calloc(depth, sizeof(*sc->ios));
	if (sc->ios == NULL)
		return -ENOMEM;
	for (i = 0; i < depth; i++) {
		sc->ios[i].sc = sc;
		STAILQ_INSERT_TAIL(&sc->free, &sc->ios[i], link);
	}
	sc->nr_bounce = depth < SECTOR_BOUNCES ? depth : SECTOR_BOUNCES;
	if (posix_memalign(&sc->memory, alignment > PAGE ? alignment : PAGE,
	    sc->nr_bounce * SECTOR_BOUNCE) != 0)
		return -ENOMEM;
	for (i = 0; i < sc->nr_bounce; i++)
		sc->bounce[i] = (char *)sc->memory + i * SECTOR_BOUNCE;
	return 0;
}

/* Readable when another thread, or the channel below, has something to say. */
static int
sector_open_events(struct sector_channel *sc)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int epfd, rc;

	sc->ch.event_fd = sc->wake_fd = -1;
	if (sc->below->event_fd == -1)
		return 0;
	epfd = epoll_create1(EPOLL_CLOEXEC);
	if (epfd == -1)
		return -errno;
	sc->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (sc->wake_fd == -1 ||
	    epoll_ctl(epfd, EPOLL_CTL_ADD, sc->wake_fd, &ev) == -1 ||
	    epoll_ctl(epfd, EPOLL_CTL_ADD, sc->below->event_fd, &ev) == -1) {
		rc = -errno;
		if (sc->wake_fd != -1)
			close(sc->wake_fd);
		close(epfd);
		return rc;
	}
	sc->ch.event_fd = epfd;
	return 0;
}

static void
sector_free(struct sector_channel *sc)
{
	channel_close(sc->below);
	free(sc->memory);
	free(sc->ios);
	free(sc);
}

static int
sector_channel_open(struct image *img, unsigned depth, struct channel **ch,
    char why[WHY_MAX])
{
	struct sector_image *s = container_of(img, struct sector_image, img);
	struct sector_channel *sc;
	int rc;

	sc = calloc(1, sizeof(*sc));
	if (sc == NULL) {
		why_set(why, "open a channel over sectors of %u bytes: out of "
		    "memory", s->block);
		return -ENOMEM;
	}
	sc->ch.img = img;
	rc = sector_alloc(sc, depth);
	if (rc < 0) {
		why_set(why, "open a channel over sectors of %u bytes: out of "
		    "memory", s->block);
		goto err_free;
	}
	/* Each of ours has at most one below at a time. */
	rc = channel_open(s->below, depth, &sc->below, why);
	if (rc < 0)
		goto err_free;
	rc = sector_open_events(sc);
	if (rc < 0) {
		why_set(why, "open an eventfd over sectors of %u bytes: %s; "
		    "raise the limit of open files (ulimit -n, LimitNOFILE= "
		    "of the unit)", s->block, strerror(-rc));
		goto err_free;
	}
	*ch = &sc->ch;
	return 0;

err_free:
	sector_free(sc);
	return rc;
}

static void
sector_channel_close(struct channel *ch)
{
	struct sector_channel *sc = container_of(ch, struct sector_channel,
	    ch);

	assert(STAILQ_EMPTY(&sc->hungry) && sc->nr_granted == 0);
	if (sc->wake_fd != -1) {
		close(sc->ch.event_fd);
		close(sc->wake_fd);
	}
	sector_free(sc);
}

/*
 * The image.
 */

static void
sector_copy_geometry(struct sector_image *s)
{
	s->img.readonly = s->below->readonly;
	s->img.size = s->below->size;
	s->img.block_size = 512;
	s->img.physical_block_size = s->below->physical_block_size;
	s->img.discard_granularity = s->below->discard_granularity;
	s->img.discard_alignment = s->below->discard_alignment;
	s->img.dev = s->below->dev;
	s->img.ino = s->below->ino;
	s->img.redo_bytes = s->below->redo_bytes;
}

static void
sector_close(struct image *img)
{
	struct sector_image *s = container_of(img, struct sector_image, img);

	image_close(s->below);
	pthread_mutex_destroy(&s->mutex);
	free(s);
}

static int
sector_activate(struct image *img, char why[WHY_MAX])
{
	struct sector_image *s = container_of(img, struct sector_image, img);
	int rc;

	s->below->redo = img->redo;
	rc = image_activate(s->below, why);
	if (rc == 0)
		sector_copy_geometry(s);
	return rc;
}

static int
sector_deactivate(struct image *img, char why[WHY_MAX])
{
	struct sector_image *s = container_of(img, struct sector_image, img);
	int rc;

	rc = image_deactivate(s->below, why);
	sector_take_count(s);
	return rc;
}

static int
sector_resize(struct image *img, uint64_t size, char why[WHY_MAX])
{
	struct sector_image *s = container_of(img, struct sector_image, img);
	int rc;

	rc = image_resize(s->below, size, why);
	s->img.size = s->below->size;
	return rc;
}

static int
sector_info(struct image *img, struct image_layer layers[IMAGE_LAYERS_MAX],
    char why[WHY_MAX])
{
	return image_info(container_of(img, struct sector_image, img)->below,
	    layers, why);
}

static int
sector_check(struct image *img, struct image_check *c, char why[WHY_MAX])
{
	return image_check(container_of(img, struct sector_image, img)->below,
	    c, why);
}

/* Not in the table of drivers: nobody names it. */
static const struct driver driver_sector = {
	.name          = "sector",
	.close         = sector_close,
	.activate      = sector_activate,
	.deactivate    = sector_deactivate,
	.resize        = sector_resize,
	.channel_open  = sector_channel_open,
	.channel_close = sector_channel_close,
	.submit        = sector_submit,
	.reap          = sector_reap,
	.info          = sector_info,
	.check         = sector_check,
};

int
sector_wrap(struct image *below, struct image **img, char why[WHY_MAX])
{
	struct sector_image *s;

	assert(below->block_size <= SECTOR_BOUNCE);
	s = calloc(1, sizeof(*s));
	if (s == NULL) {
		why_set(why, "open over sectors of %u bytes: out of memory",
		    below->block_size);
		return -ENOMEM;
	}
	s->below = below;
	s->block = below->block_size;
	s->alignment = below->buffer_alignment;
	if (s->alignment < 512)
		s->alignment = 512;
	TAILQ_INIT(&s->writes);
	pthread_mutex_init(&s->mutex, NULL);
	sector_copy_geometry(s);
	s->img.drv = &driver_sector;
	*img = &s->img;
	return 0;
}
