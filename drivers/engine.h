/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine: how a format's I/O gets to a file; one per channel.
 *
 *   aio      libaio: direct I/O, which the kernel does by itself (aio.c)
 *   threads  some threads of the image's, which block instead of the channel:
 *            the only way to the page cache (threads.c)
 *
 * engine_submit() only queues.  engine_reap() hands the queue over with as few
 * system calls as there can be and completes what has finished; it makes none
 * to learn that nothing has.  An eventfd wakes the sleeping caller; see struct
 * channel on how it is watched.
 *
 * A short transfer is continued until all is done: a read that finds the end
 * of the file fails with -EIO (but see 'zero_beyond_end'), a write that finds
 * no room with -ENOSPC.
 *
 * Nothing is allocated and no thread is made after engine_open(), because later
 * the sandbox forbids it.
 */
#ifndef DRIVERS_ENGINE_H
#define DRIVERS_ENGINE_H

#include "drivers/driver.h"

struct threads;
struct threads_user;

/* Discard a range of a file; blocks.  0 or -errno. */
typedef int engine_discard(int fd, uint64_t offset, uint64_t length);

struct engine_config {
	struct threads *threads;	/* NULL: aio */
	unsigned        depth;		/* I/Os at a time, at most */
	int             fd;	/* what is going to be flushed; aio flushes */
				/* it once at open, to learn how */
	const char     *path;	/* from which it was opened; for messages */
	engine_discard *discard;	/* for IO_DISCARD, of a bounded piece */
				/* at a time; NULL when there will be none */
	bool zero_beyond_end;	/* what a read finds there is zeroes, as a */
				/* format has it whose files need not end */
				/* with a whole cluster */
	bool no_flush;		/* threads: flushes succeed, doing nothing */
};

struct engine {
	const struct engine_ops *ops;
};

struct engine_ops {
	void     (*close)(struct engine *e);
	void     (*submit)(struct engine *e, int fd, struct io *io);
	unsigned (*reap)(struct engine *e);
};

/*
 * What the options ask of an image that is to have channels: its threads, or
 * NULL where aio does it all.  -errno with 'why'.
 */
int engine_prepare(struct threads **threads, const struct image_options *opt,
        char why[WHY_MAX]);

/*
 * An engine on behalf of 'ch', whose event_fd it sets and whose submits it
 * counts.  On failure nothing is open.
 */
int engine_open(struct engine **e, struct channel *ch,
        const struct engine_config *c, char why[WHY_MAX]);

/* No I/O is in flight, and not called by a done(). */
static inline void
engine_close(struct engine *e)
{
	e->ops->close(e);
}

/* io->offset counts in the file behind 'fd'. */
static inline void
engine_submit(struct engine *e, int fd, struct io *io)
{
	e->ops->submit(e, fd, io);
}

/* As the reap() of struct driver. */
static inline unsigned
engine_reap(struct engine *e)
{
	return e->ops->reap(e);
}

/*
 * For the engines.
 */

/* One I/O and what is left of it. */
struct transfer {
	struct io    *io;
	int           fd;
	struct iovec *iov;
	int           iovcnt;
	uint64_t      offset;	/* bytes */
	uint64_t      left;
	uint32_t      block;	/* bytes; direct I/O cannot go on inside one */
	int           error;	/* -errno, of one that is finished */
	struct threads_user *user;	/* for threads.c */
	struct transfer     *next;	/* likewise */
	STAILQ_ENTRY(transfer) link;
};
STAILQ_HEAD(transfer_list, transfer);

void transfer_begin(struct transfer *t, const struct channel *ch, int fd,
         struct io *io);

/* What one call can carry of its vector. */
int  transfer_iovcnt(const struct transfer *t);

/*
 * What the kernel says about the part that it was given: bytes or -errno.
 * True when there is more to do; else t->error is how it ended.
 */
bool transfer_goes_on(struct transfer *t, long res, bool zero_beyond_end);

/* The eventfd of a channel; -errno with 'why'. */
int  engine_eventfd(const char *path, char why[WHY_MAX]);

/* Raise an edge by hand. */
void engine_raise(int event_fd);

#endif
