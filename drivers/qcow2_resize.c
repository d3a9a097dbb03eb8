/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_resize: a larger virtual disk, while I/O goes on.
 *
 * Done by the metadata thread between two of its other works, so that the L1
 * table stands still.  What the header says of it, size and place, and the
 * size of the disk lie in one sector and change by one write:
 *
 *   1  a row of clusters for the larger table; all refcounts; the table
 *   2  sync: with it is what its entries need, also those that are new
 *   3  the header's sector
 *   4  sync: from here on the disk is larger, whatever happens
 *   5  in memory; the old table's clusters are given back
 *
 * so that a crash at any point leaves one of the two tables, whole, and leaked
 * clusters at most.  If it is unknown which of them the header names, for
 * writing it failed, no table changes before it could be written again.
 *
 * What is new reads as zeroes: a backing file ends where the disk did, or
 * before; what a cluster holds beyond the end of the disk was written as
 * zeroes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/qcow2_meta.h"

/* A larger table that is not in use yet. */
struct table {
	uint64_t *l1;		/* NULL: the old one is large enough */
	uint64_t *dirty;
	size_t    dirty_bytes;
	uint32_t  entries;
	uint64_t  first, clusters;	/* where it lies; 0: nowhere yet */
};

static uint64_t
entries_needed(const struct qcow2_header *h, uint64_t size)
{
	unsigned bits = h->cluster_bits + qcow2_l2_bits(h);

	return (size >> bits) + ((size & ((1ull << bits) - 1)) != 0);
}

static uint64_t
table_clusters(const struct qcow2 *q, uint64_t entries)
{
	return (entries * sizeof(uint64_t) + q->cluster_size - 1) >>
	    q->cluster_bits;
}

/*
 * The header.
 */

static int
header_write(struct qcow2 *q, uint64_t size, uint32_t entries,
    uint64_t offset)
{
	char *sector = q->meta->buffer;
	uint64_t be64;
	uint32_t be32;
	int rc;

	rc = file_pread(&q->top->file, sector, SECTOR, 0);
	if (rc < 0)
		return rc;
	be64 = htobe64(size);
	memcpy(sector + QCOW2_AT_SIZE, &be64, sizeof(be64));
	be32 = htobe32(entries);
	memcpy(sector + QCOW2_AT_L1_ENTRIES, &be32, sizeof(be32));
	be64 = htobe64(offset);
	memcpy(sector + QCOW2_AT_L1_OFFSET, &be64, sizeof(be64));
	/* Bitmaps and the like are of the old size. */
	if (q->top->h.version >= 3)
		memset(sector + QCOW2_AT_AUTOCLEAR, 0, sizeof(uint64_t));
	q->meta->header_unsure = true;
	rc = file_pwrite(&q->top->file, sector, SECTOR, 0);
	atomic_fetch_add(&q->img.metadata_writes, 1);
	if (rc == 0)
		rc = file_sync(&q->top->file);
	if (rc == 0)
		q->meta->header_unsure = false;
	return rc;
}

int
qcow2_header_settle(struct qcow2 *q)
{
	const struct qcow2_header *h = &q->top->h;

	return q->meta->header_unsure ? header_write(q, h->size,
	    h->l1_entries, h->l1_offset) : 0;
}

/*
 * The table.
 */

static void
table_free(struct table *t)
{
	free(t->l1);
	free(t->dirty);
}

static int
table_alloc(struct qcow2 *q, struct table *t)
{
	const struct qcow2_layer *l = q->top;
	uint64_t bytes = table_clusters(q, t->entries) << q->cluster_bits;

	bytes = (bytes + QCOW2_L1_BLOCK - 1) & ~(uint64_t)(QCOW2_L1_BLOCK - 1);
	t->dirty_bytes = (bytes / QCOW2_L1_BLOCK / 64 + 1) * sizeof(uint64_t);
	t->l1 = aligned_alloc(4096, bytes);
	t->dirty = calloc(1, t->dirty_bytes);
	if (t->l1 == NULL || t->dirty == NULL)
		return -ENOMEM;
	memset(t->l1, 0, bytes);
	memcpy(t->l1, l->l1, (size_t)l->h.l1_entries * sizeof(uint64_t));
	return 0;
}

static int
table_reserve(struct qcow2 *q, struct table *t)
{
	struct qcow2_refcounts *refs = q->meta->refs;
	uint64_t clusters = table_clusters(q, t->entries), first;
	int rc;

	rc = qcow2_refcounts_reserve_row(refs, clusters, &first);
	if (rc == -EAGAIN) {
		rc = qcow2_refs_write(q);
		if (rc == 0)
			rc = qcow2_refcounts_reserve_row(refs, clusters,
			    &first);
	}
	if (rc < 0)
		return rc;
	t->first = first;
	t->clusters = clusters;
	pthread_mutex_lock(&q->lock);
	rc = qcow2_overlap_add(&q->overlap, first, clusters);
	pthread_mutex_unlock(&q->lock);
	return rc;
}

/* Of the one that is not in use. */
static void
row_drop(struct qcow2 *q, uint64_t first, uint64_t clusters)
{
	if (clusters == 0)
		return;
	pthread_mutex_lock(&q->lock);
	qcow2_overlap_remove(&q->overlap, first, clusters);
	pthread_mutex_unlock(&q->lock);
	/* If it fails they are leaked, which is no failure to resize. */
	if (qcow2_refs_drop(q, first, clusters, true) == 0)
		(void)qcow2_refs_settle(q);
}

/* Steps 1 and 2. */
static int
table_write(struct qcow2 *q, struct table *t)
{
	int rc;

	rc = table_alloc(q, t);
	if (rc == 0)
		rc = table_reserve(q, t);
	if (rc == 0)
		rc = qcow2_refs_write(q);
	if (rc == 0)
		rc = file_pwrite(&q->top->file, t->l1,
		    t->clusters << q->cluster_bits,
		    t->first << q->cluster_bits);
	atomic_fetch_add(&q->img.metadata_writes, 1);
	return rc == 0 ? file_sync(&q->top->file) : rc;
}

/*
 * Step 5, under 'lock'; 't' becomes the old one.  What was to be written of it
 * is in the new one.
 */
static void
table_use(struct qcow2 *q, struct table *t)
{
	struct qcow2_layer *l = q->top;
	struct table old = {
		.l1 = l->l1, .dirty = q->l1_dirty, .entries = l->h.l1_entries,
		.first = l->h.l1_offset >> q->cluster_bits,
		.clusters = table_clusters(q, l->h.l1_entries),
	};

	l->l1 = t->l1;
	q->l1_dirty = t->dirty;
	q->l1_dirty_bytes = t->dirty_bytes;
	q->nr_l1_dirty = 0;
	l->h.l1_entries = t->entries;
	l->h.l1_offset = t->first << q->cluster_bits;
	*t = old;
}

/*
 * The work, without the lock.
 */

static int
header_switch(struct qcow2 *q, uint64_t size, const struct table *t)
{
	int rc;

	rc = header_write(q, size, t->entries, t->l1 != NULL ?
	    t->first << q->cluster_bits : q->top->h.l1_offset);
	if (rc < 0)
		(void)qcow2_header_settle(q);	/* or the next round does */
	return rc;
}

static int
resize_io(struct qcow2 *q, uint64_t size)
{
	struct qcow2_header *h = &q->top->h;
	struct table t = { .entries = h->l1_entries };
	uint64_t need = entries_needed(h, size);
	int rc = 0;

	if (need > t.entries) {
		t.entries = (uint32_t)need;
		rc = table_write(q, &t);
	}
	if (rc == 0)
		rc = header_switch(q, size, &t);
	if (rc == 0) {
		pthread_mutex_lock(&q->lock);
		if (t.l1 != NULL)
			table_use(q, &t);
		h->size = size;
		if (h->version >= 3)
			h->autoclear = 0;
		qcow2_set_size(q);
		pthread_mutex_unlock(&q->lock);
	}
	/* Either of them may be in use while that is not known. */
	if (!q->meta->header_unsure)
		row_drop(q, t.first, t.clusters);
	table_free(&t);
	return rc;
}

/* Under 'lock', which it lets go meanwhile. */
void
qcow2_do_resize(struct qcow2 *q)
{
	struct qcow2_meta *m = q->meta;
	struct qcow2_resize *r = m->resize;
	int rc = -EAGAIN;

	pthread_mutex_unlock(&q->lock);
	if (qcow2_slack_take(q)) {
		rc = resize_io(q, r->size);
		qcow2_slack_give(q);
	}
	pthread_mutex_lock(&q->lock);
	/* What was freed but not written back may make room. */
	if ((rc == -EAGAIN || rc == -ENOSPC) && !r->again) {
		r->again = m->want_round = true;
		return;
	}
	m->resize = NULL;
	r->error = rc;
	r->done = true;
	pthread_cond_broadcast(&m->quiet);
}

/*
 * For whoever asks.
 */

static int
resize_refused(struct qcow2 *q, uint64_t size, char why[WHY_MAX])
{
	const struct qcow2_layer *l = q->top;
	const char *path = l->file.path;

	if (q->img.readonly) {
		why_set(why, "resize %.200s: the disk is read-only; attach it "
		    "for writing", path);
		return -EROFS;
	}
	if (size == 0) {
		why_set(why, "resize %.200s: a qcow2 image has no size of its "
		    "own accord; name the new one", path);
		return -EINVAL;
	}
	if (l->h.version < 3 && l->h.nr_snapshots > 0) {
		why_set(why, "resize %.200s: its snapshots do not tell their "
		    "size, for it is of version 2; detach the disk, run "
		    "'qemu-img amend -o compat=1.1' on it, and attach it "
		    "again", path);
		return -EOPNOTSUPP;
	}
	if (l->backing != NULL && l->backing->size > q->img.size) {
		why_set(why, "resize %.200s: its backing file is larger, and "
		    "what lies there beyond the end of the disk would appear "
		    "in it; detach the disk and use 'qemu-img resize'", path);
		return -EOPNOTSUPP;
	}
	if (entries_needed(&l->h, size) > QCOW2_MAX_L1_BYTES / 8) {
		why_set(why, "resize %.200s to %llu bytes: with clusters of "
		    "%llu bytes that needs a table larger than 32 MiB; make "
		    "the image anew with larger ones ('qemu-img convert -o "
		    "cluster_size=2M')", path, (unsigned long long)size,
		    (unsigned long long)q->cluster_size);
		return -EFBIG;
	}
	return 0;
}

static void
resize_failed(const struct qcow2 *q, const struct qcow2_resize *r,
    char why[WHY_MAX])
{
	const char *remedy = "see the kernel log (dmesg) for what is wrong "
	    "with its storage";

	if (r->error == -ENOSPC || r->error == -EDQUOT)
		remedy = "its tables have to grow first: make room there";
	else if (r->error == -EFBIG)
		remedy = "its table needs more clusters in a row than a disk "
		    "in use is searched for; detach the disk and use "
		    "'qemu-img resize'";
	else if (r->error == -ENOMEM)
		remedy = "free some memory on this host";
	why_set(why, "resize %.200s to %llu bytes: %s; %s", q->top->file.path,
	    (unsigned long long)r->size, strerror(-r->error), remedy);
}

int
qcow2_resize(struct image *img, uint64_t size, char why[WHY_MAX])
{
	struct qcow2 *q = container_of(img, struct qcow2, img);
	struct qcow2_resize r = { .size = size };
	struct qcow2_meta *m = q->meta;
	int rc;

	rc = resize_refused(q, size, why);
	if (rc < 0 || size == img->size)
		return rc;
	pthread_mutex_lock(&q->lock);
	if (q->failed != 0 || q->corrupt) {
		r.error = -EIO;
	} else {
		m->resize = &r;
		qcow2_meta_kick(q);
		while (!r.done)
			pthread_cond_wait(&m->quiet, &q->lock);
	}
	pthread_mutex_unlock(&q->lock);
	if (r.error < 0)
		resize_failed(q, &r, why);
	return r.error;
}
