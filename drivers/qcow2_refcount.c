/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_refcount: see qcow2_refcount.h.  Here: the values.  The table's
 * own affairs stand in qcow2_reftable.c, where free clusters come from in
 * qcow2_alloc.c.
 *
 *   header --> table --> block --> entry     on disk
 *                |         |
 *            all of it   slices              in memory
 *
 * What may be on disk at any moment are refcounts that are too high: these
 * are leaks.  So each arrow is written only after what it points to is
 * durable, in three places: refslices_write() (block before table entry),
 * reftable_cover() (table before header), and, by the caller, the refcount
 * before the L2 entry.  Refcounts go down only once the caller says that
 * nothing on disk refers to the cluster any more.
 *
 * Each function first gets all that can fail, the slices of the range above
 * all, and then changes them without a way to fail.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/qcow2_refcount_impl.h"

#define MIN_SLICES 4u

/*
 * Entries.  Those of less than a byte begin at its lowest bits.
 */

uint64_t
refentry_get(const uint8_t *data, uint64_t i, unsigned order)
{
	unsigned shift;

	switch (order) {
	case 6:
		return be64toh(((const uint64_t *)data)[i]);
	case 5:
		return be32toh(((const uint32_t *)data)[i]);
	case 4:
		return be16toh(((const uint16_t *)data)[i]);
	case 3:
		return data[i];
	default:
		shift = (unsigned)(i << order) & 7;
		return data[i << order >> 3] >> shift &
		    ((1u << (1u << order)) - 1);
	}
}

void
refentry_set(uint8_t *data, uint64_t i, unsigned order, uint64_t value)
{
	unsigned shift, mask;

	switch (order) {
	case 6:
		((uint64_t *)data)[i] = htobe64(value);
		break;
	case 5:
		((uint32_t *)data)[i] = htobe32((uint32_t)value);
		break;
	case 4:
		((uint16_t *)data)[i] = htobe16((uint16_t)value);
		break;
	case 3:
		data[i] = (uint8_t)value;
		break;
	default:
		shift = (unsigned)(i << order) & 7;
		mask = ((1u << (1u << order)) - 1) << shift;
		data += i << order >> 3;
		*data = (uint8_t)((*data & ~mask) | (unsigned)value << shift);
	}
}

static uint64_t
refentry_max(unsigned order)
{
	return order == 6 ? UINT64_MAX : (1ull << (1u << order)) - 1;
}

/*
 * Slices.
 */

static struct refslice_list *
refslice_bucket(struct qcow2_refcounts *r, uint64_t index)
{
	uint64_t mixed = index * 0x9e3779b97f4a7c15ull;

	return &r->hash[(mixed >> 32) & r->hash_mask];
}

static struct refslice *
refslice_find(struct qcow2_refcounts *r, uint64_t index)
{
	struct refslice *sl;

	LIST_FOREACH(sl, refslice_bucket(r, index), same_hash)
		if (sl->index == index)
			return sl;
	return NULL;
}

/* An empty place for a slice that is not in the cache. */
static struct refslice *
refslice_take(struct qcow2_refcounts *r)
{
	struct refslice *sl = TAILQ_FIRST(&r->clean);

	if (sl != NULL && sl->valid) {
		LIST_REMOVE(sl, same_hash);
		sl->valid = false;
	}
	return sl;
}

static void
refslice_enter(struct qcow2_refcounts *r, struct refslice *sl, uint64_t index)
{
	sl->index = index;
	sl->valid = true;
	LIST_INSERT_HEAD(refslice_bucket(r, index), sl, same_hash);
	TAILQ_REMOVE(&r->clean, sl, link);
	TAILQ_INSERT_TAIL(&r->clean, sl, link);
}

/* Where a slice lies in the file; its block exists. */
static uint64_t
refslice_offset(const struct qcow2_refcounts *r, uint64_t index)
{
	unsigned bits = r->block_bits - r->slice_bits;

	return reftable_get(r, index >> bits) +
	    (index & ((1ull << bits) - 1)) * r->slice_bytes;
}

int
refslice_get(struct qcow2_refcounts *r, uint64_t index, struct refslice **found)
{
	struct refslice *sl = refslice_find(r, index);
	int rc;

	if (sl == NULL) {
		sl = refslice_take(r);
		if (sl == NULL)
			return -EAGAIN;
		rc = file_pread(r->f, sl->data, r->slice_bytes,
		    refslice_offset(r, index));
		if (rc < 0)
			return rc;
		refslice_enter(r, sl, index);
	} else if (!sl->dirty && !sl->held) {
		TAILQ_REMOVE(&r->clean, sl, link);
		TAILQ_INSERT_TAIL(&r->clean, sl, link);
	}
	*found = sl;
	return 0;
}

void
refslice_touch(struct qcow2_refcounts *r, struct refslice *sl)
{
	if (sl->dirty)
		return;
	if (!sl->held)
		TAILQ_REMOVE(&r->clean, sl, link);
	TAILQ_INSERT_TAIL(&r->dirty, sl, link);
	sl->dirty = true;
}

/* Let go of those of a range that refslices_hold() got. */
static void
refslices_release(struct qcow2_refcounts *r, uint64_t first, uint64_t count)
{
	uint64_t i, last = (first + count - 1) >> r->slice_bits;
	struct refslice *sl;

	for (i = first >> r->slice_bits; i <= last; i++) {
		sl = refslice_find(r, i);
		if (sl == NULL || !sl->held)
			continue;
		sl->held = false;
		if (!sl->dirty)
			TAILQ_INSERT_TAIL(&r->clean, sl, link);
	}
}

/* Get all slices of a range that have a block, so that none can be missing. */
static int
refslices_hold(struct qcow2_refcounts *r, uint64_t first, uint64_t count)
{
	uint64_t i, last = (first + count - 1) >> r->slice_bits;
	struct refslice *sl;
	int rc;

	for (i = first >> r->slice_bits; i <= last; i++) {
		if (!refblock_exists(r, i << r->slice_bits))
			continue;
		rc = refslice_get(r, i, &sl);
		if (rc < 0) {
			refslices_release(r, first, count);
			return rc;
		}
		if (!sl->dirty)
			TAILQ_REMOVE(&r->clean, sl, link);
		sl->held = true;
	}
	return 0;
}

/* How much of a range to hold at a time: half of the cache at most. */
static uint64_t
refslices_step(const struct qcow2_refcounts *r, uint64_t first,
    uint64_t count)
{
	uint64_t end = (first >> r->slice_bits) + r->nr_slices / 2;

	return min_u64(count, (end << r->slice_bits) - first);
}

/*
 * New blocks.
 */

int
refcount_punch(struct qcow2_refcounts *r, uint64_t first, uint64_t count)
{
	if (r->f->device)
		return -EOPNOTSUPP;
	return file_discard(r->f, first << r->cluster_bits,
	    count << r->cluster_bits);
}

static int
cluster_zero(struct qcow2_refcounts *r, uint64_t cluster)
{
	uint64_t offset = cluster << r->cluster_bits, done;
	size_t n = min_u64(cluster_bytes(r), ZERO_BYTES);
	int rc = 0;

	if (cluster >= r->fresh || refcount_punch(r, cluster, 1) == 0)
		return 0;
	for (done = 0; done < cluster_bytes(r) && rc == 0; done += n)
		rc = file_pwrite(r->f, r->zeroes, n, offset + done);
	return rc;
}

/*
 * The whole cluster is zeroed, so that its other slices may be read from
 * disk; only the first one begins its life here.
 */
int
refblock_make(struct qcow2_refcounts *r, uint64_t b)
{
	uint64_t cluster = b << r->block_bits, sector = b / (SECTOR / 8);
	struct refslice *sl;
	int rc;

	if (refcount_next_metadata(r, cluster) == cluster)
		return -EUCLEAN;
	if (cluster >= refcount_limit(r)) {
		rc = refcount_grow_file(r, cluster + 1);
		if (rc < 0)
			return rc;
	}
	sl = refslice_take(r);
	if (sl == NULL)
		return -EAGAIN;
	rc = cluster_zero(r, cluster);
	if (rc < 0)
		return rc;

	refcount_spoilt(r, cluster + 1);
	reftable_add(&r->table, b, cluster, r->cluster_bits);
	r->sector_dirty[sector / 8] |= (uint8_t)(1u << sector % 8);
	r->table_dirty = true;
	memset(sl->data, 0, r->slice_bytes);
	refentry_set(sl->data, 0, r->order, 1);
	refslice_enter(r, sl, cluster >> r->slice_bits);
	refslice_touch(r, sl);
	r->ops->changed(r->arg, cluster, 1, 1);
	r->ops->metadata(r->arg, cluster, 1, true);
	return 0;
}

/*
 * Get, set, drop.
 */

int
qcow2_refcounts_get(struct qcow2_refcounts *r, uint64_t cluster,
    uint64_t *value)
{
	uint64_t index = cluster >> r->slice_bits;
	const uint8_t *data = r->scratch;
	struct refslice *sl;
	int rc;

	*value = 0;
	if (!refblock_exists(r, cluster))
		return 0;
	rc = refslice_get(r, index, &sl);
	if (rc == 0)
		data = sl->data;
	else if (rc == -EAGAIN)
		rc = file_pread(r->f, r->scratch, r->slice_bytes,
		    refslice_offset(r, index));
	if (rc == 0)
		*value = refentry_get(data,
		    cluster & ((1ull << r->slice_bits) - 1), r->order);
	return rc;
}

void
refcount_spoilt(struct qcow2_refcounts *r, uint64_t end)
{
	r->fresh = max_u64(r->fresh, end);
}

void
refcount_freed(struct qcow2_refcounts *r, uint64_t first, uint64_t count)
{
	uint64_t i, last = (first + count - 1) >> r->slice_bits;

	r->cursor = min_u64(r->cursor, max_u64(first, 1));
	refcount_spoilt(r, first + count);
	for (i = first >> r->slice_bits; i <= last && i < FULL_SLICES; i++)
		r->full[i / 8] &= ~(1u << i % 8);
}

/* The tables and blocks that a range with refcounts above 0 needs. */
static int
refcounts_prepare(struct qcow2_refcounts *r, uint64_t first, uint64_t count)
{
	uint64_t b, last = (first + count - 1) >> r->block_bits;
	int rc;

	if (first + count > reftable_reach(r)) {
		rc = reftable_cover(r, first + count);
		if (rc < 0)
			return rc;
	}
	for (b = first >> r->block_bits; b <= last; b++) {
		if (reftable_get(r, b) != 0)
			continue;
		rc = refblock_make(r, b);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* One step of a set: all of it is done, or nothing. */
static int
refcounts_set_step(struct qcow2_refcounts *r, uint64_t first, uint64_t count,
    uint64_t value)
{
	uint64_t mask = (1ull << r->slice_bits) - 1;
	uint64_t cluster, end = first + count;
	struct refslice *sl = NULL;
	int rc = 0;

	if (value != 0)
		rc = refcounts_prepare(r, first, count);
	if (rc == 0)
		rc = refslices_hold(r, first, count);
	if (rc < 0)
		return rc;
	for (cluster = first; cluster < end; cluster++) {
		if (cluster == first || (cluster & mask) == 0)
			sl = refslice_find(r, cluster >> r->slice_bits);
		if (sl == NULL) {	/* no block: 0, as it shall be */
			cluster |= mask;
			continue;
		}
		if (refentry_get(sl->data, cluster & mask, r->order) == value)
			continue;
		refentry_set(sl->data, cluster & mask, r->order, value);
		refslice_touch(r, sl);
	}
	refslices_release(r, first, count);
	if (value == 0)
		refcount_freed(r, first, count);
	else
		refcount_spoilt(r, end);
	r->ops->changed(r->arg, first, count, value);
	return 0;
}

int
qcow2_refcounts_set(struct qcow2_refcounts *r, uint64_t first, uint64_t count,
    uint64_t value)
{
	uint64_t n, end, max = MAX_OFFSET >> r->cluster_bits;
	int rc = 0;

	if (value > refentry_max(r->order))
		return -ERANGE;
	if (first >= max || count > max - first)
		return -EFBIG;
	end = first + count;
	if (value == 0)
		end = min_u64(end, reftable_reach(r));	/* beyond, all are */
	else if (end > (uint64_t)REFTABLE_ENTRIES << r->block_bits ||
	    (r->f->device && end > refcount_limit(r)))
		return -ENOSPC;
	for (; first < end && rc == 0; first += n) {
		n = refslices_step(r, first, end - first);
		rc = refcounts_set_step(r, first, n, value);
	}
	return rc;
}

/*
 * Drop within one slice, by runs of one value.  What becomes free is given
 * back first: the allocator may then hand it out at once.  If the storage
 * does not want it back, it is free all the same.
 */
static bool
refslice_drop(struct qcow2_refcounts *r, struct refslice *sl, uint64_t first,
    uint64_t count)
{
	uint64_t base = sl->index << r->slice_bits;
	uint64_t i = first - base, end = i + count, j, k, value;
	bool clean = true;

	for (; i < end; i = j) {
		value = refentry_get(sl->data, i, r->order);
		for (j = i + 1; j < end; j++)
			if (refentry_get(sl->data, j, r->order) != value)
				break;
		if (value == 0) {
			clean = false;
			continue;
		}
		if (value == 1 && (!r->f->device ||
		    r->f->discard_granularity != 0))
			(void)file_discard(r->f, (base + i) << r->cluster_bits,
			    (j - i) << r->cluster_bits);
		for (k = i; k < j; k++)
			refentry_set(sl->data, k, r->order, value - 1);
		refslice_touch(r, sl);
		if (value == 1)
			refcount_freed(r, base + i, j - i);
		r->ops->changed(r->arg, base + i, j - i, value - 1);
	}
	return clean;
}

/* One step of a drop.  -EUCLEAN: done, but some had no reference. */
static int
refcounts_drop_step(struct qcow2_refcounts *r, uint64_t first, uint64_t count)
{
	uint64_t end = first + count, cluster, next;
	struct refslice *sl;
	bool clean = true;
	int rc;

	rc = refslices_hold(r, first, count);
	if (rc < 0)
		return rc;
	for (cluster = first; cluster < end; cluster = next) {
		next = ((cluster >> r->slice_bits) + 1) << r->slice_bits;
		next = min_u64(next, end);
		sl = refslice_find(r, cluster >> r->slice_bits);
		if (sl == NULL ||
		    !refslice_drop(r, sl, cluster, next - cluster))
			clean = false;
	}
	refslices_release(r, first, count);
	return clean ? 0 : -EUCLEAN;
}

static int
refcounts_drop(struct qcow2_refcounts *r, uint64_t first, uint64_t count)
{
	uint64_t n;
	bool clean = true, begun = false;
	int rc;

	for (; count > 0; first += n, count -= n) {
		n = refslices_step(r, first, count);
		rc = refcounts_drop_step(r, first, n);
		/* Once begun, the caller could not tell where to go on. */
		if (rc == -EAGAIN && begun) {
			rc = qcow2_refcounts_write(r, NULL);
			if (rc == 0)
				rc = refcounts_drop_step(r, first, n);
		}
		if (rc == -EUCLEAN)
			clean = false;
		else if (rc < 0)
			return rc;
		begun = true;
	}
	return clean ? 0 : -EUCLEAN;
}

int
qcow2_refcounts_drop(struct qcow2_refcounts *r, uint64_t first,
    uint64_t count, bool exclusive)
{
	uint64_t i, value, max = MAX_OFFSET >> r->cluster_bits;
	int rc;

	if (first >= max || count > max - first ||
	    refcount_next_metadata(r, first) < first + count)
		return -EUCLEAN;
	for (i = 0; exclusive && i < count; i++) {
		rc = qcow2_refcounts_get(r, first + i, &value);
		if (rc < 0)
			return rc;
		if (value != 1)
			return -EUCLEAN;
	}
	return refcounts_drop(r, first, count);
}

void
reftable_drop_stale(struct qcow2_refcounts *r)
{
	uint64_t n;
	int rc;

	while (r->nr_stale > 0) {
		n = refslices_step(r, r->stale, r->nr_stale);
		rc = refcounts_drop_step(r, r->stale, n);
		if (rc < 0 && rc != -EUCLEAN)
			return;
		r->stale += n;
		r->nr_stale -= n;
	}
}

/*
 * Write back.
 */

bool
qcow2_refcounts_dirty(const struct qcow2_refcounts *r)
{
	return !TAILQ_EMPTY(&r->dirty) || r->table_dirty || r->header_unsure;
}

static int
reftable_write(struct qcow2_refcounts *r, unsigned *writes)
{
	const uint8_t *bytes = (const uint8_t *)r->table.entry;
	uint64_t s, n = (r->table.nr_entries * 8 + SECTOR - 1) / SECTOR;
	int rc;

	for (s = 0; s < n; s++) {
		if ((r->sector_dirty[s / 8] & 1u << s % 8) == 0)
			continue;
		rc = file_pwrite(r->f, bytes + s * SECTOR, SECTOR,
		    r->h->reftable_offset + s * SECTOR);
		if (rc < 0)
			return rc;
		r->sector_dirty[s / 8] &= ~(1u << s % 8);
		++*writes;
	}
	r->table_dirty = false;
	return 0;
}

/*
 * The slices stay dirty until the sync that new blocks need has succeeded:
 * what a failed one lost is written again.
 */
static int
refslices_write(struct qcow2_refcounts *r, unsigned *writes)
{
	struct refslice *sl;
	int rc;

	TAILQ_FOREACH(sl, &r->dirty, link) {
		rc = file_pwrite(r->f, sl->data, r->slice_bytes,
		    refslice_offset(r, sl->index));
		if (rc < 0)
			return rc;
		++*writes;
	}
	if (r->table_dirty) {
		rc = file_sync(r->f);
		if (rc < 0)
			return rc;
	}
	while ((sl = TAILQ_FIRST(&r->dirty)) != NULL) {
		TAILQ_REMOVE(&r->dirty, sl, link);
		TAILQ_INSERT_TAIL(&r->clean, sl, link);
		sl->dirty = false;
	}
	return 0;
}

int
qcow2_refcounts_write(struct qcow2_refcounts *r, unsigned *writes)
{
	unsigned ignored = 0;
	int rc = 0;

	if (writes == NULL)
		writes = &ignored;
	reftable_drop_stale(r);
	if (r->header_unsure) {
		rc = reftable_publish(r, r->h->reftable_offset,
		    r->h->reftable_clusters);
		++*writes;
	}
	if (rc == 0)
		rc = refslices_write(r, writes);
	if (rc == 0 && r->table_dirty)
		rc = reftable_write(r, writes);
	return rc;
}

/*
 * Open and load.
 */

static int
refcounts_alloc(struct qcow2_refcounts *r, size_t cache_bytes)
{
	unsigned i, buckets = 1;
	void *p;

	r->nr_slices = (unsigned)(cache_bytes / r->slice_bytes);
	if (r->nr_slices < MIN_SLICES)
		r->nr_slices = MIN_SLICES;
	while (buckets < r->nr_slices)
		buckets *= 2;
	r->hash_mask = buckets - 1;
	r->slices = calloc(r->nr_slices, sizeof(*r->slices));
	r->hash = calloc(buckets, sizeof(*r->hash));
	r->full = calloc(1, FULL_SLICES / 8);
	if (r->slices == NULL || r->hash == NULL || r->full == NULL ||
	    posix_memalign(&p, 4096, ZERO_BYTES +
	    (size_t)(r->nr_slices + 1) * r->slice_bytes) != 0)
		return -ENOMEM;
	r->zeroes = p;
	memset(r->zeroes, 0, ZERO_BYTES);
	r->scratch = r->zeroes + ZERO_BYTES;
	r->memory = r->scratch + r->slice_bytes;
	for (i = 0; i < r->nr_slices; i++) {
		r->slices[i].data = r->memory + (size_t)i * r->slice_bytes;
		TAILQ_INSERT_TAIL(&r->clean, &r->slices[i], link);
	}
	return reftable_alloc(&r->table, min_u64(REFTABLE_ENTRIES,
	    ((uint64_t)r->h->reftable_clusters << r->cluster_bits) / 8));
}

int
qcow2_refcounts_open(struct qcow2_refcounts **out, struct file *f,
    struct qcow2_header *h, size_t cache_bytes,
    const struct qcow2_refcount_ops *ops, void *arg, char why[WHY_MAX])
{
	struct qcow2_refcounts *r;

	assert(h->cluster_bits >= QCOW2_MIN_CLUSTER_BITS &&
	    h->cluster_bits <= QCOW2_MAX_CLUSTER_BITS &&
	    h->refcount_order <= 6);
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		goto err_memory;
	r->f = f;
	r->h = h;
	r->ops = ops;
	r->arg = arg;
	r->cluster_bits = h->cluster_bits;
	r->order = h->refcount_order;
	r->block_bits = r->cluster_bits + 3 - r->order;
	r->slice_bytes = (uint32_t)min_u64(cluster_bytes(r), REFSLICE_BYTES);
	r->slice_bits = r->block_bits;
	while (1ull << r->slice_bits << r->order > r->slice_bytes * 8ull)
		r->slice_bits--;
	TAILQ_INIT(&r->clean);
	TAILQ_INIT(&r->dirty);
	if (refcounts_alloc(r, cache_bytes) < 0)
		goto err_memory;
	*out = r;
	return 0;

err_memory:
	qcow2_refcounts_close(r);
	why_set(why, "open %.200s: out of memory for its refcounts; free some "
	    "memory on this host", f->path);
	return -ENOMEM;
}

void
qcow2_refcounts_close(struct qcow2_refcounts *r)
{
	if (r == NULL)
		return;
	reftable_free(&r->table);
	free(r->zeroes);
	free(r->full);
	free(r->hash);
	free(r->slices);
	free(r);
}

static void
refcounts_forget(struct qcow2_refcounts *r)
{
	unsigned i;

	TAILQ_INIT(&r->clean);
	TAILQ_INIT(&r->dirty);
	for (i = 0; i <= r->hash_mask; i++)
		LIST_INIT(&r->hash[i]);
	for (i = 0; i < r->nr_slices; i++) {
		r->slices[i].valid = r->slices[i].dirty = false;
		r->slices[i].held = false;
		TAILQ_INSERT_TAIL(&r->clean, &r->slices[i], link);
	}
	memset(r->full, 0, FULL_SLICES / 8);
	memset(r->sector_dirty, 0, sizeof(r->sector_dirty));
	r->table_dirty = r->header_unsure = false;
	r->nr_stale = 0;
	r->cursor = 1;
	r->fresh = refcount_limit(r);
	r->grown = false;
}

/* A header whose cluster is free would be overwritten by the next guest. */
static int
refcounts_check_header(struct qcow2_refcounts *r, char why[WHY_MAX])
{
	uint64_t value;
	int rc;

	rc = qcow2_refcounts_get(r, 0, &value);
	if (rc < 0) {
		why_set(why, "read the refcounts of %.200s: %s; see the kernel "
		    "log (dmesg) for what is wrong with its storage",
		    r->f->path, strerror(-rc));
		return rc;
	}
	if (value == 0) {
		why_set(why, "read %.200s: the refcount of its header is 0; "
		    REFCOUNT_REPAIR, r->f->path);
		return -EUCLEAN;
	}
	return 0;
}

int
qcow2_refcounts_load(struct qcow2_refcounts *r, char why[WHY_MAX])
{
	uint64_t i;
	int rc;

	refcounts_forget(r);
	rc = reftable_load(r, why);
	if (rc == 0)
		rc = refcounts_check_header(r, why);
	if (rc < 0)
		return rc;
	r->ops->metadata(r->arg, r->h->reftable_offset >> r->cluster_bits,
	    r->h->reftable_clusters, true);
	for (i = 0; i < r->table.nr_blocks; i++)
		r->ops->metadata(r->arg, r->table.block[i], 1, true);
	return 0;
}
