/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_reftable: the refcount table: how it is read and checked, where its
 * blocks are, how the header gets a new one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/qcow2_refcount_impl.h"

int
reftable_alloc(struct reftable *t, uint64_t entries)
{
	uint64_t room = (entries + 511) & ~511ull;
	void *p;

	*t = (struct reftable){ .nr_entries = entries, .room = room };
	if (posix_memalign(&p, 4096, room * 8) != 0)
		return -ENOMEM;
	t->entry = p;
	t->block = malloc(room * 8);
	if (t->block == NULL) {
		reftable_free(t);
		return -ENOMEM;
	}
	memset(t->entry, 0, room * 8);
	return 0;
}

void
reftable_free(struct reftable *t)
{
	free(t->entry);
	free(t->block);
	*t = (struct reftable){ 0 };
}

void
reftable_add(struct reftable *t, uint64_t index, uint64_t cluster,
    unsigned cluster_bits)
{
	uint64_t i;

	t->entry[index] = htobe64(cluster << cluster_bits);
	for (i = t->nr_blocks; i > 0 && t->block[i - 1] > cluster; i--)
		t->block[i] = t->block[i - 1];
	t->block[i] = cluster;
	t->nr_blocks++;
}

bool
refblock_exists(const struct qcow2_refcounts *r, uint64_t cluster)
{
	return cluster < reftable_reach(r) &&
	    reftable_get(r, cluster >> r->block_bits) != 0;
}

/* The start of [first, first + bytes) or of what is left of it; or none. */
static uint64_t
next_in_range(const struct qcow2_refcounts *r, uint64_t cluster,
    uint64_t offset, uint64_t bytes)
{
	uint64_t first = offset >> r->cluster_bits;
	uint64_t last = (offset + bytes - 1) >> r->cluster_bits;

	if (offset == 0 || bytes == 0 || cluster > last)
		return UINT64_MAX;
	return max_u64(cluster, first);
}

uint64_t
refcount_next_metadata(const struct qcow2_refcounts *r, uint64_t cluster)
{
	const struct reftable *t = &r->table;
	uint64_t low = 0, high = t->nr_blocks, mid, next;

	if (cluster == 0)
		return 0;
	while (low < high) {
		mid = low + (high - low) / 2;
		if (t->block[mid] < cluster)
			low = mid + 1;
		else
			high = mid;
	}
	next = low < t->nr_blocks ? t->block[low] : UINT64_MAX;
	next = min_u64(next, next_in_range(r, cluster, r->h->reftable_offset,
	    (uint64_t)r->h->reftable_clusters << r->cluster_bits));
	next = min_u64(next, next_in_range(r, cluster, r->h->l1_offset,
	    (uint64_t)r->h->l1_entries * 8));
	return min_u64(next, next_in_range(r, cluster, r->h->snapshots_offset,
	    r->h->nr_snapshots));
}

/*
 * Load.
 */

static int
compare_clusters(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Fill 'block' from the entries, each checked by itself. */
static int
reftable_check_entries(struct qcow2_refcounts *r, char why[WHY_MAX])
{
	struct reftable *t = &r->table;
	uint64_t i, offset;

	t->nr_blocks = 0;
	for (i = 0; i < t->nr_entries; i++) {
		offset = reftable_get(r, i);
		if (offset == 0)
			continue;
		if ((offset & (cluster_bytes(r) - 1)) != 0 ||
		    offset >= r->f->size) {
			why_set(why, "read %.200s: refcount table entry %llu "
			    "is 0x%llx, %s; " REFCOUNT_REPAIR, r->f->path,
			    (unsigned long long)i, (unsigned long long)offset,
			    offset >= r->f->size ? "beyond the end of it" :
			    "not the start of a cluster");
			return -EUCLEAN;
		}
		t->block[t->nr_blocks++] = offset >> r->cluster_bits;
	}
	qsort(t->block, t->nr_blocks, sizeof(*t->block), compare_clusters);
	return 0;
}

/*
 * No block twice, none inside the table, and each, like the table, in a place
 * that some block describes: else a new block might be put there.
 */
static int
reftable_check_places(struct qcow2_refcounts *r, char why[WHY_MAX])
{
	const struct reftable *t = &r->table;
	uint64_t first = r->h->reftable_offset >> r->cluster_bits;
	uint64_t end = first + r->h->reftable_clusters, i;

	for (i = 0; i < t->nr_blocks; i++)
		if ((i > 0 && t->block[i] == t->block[i - 1]) ||
		    (t->block[i] >= first && t->block[i] < end) ||
		    !refblock_exists(r, t->block[i]))
			goto err_place;
	for (i = first; i < end; i++)
		if (!refblock_exists(r, i))
			goto err_place;
	return 0;

err_place:
	if (i >= t->nr_blocks)
		why_set(why, "read %.200s: no refcount block is there for the "
		    "refcount table itself; " REFCOUNT_REPAIR, r->f->path);
	else
		why_set(why, "read %.200s: the refcount block at 0x%llx is "
		    "used twice or lies where none may lie; " REFCOUNT_REPAIR,
		    r->f->path,
		    (unsigned long long)t->block[i] << r->cluster_bits);
	return -EUCLEAN;
}

static int
reftable_read(struct qcow2_refcounts *r, char why[WHY_MAX])
{
	uint64_t bytes = (uint64_t)r->h->reftable_clusters << r->cluster_bits;
	struct qcow2_header *h = r->h;
	int rc;

	if (h->reftable_offset == 0 || bytes == 0 ||
	    bytes > QCOW2_MAX_REFTABLE_BYTES ||
	    (h->reftable_offset & (cluster_bytes(r) - 1)) != 0 ||
	    h->reftable_offset >= r->f->size) {
		why_set(why, "read %.200s: its header has a refcount table of "
		    "%u clusters at 0x%llx; " REFCOUNT_REPAIR, r->f->path,
		    h->reftable_clusters,
		    (unsigned long long)h->reftable_offset);
		return -EUCLEAN;
	}
	if (bytes / 8 > r->table.room) {
		reftable_free(&r->table);
		if (reftable_alloc(&r->table, bytes / 8) < 0) {
			why_set(why, "read %.200s: out of memory for its "
			    "refcount table; free some memory on this host",
			    r->f->path);
			return -ENOMEM;
		}
	}
	r->table.nr_entries = bytes / 8;
	rc = file_pread(r->f, r->table.entry, bytes, h->reftable_offset);
	if (rc < 0)
		why_set(why, "read the refcount table of %.200s: %s; see the "
		    "kernel log (dmesg) for what is wrong with its storage",
		    r->f->path, strerror(-rc));
	return rc;
}

int
reftable_load(struct qcow2_refcounts *r, char why[WHY_MAX])
{
	int rc;

	rc = reftable_read(r, why);
	if (rc == 0)
		rc = reftable_check_entries(r, why);
	if (rc == 0)
		rc = reftable_check_places(r, why);
	return rc;
}

/*
 * Growth of the table.
 *
 * The new table and the blocks that describe it lie side by side in an area
 * of their own, behind everything that the old table could describe:
 *
 *   | the old reach ... | new table | blocks of the area | free ...
 */

struct area {
	uint64_t first;			/* cluster */
	uint64_t table, blocks;		/* clusters of each */
	uint64_t index;			/* of the first block */
};

static uint64_t
area_end(const struct area *a)
{
	return a->first + a->table + a->blocks;
}

/*
 * How large?  At least half as large again, so that a file that grows by
 * single clusters does not make a table for each; and beyond the area itself.
 */
static int
area_plan(const struct qcow2_refcounts *r, uint64_t end, struct area *a)
{
	uint64_t per_cluster = cluster_bytes(r) / 8;
	uint64_t entries = r->table.nr_entries + (r->table.nr_entries + 1) / 2;
	unsigned i;

	a->first = max_u64(end, reftable_reach(r));
	a->index = a->first >> r->block_bits;
	/*
	 * Each round makes it larger, by what the last one has added: two or
	 * three do, unless the largest table is too small.
	 */
	for (i = 0; i < 64; i++) {
		entries = min_u64(entries, REFTABLE_ENTRIES);
		a->table = (entries + per_cluster - 1) / per_cluster;
		for (a->blocks = 1; (area_end(a) - 1) >> r->block_bits >=
		    a->index + a->blocks; a->blocks++)
			;
		if (area_end(a) >> r->block_bits < a->table * per_cluster)
			return 0;
		entries = (area_end(a) >> r->block_bits) + 1;
	}
	return -ENOSPC;
}

/* The blocks of the area: its own clusters are in use, nothing else is. */
static int
area_write_blocks(struct qcow2_refcounts *r, const struct area *a)
{
	uint64_t slice = a->index << (r->block_bits - r->slice_bits);
	uint64_t at = (a->first + a->table) << r->cluster_bits;
	uint64_t end = (a->first + a->table + a->blocks) << r->cluster_bits;
	uint64_t i, cluster;
	int rc;

	for (; at < end; at += r->slice_bytes, slice++) {
		memset(r->scratch, 0, r->slice_bytes);
		cluster = slice << r->slice_bits;
		for (i = 0; i < 1ull << r->slice_bits; i++, cluster++)
			if (cluster >= a->first && cluster < area_end(a))
				refentry_set(r->scratch, i, r->order, 1);
		rc = file_pwrite(r->f, r->scratch, r->slice_bytes, at);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int
reftable_publish(struct qcow2_refcounts *r, uint64_t offset,
    uint32_t clusters)
{
	uint64_t be_offset = htobe64(offset);
	uint32_t be_clusters = htobe32(clusters);
	int rc;

	rc = file_pread(r->f, r->scratch, SECTOR, 0);
	if (rc < 0)
		return rc;
	memcpy(r->scratch + QCOW2_AT_REFTABLE_OFFSET, &be_offset, 8);
	memcpy(r->scratch + QCOW2_AT_REFTABLE_CLUSTERS, &be_clusters, 4);
	/*
	 * If this fails, nobody knows which table the header names; it has to
	 * be written again before any table changes.
	 */
	r->header_unsure = true;
	rc = file_pwrite(r->f, r->scratch, SECTOR, 0);
	if (rc == 0)
		rc = file_sync(r->f);
	if (rc == 0)
		r->header_unsure = false;
	return rc;
}

/* Write the new table and what it needs, then let the header name it. */
static int
area_write(struct qcow2_refcounts *r, const struct area *a,
    const struct reftable *t)
{
	uint64_t offset = a->first << r->cluster_bits;
	uint32_t was_clusters = r->h->reftable_clusters;
	uint64_t was_offset = r->h->reftable_offset;
	int rc;

	if (!r->f->device) {
		rc = refcount_grow_file(r, area_end(a));
		if (rc < 0)
			return rc;
	} else if (area_end(a) > refcount_limit(r))
		return -ENOSPC;
	refcount_spoilt(r, area_end(a));
	rc = area_write_blocks(r, a);
	if (rc == 0)
		rc = file_pwrite(r->f, t->entry, a->table << r->cluster_bits,
		    offset);
	if (rc == 0)
		rc = file_sync(r->f);
	if (rc == 0)
		rc = reftable_publish(r, offset, (uint32_t)a->table);
	if (rc < 0)
		return rc;
	r->h->reftable_offset = offset;
	r->h->reftable_clusters = (uint32_t)a->table;
	r->stale = was_offset >> r->cluster_bits;
	r->nr_stale = was_clusters;
	return 0;
}

/* A table that reaches beyond 'end'.  On failure the old one is as it was. */
int
reftable_cover(struct qcow2_refcounts *r, uint64_t end)
{
	struct reftable t = { 0 };
	struct area a = { 0 };
	uint64_t i;
	int rc;

	/* The old one must be complete on disk, and what it points to. */
	rc = qcow2_refcounts_write(r, NULL);
	if (rc == 0)
		rc = area_plan(r, end, &a);
	if (rc == 0)
		rc = reftable_alloc(&t, a.table * (cluster_bytes(r) / 8));
	if (rc != 0)
		return rc;
	memcpy(t.entry, r->table.entry, r->table.nr_entries * 8);
	memcpy(t.block, r->table.block, r->table.nr_blocks * 8);
	t.nr_blocks = r->table.nr_blocks;
	for (i = 0; i < a.blocks; i++)
		reftable_add(&t, a.index + i, a.first + a.table + i,
		    r->cluster_bits);

	rc = area_write(r, &a, &t);
	if (rc < 0) {
		reftable_free(&t);
		return rc;
	}
	reftable_free(&r->table);
	r->table = t;
	r->ops->changed(r->arg, a.first, a.table + a.blocks, 1);
	r->ops->metadata(r->arg, a.first, a.table + a.blocks, true);
	r->ops->metadata(r->arg, r->stale, r->nr_stale, false);
	reftable_drop_stale(r);
	return 0;
}

