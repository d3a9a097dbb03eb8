/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2: the parts of the driver, and who does what.
 *
 *   a channel's thread (qcow2_io.c)         the metadata thread (qcow2_meta.c)
 *     maps guest clusters by cached slices    finds free clusters ahead
 *     moves data by engine, reads slices      makes L2 tables
 *     takes reserved clusters                 unpacks compressed clusters
 *     changes L2 entries in the cache         writes everything back, frees
 *
 * One mutex, 'lock', guards what is in memory; nobody holds it during I/O.
 *
 * A *mapped* request finds its clusters in cached slices and is one I/O per
 * contiguous host run.  A write that needs a new cluster takes one of the
 * *runs* that the metadata thread has reserved (their refcount is 1 already),
 * writes data together with what must be copied round it, and only then puts
 * it into the L2 slice: an *allocation*.  What cannot go on at once (a slice
 * to be read, no run, no L2 table, a full log) is *parked* and tried again.
 *
 * Write-back goes in *rounds* of the metadata thread:
 *
 *   1  copy the dirty slices and L1 blocks; note the head of the redo log
 *   2  write changed refcounts
 *   3  sync: the data and the refcounts that the copies need are durable
 *   4  write the copies
 *   5  sync: now what they replaced is not referenced any more
 *   6  when I/O that may still go to replaced clusters has drained: discard
 *      them, drop their refcounts; retire the log up to the noted head
 *
 * so that after a crash of the host at any point there are leaked clusters at
 * most.  A FLUSH is answered after 5.  After the death of the process alone the
 * redo log holds what was answered but not written.
 *
 * Draining (6) uses two epochs: each I/O to clusters of this file counts in
 * the present one; the round flips it and waits until the old one is empty.
 */
#ifndef DRIVERS_QCOW2_H
#define DRIVERS_QCOW2_H

#include <pthread.h>
#include <stdatomic.h>

#include "drivers/engine.h"
#include "drivers/qcow2_layer.h"
#include "drivers/qcow2_overlap.h"
#include "drivers/qcow2_redo.h"
#include "drivers/qcow2_refcount.h"
#include "drivers/qcow2_slice.h"

#define QCOW2_SUB_IOV 64u	/* elements of a sub-I/O that is cut out */

/* What a parked request waits for. */
enum qcow2_need {
	QCOW2_NEED_NOTHING,
	QCOW2_NEED_TABLE,	/* an L2 table of its own for L1 index 'arg' */
	QCOW2_NEED_RUN,		/* reserved clusters */
	QCOW2_NEED_ROOM,	/* in the log or the cache: a round */
	QCOW2_NEED_HEADER,	/* autoclear bits cleared */
	QCOW2_NEED_FLUSH,	/* a round that begins after this */
	QCOW2_NR_NEEDS,
};

/* One I/O that was submitted, or the reading part of a copy on write. */
struct qcow2_request {
	struct io            *io;
	struct qcow2_channel *ch;
	uint64_t   next;	/* guest offset: mapped up to here */
	uint64_t   end;
	int        iov;		/* 'next' is in this element of io->iov */
	size_t     iov_done;	/* at this byte of it */
	unsigned   pending;	/* sub-I/Os on their way */
	int        error;	/* the first one */
	bool       waiting;	/* on some list; not to be looked at */
	bool       changed;	/* needs metadata that is not in the file */
	bool       flushed;	/* it needs no sync any more */
	/* Set under 'lock' by whoever wakes it: */
	int        wake_error;
	bool       covered;	/* by the round in progress */
	enum qcow2_need need;	/* while it is parked */
	uint64_t   arg;
	struct qcow2_sub *copy;	/* reads for this one; NULL: a guest's */
	STAILQ_ENTRY(qcow2_request) link;
};

/* Guest clusters that are getting a host cluster (or their zero cleared). */
struct qcow2_alloc {
	uint64_t guest;		/* first cluster */
	uint64_t host;		/* host offset of it, bytes */
	uint32_t count;
	bool     in_place;	/* the host cluster was theirs already */
	bool     joinable;	/* others may write there before it is done */
	bool     zero;		/* the host clusters read as zeroes */
	bool     failed;
	unsigned users;		/* sub-I/Os */
	struct qcow2_slice *slice;
	struct qcow2_request_list waiters;
	LIST_ENTRY(qcow2_alloc) link;
};
LIST_HEAD(qcow2_alloc_list, qcow2_alloc);

struct qcow2_alloc_chunk {
	SLIST_ENTRY(qcow2_alloc_chunk) link;
	struct qcow2_alloc alloc[];
};

enum qcow2_sub_type {
	QCOW2_SUB_PLAIN,	/* a read, or a write to mapped clusters */
	QCOW2_SUB_ALLOC,
	QCOW2_SUB_UNPACK,	/* a read by the metadata thread */
	QCOW2_SUB_SYNC,
};

/* One I/O to one file, part of a request. */
struct qcow2_sub {
	struct io             io;
	struct qcow2_request *req;
	enum qcow2_sub_type   type;
	uint8_t               epoch;
	int                   fd;
	uint64_t              guest;	/* offset of what the guest gave */
	uint64_t              bytes;	/* of that */
	uint64_t              synced;	/* SYNC: covers that many writes */
	/* ALLOC */
	struct qcow2_alloc   *alloc;
	unsigned              room;	/* of the log, taken */
	bool                  whole;	/* whole clusters are filled */
	void                 *bounce;	/* head, then tail */
	uint32_t              head, tail;	/* bytes written round it */
	unsigned              copies;	/* reads on their way */
	int                   error;
	/* UNPACK */
	struct qcow2_layer   *layer;
	uint64_t              entry;
	uint64_t              skip;	/* bytes into the cluster */
	STAILQ_ENTRY(qcow2_sub) link;
	struct iovec          iov[QCOW2_SUB_IOV];
};
STAILQ_HEAD(qcow2_sub_list, qcow2_sub);

/* Reserved host clusters that nobody came to use after all. */
struct qcow2_range {
	uint64_t first, count;
};
#define QCOW2_MAX_ABANDONED 256u	/* ranges; more of them leak */

struct qcow2_copy;
struct qcow2_slice_read;

struct qcow2_channel {
	struct channel        ch;	/* must be first */
	struct qcow2         *q;
	struct engine        *engine;
	unsigned              nr_subs;
	struct qcow2_request *requests;
	struct qcow2_sub     *subs;
	struct qcow2_copy    *copies;		/* two per bounce buffer */
	struct qcow2_sub     *copy_subs;	/* for them only */
	struct qcow2_slice_read *slice_reads;
	void                 *bounces;		/* a cluster each */
	/* What follows is the channel's thread's own. */
	struct qcow2_request_list free_requests, free_copies;
	struct qcow2_request_list runnable;
	struct qcow2_request_list starved;	/* of what is free below */
	struct qcow2_request_list finished;	/* done() is due */
	struct qcow2_sub_list     free_subs, free_copy_subs;
	SLIST_HEAD(, qcow2_slice_read) free_slice_reads;
	void                **free_bounces;	/* a stack */
	unsigned              nr_free_bounces;
	bool                  delivering;	/* done() is being called */
	bool                  submitted;	/* by a done() */
	/* Under the image's lock: */
	struct qcow2_request_list ready;	/* woken by somebody else */
	struct qcow2_sub_list     unpacked;
	atomic_bool           woken;	/* one of the two is not empty */
};

struct qcow2 {
	struct image            img;	/* must be first */
	struct qcow2_layer     *top;
	enum cache_mode         cache;
	struct threads         *threads;	/* NULL: io=native */
	unsigned                cluster_bits;
	uint64_t                cluster_size;
	unsigned                l2_bits;	/* log2: entries of a table */
	unsigned                unit_bits;	/* log2: subcluster bytes */
	bool                    extended;
	bool                    backed;	/* there is a backing file */
	void                   *zeroes;
	size_t                  zero_bytes;

	pthread_mutex_t         lock;
	/* ---- under 'lock' ---- */
	struct qcow2_overlap    overlap;
	struct qcow2_redo       redo;
	uint64_t               *l1_dirty;	/* bitmap of 4 KiB blocks */
	size_t                  l1_dirty_bytes;
	unsigned                nr_l1_dirty;
	struct qcow2_alloc_list allocs, free_allocs;
	SLIST_HEAD(, qcow2_alloc_chunk) alloc_chunks;
	unsigned                nr_allocs;	/* in all chunks */
	unsigned                nr_subs;	/* of all channels */
	struct qcow2_request_list parked;	/* for the metadata thread */
	unsigned                nr_need[QCOW2_NR_NEEDS];
	struct qcow2_sub_list   unpack;		/* to be unpacked */
	struct qcow2_range      abandoned[QCOW2_MAX_ABANDONED];
	unsigned                nr_abandoned;
	int                     failed;	/* -errno: a sync failed, for good */
	bool                    corrupt;	/* found so: no more writes */
	bool                    autoclear;	/* bits to clear first */
	uint64_t                dirty_since_ms;	/* 0: nothing to write */
	unsigned                max_busy;	/* slices, see slice.nr_busy */
	unsigned                busy_high;	/* with more, write them back */
	uint64_t                run_target;	/* clusters to reserve */
	uint64_t                run_low;	/* below this */
	uint8_t                 epoch;
	bool                    in_round;	/* its copies are not durable */
	/* ---- */
	_Atomic uint64_t        writes;		/* data writes done */
	_Atomic uint64_t        synced;		/* of them, durable */
	_Atomic uint32_t        inflight[2];	/* per epoch */
	atomic_bool             draining;	/* the thread waits for epoch */

	struct qcow2_meta      *meta;	/* qcow2_meta.h */
};

static inline uint64_t
qcow2_slice_key(const struct qcow2_layer *layer, uint64_t cluster)
{
	return cluster >> layer->slices->bits;
}

#endif
