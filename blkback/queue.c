/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "blkback/queue.h"

/* Events without requests that are forgiven before they are slowed down. */
#define SPURIOUS_FREE   16
#define SPURIOUS_MAX_MS 64

static void request_done(struct request *req, int error);

static uint64_t
clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

int
queue_open(struct queue *q, struct image *img, uint16_t domid,
    const struct disk_spec *spec, struct page_queue *page, char why[WHY_MAX])
{
	int rc;

	memset(q, 0, sizeof(*q));
	q->port = -1;
	q->page = page;
	q->poll_us = spec->poll_us;
	rc = arena_init(&q->arena, spec->memory);
	q->reqs = calloc(RING_MAX_SLOTS, sizeof(*q->reqs));
	if (rc < 0 || q->reqs == NULL) {
		snprintf(why, WHY_MAX, "no memory for an arena of %u bytes and "
		    "%u requests; use a smaller memory=", spec->memory,
		    RING_MAX_SLOTS);
		rc = -ENOMEM;
		goto err;
	}
	rc = grant_open(&q->grant, domid, q->arena.pages);
	if (rc < 0) {
		snprintf(why, WHY_MAX, "cannot open the grant device: %s; "
		    "is this a Xen domain with the xen-gntdev module?",
		    strerror(-rc));
		goto err;
	}
	q->evtchn = xenevtchn_open(NULL, 0);
	if (q->evtchn == NULL) {
		rc = errno != 0 ? -errno : -ENODEV;
		snprintf(why, WHY_MAX, "cannot open the event channel device: "
		    "%s; is this a Xen domain with the xen-evtchn module?",
		    strerror(-rc));
		goto err;
	}
	/* Less to lose if the guest takes this process over. */
	if (xenevtchn_restrict(q->evtchn, domid) != 0)
		log_error(-errno, "cannot restrict event channels to domain "
		    "%u, going on", domid);
	rc = channel_open(img, RING_MAX_SLOTS, &q->channel, why);
	if (rc < 0)
		goto err;

	q->merger.channel = q->channel;
	q->merger.arena = &q->arena;
	q->merger.limit = spec->merge;
	q->merger.done = request_done;
	return 0;

err:
	queue_close(q);
	return rc;
}

void
queue_close(struct queue *q)
{
	channel_close(q->channel);
	if (q->evtchn != NULL)
		xenevtchn_close(q->evtchn);
	grant_close(&q->grant);
	free(q->reqs);
	arena_fini(&q->arena);
	memset(q, 0, sizeof(*q));
	q->port = -1;
}

static void
unmap_ring(struct queue *q)
{
	int rc = grant_unmap_ring(&q->grant, q->shared, q->order);

	if (rc < 0)
		log_error(rc, "cannot unmap the ring");
	q->shared = NULL;
}

int
queue_connect(struct queue *q, const struct message_ring *ring,
    enum ring_abi abi, char why[WHY_MAX])
{
	uint32_t i;
	int rc;

	rc = grant_map_ring(&q->grant, ring, &q->shared);
	if (rc < 0) {
		q->shared = NULL;
		snprintf(why, WHY_MAX, "cannot map the ring of %u pages, first "
		    "grant %u: %s", 1u << ring->order, ring->gref[0],
		    strerror(-rc));
		return rc;
	}
	q->order = ring->order;
	rc = ring_attach(&q->ring, q->shared, ring->order, abi);
	if (rc < 0) {
		snprintf(why, WHY_MAX, "the frontend's ring indices make no "
		    "sense");
		goto err_unmap;
	}
	rc = xenevtchn_bind_interdomain(q->evtchn, q->grant.domid, ring->port);
	if (rc < 0) {
		rc = -errno;
		snprintf(why, WHY_MAX, "cannot bind event channel %u: %s; "
		    "does another backend (xen-blkback?) serve this disk?",
		    ring->port, strerror(-rc));
		goto err_unmap;
	}
	q->port = rc;
	/* The image may have been read again since it was opened. */
	q->limits.size = q->channel->img->size;
	q->limits.block_size = q->channel->img->block_size;
	q->limits.readonly = q->channel->img->readonly;
	q->masked = false;
	q->draining = false;
	q->broken = NULL;
	q->spurious = 0;
	q->waiting = NULL;
	q->inflight = 0;
	STAILQ_INIT(&q->free);
	STAILQ_INIT(&q->round);
	STAILQ_INIT(&q->done);
	for (i = 0; i < q->ring.entries; i++) {
		q->reqs[i].slot = &q->page->slot[i];
		q->reqs[i].merger = &q->merger;
		STAILQ_INSERT_TAIL(&q->free, &q->reqs[i], link);
	}
	q->page->stats.connects++;
	atomic_store(&q->page->req_cons, q->ring.req_cons);
	atomic_store(&q->page->rsp_prod, q->ring.rsp_prod);
	return 0;

err_unmap:
	unmap_ring(q);
	return rc;
}

void
queue_disconnect(struct queue *q)
{
	if (q->shared == NULL)
		return;
	assert(queue_idle(q));
	if (xenevtchn_unbind(q->evtchn, q->port) != 0)
		log_error(-errno, "cannot unbind event channel %d", q->port);
	q->port = -1;
	unmap_ring(q);
}

/* The one way out of a request: it is answered at the end of this round. */
static void
request_end(struct request *req, int16_t status, struct queue *q)
{
	req->status = status;
	STAILQ_INSERT_TAIL(&q->done, req, link);
}

/* Room in the arena.  False: the request waits. */
static bool
request_place(struct queue *q, struct request *req)
{
	int page;

	if (req->parsed.nr_segments == 0)
		return true;
	page = arena_take(&q->arena, req->parsed.nr_segments);
	if (page < 0)
		return false;
	req->page = page;
	return true;
}

/* Copy one request off the ring and check it.  False: take no more. */
static bool
queue_take_one(struct queue *q)
{
	struct request *req = STAILQ_FIRST(&q->free);
	const char *why;
	int16_t status;

	assert(req != NULL);
	STAILQ_REMOVE_HEAD(&q->free, link);
	q->inflight++;
	q->page->stats.reqs_taken++;
	req->taken_ns = q->now_ns;
	req->flushed = false;
	req->slot->index = q->ring.req_cons;
	ring_take(&q->ring, &req->slot->req);
	atomic_store_explicit(&req->slot->state, PAGE_SLOT_TAKEN,
	    memory_order_release);

	status = request_parse(&req->parsed, &req->slot->req, &q->limits, &why);
	if (status != BLKIF_RSP_OKAY) {
		q->page->stats.reqs_rejected++;
		log_guest(&q->log, "request refused: operation %u, %u "
		    "segments, sector %llu: %s", req->slot->req.operation,
		    req->slot->req.nr_segments,
		    (unsigned long long)req->slot->req.sector_number, why);
		req->parsed.nr_segments = 0;
		request_end(req, status, q);
		return true;
	}
	if (!request_place(q, req)) {
		q->waiting = req;
		return false;
	}
	STAILQ_INSERT_TAIL(&q->round, req, link);
	return true;
}

/* Take what there is, as far as the arena has room.  How many. */
static unsigned
queue_take(struct queue *q)
{
	unsigned taken = 0;
	int n;

	if (q->waiting != NULL) {
		if (!request_place(q, q->waiting))
			return 0;
		STAILQ_INSERT_TAIL(&q->round, q->waiting, link);
		q->waiting = NULL;
		taken++;
	}
	if (q->draining || q->broken != NULL)
		return taken;

	n = ring_pending(&q->ring);
	if (n < 0) {
		q->broken = "the frontend's request producer index left the "
		    "ring";
		log_error(0, "%s; no more requests are taken", q->broken);
		return taken;
	}
	if (n == 0)
		return taken;
	q->now_ns = clock_ns();
	while (n-- > 0) {
		taken++;
		if (!queue_take_one(q))
			break;
	}
	/* After the slots: see page.h. */
	atomic_store_explicit(&q->page->req_cons, q->ring.req_cons,
	    memory_order_release);
	return taken;
}

static bool
carries_data_in(const struct request *req)
{
	return req->parsed.op != PAGE_READ && req->parsed.nr_segments > 0;
}

/* Gather the segments of one request for a grant copy. */
static void
request_gather(struct queue *q, struct request *req, bool to_guest)
{
	const struct segment *s = req->parsed.segment;
	unsigned i, n;

	req->copy = q->grant.nr;
	for (i = 0; i < req->parsed.nr_segments; i++) {
		n = grant_add(&q->grant, &s[i],
		    arena_page(&q->arena, req->page + i) + s[i].offset,
		    to_guest);
		assert(n == req->copy + i);
	}
}

/* Did its segments arrive?  One bad one fails the whole request. */
static bool
request_copied(struct queue *q, const struct request *req)
{
	if (grant_ok(&q->grant, req->copy, req->parsed.nr_segments))
		return true;
	q->page->stats.reqs_failed++;
	log_guest(&q->log, "grant copy failed: first grant %u of %u",
	    req->parsed.segment[0].gref, req->parsed.nr_segments);
	return false;
}

static void
request_start(struct queue *q, struct request *req)
{
	if (q->failed && req->parsed.op != PAGE_READ)
		request_done(req, -EIO);
	else if (req->parsed.op == PAGE_FLUSH)
		merge_flush_disk(&q->merger, req);
	else
		merge_add(&q->merger, req);
}

/* Fetch the write data of the round, merge, hand it all to the driver. */
static void
queue_start(struct queue *q)
{
	struct request *req;

	grant_reset(&q->grant);
	STAILQ_FOREACH(req, &q->round, link)
		if (carries_data_in(req))
			request_gather(q, req, false);
	grant_copy(&q->grant);

	while ((req = STAILQ_FIRST(&q->round)) != NULL) {
		STAILQ_REMOVE_HEAD(&q->round, link);
		if (carries_data_in(req) && !request_copied(q, req))
			request_end(req, BLKIF_RSP_ERROR, q);
		else
			request_start(q, req);
	}
	merge_end(&q->merger);
}

/* The driver is done with it, or it never got there. */
static void
request_done(struct request *req, int error)
{
	struct queue *q = container_of(req->merger, struct queue, merger);

	if (error == 0 && req->parsed.op == PAGE_FLUSH && !req->flushed &&
	    req->parsed.nr_segments > 0) {
		req->flushed = true;
		merge_add(&q->merger, req);
		merge_end(&q->merger);
		return;
	}
	if (error < 0) {
		q->page->stats.reqs_failed++;
		log_guest(&q->log, "%s of %u bytes at %llu failed: %s",
		    req->parsed.op == PAGE_READ ? "read" :
		    req->parsed.op == PAGE_WRITE ? "write" : "flush",
		    req->parsed.length, (unsigned long long)req->parsed.offset,
		    strerror(-error));
	}
	/*
	 * Linux takes ERROR on an empty flush for success and goes on without
	 * flushes, so a failed one must be felt elsewhere: from now on no
	 * write and no flush succeeds, until the disk is attached again.
	 */
	if (error < 0 && req->parsed.op == PAGE_FLUSH && !req->flushed &&
	    !q->failed) {
		q->failed = true;
		log_error(error, "flush failed: every later write and flush "
		    "is refused; repair the storage, then detach and attach");
	}
	request_end(req, error == 0 ? BLKIF_RSP_OKAY : BLKIF_RSP_ERROR, q);
}

static void
stats_answered(struct queue *q, const struct request *req)
{
	struct page_stats *s = &q->page->stats;
	enum page_op op = req->parsed.op;
	uint64_t wait;

	s->reqs_answered++;
	if (req->status != BLKIF_RSP_OKAY)
		return;
	wait = q->now_ns - req->taken_ns;
	s->ops[op]++;
	s->bytes[op] += req->parsed.length;
	s->wait_ns[op] += wait;
	if (wait > s->wait_max_ns[op])
		s->wait_max_ns[op] = wait;
}

/* Read data of the round to the guest, with one call. */
static void
queue_copy_out(struct queue *q)
{
	struct request *req;

	grant_reset(&q->grant);
	STAILQ_FOREACH(req, &q->done, link)
		if (req->parsed.op == PAGE_READ &&
		    req->status == BLKIF_RSP_OKAY)
			request_gather(q, req, true);
	grant_copy(&q->grant);
	STAILQ_FOREACH(req, &q->done, link)
		if (req->parsed.op == PAGE_READ &&
		    req->status == BLKIF_RSP_OKAY && !request_copied(q, req))
			req->status = BLKIF_RSP_ERROR;
}

/* The order of stores is page.h's: a successor relies on it. */
static void
queue_answer(struct queue *q)
{
	struct request *req;
	bool notify;

	queue_copy_out(q);
	q->now_ns = clock_ns();
	STAILQ_FOREACH(req, &q->done, link) {
		req->slot->index = q->ring.rsp_prod;
		ring_put(&q->ring, req->slot->req.id, req->slot->req.operation,
		    req->status);
		atomic_store_explicit(&req->slot->state, PAGE_SLOT_ANSWERED,
		    memory_order_release);
		stats_answered(q, req);
	}
	atomic_store_explicit(&q->page->rsp_prod, q->ring.rsp_prod,
	    memory_order_release);
	notify = ring_publish(&q->ring);
	q->page->stats.publishes++;
	if (notify) {
		q->page->stats.notifies++;
		if (xenevtchn_notify(q->evtchn, q->port) != 0)
			log_guest(&q->log, "cannot notify the frontend: %s",
			    strerror(errno));
	}

	while ((req = STAILQ_FIRST(&q->done)) != NULL) {
		STAILQ_REMOVE_HEAD(&q->done, link);
		atomic_store_explicit(&req->slot->state, PAGE_SLOT_FREE,
		    memory_order_release);
		if (req->parsed.nr_segments > 0)
			arena_give(&q->arena, req->page,
			    req->parsed.nr_segments);
		STAILQ_INSERT_HEAD(&q->free, req, link);
		q->inflight--;
	}
	q->page->inflight = q->inflight;
}

bool
queue_round(struct queue *q)
{
	struct page_stats *s = &q->page->stats;
	bool worked;

	arena_rewind(&q->arena);
	worked = queue_take(q) > 0;
	if (worked) {
		q->spurious = 0;
		queue_start(q);
	}
	if (q->inflight > 0 && channel_reap(q->channel) > 0)
		worked = true;
	if (!STAILQ_EMPTY(&q->done)) {
		queue_answer(q);
		worked = true;
	}
	if (worked) {
		s->rounds++;
		s->ios = q->merger.ios;
		s->ios_retried = q->merger.retried;
		s->submits = q->channel->submits;
		s->copy_calls = q->grant.calls;
		s->copy_segments = q->grant.segments;
		q->page->inflight = q->inflight;
	}
	assert(s->reqs_taken == s->reqs_answered + q->inflight);
	return worked;
}

void
queue_unmask(struct queue *q)
{
	if (!q->masked)
		return;
	q->masked = false;
	if (xenevtchn_unmask(q->evtchn, q->port) != 0)
		log_guest(&q->log, "cannot unmask event channel %d: %s",
		    q->port, strerror(errno));
}

bool
queue_arm(struct queue *q)
{
	/* Nothing more can be taken now: what is in flight will wake us. */
	if (q->draining || q->broken != NULL || q->waiting != NULL)
		return false;
	if (ring_arm(&q->ring))
		return true;
	if (queue_timeout(q) < 0)
		queue_unmask(q);
	return false;
}

int
queue_timeout(const struct queue *q)
{
	unsigned ms;

	if (!q->masked || q->spurious <= SPURIOUS_FREE)
		return -1;
	ms = q->spurious - SPURIOUS_FREE;
	return ms < SPURIOUS_MAX_MS ? ms : SPURIOUS_MAX_MS;
}

void
queue_event(struct queue *q)
{
	xenevtchn_port_or_error_t port = xenevtchn_pending(q->evtchn);

	if (port < 0)
		return;		/* somebody else's wake-up */
	if (port != q->port)
		return;		/* of a connection that is gone */
	q->masked = true;
	q->spurious++;
	q->page->stats.events++;
}
