/* SPDX-License-Identifier: GPL-2.0-or-later */
/* persistent: a hash table of mapped pages, and a list of those not in use. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>

#include "blkback/log.h"
#include "blkback/persistent.h"

/* What has not been used for so long makes room. */
#define UNUSED_NS 1000000000u
/* And for so long nothing is mapped after a map has failed. */
#define FAILED_NS 1000000000u

struct mapping {
	uint32_t gref;
	unsigned users;
	uint64_t used_ns;	/* when that ended, if users == 0 */
	uint8_t *page;
	LIST_ENTRY(mapping)  hash;	/* also of the free ones */
	TAILQ_ENTRY(mapping) unused;	/* while users == 0 */
};
LIST_HEAD(mapping_list, mapping);

struct persistent {
	xengnttab_handle    *handle;
	uint16_t             domid;
	uint32_t             mask;
	struct mapping      *mappings;
	struct mapping_list *heads;
	struct mapping_list  free;
	TAILQ_HEAD(, mapping) unused;	/* the longest first */
	uint64_t             rest_ns;	/* map nothing until then */
	struct page_stats   *stats;
};

int
persistent_open(struct persistent **pp, xengnttab_handle *handle,
    uint16_t domid, unsigned max, struct page_stats *stats)
{
	struct persistent *p = calloc(1, sizeof(*p));
	uint32_t heads = 1;
	unsigned i;

	if (p == NULL)
		return -ENOMEM;
	while (heads < max)
		heads *= 2;
	p->handle = handle;
	p->domid = domid;
	p->stats = stats;
	p->mask = heads - 1;
	p->mappings = calloc(max, sizeof(*p->mappings));
	p->heads = calloc(heads, sizeof(*p->heads));
	if (p->mappings == NULL || p->heads == NULL) {
		free(p->mappings);
		free(p->heads);
		free(p);
		return -ENOMEM;
	}
	LIST_INIT(&p->free);
	TAILQ_INIT(&p->unused);
	for (i = 0; i < max; i++)
		LIST_INSERT_HEAD(&p->free, &p->mappings[i], hash);
	*pp = p;
	return 0;
}

static void
mapping_remove(struct persistent *p, struct mapping *m)
{
	assert(m->users == 0);
	p->stats->unmap_calls++;
	if (xengnttab_unmap(p->handle, m->page, 1) != 0)
		log_error(-errno, "cannot unmap grant %u", m->gref);
	TAILQ_REMOVE(&p->unused, m, unused);
	LIST_REMOVE(m, hash);
	LIST_INSERT_HEAD(&p->free, m, hash);
}

void
persistent_clear(struct persistent *p)
{
	struct mapping *m;

	while ((m = TAILQ_FIRST(&p->unused)) != NULL)
		mapping_remove(p, m);
	p->rest_ns = 0;
}

void
persistent_close(struct persistent *p)
{
	if (p == NULL)
		return;
	persistent_clear(p);
	free(p->mappings);
	free(p->heads);
	free(p);
}

/*
 * Guests number their grants one after the other, and Xen lets them have but
 * some times more of them than there are heads.
 */
static struct mapping_list *
mapping_head(struct persistent *p, uint32_t gref)
{
	return &p->heads[gref & p->mask];
}

static struct mapping *
mapping_find(struct persistent *p, uint32_t gref)
{
	struct mapping *m;

	LIST_FOREACH(m, mapping_head(p, gref), hash)
		if (m->gref == gref)
			return m;
	return NULL;
}

/* Room for one more, or NULL. */
static struct mapping *
mapping_room(struct persistent *p, uint64_t now_ns)
{
	struct mapping *oldest = TAILQ_FIRST(&p->unused);

	if (LIST_EMPTY(&p->free) && oldest != NULL &&
	    now_ns - oldest->used_ns >= UNUSED_NS)
		mapping_remove(p, oldest);
	return LIST_FIRST(&p->free);
}

/* It comes unused. */
static struct mapping *
mapping_add(struct persistent *p, uint32_t gref, uint64_t now_ns)
{
	struct mapping *m;

	if (now_ns < p->rest_ns)
		return NULL;
	m = mapping_room(p, now_ns);
	if (m == NULL)
		return NULL;
	p->stats->map_calls++;
	m->page = xengnttab_map_grant_ref(p->handle, p->domid, gref,
	    PROT_READ | PROT_WRITE);
	if (m->page == NULL) {
		p->rest_ns = now_ns + FAILED_NS;
		return NULL;
	}
	m->gref = gref;
	m->users = 0;
	LIST_REMOVE(m, hash);
	LIST_INSERT_HEAD(mapping_head(p, gref), m, hash);
	TAILQ_INSERT_TAIL(&p->unused, m, unused);
	return m;
}

uint8_t *
persistent_get(struct persistent *p, uint32_t gref, uint64_t now_ns)
{
	struct mapping *m = mapping_find(p, gref);

	if (m == NULL)
		m = mapping_add(p, gref, now_ns);
	if (m == NULL)
		return NULL;
	if (m->users++ == 0)
		TAILQ_REMOVE(&p->unused, m, unused);
	return m->page;
}

void
persistent_put(struct persistent *p, uint32_t gref, uint64_t now_ns)
{
	struct mapping *m = mapping_find(p, gref);

	assert(m != NULL && m->users > 0);
	if (--m->users > 0)
		return;
	m->used_ns = now_ns;
	TAILQ_INSERT_TAIL(&p->unused, m, unused);
}
