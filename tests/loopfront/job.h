/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * job: guest I/Os on one disk, measured and compared.
 *
 * A guest I/O of any size becomes as many requests as it needs, as Linux's
 * block layer makes them of it: of at most 11 segments, or of as many as an
 * indirect one may have.  It is done when the last of them is answered.  The
 * loop of a job is that of a guest: take what was answered, start what may be
 * started, publish, and when there is nothing to do wait for the event (or
 * spin, see options.h).
 *
 * The guest I/Os of a job are shared out to the disk's queues; each queue has a
 * thread, as it has a processor in a guest, and no sector is another's, too.
 */
#ifndef LOOPFRONT_JOB_H
#define LOOPFRONT_JOB_H

#include <stdint.h>
#include <stdio.h>

#include "tests/loopfront/options.h"
#include "tests/loopfront/vbd.h"
#include "tools/hist.h"

enum job_dir { DIR_READ, DIR_WRITE, DIR_FLUSH, DIR_TRIM, DIR_OTHER, NR_DIRS };

struct job_count {
	uint64_t ios, bytes;		/* that ended OKAY */
	struct hist slat;		/* from its start to the publish */
	struct hist clat;		/* from there to its end */
	struct hist lat;		/* both */
};

struct job_result {
	int	 error;			/* 0 or -errno: how it ended */
	char	 why[FQUEUE_WHY];
	uint64_t ns;			/* how long it took */
	uint64_t cpu_ns;		/* ... of CPUs, here */
	struct job_count dir[NR_DIRS];
	uint64_t failed, unsupported;	/* guest I/Os that ended like that */
	uint64_t unexpected;		/* ... in another way than expected */
	uint64_t requests;		/* on the ring */
	uint64_t notifies;		/* that we sent */
	uint64_t unanswered;		/* requests, when the disk went away */
	uint64_t verified;		/* sectors read and found right */
	struct loopguest_counters calls; /* of the backend meanwhile */
};

/*
 * Run one on a connected disk; progress and nothing else goes to 'out'.  The
 * domain's lock is not held, v->busy is set.  0 when every I/O ended as
 * expected with the data expected; else result->error and why.
 */
int	job_run(struct vbd *, const struct options *, struct job_result *,
	    FILE *out);

void	job_report_text(const struct vbd *, const struct options *,
	    const struct job_result *, FILE *);
void	job_report_json(const struct vbd *, const struct options *,
	    const struct job_result *, FILE *);

#endif /* LOOPFRONT_JOB_H */
