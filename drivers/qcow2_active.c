/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_active: from the locked chain to an image that can be written, with
 * what a predecessor that died had not written yet, and back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/qcow2_io.h"
#include "drivers/qcow2_map.h"
#include "drivers/qcow2_meta.h"

static int
overlap_build(struct qcow2 *q, char why[WHY_MAX])
{
	struct qcow2_header *h = &q->top->h;
	uint64_t table, l1_clusters = (h->l1_entries * sizeof(uint64_t) +
	    q->cluster_size - 1) >> q->cluster_bits;
	const char *path = q->top->file.path;
	uint32_t i;
	int rc;

	rc = qcow2_overlap_add(&q->overlap, 0, 1);
	if (rc == 0)
		rc = qcow2_overlap_add(&q->overlap, h->l1_offset >>
		    q->cluster_bits, l1_clusters);
	if (rc == 0 && h->nr_snapshots > 0)
		rc = qcow2_overlap_add(&q->overlap, h->snapshots_offset >>
		    q->cluster_bits, 1);
	for (i = 0; i < h->l1_entries && rc == 0; i++) {
		table = (be64toh(q->top->l1[i]) & QCOW2_OFFSET_MASK) >>
		    q->cluster_bits;
		if (table == 0)
			continue;
		if (qcow2_overlap_hit(&q->overlap, table, 1)) {
			why_set(why, "open %.200s for writing: L1 entry %u "
			    "points to cluster %llu, which holds other "
			    "metadata; run 'qemu-img check' on it, or attach "
			    "it read-only", path, i,
			    (unsigned long long)table);
			return -EUCLEAN;
		}
		rc = qcow2_overlap_add(&q->overlap, table, 1);
	}
	if (rc < 0 || q->meta->no_memory) {
		why_set(why, "open %.200s: out of memory", path);
		rc = -ENOMEM;
	}
	return rc;
}

/* A slice for the replay, read if need be. */
static int
replay_slice(struct qcow2 *q, uint64_t cluster, struct qcow2_slice **sp)
{
	uint64_t key = qcow2_slice_key(q->top, cluster);
	struct qcow2_slices *c = q->top->slices;
	struct qcow2_slice *s;
	int rc;

	if ((qcow2_l1_entry(q->top, cluster) & QCOW2_OFFSET_MASK) == 0)
		return -EPROTO;
	s = qcow2_slices_find(c, key);
	if (s == NULL) {
		s = qcow2_slices_claim(c, key);
		if (s == NULL)
			return -EPROTO;
		rc = file_pread(&q->top->file, s->entries, c->bytes,
		    qcow2_slice_offset(q->top, key));
		s->loading = false;
		if (rc < 0) {
			qcow2_slices_drop(c, s);
			return rc;
		}
	}
	if (!qcow2_slice_busy(s))
		c->nr_busy++;
	s->dirty = true;
	*sp = s;
	return 0;
}

static int
replay_l2(struct qcow2 *q, const struct qcow2_redo_record *rec)
{
	struct qcow2_slice *s;
	uint64_t *words, entry = rec->entry;
	uint32_t i;
	int rc;

	for (i = 0; i < rec->count; i++) {
		rc = replay_slice(q, rec->where + i, &s);
		if (rc < 0)
			return rc;
		words = qcow2_entry(q->top, s, rec->where + i);
		words[0] = htobe64(entry);
		if (q->extended)
			words[1] = htobe64(rec->bitmap);
		if ((entry & QCOW2_OFFSET_MASK) != 0)
			entry += q->cluster_size;
	}
	return 0;
}

static int
replay_refcount(struct qcow2 *q, const struct qcow2_redo_record *rec)
{
	uint32_t account = (uint32_t)rec->freed - 1;
	int rc;

	rc = qcow2_refcounts_set(q->meta->refs, rec->where, rec->count,
	    rec->entry);
	if (rc == -EAGAIN) {
		rc = qcow2_refs_write(q);
		if (rc == 0)
			rc = qcow2_refcounts_set(q->meta->refs, rec->where,
			    rec->count, rec->entry);
	}
	if (rc == 0 && rec->freed != 0 && account -
	    qcow2_redo_tail(&q->redo) < QCOW2_REDO_RECORDS)
		qcow2_redo_at(&q->redo, account)->freed = 0;
	return rc;
}

static int
replay_record(struct qcow2 *q, const struct qcow2_redo_record *rec)
{
	uint64_t clusters = (q->top->h.size + q->cluster_size - 1) >>
	    q->cluster_bits;

	switch (rec->type) {
	case QCOW2_REDO_L2:
		if (rec->where >= clusters ||
		    rec->count > clusters - rec->where)
			return -EPROTO;
		q->redo.nr_mapping++;
		return replay_l2(q, rec);
	case QCOW2_REDO_L1:
		if (rec->where >= q->top->h.l1_entries)
			return -EPROTO;
		q->redo.nr_mapping++;
		qcow2_l1_set(q, rec->where, rec->entry);
		return 0;
	case QCOW2_REDO_REFCOUNT:
		return replay_refcount(q, rec);
	}
	return -EPROTO;
}

/* Into the caches, as it was in the predecessor's; written as usual. */
static int
meta_replay(struct qcow2 *q, char why[WHY_MAX])
{
	uint32_t i, head = qcow2_redo_head(&q->redo);
	int rc = 0;

	q->meta->replaying = true;
	for (i = qcow2_redo_tail(&q->redo); rc == 0 && i != head; i++)
		rc = replay_record(q, qcow2_redo_at(&q->redo, i));
	q->meta->replaying = false;
	if (rc == 0 && i != qcow2_redo_tail(&q->redo))
		q->dirty_since_ms = qcow2_now_ms();
	if (rc < 0)
		why_set(why, "redo the last changes of %.200s, whose disk "
		    "process died: %s; check it with 'qemu-img check -r all' "
		    "before it is used", q->top->file.path, strerror(-rc));
	return rc;
}

static void
meta_reset(struct qcow2 *q)
{
	struct qcow2_slices *c = q->top->slices;
	unsigned i;

	pthread_mutex_lock(&q->lock);
	for (i = 0; i < c->nr; i++)
		c->slice[i].dirty = c->slice[i].writing = false;
	qcow2_slices_clear(c);
	memset(q->l1_dirty, 0, q->l1_dirty_bytes);
	q->nr_l1_dirty = q->nr_abandoned = 0;
	q->dirty_since_ms = 0;
	q->failed = q->top->file.sync_error = 0;
	q->corrupt = false;
	q->epoch = 0;
	atomic_store(&q->draining, false);
	/* What a process wrote that has died may not be durable: one sync. */
	atomic_store(&q->writes, 1);
	atomic_store(&q->synced, 0);
	qcow2_overlap_clear(&q->overlap);
	q->meta->want_round = q->meta->stuck = q->meta->reserving = false;
	q->meta->run_failed = q->meta->swept = q->meta->unlogged = false;
	q->meta->corrupt_told = q->meta->no_memory = false;
	q->meta->header_unsure = false;
	q->meta->unpacked_layer = NULL;
	pthread_mutex_unlock(&q->lock);
}

static int
meta_activate_rw(struct qcow2 *q, char why[WHY_MAX])
{
	int rc, redo;

	rc = qcow2_refcounts_load(q->meta->refs, why);
	if (rc < 0)
		return rc;
	redo = qcow2_redo_open(&q->redo, q->img.redo, q->cluster_bits);
	if (redo < 0) {
		why_set(why, "open %.200s: %s", q->top->file.path,
		    redo == -ENOMEM ? "out of memory" : "the page file holds "
		    "no log of this image; detach the disk and attach it "
		    "again");
		return redo;
	}
	if (redo > 0)
		rc = meta_replay(q, why);
	if (rc == 0)
		rc = overlap_build(q, why);
	if (rc < 0)
		qcow2_redo_close(&q->redo);
	else
		q->autoclear = q->top->h.autoclear != 0;
	return rc;
}

int
qcow2_meta_activate(struct qcow2 *q, char why[WHY_MAX])
{
	int rc = 0;

	meta_reset(q);
	if (!q->img.readonly)
		rc = meta_activate_rw(q, why);
	if (rc < 0)
		meta_reset(q);
	else
		qcow2_meta_go_on(q);
	return rc;
}

/*
 * Deactivate.
 */

/* Rounds until nothing is left to write. */
static int
meta_write_all(struct qcow2 *q)
{
	int rc = 0;

	pthread_mutex_lock(&q->lock);
	do {
		rc = qcow2_do_round(q);
		if (rc == 0 && atomic_load(&q->draining))
			rc = qcow2_do_free(q);
	} while (rc == 0 && (q->redo.nr_mapping > 0 ||
	    qcow2_redo_head(&q->redo) != qcow2_redo_tail(&q->redo)));
	pthread_mutex_unlock(&q->lock);
	return rc;
}

static int
runs_return(struct qcow2 *q)
{
	struct qcow2_run *run = q->redo.page->run;
	uint64_t first, count;
	int rc = 0, i;

	for (i = 0; i < (int)QCOW2_RUNS && rc == 0; i++) {
		if (run[i].next >= run[i].end)
			continue;
		if (!qcow2_slack_take(q))
			return -EAGAIN;
		first = run[i].next;
		count = run[i].end - first;
		/* A death here leaks them; the other way round it would */
		/* let them be used without a refcount. */
		run[i].end = 0;
		rc = qcow2_refs_drop(q, first, count, true);
		if (rc == 0)
			rc = qcow2_refs_settle(q);
		qcow2_slack_give(q);
	}
	return rc;
}

int
qcow2_meta_deactivate(struct qcow2 *q, char why[WHY_MAX])
{
	int rc = 0;

	qcow2_meta_pause(q);
	if (q->img.readonly) {
		meta_reset(q);
		return 0;
	}
	pthread_mutex_lock(&q->lock);
	qcow2_do_corrupt(q);
	pthread_mutex_unlock(&q->lock);
	rc = meta_write_all(q);
	if (rc == 0)
		rc = qcow2_do_abandoned(q);
	if (rc == 0)
		rc = runs_return(q);
	if (rc == 0)
		rc = meta_write_all(q);
	if (rc == 0)
		rc = qcow2_refcounts_trim(q->meta->refs);
	if (rc == 0)
		rc = file_sync(&q->top->file);
	if (rc < 0)
		why_set(why, "write back the metadata of %.200s: %s; what the "
		    "guest wrote last may be lost, see the kernel log (dmesg) "
		    "and run 'qemu-img check' on the image",
		    q->top->file.path, strerror(-rc));
	qcow2_redo_reset(&q->redo);
	qcow2_redo_close(&q->redo);
	meta_reset(q);
	return rc;
}
