/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_redo: the log of metadata changes that are not in the file yet.
 *
 * It lies in memory that outlives the process (struct image).  Each change
 * that a completed request made is one record, published by one store before
 * the request is answered.  Records say what the value is now, not what was
 * added, so doing one twice is harmless; the exception, giving back clusters
 * that a change freed, is settled by the record of the refcount's new value,
 * which names the record whose clusters it concerns.
 *
 *   tail ... head: not yet known to be in the file.  qcow2_redo_retire() moves
 *   the tail when a write-back has made everything before it durable.
 *
 * The log is bounded.  Whoever is going to append takes the room first, and
 * with it the room for the refcounts that change later on account of it; what
 * of that was not needed is given back.  Retiring gives the records' own back.
 */
#ifndef DRIVERS_QCOW2_REDO_H
#define DRIVERS_QCOW2_REDO_H

#include <stdatomic.h>

#include "drivers/qcow2_format.h"

#define QCOW2_REDO_RECORDS 16384u	/* a power of 2 */
#define QCOW2_RUNS         2u		/* see qcow2.h */

enum qcow2_redo_type {
	/*
	 * Guest clusters 'where' ... have the L2 entry 'entry' (host byte
	 * order; its offset, if it has one, grows by a cluster each) and,
	 * with extended entries, 'bitmap'.  'freed' was the entry of the
	 * first, and its offset grows likewise; 0: nothing is freed.
	 */
	QCOW2_REDO_L2 = 1,
	/* The L1 entry 'where' is 'entry'; the table 'freed' is let go. */
	QCOW2_REDO_L1,
	/*
	 * Host clusters 'where' ... have the refcount 'entry'.  'freed', if
	 * not 0: on account of the record with that position, plus one.
	 */
	QCOW2_REDO_REFCOUNT,
};

struct qcow2_redo_record {
	uint32_t type;
	uint32_t count;			/* clusters; L1: 1 */
	uint64_t where;
	uint64_t entry;
	uint64_t bitmap;
	uint64_t freed;
};

/* Clusters whose refcount is 1 already but that nobody uses yet. */
struct qcow2_run {
	uint64_t next, end;		/* host clusters; valid if next < end */
	uint64_t zero;			/* bool: they read as zeroes */
};

/* What lies in the memory. */
struct qcow2_redo_page {
	char             magic[8];
	uint32_t         layout;
	uint32_t         cluster_bits;
	_Atomic uint32_t head, tail;	/* free-running */
	struct qcow2_run run[QCOW2_RUNS];
	struct qcow2_redo_record record[QCOW2_REDO_RECORDS];
};

struct qcow2_redo {
	struct qcow2_redo_page *page;
	bool     own;			/* nobody lent memory: ours */
	unsigned taken;			/* room for records; see above */
	unsigned nr_mapping;		/* L1 and L2 records appended since */
					/* somebody set it to 0 */
};

/* Whole pages. */
#define QCOW2_REDO_BYTES \
	((sizeof(struct qcow2_redo_page) + 4095) & ~(size_t)4095)

/*
 * Begin with the memory 'lent' (NULL: take our own).  0: there is nothing to
 * do again; 1: there is; -EPROTO: it holds something else; -ENOMEM.
 */
int  qcow2_redo_open(struct qcow2_redo *r, void *lent, uint32_t cluster_bits);
void qcow2_redo_close(struct qcow2_redo *r);

/* Forget all records and runs: nobody shall do them again. */
void qcow2_redo_reset(struct qcow2_redo *r);

/* Take room for 'n' records: false when there is not that much. */
bool qcow2_redo_take(struct qcow2_redo *r, unsigned n);
void qcow2_redo_give(struct qcow2_redo *r, unsigned n);

/* Records that a change of 'count' clusters costs if it frees 'freed'. */
unsigned qcow2_redo_cost(uint64_t freed, uint32_t count);

/* Append and publish; uses one record of the room taken. */
void qcow2_redo_append(struct qcow2_redo *r,
         const struct qcow2_redo_record *rec);

static inline struct qcow2_redo_record *
qcow2_redo_at(struct qcow2_redo *r, uint32_t position)
{
	return &r->page->record[position & (QCOW2_REDO_RECORDS - 1)];
}

static inline uint32_t
qcow2_redo_head(const struct qcow2_redo *r)
{
	return atomic_load_explicit(&r->page->head, memory_order_relaxed);
}

static inline uint32_t
qcow2_redo_tail(const struct qcow2_redo *r)
{
	return atomic_load_explicit(&r->page->tail, memory_order_relaxed);
}

/* The records before 'position' are in the file, for good. */
void qcow2_redo_retire(struct qcow2_redo *r, uint32_t position);

#endif
