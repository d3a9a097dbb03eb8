/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * domain: a guest that loopfront plays, with its memory, its nodes in xenstore
 * and its disks.
 *
 * One thread (domain_run) hears xenstore and lets every disk take its next
 * step; others give commands and wait for what comes of them.  What they share
 * is under one lock, which is also the lock of the xenstore handle; a running
 * I/O job works on its ring without it.
 */
#ifndef LOOPFRONT_DOMAIN_H
#define LOOPFRONT_DOMAIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "tests/loopfront/options.h"
#include "tests/loopfront/store.h"
#include "tests/loopxen/guest.h"

struct vbd;
LIST_HEAD(vbd_list, vbd);

struct domain {
	pthread_mutex_t lock;
	pthread_cond_t changed;		/* a disk, or 'stopping' */
	struct loopguest *guest;
	struct xs_handle *xs;
	unsigned domid;
	bool	 hidden;
	char	 path[64];		/* /local/domain/<domid> */
	char	 vm[64];		/* /vm/<uuid> */
	struct options defaults;	/* of a connection */
	struct vbd_list vbds;
	uint8_t	*page_used;		/* one byte per page */
	int	 stop_fd;		/* somebody wrote: look at these: */
	bool	 stopping;		/* the domain is to end */
	bool	 interrupt;		/* give up waiting and I/O */
	bool	 ended;			/* domain_run() is to return */
};

/* Create it as xl does.  0 or -errno; a line on stderr says what failed. */
int	domain_open(struct domain **, const struct options *);
/* No command runs any more, nor does domain_run().  Its nodes are removed. */
void	domain_close(struct domain *);

/*
 * Follow xenstore until domain_end(), and set 'stopping' when something is
 * written to stop_fd, as domain_stop() and signal handlers do.  0 or -errno.
 */
int	domain_run(struct domain *);
void	domain_stop(struct domain *);
void	domain_end(struct domain *);
/* With the lock held: make commands give up what they wait for, or not. */
void	domain_interrupt(struct domain *, bool);

static inline void
domain_lock(struct domain *d)
{
	pthread_mutex_lock(&d->lock);
}

static inline void
domain_unlock(struct domain *d)
{
	pthread_mutex_unlock(&d->lock);
}

/*
 * With the lock held: sleep until something changed or the time has come
 * (nanoseconds of CLOCK_MONOTONIC).  0 or -ETIMEDOUT.
 */
int	domain_wait(struct domain *, uint64_t until_ns);

/* The first of n pages in a row, or -ENOMEM; with the lock held. */
int	domain_pages_alloc(struct domain *, unsigned n);
void	domain_pages_free(struct domain *, unsigned first, unsigned n);

uint64_t clock_ns(void);

#endif /* LOOPFRONT_DOMAIN_H */
