/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See fqueue.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
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
	return 0;

fail:
	ungrant_ring(q, i);
	return rc;
}

/* Give a request's pages back; the backend must have let go of each. */
static void
ungrant_shadow(struct fqueue *q, struct shadow *s, const char *when)
{
	unsigned	i;
	int		rc;

	for (i = 0; i < s->nr_segments; i++) {
		rc = loopguest_ungrant(q->guest, s->gref[i]);
		if (rc == 0)
			continue;
		broken(q, "backend has not released grant %u (segment %u of "
		    "operation %u at sector %" PRIu64 ") %s: mapped %u times, "
		    "copying %u: %s", s->gref[i], i, s->op, s->sector, when,
		    loopguest_grant_mapped(q->guest, s->gref[i]),
		    loopguest_grant_copying(q->guest, s->gref[i]),
		    strerror(-rc));
		loopguest_revoke(q->guest, s->gref[i]);
	}
	s->nr_segments = 0;		/* none of them is ours any more */
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

	for (i = 0; i < 1u << q->opt.order; i++)
		held |= grant_held(q, q->ring_ref[i]);
	for (i = 0; i < q->front.entries; i++) {
		for (n = 0; n < q->shadow[i].nr_segments; n++)
			held |= q->shadow[i].id != 0 &&
			    grant_held(q, q->shadow[i].gref[n]);
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
	ungrant_ring(q, 1u << q->opt.order);
	rc = q->broken ? -EPROTO : 0;
	q->broken |= was_broken;
	return rc;
}

int
fqueue_put(struct fqueue *q, const struct shadow *what,
    const struct fqueue_segment *seg)
{
	struct front_request	 req = { .op = what->op };
	struct shadow		*s;
	unsigned		 i, index;
	bool			 readonly;
	int			 rc;

	if (q->broken)
		return -EPROTO;
	if (q->nr_free == 0)
		return -ENOSPC;
	index = q->free[q->nr_free - 1];
	s = &q->shadow[index];
	*s = *what;
	readonly = what->op != BLKIF_OP_READ && !q->opt.writable;
	for (i = 0; i < what->nr_segments; i++) {
		rc = loopguest_grant(q->guest, seg[i].page, q->backend,
		    readonly, &s->gref[i]);
		if (rc < 0)
			goto fail;
		req.seg[i].gref = s->gref[i];
		req.seg[i].first = seg[i].first;
		req.seg[i].last = seg[i].last;
	}
	q->nr_free--;
	s->id = id_make(q->sequence++, index);
	req.nr_segments = s->nr_segments;
	req.id = s->id;
	req.sector = s->sector;
	req.nr_sectors = s->sectors;
	front_put(&q->front, &req);
	return 0;

fail:
	s->id = 0;
	s->nr_segments = (uint8_t)i;
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
