/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * queue: one ring with its event channel, requests and I/O channel.
 *
 * Everything here runs on the one thread that owns the queue, shares nothing
 * with other queues of the disk but the image and whether a flush has failed,
 * and works in rounds:
 *
 *   take requests while the arena has room     queue_take()
 *     -> fetch write data: one grant copy      queue_start()
 *     -> merge neighbours, submit once
 *     -> reap what has finished                channel_reap()
 *     -> hand over read data: one grant copy   queue_answer()
 *     -> all responses, one publish, at most one event
 *
 * A round takes no more than 128 KiB of data, or one request, or one merged
 * I/O if that may be larger: a guest whose requests are answered a few at a
 * time goes on while the next ones are copied and, where the submitting thread
 * does that (tmpfs, the page cache), read or written.  Measured on tmpfs at
 * depth 32, that is worth 1.4 to 1.5 times the throughput at 64k and 256k.  At
 * 4k rounds of 64 KiB would be worth as much, but each costs its calls, and 32
 * requests of 4k published together are to cost one of each.
 *
 * There is one request per ring slot, so a ring that passed ring_pending() can
 * never find the pool empty; a request that finds the arena full waits, and
 * with it everything behind it in the ring.
 */
#ifndef BLKBACK_QUEUE_H
#define BLKBACK_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <xenevtchn.h>

#include "blkback/arena.h"
#include "blkback/grant.h"
#include "blkback/log.h"
#include "blkback/merge.h"
#include "blkback/page.h"
#include "blkback/persistent.h"
#include "blkback/request.h"
#include "ring/ring.h"

#define ROUND_BYTES (128u << 10)

struct queue {
	/* From queue_open() to queue_close(). */
	_Alignas(64)		/* each is written by another thread */
	const struct arena   *memory;	/* borrowed: the disk's */
	struct grant          grant;
	struct persistent    *persistent;	/* NULL: not offered */
	xenevtchn_handle     *evtchn;
	struct channel       *channel;	/* owned */
	struct request       *reqs;	/* RING_MAX_SLOTS of them */
	struct page_queue    *page;	/* borrowed: counters and slots */
	_Atomic uint32_t     *failed;	/* borrowed: the disk's, see page.h */
	unsigned              number;	/* in the page and in a connection */
	struct request_limits limits;
	struct merger         merger;
	struct log_limit      log;
	uint8_t              *descriptors;	/* pages of indirect requests */
	uint32_t              poll_us;
	uint32_t              round_pages;	/* taken in one round, about */
	uint16_t              segments;	/* offered; of one request */
	enum on_error         on_error;

	/* From queue_connect() to queue_disconnect(). */
	struct arena          arena;	/* its share */
	struct ring           ring;
	void                 *shared;	/* NULL: not connected */
	unsigned              order;
	int                   port;	/* ours, bound; -1 */
	bool                  masked;	/* we hold an event of it */
	bool                  armed;	/* the ring: a request sends an event */
	bool                  stay_mapped;	/* the guest's pages */
	bool                  draining;	/* take nothing more */
	bool                  refuse;	/* RESUME_FAIL: ERROR for everything */
	const char           *broken;	/* why nothing more is taken, or NULL */
	unsigned              spurious;	/* events in a row without a request */
	unsigned              inflight;	/* taken, not yet answered */
	unsigned              nr_descriptors;	/* to fetch in this round */
	struct request_list   free;
	struct request_list   round;	/* taken in this round, data to come */
	struct request_list   done;	/* to be answered in this round */
	struct request_list   waiting;	/* taken, but the arena is full, or */
					/* a barrier that is not its turn yet */
	struct request       *barrier;	/* is taken: nothing passes it */
	struct request_list   held;	/* failed, and wait for queue_retry() */
	int                   stopped;	/* -errno of the first of them, or 0 */
	uint64_t              now_ns;	/* of this round */
};

/*
 * Everything that needs a privilege or memory: grant and event channel
 * handles, requests, I/O channel.  'img' need not be active; 'memory' is the
 * disk's arena, 'number' says which queue of the page it is.  On failure q is
 * as empty as after queue_close(), which is fine to call again.
 */
int  queue_open(struct queue *q, struct image *img, uint16_t domid,
         const struct disk_spec *spec, const struct arena *memory,
         struct page *page, unsigned number, char why[WHY_MAX]);
void queue_close(struct queue *q);

/*
 * Map its ring of 'c', bind the port, take its share of the memory.  With a
 * 'resume' other than RESUME_NO go on as the page says instead of where the
 * frontend says: the rest of page.h's promise.  On failure nothing is mapped or
 * bound; -ESTALE when the page contradicts itself.
 */
int  queue_connect(struct queue *q, const struct message_connect *c,
         enum resume_mode resume, char why[WHY_MAX]);

static inline bool
queue_connected(const struct queue *q)
{
	return q->shared != NULL;
}

/* Unmap, unbind.  Only when queue_idle(); fine when not connected. */
void queue_disconnect(struct queue *q);

/* One round.  True: it found something to do. */
bool queue_round(struct queue *q);

/*
 * After a stop (on-error=stop...): issue again what failed.  What fails once
 * more stops the queue once more; while draining, it is answered with ERROR.
 */
void queue_retry(struct queue *q);

/* Nothing of the guest's is in our hands. */
static inline bool
queue_idle(const struct queue *q)
{
	return q->inflight == 0;
}

/* Is nothing to be taken off the ring, whatever lies there? */
static inline bool
queue_blocked(const struct queue *q)
{
	return q->draining || q->broken != NULL || q->barrier != NULL ||
	    q->stopped != 0 || !STAILQ_EMPTY(&q->waiting);
}

/*
 * Before sleeping: ask for an event and, unless a storm is held back, let the
 * port's events through again.  True: look once more instead, something came
 * in between.
 */
bool queue_arm(struct queue *q);

/* The thread is going to look by itself: no event is wanted after all. */
void queue_disarm(struct queue *q);

/*
 * How long to sleep at most, in ms: -1, or, while events come without
 * requests, the time after which to call queue_unmask().
 */
int  queue_timeout(const struct queue *q);
void queue_unmask(struct queue *q);

/* The event channel's descriptor is readable. */
void queue_event(struct queue *q);

#endif
