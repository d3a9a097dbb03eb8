/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_refcount_impl: what the three files behind qcow2_refcount.h share:
 * qcow2_refcount.c (the values, their cache and write-back), qcow2_reftable.c
 * (the table) and qcow2_alloc.c (the allocator).
 *
 *   cluster number:  | index into the table | slice of the block | entry |
 *                    |<---- block ---------->|<-- block_bits ----------->|
 *                    |<---- slice ------------------------->|slice_bits  |
 */
#ifndef DRIVERS_QCOW2_REFCOUNT_IMPL_H
#define DRIVERS_QCOW2_REFCOUNT_IMPL_H

#include <sys/queue.h>

#include "drivers/qcow2_refcount.h"

#define REFSLICE_BYTES   4096u
#define REFTABLE_SECTORS (QCOW2_MAX_REFTABLE_BYTES / SECTOR)
#define REFTABLE_ENTRIES (QCOW2_MAX_REFTABLE_BYTES / 8)
#define MAX_OFFSET       (1ull << 56)	/* of anything in a qcow2 file */
#define ZERO_BYTES       65536u
#define FULL_SLICES      (1u << 19)	/* those of which we remember it */

/* A piece of a refcount block, as on disk. */
struct refslice {
	TAILQ_ENTRY(refslice) link;	/* in 'clean' or 'dirty', unless held */
	LIST_ENTRY(refslice)  same_hash;
	uint64_t              index;	/* cluster >> slice_bits */
	uint8_t              *data;
	bool                  valid;	/* in its hash list */
	bool                  dirty;
	bool                  held;	/* may not leave */
};
TAILQ_HEAD(refslice_queue, refslice);
LIST_HEAD(refslice_list, refslice);

/* The refcount table, as on disk, and where the blocks are that it names. */
struct reftable {
	uint64_t *entry;		/* big endian; whole pages */
	uint64_t *block;		/* clusters, ascending */
	uint64_t  nr_entries, nr_blocks;
	uint64_t  room;			/* entries that fit both */
};

struct qcow2_refcounts {
	struct file         *f;
	struct qcow2_header *h;
	const struct qcow2_refcount_ops *ops;
	void                *arg;
	unsigned             cluster_bits, order, block_bits, slice_bits;
	uint32_t             slice_bytes;

	struct reftable      table;
	bool                 table_dirty;	/* some sector of it is: */
	uint8_t              sector_dirty[REFTABLE_SECTORS / 8];
	bool                 header_unsure;	/* writing it has failed */
	uint64_t             stale, nr_stale;	/* clusters of the last table */
					/* that still are to be dropped */

	struct refslice     *slices;
	unsigned             nr_slices;
	struct refslice_list *hash;
	unsigned             hash_mask;
	struct refslice_queue clean;	/* the one longest unused first */
	struct refslice_queue dirty;
	uint8_t             *memory;	/* of the slices' data */
	uint8_t             *scratch;	/* one slice more */
	uint8_t             *zeroes;	/* ZERO_BYTES */

	/*
	 * No cluster below 'cursor' is free.  No cluster of a slice whose bit
	 * is set in 'full' is.  Clusters from 'fresh' to the end of the file
	 * have been grown and never touched: they read as zeroes.
	 */
	uint64_t             cursor, fresh;
	uint8_t             *full;
	uint64_t             grown_from;	/* bytes; beyond, the file is */
	bool                 grown;		/* our work, if it is grown */
};

uint64_t refentry_get(const uint8_t *data, uint64_t i, unsigned order);
void     refentry_set(uint8_t *data, uint64_t i, unsigned order,
             uint64_t value);

/* Into the cache: 0; -EAGAIN: all of it is dirty; -EIO and the like. */
int  refslice_get(struct qcow2_refcounts *r, uint64_t index,
         struct refslice **sl);
void refslice_touch(struct qcow2_refcounts *r, struct refslice *sl);

/* Is there a block for this cluster? */
bool refblock_exists(const struct qcow2_refcounts *r, uint64_t cluster);

/*
 * Make the block of index 'b', which the table has room for.  On failure
 * nothing has changed.
 */
int  refblock_make(struct qcow2_refcounts *r, uint64_t b);

/* The first cluster not below this one that is known to hold metadata. */
uint64_t refcount_next_metadata(const struct qcow2_refcounts *r,
             uint64_t cluster);

/* A range has become free, or its content unknown. */
void refcount_freed(struct qcow2_refcounts *r, uint64_t first,
         uint64_t count);
void refcount_spoilt(struct qcow2_refcounts *r, uint64_t end);

/* Give the clusters of the last table back; what fails is tried again. */
void reftable_drop_stale(struct qcow2_refcounts *r);

/* A hole, where that reads as zeroes for certain. */
int  refcount_punch(struct qcow2_refcounts *r, uint64_t first,
         uint64_t count);

/* Make the file reach the end of cluster 'end' - 1. */
int  refcount_grow_file(struct qcow2_refcounts *r, uint64_t end);

/* Memory for a table; the insertion of a block into it. */
int  reftable_alloc(struct reftable *t, uint64_t entries);
void reftable_free(struct reftable *t);
void reftable_add(struct reftable *t, uint64_t index, uint64_t cluster,
         unsigned cluster_bits);

/* Read it and check all of it. */
int  reftable_load(struct qcow2_refcounts *r, char why[WHY_MAX]);

/* Point the header to a table, durably. */
int  reftable_publish(struct qcow2_refcounts *r, uint64_t offset,
         uint32_t clusters);

/* A table that reaches beyond 'end'.  On failure the old one is as it was. */
int  reftable_cover(struct qcow2_refcounts *r, uint64_t end);

/* The remedy of messages about what load found. */
#define REFCOUNT_REPAIR "its refcounts are damaged; detach it and repair it " \
	"with 'qemu-img check -r all', or attach it read-only"

static inline uint64_t
cluster_bytes(const struct qcow2_refcounts *r)
{
	return 1ull << r->cluster_bits;
}

/* Whole clusters of the file. */
static inline uint64_t
refcount_limit(const struct qcow2_refcounts *r)
{
	return r->f->size >> r->cluster_bits;
}

/* The first cluster that the table cannot describe. */
static inline uint64_t
reftable_reach(const struct qcow2_refcounts *r)
{
	return r->table.nr_entries << r->block_bits;
}

static inline uint64_t
reftable_get(const struct qcow2_refcounts *r, uint64_t b)
{
	return be64toh(r->table.entry[b]);
}

static inline uint64_t
min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t
max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

#endif
