/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_refcount: which host clusters are in use, and the allocator.
 *
 * Belongs to one thread, the image's metadata thread, and blocks on I/O.
 * Changes are made in memory, in a bounded cache of 4 KiB slices of refcount
 * blocks (less where a cluster is smaller), and written by
 * qcow2_refcounts_write().  It never evicts a changed slice by itself: when
 * the cache has no room it says -EAGAIN and the caller writes first.
 *
 * New refcount blocks lie at the first cluster of the range that they
 * describe, so that they need nobody else: their own first entry is theirs.
 * A larger table lies beyond what the old one could describe, with the blocks
 * that it needs itself behind it; all of that is durable when it is told.
 *
 * Every change is told to ops->changed() as an absolute value, in order, so
 * that it can be put into a redo log and done again after the death of the
 * process; doing it twice is harmless.
 */
#ifndef DRIVERS_QCOW2_REFCOUNT_H
#define DRIVERS_QCOW2_REFCOUNT_H

#include "drivers/file.h"
#include "drivers/qcow2_format.h"

struct qcow2_refcounts;

struct qcow2_refcount_ops {
	/* 'count' clusters from 'first' on now have this refcount. */
	void (*changed)(void *arg, uint64_t first, uint64_t count,
	         uint64_t value);
	/* A refcount block or table began or ceased to live there. */
	void (*metadata)(void *arg, uint64_t first, uint64_t count, bool is);
};

/*
 * Take memory for the refcounts of an image of up to 'cache_bytes' of cached
 * slices; no I/O.  'f' and 'h' are the caller's and outlive this; growth of
 * the table changes h->reftable_*.  'path' for messages is f->path.
 */
int  qcow2_refcounts_open(struct qcow2_refcounts **r, struct file *f,
         struct qcow2_header *h, size_t cache_bytes,
         const struct qcow2_refcount_ops *ops, void *arg, char why[WHY_MAX]);
void qcow2_refcounts_close(struct qcow2_refcounts *r);	/* NULL is fine */

/*
 * Forget everything and read the refcount table again; checks it (offsets
 * aligned, inside the file, not twice, refcount of cluster 0 not zero) and
 * tells ops->metadata() all of it.
 */
int  qcow2_refcounts_load(struct qcow2_refcounts *r, char why[WHY_MAX]);

/* 0 or -errno. */
int  qcow2_refcounts_get(struct qcow2_refcounts *r, uint64_t cluster,
         uint64_t *value);

/*
 * Set the refcount of a range.  Makes refcount blocks, and a larger table,
 * as needed.  -ERANGE: does not fit the width; -EAGAIN: write first, then
 * call it again; other -errno: nothing has changed.  (A range that needs more
 * than half of the cache is done in steps, those before the failed one stay;
 * called again it passes over what is done.)
 */
int  qcow2_refcounts_set(struct qcow2_refcounts *r, uint64_t first,
         uint64_t count, uint64_t value);

/*
 * Find 1 ... 'want' free clusters in a row and give them the refcount 1.
 * Free clusters inside the file first (looked for a bounded step at a time),
 * else the file grows ahead, by room for several megabytes when there is
 * room.  *zero: they are known to read as zeroes.  Never cluster 0.  -ENOSPC
 * (also: beyond the largest table, or the end of a device), -EFBIG, -EAGAIN.
 * -EUCLEAN: the refcounts are damaged, such as a 0 for the L1 table, or much
 * in use far beyond the end of the file.
 */
int  qcow2_refcounts_reserve(struct qcow2_refcounts *r, uint64_t want,
         uint64_t *first, uint64_t *count, bool *zero);

/*
 * The same for exactly 'want' of them, wherever they are: for a table.  Their
 * content is anything.  -EFBIG: so many in a row are not looked for, as a
 * refcount block that is new lies among those that it describes.
 */
int  qcow2_refcounts_reserve_row(struct qcow2_refcounts *r, uint64_t want,
         uint64_t *first);

/*
 * One reference less to each of 'count' clusters.  Those that reach 0 are
 * given back to the file system (discarded) before they are free.  A cluster
 * whose refcount is 0 already is left alone and -EUCLEAN returned after the
 * rest was done.  'exclusive': each should have exactly 1; else none is
 * touched, and -EUCLEAN; nor is one when the header, the L1, refcount or
 * snapshot table, or a refcount block is among them.  -EAGAIN: write first,
 * nothing was done.  Other -errno: nothing was done, or, in a range of more
 * than half of the cache, the end of it is leaked.
 */
int  qcow2_refcounts_drop(struct qcow2_refcounts *r, uint64_t first,
         uint64_t count, bool exclusive);

/* Is there anything to write? */
bool qcow2_refcounts_dirty(const struct qcow2_refcounts *r);

/*
 * Write all changes: blocks, then (after a sync, when blocks are new) the
 * table entries that point to them.  Does not sync at the end.  *writes
 * (may be NULL) is increased by the number of writes made.  On failure what
 * was not written stays dirty.
 */
int  qcow2_refcounts_write(struct qcow2_refcounts *r, unsigned *writes);

/*
 * Cut off what this object has grown and is not in use at the end of the
 * file.  It may grow again.  0 or -errno, nothing was cut.
 */
int  qcow2_refcounts_trim(struct qcow2_refcounts *r);

#endif
