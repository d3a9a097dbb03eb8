/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * worker: a thread of a disk process that serves one or more queues.
 *
 * It goes round its queues while one of them has work; then it spins as the
 * poller says, the rings' req_event behind so that the guest sends no events;
 * then it arms all of them, looks once more and sleeps.
 *
 * The main thread tells it what to do with one command at a time.  The command
 * word is handed over with release and handed back the same way when it is
 * done; meanwhile arguments, results and the queues are the worker's, else the
 * arguments and results are the main thread's.  A queue that is connected is
 * the worker's in any case.
 */
#ifndef BLKBACK_WORKER_H
#define BLKBACK_WORKER_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "blkback/poll.h"
#include "blkback/queue.h"

enum worker_command {
	WORKER_NONE,		/* done, or nothing to do */
	WORKER_CALL,		/* call(arg, why), which may block */
	WORKER_CONNECT,		/* its queues that are in 'connect' */
	WORKER_DISCONNECT,	/* take nothing more; done when it is idle */
	WORKER_EXIT,
};

/* What all workers of a disk share. */
struct worker_team {
	int done_fd;		/* eventfd: a command is done, or the disk is */
				/* broken, or stopped, or goes on */
	/*
	 * Why the first queue that broke did, NULL if none did: no queue takes
	 * any more requests.  The main thread clears it when none is connected.
	 */
	_Atomic(const char *) broken;
};

struct worker {
	/* From before worker_start(): which queues it is to serve. */
	struct queue       *queue[MAX_QUEUES];
	unsigned            nr_queues;

	/* Of the command. */
	_Atomic int         command;	/* enum worker_command */
	const struct message_connect *connect;
	enum resume_mode    resume;
	int               (*call)(void *arg, char why[WHY_MAX]);
	void               *arg;
	int                 error;	/* result: 0 or -errno */
	char                why[WHY_MAX];

	struct worker_team *team;	/* NULL: not started */
	unsigned            number;	/* for the thread's name */
	pthread_t           thread;
	bool                running;
	sem_t               started;	/* it has opened what it needs */
	int                 wake_fd;	/* eventfd: see 'command', 'retry' */
	int                 epoll_fd;
	atomic_bool         retry;
	_Atomic int         stopped;	/* -errno while requests are held */

	/* The thread's own. */
	_Alignas(64)
	struct poller       poller;
	uint32_t            poll_us;
	uint64_t            nap_ns;	/* sleep no longer than this; 0: do */
	unsigned            nr_connected;
	bool                draining;	/* WORKER_DISCONNECT is under way */
	bool                slept;	/* since there was work */
	int                 delay_fd;	/* schedstat of the thread, or -1 */
};

/*
 * Open what the thread needs and start it; its queues are open.  When this
 * returns, the thread makes no system call any more that the sandbox forbids.
 * 0 or -errno; worker_stop() in either case.
 */
int  worker_start(struct worker *w, unsigned number, struct worker_team *team,
         uint32_t poll_us);

/* End the thread; none of its queues is connected.  Fine to call again. */
void worker_stop(struct worker *w);

/* A command; not while it is busy with another one. */
void worker_post(struct worker *w, enum worker_command command);

static inline bool
worker_busy(const struct worker *w)
{
	return atomic_load_explicit(&w->command, memory_order_acquire) !=
	    WORKER_NONE;
}

/* At any time: have it issue again what waits (queue_retry()). */
void worker_retry(struct worker *w);

#endif
