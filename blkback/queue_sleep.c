/* SPDX-License-Identifier: GPL-2.0-or-later */
/* queue_sleep: events, and what precedes and follows a sleep (see queue.h). */
#include <errno.h>
#include <string.h>

#include "blkback/queue.h"

/* Events without requests that are forgiven before they are slowed down. */
#define SPURIOUS_FREE   16
#define SPURIOUS_MAX_MS 64

void
queue_unmask(struct queue *q)
{
	if (!q->masked)
		return;
	q->masked = false;
	if (xenevtchn_unmask(q->evtchn, q->port) != 0)
		log_guest(&q->log, "cannot unmask event channel %d: %s",
		    q->port, strerror(errno));
}

bool
queue_arm(struct queue *q)
{
	/* What is in flight, or a command, will wake us. */
	if (queue_blocked(q))
		return false;
	q->armed = true;
	if (ring_arm(&q->ring))
		return true;
	if (queue_timeout(q) < 0)
		queue_unmask(q);
	return false;
}

void
queue_disarm(struct queue *q)
{
	if (q->armed)
		ring_disarm(&q->ring);
	q->armed = false;
}

int
queue_timeout(const struct queue *q)
{
	unsigned ms;

	if (!q->masked || q->spurious <= SPURIOUS_FREE)
		return -1;
	ms = q->spurious - SPURIOUS_FREE;
	return ms < SPURIOUS_MAX_MS ? ms : SPURIOUS_MAX_MS;
}

void
queue_event(struct queue *q)
{
	xenevtchn_port_or_error_t port = xenevtchn_pending(q->evtchn);

	if (port < 0)
		return;		/* somebody else's wake-up */
	if (port != q->port)
		return;		/* of a connection that is gone */
	q->masked = true;
	q->spurious++;
	q->page->stats.events++;
}
