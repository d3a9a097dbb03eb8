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
#define QCOW2_L1_BLOCK       4096u	/* bytes; what is written of L1 */
#define QCOW2_MAX_L1         64u	/* changed blocks */
#define QCOW2_ANY            UINT64_MAX

/* What a round writes: a slice or a block of the L1 table. */
struct qcow2_meta_copy {
	uint64_t            offset;	/* in the file */
	void               *data;
	uint32_t            bytes;
	struct qcow2_slice *slice;	/* NULL: block 'block' of L1 */
	uint64_t            block;
};

/* Somebody waits for the disk to be made larger. */
struct qcow2_resize {
	uint64_t size;		/* bytes */
	bool     again;		/* it has been tried once */
	bool     done;
	int      error;		/* then */
};

struct qcow2_meta {
	pthread_t       thread;
	bool            running;
	/* ---- under the image's lock ---- */
	pthread_cond_t  wake;
	pthread_cond_t  quiet;		/* it has become idle */
	bool            idle, stop, paused;
	bool            want_round;
	struct qcow2_resize *resize;	/* NULL: nobody wants it */
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
	bool            header_unsure;	/* writing its L1 fields has failed */
	unsigned        room;		/* of 'copy' and 'copies' */
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

/*
 * Parts of the thread's work.  Those from qcow2_l1_set() on with the lock, but
 * for the last but one of all and qcow2_header_settle().
 *
 * Write refcounts; drop references, writing first if there is no room for
 * it; write what could not be logged.  0 or -errno.
 */
int  qcow2_refs_write(struct qcow2 *q);
int  qcow2_refs_drop(struct qcow2 *q, uint64_t first, uint64_t count,
         bool exclusive);
int  qcow2_refs_settle(struct qcow2 *q);

/* Room in the log for changes of our own; false: write back first. */
bool qcow2_slack_take(struct qcow2 *q);
void qcow2_slack_give(struct qcow2 *q);

/* Give back what was taken and did not come into use. */
int  qcow2_do_abandoned(struct qcow2 *q);

/* The thread does nothing between these two. */
void qcow2_meta_pause(struct qcow2 *q);
void qcow2_meta_go_on(struct qcow2 *q);

uint64_t qcow2_now_ms(void);		/* of CLOCK_MONOTONIC */

/* Change an L1 entry; to be written. */
void qcow2_l1_set(struct qcow2 *q, uint64_t index, uint64_t entry);

/* Those who wait for this (and 'arg', or QCOW2_ANY) go on, or fail. */
void qcow2_unpark(struct qcow2 *q, enum qcow2_need need, uint64_t arg,
         int error);

/*
 * A round up to step 5, and step 6; both let the lock go meanwhile.  When
 * q->draining is set after the first, the second is due once no I/O is in
 * flight in the old epoch.  0 or -errno, what was not written being dirty.
 */
int  qcow2_do_round(struct qcow2 *q);
int  qcow2_do_free(struct qcow2 *q);

/* The header as it is in memory, if the file's may be another. */
int  qcow2_header_settle(struct qcow2 *q);

/* What was asked for in 'resize'; lets the lock go meanwhile. */
void qcow2_do_resize(struct qcow2 *q);

/*
 * Under the image's lock, by the thread: the header has another size.  What
 * follows from that, the disk's own size last.
 */
void qcow2_set_size(struct qcow2 *q);

/* Memory for copies of all that may be dirty.  0 or -ENOMEM: as before. */
int  qcow2_meta_make_room(struct qcow2 *q, unsigned slices);

/* Of the driver. */
int  qcow2_resize(struct image *img, uint64_t size, char why[WHY_MAX]);

/* Say in the header that the image is corrupt, if so and not said yet. */
void qcow2_do_corrupt(struct qcow2 *q);

#endif
