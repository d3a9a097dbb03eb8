/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_walk: find every reference to a host cluster (a part of the check).
 *
 *   header, refcount table and blocks, L1 tables --> L2 tables --> data,
 *   snapshot table --> their L1 tables ..., bitmap directory --> bitmaps
 *
 * An L2 table that several L1 entries name (snapshots share them) is read
 * once and counts as often as it is named, so that the work grows with the
 * file and not with what a hostile one claims.
 */
#ifndef DRIVERS_QCOW2_WALK_H
#define DRIVERS_QCOW2_WALK_H

#include "drivers/qcow2_layer.h"
#include "drivers/qcow2_usage.h"

#define CHECK_PIECE (64u << 10)	/* bytes that are read at a time */
#define CHECK_ODD   64u		/* L2 tables that are not aligned */
#define CHECK_BEYOND 1024u	/* refcount blocks read for what is not */
				/* in the file */

struct l2_use {
	uint64_t offset;
	uint32_t active;	/* L1 entries of the active table, */
	uint32_t total;		/* of all tables */
};

struct check {
	const struct qcow2_layer  *layer;
	const struct qcow2_header *h;
	struct image_check        *c;
	char                      *why;	/* WHY_MAX */
	uint64_t cluster_size, file_size;	/* bytes */
	uint64_t nr;			/* clusters of the file */
	uint64_t max_count;		/* that a refcount can hold */
	struct qcow2_usage usage;	/* of nr + 1 clusters */
	uint64_t *reftable;		/* native byte order */
	uint64_t  reftable_entries;

	void     *table;		/* an L2 table, a refcount block */
	void     *piece;		/* CHECK_PIECE of something else, */
	uint64_t  piece_at;		/* from there; UINT64_MAX: nothing */

	void     *beyond;		/* a refcount block, from there */
	uint64_t  beyond_at;		/* 0: nothing */
	unsigned  beyond_left;		/* how often more it may be read */

	struct l2_use *l2;		/* by offset */
	uint64_t       nr_l2;
	struct l2_use  odd[CHECK_ODD];
	unsigned       nr_odd;
	bool           active;		/* the L1 table that is walked */
	uint64_t       l1_bytes;	/* of all L1 tables */
};

/* Count a finding 'times' and tell it once. */
void check_found(struct check *k, uint64_t *counter, uint64_t times,
         const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* USE_IS_ONE, USE_UNKNOWN or 0 of a cluster beyond the end of the file. */
uint32_t check_mark_beyond(struct check *k, uint64_t cluster);

/* No memory for it: -EFBIG, with 'why'. */
int  check_too_much(struct check *k);

/*
 * 'bytes' from 'offset' on are used 'times' as 'kind'.  Beyond the file: a
 * finding.  0 or, with 'why', -EFBIG.
 */
int  check_use(struct check *k, uint64_t offset, uint64_t bytes,
         uint32_t kind, uint64_t times);

/*
 * Call entry() with each 8-byte entry of a table until it does not return 0.
 * What cannot be read is a finding.
 */
typedef int check_entry(struct check *k, uint64_t index, uint64_t entry);
int  check_entries(struct check *k, uint64_t offset, uint64_t entries,
         const char *what, check_entry *entry);

/* Everything but the refcount structures.  0, or -errno with 'why'. */
int  check_walk(struct check *k);

#endif
