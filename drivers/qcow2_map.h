/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_map: what lies behind a guest offset.
 *
 * Looks only at what is in memory: L1 tables and cached slices.  Called with
 * the image's lock held.
 */
#ifndef DRIVERS_QCOW2_MAP_H
#define DRIVERS_QCOW2_MAP_H

#include "drivers/qcow2.h"

enum qcow2_kind {
	QCOW2_DATA,		/* at 'host' of the layer's file */
	QCOW2_ZEROES,
	QCOW2_PACKED,		/* compressed; 'entry' tells where */
	QCOW2_NOTHING,		/* not in this layer */
};

/* A range of one kind; DATA is contiguous in the file. */
struct qcow2_extent {
	enum qcow2_kind     kind;
	struct qcow2_layer *layer;
	uint64_t            bytes;
	uint64_t            host;	/* DATA: bytes */
	uint64_t            entry;	/* PACKED: the L2 entry */
	uint64_t            skip;	/* PACKED: bytes into the cluster */
};

/* Returned besides 0 and -errno: the slice of x->layer must be read first. */
#define QCOW2_MISS 1

/*
 * What at least the first sector and at most 'max' bytes from 'offset' are,
 * seen through the whole chain; never NOTHING.  0, QCOW2_MISS, or -EIO where
 * the tables make no sense.
 */
int  qcow2_map(struct qcow2 *q, uint64_t offset, uint64_t max,
         struct qcow2_extent *x);

/*
 * Do clusters of the topmost layer that are about to be given up, all in one
 * slice, lie where metadata does?
 */
bool qcow2_frees_metadata(const struct qcow2 *q, const struct qcow2_slice *s,
         uint64_t cluster, uint32_t count);

/* Host byte order; 0 when it is past the table. */
static inline uint64_t
qcow2_l1_entry(const struct qcow2_layer *l, uint64_t cluster)
{
	uint64_t i = cluster >> qcow2_l2_bits(&l->h);

	return i < l->h.l1_entries ? be64toh(l->l1[i]) : 0;
}

/* Where the slice lies in the layer's file; its L2 table exists. */
uint64_t qcow2_slice_offset(const struct qcow2_layer *l, uint64_t key);

/* The entry (and with extended entries the bitmap) of a guest cluster. */
static inline uint64_t *
qcow2_entry(const struct qcow2_layer *l, const struct qcow2_slice *s,
    uint64_t cluster)
{
	uint64_t i = cluster & ((1ull << l->slices->bits) - 1);

	return s->entries + (i << (l->slices->entry_bits - 3));
}

/* Subclusters of a cluster that [from, to) touches, as a mask of 32 bits. */
static inline uint64_t
qcow2_units(unsigned unit_bits, uint64_t from, uint64_t to)
{
	unsigned first = (unsigned)(from >> unit_bits);
	unsigned end = (unsigned)((to + (1ull << unit_bits) - 1) >> unit_bits);

	return ((1ull << (end - first)) - 1) << first;
}

#endif
