/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_io: requests and channels.
 *
 * request_step() takes a request as far as it goes: it maps the next piece,
 * starts a sub-I/O for it and goes on, until all is on its way or something
 * is missing.  Then it is parked, and whoever provides what it waits for
 * makes it runnable again; what was mapped but not started is mapped anew.
 * A request is finished when everything is mapped and no sub-I/O is left.
 *
 * Writes are in qcow2_write.c.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "drivers/qcow2_io.h"
#include "drivers/qcow2_map.h"
#include "drivers/qcow2_meta.h"

#define COPY_SUBS   16u		/* at a time, per channel */
#define SLICE_READS 32u		/* likewise */
#define MAX_SUBS    256u
#define BOUNCE_BYTES (1u << 20)	/* per channel, or two clusters */

/* The reading part of a copy on write: a request of our own. */
struct qcow2_copy {
	struct qcow2_request req;	/* must be first */
	struct io            io;
	struct iovec         iov;
};

struct qcow2_slice_read {
	struct io             io;
	struct iovec          iov;
	struct qcow2_channel *ch;
	struct qcow2_layer   *layer;
	struct qcow2_slice   *slice;
	SLIST_ENTRY(qcow2_slice_read) link;
};

/*
 * Waking.
 */

static void
channel_wake(struct qcow2_channel *ch)
{
	/* It fails only when the counter is full or the fd is not ours. */
	if (!atomic_exchange(&ch->woken, true) &&
	    eventfd_write(ch->ch.event_fd, 1) == -1)
		abort();
}

void
qcow2_wake(struct qcow2_request *req)
{
	STAILQ_INSERT_TAIL(&req->ch->ready, req, link);
	channel_wake(req->ch);
}

void
qcow2_wake_sub(struct qcow2_sub *sub)
{
	STAILQ_INSERT_TAIL(&sub->req->ch->unpacked, sub, link);
	channel_wake(sub->req->ch);
}

/* Under 'lock'.  Those of this channel need no event. */
void
qcow2_wake_all(struct qcow2_channel *ch, struct qcow2_request_list *list)
{
	struct qcow2_request *req;

	while ((req = STAILQ_FIRST(list)) != NULL) {
		STAILQ_REMOVE_HEAD(list, link);
		if (req->ch == ch)
			STAILQ_INSERT_TAIL(&ch->runnable, req, link);
		else
			qcow2_wake(req);
	}
}

/* Under 'lock': what it needs, the metadata thread has to provide. */
void
qcow2_park(struct qcow2 *q, struct qcow2_request *req, enum qcow2_need need,
    uint64_t arg)
{
	req->need = need;
	req->arg = arg;
	q->nr_need[need]++;
	STAILQ_INSERT_TAIL(&q->parked, req, link);
	qcow2_meta_kick(q);
}

/*
 * Sub-I/Os.
 */

void
qcow2_epoch_enter(struct qcow2 *q, struct qcow2_sub *sub)
{
	sub->epoch = q->epoch;
	atomic_fetch_add(&q->inflight[sub->epoch], 1);
}

void
qcow2_epoch_leave(struct qcow2 *q, struct qcow2_sub *sub)
{
	if (atomic_fetch_sub(&q->inflight[sub->epoch], 1) != 1 ||
	    !atomic_load(&q->draining))
		return;
	pthread_mutex_lock(&q->lock);
	qcow2_meta_kick(q);
	pthread_mutex_unlock(&q->lock);
}

static struct qcow2_sub_list *
sub_pool(struct qcow2_request *req)
{
	return req->copy != NULL ? &req->ch->free_copy_subs :
	    &req->ch->free_subs;
}

bool
qcow2_sub_available(struct qcow2_request *req)
{
	return !STAILQ_EMPTY(sub_pool(req));
}

struct qcow2_sub *
qcow2_sub_get(struct qcow2_request *req, enum qcow2_sub_type type)
{
	struct qcow2_sub *sub = STAILQ_FIRST(sub_pool(req));

	STAILQ_REMOVE_HEAD(sub_pool(req), link);
	sub->req = req;
	sub->type = type;
	sub->error = 0;
	req->pending++;
	return sub;
}

/* Something of a pool is free again: all who starve may look. */
static void
channel_feed(struct qcow2_channel *ch)
{
	STAILQ_CONCAT(&ch->runnable, &ch->starved);
}

void
qcow2_starve(struct qcow2_request *req)
{
	STAILQ_INSERT_TAIL(&req->ch->starved, req, link);
}

void
qcow2_sub_put(struct qcow2_sub *sub, int error)
{
	struct qcow2_request *req = sub->req;

	STAILQ_INSERT_HEAD(sub_pool(req), sub, link);
	req->pending--;
	if (error != 0 && req->error == 0)
		req->error = error;
	channel_feed(req->ch);
	qcow2_request_check(req);
}

static void
plain_done(struct io *io, int error)
{
	struct qcow2_sub *sub = container_of(io, struct qcow2_sub, io);
	struct qcow2_channel *ch = sub->req->ch;

	if (io->op == IO_WRITE && error == 0)
		atomic_fetch_add(&ch->q->writes, 1);
	qcow2_epoch_leave(ch->q, sub);
	qcow2_sub_put(sub, error);
	qcow2_channel_run(ch);
}

/*
 * How far the next 'max' bytes of the request reach when they must fit into
 * 'elements' of an iovec; neighbours in memory are made one.
 */
uint64_t
qcow2_iov_reach(const struct qcow2_request *req, uint64_t max,
    unsigned elements)
{
	const struct iovec *v = &req->io->iov[req->iov];
	const char *base = (char *)v->iov_base + req->iov_done, *end = NULL;
	size_t len = v->iov_len - req->iov_done;
	uint64_t bytes = 0;

	for (;;) {
		if (base != end && elements-- == 0)
			return bytes;
		bytes += len;
		if (bytes >= max)
			return max;
		end = base + len;
		v++;
		base = v->iov_base;
		len = v->iov_len;
	}
}

/* Move 'bytes' of the request's vector to 'out'; how many elements. */
unsigned
qcow2_iov_cut(struct qcow2_request *req, uint64_t bytes, struct iovec *out)
{
	const struct iovec *v;
	unsigned n = 0;
	size_t len;
	char *base;

	req->next += bytes;
	while (bytes > 0) {
		v = &req->io->iov[req->iov];
		base = (char *)v->iov_base + req->iov_done;
		len = v->iov_len - req->iov_done;
		if (len > bytes) {
			len = bytes;
			req->iov_done += len;
		} else {
			req->iov++;
			req->iov_done = 0;
		}
		bytes -= len;
		if (n > 0 && (char *)out[n - 1].iov_base + out[n - 1].iov_len ==
		    base)
			out[n - 1].iov_len += len;
		else
			out[n++] = (struct iovec){ base, len };
	}
	return n;
}

/*
 * A sub-I/O for the next 'max' bytes at most.  One that is all of the request
 * uses its vector as it is.
 */
void
qcow2_sub_cut(struct qcow2_sub *sub, uint64_t max)
{
	struct qcow2_request *req = sub->req;

	sub->guest = req->next;
	sub->bytes = max;
	if (max == req->io->length) {
		sub->io.iov = req->io->iov;
		sub->io.iovcnt = req->io->iovcnt;
		req->next += max;
	} else {
		sub->bytes = qcow2_iov_reach(req, max, QCOW2_SUB_IOV);
		sub->io.iov = sub->iov;
		sub->io.iovcnt = (int)qcow2_iov_cut(req, sub->bytes, sub->iov);
	}
	sub->io.length = sub->bytes;
}

void
qcow2_sub_submit(struct qcow2_sub *sub, enum io_op op, int fd,
    uint64_t offset)
{
	sub->io.op = op;
	sub->io.offset = offset;
	sub->io.done = plain_done;
	engine_submit(sub->req->ch->engine, fd, &sub->io);
}

/*
 * Slices.
 */

static void
slice_read_done(struct io *io, int error)
{
	struct qcow2_slice_read *r =
	    container_of(io, struct qcow2_slice_read, io);
	struct qcow2_request_list waiters =
	    STAILQ_HEAD_INITIALIZER(waiters);
	struct qcow2_channel *ch = r->ch;
	struct qcow2_request *req;

	pthread_mutex_lock(&ch->q->lock);
	r->slice->loading = false;
	STAILQ_CONCAT(&waiters, &r->slice->waiters);
	if (error != 0) {
		qcow2_slices_drop(r->layer->slices, r->slice);
		STAILQ_FOREACH(req, &waiters, link)
			req->wake_error = error;
	}
	STAILQ_CONCAT(&waiters, &r->layer->slices->crowd);
	qcow2_wake_all(ch, &waiters);
	pthread_mutex_unlock(&ch->q->lock);

	SLIST_INSERT_HEAD(&ch->free_slice_reads, r, link);
	channel_feed(ch);
	qcow2_channel_run(ch);
}

/* Under 'lock': read a slice, or wait for who reads it already. */
void
qcow2_slice_need(struct qcow2_request *req, struct qcow2_layer *l,
    uint64_t key)
{
	struct qcow2_channel *ch = req->ch;
	struct qcow2_slice_read *r = SLIST_FIRST(&ch->free_slice_reads);
	struct qcow2_slice *s;

	s = qcow2_slices_find(l->slices, key);
	if (s != NULL) {
		assert(s->loading);
		STAILQ_INSERT_TAIL(&s->waiters, req, link);
		return;
	}
	if (r == NULL) {
		qcow2_starve(req);
		return;
	}
	s = qcow2_slices_claim(l->slices, key);
	if (s == NULL) {
		/* Some are never busy (max_busy), so others load. */
		STAILQ_INSERT_TAIL(&l->slices->crowd, req, link);
		return;
	}
	SLIST_REMOVE_HEAD(&ch->free_slice_reads, link);
	STAILQ_INSERT_TAIL(&s->waiters, req, link);
	r->layer = l;
	r->slice = s;
	r->iov = (struct iovec){ s->entries, l->slices->bytes };
	r->io = (struct io){
		.op = IO_READ,
		.offset = qcow2_slice_offset(l, key),
		.length = l->slices->bytes,
		.iov = &r->iov,
		.iovcnt = 1,
		.done = slice_read_done,
	};
	engine_submit(ch->engine, l->file.fd, &r->io);
}

/*
 * Reads.
 */

static void
read_zeroes(struct qcow2_request *req, uint64_t bytes)
{
	struct iovec v;

	while (bytes > 0) {
		v.iov_len = req->io->iov[req->iov].iov_len - req->iov_done;
		if (v.iov_len > bytes)
			v.iov_len = bytes;
		bytes -= v.iov_len;
		qcow2_iov_cut(req, v.iov_len, &v);
		memset(v.iov_base, 0, v.iov_len);
	}
}

static void
read_packed(struct qcow2_request *req, const struct qcow2_extent *x,
    struct qcow2_sub *sub)
{
	struct qcow2 *q = req->ch->q;

	qcow2_sub_cut(sub, x->bytes);
	sub->layer = x->layer;
	sub->entry = x->entry;
	sub->skip = x->skip;
	pthread_mutex_lock(&q->lock);
	STAILQ_INSERT_TAIL(&q->unpack, sub, link);
	qcow2_meta_kick(q);
	pthread_mutex_unlock(&q->lock);
}

/* One piece.  False: it waits for something. */
static bool
read_piece(struct qcow2_request *req)
{
	struct qcow2 *q = req->ch->q;
	struct qcow2_sub *sub = NULL;
	struct qcow2_extent x;
	int rc;

	if (!qcow2_sub_available(req)) {
		qcow2_starve(req);
		return false;
	}
	pthread_mutex_lock(&q->lock);
	rc = qcow2_map(q, req->next, req->end - req->next, &x);
	if (rc == QCOW2_MISS)
		qcow2_slice_need(req, x.layer, x.host);
	if (rc == 0 && x.kind != QCOW2_ZEROES) {
		sub = qcow2_sub_get(req, x.kind == QCOW2_PACKED ?
		    QCOW2_SUB_UNPACK : QCOW2_SUB_PLAIN);
		qcow2_epoch_enter(q, sub);
	}
	pthread_mutex_unlock(&q->lock);
	if (rc != 0) {
		if (rc < 0)
			req->error = rc;
		return rc < 0;
	}

	if (x.kind == QCOW2_ZEROES) {
		read_zeroes(req, x.bytes);
	} else if (x.kind == QCOW2_PACKED) {
		read_packed(req, &x, sub);
	} else {
		qcow2_sub_cut(sub, x.bytes);
		qcow2_sub_submit(sub, IO_READ, x.layer->file.fd, x.host);
	}
	return true;
}

/*
 * Flushes.
 */

static void
sync_done(struct io *io, int error)
{
	struct qcow2_sub *sub = container_of(io, struct qcow2_sub, io);
	struct qcow2_channel *ch = sub->req->ch;
	struct qcow2 *q = ch->q;

	pthread_mutex_lock(&q->lock);
	if (error != 0)
		q->failed = error;
	else if (atomic_load(&q->synced) < sub->synced)
		atomic_store(&q->synced, sub->synced);
	pthread_mutex_unlock(&q->lock);
	qcow2_sub_put(sub, error);
	qcow2_channel_run(ch);
}

/*
 * It covers what was done on any channel, for all of them tell it here before
 * done() runs: data that was written counts in 'writes', and a sync is for as
 * many of them as there were when it began; what changed a mapping stands in
 * the log until a round has written it, and a round that has begun already does
 * not count.  When 'synced' is behind, somebody else's sync may be on its way;
 * only when it has ended well does 'synced' say so.
 */
static bool
flush_piece(struct qcow2_request *req)
{
	struct qcow2 *q = req->ch->q;
	struct qcow2_sub *sub = NULL;
	bool wait = false;

	if (!qcow2_sub_available(req)) {
		qcow2_starve(req);
		return false;
	}
	pthread_mutex_lock(&q->lock);
	if (q->failed != 0) {
		req->error = q->failed;
	} else if (q->img.readonly) {
		;
	} else if (q->redo.nr_mapping > 0 || q->in_round) {
		qcow2_park(q, req, QCOW2_NEED_FLUSH, 0);
		wait = true;
	} else if (atomic_load(&q->synced) != atomic_load(&q->writes)) {
		sub = qcow2_sub_get(req, QCOW2_SUB_SYNC);
		sub->synced = atomic_load(&q->writes);
	}
	pthread_mutex_unlock(&q->lock);
	if (wait)
		return false;

	req->flushed = true;
	if (sub != NULL) {
		sub->io = (struct io){ .op = IO_FLUSH, .done = sync_done };
		engine_submit(req->ch->engine, q->top->file.fd, &sub->io);
	}
	return true;
}

/*
 * Requests.
 */

static bool
request_mapped(const struct qcow2_request *req)
{
	return req->io->op == IO_FLUSH ? req->flushed : req->next == req->end;
}

/* In this cache mode every write is durable, and what it changed as well. */
static bool
request_must_sync(const struct qcow2_request *req)
{
	return cache_is_durable(req->ch->q->cache) && req->changed &&
	    !req->flushed && req->error == 0;
}

/* Tell who asks where it is. */
static void
request_waits(struct qcow2_request *req, bool waits)
{
	req->waiting = waits;
	if (req->io->metadata != NULL)
		atomic_store_explicit(req->io->metadata, waits,
		    memory_order_relaxed);
}

/* If nothing is left to do, it is finished. */
void
qcow2_request_check(struct qcow2_request *req)
{
	struct qcow2_channel *ch = req->ch;

	if (req->pending > 0 || req->waiting ||
	    (req->error == 0 && !request_mapped(req)))
		return;
	if (request_must_sync(req)) {
		request_waits(req, true);
		pthread_mutex_lock(&ch->q->lock);
		qcow2_park(ch->q, req, QCOW2_NEED_FLUSH, 0);
		pthread_mutex_unlock(&ch->q->lock);
		return;
	}
	req->waiting = true;		/* once */
	if (req->copy != NULL) {
		STAILQ_INSERT_HEAD(&ch->free_copies, req, link);
		qcow2_copy_done(req->copy, req->error);
	} else {
		STAILQ_INSERT_TAIL(&ch->finished, req, link);
	}
}

/* It is on no list: take it as far as it goes. */
static void
request_step(struct qcow2_request *req)
{
	bool going = true;

	if (req->waiting)
		request_waits(req, false);
	if (req->error == 0)
		req->error = req->wake_error;
	while (going && req->error == 0 && !request_mapped(req)) {
		switch (req->io->op) {
		case IO_READ:
			going = read_piece(req);
			break;
		case IO_WRITE:
			going = qcow2_write_piece(req);
			break;
		case IO_DISCARD:
			going = qcow2_discard_piece(req);
			break;
		case IO_FLUSH:
			going = flush_piece(req);
			break;
		}
	}
	if (!going)
		request_waits(req, true);
	qcow2_request_check(req);
}

void
qcow2_channel_run(struct qcow2_channel *ch)
{
	struct qcow2_request *req;

	while ((req = STAILQ_FIRST(&ch->runnable)) != NULL) {
		STAILQ_REMOVE_HEAD(&ch->runnable, link);
		request_step(req);
	}
}

static void
request_init(struct qcow2_request *req, struct qcow2_channel *ch,
    struct io *io)
{
	memset(req, 0, sizeof(*req));
	req->ch = ch;
	req->io = io;
	req->next = io->offset;
	req->end = io->offset + io->length;
}

/* Read a range of the guest's disk into a bounce buffer, for 'sub'. */
void
qcow2_copy_start(struct qcow2_sub *sub, void *to, uint64_t offset,
    uint64_t bytes)
{
	struct qcow2_channel *ch = sub->req->ch;
	struct qcow2_copy *copy =
	    (struct qcow2_copy *)STAILQ_FIRST(&ch->free_copies);

	STAILQ_REMOVE_HEAD(&ch->free_copies, link);
	copy->iov = (struct iovec){ to, bytes };
	copy->io = (struct io){
		.op = IO_READ,
		.offset = offset,
		.length = bytes,
		.iov = &copy->iov,
		.iovcnt = 1,
	};
	request_init(&copy->req, ch, &copy->io);
	copy->req.copy = sub;
	sub->copies++;
	STAILQ_INSERT_TAIL(&ch->runnable, &copy->req, link);
}

void
qcow2_submit(struct channel *c, struct io *io)
{
	struct qcow2_channel *ch = container_of(c, struct qcow2_channel, ch);
	struct qcow2_request *req = STAILQ_FIRST(&ch->free_requests);

	assert(req != NULL);		/* more than 'depth' at a time */
	STAILQ_REMOVE_HEAD(&ch->free_requests, link);
	request_init(req, ch, io);
	if (ch->delivering)
		ch->submitted = true;
	request_step(req);
	qcow2_channel_run(ch);
}

/* What the metadata thread or another channel has for this one. */
static void
channel_collect(struct qcow2_channel *ch)
{
	struct qcow2_sub_list unpacked = STAILQ_HEAD_INITIALIZER(unpacked);
	struct qcow2_sub *sub;

	if (!atomic_load_explicit(&ch->woken, memory_order_relaxed))
		return;
	pthread_mutex_lock(&ch->q->lock);
	atomic_store(&ch->woken, false);
	STAILQ_CONCAT(&ch->runnable, &ch->ready);
	STAILQ_CONCAT(&unpacked, &ch->unpacked);
	pthread_mutex_unlock(&ch->q->lock);
	while ((sub = STAILQ_FIRST(&unpacked)) != NULL) {
		STAILQ_REMOVE_HEAD(&unpacked, link);
		qcow2_epoch_leave(ch->q, sub);
		qcow2_sub_put(sub, sub->error);
	}
	qcow2_channel_run(ch);
}

static unsigned
channel_deliver(struct qcow2_channel *ch)
{
	struct qcow2_request_list list = STAILQ_HEAD_INITIALIZER(list);
	struct qcow2_request *req;
	struct io *io;
	unsigned n = 0;
	int error;

	STAILQ_CONCAT(&list, &ch->finished);
	ch->delivering = true;
	while ((req = STAILQ_FIRST(&list)) != NULL) {
		STAILQ_REMOVE_HEAD(&list, link);
		io = req->io;
		error = req->error;
		STAILQ_INSERT_HEAD(&ch->free_requests, req, link);
		io->done(io, error);
		n++;
	}
	ch->delivering = false;
	return n;
}

unsigned
qcow2_reap(struct channel *c)
{
	struct qcow2_channel *ch = container_of(c, struct qcow2_channel, ch);
	unsigned n;

	channel_collect(ch);
	engine_reap(ch->engine);
	n = channel_deliver(ch);
	if (ch->submitted) {
		ch->submitted = false;
		engine_reap(ch->engine);
	}
	/* It looks only once, so that it ends: the rest is for the next. */
	if (!STAILQ_EMPTY(&ch->finished) &&
	    eventfd_write(ch->ch.event_fd, 1) == -1)
		abort();
	return n;
}

/*
 * Channels.
 */

static void
channel_free(struct qcow2_channel *ch)
{
	free(ch->free_bounces);
	free(ch->bounces);
	free(ch->slice_reads);
	free(ch->copy_subs);
	free(ch->copies);
	free(ch->subs);
	free(ch->requests);
	free(ch);
}

static void
channel_init_lists(struct qcow2_channel *ch, unsigned depth,
    unsigned nr_bounces)
{
	unsigned i;

	STAILQ_INIT(&ch->free_requests);
	STAILQ_INIT(&ch->free_copies);
	STAILQ_INIT(&ch->runnable);
	STAILQ_INIT(&ch->starved);
	STAILQ_INIT(&ch->finished);
	STAILQ_INIT(&ch->free_subs);
	STAILQ_INIT(&ch->free_copy_subs);
	STAILQ_INIT(&ch->ready);
	STAILQ_INIT(&ch->unpacked);
	for (i = 0; i < depth; i++)
		STAILQ_INSERT_TAIL(&ch->free_requests, &ch->requests[i], link);
	for (i = 0; i < ch->nr_subs; i++)
		STAILQ_INSERT_TAIL(&ch->free_subs, &ch->subs[i], link);
	for (i = 0; i < COPY_SUBS; i++)
		STAILQ_INSERT_TAIL(&ch->free_copy_subs, &ch->copy_subs[i],
		    link);
	for (i = 0; i < 2 * nr_bounces; i++)
		STAILQ_INSERT_TAIL(&ch->free_copies, &ch->copies[i].req, link);
	for (i = 0; i < SLICE_READS; i++) {
		ch->slice_reads[i].ch = ch;
		SLIST_INSERT_HEAD(&ch->free_slice_reads, &ch->slice_reads[i],
		    link);
	}
	for (i = 0; i < nr_bounces; i++)
		ch->free_bounces[i] = (char *)ch->bounces +
		    i * ch->q->cluster_size;
	ch->nr_free_bounces = nr_bounces;
}

/* A read-only disk copies nothing. */
static unsigned
bounces_wanted(const struct qcow2 *q)
{
	uint64_t n = BOUNCE_BYTES >> q->cluster_bits;

	if (q->img.readonly)
		return 0;
	return n < 2 ? 2 : n > 16 ? 16 : (unsigned)n;
}

static int
channel_alloc(struct qcow2_channel *ch, unsigned depth)
{
	unsigned nr_bounces = bounces_wanted(ch->q), nr_subs = depth + 32;

	if (nr_subs > MAX_SUBS)
		nr_subs = MAX_SUBS;
	ch->requests = calloc(depth, sizeof(*ch->requests));
	ch->subs = calloc(nr_subs, sizeof(*ch->subs));
	ch->copies = calloc(2 * nr_bounces + 1, sizeof(*ch->copies));
	ch->copy_subs = calloc(COPY_SUBS, sizeof(*ch->copy_subs));
	ch->slice_reads = calloc(SLICE_READS, sizeof(*ch->slice_reads));
	ch->bounces = aligned_alloc(4096,
	    (nr_bounces * ch->q->cluster_size + 4096) & ~(size_t)4095);
	ch->free_bounces = calloc(nr_bounces + 1, sizeof(void *));
	if (ch->requests == NULL || ch->subs == NULL || ch->copies == NULL ||
	    ch->copy_subs == NULL || ch->slice_reads == NULL ||
	    ch->bounces == NULL || ch->free_bounces == NULL)
		return -ENOMEM;
	ch->nr_subs = nr_subs;
	channel_init_lists(ch, depth, nr_bounces);
	return qcow2_allocs_reserve(ch->q, nr_subs);
}

int
qcow2_channel_open(struct image *img, unsigned depth, struct channel **chp,
    char why[WHY_MAX])
{
	struct qcow2 *q = container_of(img, struct qcow2, img);
	struct engine_config config = {
		.threads = q->threads, .fd = q->top->file.fd,
		.path = q->top->file.path, .zero_beyond_end = true,
		.no_flush = q->cache == CACHE_UNSAFE,
	};
	struct qcow2_channel *ch;
	int rc;

	ch = calloc(1, sizeof(*ch));
	if (ch == NULL) {
		rc = -ENOMEM;
		goto err_memory;
	}
	ch->ch.img = img;
	ch->q = q;
	rc = channel_alloc(ch, depth);
	if (rc < 0)
		goto err_memory;
	config.depth = ch->nr_subs + COPY_SUBS + SLICE_READS;
	rc = engine_open(&ch->engine, &ch->ch, &config, why);
	if (rc < 0) {
		qcow2_allocs_release(q, ch->nr_subs);
		channel_free(ch);
		return rc;
	}
	*chp = &ch->ch;
	return 0;

err_memory:
	why_set(why, "open a channel of %.200s: out of memory",
	    q->top->file.path);
	if (ch != NULL)
		channel_free(ch);
	return rc;
}

void
qcow2_channel_close(struct channel *c)
{
	struct qcow2_channel *ch = container_of(c, struct qcow2_channel, ch);

	assert(STAILQ_EMPTY(&ch->finished) && STAILQ_EMPTY(&ch->starved));
	engine_close(ch->engine);
	qcow2_allocs_release(ch->q, ch->nr_subs);
	channel_free(ch);
}
