/* SPDX-License-Identifier: GPL-2.0-or-later */
/* qcow2_slice: a hash table over a fixed set of slices, and a clock. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/qcow2_slice.h"

#define MIN_SLICES 8u

static struct qcow2_slice_head *
slices_head(struct qcow2_slices *c, uint64_t key)
{
	/* Neighbours go to neighbours; far apart ones are mixed. */
	return &c->heads[(key ^ key >> 17) & c->hash_mask];
}

/* As many as there can be, up to c->max. */
static unsigned
slices_wanted(const struct qcow2_slices *c, const struct qcow2_header *h)
{
	uint64_t clusters = (h->size >> h->cluster_bits) + 1;
	uint64_t wanted = (clusters >> c->bits) + 1;

	if (wanted > c->max)
		return c->max;
	return wanted < MIN_SLICES ? MIN_SLICES : (unsigned)wanted;
}

/* Memory for slices up to 'nr' in all. */
static int
slices_add(struct qcow2_slices *c, unsigned nr)
{
	size_t bytes = ((nr - c->nr) * c->bytes + QCOW2_SLICE_BYTES - 1) &
	    ~(size_t)(QCOW2_SLICE_BYTES - 1);
	char *memory = aligned_alloc(QCOW2_SLICE_BYTES, bytes);

	if (memory == NULL)
		return -ENOMEM;
	c->memory[c->nr_growths++] = memory;
	for (; c->nr < nr; c->nr++, memory += c->bytes) {
		c->slice[c->nr].entries = (uint64_t *)(void *)memory;
		STAILQ_INIT(&c->slice[c->nr].waiters);
	}
	return 0;
}

int
qcow2_slices_open(struct qcow2_slices **cp, const struct qcow2_header *h,
    size_t max_bytes)
{
	struct qcow2_slices *c;
	unsigned heads = 1;

	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return -ENOMEM;
	STAILQ_INIT(&c->crowd);
	c->entry_bits = qcow2_l2_entry_bits(h);
	c->bytes = QCOW2_SLICE_BYTES;
	if (c->bytes > (size_t)1 << h->cluster_bits)
		c->bytes = (size_t)1 << h->cluster_bits;
	while ((size_t)1 << (c->bits + c->entry_bits) < c->bytes)
		c->bits++;

	c->max = (unsigned)(max_bytes / c->bytes);
	if (c->max < MIN_SLICES)
		c->max = MIN_SLICES;
	while (heads < c->max)
		heads *= 2;
	c->hash_mask = heads - 1;
	c->slice = calloc(c->max, sizeof(*c->slice));
	c->heads = calloc(heads, sizeof(*c->heads));
	if (c->slice == NULL || c->heads == NULL ||
	    slices_add(c, slices_wanted(c, h)) < 0) {
		qcow2_slices_close(c);
		return -ENOMEM;
	}
	*cp = c;
	return 0;
}

int
qcow2_slices_grow(struct qcow2_slices *c, const struct qcow2_header *h)
{
	unsigned nr = slices_wanted(c, h);

	if (nr <= c->nr || c->nr_growths > QCOW2_SLICE_GROWTHS)
		return 0;
	if (nr < 2 * c->nr)
		nr = 2 * c->nr < c->max ? 2 * c->nr : c->max;
	return slices_add(c, nr);
}

void
qcow2_slices_close(struct qcow2_slices *c)
{
	if (c == NULL)
		return;
	while (c->nr_growths > 0)
		free(c->memory[--c->nr_growths]);
	free(c->heads);
	free(c->slice);
	free(c);
}

void
qcow2_slices_clear(struct qcow2_slices *c)
{
	unsigned i;

	for (i = 0; i < c->nr; i++)
		if (c->slice[i].used)
			qcow2_slices_drop(c, &c->slice[i]);
	c->nr_busy = 0;
	c->hand = 0;
}

struct qcow2_slice *
qcow2_slices_find(struct qcow2_slices *c, uint64_t key)
{
	struct qcow2_slice *s;

	LIST_FOREACH(s, slices_head(c, key), hash)
		if (s->key == key) {
			s->recent = true;
			return s;
		}
	return NULL;
}

struct qcow2_slice *
qcow2_slices_claim(struct qcow2_slices *c, uint64_t key)
{
	struct qcow2_slice *s;
	unsigned i;

	/* Twice round: the first time takes the 'recent' away. */
	for (i = 0; i < 2 * c->nr; i++) {
		s = &c->slice[c->hand];
		c->hand = c->hand + 1 == c->nr ? 0 : c->hand + 1;
		if (qcow2_slice_busy(s) || s->loading)
			continue;
		if (s->recent) {
			s->recent = false;
			continue;
		}
		if (s->used)
			qcow2_slices_drop(c, s);
		s->key = key;
		s->used = s->loading = s->recent = true;
		LIST_INSERT_HEAD(slices_head(c, key), s, hash);
		return s;
	}
	return NULL;
}

void
qcow2_slices_drop(struct qcow2_slices *c, struct qcow2_slice *s)
{
	(void)c;
	assert(s->used && !qcow2_slice_busy(s) && STAILQ_EMPTY(&s->waiters));
	LIST_REMOVE(s, hash);
	s->used = s->loading = s->recent = false;
}
