/* SPDX-License-Identifier: GPL-2.0-or-later */
/* qcow2_redo: a ring of records with one atomic index at each end. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/qcow2_redo.h"

#define MAGIC  "QC2REDO"		/* eight bytes with its NUL */
#define LAYOUT 1u

static bool
page_is_ours(const struct qcow2_redo_page *p, uint32_t cluster_bits)
{
	return memcmp(p->magic, MAGIC, sizeof(p->magic)) == 0 &&
	    p->layout == LAYOUT && p->cluster_bits == cluster_bits &&
	    p->head - p->tail <= QCOW2_REDO_RECORDS;
}

static unsigned
record_cost(const struct qcow2_redo_record *rec)
{
	return rec->type == QCOW2_REDO_REFCOUNT ? 1 :
	    qcow2_redo_cost(rec->freed, rec->count);
}

int
qcow2_redo_open(struct qcow2_redo *r, void *lent, uint32_t cluster_bits)
{
	uint32_t i;

	memset(r, 0, sizeof(*r));
	r->own = lent == NULL;
	r->page = lent;
	if (r->own) {
		r->page = aligned_alloc(4096, QCOW2_REDO_BYTES);
		if (r->page == NULL)
			return -ENOMEM;
		memset(r->page, 0, offsetof(struct qcow2_redo_page, record));
	}
	/* The magic comes last: a death before it leaves a new page. */
	if (r->page->magic[0] == 0) {
		r->page->layout = LAYOUT;
		r->page->cluster_bits = cluster_bits;
		memcpy(r->page->magic + 1, &MAGIC[1], sizeof(MAGIC) - 1);
		atomic_signal_fence(memory_order_seq_cst);
		r->page->magic[0] = MAGIC[0];
		return 0;
	}
	if (!page_is_ours(r->page, cluster_bits)) {
		qcow2_redo_close(r);
		return -EPROTO;
	}
	for (i = qcow2_redo_tail(r); i != qcow2_redo_head(r); i++)
		r->taken += record_cost(qcow2_redo_at(r, i));
	for (i = 0; i < QCOW2_RUNS; i++)
		if (r->page->run[i].next < r->page->run[i].end)
			return 1;
	return r->taken > 0;
}

void
qcow2_redo_close(struct qcow2_redo *r)
{
	if (r->own)
		free(r->page);
	r->page = NULL;
}

bool
qcow2_redo_take(struct qcow2_redo *r, unsigned n)
{
	if (r->taken + n > QCOW2_REDO_RECORDS)
		return false;
	r->taken += n;
	return true;
}

void
qcow2_redo_give(struct qcow2_redo *r, unsigned n)
{
	assert(n <= r->taken);
	r->taken -= n;
}

unsigned
qcow2_redo_cost(uint64_t freed, uint32_t count)
{
	if (freed == 0)
		return 1;
	if ((freed & QCOW2_COMPRESSED) != 0)
		return 1 + 3;		/* it can touch that many clusters */
	if ((freed & QCOW2_COPIED) != 0)
		return 1 + 1;		/* all go from 1 to 0 */
	return 1 + count;
}

void
qcow2_redo_append(struct qcow2_redo *r, const struct qcow2_redo_record *rec)
{
	uint32_t head = qcow2_redo_head(r);

	assert(head - qcow2_redo_tail(r) < QCOW2_REDO_RECORDS);
	*qcow2_redo_at(r, head) = *rec;
	if (rec->type != QCOW2_REDO_REFCOUNT)
		r->nr_mapping++;
	/* A successor must see the record when it sees the index. */
	atomic_store_explicit(&r->page->head, head + 1, memory_order_release);
}

void
qcow2_redo_retire(struct qcow2_redo *r, uint32_t position)
{
	r->taken -= position - qcow2_redo_tail(r);
	atomic_store_explicit(&r->page->tail, position, memory_order_release);
}

void
qcow2_redo_reset(struct qcow2_redo *r)
{
	unsigned i;

	for (i = 0; i < QCOW2_RUNS; i++)
		r->page->run[i].end = 0;
	qcow2_redo_retire(r, qcow2_redo_head(r));
}
