/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * aio: the libaio engine below the formats; one per channel.
 *
 *   aio_submit --> queue --io_submit--> kernel --> completion ring --> done
 *                    ^                                   |
 *                    +----------- short transfer --------+
 *
 * aio_submit() only queues.  aio_reap() hands the queue over in one system
 * call, at most 128 I/Os at a time (the rest waits its turn), then reads the
 * completion ring, which the kernel maps into this process: no system call
 * is made to learn that something, or nothing, has finished.  An eventfd
 * that the kernel signals at each completion wakes the sleeping caller; see
 * struct channel on how it is watched.
 *
 * A short transfer is continued until all is done: a read that finds the end
 * of the file fails with -EIO (but see aio_zero_beyond_end()), a write that
 * finds no room with -ENOSPC.
 *
 * Flushes go the same way (IO_CMD_FDSYNC).  What has no asynchronous form is
 * done by a helper thread: a flush where the kernel or the file system cannot
 * do that, and every discard.  The thread is made when the engine is opened,
 * because later the sandbox forbids new ones.
 *
 * Nothing is allocated after aio_open().
 */
#ifndef DRIVERS_AIO_H
#define DRIVERS_AIO_H

#include "drivers/driver.h"

struct aio;

/* Discard a range of a file; blocks.  0 or -errno. */
typedef int aio_discard(int fd, uint64_t offset, uint64_t length);

/*
 * An engine for at most 'depth' I/Os at a time on behalf of 'ch', whose
 * event_fd it sets and whose submits it counts.  'fd' (opened from 'path')
 * is the file that is going to be flushed: it is flushed once here, to learn
 * how.  'discard' is called for IO_DISCARD, for a bounded piece at a time; NULL
 * when there will be none.  On failure nothing is open.
 */
int  aio_open(struct aio **aio, struct channel *ch, unsigned depth, int fd,
         aio_discard *discard, const char *path, char why[WHY_MAX]);

/*
 * From now on what a read finds beyond the end of a file is zeroes, as a
 * format has it whose files need not end with a whole cluster.
 */
void aio_zero_beyond_end(struct aio *a);

/* No I/O is in flight, and not called by a done().  NULL is fine. */
void aio_close(struct aio *a);

/* io->offset counts in the file behind 'fd'. */
void aio_submit(struct aio *a, int fd, struct io *io);

/* As the reap() of struct driver. */
unsigned aio_reap(struct aio *a);

#endif
