/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_check: the refcounts against what is used (see qcow2_check.h).
 *
 *   load_marks     which clusters have a refcount of exactly one
 *   check_walk     count the references (qcow2_walk.c)
 *   walk_refcounts ... of the refcount structures themselves, last
 *   compare        both, cluster by cluster
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/qcow2_check.h"
#include "drivers/qcow2_walk.h"

#define REFTABLE_RESERVED 0x1ffull
#define MAX_OFFSET        ((1ull << 63) - (1ull << 30))	/* no file is larger */

/* ---- info --------------------------------------------------------------- */

static void
info_features(const struct qcow2_header *h, struct image_layer *l)
{
	unsigned bit, n = 0;
	const char *name;

	for (bit = 0; bit < 64; bit++) {
		if (!(h->incompatible >> bit & 1))
			continue;
		name = qcow2_incompatible_name(bit);
		if (name == NULL)
			l->unknown_features++;
		else if (n < IMAGE_FEATURES_MAX - 3)
			l->features[n++] = name;
	}
	if (h->compatible & 1)
		l->features[n++] = "lazy refcounts";
	if (h->autoclear & 1)
		l->features[n++] = "bitmaps";
	l->unknown_features += (unsigned)__builtin_popcountll(h->compatible &
	    ~1ull) + (unsigned)__builtin_popcountll(h->autoclear & ~1ull);
}

int
qcow2_info(struct qcow2_layer *top,
    struct image_layer layers[IMAGE_LAYERS_MAX], char why[WHY_MAX])
{
	struct qcow2_layer *q;
	struct image_layer *l = layers;
	int rc;

	for (q = top; q != NULL && l < layers + IMAGE_LAYERS_MAX;
	    q = q->backing, l++) {
		rc = file_describe(&q->file, l, why);
		if (rc < 0)
			return rc;
		l->format = q->raw ? "raw" : "qcow2";
		l->virtual_size = q->size;
		if (q->raw)
			continue;
		l->cluster_size = 1u << q->h.cluster_bits;
		l->version = q->h.version;
		l->refcount_bits = 1u << q->h.refcount_order;
		l->nr_snapshots = q->h.nr_snapshots;
		l->compression = q->h.compression == QCOW2_ZSTD ? "zstd" :
		    "zlib";
		if (q->h.backing[0] != '\0')
			l->backing = q->h.backing;
		if (q->h.backing_format[0] != '\0')
			l->backing_format = q->h.backing_format;
		info_features(&q->h, l);
	}
	return (int)(l - layers);
}

/* ---- the refcounts ------------------------------------------------------ */

static uint64_t
block_clusters(const struct check *k)
{
	return (k->cluster_size * 8) >> k->h->refcount_order;
}

/* Refcount i of a block. */
static uint64_t
block_get(const struct check *k, const void *block, uint64_t i)
{
	const unsigned char *b = block;
	unsigned bits = 1u << k->h->refcount_order;

	switch (bits) {
	case 64:
		return be64toh(((const uint64_t *)block)[i]);
	case 32:
		return be32toh(((const uint32_t *)block)[i]);
	case 16:
		return be16toh(((const uint16_t *)block)[i]);
	case 8:
		return b[i];
	default:
		return b[i * bits / 8] >> (i * bits % 8) & ((1u << bits) - 1);
	}
}

static int
reftable_entry(struct check *k, uint64_t i, uint64_t entry)
{
	k->reftable[i] = entry;
	return 0;
}

/*
 * Read block i of the table.  1: it is k->table; 0: it is not there, all of
 * its refcounts are 0; -errno: it cannot be read.
 */
static int
read_block(struct check *k, uint64_t i)
{
	uint64_t offset = i < k->reftable_entries ?
	    k->reftable[i] & QCOW2_REFTABLE_MASK : 0;
	int rc;

	if (offset % k->cluster_size != 0)
		return -EINVAL;
	if (offset > MAX_OFFSET)
		return -EFBIG;
	if (offset == 0 || offset >= k->file_size)
		return 0;
	rc = file_pread(&k->layer->file, k->table, k->cluster_size, offset);
	return rc < 0 ? rc : 1;
}

/*
 * Of a cluster that does not exist: the block is read again, a bounded number
 * of times, as an image may be made of nothing but such references.
 */
uint32_t
check_mark_beyond(struct check *k, uint64_t cluster)
{
	uint64_t per = block_clusters(k), i = cluster / per, offset;

	if (i >= k->reftable_entries)
		return 0;
	offset = k->reftable[i] & QCOW2_REFTABLE_MASK;
	if (offset % k->cluster_size != 0 || offset > MAX_OFFSET)
		return USE_UNKNOWN;
	if (offset == 0 || offset >= k->file_size)
		return 0;
	if (k->beyond_at != offset) {
		if (k->beyond_left == 0)
			return USE_UNKNOWN;
		k->beyond_left--;
		k->beyond_at = 0;
		if (file_pread(&k->layer->file, k->beyond, k->cluster_size,
		    offset) < 0)
			return USE_UNKNOWN;
		k->beyond_at = offset;
	}
	return block_get(k, k->beyond, cluster % per) == 1 ? USE_IS_ONE : 0;
}

/* Call each() for the clusters [first, end) of every block, in order. */
static int
each_block(struct check *k, uint64_t clusters,
    int (*each)(struct check *k, uint64_t first, uint64_t end, int state))
{
	uint64_t per = block_clusters(k), first, end;
	int rc = 0;

	for (first = 0; rc == 0 && first < clusters; first = end) {
		end = clusters - first < per ? clusters : first + per;
		rc = each(k, first, end, read_block(k, first / per));
	}
	return rc;
}

static int
mark_block(struct check *k, uint64_t first, uint64_t end, int state)
{
	uint64_t i;
	uint32_t *word, mark;

	if (state == 0)
		return 0;
	mark = state < 0 ? USE_UNKNOWN : USE_IS_ONE;
	for (i = first; i < end; i++) {
		if (state > 0 && block_get(k, k->table, i - first) != 1)
			continue;
		word = usage_at(&k->usage, i);
		if (word == NULL)
			return -EFBIG;
		*word |= mark;
	}
	return 0;
}

/* The table, and for check_copied() who has a refcount of one. */
static int
load_marks(struct check *k)
{
	int rc;

	k->reftable_entries = ((uint64_t)k->h->reftable_clusters <<
	    k->h->cluster_bits) / sizeof(*k->reftable);
	k->reftable = calloc(k->reftable_entries + 1, sizeof(*k->reftable));
	if (k->reftable == NULL)
		return -ENOMEM;
	rc = check_entries(k, k->h->reftable_offset, k->reftable_entries,
	    "refcount table", reftable_entry);
	if (rc == 0)
		rc = each_block(k, k->nr, mark_block);
	return rc;
}

static int
walk_refcounts(struct check *k)
{
	uint64_t i, entry, offset;
	int rc;

	rc = check_use(k, k->h->reftable_offset, k->reftable_entries * 8,
	    USE_METADATA, 1);
	for (i = 0; rc == 0 && i < k->reftable_entries; i++) {
		entry = k->reftable[i];
		offset = entry & QCOW2_REFTABLE_MASK;
		if (entry & REFTABLE_RESERVED) {
			check_found(k, &k->c->errors, 1, "refcount table entry "
			    "%" PRIu64 " has reserved bits set: %#" PRIx64, i,
			    entry);
			continue;
		}
		if (offset == 0)
			continue;
		if (offset % k->cluster_size != 0 || offset >= k->file_size) {
			check_found(k, &k->c->errors, 1, "refcount table entry "
			    "%" PRIu64 " names a block %s: %#" PRIx64, i,
			    offset % k->cluster_size != 0 ? "that is not "
			    "aligned to a cluster" : "beyond the end of the "
			    "file", entry);
			continue;
		}
		rc = check_use(k, offset, k->cluster_size, USE_METADATA, 1);
		if ((usage_get(&k->usage, offset >> k->h->cluster_bits) &
		    USE_COUNT) != 1)
			check_found(k, &k->c->errors, 1, "refcount block %"
			    PRIu64 " at %#" PRIx64 " is something else too", i,
			    offset);
	}
	return rc;
}

/* ---- both --------------------------------------------------------------- */

static void
compare_cluster(struct check *k, uint64_t i, uint64_t refcount)
{
	uint32_t word = usage_get(&k->usage, i);
	uint64_t count = word & USE_COUNT;
	uint32_t kinds = word & USE_KINDS;

	if (refcount != 0 || count != 0)
		k->c->end = (i + 1) * k->cluster_size;
	if (kinds & (kinds - 1))
		check_found(k, &k->c->overlaps, 1, "cluster %" PRIu64 " (at %#"
		    PRIx64 ") is %s too", i, i * k->cluster_size,
		    kinds & USE_METADATA ? "metadata and something else" :
		    "an L2 table and data");
	if (refcount == count)
		return;
	check_found(k, refcount > count ? &k->c->leaks : &k->c->errors, 1,
	    "cluster %" PRIu64 " (at %#" PRIx64 ") has the refcount %" PRIu64
	    " and is used %" PRIu64 " times", i, i * k->cluster_size, refcount,
	    count);
}

static int
compare_block(struct check *k, uint64_t first, uint64_t end, int state)
{
	uint64_t i;

	if (state < 0) {
		check_found(k, &k->c->unread, end - first, "the refcounts of "
		    "the clusters from %" PRIu64 " to %" PRIu64 " cannot be "
		    "read: %s", first, end - 1, strerror(-state));
		return 0;
	}
	for (i = first; i < end; i++) {
		if (state == 0 && usage_chunk_empty(&k->usage, i))
			i += USAGE_CHUNK - i % USAGE_CHUNK - 1;
		else
			compare_cluster(k, i, state == 0 ? 0 :
			    block_get(k, k->table, i - first));
	}
	return 0;
}

/* The cluster after the last whole one counts if something reaches into it. */
static int
compare(struct check *k)
{
	bool more = (usage_get(&k->usage, k->nr) & USE_COUNT) != 0;

	return each_block(k, k->nr + more, compare_block);
}

static int
check_begin(struct check *k)
{
	unsigned bits = 1u << k->h->refcount_order;
	int rc, error;

	k->cluster_size = 1ull << k->h->cluster_bits;
	k->file_size = (k->layer->file.size + SECTOR - 1) / SECTOR * SECTOR;
	k->nr = (k->file_size + k->cluster_size - 1) / k->cluster_size;
	k->max_count = bits >= 27 ? USE_COUNT : (1ull << bits) - 1;
	k->piece_at = UINT64_MAX;
	k->c->end = k->cluster_size;
	k->beyond_left = CHECK_BEYOND;
	k->c->clusters = (k->layer->size + k->cluster_size - 1) /
	    k->cluster_size;

	rc = usage_open(&k->usage, k->nr + 1);
	if (rc < 0)
		return rc;
	error = posix_memalign(&k->table, 4096, k->cluster_size);
	if (error == 0)
		error = posix_memalign(&k->piece, 4096, CHECK_PIECE);
	if (error == 0)
		error = posix_memalign(&k->beyond, 4096, k->cluster_size);
	return -error;
}

int
qcow2_check(struct qcow2_layer *top, struct image_check *c, char why[WHY_MAX])
{
	struct check k = { .layer = top, .h = &top->h, .c = c, .why = why };
	int rc;

	rc = check_begin(&k);
	if (rc == 0)
		rc = load_marks(&k);
	if (rc == 0)
		rc = check_walk(&k);
	if (rc == 0)
		rc = walk_refcounts(&k);
	if (rc == 0)
		rc = compare(&k);
	if (rc < 0 && why[0] == '\0')
		check_too_much(&k);
	usage_close(&k.usage);
	free(k.reftable);
	free(k.table);
	free(k.piece);
	free(k.beyond);
	free(k.l2);
	return rc;
}
