/* SPDX-License-Identifier: GPL-2.0-or-later */
/* queue: the rounds, and taking up what a predecessor left (see queue.h). */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blkback/clock.h"
#include "blkback/queue.h"

/* Indirect requests of one round. */
#define MAX_DESCRIPTORS 64u
#define DESCRIPTOR_BYTES \
	(MAX_INDIRECT_SEGMENTS * sizeof(struct blkif_request_segment))

static void request_done(struct request *req, int error);
static void request_admit(struct queue *q, struct request *req);

/*
 * The largest share it can get: a guest that uses this queue uses all those
 * with lower numbers, too.
 */
static uint32_t
most_pages(const struct queue *q)
{
	_Static_assert(MAX_QUEUES <= ARENA_SHARES, "a share each");
	return arena_share_pages(q->memory, q->number + 1);
}

/* What reaches the guest's memory. */
static int
open_grants(struct queue *q, uint16_t domid, const struct disk_spec *spec,
    char why[WHY_MAX])
{
	uint32_t most = most_pages(q);
	int rc = grant_open(&q->grant, domid, most);

	if (rc < 0) {
		snprintf(why, WHY_MAX, "cannot open the grant device: %s; "
		    "is this a Xen domain with the xen-gntdev module?",
		    strerror(-rc));
		return rc;
	}
	if (spec->persistent)
		rc = persistent_open(&q->persistent, q->grant.handle, domid,
		    most < PERSISTENT_MAX ? most : PERSISTENT_MAX,
		    &q->page->stats);
	if (rc < 0)
		snprintf(why, WHY_MAX, "no memory for persistent grants; use "
		    "grants=copy");
	return rc;
}

static int
open_evtchn(struct queue *q, uint16_t domid, char why[WHY_MAX])
{
	int rc;

	q->evtchn = xenevtchn_open(NULL, 0);
	if (q->evtchn == NULL) {
		rc = errno != 0 ? -errno : -ENODEV;
		snprintf(why, WHY_MAX, "cannot open the event channel device: "
		    "%s; is this a Xen domain with the xen-evtchn module?",
		    strerror(-rc));
		return rc;
	}
	/*
	 * Less to lose if the guest takes this process over.  Linux does not
	 * take domain 0 here, which may be one while it looks for a kernel.
	 */
	if (domid != 0 && xenevtchn_restrict(q->evtchn, domid) != 0)
		log_error(-errno, "cannot restrict event channels to domain "
		    "%u, going on", domid);
	return 0;
}

/* Counters go on where a predecessor left them. */
static void
restore_counters(struct queue *q, struct image *img)
{
	const struct page_stats *s = &q->page->stats;

	q->merger.ios = s->ios;
	q->merger.retried = s->ios_retried;
	q->channel->submits += s->submits;
	q->grant.calls = s->copy_calls;
	q->grant.segments = s->copy_segments;
	/* The image's, which each queue has copied at its last round. */
	if (img->metadata_writes < s->metadata_writes)
		img->metadata_writes = s->metadata_writes;
}

int
queue_open(struct queue *q, struct image *img, uint16_t domid,
    const struct disk_spec *spec, const struct arena *memory,
    struct page *page, unsigned number, char why[WHY_MAX])
{
	int rc;

	memset(q, 0, sizeof(*q));
	q->port = -1;
	q->memory = memory;
	q->number = number;
	q->page = &page->queue[number];
	q->failed = &page->header.failed;
	q->poll_us = spec->poll_us;
	q->segments = spec->segments;
	q->on_error = spec->on_error;
	q->reqs = calloc(RING_MAX_SLOTS, sizeof(*q->reqs));
	q->descriptors = aligned_alloc(GUEST_PAGE,
	    MAX_DESCRIPTORS * DESCRIPTOR_BYTES);
	if (q->reqs == NULL || q->descriptors == NULL) {
		snprintf(why, WHY_MAX, "no memory for %u requests of queue %u; "
		    "use fewer queues=", RING_MAX_SLOTS, number);
		rc = -ENOMEM;
		goto err;
	}
	rc = open_grants(q, domid, spec, why);
	if (rc == 0)
		rc = open_evtchn(q, domid, why);
	if (rc == 0)
		rc = channel_open(img, RING_MAX_SLOTS, &q->channel, why);
	if (rc < 0)
		goto err;

	q->merger.channel = q->channel;
	q->merger.arena = &q->arena;
	q->merger.limit = spec->merge;
	q->round_pages = (spec->merge > ROUND_BYTES ? spec->merge :
	    ROUND_BYTES) / GUEST_PAGE;
	q->merger.done = request_done;
	restore_counters(q, img);
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
	persistent_close(q->persistent);
	grant_close(&q->grant);
	free(q->descriptors);
	free(q->reqs);
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

static void
unbind_port(struct queue *q)
{
	if (xenevtchn_unbind(q->evtchn, q->port) != 0)
		log_error(-errno, "cannot unbind event channel %d", q->port);
	q->port = -1;
}

static void
queue_notify(struct queue *q)
{
	q->page->stats.notifies++;
	if (xenevtchn_notify(q->evtchn, q->port) != 0)
		log_guest(&q->log, "cannot notify the frontend: %s",
		    strerror(errno));
}

/* A death that a test has asked for. */
static inline void
step(struct queue *q, enum page_step at)
{
	if (q->page->stop_at == at && q->page->stop_after-- == 0)
		__builtin_trap();
}

/* Empty pools for a new connection. */
static void
queue_reset(struct queue *q)
{
	uint32_t i;

	/* The image may have been read again since it was opened. */
	q->limits.size = q->channel->img->size;
	q->limits.block_size = q->channel->img->block_size;
	q->limits.readonly = q->channel->img->readonly;
	q->limits.discard_granularity = q->channel->img->discard_granularity;
	q->limits.discard_alignment = q->channel->img->discard_alignment;
	q->limits.max_segments = q->segments;
	q->masked = false;
	q->armed = false;
	q->draining = false;
	q->refuse = false;
	q->broken = NULL;
	q->spurious = 0;
	q->inflight = 0;
	q->barrier = NULL;
	q->stopped = 0;
	STAILQ_INIT(&q->held);
	STAILQ_INIT(&q->free);
	STAILQ_INIT(&q->round);
	STAILQ_INIT(&q->done);
	STAILQ_INIT(&q->waiting);
	for (i = 0; i < q->ring.entries; i++) {
		q->reqs[i].number = i;
		q->reqs[i].slot = &q->page->slot[i];
		q->reqs[i].io.metadata = &q->page->slot[i].metadata;
		q->reqs[i].merger = &q->merger;
	}
}

/* Was the request in this slot taken, and not seen answered by the guest? */
static bool
slot_unanswered(const struct queue *q, const struct page_slot *slot)
{
	switch ((uint32_t)slot->state) {
	case PAGE_SLOT_TAKEN:
		return (int32_t)(slot->index - q->ring.req_cons) < 0;
	case PAGE_SLOT_ANSWERED:
		return (int32_t)(slot->index - q->ring.rsp_prod) >= 0;
	default:
		return false;
	}
}

static inline void
request_stage(struct request *req, uint32_t stage)
{
	atomic_store_explicit(&req->slot->stage, stage, memory_order_relaxed);
}

/*
 * The index of an answer that was never committed will be another answer's:
 * should we die as well, this one must not pass for answered.  Any index below
 * req_cons says "taken", and this one says "not answered" in either state.
 */
static void
slot_take_again(const struct queue *q, struct page_slot *slot)
{
	slot->index = q->ring.req_cons - 1;
	slot->metadata = 0;
	slot->length = 0;
	/* The guest has waited since then, if that makes sense. */
	if (slot->taken_ns > q->now_ns)
		slot->taken_ns = q->now_ns;
	atomic_store_explicit(&slot->state, PAGE_SLOT_TAKEN,
	    memory_order_release);
}

/* Take up what the predecessor had in its hands. */
static int
queue_resume(struct queue *q)
{
	struct request *req;
	uint32_t i;

	q->now_ns = clock_ns();
	for (i = 0; i < q->ring.entries; i++) {
		req = &q->reqs[i];
		if (!slot_unanswered(q, req->slot)) {
			atomic_store(&req->slot->state, PAGE_SLOT_FREE);
			STAILQ_INSERT_TAIL(&q->free, req, link);
			continue;
		}
		slot_take_again(q, req->slot);
		q->inflight++;
		request_admit(q, req);
	}
	/* Slots are in no order, but all the others came before a barrier. */
	STAILQ_FOREACH(req, &q->waiting, link) {
		if (req->parsed.op == PAGE_BARRIER) {
			STAILQ_REMOVE(&q->waiting, req, request, link);
			STAILQ_INSERT_TAIL(&q->waiting, req, link);
			break;
		}
	}
	if (q->inflight != q->ring.req_cons - q->ring.rsp_prod)
		return -ESTALE;
	q->page->stats.reqs_taken = q->page->stats.reqs_answered + q->inflight;
	log_info("queue %u goes on with %u requests that were not answered",
	    q->number, q->inflight);
	return 0;
}

static int
queue_attach(struct queue *q, enum ring_abi abi, enum resume_mode resume,
    char why[WHY_MAX])
{
	uint32_t i;
	int rc;

	if (resume == RESUME_NO) {
		rc = ring_attach(&q->ring, q->shared, q->order, abi);
		if (rc < 0) {
			snprintf(why, WHY_MAX, "the frontend's ring indices "
			    "of queue %u make no sense", q->number);
			return rc;
		}
		queue_reset(q);
		for (i = 0; i < q->ring.entries; i++)
			STAILQ_INSERT_TAIL(&q->free, &q->reqs[i], link);
		q->page->stats.connects++;
		atomic_store(&q->page->req_cons, q->ring.req_cons);
		atomic_store(&q->page->rsp_prod, q->ring.rsp_prod);
		return 0;
	}
	rc = ring_resume(&q->ring, q->shared, q->order, abi,
	    q->page->req_cons, q->page->rsp_prod);
	if (rc == 0) {
		queue_reset(q);
		q->refuse = resume == RESUME_FAIL;
		rc = queue_resume(q);
	}
	if (rc < 0) {
		snprintf(why, WHY_MAX, "the page file's in-flight table of "
		    "queue %u does not match its indices", q->number);
		return -ESTALE;
	}
	ring_republish(&q->ring);
	return 0;
}

int
queue_connect(struct queue *q, const struct message_connect *c,
    enum resume_mode resume, char why[WHY_MAX])
{
	const struct message_ring *ring = &c->ring[q->number];
	int rc;

	q->stay_mapped = c->persistent && q->persistent != NULL;
	arena_share(&q->arena, q->memory, q->number, c->nr_queues);
	rc = grant_map_ring(&q->grant, ring, &q->shared);
	if (rc < 0) {
		q->shared = NULL;
		snprintf(why, WHY_MAX, "cannot map the ring of %u pages of "
		    "queue %u, first grant %u: %s", 1u << ring->order,
		    q->number, ring->gref[0], strerror(-rc));
		return rc;
	}
	q->order = ring->order;
	rc = xenevtchn_bind_interdomain(q->evtchn, q->grant.domid, ring->port);
	if (rc < 0) {
		rc = -errno;
		snprintf(why, WHY_MAX, "cannot bind event channel %u of queue "
		    "%u: %s; does another backend (xen-blkback?) serve this "
		    "disk?", ring->port, q->number, strerror(-rc));
		goto err_unmap;
	}
	q->port = rc;
	rc = queue_attach(q, c->abi, resume, why);
	if (rc < 0)
		goto err_unbind;
	if (resume != RESUME_NO)
		queue_notify(q);
	return 0;

err_unbind:
	unbind_port(q);
err_unmap:
	unmap_ring(q);
	return rc;
}

void
queue_disconnect(struct queue *q)
{
	if (q->shared == NULL)
		return;
	assert(queue_idle(q) && q->arena.nr_used == 0);
	if (q->persistent != NULL)
		persistent_clear(q->persistent);
	unbind_port(q);
	unmap_ring(q);
}

/* The one way out of a request: it is answered at the end of this round. */
static void
request_end(struct request *req, int16_t status, struct queue *q)
{
	req->status = status;
	request_stage(req, PAGE_STAGE_ANSWER);
	STAILQ_INSERT_TAIL(&q->done, req, link);
}

static void
request_refuse(struct queue *q, struct request *req, int16_t status,
    const char *why)
{
	const blkif_request_t *wire = &req->slot->req;

	q->page->stats.reqs_rejected++;
	log_guest(&q->log, "request refused: %soperation %u, %u segments, "
	    "sector %llu: %s",
	    wire->operation == BLKIF_OP_INDIRECT ? "indirect " : "",
	    request_operation(wire), request_segments(wire),
	    (unsigned long long)wire->sector_number, why);
	request_end(req, status, q);
}

/* Room in the arena.  False: the request waits. */
static bool
request_place(struct queue *q, struct request *req)
{
	int page;

	/* A barrier starts when everything before it has been answered. */
	if (req->parsed.op == PAGE_BARRIER && q->inflight > 1)
		return false;
	if (req->parsed.nr_segments == 0)
		return true;
	if (req->parsed.segment == NULL &&
	    q->nr_descriptors == MAX_DESCRIPTORS)
		return false;
	page = arena_take(&q->arena, req->parsed.nr_segments);
	if (page < 0)
		return false;
	req->page = page;
	if (req->parsed.segment == NULL)
		q->nr_descriptors++;
	return true;
}

/* Check the request in its slot; it then waits for room, or its answer. */
static void
request_admit(struct queue *q, struct request *req)
{
	const blkif_request_t *wire = &req->slot->req;
	const char *why;
	int16_t status;

	request_stage(req, PAGE_STAGE_TAKEN);
	req->mapped = false;
	status = request_parse(&req->parsed, wire, &q->limits, &why);
	req->step = req->parsed.plan;
	if (status == BLKIF_RSP_OKAY && !q->refuse) {
		if (req->parsed.op == PAGE_BARRIER)
			q->barrier = req;
		STAILQ_INSERT_TAIL(&q->waiting, req, link);
		return;
	}
	if (status == BLKIF_RSP_OKAY) {
		status = BLKIF_RSP_ERROR;
		why = "disk processes died of such requests";
	}
	req->parsed.nr_segments = 0;	/* it has no room to give back */
	request_refuse(q, req, status, why);
}

/* Copy one request off the ring. */
static void
queue_take_one(struct queue *q)
{
	struct request *req = STAILQ_FIRST(&q->free);

	assert(req != NULL);
	STAILQ_REMOVE_HEAD(&q->free, link);
	q->inflight++;
	q->page->stats.reqs_taken++;
	req->slot->index = q->ring.req_cons;
	req->slot->taken_ns = q->now_ns;
	req->slot->length = 0;
	ring_take(&q->ring, &req->slot->req);
	step(q, STEP_COPIED);
	atomic_store_explicit(&req->slot->state, PAGE_SLOT_TAKEN,
	    memory_order_release);
	step(q, STEP_TAKEN);
	request_admit(q, req);
}

/* Give room to those who wait, in their order.  How many got it. */
static unsigned
queue_place(struct queue *q)
{
	struct request *req;
	unsigned placed = 0;

	while ((req = STAILQ_FIRST(&q->waiting)) != NULL &&
	    request_place(q, req)) {
		STAILQ_REMOVE_HEAD(&q->waiting, link);
		request_stage(req, PAGE_STAGE_COPY);
		STAILQ_INSERT_TAIL(&q->round, req, link);
		placed++;
	}
	if (req != NULL)
		request_stage(req, PAGE_STAGE_ROOM);
	return placed;
}

/* Take what there is, as far as arena and round have room.  How many. */
static unsigned
queue_take(struct queue *q)
{
	uint32_t end = q->arena.nr_used + q->round_pages;
	unsigned found = q->stopped != 0 ? 0 : queue_place(q);
	int n;

	if (queue_blocked(q))
		return found;
	n = ring_pending(&q->ring);
	if (n < 0) {
		q->broken = "the frontend's request producer index left the "
		    "ring";
		log_guest(&q->log, "%s; no more requests are taken",
		    q->broken);
	}
	if (n <= 0)
		return found;

	q->now_ns = clock_ns();
	q->limits.size = q->channel->img->size;	/* it may have grown */
	q->armed = false;	/* its event is behind what is taken now */
	while (n-- > 0 && q->barrier == NULL && STAILQ_EMPTY(&q->waiting) &&
	    q->arena.nr_used < end) {
		queue_take_one(q);
		queue_place(q);
		found++;
	}
	/* After the slots: see page.h. */
	atomic_store_explicit(&q->page->req_cons, q->ring.req_cons,
	    memory_order_release);
	step(q, STEP_CONSUMED);
	return found;
}

/* Has write data to be copied for it? */
static bool
carries_data_in(const struct request *req)
{
	return req->parsed.op != PAGE_READ && req->parsed.nr_segments > 0 &&
	    !req->mapped;
}

static void
request_unmap(struct queue *q, struct request *req, unsigned n)
{
	while (n-- > 0)
		persistent_put(q->persistent, req->parsed.segment[n].gref,
		    q->now_ns);
	req->mapped = false;
}

/* The guest's own pages for its data.  False: one of them is not mapped. */
static bool
request_map(struct queue *q, struct request *req)
{
	const struct segment *s = req->parsed.segment;
	uint8_t *page;
	unsigned i;

	for (i = 0; i < req->parsed.nr_segments; i++) {
		page = persistent_get(q->persistent, s[i].gref, q->now_ns);
		if (page == NULL) {
			request_unmap(q, req, i);
			return false;
		}
		q->arena.data[req->page + i] = page + s[i].offset;
	}
	req->mapped = true;
	return true;
}

/* Where its data is going to be: in the guest's pages, or in the arena. */
static void
request_locate(struct queue *q, struct request *req)
{
	const struct segment *s = req->parsed.segment;
	unsigned i;

	req->mapped = false;
	if (q->stay_mapped && request_map(q, req))
		return;
	for (i = 0; i < req->parsed.nr_segments; i++)
		q->arena.data[req->page + i] =
		    arena_page(&q->arena, req->page + i) + s[i].offset;
}

/* Gather the segments of one request for a grant copy. */
static void
request_gather(struct queue *q, struct request *req, bool to_guest)
{
	const struct segment *s = req->parsed.segment;
	unsigned i, n;

	req->copy = q->grant.nr;
	for (i = 0; i < req->parsed.nr_segments; i++) {
		n = grant_add(&q->grant, &s[i], q->arena.data[req->page + i],
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

/* Have the storage do the next step of the request's plan. */
static void
request_step(struct queue *q, struct request *req)
{
	switch (*req->step) {
	case 'r':
	case 'w':
		merge_add(&q->merger, req);
		request_stage(req, PAGE_STAGE_STORAGE |
		    q->merger.open->number << PAGE_STAGE_BITS);
		break;
	case 'f':
		request_stage(req, PAGE_STAGE_STORAGE |
		    req->number << PAGE_STAGE_BITS);
		/* Of the image: it covers the other queues' writes, too. */
		merge_add_bare(&q->merger, req, IO_FLUSH);
		break;
	case 'd':
		request_stage(req, PAGE_STAGE_STORAGE |
		    req->number << PAGE_STAGE_BITS);
		merge_add_bare(&q->merger, req, IO_DISCARD);
		break;
	default:
		request_end(req, BLKIF_RSP_OKAY, q);
		break;
	}
}

/* Copy the descriptors of a request from a page that is mapped, or gather. */
static void
request_fetch_descriptors(struct queue *q, struct request *req, uint8_t *to)
{
	struct segment s = {
		.gref = req->parsed.descriptors,
		.length = (uint16_t)(req->parsed.nr_segments *
		    sizeof(struct blkif_request_segment)),
	};
	const uint8_t *page = NULL;

	if (q->stay_mapped)
		page = persistent_get(q->persistent, s.gref, q->now_ns);
	req->mapped = page != NULL;
	if (page == NULL) {
		req->copy = grant_add(&q->grant, &s, to, false);
		return;
	}
	memcpy(to, page, s.length);
	persistent_put(q->persistent, s.gref, q->now_ns);
}

/* Check the private copy of them. */
static int16_t
request_describe(struct queue *q, struct request *req, const uint8_t *copy,
    const char **why)
{
	if (!req->mapped && !grant_ok(&q->grant, req->copy, 1)) {
		*why = "its descriptors cannot be fetched";
		return BLKIF_RSP_ERROR;
	}
	return request_parse_indirect(&req->parsed,
	    (const struct blkif_request_segment *)(const void *)copy,
	    &q->arena.segment[req->page], &q->limits, why);
}

/*
 * The segments of the round's indirect requests: copied once, then checked.
 * One call copies all descriptor pages that do not stay mapped.
 */
static void
queue_fetch_descriptors(struct queue *q)
{
	struct request_list round = STAILQ_HEAD_INITIALIZER(round);
	uint8_t *copy = q->descriptors;
	struct request *req;
	const char *why;
	int16_t status;

	grant_reset(&q->grant);
	STAILQ_FOREACH(req, &q->round, link) {
		if (req->parsed.segment != NULL)
			continue;
		request_fetch_descriptors(q, req, copy);
		copy += DESCRIPTOR_BYTES;
	}
	grant_copy(&q->grant);
	copy = q->descriptors;
	STAILQ_CONCAT(&round, &q->round);
	while ((req = STAILQ_FIRST(&round)) != NULL) {
		STAILQ_REMOVE_HEAD(&round, link);
		status = BLKIF_RSP_OKAY;
		if (req->parsed.segment == NULL) {
			status = request_describe(q, req, copy, &why);
			copy += DESCRIPTOR_BYTES;
			req->mapped = false;
			req->slot->length = req->parsed.length;
		}
		if (status == BLKIF_RSP_OKAY)
			STAILQ_INSERT_TAIL(&q->round, req, link);
		else
			request_refuse(q, req, status, why);
	}
}

/* Has a flush failed, on whichever queue?  Nothing is durable any more. */
static bool
disk_failed(const struct queue *q)
{
	return atomic_load_explicit(q->failed, memory_order_acquire) != 0;
}

/* Fetch the write data of the round, merge, hand it all to the driver. */
static void
queue_start(struct queue *q)
{
	struct request *req;

	if (q->nr_descriptors > 0)
		queue_fetch_descriptors(q);
	q->nr_descriptors = 0;
	grant_reset(&q->grant);
	STAILQ_FOREACH(req, &q->round, link) {
		request_locate(q, req);
		if (carries_data_in(req))
			request_gather(q, req, false);
	}
	grant_copy(&q->grant);
	step(q, STEP_FETCHED);

	while ((req = STAILQ_FIRST(&q->round)) != NULL) {
		STAILQ_REMOVE_HEAD(&q->round, link);
		if (carries_data_in(req) && !request_copied(q, req))
			request_end(req, BLKIF_RSP_ERROR, q);
		else if (disk_failed(q) && req->parsed.op != PAGE_READ)
			request_done(req, -EIO);
		else
			request_step(q, req);
	}
	merge_end(&q->merger);
}

/*
 * Is a request that failed to wait for the operator?  Not one whose flush
 * failed: that is never tried again, see below.
 */
static bool
request_waits(const struct queue *q, const struct request *req, int error)
{
	if (*req->step == 'f' || q->draining || disk_failed(q))
		return false;
	return q->on_error == ON_ERROR_STOP ||
	    (q->on_error == ON_ERROR_STOP_ENOSPC &&
	    (error == -ENOSPC || error == -EDQUOT));
}

/* The driver is done with one step, or was not asked. */
static void
request_done(struct request *req, int error)
{
	static const char *const names[PAGE_NR_OPS] = {
		"read", "write", "flush", "barrier", "discard",
	};
	struct queue *q = container_of(req->merger, struct queue, merger);

	/* The storage tells a loss once, perhaps to another queue's flush. */
	if (error == 0 && *req->step == 'f' && disk_failed(q))
		error = -EIO;
	if (error == 0) {
		req->step++;
		request_step(q, req);
		merge_end(&q->merger);
		return;
	}
	/* Advice that this storage cannot take: the frontend stops it. */
	if (*req->step == 'd' && error == -EOPNOTSUPP) {
		request_end(req, BLKIF_RSP_EOPNOTSUPP, q);
		return;
	}
	if (request_waits(q, req, error)) {
		if (q->stopped == 0)
			q->stopped = error;
		request_stage(req, PAGE_STAGE_HELD);
		STAILQ_INSERT_TAIL(&q->held, req, link);
		return;
	}
	q->page->stats.reqs_failed++;
	log_guest(&q->log, "%s of %llu bytes at %llu failed: %s",
	    names[req->parsed.op], (unsigned long long)req->parsed.length,
	    (unsigned long long)req->parsed.offset, strerror(-error));
	/*
	 * Linux takes ERROR on an empty flush for success and goes on without
	 * flushes, so a failed one must be felt elsewhere: from now on no
	 * write and no flush succeeds, until the disk is attached again.
	 */
	if (*req->step == 'f' && atomic_exchange(q->failed, 1) == 0)
		log_error(error, "flush failed: every later write and flush "
		    "is refused; repair the storage, then detach and attach");
	request_end(req, BLKIF_RSP_ERROR, q);
}

void
queue_retry(struct queue *q)
{
	struct request_list held = STAILQ_HEAD_INITIALIZER(held);
	struct request *req;
	int error = q->stopped;

	/* Each may be held once more: take the list away before. */
	STAILQ_CONCAT(&held, &q->held);
	q->stopped = 0;
	while ((req = STAILQ_FIRST(&held)) != NULL) {
		STAILQ_REMOVE_HEAD(&held, link);
		if (q->draining)
			request_done(req, error);
		else
			request_step(q, req);
	}
	merge_end(&q->merger);
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
	wait = q->now_ns - req->slot->taken_ns;
	s->ops[op]++;
	s->bytes[op] += req->parsed.length;
	s->wait_ns[op] += wait;
	s->waits[op][63 - __builtin_clzll(wait | 1)]++;
	if (wait > s->wait_max_ns[op])
		s->wait_max_ns[op] = wait;
}

/* Has read data to be copied for it? */
static bool
carries_data_out(const struct request *req)
{
	return req->parsed.op == PAGE_READ && !req->mapped &&
	    req->status == BLKIF_RSP_OKAY;
}

/* Read data of the round to the guest, with one call. */
static void
queue_copy_out(struct queue *q)
{
	struct request *req;

	grant_reset(&q->grant);
	STAILQ_FOREACH(req, &q->done, link) {
		if (!carries_data_out(req))
			continue;
		request_stage(req, PAGE_STAGE_COPY);
		request_gather(q, req, true);
	}
	grant_copy(&q->grant);
	STAILQ_FOREACH(req, &q->done, link)
		if (carries_data_out(req) && !request_copied(q, req))
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
		ring_put(&q->ring, req->slot->req.id,
		    request_operation(&req->slot->req), req->status);
		step(q, STEP_WRITTEN);
		atomic_store_explicit(&req->slot->state, PAGE_SLOT_ANSWERED,
		    memory_order_release);
		step(q, STEP_ANSWERED);
		stats_answered(q, req);
	}
	atomic_store_explicit(&q->page->rsp_prod, q->ring.rsp_prod,
	    memory_order_release);
	step(q, STEP_COMMITTED);
	notify = ring_publish(&q->ring);
	q->page->stats.publishes++;
	step(q, STEP_PUBLISHED);
	if (notify)
		queue_notify(q);
	step(q, STEP_NOTIFIED);

	while ((req = STAILQ_FIRST(&q->done)) != NULL) {
		STAILQ_REMOVE_HEAD(&q->done, link);
		atomic_store_explicit(&req->slot->state, PAGE_SLOT_FREE,
		    memory_order_release);
		if (req->mapped)
			request_unmap(q, req, req->parsed.nr_segments);
		if (req->parsed.nr_segments > 0)
			arena_give(&q->arena, req->page,
			    req->parsed.nr_segments);
		step(q, STEP_FREED);
		/* Not one that was refused while another one waited. */
		if (req == q->barrier)
			q->barrier = NULL;
		STAILQ_INSERT_HEAD(&q->free, req, link);
		q->inflight--;
	}
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
		step(q, STEP_SUBMITTED);
	}
	if (q->inflight > 0 && channel_reap(q->channel) > 0)
		worked = true;
	if (worked)
		step(q, STEP_REAPED);
	if (!STAILQ_EMPTY(&q->done)) {
		queue_answer(q);
		worked = true;
	}
	if (worked) {
		s->rounds++;
		s->ios = q->merger.ios;
		s->ios_retried = q->merger.retried;
		s->submits = q->channel->submits;
		s->metadata_writes = q->channel->img->metadata_writes;
		s->copy_calls = q->grant.calls;
		s->copy_segments = q->grant.segments;
		q->page->inflight = q->inflight;
	}
	assert(s->reqs_taken == s->reqs_answered + q->inflight);
	return worked;
}
