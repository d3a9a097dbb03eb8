/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * arena: the data memory of one disk, bounded and locked.
 *
 * It is made once and shared out, at each connect, to as many queues as the
 * guest uses; a share is an arena like any other, and no two of them write to
 * the same cache line.
 *
 * Every segment of a request lies in a page of its own, at the same offset as
 * in the guest's page (a grant copy is then never split), and the pages of a
 * request are consecutive.  So are those of consecutive requests of a round
 * as long as there is room: a merged I/O of whole pages is one iovec.
 *
 * Beside each page stand one iovec and one segment.  Whoever holds n pages
 * holds their n iovecs too, which is all that an I/O over them can need, and
 * has a place for the segments of an indirect request.  And there stands where
 * the data is: in that page, or, with persistent grants, in the guest's.
 */
#ifndef BLKBACK_ARENA_H
#define BLKBACK_ARENA_H

#include <stdint.h>
#include <sys/uio.h>

#include "blkback/request.h"

#define ARENA_SHARES 16u	/* at most */

struct arena {
	uint8_t      *base;
	struct iovec *iov;	/* one per page */
	struct segment *segment;	/* likewise */
	uint8_t     **data;	/* likewise: where its segment begins */
	uint64_t     *used;	/* one bit per page */
	uint32_t      pages;
	uint32_t      nr_used;
	uint32_t      cursor;	/* where to look next */
};

/* 'bytes' is rounded down to whole pages.  0 or -errno (a is then empty). */
int  arena_init(struct arena *a, uint32_t bytes);
void arena_fini(struct arena *a);

/*
 * Share i of n equal ones of an arena that nobody takes from itself.  It has
 * nothing of its own: the arena outlives it, and it needs no end.
 */
void arena_share(struct arena *share, const struct arena *whole, unsigned i,
         unsigned n);

/* Pages of such a share. */
static inline uint32_t
arena_share_pages(const struct arena *whole, unsigned n)
{
	return whole->pages / n;
}

/* The next arena_take() looks from the start: the warm pages. */
static inline void
arena_rewind(struct arena *a)
{
	a->cursor = 0;
}

/* n > 0 consecutive pages: the first one's number, or -ENOMEM. */
int  arena_take(struct arena *a, uint32_t n);
void arena_give(struct arena *a, uint32_t first, uint32_t n);

static inline uint8_t *
arena_page(const struct arena *a, uint32_t page)
{
	return a->base + (uint64_t)page * 4096;
}

#endif
