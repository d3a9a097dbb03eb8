/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * grant: reaching a guest's memory.
 *
 * The ring is mapped; data is copied by the hypervisor, gathered so that one
 * call serves a whole round.  A copy never fails as a whole on account of one
 * bad reference: each segment has a status, and each is looked at (XSA-365's
 * lesson).  A call may block for half a minute when the guest's page is paged
 * out, so only the queue's own thread makes it.
 */
#ifndef BLKBACK_GRANT_H
#define BLKBACK_GRANT_H

#include <stdbool.h>
#include <stdint.h>
#include <xengnttab.h>

#include "blkback/message.h"
#include "blkback/request.h"

struct grant {
	xengnttab_handle               *handle;
	xengnttab_grant_copy_segment_t *seg;
	unsigned                        nr, max;
	uint16_t                        domid;
	uint64_t                        calls, segments;	/* counters */
};

/* 'max' segments at most in one copy.  0 or -errno. */
int  grant_open(struct grant *g, uint16_t domid, unsigned max);
void grant_close(struct grant *g);

/* Map a ring; all or nothing.  0 or -errno. */
int  grant_map_ring(struct grant *g, const struct message_ring *ring,
         void **shared);
int  grant_unmap_ring(struct grant *g, void *shared, unsigned order);

/*
 * Add one segment to the copy being gathered; 'local' has room for its
 * length.  Its number, for grant_ok().
 */
unsigned grant_add(struct grant *g, const struct segment *s, uint8_t *local,
         bool to_guest);

/* Copy what was gathered, with one call; a no-op when there is nothing. */
void grant_copy(struct grant *g);

/* After grant_copy(): did all of segments [first, first + n) arrive? */
bool grant_ok(const struct grant *g, unsigned first, unsigned n);

/* Begin gathering anew. */
static inline void
grant_reset(struct grant *g)
{
	g->nr = 0;
}

#endif
