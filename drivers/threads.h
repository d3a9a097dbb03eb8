/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * threads: some of them that do what blocks, and the engine on them.
 *
 *   channel --waiting--> todo --a thread--> done --reap--> io->done
 *
 * An image has one set of THREADS_MAX, which all its channels share: what is
 * in flight at the storage is bounded per disk however many queues the guest
 * has, and a set per channel would, with 16 channels, cost 16 times the
 * locked stacks.  The libaio engine has a set of one for what has no
 * asynchronous form.  Threads are made at open, before the sandbox, which
 * forbids new ones and allows just what these call (preadv, pwritev,
 * fdatasync, fallocate, BLKDISCARD, futex, write to the eventfd).
 *
 * A reap hands a round over with one call, which wakes one thread; each thread
 * wakes the next if more is to be done, so that I/O that the page cache
 * answers at once does not rouse them all.
 *
 * No I/O of a process that was killed reaches the image after a successor has
 * been told of the death: a thread leaves do_exit() only after its system call
 * has returned (one blocked in the kernel's D state until it does); the
 * threads share one table of files, and the kernel closes those, the socket
 * whose end of file is the only death notice among them, when the last thread
 * has let go of the table (exit_files()).  What a cut-off write has left in
 * the page cache is what the successor, and direct I/O too, finds there.
 */
#ifndef DRIVERS_THREADS_H
#define DRIVERS_THREADS_H

#include <stdatomic.h>

#include "drivers/engine.h"

#define THREADS_MAX 16u

struct threads;

/* Start 'nr' of them, 1 to THREADS_MAX.  'path' is for messages. */
int  threads_open(struct threads **t, unsigned nr, const char *path,
         char why[WHY_MAX]);
void threads_close(struct threads *t);	/* idle; NULL is fine */

/* After a flush that failed all fail, until this.  NULL is fine. */
void threads_forget(struct threads *t);

/* Who has work for them: a channel. */
struct threads_user {
	struct threads      *threads;
	int                  event_fd;	/* raised when something is done */
	engine_discard      *discard;
	bool                 zero_beyond_end;
	struct transfer_list waiting;	/* for threads_push(); the user's */
	_Atomic(struct transfer *) done;	/* the latest first */
	atomic_uint          nr_raising;	/* threads at the eventfd */
};

void threads_user_init(struct threads_user *u, struct threads *t,
         int event_fd, const struct engine_config *c);

/* Nothing waits or is under way any more: event_fd may be closed after this. */
void threads_user_close(struct threads_user *u);

/* Hand over what waits; a system call that 'ch' counts, if there is any. */
void threads_push(struct threads_user *u, struct channel *ch);

/* Add what has ended to 'list'; t->error tells how.  It never blocks. */
void threads_take(struct threads_user *u, struct transfer_list *list);

/* See engine_open(). */
int  threads_engine_open(struct engine **e, struct channel *ch,
         const struct engine_config *c, char why[WHY_MAX]);

#endif
