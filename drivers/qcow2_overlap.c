/* SPDX-License-Identifier: GPL-2.0-or-later */
/* qcow2_overlap: open addressing with linear probing, at most half full. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/qcow2_overlap.h"

#define MIN_SIZE 64u

static size_t
overlap_home(const struct qcow2_overlap *o, uint64_t cluster)
{
	return (size_t)((cluster * 0x9e3779b97f4a7c15ull) >> 20) &
	    (o->size - 1);
}

/* Where the cluster is, or the free place where it would be. */
static size_t
overlap_find(const struct qcow2_overlap *o, uint64_t cluster)
{
	size_t i = overlap_home(o, cluster);

	while (o->set[i] != 0 && o->set[i] != cluster + 1)
		i = (i + 1) & (o->size - 1);
	return i;
}

static int
overlap_grow(struct qcow2_overlap *o)
{
	struct qcow2_overlap larger = { .size = o->size * 2 };
	size_t i;

	if (larger.size < MIN_SIZE)
		larger.size = MIN_SIZE;
	larger.set = calloc(larger.size, sizeof(*larger.set));
	if (larger.set == NULL)
		return -ENOMEM;
	for (i = 0; i < o->size; i++)
		if (o->set[i] != 0)
			larger.set[overlap_find(&larger, o->set[i] - 1)] =
			    o->set[i];
	larger.used = o->used;
	free(o->set);
	*o = larger;
	return 0;
}

void
qcow2_overlap_clear(struct qcow2_overlap *o)
{
	free(o->set);
	memset(o, 0, sizeof(*o));
}

int
qcow2_overlap_add(struct qcow2_overlap *o, uint64_t first, uint64_t count)
{
	size_t at;

	for (; count > 0; first++, count--) {
		if (o->used * 2 >= o->size && overlap_grow(o) < 0)
			return -ENOMEM;
		at = overlap_find(o, first);
		if (o->set[at] != 0)
			continue;
		o->set[at] = first + 1;
		o->used++;
	}
	return 0;
}

/* Close the gap, so that no probe ends at it too early. */
static void
overlap_remove_at(struct qcow2_overlap *o, size_t gap)
{
	size_t i = gap, home, mask = o->size - 1;

	for (;;) {
		i = (i + 1) & mask;
		if (o->set[i] == 0)
			break;
		home = overlap_home(o, o->set[i] - 1);
		if (((i - home) & mask) < ((i - gap) & mask))
			continue;
		o->set[gap] = o->set[i];
		gap = i;
	}
	o->set[gap] = 0;
	o->used--;
}

void
qcow2_overlap_remove(struct qcow2_overlap *o, uint64_t first, uint64_t count)
{
	size_t at;

	for (; count > 0 && o->size > 0; first++, count--) {
		at = overlap_find(o, first);
		if (o->set[at] != 0)
			overlap_remove_at(o, at);
	}
}

bool
qcow2_overlap_hit(const struct qcow2_overlap *o, uint64_t first,
    uint64_t count)
{
	for (; count > 0 && o->size > 0; first++, count--)
		if (o->set[overlap_find(o, first)] != 0)
			return true;
	return false;
}
