/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_round: write-back; qcow2.h says in which order, and why.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/qcow2_io.h"
#include "drivers/qcow2_map.h"
#include "drivers/qcow2_meta.h"

static int
copy_compare(const void *a, const void *b)
{
	const struct qcow2_meta_copy *x = a, *y = b;

	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static uint32_t
l1_block_bytes(const struct qcow2 *q, uint64_t block)
{
	uint64_t all = ((uint64_t)q->top->h.l1_entries * sizeof(uint64_t) +
	    SECTOR - 1) & ~(uint64_t)(SECTOR - 1);
	uint64_t left = all - block * QCOW2_L1_BLOCK;

	return left < QCOW2_L1_BLOCK ? (uint32_t)left : QCOW2_L1_BLOCK;
}

/* Under 'lock': copies of all that is dirty, in the order of the file. */
static void
round_copy(struct qcow2 *q)
{
	struct qcow2_slices *c = q->top->slices;
	struct qcow2_meta *m = q->meta;
	uint64_t block, blocks = (q->top->h.l1_entries * sizeof(uint64_t) +
	    QCOW2_L1_BLOCK - 1) / QCOW2_L1_BLOCK;
	char *to = m->copies;
	unsigned i;

	m->nr_copies = 0;
	for (i = 0; i < c->nr; i++) {
		if (!c->slice[i].dirty)
			continue;
		c->slice[i].dirty = false;
		c->slice[i].writing = true;
		m->copy[m->nr_copies++] = (struct qcow2_meta_copy){
			.offset = qcow2_slice_offset(q->top, c->slice[i].key),
			.data = c->slice[i].entries,
			.bytes = (uint32_t)c->bytes,
			.slice = &c->slice[i],
		};
	}
	for (block = 0; q->nr_l1_dirty > 0 && block < blocks; block++) {
		if ((q->l1_dirty[block / 64] >> block % 64 & 1) == 0)
			continue;
		q->l1_dirty[block / 64] &= ~(1ull << block % 64);
		q->nr_l1_dirty--;
		m->copy[m->nr_copies++] = (struct qcow2_meta_copy){
			.offset = q->top->h.l1_offset + block * QCOW2_L1_BLOCK,
			.data = (char *)q->top->l1 + block * QCOW2_L1_BLOCK,
			.bytes = l1_block_bytes(q, block),
			.block = block,
		};
	}
	qsort(m->copy, m->nr_copies, sizeof(*m->copy), copy_compare);
	for (i = 0; i < m->nr_copies; i++) {
		memcpy(to, m->copy[i].data, m->copy[i].bytes);
		m->copy[i].data = to;
		to += m->copy[i].bytes;
	}
}

/* Neighbours in the file are neighbours in memory. */
static int
round_write(struct qcow2 *q)
{
	struct qcow2_meta *m = q->meta;
	const struct qcow2_meta_copy *first;
	unsigned i = 0;
	size_t bytes;
	int rc = 0;

	while (rc == 0 && i < m->nr_copies) {
		first = &m->copy[i];
		bytes = 0;
		do
			bytes += m->copy[i++].bytes;
		while (i < m->nr_copies &&
		    m->copy[i].offset == first->offset + bytes);
		rc = file_pwrite(&q->top->file, first->data, bytes,
		    first->offset);
		atomic_fetch_add(&q->img.metadata_writes, 1);
	}
	return rc;
}

/* Steps 2 to 5.  0 or -errno. */
static int
round_io(struct qcow2 *q, bool unsynced)
{
	int rc;

	rc = qcow2_header_settle(q);
	if (rc == 0)
		rc = qcow2_refs_write(q);
	if (rc == 0 && (unsynced || q->meta->nr_copies > 0))
		rc = file_sync(&q->top->file);
	if (rc < 0 || q->meta->nr_copies == 0)
		return rc;
	rc = round_write(q);
	if (rc == 0)
		rc = file_sync(&q->top->file);
	return rc;
}

/* Under 'lock': what was copied is in the file, or dirty again. */
static void
round_settle(struct qcow2 *q, bool written)
{
	struct qcow2_meta *m = q->meta;
	struct qcow2_slice *s;
	uint64_t index;
	unsigned i;

	for (i = 0; i < m->nr_copies; i++) {
		s = m->copy[i].slice;
		if (s == NULL) {
			index = m->copy[i].block * QCOW2_L1_BLOCK /
			    sizeof(uint64_t);
			if (!written)
				qcow2_l1_set(q, index,
				    be64toh(q->top->l1[index]));
			continue;
		}
		s->writing = false;
		s->dirty |= !written;
		if (!qcow2_slice_busy(s))
			q->top->slices->nr_busy--;
	}
	m->nr_copies = 0;
}

static void
flushes_mark(struct qcow2 *q)
{
	struct qcow2_request *req;

	STAILQ_FOREACH(req, &q->parked, link)
		if (req->need == QCOW2_NEED_FLUSH)
			req->covered = true;
}

static void
flushes_answer(struct qcow2 *q, int error)
{
	struct qcow2_request_list list = STAILQ_HEAD_INITIALIZER(list);
	struct qcow2_request *req;

	STAILQ_CONCAT(&list, &q->parked);
	while ((req = STAILQ_FIRST(&list)) != NULL) {
		STAILQ_REMOVE_HEAD(&list, link);
		if (!req->covered) {
			STAILQ_INSERT_TAIL(&q->parked, req, link);
			continue;
		}
		q->nr_need[QCOW2_NEED_FLUSH]--;
		req->covered = false;
		req->flushed = true;
		req->wake_error = error;
		qcow2_wake(req);
	}
}

static bool
log_frees(struct qcow2 *q, uint32_t end)
{
	uint32_t i;

	for (i = qcow2_redo_tail(&q->redo); i != end; i++)
		if (qcow2_redo_at(&q->redo, i)->type != QCOW2_REDO_REFCOUNT &&
		    qcow2_redo_at(&q->redo, i)->freed != 0)
			return true;
	return false;
}

/* Under 'lock': everything up to 'end' is in the file. */
static void
round_retire(struct qcow2 *q, uint32_t end)
{
	qcow2_redo_retire(&q->redo, end);
	q->meta->run_failed = false;
	if (qcow2_redo_head(&q->redo) == end)
		q->dirty_since_ms = 0;
	else
		q->dirty_since_ms = qcow2_now_ms();
	qcow2_unpark(q, QCOW2_NEED_ROOM, 0, 0);
}

/* Under 'lock', which it lets go meanwhile. */
int
qcow2_do_round(struct qcow2 *q)
{
	struct qcow2_meta *m = q->meta;
	uint64_t writes = atomic_load(&q->writes);
	bool wanted = m->want_round;
	int rc = q->failed;

	m->want_round = false;
	m->round_end = qcow2_redo_head(&q->redo);
	q->redo.nr_mapping = 0;
	q->in_round = true;
	round_copy(q);
	flushes_mark(q);
	pthread_mutex_unlock(&q->lock);
	if (rc == 0)
		rc = round_io(q, atomic_load(&q->synced) != writes);
	pthread_mutex_lock(&q->lock);

	q->in_round = false;
	if (q->failed == 0)
		q->failed = q->top->file.sync_error;
	round_settle(q, rc == 0);
	flushes_answer(q, rc);
	if (rc < 0) {
		/* Still to be written; not at once, but by the next flush. */
		q->redo.nr_mapping++;
		q->dirty_since_ms = qcow2_now_ms();
		m->stuck = true;
		qcow2_unpark(q, QCOW2_NEED_ROOM, QCOW2_ANY, rc);
		if (wanted) {
			qcow2_unpark(q, QCOW2_NEED_RUN, QCOW2_ANY, rc);
			qcow2_unpark(q, QCOW2_NEED_TABLE, QCOW2_ANY, rc);
			m->swept = false;
		}
		return rc;
	}
	m->stuck = false;
	if (atomic_load(&q->synced) < writes)
		atomic_store(&q->synced, writes);
	if (log_frees(q, m->round_end)) {
		q->epoch ^= 1;
		atomic_store(&q->draining, true);
	} else {
		round_retire(q, m->round_end);
	}
	return 0;
}

/* Give back what one record freed, on its account. */
static int
free_record(struct qcow2 *q, uint32_t position)
{
	struct qcow2_redo_record *rec = qcow2_redo_at(&q->redo, position);
	uint64_t first, count = rec->count, bytes, freed = rec->freed;
	unsigned room = qcow2_redo_cost(freed, rec->count) - 1;
	struct qcow2_meta *m = q->meta;
	int rc;

	if (rec->type == QCOW2_REDO_REFCOUNT || freed == 0)
		return 0;
	first = (freed & QCOW2_OFFSET_MASK) >> q->cluster_bits;
	if ((freed & QCOW2_COMPRESSED) != 0) {
		qcow2_compressed_range(&q->top->h, freed, &first, &bytes);
		count = ((first + bytes - 1) >> q->cluster_bits) -
		    (first >> q->cluster_bits) + 1;
		first >>= q->cluster_bits;
	}
	m->slack = room;
	m->account = (uint64_t)position + 1;
	rc = qcow2_refs_drop(q, first, count, (freed & QCOW2_COPIED) != 0 &&
	    (freed & QCOW2_COMPRESSED) == 0);
	m->account = 0;
	if (rc == 0)
		rc = qcow2_refs_settle(q);
	/* Done, or partly: its room is used, or wanted again. */
	pthread_mutex_lock(&q->lock);
	if (rc == 0) {
		rec->freed = 0;
		qcow2_redo_give(&q->redo, m->slack);
	}
	m->slack = 0;
	pthread_mutex_unlock(&q->lock);
	return rc;
}

/* Step 6, when no I/O goes to what was replaced any more. */
int
qcow2_do_free(struct qcow2 *q)
{
	struct qcow2_meta *m = q->meta;
	uint32_t i = qcow2_redo_tail(&q->redo);
	int rc = 0;

	atomic_store(&q->draining, false);
	pthread_mutex_unlock(&q->lock);
	for (; rc == 0 && i != m->round_end; i++)
		rc = free_record(q, i);
	pthread_mutex_lock(&q->lock);
	if (rc == 0) {
		round_retire(q, m->round_end);
	} else {
		q->redo.nr_mapping++;
		q->dirty_since_ms = qcow2_now_ms();
		m->stuck = true;
		qcow2_unpark(q, QCOW2_NEED_ROOM, QCOW2_ANY, rc);
	}
	return rc;
}
