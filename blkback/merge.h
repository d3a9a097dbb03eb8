/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * merge: adjacent requests of one operation become one I/O.
 *
 * A ring slot holds 44 KiB, so a guest's large write arrives in pieces; here
 * they are put together again before they reach the driver.  Only reads with
 * reads and writes with writes, only in ring order, never across a flush, and
 * only where their pages follow each other in the arena.
 *
 * The first request of a group lends its struct io to the whole group.  When a
 * merged I/O fails, each of its requests goes again alone, so that the error
 * reaches the request that earned it and no other.
 */
#ifndef BLKBACK_MERGE_H
#define BLKBACK_MERGE_H

#include <stdint.h>
#include <sys/queue.h>

#include "blkback/arena.h"
#include "blkback/request.h"
#include "drivers/driver.h"

struct merger;

struct request {
	struct request_parsed  parsed;
	struct page_slot      *slot;	/* our copy of what the guest sent */
	uint32_t               page;	/* first of nr_segments in the arena */
	unsigned               copy;	/* first segment in the grant copy */
	bool                   mapped;	/* its segments are persistent */
	int16_t                status;	/* BLKIF_RSP_*, once answered */
	const char            *step;	/* of its plan: the one under way */
	uint32_t               number;	/* of its slot */
	struct merger         *merger;	/* set by its owner, for good */
	struct io              io;
	STAILQ_HEAD(, request) group;	/* of the first: all of them */
	unsigned               nr_group;
	STAILQ_ENTRY(request)  link;
};
STAILQ_HEAD(request_list, request);

struct merger {
	struct channel *channel;	/* borrowed */
	struct arena   *arena;		/* borrowed */
	uint32_t        limit;		/* bytes of one I/O; 0: no merging */
	struct request *open;		/* first of the group still growing */
	struct request *last;		/* and its last, if there is one */
	void          (*done)(struct request *req, int error);
	uint64_t        ios, retried;	/* counters */
};

/*
 * Take a read or write whose data the arena tells the place of (and, for a
 * write, has).
 * m->done() runs once, later, from channel_reap().
 */
void merge_add(struct merger *m, struct request *req);

/* A flush or discard; what was added before is submitted before it. */
void merge_add_bare(struct merger *m, struct request *req, enum io_op op);

/* Submit the group that is still growing: the end of a round. */
void merge_end(struct merger *m);

#endif
