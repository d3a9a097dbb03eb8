/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fqueue: one ring of a frontend with its grants, its event channel and a
 * shadow of every request, as Linux's blkfront has them.
 *
 * Every request grants its pages for itself alone and takes the grants back
 * when it is answered: a backend that still uses a page then is found out.
 * Pages of writes are granted read-only, pages of reads read-write.  A request
 * of more segments than a slot has room for is indirect: each slot has a page
 * for their descriptors, which is granted, read-only, like a page of data.
 *
 * With persistent grants the pages of requests come from a pool (pool.h), and
 * their data is copied there and back.
 *
 * What a backend does wrong (an answer nobody waits for, with another
 * operation, a status that is none, a page not let go) breaks the queue: the
 * functions answer -EPROTO from then on, and fqueue.why says what it was.
 */
#ifndef LOOPFRONT_FQUEUE_H
#define LOOPFRONT_FQUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/loopfront/front.h"
#include "tests/loopfront/pool.h"
#include "tests/loopxen/guest.h"

#define FQUEUE_WHY	320
#define FQUEUE_POOL	8192u		/* pages, of all queues of a disk */

struct fqueue_options {
	enum front_abi abi;
	unsigned order;			/* pages of the ring: 1 << order */
	unsigned segments;		/* of a request; 11: none is indirect */
	bool	 check_padding;		/* padding of responses must be zero */
	bool	 writable;		/* grant no page read-only */
	bool	 persistent;		/* both sides said so */
	unsigned pool;			/* pages for that, at most */
};

/* What a segment of a request is made of. */
struct fqueue_segment {
	unsigned page;			/* of the domain */
	uint8_t	 first, last;		/* sectors of it, inclusive */
};

struct fqueue;
struct loan;				/* a page of the pool in a request */

/* A request on the ring, from fqueue_put() until done() has returned. */
struct shadow {
	uint64_t id;			/* as on the wire; 0: free */
	uint8_t	 op;			/* as the response has to name it */
	bool	 indirect;
	uint16_t nr_segments;
	uint32_t descriptors;		/* grant of an indirect one's page */
	uint64_t sector;
	uint32_t sectors;		/* of data, or to be discarded */
	void	*owner;			/* the caller's */
	uint64_t cookie;		/* likewise */
};

/* 'status' is BLKIF_RSP_*; the grants have been taken back already. */
typedef void fqueue_done(struct fqueue *, const struct shadow *, int status,
    void *arg);

struct fqueue {
	struct loopguest *guest;
	struct loopguest_port *port;
	struct fqueue_options opt;
	unsigned backend;		/* its domain */
	struct front front;
	unsigned ring_page;
	uint32_t ring_ref[1u << FRONT_MAX_ORDER];
	struct shadow shadow[FRONT_MAX_SLOTS];
	uint16_t free[FRONT_MAX_SLOTS];	/* a stack of shadow's indices */
	unsigned nr_free;
	uint32_t sequence;
	bool	 broken;
	char	 why[FQUEUE_WHY];
	uint32_t gref[FRONT_MAX_SLOTS][FRONT_MAX_INDIRECT];
	struct pool pool;		/* when persistent */
	struct loan *loans;		/* likewise; of every slot */

	/* Since fqueue_open(). */
	uint64_t requests;		/* answered */
	uint64_t notifies;		/* events sent */
};

/* What all requests of a full ring need, as far as that is within reason. */
static inline unsigned
fqueue_pool(const struct fqueue_options *opt)
{
	unsigned n = (32u << opt->order) * (opt->segments + 1);

	return !opt->persistent ? 0 : n < opt->pool ? n : opt->pool;
}

/* How many pages of the domain a queue needs: ring, descriptors, pool. */
static inline unsigned
fqueue_pages(const struct fqueue_options *opt)
{
	return (1u << opt->order) + (32u << opt->order) + fqueue_pool(opt);
}

/*
 * Grant the ring on 1 << order pages from ring_page on to domain 'backend',
 * and open a port for it.  fqueue_pages() are there.  On failure nothing is
 * granted.
 */
int	fqueue_open(struct fqueue *, struct loopguest *, unsigned ring_page,
	    unsigned backend, const struct fqueue_options *);

/* Has the backend still something of ours? */
bool	fqueue_held(const struct fqueue *);

/*
 * The backend has let go: close the port, take back every grant, also those of
 * requests that were never answered.  -EPROTO, and fqueue.why, when the
 * backend has not released one of them; it is then taken by force.
 */
int	fqueue_close(struct fqueue *);

/* Give the queue up, though its backend did nothing wrong that we know of. */
void	fqueue_break(struct fqueue *, const char *why);

/*
 * How many requests fit now, of whatever size: into the ring, and into the
 * pool or the guest's grant table, for whose entries Linux waits as well.
 */
static inline uint32_t
fqueue_room(const struct fqueue *q)
{
	uint32_t room = front_room(&q->front);
	uint32_t granted = loopguest_grants(q->guest) + LOOPGUEST_FIRST_GREF;
	uint32_t pages = q->opt.persistent ? q->pool.nr_free :
	    granted < LOOPGUEST_MAX_GREFS ? LOOPGUEST_MAX_GREFS - granted : 0;

	pages /= q->opt.segments + 1;
	return pages < room ? pages : room;
}

/*
 * Put one request on the ring.  Only when there is room.  It is indirect when
 * it has more segments than fit into a slot; BLKIF_OP_INDIRECT stands for an
 * indirect read, however short.  0, or -errno of a
 * grant that could not be given (nothing was put).
 */
int	fqueue_put(struct fqueue *, const struct shadow *,
	    const struct fqueue_segment *);

/* Publish what was put and send the event if it is wanted.  0 or -errno. */
int	fqueue_push(struct fqueue *);

/* Call done() for everything that was answered.  How many, or -EPROTO. */
int	fqueue_reap(struct fqueue *, fqueue_done *, void *arg);

#endif /* LOOPFRONT_FQUEUE_H */
