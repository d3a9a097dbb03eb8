/* SPDX-License-Identifier: GPL-2.0-or-later */
/* qcow2_map: from guest offsets to extents, layer by layer. */
#include <errno.h>

#include "drivers/qcow2_map.h"

uint64_t
qcow2_slice_offset(const struct qcow2_layer *l, uint64_t key)
{
	unsigned bits = qcow2_l2_bits(&l->h) - l->slices->bits;
	uint64_t table = qcow2_l1_entry(l, key << l->slices->bits);

	return (table & QCOW2_OFFSET_MASK) +
	    (key & ((1ull << bits) - 1)) * l->slices->bytes;
}

static bool
misaligned(const struct qcow2_layer *l, uint64_t entry)
{
	return (entry & QCOW2_OFFSET_MASK &
	    ((1ull << l->h.cluster_bits) - 1)) != 0;
}

/* One cluster with a standard entry: its kind and host offset. */
static int
map_standard(const struct qcow2_layer *l, uint64_t entry,
    struct qcow2_extent *x)
{
	if (misaligned(l, entry))
		return -EIO;
	if ((entry & QCOW2_ZERO) != 0) {
		if (l->h.version < 3)
			return -EIO;
		x->kind = QCOW2_ZEROES;
		return 0;
	}
	x->host = entry & QCOW2_OFFSET_MASK;
	x->kind = x->host != 0 ? QCOW2_DATA : QCOW2_NOTHING;
	return 0;
}

/*
 * The subclusters from byte 'in' of a cluster that are of one kind; x->bytes
 * becomes their length.
 */
static int
map_extended(const struct qcow2_layer *l, uint64_t entry, uint64_t bitmap,
    uint64_t in, struct qcow2_extent *x)
{
	unsigned unit_bits = l->h.cluster_bits - 5, i, end;
	uint64_t both;

	if (misaligned(l, entry) || (bitmap & bitmap >> 32 & 0xffffffff) != 0)
		return -EIO;
	i = (unsigned)(in >> unit_bits);
	both = bitmap >> i & 0x100000001ull;
	for (end = i + 1; end < QCOW2_SUBCLUSTERS &&
	    (bitmap >> end & 0x100000001ull) == both; end++)
		;
	x->bytes = ((uint64_t)end << unit_bits) - in;
	x->host = entry & QCOW2_OFFSET_MASK;
	if (both == 0) {
		x->kind = QCOW2_NOTHING;
	} else if (both >> 32 != 0) {
		x->kind = QCOW2_ZEROES;
	} else {
		x->kind = QCOW2_DATA;
		if (x->host == 0)
			return -EIO;
	}
	return 0;
}

/* From byte 'in' of one cluster to at most its end. */
static int
map_cluster(const struct qcow2_layer *l, const struct qcow2_slice *s,
    uint64_t cluster, uint64_t in, struct qcow2_extent *x)
{
	const uint64_t *words = qcow2_entry(l, s, cluster);
	uint64_t entry = be64toh(words[0]);
	int rc;

	x->bytes = (1ull << l->h.cluster_bits) - in;
	if ((entry & QCOW2_COMPRESSED) != 0) {
		x->kind = QCOW2_PACKED;
		x->entry = entry;
		x->skip = in;
		return 0;
	}
	if (qcow2_extended(&l->h))
		rc = map_extended(l, entry, be64toh(words[1]), in, x);
	else
		rc = map_standard(l, entry, x);
	if (rc == 0 && x->kind == QCOW2_DATA)
		x->host += in;
	return rc;
}

/* May 'next', which follows 'x' in the guest, be made part of it? */
static bool
joins(const struct qcow2_extent *x, const struct qcow2_extent *next)
{
	if (x->kind != next->kind || x->kind == QCOW2_PACKED)
		return false;
	return x->kind != QCOW2_DATA || x->host + x->bytes == next->host;
}

/* In one qcow2 layer, as far as one slice reaches. */
static int
map_slice(struct qcow2_layer *l, const struct qcow2_slice *s, uint64_t offset,
    uint64_t max, struct qcow2_extent *x)
{
	uint64_t mask = (1ull << l->h.cluster_bits) - 1, at;
	struct qcow2_extent next = { .layer = l };
	int rc;

	rc = map_cluster(l, s, offset >> l->h.cluster_bits, offset & mask, x);
	if (rc < 0)
		return rc;
	for (;;) {
		at = offset + x->bytes;
		if (x->bytes >= max || qcow2_slice_key(l,
		    at >> l->h.cluster_bits) != s->key)
			break;
		if (map_cluster(l, s, at >> l->h.cluster_bits, at & mask,
		    &next) < 0 || !joins(x, &next))
			break;
		x->bytes += next.bytes;
	}
	if (x->bytes > max)
		x->bytes = max;
	return 0;
}

static int
map_layer(struct qcow2_layer *l, uint64_t offset, uint64_t max,
    struct qcow2_extent *x)
{
	uint64_t cluster = offset >> l->h.cluster_bits, table, span;
	struct qcow2_slice *s;

	x->layer = l;
	if (l->raw) {
		x->kind = QCOW2_DATA;
		x->host = offset;
		x->bytes = max;
		return 0;
	}
	table = qcow2_l1_entry(l, cluster);
	if (misaligned(l, table))
		return -EIO;
	if ((table & QCOW2_OFFSET_MASK) == 0) {
		span = 1ull << (l->h.cluster_bits + qcow2_l2_bits(&l->h));
		x->kind = QCOW2_NOTHING;
		x->bytes = span - (offset & (span - 1));
		if (x->bytes > max)
			x->bytes = max;
		return 0;
	}
	s = qcow2_slices_find(l->slices, qcow2_slice_key(l, cluster));
	if (s == NULL || s->loading) {
		x->host = qcow2_slice_key(l, cluster);
		return QCOW2_MISS;
	}
	return map_slice(l, s, offset, max, x);
}

int
qcow2_map(struct qcow2 *q, uint64_t offset, uint64_t max,
    struct qcow2_extent *x)
{
	struct qcow2_layer *l;
	int rc;

	for (l = q->top; l != NULL; l = l->backing) {
		if (offset >= l->size)
			break;
		if (max > l->size - offset)
			max = l->size - offset;
		rc = map_layer(l, offset, max, x);
		if (rc != 0 || x->kind != QCOW2_NOTHING)
			return rc;
		max = x->bytes;
	}
	x->kind = QCOW2_ZEROES;
	x->bytes = max;
	return 0;
}

bool
qcow2_frees_metadata(const struct qcow2 *q, const struct qcow2_slice *s,
    uint64_t cluster, uint32_t count)
{
	uint64_t entry, host, bytes;

	for (; count > 0; cluster++, count--) {
		entry = be64toh(qcow2_entry(q->top, s, cluster)[0]);
		host = entry & QCOW2_OFFSET_MASK;
		bytes = q->cluster_size;
		if ((entry & QCOW2_COMPRESSED) != 0)
			qcow2_compressed_range(&q->top->h, entry, &host,
			    &bytes);
		else if (host == 0)
			continue;
		if (qcow2_overlap_hit(&q->overlap, host >> q->cluster_bits,
		    ((host + bytes - 1) >> q->cluster_bits) -
		    (host >> q->cluster_bits) + 1))
			return true;
	}
	return false;
}
