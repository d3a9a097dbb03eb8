/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pool: the pages that a queue with persistent grants talks through.
 *
 * As Linux does it: a page is granted, read-write, when it is first lent to a
 * request.  When that is answered and the backend still has it mapped, it
 * stays granted and is the first to be lent again; else its grant is taken
 * back, and it is the last.
 */
#ifndef LOOPFRONT_POOL_H
#define LOOPFRONT_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "tests/loopxen/guest.h"

struct pool_page {
	TAILQ_ENTRY(pool_page) link;	/* while it is not lent */
	unsigned page;			/* of the domain */
	uint32_t gref;			/* 0: not granted */
};

struct pool {
	struct loopguest *guest;
	unsigned backend;		/* its domain */
	struct pool_page *pages;
	unsigned nr, nr_free;
	TAILQ_HEAD(, pool_page) free;
};

/* n pages of the domain from 'first' on.  0 or -ENOMEM. */
int	pool_open(struct pool *, struct loopguest *, unsigned backend,
	    unsigned first, unsigned n);

/*
 * Take back all grants, lent or not, those that the backend still has by
 * force: the first of these, or 0.
 */
uint32_t pool_close(struct pool *);

/* Has the backend still one of them? */
bool	pool_held(const struct pool *);

/* 0 or -errno: all are lent, or it cannot be granted. */
int	pool_take(struct pool *, struct pool_page **);
void	pool_give(struct pool *, struct pool_page *);

#endif /* LOOPFRONT_POOL_H */
