/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lane: what one queue does of a job, in a thread of its own.
 *
 * Lanes share nothing but the disk's memory of what was written, of which no
 * two have the same sectors, and what the atomic members below tell.
 */
#ifndef LOOPFRONT_LANE_H
#define LOOPFRONT_LANE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/queue.h>

#include "tests/loopfront/job.h"

#define PAGE_SECTORS	(LOOPGUEST_PAGE_SIZE / FRONT_SECTOR)
#define NS		1000000000u

/* One guest I/O, from the moment it is chosen until it is answered. */
struct gio {
	STAILQ_ENTRY(gio) link;		/* of idle, or of filled */
	bool	 active;
	enum job_dir dir;
	uint8_t	 op;
	int	 status;		/* BLKIF_RSP_*, the worst so far */
	uint64_t sector;
	unsigned sectors;
	unsigned put;			/* sectors on the ring already */
	unsigned pending;		/* requests not answered */
	bool	 all_put;
	unsigned page;			/* of its buffer */
	uint64_t start, pushed, ready_at;
	uint32_t *floor;		/* for verify, per sector */
};
STAILQ_HEAD(gio_list, gio);

struct lane {
	struct vbd *v;
	struct fqueue *q;
	const struct options *o;
	FILE	*out;
	struct job_result r;
	pthread_t thread;
	bool	 started;

	struct lane *all;		/* of the job */
	unsigned nr_all;
	struct lane *flusher;		/* of what this one writes */
	atomic_uint due;		/* flushes to be sent */
	atomic_bool *failed;		/* one of them has: the others stop */
	int	 wake;			/* eventfd: look at these */

	struct gio *gios;
	unsigned depth;			/* how many */
	uint32_t *floors;
	struct gio_list idle;		/* the next to become ready first */
	struct gio_list filled;		/* all put, not published */
	struct gio *current;		/* partly on the ring */
	unsigned active;

	/* Its part of the area: sectors from 'base', every 'stride' I/Os. */
	uint64_t base, blocks, stride;
	uint64_t next_block, random;
	uint64_t left;			/* guest I/Os to start */
	unsigned writes;		/* since a flush was due */
	uint64_t now, begun, end;	/* end 0: none */
	uint64_t last_answer, next_progress;
	bool	 event;			/* one came: look at the ring */
	bool	 stopping;
};

/* The first thing that went wrong is the one that is told.  The code. */
int	lane_fail(struct lane *, int, const char *, ...)
	    __attribute__((format(printf, 3, 4)));

/* Until its part is done.  0, or -errno with lane.r. */
int	lane_run(struct lane *);

#endif /* LOOPFRONT_LANE_H */
