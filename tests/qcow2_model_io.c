/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_model_io: one time that an image is open.  See qcow2_model.h.
 *
 * The first thread makes the operations and knows the model; each channel has
 * a thread of its own, as a queue has, which sleeps on its descriptors and
 * hands back what is done.  Of operations that overlap and change something
 * never two are in flight, so the model needs no order; but for storms, which
 * are small heaps of operations on one place: what they leave may be any of
 * them, sector by sector.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/qcow2_model.h"

#define KiB 1024u
#define MiB (1024u * KiB)
#define MAX_CHANNELS 4
#define MAX_VECTOR   24
#define GAP          SECTOR	/* between two iovs, to be left alone */
#define CANARY       0xee

/* Seconds until something must have happened. */
#ifdef RINGBACK_SANITIZED
#define PATIENCE 120
#else
#define PATIENCE 20
#endif

struct op {
	struct io      io;
	struct worker *worker;
	TAILQ_ENTRY(op) link;	/* between the threads */
	TAILQ_ENTRY(op) flight;	/* of the first thread */
	struct iovec   vector[MAX_VECTOR];	/* ours; io may change its */
	struct iovec   given[MAX_VECTOR];
	uint8_t       *memory;
	size_t         memory_bytes;
	uint32_t       version;	/* of a write */
	bool           storm;
	unsigned       nr_done;
	int            error;
};
TAILQ_HEAD(op_list, op);

struct worker {
	struct round   *round;
	struct channel *ch;
	pthread_t       thread;
	int             epfd, wake;
	unsigned        depth, nr_inflight;	/* the first thread's */
	_Atomic bool    stop;
	bool            reaping;		/* the worker's */
	unsigned        nr_done;
	unsigned        nr_there;
	struct op_list  given;			/* under the round's lock */
};

struct round {
	struct run     *run;
	struct rng     *r;
	struct contents *c;
	struct image   *img;
	char            why[WHY_MAX];
	void           *redo;
	size_t          redo_bytes;
	pthread_mutex_t lock;
	pthread_cond_t  some_done;
	struct op_list  done;			/* under the lock */
	struct op_list  inflight;		/* the first thread's */
	struct op_list  storm;			/* done ones of a storm */
	unsigned        nr_workers;
	struct worker   worker[MAX_CHANNELS];
	uint64_t        hot[4];			/* bytes */
	uint64_t        next;			/* where the last one ended */
	uint64_t        bytes;			/* still to be moved */
	uint32_t        version;
	bool            zeroes;			/* what a discard leaves */
};

/*
 * Channels.
 */

static void
op_done(struct io *io, int error)
{
	struct op *op = container_of(io, struct op, io);
	struct worker *w = op->worker;
	struct round *d = w->round;

	if (!w->reaping)
		model_fail("done() outside of reap()");
	if (op->nr_done++ > 0 || error > 0)
		model_fail("done() for the %u. time with %d", op->nr_done,
		    error);
	op->error = error;
	w->nr_done++;
	w->nr_there--;
	pthread_mutex_lock(&d->lock);
	TAILQ_INSERT_TAIL(&d->done, op, link);
	pthread_cond_signal(&d->some_done);
	pthread_mutex_unlock(&d->lock);
}

static void
worker_submit(struct worker *w)
{
	struct round *d = w->round;
	struct op_list given = TAILQ_HEAD_INITIALIZER(given);
	struct op *op;

	pthread_mutex_lock(&d->lock);
	TAILQ_CONCAT(&given, &w->given, link);
	pthread_mutex_unlock(&d->lock);
	while ((op = TAILQ_FIRST(&given)) != NULL) {
		TAILQ_REMOVE(&given, op, link);
		w->nr_there++;
		channel_submit(w->ch, &op->io);
	}
}

static void *
worker_main(void *arg)
{
	struct worker *w = arg;
	struct epoll_event ev;
	unsigned before, n;
	uint64_t count;

	while (!w->stop || w->nr_there > 0) {
		n = (unsigned)epoll_wait(w->epfd, &ev, 1, w->ch->event_fd ==
		    -1 && w->nr_there > 0 ? 0 : -1);
		if (n == 1 && ev.data.fd == w->wake &&
		    read(w->wake, &count, sizeof(count)) !=
		    (ssize_t)sizeof(count))
			model_fail("eventfd: %s", strerror(errno));
		worker_submit(w);
		before = w->nr_done;
		w->reaping = true;
		n = channel_reap(w->ch);
		w->reaping = false;
		if (n != w->nr_done - before)
			model_fail("reap() says %u, not %u", n, w->nr_done -
			    before);
	}
	return NULL;
}

static void
worker_watch(struct worker *w, int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.fd = fd };

	if (epoll_ctl(w->epfd, EPOLL_CTL_ADD, fd, &ev) != 0)
		model_fail("epoll: %s", strerror(errno));
}

static void
worker_open(struct round *d, struct worker *w)
{
	*w = (struct worker){
		.round = d, .depth = (unsigned)rng_log(d->r, 1, 128),
		.epfd = epoll_create1(EPOLL_CLOEXEC),
		.wake = eventfd(0, EFD_CLOEXEC),
	};
	TAILQ_INIT(&w->given);
	if (w->epfd == -1 || w->wake == -1)
		model_fail("epoll, eventfd: %s", strerror(errno));
	if (channel_open(d->img, w->depth, &w->ch, d->why) != 0)
		model_fail("channel: %s", d->why);
	worker_watch(w, w->wake, EPOLLIN);
	if (w->ch->event_fd != -1)
		worker_watch(w, w->ch->event_fd, EPOLLIN | EPOLLET);
}

static void
worker_start(struct worker *w)
{
	if (pthread_create(&w->thread, NULL, worker_main, w) != 0)
		model_fail("cannot make a thread");
}

static void
worker_wake(struct worker *w)
{
	uint64_t one = 1;

	if (write(w->wake, &one, sizeof(one)) != (ssize_t)sizeof(one))
		model_fail("eventfd: %s", strerror(errno));
}

static void
worker_stop(struct worker *w)
{
	w->stop = true;
	worker_wake(w);
	pthread_join(w->thread, NULL);
}

static void
worker_close(struct worker *w)
{
	channel_close(w->ch);
	close(w->epfd);
	close(w->wake);
}

/*
 * Operations.
 */

static const char *
op_name(const struct op *op)
{
	static const char *const names[] = {
		[IO_READ] = "read", [IO_WRITE] = "write",
		[IO_FLUSH] = "flush", [IO_DISCARD] = "discard",
	};

	return names[op->io.op];
}

/* Cut into pieces that do not lie next to each other. */
static void
op_cut(struct op *op, struct rng *r)
{
	uint64_t sectors = op->io.length / SECTOR, n;
	int most = 1 + (int)rng_below(r, MAX_VECTOR), i;
	uint8_t *p;

	op->memory_bytes = op->io.length + (MAX_VECTOR + 9) * GAP;
	if (posix_memalign((void **)&op->memory, 4096, op->memory_bytes) != 0)
		model_fail("out of memory");
	memset(op->memory, CANARY, op->memory_bytes);
	p = op->memory + GAP * rng_below(r, 8);
	for (i = 0; sectors > 0; i++, sectors -= n) {
		n = i + 1 == most ? sectors : rng_log(r, 1, sectors);
		op->vector[i].iov_base = p;
		op->vector[i].iov_len = n * SECTOR;
		p += n * SECTOR + (rng_chance(r, 50) ? GAP : 0);
	}
	op->io.iovcnt = i;
	op->io.iov = op->given;
	memcpy(op->given, op->vector, sizeof(op->given));
}

static struct op *
op_new(struct round *d, enum io_op kind, uint64_t offset, uint64_t length)
{
	struct op *op;
	uint64_t sector = offset / SECTOR;
	size_t at;
	int i;

	op = calloc(1, sizeof(*op));
	if (op == NULL)
		model_fail("out of memory");
	op->io.op = kind;
	op->io.offset = offset;
	op->io.length = length;
	op->io.done = op_done;
	if (kind == IO_READ || kind == IO_WRITE)
		op_cut(op, d->r);
	if (kind != IO_WRITE)
		return op;
	op->version = 256 + d->version++;
	if (rng_chance(d->r, 4))
		op->version = (uint32_t)rng_below(d->r, 2);
	for (i = 0; i < op->io.iovcnt; i++)
		for (at = 0; at < op->vector[i].iov_len; at += SECTOR)
			sector_fill((char *)op->vector[i].iov_base + at,
			    sector++, op->version);
	return op;
}

static bool
op_overlaps(const struct op *a, const struct op *b)
{
	return a->io.offset < b->io.offset + b->io.length &&
	    b->io.offset < a->io.offset + a->io.length;
}

static bool
op_conflicts(const struct op *a, const struct op *b)
{
	if (a->storm && b->storm)
		return false;
	if (a->io.op == IO_READ && b->io.op == IO_READ)
		return false;
	return op_overlaps(a, b);
}

/* Nothing was put where nothing was asked for. */
static void
op_check_gaps(const struct op *op)
{
	const uint8_t *p = op->memory, *end = p + op->memory_bytes;
	int i;

	for (i = 0; i <= op->io.iovcnt; i++) {
		const uint8_t *to = i < op->io.iovcnt ?
		    op->vector[i].iov_base : end;

		for (; p < to; p++)
			if (*p != CANARY)
				model_fail("a %s of %llu at %llu wrote outside "
				    "of its memory", op_name(op),
				    (unsigned long long)op->io.length,
				    (unsigned long long)op->io.offset);
		if (i < op->io.iovcnt)
			p = to + op->vector[i].iov_len;
	}
}

/* Done, and not in a storm: it is as the model says, or changes that. */
static void
op_apply(struct round *d, struct op *op)
{
	uint64_t first = op->io.offset / SECTOR, n, i;
	char who[96];
	int k;

	if (op->io.op == IO_WRITE) {
		contents_set(d->c, first, op->io.length / SECTOR, op->version);
	} else if (op->io.op == IO_DISCARD) {
		n = op->io.length / SECTOR;
		if (d->zeroes)
			contents_set(d->c, first, n, 0);
		for (i = first; i < first + n && !d->zeroes; i++)
			d->c->or_zero[i] = 1;
	} else if (op->io.op == IO_READ) {
		snprintf(who, sizeof(who), "read of %llu at %llu",
		    (unsigned long long)op->io.length,
		    (unsigned long long)op->io.offset);
		for (k = 0; k < op->io.iovcnt; k++) {
			n = op->vector[k].iov_len / SECTOR;
			contents_compare(d->c, op->vector[k].iov_base, first,
			    n, who);
			first += n;
		}
	}
}

static void
op_free(struct op *op)
{
	free(op->memory);
	free(op);
}

static void
op_finish(struct round *d, struct op *op)
{
	op->worker->nr_inflight--;
	d->run->count[op->io.op]++;
	if (op->error != 0)
		model_fail("%s of %llu at %llu: %s", op_name(op),
		    (unsigned long long)op->io.length,
		    (unsigned long long)op->io.offset, strerror(-op->error));
	if (op->memory != NULL)
		op_check_gaps(op);
	if (op->storm) {
		TAILQ_INSERT_TAIL(&d->storm, op, flight);
		return;
	}
	op_apply(d, op);
	op_free(op);
}

/* Take what is done off the workers; wait for something if there is none. */
static void
collect(struct round *d, bool wait)
{
	struct op_list done = TAILQ_HEAD_INITIALIZER(done);
	struct timespec until;
	struct op *op;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE;
	pthread_mutex_lock(&d->lock);
	while (wait && TAILQ_EMPTY(&d->done) && rc == 0)
		rc = pthread_cond_timedwait(&d->some_done, &d->lock, &until);
	TAILQ_CONCAT(&done, &d->done, link);
	pthread_mutex_unlock(&d->lock);
	if (rc != 0) {
		op = TAILQ_FIRST(&d->inflight);
		model_fail("a %s of %llu at %llu is not done in %u seconds",
		    op_name(op), (unsigned long long)op->io.length,
		    (unsigned long long)op->io.offset, PATIENCE);
	}
	while ((op = TAILQ_FIRST(&done)) != NULL) {
		TAILQ_REMOVE(&done, op, link);
		TAILQ_REMOVE(&d->inflight, op, flight);
		op_finish(d, op);
	}
}

static void
drain(struct round *d)
{
	while (!TAILQ_EMPTY(&d->inflight))
		collect(d, true);
}

static struct worker *
worker_find(struct round *d, unsigned first)
{
	struct worker *w;
	unsigned i;

	for (i = 0; i < d->nr_workers; i++) {
		w = &d->worker[(first + i) % d->nr_workers];
		if (w->nr_inflight < w->depth)
			return w;
	}
	return NULL;
}

static bool
must_wait(const struct round *d, const struct op *op)
{
	const struct op *other;

	if (op->io.op == IO_FLUSH)
		return false;
	TAILQ_FOREACH(other, &d->inflight, flight)
		if (other->io.op != IO_FLUSH && op_conflicts(op, other))
			return true;
	return false;
}

static void
op_start(struct round *d, struct op *op)
{
	unsigned first = (unsigned)rng_below(d->r, d->nr_workers);
	struct worker *w;

	collect(d, false);
	while (must_wait(d, op))
		collect(d, true);
	while ((w = worker_find(d, first)) == NULL)
		collect(d, true);
	model_say(d->run, "%s %llu +%llu version %u channel %d%s", op_name(op),
	    (unsigned long long)op->io.offset,
	    (unsigned long long)op->io.length, op->version,
	    (int)(w - d->worker), op->storm ? " storm" : "");
	op->worker = w;
	w->nr_inflight++;
	TAILQ_INSERT_TAIL(&d->inflight, op, flight);
	pthread_mutex_lock(&d->lock);
	TAILQ_INSERT_TAIL(&w->given, op, link);
	pthread_mutex_unlock(&d->lock);
	worker_wake(w);
}

/*
 * Storms.
 */

static bool
covers(const struct op *op, uint64_t sector)
{
	return op->io.offset <= sector * SECTOR &&
	    sector * SECTOR < op->io.offset + op->io.length;
}

/* Has somebody left these words of a sector there?  *version: who. */
static bool
storm_allows(const struct round *d, uint64_t sector, const uint64_t *is,
    unsigned word, unsigned words, uint32_t *version)
{
	uint64_t want[SECTOR / 8];
	const struct op *op;
	uint32_t may;

	TAILQ_FOREACH(op, &d->storm, flight) {
		if (op->io.op != IO_WRITE && op->io.op != IO_DISCARD)
			continue;
		if (!covers(op, sector))
			continue;
		may = op->io.op == IO_WRITE ? op->version : 0;
		sector_fill(want, sector, may);
		if (memcmp(is + word, want + word, words * 8) != 0)
			continue;
		*version = may;
		return true;
	}
	return false;
}

/*
 * As long as it goes on, also what was there before; and a read that a write
 * overtakes may have some of both.
 */
static void
storm_check_read(const struct round *d, const struct op *op)
{
	uint64_t sector = op->io.offset / SECTOR, was[SECTOR / 8];
	const uint64_t *is;
	uint32_t version;
	unsigned i;
	size_t at;
	int k;

	for (k = 0; k < op->io.iovcnt; k++) {
		is = op->vector[k].iov_base;
		for (at = 0; at < op->vector[k].iov_len; at += SECTOR) {
			sector_fill(was, sector, d->c->version[sector]);
			for (i = 0; i < SECTOR / 8; i++)
				if (is[i] != was[i] && (is[i] != 0 ||
				    !d->c->or_zero[sector]) &&
				    !storm_allows(d, sector, is, i, 1,
				    &version))
					model_fail("storm: read of %llu at "
					    "%llu: sector %llu is of nobody",
					    (unsigned long long)op->io.length,
					    (unsigned long long)op->io.offset,
					    (unsigned long long)sector);
			sector++;
			is += SECTOR / 8;
		}
	}
}

/* Which of them has won?  A discard that nobody wrote over is as any. */
static void
storm_settle(struct round *d, const struct op *all)
{
	uint64_t sector = all->io.offset / SECTOR;
	const struct op *op;
	uint32_t version;
	bool written, discarded;
	uint64_t i;
	const char *is = all->vector[0].iov_base;

	for (i = 0; i < all->io.length / SECTOR; i++, sector++) {
		written = discarded = false;
		TAILQ_FOREACH(op, &d->storm, flight) {
			if (op->io.op == IO_FLUSH || !covers(op, sector))
				continue;
			written = written || op->io.op == IO_WRITE;
			discarded = discarded || op->io.op == IO_DISCARD;
		}
		if (written) {
			if (!storm_allows(d, sector, (const void *)(is + i *
			    SECTOR), 0, SECTOR / 8, &version))
				model_fail("storm: sector %llu is of nobody",
				    (unsigned long long)sector);
			contents_set(d->c, sector, 1, version);
		} else if (discarded) {
			if (d->zeroes)
				contents_set(d->c, sector, 1, 0);
			else
				d->c->or_zero[sector] = 1;
		}
		contents_compare(d->c, is + i * SECTOR, sector, 1, "storm");
	}
}

static struct op *
storm_op(struct round *d, uint64_t from, uint64_t bytes)
{
	static const enum io_op kinds[] = {
		IO_WRITE, IO_WRITE, IO_READ, IO_FLUSH, IO_DISCARD,
	};
	enum io_op kind = kinds[rng_below(d->r, 5)];
	uint64_t granule = d->img->discard_granularity, first, n;
	struct op *op;

	if (kind == IO_DISCARD) {
		if (granule == 0 || bytes < granule)
			return NULL;
		n = granule * (1 + rng_below(d->r, bytes / granule));
		first = from + granule * rng_below(d->r, (bytes - n) /
		    granule + 1);
	} else if (kind == IO_FLUSH) {
		first = n = 0;
	} else {
		n = SECTOR * rng_log(d->r, 1, bytes / SECTOR);
		first = from + SECTOR * rng_below(d->r, (bytes - n) / SECTOR +
		    1);
	}
	op = op_new(d, kind, first, n);
	op->storm = true;
	return op;
}

/* In one piece, which a storm's own memory need not be. */
static void
storm_read_back(struct round *d, uint64_t from, uint64_t bytes)
{
	struct op *op = op_new(d, IO_READ, from, bytes);

	op->io.iovcnt = 1;
	op->vector[0].iov_base = op->memory;
	op->vector[0].iov_len = bytes;
	op->given[0] = op->vector[0];
	op->storm = true;
	op_start(d, op);
	drain(d);
	TAILQ_REMOVE(&d->storm, op, flight);
	storm_settle(d, op);
	op_free(op);
}

/*
 * What is done, and where.
 */

/* Where something begins or ends. */
static uint64_t
pick_edge(struct round *d)
{
	const struct layer *l = d->run->shape;
	uint64_t cluster = 1ull << l->cluster_bits, unit;
	unsigned entry = l->extended ? 16 : 8;

	switch (rng_below(d->r, 6)) {
	case 0:
		unit = l->extended ? cluster / 32 : 4 * KiB;
		break;
	case 1:
		unit = (cluster < 4 * KiB ? cluster : 4 * KiB) / entry *
		    cluster;
		break;
	case 2:
		unit = cluster / entry * cluster;
		break;
	case 3:
		l = &d->run->chain.layer[rng_below(d->r,
		    d->run->chain.nr_layers)];
		return l->grown != 0 && rng_chance(d->r, 50) ? l->grown :
		    l->size;
	default:
		unit = cluster;
		break;
	}
	return unit * rng_below(d->r, d->img->size / unit + 1);
}

static uint64_t
pick_offset(struct round *d)
{
	uint64_t cluster = 1ull << d->run->shape->cluster_bits, at;
	uint64_t way = rng_below(d->r, 100);

	if (way < 35) {
		at = d->hot[rng_below(d->r, 4)] + rng_below(d->r, 2 * cluster);
	} else if (way < 65) {
		at = pick_edge(d) + SECTOR * rng_below(d->r, 5);
		at = at > 2 * SECTOR ? at - 2 * SECTOR : 0;
	} else if (way < 80) {
		at = d->next;
	} else {
		at = rng_below(d->r, d->img->size);
	}
	at -= at % SECTOR;
	return at < d->img->size ? at : d->img->size - SECTOR;
}

static uint64_t
pick_length(struct round *d, uint64_t at)
{
	uint64_t cluster = 1ull << d->run->shape->cluster_bits, n, edge;
	uint64_t way = rng_below(d->r, 100);

	if (way < 45) {
		n = SECTOR * (1 + rng_below(d->r, 8));
	} else if (way < 70) {
		n = SECTOR * rng_log(d->r, 1, MiB / SECTOR);
	} else if (way < 85) {
		n = cluster * rng_log(d->r, 1, 8);
	} else {
		edge = pick_edge(d);
		n = edge > at ? edge - at : cluster;
	}
	if (n > MiB)
		n = MiB;
	return n < d->img->size - at ? n : d->img->size - at;
}

/* Meanwhile elsewhere: it may get what the storm has freed. */
static void
storm_aside(struct round *d, uint64_t from, uint64_t bytes)
{
	uint64_t at = pick_offset(d), n = pick_length(d, at);

	if (at < from + bytes && from < at + n)
		return;
	op_start(d, op_new(d, IO_WRITE, at, n));
}

/* The place begins with what can be discarded. */
static void
storm_run(struct round *d)
{
	uint64_t cluster = d->img->discard_granularity != 0 ?
	    d->img->discard_granularity : 1u << d->run->shape->cluster_bits;
	uint64_t from, bytes;
	unsigned n = 2 + (unsigned)rng_below(d->r, 24);
	struct op *op;

	from = d->img->size > cluster ? cluster * rng_below(d->r,
	    d->img->size / cluster) : 0;
	bytes = cluster * (1 + rng_below(d->r, 4));
	if (bytes > MiB / 2)
		bytes = cluster > MiB / 2 ? cluster : MiB / 2;
	if (bytes > d->img->size - from)
		bytes = d->img->size - from;
	drain(d);
	while (n-- > 0) {
		op = storm_op(d, from, bytes);
		if (op != NULL)
			op_start(d, op);
		if (rng_chance(d->r, 20))
			storm_aside(d, from, bytes);
	}
	drain(d);
	TAILQ_FOREACH(op, &d->storm, flight)
		if (op->io.op == IO_READ)
			storm_check_read(d, op);
	storm_read_back(d, from, bytes);
	while ((op = TAILQ_FIRST(&d->storm)) != NULL) {
		TAILQ_REMOVE(&d->storm, op, flight);
		op_free(op);
	}
}

static struct op *
pick_discard(struct round *d)
{
	uint64_t granule = d->img->discard_granularity, at, n;
	uint64_t lead = d->img->discard_alignment;

	at = pick_offset(d);
	at = at < lead ? lead : at - (at - lead) % granule;
	if (at > d->img->size - granule || d->img->size < granule)
		return NULL;
	n = granule * rng_log(d->r, 1, 64);
	if (n > (d->img->size - at) / granule * granule)
		n = (d->img->size - at) / granule * granule;
	return op_new(d, IO_DISCARD, at, n);
}

static void
pick_op(struct round *d)
{
	uint64_t way = rng_below(d->r, 100), at, n;
	enum io_op kind = way < 35 ? IO_READ : way < 82 ? IO_WRITE : way < 87 ?
	    IO_FLUSH : IO_DISCARD;
	struct op *op;

	if (d->img->readonly && kind != IO_FLUSH)
		kind = IO_READ;
	if (kind == IO_DISCARD && d->img->discard_granularity == 0)
		kind = IO_WRITE;
	if (kind == IO_FLUSH) {
		op = op_new(d, kind, 0, 0);
	} else if (kind == IO_DISCARD) {
		op = pick_discard(d);
		if (op == NULL)
			return;
	} else {
		at = pick_offset(d);
		n = pick_length(d, at);
		d->next = at + n;
		d->bytes -= d->bytes < n ? d->bytes : n;
		op = op_new(d, kind, at, n);
	}
	op_start(d, op);
}

static void
read_all(struct round *d)
{
	uint64_t at, n;

	for (at = 0; at < d->img->size; at += n) {
		n = d->img->size - at < MiB ? d->img->size - at : MiB;
		op_start(d, op_new(d, IO_READ, at, n));
	}
	drain(d);
}

static void
operations_run(struct round *d)
{
	unsigned i;

	for (i = 0; i < 4; i++)
		d->hot[i] = rng_below(d->r, d->img->size) >>
		    d->run->shape->cluster_bits << d->run->shape->cluster_bits;
	d->bytes = d->run->bytes;
	if (rng_chance(d->r, 30))
		read_all(d);
	for (i = 0; i < d->run->nr_ops && d->bytes > 0; i++) {
		pick_op(d);
		if (rng_chance(d->r, 3))
			drain(d);
		if (!d->img->readonly && rng_chance(d->r, 4))
			storm_run(d);
	}
	drain(d);
	if (rng_chance(d->r, 50))
		read_all(d);
}

/*
 * The image.
 */

static unsigned
count_entries(const char *folder)
{
	struct dirent *e;
	unsigned n = 0;
	DIR *dir;

	dir = opendir(folder);
	if (dir == NULL)
		model_fail("%s: %s", folder, strerror(errno));
	while ((e = readdir(dir)) != NULL)
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* A thread that was joined may be seen a moment longer. */
static void
check_threads(unsigned before, bool delayed)
{
	unsigned i;

#ifdef __SANITIZE_THREAD__
	before++;		/* its own */
#endif
	before += delayed;	/* began with the first channel */
	for (i = 0; count_entries("/proc/self/task") > before; i++) {
		if (i == 1000)
			model_fail("threads are left");
		usleep(1000);
	}
}

static void
round_open(struct round *d, bool readonly)
{
	struct run *run = d->run;
	struct image_options opt = {
		.format = run->shape->raw ? "raw" : "qcow2", .path = run->top,
		.readonly = readonly, .discard = rng_chance(d->r, 85),
		.cache = rng_chance(d->r, 90) ? CACHE_NONE : CACHE_DIRECTSYNC,
	};
	uint32_t granule;

	if (image_open(&opt, &d->img, d->why) != 0)
		model_fail("open: %s", d->why);
	if (d->img->size != run->shape->size)
		model_fail("it has %llu bytes, not %llu",
		    (unsigned long long)d->img->size,
		    (unsigned long long)run->shape->size);
	/* Version 2 cannot hide what is below. */
	granule = !opt.discard || readonly || (run->shape->version == 2 &&
	    run->chain.nr_layers > 1) ? 0 : 1u << run->shape->cluster_bits;
	if (!run->shape->raw && d->img->discard_granularity != granule)
		model_fail("the granularity of discards is %u",
		    d->img->discard_granularity);
	d->zeroes = run->shape->raw || run->shape->version == 3;
}

static void
round_activate(struct round *d)
{
	d->redo = NULL;
	d->redo_bytes = (d->img->redo_bytes + 4095u) / 4096u * 4096u;
	if (d->redo_bytes > 0 && rng_chance(d->r, 80)) {
		d->redo = mmap(NULL, d->redo_bytes, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (d->redo == MAP_FAILED)
			model_fail("mmap: %s", strerror(errno));
	}
	d->img->redo = d->redo;
	if (image_activate(d->img, d->why) != 0)
		model_fail("activate: %s", d->why);
}

static void
round_deactivate(struct round *d)
{
	if (image_deactivate(d->img, d->why) != 0)
		model_fail("deactivate: %s", d->why);
	d->img->redo = NULL;
	if (d->redo != NULL)
		munmap(d->redo, d->redo_bytes);
}

static void
round_active(struct round *d)
{
	bool early = rng_chance(d->r, 50);
	unsigned i;

	d->nr_workers = 1 + (unsigned)rng_below(d->r, MAX_CHANNELS);
	for (i = 0; early && i < d->nr_workers; i++)
		worker_open(d, &d->worker[i]);
	round_activate(d);
	for (i = 0; i < d->nr_workers; i++) {
		if (!early)
			worker_open(d, &d->worker[i]);
		worker_start(&d->worker[i]);
	}
	operations_run(d);
	for (i = 0; i < d->nr_workers; i++)
		worker_stop(&d->worker[i]);
	for (i = 0; early && i < d->nr_workers; i++)
		worker_close(&d->worker[i]);
	round_deactivate(d);
	for (i = 0; !early && i < d->nr_workers; i++)
		worker_close(&d->worker[i]);
}

void
round_run(struct run *run, struct rng *r)
{
	static uint32_t version;
	struct round d = {
		.run = run, .r = r, .c = &run->chain.top, .version = version,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.some_done = PTHREAD_COND_INITIALIZER,
	};
	unsigned fds = count_entries("/proc/self/fd");
	unsigned threads = count_entries("/proc/self/task");

	TAILQ_INIT(&d.done);
	TAILQ_INIT(&d.inflight);
	TAILQ_INIT(&d.storm);
	round_open(&d, rng_chance(r, 10));
	round_active(&d);
	if (rng_chance(r, 25)) {
		chain_verify(&run->chain);
		model_say(run, "activated again");
		round_active(&d);
	}
	image_close(d.img);
	version = d.version;
	if (count_entries("/proc/self/fd") != fds)
		model_fail("descriptors are left open");
	check_threads(threads, run->delayed);
}
