/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_slice: the cache of L2 tables, in slices of 4 KiB.
 *
 * A slice holds consecutive entries of one L2 table, as on disk.  The cache
 * only keeps them: who loads and writes a slice, and when, is said in
 * qcow2.h.  All functions are called with the image's lock held.
 */
#ifndef DRIVERS_QCOW2_SLICE_H
#define DRIVERS_QCOW2_SLICE_H

#include "drivers/qcow2_format.h"

#define QCOW2_SLICE_BYTES 4096u	/* or one cluster, when that is less */
#define QCOW2_SLICE_GROWTHS 12u	/* each doubles the slices, at least */

struct qcow2_request;
STAILQ_HEAD(qcow2_request_list, qcow2_request);

struct qcow2_slice {
	uint64_t  key;		/* guest cluster >> slice_bits */
	bool      used;		/* has a key, is in the hash */
	bool      loading;	/* being read; 'waiters' wait for it */
	bool      dirty;	/* differs from the file */
	bool      writing;	/* a copy is being written, not yet durable */
	bool      recent;	/* looked at since the clock's hand passed */
	unsigned  writers;	/* allocations that will change it */
	uint64_t *entries;	/* big endian */
	struct qcow2_request_list waiters;
	LIST_ENTRY(qcow2_slice) hash;
};
LIST_HEAD(qcow2_slice_head, qcow2_slice);

struct qcow2_slices {
	unsigned bits;		/* log2 of the entries of one slice */
	unsigned entry_bits;	/* log2 of the bytes of one entry */
	size_t   bytes;		/* of one slice */
	unsigned nr;
	unsigned max;		/* most that there may be */
	unsigned nr_busy;	/* dirty, writing or with writers */
	unsigned hand;		/* of the clock */
	unsigned hash_mask;
	void    *memory[QCOW2_SLICE_GROWTHS + 1];
	unsigned nr_growths;
	struct qcow2_slice      *slice;
	struct qcow2_slice_head *heads;
	struct qcow2_request_list crowd;	/* claim() found nothing for */
					/* them: until a load is over */
};

/*
 * A cache of at most 'max_bytes' (at least a few slices) for the image that
 * 'h' describes, never larger than all its tables.  0 or -ENOMEM.
 */
int  qcow2_slices_open(struct qcow2_slices **c, const struct qcow2_header *h,
         size_t max_bytes);
void qcow2_slices_close(struct qcow2_slices *c);	/* NULL is fine */

/*
 * The image has become larger: more slices, as open() would make; those that
 * are there stay.  -ENOMEM: none more, which only costs time.
 */
int  qcow2_slices_grow(struct qcow2_slices *c, const struct qcow2_header *h);

/* Forget all; none is dirty or being loaded. */
void qcow2_slices_clear(struct qcow2_slices *c);

/* NULL: not here. */
struct qcow2_slice *qcow2_slices_find(struct qcow2_slices *c, uint64_t key);

/*
 * A place for 'key', which is not here: the least recently used slice that
 * nobody needs.  It comes 'loading'.  NULL: all are needed.
 */
struct qcow2_slice *qcow2_slices_claim(struct qcow2_slices *c, uint64_t key);

/* Loading failed: forget it. */
void qcow2_slices_drop(struct qcow2_slices *c, struct qcow2_slice *s);

static inline bool
qcow2_slice_busy(const struct qcow2_slice *s)
{
	return s->dirty || s->writing || s->writers > 0;
}

#endif
