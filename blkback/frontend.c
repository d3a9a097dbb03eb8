/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * frontend: the nodes of a guest's ring, as blkif.h names them and as
 * frontends write them (see frontend.h).
 *
 *   protocol                                 the ABI; absent: our own
 *   feature-persistent                       absent: 0
 *   multi-queue-num-queues                   absent: 1
 *   ring-page-order, or else num-ring-pages  absent: 0
 *   ring-ref, or ring-ref0 ...               with several queues: below
 *   event-channel                            queue-0/, queue-1/ ...
 *
 * Only multi-queue-num-queues says how many queues there are: nodes of another
 * kind may be left over from a boot loader.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "blkback/frontend.h"
#include "blkback/xenstore.h"

#define VALUE_MAX 32	/* bytes; the longest legal value is an ABI's name */
#define NODE_MAX  64

static int
read_text(const struct frontend_reader *r, const char *node,
    char value[VALUE_MAX], char why[WHY_MAX])
{
	int rc;

	rc = r->read(r, node, value, VALUE_MAX);
	if (rc == -E2BIG)
		snprintf(why, WHY_MAX, "the guest's %s is longer than %d bytes",
		    node, VALUE_MAX - 1);
	else if (rc == -ENOENT)
		snprintf(why, WHY_MAX, "the guest has written no %s", node);
	else if (rc < 0)
		snprintf(why, WHY_MAX, "cannot read the guest's %s: %s", node,
		    strerror(-rc));
	return rc;
}

static int
read_number(const struct frontend_reader *r, const char *node, uint32_t min,
    uint32_t max, uint32_t *n, char why[WHY_MAX])
{
	char value[VALUE_MAX];
	int rc;

	rc = read_text(r, node, value, why);
	if (rc < 0)
		return rc;
	if (xenstore_parse_u32(value, max, n) < 0 || *n < min) {
		snprintf(why, WHY_MAX, "the guest's %s is \"%s\", not a number "
		    "from %u to %u", node, value, min, max);
		return -EINVAL;
	}
	return 0;
}

static int
read_abi(const struct frontend_reader *r, uint32_t *abi, char why[WHY_MAX])
{
	char value[VALUE_MAX];
	const char *name = value;
	enum ring_abi a;
	int rc;

	rc = read_text(r, "protocol", value, why);
	if (rc == -ENOENT)
		name = NULL;
	else if (rc < 0)
		return rc;
	rc = ring_abi_from_name(name, &a);
	if (rc < 0)
		snprintf(why, WHY_MAX, "the guest's protocol is \"%s\", which "
		    "is no ABI of ours (x86_64-abi, x86_32-abi)", name);
	else
		*abi = a;
	return rc;
}

/* Whoever does not say so does not have it. */
static int
read_persistent(const struct frontend_reader *r, uint32_t *persistent,
    char why[WHY_MAX])
{
	int rc;

	rc = read_number(r, "feature-persistent", 0, 1, persistent, why);
	if (rc == -ENOENT)
		*persistent = 0;
	return rc == -ENOENT ? 0 : rc;
}

static int
read_order(const struct frontend_reader *r, unsigned max_order,
    uint32_t *order, char why[WHY_MAX])
{
	uint32_t pages;
	int rc;

	*order = 0;
	rc = read_number(r, "ring-page-order", 0, max_order, order, why);
	if (rc != -ENOENT)
		return rc;
	rc = read_number(r, "num-ring-pages", 1, 1u << max_order, &pages, why);
	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		return rc;
	if ((pages & (pages - 1)) != 0) {
		snprintf(why, WHY_MAX, "the guest's num-ring-pages is %u, not "
		    "a power of two", pages);
		return -EINVAL;
	}
	while (1u << *order < pages)
		++*order;
	return 0;
}

static int
read_refs(const struct frontend_reader *r, const char *queue,
    struct message_ring *ring, char why[WHY_MAX])
{
	char node[NODE_MAX];
	uint32_t i;
	int rc;

	if (ring->order == 0) {
		/* A single page goes by both names. */
		snprintf(node, sizeof(node), "%sring-ref", queue);
		rc = read_number(r, node, 0, UINT32_MAX, &ring->gref[0], why);
		if (rc != -ENOENT)
			return rc;
	}
	for (i = 0; i < 1u << ring->order; i++) {
		snprintf(node, sizeof(node), "%sring-ref%u", queue, i);
		rc = read_number(r, node, 0, UINT32_MAX, &ring->gref[i], why);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/*
 * With one queue the nodes stand at the top.  A frontend that says so in so
 * many words (multi-queue-num-queues = 1) may have put them below queue-0 all
 * the same.
 */
static bool
at_the_top(const struct frontend_reader *r, bool counted)
{
	char value[VALUE_MAX];

	return !counted ||
	    r->read(r, "event-channel", value, sizeof(value)) != -ENOENT;
}

static int
read_queue(const struct frontend_reader *r, const char *prefix,
    struct message_ring *ring, char why[WHY_MAX])
{
	char node[NODE_MAX];
	int rc;

	rc = read_refs(r, prefix, ring, why);
	if (rc < 0)
		return rc;
	/* Xen keeps port 0 for itself. */
	snprintf(node, sizeof(node), "%sevent-channel", prefix);
	return read_number(r, node, 1, UINT32_MAX, &ring->port, why);
}

/* The page of a ring that has this number, counted over all queues. */
static uint32_t
nth_gref(const struct message_connect *c, unsigned n)
{
	return c->ring[n >> c->ring[0].order].gref[n &
	    ((1u << c->ring[0].order) - 1)];
}

/* Two queues that share a page or a port would answer each other's requests. */
static int
check_distinct(const struct message_connect *c, char why[WHY_MAX])
{
	unsigned i, k, n = c->nr_queues << c->ring[0].order;

	for (i = 0; i < n; i++) {
		for (k = 0; k < i; k++) {
			if (nth_gref(c, i) != nth_gref(c, k))
				continue;
			snprintf(why, WHY_MAX, "the guest's ring-ref %u stands "
			    "for two pages of its rings", nth_gref(c, i));
			return -EINVAL;
		}
	}
	for (i = 0; i < c->nr_queues; i++) {
		for (k = 0; k < i; k++) {
			if (c->ring[i].port != c->ring[k].port)
				continue;
			snprintf(why, WHY_MAX, "the guest's event-channel %u "
			    "is that of queues %u and %u", c->ring[i].port, k,
			    i);
			return -EINVAL;
		}
	}
	return 0;
}

static int
read_queues(const struct frontend_reader *r, bool top, uint32_t order,
    struct message_connect *c, char why[WHY_MAX])
{
	char prefix[VALUE_MAX];
	uint32_t i;
	int rc;

	for (i = 0; i < c->nr_queues; i++) {
		snprintf(prefix, sizeof(prefix), "queue-%u/", i);
		c->ring[i].order = order;
		rc = read_queue(r, top ? "" : prefix, &c->ring[i], why);
		if (rc < 0)
			return rc;
	}
	return check_distinct(c, why);
}

int
frontend_read(const struct frontend_reader *r,
    const struct frontend_offer *offer, struct message_connect *c,
    char why[WHY_MAX])
{
	uint32_t order = 0;
	bool top;
	int rc;

	memset(c, 0, sizeof(*c));
	rc = read_number(r, "multi-queue-num-queues", 1, offer->max_queues,
	    &c->nr_queues, why);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	if (rc == -ENOENT)
		c->nr_queues = 1;
	top = c->nr_queues == 1 && at_the_top(r, rc == 0);

	rc = 0;
	if (offer->persistent)
		rc = read_persistent(r, &c->persistent, why);
	if (rc == 0)
		rc = read_abi(r, &c->abi, why);
	if (rc == 0)
		rc = read_order(r, offer->max_order, &order, why);
	if (rc == 0)
		rc = read_queues(r, top, order, c, why);
	return rc;
}

bool
frontend_same(const struct message_connect *a, const struct message_connect *b)
{
	uint32_t i, pages;

	if (a->abi != b->abi || a->nr_queues != b->nr_queues ||
	    a->persistent != b->persistent)
		return false;
	for (i = 0; i < a->nr_queues && i < MAX_QUEUES; i++) {
		if (a->ring[i].order != b->ring[i].order ||
		    a->ring[i].order > RING_MAX_ORDER ||
		    a->ring[i].port != b->ring[i].port)
			return false;
		pages = 1u << a->ring[i].order;
		if (memcmp(a->ring[i].gref, b->ring[i].gref,
		    pages * sizeof(a->ring[i].gref[0])) != 0)
			return false;
	}
	return true;
}
