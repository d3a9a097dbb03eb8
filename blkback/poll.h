/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * poll: when a queue that ran dry shall spin, nap or sleep.
 *
 * Pure: times come in, decisions go out.  An *idle period* begins when a round
 * found nothing and ends with the next that found something; its length is
 * the *gap*.  poll=N spins for N microseconds of each idle period, then
 * sleeps.  poll=auto learns how long gaps are, and how much they differ:
 *
 *      0            mean - lead            mean + margin
 *      |---- nap ----|-------- spin --------|------ sleep -------->
 *
 * A nap ends by itself, a sleep only by an event; both are ended early by one,
 * for the ring is armed meanwhile.  Gaps too short for a nap are all spin;
 * those whose end lies beyond POLL_AUTO_NS, or that cannot be foretold, are all
 * sleep.  So is everything while the host is short of CPU: a spinning
 * backend would then take from the guest what it waits for.
 *
 * Gaps with I/O in flight (the storage's answer) and without (the guest's next
 * request) are learned apart.
 */
#ifndef BLKBACK_POLL_H
#define BLKBACK_POLL_H

#include <stdbool.h>
#include <stdint.h>

#define POLL_AUTO    UINT32_MAX	/* poll=auto, instead of microseconds */
#define POLL_AUTO_NS 8000000u	/* no spinning later than this in a gap */
#define POLL_LOOK_NS 100000000u	/* how often the run-queue delay is asked for */

enum poll_decision { POLL_SPIN, POLL_NAP, POLL_SLEEP };

struct poll_gap {
	uint64_t mean_ns, deviation_ns;
	unsigned missed;	/* spins in a row that ended without work */
	unsigned skip;		/* idle periods to sleep through, for that */
};

struct poller {
	uint32_t        window_us;	/* POLL_AUTO: adaptive */
	struct poll_gap gap[2];		/* with I/O in flight: [1] */
	bool            inflight;	/* in this idle period */
	bool            spun;		/* in this idle period */
	bool            crowded;	/* the host is short of CPU */
	uint64_t        idle_since_ns;	/* 0: there is work */
	uint64_t        looked_ns, delay_ns;	/* at the last look */
};

void poll_init(struct poller *p, uint32_t window_us);

/* A round found work.  'now_ns' is asked for only if poll_is_idle(). */
void poll_work(struct poller *p, uint64_t now_ns);

static inline bool
poll_is_idle(const struct poller *p)
{
	return p->idle_since_ns != 0;
}

/*
 * A round found nothing: what to do.  *nap_ns: for how long, with POLL_NAP.
 */
enum poll_decision poll_idle(struct poller *p, uint64_t now_ns, bool inflight,
        uint64_t *nap_ns);

/* Is it time to say how long this thread has waited for a CPU? */
static inline bool
poll_wants_delay(const struct poller *p, uint64_t now_ns)
{
	return p->window_us == POLL_AUTO &&
	    now_ns - p->looked_ns >= POLL_LOOK_NS;
}

/* 'delay_ns' is the sum since its start, the second number of schedstat. */
void poll_delay(struct poller *p, uint64_t now_ns, uint64_t delay_ns);

#endif
