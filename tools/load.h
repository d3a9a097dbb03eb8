/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * load: keep a disk image busy through its driver, and count what it does.
 *
 * A thread and a channel for each of a job's parallel jobs, as a disk process
 * has them; each keeps 'depth' I/Os in flight within its own part of the range
 * and issues the next one when one is done.  What a thread does with nothing
 * to do is the disk process's way too: it polls for a while, then it sleeps.
 *
 *   load_open -> (the sandbox) -> load_activate -> load_run ... -> load_close
 *
 * Everything that needs a privilege or a new thread is done by load_open().
 */
#ifndef TOOLS_LOAD_H
#define TOOLS_LOAD_H

#include "drivers/driver.h"
#include "tools/hist.h"

enum load_rw {
	LOAD_RANDREAD, LOAD_RANDWRITE, LOAD_READ, LOAD_WRITE, LOAD_RANDRW,
};

struct load_job {
	const char  *name;
	enum load_rw rw;
	unsigned     read_percent;	/* of RANDRW */
	uint64_t     block;		/* bytes of one I/O */
	unsigned     depth;		/* I/Os in flight, of each thread */
	unsigned     threads;
	uint64_t     ns;		/* how long */
	uint64_t     range;		/* bytes from the start; 0: all */
	uint64_t     seed;
	bool         flush;		/* after each write */
	bool         verify;
};

struct load_count {
	uint64_t    ios, bytes;
	struct hist latency;		/* ns */
};

struct load_result {
	uint64_t          ns;
	struct load_count read, write, flush;
	uint64_t          submits;	/* system calls of the drivers */
	uint64_t          metadata_writes;	/* a last flush included */
	uint64_t          verified;	/* blocks that were compared */
};

struct load;

/* Does it write to the disk? */
bool load_writes(const struct load_job *job);

/* For any of 'jobs'; 'spec' is what messages call the disk, and stays alive. */
int  load_open(const struct image_options *opt, const char *spec,
         uint32_t poll_us, const struct load_job *jobs, size_t nr_jobs,
         struct load **load, char why[WHY_MAX]);

/* Take the image's locks; from here on what the image says is followed. */
int  load_activate(struct load *l, char why[WHY_MAX]);

/* The range that 'job' uses; -EINVAL: the job does not fit the disk. */
int  load_fits(const struct load *l, const struct load_job *job,
         uint64_t *range, char why[WHY_MAX]);

/* A job that fits.  *result is counted up from what it is. */
int  load_run(struct load *l, const struct load_job *job,
         struct load_result *result, char why[WHY_MAX]);

/* Flushed, unlocked and closed, also when it fails.  NULL is fine. */
int  load_close(struct load *l, char why[WHY_MAX]);

/* For signal handlers: let what runs end early, with -EINTR. */
void load_interrupt(void);

#endif
