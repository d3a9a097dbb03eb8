/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See pool.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/loopfront/pool.h"

int
pool_open(struct pool *p, struct loopguest *guest, unsigned backend,
    unsigned first, unsigned n)
{
	unsigned	i;

	memset(p, 0, sizeof(*p));
	TAILQ_INIT(&p->free);
	p->pages = calloc(n, sizeof(*p->pages));
	if (p->pages == NULL)
		return -ENOMEM;
	p->guest = guest;
	p->backend = backend;
	p->nr = p->nr_free = n;
	for (i = 0; i < n; i++) {
		p->pages[i].page = first + i;
		TAILQ_INSERT_TAIL(&p->free, &p->pages[i], link);
	}
	return 0;
}

uint32_t
pool_close(struct pool *p)
{
	uint32_t	held = 0, gref;
	unsigned	i;

	for (i = 0; i < p->nr; i++) {
		gref = p->pages[i].gref;
		if (gref == 0 || loopguest_ungrant(p->guest, gref) == 0)
			continue;
		loopguest_revoke(p->guest, gref);
		if (held == 0)
			held = gref;
	}
	free(p->pages);
	memset(p, 0, sizeof(*p));
	return held;
}

bool
pool_held(const struct pool *p)
{
	unsigned	i;

	for (i = 0; i < p->nr; i++) {
		if (p->pages[i].gref != 0 &&
		    (loopguest_grant_mapped(p->guest, p->pages[i].gref) > 0 ||
		    loopguest_grant_copying(p->guest, p->pages[i].gref) > 0))
			return true;
	}
	return false;
}

int
pool_take(struct pool *p, struct pool_page **page)
{
	struct pool_page	*pg = TAILQ_FIRST(&p->free);
	int			 rc = 0;

	if (pg == NULL)
		return -ENOSPC;
	if (pg->gref == 0)
		rc = loopguest_grant(p->guest, pg->page, p->backend, false,
		    &pg->gref);
	if (rc < 0)
		return rc;
	TAILQ_REMOVE(&p->free, pg, link);
	p->nr_free--;
	*page = pg;
	return 0;
}

void
pool_give(struct pool *p, struct pool_page *pg)
{
	p->nr_free++;
	if (loopguest_ungrant(p->guest, pg->gref) == 0) {
		pg->gref = 0;
		TAILQ_INSERT_TAIL(&p->free, pg, link);
	} else {
		TAILQ_INSERT_HEAD(&p->free, pg, link);
	}
}
