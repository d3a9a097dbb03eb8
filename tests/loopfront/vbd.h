/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * vbd: one disk as the guest sees it, and its walk through the states.
 *
 * vbd_step() looks at levels, not at edges: whatever happened, it reads the
 * backend's state again and does what Linux's blkfront does in the state that
 * we are in.
 *
 *	backend \ ours	Initialising	Initialised	Connected    Closed
 *	InitWait	ring, -> 3	-		-	     -
 *	Connected	-		read, -> 4	size again   -
 *	Closing		-> 6		-> 6		stop, -> 6   -
 *	Closed, gone	wait for 2	-> 6		stop, -> 6   let go
 *
 * Like Linux, we go to Closed at once when the backend closes, whatever is in
 * flight; ring and grants are let go when the backend is Closed, too.
 */
#ifndef LOOPFRONT_VBD_H
#define LOOPFRONT_VBD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <xen/io/xenbus.h>

#include "tests/loopfront/domain.h"
#include "tests/loopfront/fqueue.h"
#include "tests/loopfront/verify.h"

struct vbd {
	LIST_ENTRY(vbd) link;
	struct domain *dom;
	uint32_t devid;
	char	 name[32];		/* xvda, or the number */
	char	 front[STORE_PATH / 2];
	char	 back[STORE_PATH / 2];	/* "": unknown yet */
	unsigned back_domid;
	struct options opt;		/* of the next connection */

	enum xenbus_state state, back_state;
	bool	 gone;			/* our directory is not there */
	bool	 open;			/* ring and port are ours */
	bool	 ready;			/* the backend is connected to them */
	bool	 busy;			/* a job works on the ring */
	bool	 leaked;		/* the backend kept something of ours */
	bool	 deaf;			/* its kernel is no more */
	bool	 touched;		/* look at it */
	unsigned connects;
	struct fqueue *queues;		/* when open */
	unsigned nr_queues;

	/* What the backend says; valid when ready. */
	uint64_t sectors;
	unsigned sector_size;
	bool	 readonly, flush, discard;

	struct verify *verify;		/* NULL until something was verified */
	unsigned job_page, job_pages;	/* buffers of the job; 0: none */

	/* Tells a job that the disk is going away. */
	atomic_bool stop;
	int	 kick;			/* eventfd */

	char	 error[FQUEUE_WHY];	/* what went wrong last, or "" */
};

/* "xvda" or a number: 0 or -EINVAL. */
int	vbd_parse(const char *text, uint32_t *devid);
void	vbd_name(uint32_t devid, char name[32]);

const char *vbd_state_name(enum xenbus_state);

/* Everything below: with the domain's lock held. */

/* Its directory has appeared.  0 or -errno. */
int	vbd_new(struct domain *, uint32_t devid, struct vbd **);
void	vbd_free(struct vbd *);
struct vbd *vbd_find(struct domain *, uint32_t devid);

/* Something may have changed: do what is next. */
void	vbd_step(struct vbd *);

/* Make the job give up. */
void	vbd_interrupt(struct vbd *);
/* The job has ended: what it kept open may go now. */
void	vbd_idle(struct vbd *);

/* Wait until the disk is connected / has let go of everything. */
int	vbd_wait_ready(struct vbd *, double seconds);
int	vbd_wait_released(struct vbd *, double seconds);

/*
 * The guest closes the disk: 5, the backend's 5, 6, the backend's 6; and
 * connects again with the options in v->opt: 1, the backend's 2, and on.
 * 0 or -errno with vbd.error.
 */
int	vbd_shut(struct vbd *, double seconds);
int	vbd_reopen(struct vbd *, double seconds);

/*
 * The guest's kernel stops where it is, as for a save: the backend is told
 * nothing, and is not listened to until the disk's directory is another one.
 * What is in flight stays so.
 */
int	vbd_suspend(struct vbd *, double seconds);

/*
 * Another kernel starts in the guest without a word of the old one, and resets
 * the disk as Linux does, with 5 s for each step: 5, the backend's 5, 6, its 6,
 * 1, its 2, and on; or without the first two.
 */
int	vbd_kexec(struct vbd *, bool abrupt, double seconds);

#endif /* LOOPFRONT_VBD_H */
