/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_alloc: the allocator of qcow2_refcount.h: the search for free
 * clusters, the growth of file and table, and the cut at the end.
 *
 *   0      cursor             fresh      limit            reach
 *   |--------|------------------|----------|----------------|
 *    none     perhaps some free  all free,  no file yet,     the table does
 *    free     ones               zeroes     mostly free      not get there
 *
 * A run is looked for from the cursor, STEP_SLICES slices at a time, then
 * among the fresh ones, then the file grows; only when it cannot is the
 * whole file searched.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/qcow2_refcount_impl.h"

#define STEP_SLICES   256u		/* looked at by one reserve */
#define BEYOND_MAX    (256ull << 20)	/* bytes in use beyond the file's end */
#define AHEAD_MIN     (4ull << 20)	/* bytes to grow by */
#define AHEAD_MAX     (64ull << 20)
#define AHEAD_SHARE   16		/* of the file, between the two */

/* What else can be tried after these. */
static bool
is_no_room(int rc)
{
	return rc == -ENOSPC || rc == -EFBIG || rc == -EDQUOT;
}

/*
 * The search.
 */

static bool
slice_is_full(const struct qcow2_refcounts *r, uint64_t index)
{
	return index < FULL_SLICES && (r->full[index / 8] & 1u << index % 8);
}

/* The first free cluster of [from, to), which lies in one slice; or 'to'. */
static int
search_slice(struct qcow2_refcounts *r, uint64_t from, uint64_t to,
    uint64_t *found)
{
	uint64_t index = from >> r->slice_bits, base = index << r->slice_bits;
	struct refslice *sl;
	int rc;

	rc = refslice_get(r, index, &sl);
	if (rc < 0)
		return rc;
	for (*found = from; *found < to; ++*found)
		if (refentry_get(sl->data, *found - base, r->order) == 0)
			return 0;
	return 0;
}

/*
 * The first free cluster of [from, to), where the table reaches; *found is
 * 'to' when there is none, or where to go on when '*budget' slices have been
 * looked at.  1: found.
 */
static int
search(struct qcow2_refcounts *r, uint64_t from, uint64_t to,
    uint64_t *budget, uint64_t *found)
{
	uint64_t next, block;
	int rc;

	for (*found = from; from < to; *found = from) {
		block = from >> r->block_bits << r->block_bits;
		if (!refblock_exists(r, from)) {
			/* Its first cluster will be that of the block. */
			*found = max_u64(from, block + 1);
			if (*found < to)
				return 1;
			from = to;
			continue;
		}
		next = ((from >> r->slice_bits) + 1) << r->slice_bits;
		next = min_u64(next, to);
		if (!slice_is_full(r, from >> r->slice_bits)) {
			if (*budget == 0)
				return 0;
			--*budget;
			rc = search_slice(r, from, next, found);
			if (rc < 0)
				return rc;
			if (*found < next)
				return 1;
		}
		from = next;
	}
	return 0;
}

/* What it has passed is full, and known to be even when it goes back. */
static void
advance_cursor(struct qcow2_refcounts *r, uint64_t to)
{
	uint64_t i, end = min_u64(to >> r->slice_bits, FULL_SLICES);

	for (i = r->cursor >> r->slice_bits; i < end; i++)
		r->full[i / 8] |= (uint8_t)(1u << i % 8);
	r->cursor = to;
}

/* From the cursor, which moves along. */
static int
search_inside(struct qcow2_refcounts *r, uint64_t budget, uint64_t *found)
{
	uint64_t to = min_u64(refcount_limit(r), reftable_reach(r));
	int rc;

	if (r->cursor >= to)
		return 0;
	rc = search(r, r->cursor, to, &budget, found);
	if (rc >= 0)
		advance_cursor(r, *found);
	return rc;
}

/*
 * Growth of the file.
 */

/* Make the file reach the end of cluster 'end' - 1. */
int
refcount_grow_file(struct qcow2_refcounts *r, uint64_t end)
{
	uint64_t limit = refcount_limit(r), size = r->f->size;
	uint64_t whole = (size + cluster_bytes(r) - 1) >> r->cluster_bits;
	int rc;

	if (r->f->device)
		return -ENOSPC;
	if (end > MAX_OFFSET >> r->cluster_bits)
		return -EFBIG;
	if (end << r->cluster_bits <= size)
		return 0;
	rc = file_grow(r->f, end << r->cluster_bits);
	if (rc < 0)
		return rc;
	/* What it ended with, perhaps inside a cluster, is not fresh. */
	if (r->fresh >= limit)
		refcount_spoilt(r, whole);
	if (!r->grown) {
		r->grown = true;
		r->grown_from = size;
	}
	return 0;
}

/* The same, and ahead, by as much as there is room for. */
static int
grow_ahead(struct qcow2_refcounts *r, uint64_t end)
{
	uint64_t size = r->f->size, step = size / AHEAD_SHARE, goal;
	int rc;

	step = min_u64(max_u64(step, AHEAD_MIN), AHEAD_MAX);
	goal = max_u64((size + step) >> r->cluster_bits, end);
	for (;;) {
		rc = refcount_grow_file(r, goal);
		if (!is_no_room(rc) || goal == end)
			return rc;
		goal = end + (goal - end) / 2;
	}
}

/*
 * Find a free cluster where there is no file yet, and make the file reach it;
 * on a device, and in a file longer than its table, one beyond the table.
 * A crash may leave some clusters in use beyond the end of the file; where
 * many are, the refcounts are wrong, and to grow past them would cost the
 * storage all that room.
 */
static int
grow(struct qcow2_refcounts *r, uint64_t *found)
{
	uint64_t limit = refcount_limit(r), budget = UINT64_MAX, to;
	uint64_t from = min_u64(limit, reftable_reach(r));
	unsigned tables;
	int rc;

	for (tables = 0; tables < 2; tables++) {
		limit = refcount_limit(r);
		to = r->f->device ? limit :
		    limit + (BEYOND_MAX >> r->cluster_bits);
		to = min_u64(to, reftable_reach(r));
		rc = from < to ? search(r, from, to, &budget, found) : 0;
		if (rc < 0)
			return rc;
		if (rc > 0)
			return *found < limit ? 0 : grow_ahead(r, *found + 1);
		if (to < reftable_reach(r))
			return r->f->device ? -ENOSPC : -EUCLEAN;
		if (r->f->device && limit == to)
			return -ENOSPC;
		rc = reftable_cover(r, to);
		if (rc < 0)
			return rc;
	}
	return -ENOSPC;
}

/* A free cluster to begin a run with; the file reaches it. */
static int
find(struct qcow2_refcounts *r, uint64_t *found)
{
	uint64_t to = min_u64(refcount_limit(r), reftable_reach(r));
	uint64_t budget = STEP_SLICES;
	int rc, rc2;

	rc = search_inside(r, STEP_SLICES, found);
	if (rc == 0 && r->cursor < r->fresh && r->fresh < to)
		rc = search(r, r->fresh, to, &budget, found);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	rc = grow(r, found);
	if (!is_no_room(rc))
		return rc;
	rc2 = search_inside(r, UINT64_MAX, found);
	if (rc2 != 0)
		return rc2 < 0 ? rc2 : 0;
	return rc == -EDQUOT ? -ENOSPC : rc;
}

/*
 * Give the free clusters from 'first' on, up to 'end', the refcount 1.
 * Where the run ends is *end.
 */
static int
take(struct qcow2_refcounts *r, uint64_t first, uint64_t *end)
{
	uint64_t mask = (1ull << r->slice_bits) - 1, cluster;
	struct refslice *sl = NULL;
	int rc;

	for (cluster = first; cluster < *end; cluster++) {
		if (cluster == first || (cluster & mask) == 0) {
			if (!refblock_exists(r, cluster))
				break;
			rc = refslice_get(r, cluster >> r->slice_bits, &sl);
			if (rc < 0 && cluster == first)
				return rc;
			if (rc < 0)
				break;
		}
		if (refentry_get(sl->data, cluster & mask, r->order) != 0)
			break;
		refentry_set(sl->data, cluster & mask, r->order, 1);
		refslice_touch(r, sl);
	}
	*end = cluster;
	return 0;
}

int
qcow2_refcounts_reserve(struct qcow2_refcounts *r, uint64_t want,
    uint64_t *first, uint64_t *count, bool *zero)
{
	uint64_t c = 0, end;
	int rc;

	if (want == 0)
		return -EINVAL;
	rc = find(r, &c);
	if (rc == 0 && !refblock_exists(r, c))
		rc = refblock_make(r, c >> r->block_bits);
	if (rc < 0)
		return rc;

	end = min_u64(refcount_limit(r), reftable_reach(r));
	end = want < end - c ? c + want : end;
	if (c < r->fresh)
		end = min_u64(end, r->fresh);
	/* A refcount of 0 that cannot be: the image is damaged. */
	end = min_u64(end, refcount_next_metadata(r, c));
	if (end == c)
		return -EUCLEAN;
	rc = take(r, c, &end);
	if (rc < 0)
		return rc;

	if (r->cursor == c)
		advance_cursor(r, end);
	*zero = c >= r->fresh || refcount_punch(r, c, end - c) == 0;
	if (c >= r->fresh)
		refcount_spoilt(r, end);
	*first = c;
	*count = end - c;
	r->ops->changed(r->arg, c, *count, 1);
	return 0;
}

/*
 * A row.
 */

/*
 * How far from 'c', which is free, the clusters up to 'end' are free.  Where
 * there is no block yet, its first cluster is not.
 */
static int
row_end(struct qcow2_refcounts *r, uint64_t c, uint64_t *end)
{
	uint64_t mask = (1ull << r->block_bits) - 1, value;
	int rc;

	for (; c < *end; c++) {
		if (!refblock_exists(r, c)) {
			if ((c & mask) == 0)
				break;
			c = min_u64(c | mask, *end - 1);
			continue;
		}
		rc = qcow2_refcounts_get(r, c, &value);
		if (rc < 0)
			return rc;
		if (value != 0)
			break;
	}
	*end = c;
	return 0;
}

/* The first row of 'want' free clusters below 'to'.  1: found. */
static int
row_search(struct qcow2_refcounts *r, uint64_t want, uint64_t to,
    uint64_t *first)
{
	uint64_t budget = UINT64_MAX, c = r->cursor, end;
	int rc;

	while (c < to && want <= to - c) {
		rc = search(r, c, to, &budget, first);
		if (rc <= 0)
			return rc;
		if (want > to - *first)
			return 0;
		end = *first + want;
		rc = row_end(r, *first, &end);
		if (rc < 0)
			return rc;
		if (end == *first + want)
			return 1;
		c = end + 1;
	}
	return 0;
}

static int
row_find(struct qcow2_refcounts *r, uint64_t want, uint64_t *first)
{
	unsigned tables;
	uint64_t to;
	int rc;

	for (tables = 0; tables < 2; tables++) {
		to = reftable_reach(r);
		if (r->f->device)
			to = min_u64(to, refcount_limit(r));
		rc = row_search(r, want, to, first);
		if (rc != 0)
			return rc < 0 ? rc : 0;
		if (r->f->device && to == refcount_limit(r))
			return -ENOSPC;
		rc = reftable_cover(r, to);
		if (rc < 0)
			return rc;
	}
	return -ENOSPC;
}

int
qcow2_refcounts_reserve_row(struct qcow2_refcounts *r, uint64_t want,
    uint64_t *first)
{
	int rc;

	if (want == 0)
		return -EINVAL;
	if (want >= 1ull << r->block_bits)
		return -EFBIG;
	rc = row_find(r, want, first);
	if (rc < 0)
		return rc;
	/* A refcount of 0 that cannot be: the image is damaged. */
	if (refcount_next_metadata(r, *first) < *first + want)
		return -EUCLEAN;
	if (*first + want > refcount_limit(r)) {
		rc = refcount_grow_file(r, *first + want);
		if (rc < 0)
			return rc;
	}
	return qcow2_refcounts_set(r, *first, want, 1);
}

/*
 * The cut.
 */

int
qcow2_refcounts_trim(struct qcow2_refcounts *r)
{
	uint64_t first, end, value, size;
	int rc;

	if (!r->grown)
		return 0;
	first = r->grown_from >> r->cluster_bits;
	/* A guest that an entry lets write far beyond made it that long. */
	end = max_u64(first, min_u64(refcount_limit(r),
	    r->table.nr_entries << r->block_bits));
	for (; end > first; end--) {
		/* Whole blocks that are not there are free, and quick. */
		if (!refblock_exists(r, end - 1)) {
			end = max_u64((end - 1) >> r->block_bits <<
			    r->block_bits, first) + 1;
			continue;
		}
		rc = qcow2_refcounts_get(r, end - 1, &value);
		if (rc < 0)
			return rc;
		if (value != 0)
			break;
	}
	size = max_u64(end << r->cluster_bits, r->grown_from);
	if (size < r->f->size) {
		rc = file_shrink(r->f, size);
		if (rc < 0)
			return rc;
	}
	r->cursor = min_u64(r->cursor, refcount_limit(r));
	r->grown = size > r->grown_from;
	return 0;
}
