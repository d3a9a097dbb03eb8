/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_meta: the metadata thread of an image: everything that blocks.
 *
 * It sleeps until somebody who holds the image's lock kicks it, or until
 * changes get old, and never wakes up while there is nothing to write.  While
 * the image is inactive it is paused, and what it owns belongs to whoever
 * activates or deactivates.
 */
#ifndef DRIVERS_QCOW2_META_H
#define DRIVERS_QCOW2_META_H

#include "drivers/qcow2.h"

#define QCOW2_REFCOUNT_CACHE (512u << 10)	/* bytes */

/* What a round writes: a slice or a block of the L1 table. */
struct qcow2_meta_copy {
	uint64_t            offset;	/* in the file */
	void               *data;
	uint32_t            bytes;
	struct qcow2_slice *slice;	/* NULL: block 'block' of L1 */
	uint64_t            block;
};

struct qcow2_meta {
	pthread_t       thread;
	bool            running;
	/* ---- under the image's lock ---- */
	pthread_cond_t  wake;
	pthread_cond_t  quiet;		/* it has become idle */
	bool            idle, stop, paused;
	bool            want_round;
	bool            stuck;		/* the last round failed */
	/* ---- the thread's own ---- */
	struct qcow2_refcounts *refs;	/* NULL: read-only */
	struct qcow2_meta_copy *copy;
	unsigned        nr_copies;
	char           *copies;		/* memory for them */
	uint32_t        round_end;	/* position in the log */
	bool            reserving;	/* somebody has allocated */
	bool            run_failed;	/* not again before a round */
	bool            swept;		/* a round has made what room it can */
	bool            corrupt_told;	/* written into the header */
	bool            unpack_turn;
	unsigned        slack;		/* log records taken, not used yet */
	uint64_t        account;	/* see struct qcow2_redo_record */
	bool            unlogged;	/* a refcount is only in memory */
	bool            replaying;
	bool            no_memory;
	char           *buffer;
	char           *packed, *unpacked;	/* a compressed cluster */
	struct qcow2_layer     *unpacked_layer;	/* NULL: none is there */
	uint64_t        unpacked_entry;
	struct qcow2_inflate   *inflate[2];	/* by enum qcow2_compression */
};

/* Start the thread, paused; no I/O. */
int  qcow2_meta_open(struct qcow2 *q, char why[WHY_MAX]);
void qcow2_meta_close(struct qcow2 *q);	/* also half open */

/* Read the refcounts and do the log again; the chain is locked. */
int  qcow2_meta_activate(struct qcow2 *q, char why[WHY_MAX]);

/* Write everything and give back what is reserved; no I/O is in flight. */
int  qcow2_meta_deactivate(struct qcow2 *q, char why[WHY_MAX]);

/* Under the image's lock: there may be something to do. */
void qcow2_meta_kick(struct qcow2 *q);

/* Likewise: there is something to write, at the latest when it is old. */
void qcow2_meta_dirty(struct qcow2 *q);

/* Likewise: the image contradicts itself; writes have an end. */
void qcow2_mark_corrupt(struct qcow2 *q);

#endif
