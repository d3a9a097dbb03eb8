/* SPDX-License-Identifier: GPL-2.0-or-later */
/* grant: libxengnttab, with the status of each segment (see grant.h). */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "blkback/grant.h"

int
grant_open(struct grant *g, uint16_t domid, unsigned max)
{
	int rc;

	memset(g, 0, sizeof(*g));
	g->domid = domid;
	g->max = max;
	g->seg = calloc(max, sizeof(*g->seg));
	if (g->seg == NULL)
		return -ENOMEM;
	g->handle = xengnttab_open(NULL, 0);
	if (g->handle == NULL) {
		rc = errno != 0 ? -errno : -ENODEV;
		free(g->seg);
		memset(g, 0, sizeof(*g));
		return rc;
	}
	return 0;
}

void
grant_close(struct grant *g)
{
	if (g->handle != NULL)
		xengnttab_close(g->handle);
	free(g->seg);
	memset(g, 0, sizeof(*g));
}

int
grant_map_ring(struct grant *g, const struct message_ring *ring, void **shared)
{
	uint32_t refs[RING_MAX_PAGES];

	memcpy(refs, ring->gref, sizeof(refs));
	*shared = xengnttab_map_domain_grant_refs(g->handle, 1u << ring->order,
	    g->domid, refs, PROT_READ | PROT_WRITE);
	if (*shared == NULL)
		return errno != 0 ? -errno : -EINVAL;
	return 0;
}

int
grant_unmap_ring(struct grant *g, void *shared, unsigned order)
{
	return xengnttab_unmap(g->handle, shared, 1u << order) != 0 ?
	    -errno : 0;
}

unsigned
grant_add(struct grant *g, const struct segment *s, uint8_t *local,
    bool to_guest)
{
	xengnttab_grant_copy_segment_t *c = &g->seg[g->nr];

	assert(g->nr < g->max);
	if (to_guest) {
		c->source.virt = local;
		c->dest.foreign.ref = s->gref;
		c->dest.foreign.offset = s->offset;
		c->dest.foreign.domid = g->domid;
		c->flags = GNTCOPY_dest_gref;
	} else {
		c->source.foreign.ref = s->gref;
		c->source.foreign.offset = s->offset;
		c->source.foreign.domid = g->domid;
		c->dest.virt = local;
		c->flags = GNTCOPY_source_gref;
	}
	c->len = s->length;
	/*
	 * A call that fails as a whole leaves the segments it did not reach
	 * as they are: not copied.
	 */
	c->status = GNTST_general_error;
	return g->nr++;
}

void
grant_copy(struct grant *g)
{
	if (g->nr == 0)
		return;
	g->calls++;
	g->segments += g->nr;
	/* The status of each segment says all that the result could. */
	(void)xengnttab_grant_copy(g->handle, g->nr, g->seg);
}

bool
grant_ok(const struct grant *g, unsigned first, unsigned n)
{
	unsigned i;

	for (i = first; i < first + n; i++)
		if (g->seg[i].status != GNTST_okay)
			return false;
	return true;
}
