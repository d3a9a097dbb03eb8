/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See fqueue.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xen/io/blkif.h>

#include "tests/loopfront/fqueue.h"

/*
 * An id holds the shadow's index in its low bits and a number that changes
 * with every use, so that a second answer to an old request is not taken for
 * the answer to a new one.  The constant bits see to it that no byte is zero
 * where a response has its padding (bytes 1 and 4 to 7 of an id, in one layout
 * or the other): padding that the backend forgets to clear shows them.
 */
#define ID_BITS		0xa5a5a5a500008000u
#define ID_INDEX	(FRONT_MAX_SLOTS - 1)

/* Of a request: its data, then its descriptors. */
#define SLOT_LOANS	(FRONT_MAX_INDIRECT + 1)

/* Where a request's data is, and where the backend sees it. */
struct loan {
	struct pool_page *to;
	struct fqueue_segment from;
};

static uint64_t
id_make(uint32_t sequence, unsigned index)
{
	return ID_BITS | (uint64_t)(sequence & 0xffff) << 16 | index;
}

static int broken(struct fqueue *, const char *, ...)
    __attribute__((format(printf, 2, 3)));

/* The first thing that went wrong is the one that is told. */
static int
broken(struct fqueue *q, const char *fmt, ...)
{
	va_list	ap;

	if (!q->broken) {
		va_start(ap, fmt);
		vsnprintf(q->why, sizeof(q->why), fmt, ap);
		va_end(ap);
		q->broken = true;
	}
	return -EPROTO;
}

void
fqueue_break(struct fqueue *q, const char *why)
{
	broken(q, "%s", why);
}

static void
ungrant_ring(struct fqueue *q, unsigned n)
{
	while (n-- > 0) {
		if (loopguest_ungrant(q->guest, q->ring_ref[n]) == 0)
			continue;
		broken(q, "backend has not released page %u of the ring "
		    "(grant %u: mapped %u times)", n, q->ring_ref[n],
		    loopguest_grant_mapped(q->guest, q->ring_ref[n]));
		loopguest_revoke(q->guest, q->ring_ref[n]);
	}
}

static int
open_pool(struct fqueue *q)
{
	unsigned	n = fqueue_pool(&q->opt);

	if (n == 0)
		return 0;
	q->loans = calloc((size_t)q->front.entries * SLOT_LOANS,
	    sizeof(*q->loans));
	if (q->loans == NULL || pool_open(&q->pool, q->guest, q->backend,
	    q->ring_page + fqueue_pages(&q->opt) - n, n) < 0) {
		free(q->loans);
		return -ENOMEM;
	}
	return 0;
}

static void
close_pool(struct fqueue *q)
{
	uint32_t	held = pool_close(&q->pool);

	free(q->loans);
	q->loans = NULL;
	if (held != 0)
		broken(q, "backend has not released grant %u, which is "
		    "persistent, after it closed", held);
}

int
fqueue_open(struct fqueue *q, struct loopguest *guest, unsigned ring_page,
    unsigned backend, const struct fqueue_options *opt)
{
	unsigned	i;
	int		rc;

	memset(q, 0, sizeof(*q));
	q->guest = guest;
	q->opt = *opt;
	q->backend = backend;
	q->ring_page = ring_page;
	front_init(&q->front, loopguest_page(guest, ring_page), opt->order,
	    opt->abi);
	for (i = 0; i < q->front.entries; i++)
		q->free[i] = (uint16_t)(q->front.entries - 1 - i);
	q->nr_free = q->front.entries;

	for (i = 0; i < 1u << opt->order; i++) {
		rc = loopguest_grant(guest, ring_page + i, backend, false,
		    &q->ring_ref[i]);
		if (rc < 0)
			goto fail;
	}
	rc = loopguest_port_open(guest, backend, &q->port);
	if (rc < 0)
		goto fail;
	rc = open_pool(q);
	if (rc < 0) {
		loopguest_port_close(q->port);
		goto fail;
	}
	return 0;

fail:
	ungrant_ring(q, i);
	return rc;
}

/* The nth page of a request; the one after its data is the descriptors'. */
static uint32_t
shadow_gref(const struct fqueue *q, const struct shadow *s, unsigned n)
{
	return n == s->nr_segments ? s->descriptors :
	    q->gref[s - q->shadow][n];
}

static unsigned
shadow_pages(const struct shadow *s)
{
	return s->nr_segments + (s->indirect ? 1u : 0u);
}

/* The pool's page for the nth page of a request. */
static struct loan *
loan_at(const struct fqueue *q, const struct shadow *s, unsigned n)
{
	return &q->loans[(size_t)(s - q->shadow) * SLOT_LOANS + n];
}

static void
copy_segment(const struct fqueue *q, const struct loan *l, bool to_backend)
{
	size_t	 at = l->from.first * FRONT_SECTOR;
	size_t	 length = (l->from.last + 1u) * FRONT_SECTOR - at;
	char	*ours = (char *)loopguest_page(q->guest, l->from.page) + at;
	char	*theirs = (char *)loopguest_page(q->guest, l->to->page) + at;

	if (to_backend)
		memcpy(theirs, ours, length);
	else
		memcpy(ours, theirs, length);
}

/* What a read has brought, if it has, to where it was asked for. */
static void
fetch_data(const struct fqueue *q, const struct shadow *s)
{
	unsigned	i;

	for (i = 0; i < s->nr_segments; i++)
		copy_segment(q, loan_at(q, s, i), false);
}

/* The backend may keep these. */
static void
return_loans(struct fqueue *q, struct shadow *s)
{
	unsigned	i;

	if (s->indirect)
		pool_give(&q->pool, loan_at(q, s, FRONT_MAX_INDIRECT)->to);
	for (i = s->nr_segments; i > 0; i--)
		pool_give(&q->pool, loan_at(q, s, i - 1)->to);
	s->indirect = false;
	s->nr_segments = 0;
}

/* Give a request's pages back; the backend must have let go of each. */
static void
ungrant_shadow(struct fqueue *q, struct shadow *s, const char *when)
{
	unsigned	i, n = shadow_pages(s);
	uint32_t	ref;
	int		rc;

	if (q->opt.persistent) {
		return_loans(q, s);
		return;
	}
	for (i = 0; i < n; i++) {
		ref = shadow_gref(q, s, i);
		rc = loopguest_ungrant(q->guest, ref);
		if (rc == 0)
			continue;
		broken(q, "backend has not released grant %u (segment %u of "
		    "%u of operation %u at sector %" PRIu64 ") %s: mapped %u "
		    "times, copying %u: %s", ref, i, s->nr_segments, s->op,
		    s->sector, when, loopguest_grant_mapped(q->guest, ref),
		    loopguest_grant_copying(q->guest, ref), strerror(-rc));
		loopguest_revoke(q->guest, ref);
	}
	s->nr_segments = 0;		/* none of them is ours any more */
	s->indirect = false;
}

static bool
grant_held(const struct fqueue *q, uint32_t ref)
{
	return loopguest_grant_mapped(q->guest, ref) > 0 ||
	    loopguest_grant_copying(q->guest, ref) > 0;
}

bool
fqueue_held(const struct fqueue *q)
{
	bool		held = loopguest_port_bound(q->port);
	unsigned	i, n;

	held |= pool_held(&q->pool);
	for (i = 0; i < 1u << q->opt.order; i++)
		held |= grant_held(q, q->ring_ref[i]);
	for (i = 0; i < q->front.entries; i++) {
		for (n = 0; n < shadow_pages(&q->shadow[i]); n++)
			held |= q->shadow[i].id != 0 && grant_held(q,
			    shadow_gref(q, &q->shadow[i], n));
	}
	return held;
}

int
fqueue_close(struct fqueue *q)
{
	bool		was_broken = q->broken;
	unsigned	i;
	int		rc;

	q->broken = false;		/* what is left is told, too */
	if (loopguest_port_bound(q->port))
		broken(q, "backend has not closed its end of event channel %u",
		    loopguest_port_number(q->port));
	loopguest_port_close(q->port);
	q->port = NULL;
	for (i = 0; i < q->front.entries; i++) {
		if (q->shadow[i].id != 0)
			ungrant_shadow(q, &q->shadow[i], "after it closed");
		q->shadow[i].id = 0;
	}
	close_pool(q);
	ungrant_ring(q, 1u << q->opt.order);
	rc = q->broken ? -EPROTO : 0;
	q->broken |= was_broken;
	return rc;
}

/* The page for a slot's descriptors. */
static unsigned
descriptor_page(const struct fqueue *q, const struct shadow *s)
{
	if (q->opt.persistent)
		return loan_at(q, s, FRONT_MAX_INDIRECT)->to->page;
	return q->ring_page + (1u << q->opt.order) +
	    (unsigned)(s - q->shadow);
}

/* A page of the pool in the place of a page of data, and with what it holds. */
static int
lend_segment(struct fqueue *q, const struct shadow *s, unsigned n,
    const struct fqueue_segment *seg, uint32_t *gref)
{
	struct loan	*l = loan_at(q, s, n);
	int		 rc = pool_take(&q->pool, &l->to);

	if (rc < 0)
		return rc;
	l->from = *seg;
	if (s->op != BLKIF_OP_READ)
		copy_segment(q, l, true);
	*gref = l->to->gref;
	return 0;
}

/* Grant a page of data and name it, in the slot or in its descriptors. */
static int
put_segment(struct fqueue *q, const struct shadow *s, unsigned n,
    const struct fqueue_segment *seg, struct front_request *req)
{
	struct front_segment	 wire = { .first = seg->first,
				    .last = seg->last };
	int			 rc;

	if (q->opt.persistent)
		rc = lend_segment(q, s, n, seg, &wire.gref);
	else
		rc = loopguest_grant(q->guest, seg->page, q->backend,
		    s->op != BLKIF_OP_READ && !q->opt.writable, &wire.gref);
	if (rc < 0)
		return rc;
	q->gref[s - q->shadow][n] = wire.gref;
	if (s->indirect)
		front_describe_segment(loopguest_page(q->guest,
		    descriptor_page(q, s)), n, &wire);
	else
		req->seg[n] = wire;
	return 0;
}

/* Grant the page for the descriptors, which are to come. */
static int
put_descriptors(struct fqueue *q, struct shadow *s, struct front_request *req)
{
	struct loan	*l;
	int		 rc;

	if (q->opt.persistent) {
		l = loan_at(q, s, FRONT_MAX_INDIRECT);
		rc = pool_take(&q->pool, &l->to);
		if (rc == 0)
			s->descriptors = l->to->gref;
	} else {
		rc = loopguest_grant(q->guest, descriptor_page(q, s),
		    q->backend, !q->opt.writable, &s->descriptors);
	}
	req->op = BLKIF_OP_INDIRECT;
	req->inner = s->op;
	req->nr_indirect = s->nr_segments;
	req->descriptors = s->descriptors;
	return rc;
}

int
fqueue_put(struct fqueue *q, const struct shadow *what,
    const struct fqueue_segment *seg)
{
	struct front_request	 req = { .op = what->op };
	struct shadow		*s;
	unsigned		 i = 0, index;
	int			 rc = 0;

	if (q->broken)
		return -EPROTO;
	if (q->nr_free == 0)
		return -ENOSPC;
	index = q->free[q->nr_free - 1];
	s = &q->shadow[index];
	*s = *what;
	s->indirect = what->op == BLKIF_OP_INDIRECT ||
	    what->nr_segments > FRONT_MAX_SEGMENTS;
	if (what->op == BLKIF_OP_INDIRECT)
		s->op = BLKIF_OP_READ;
	if (s->indirect && (rc = put_descriptors(q, s, &req)) < 0) {
		s->indirect = false;
		goto fail;
	}
	for (; i < what->nr_segments; i++) {
		rc = put_segment(q, s, i, &seg[i], &req);
		if (rc < 0)
			goto fail;
	}
	q->nr_free--;
	s->id = id_make(q->sequence++, index);
	req.nr_segments = (uint8_t)s->nr_segments;
	req.id = s->id;
	req.sector = s->sector;
	req.nr_sectors = s->sectors;
	front_put(&q->front, &req);
	return 0;

fail:
	s->id = 0;
	s->nr_segments = (uint16_t)i;
	ungrant_shadow(q, s, "before it was told of it");
	return rc;
}

int
fqueue_push(struct fqueue *q)
{
	if (q->broken)
		return -EPROTO;
	if (!front_push(&q->front))
		return 0;
	q->notifies++;
	return loopguest_port_notify(q->port);
}

/* Is it the answer to a request that waits for it?  NULL: it is not. */
static struct shadow *
response_check(struct fqueue *q, const struct front_response *rsp)
{
	unsigned	 index = rsp->id & ID_INDEX;
	struct shadow	*s = &q->shadow[index];

	if (index >= q->front.entries || s->id != rsp->id || rsp->id == 0) {
		broken(q, "response with id %016" PRIx64 " (operation %u, "
		    "status %d), but no such request is in flight", rsp->id,
		    rsp->op, rsp->status);
		return NULL;
	}
	if (rsp->op != s->op) {
		broken(q, "response to operation %u at sector %" PRIu64
		    " says operation %u", s->op, s->sector, rsp->op);
		return NULL;
	}
	if (rsp->status != BLKIF_RSP_OKAY && rsp->status != BLKIF_RSP_ERROR &&
	    rsp->status != BLKIF_RSP_EOPNOTSUPP) {
		broken(q, "response to operation %u at sector %" PRIu64
		    " has the status %d, which is none", s->op, s->sector,
		    rsp->status);
		return NULL;
	}
	if (rsp->padded && q->opt.check_padding) {
		broken(q, "response to operation %u at sector %" PRIu64
		    " has padding that is not zero (XSA-216)", s->op,
		    s->sector);
		return NULL;
	}
	return s;
}

int
fqueue_reap(struct fqueue *q, fqueue_done *done, void *arg)
{
	struct front_response	 rsp;
	struct shadow		*s, copy;
	char			 text[160];
	int			 n = 0, rc;

	while (!q->broken && (rc = front_take(&q->front, &rsp)) != 0) {
		if (rc < 0) {
			front_describe(&q->front, text, sizeof(text));
			return broken(q, "backend published responses that "
			    "nobody asked for: %s", text);
		}
		s = response_check(q, &rsp);
		if (s == NULL)
			return -EPROTO;
		if (q->opt.persistent && s->op == BLKIF_OP_READ &&
		    rsp.status == BLKIF_RSP_OKAY)
			fetch_data(q, s);
		ungrant_shadow(q, s, "when it answered");
		if (q->broken)
			return -EPROTO;
		copy = *s;
		s->id = 0;
		q->free[q->nr_free++] = (uint16_t)(s - q->shadow);
		q->requests++;
		n++;
		done(q, &copy, rsp.status, arg);
	}
	return q->broken ? -EPROTO : n;
}
