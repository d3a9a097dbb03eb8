/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * look: what the page files of disks say, for a person.
 *
 * Everything is read from copies (read(), no mapping), so whoever damages a
 * page file, or cuts it off meanwhile, can make these functions say nothing
 * or something wrong of that one disk, and no more.  Neither ringbackd nor
 * the process of the disk is asked: both may hang, or be dead.
 */
#ifndef BLKBACK_LOOK_H
#define BLKBACK_LOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "blkback/page.h"
#include "blkback/vdev.h"

struct look_disk {
	uint32_t domid, devid;
	char     vdev[VDEV_NAME_MAX];
	int      error;			/* 0; -errno: the page file cannot be */
					/* read; what follows is zero */
	uint64_t instance;		/* of the page file; each attach has */
					/* one of its own */
	pid_t    pid;			/* of its process; 0: it is dead */
	uint64_t started;		/* tells processes of one pid apart */
	uint64_t cpu_ns;		/* that it has used */
	bool     connected;
	bool     persistent;		/* grants */
	bool     failed;		/* a flush failed */
	uint32_t queues;		/* in use; 0: not connected */
	uint32_t queues_offered;
	uint64_t inflight;
	struct page_stats stats;	/* of all queues */
};

enum look_stage {
	LOOK_TAKEN, LOOK_ROOM, LOOK_BARRIER, LOOK_COPY, LOOK_STORAGE,
	LOOK_METADATA, LOOK_HELD, LOOK_ANSWER, LOOK_UNKNOWN, LOOK_NR_STAGES
};

struct look_request {
	uint32_t queue;
	uint64_t id;			/* the guest's */
	int      op;			/* enum page_op; -1: none of them */
	uint64_t sector;		/* of 512 bytes; 0 for a flush */
	int64_t  sectors;		/* -1: not known (yet) */
	int64_t  age_ns;		/* since it was taken; -1: not known */
	enum look_stage stage;
};

/*
 * The disks that have a page file in the run directory, by number, as
 * look_disk() finds them; 'disks' is to be freed.  0 or -errno.
 */
int  look_disks(const char *run_dir, struct look_disk **disks, size_t *nr);

/* domid and devid are given, the rest is filled in. */
void look_disk(const char *run_dir, struct look_disk *d);

/*
 * What is in flight of one disk, by queue and slot; 'reqs' is to be freed.
 * 0 or -errno.
 */
int  look_requests(const char *run_dir, const struct look_disk *d,
         struct look_request **reqs, size_t *nr);

/*
 * Is slot i of the copy of a queue in flight, and what is it?  Pure; the
 * copy may hold anything.  'now_ns' is CLOCK_MONOTONIC.
 */
bool look_slot(const struct page_queue *q, uint32_t i, uint64_t now_ns,
         struct look_request *r);

/* How many are, by the indices of the copy; 0 if they make no sense. */
uint32_t look_inflight(const struct page_queue *q);

/* A word for each. */
extern const char *const look_op_names[PAGE_NR_OPS];
extern const char *const look_stage_names[LOOK_NR_STAGES];

#endif
