/* SPDX-License-Identifier: GPL-2.0-or-later */
/* poll: the arithmetic of poll.h. */
#include <string.h>

#include "blkback/poll.h"

#define FIRST_GAP_NS 20000u	/* what is expected before anything is known */
#define WAKE_NS      60000u	/* from the end of a nap until we run */
#define SHORT_NS     100000u	/* a nap below this is not worth it */
#define LEAST_NS     20000u	/* spin at least so long past the mean */
#define LONGEST_NS   (4ull * POLL_AUTO_NS)	/* longer gaps count as this */
#define MISSES       4u		/* forgiven */
#define MOST_SKIPS   64u
#define CROWDED      10u	/* per cent of the time spent waiting */
#define RELAXED      3u

void
poll_init(struct poller *p, uint32_t window_us)
{
	memset(p, 0, sizeof(*p));
	p->window_us = window_us;
	p->gap[0].mean_ns = p->gap[1].mean_ns = FIRST_GAP_NS;
}

static struct poll_gap *
poll_gap(struct poller *p)
{
	return &p->gap[p->inflight];
}

/* As TCP estimates round trips. */
static void
gap_learn(struct poll_gap *g, uint64_t ns)
{
	int64_t error;

	if (ns > LONGEST_NS)
		ns = LONGEST_NS;
	error = (int64_t)ns - (int64_t)g->mean_ns;
	g->mean_ns = (uint64_t)((int64_t)g->mean_ns + error / 8);
	if (error < 0)
		error = -error;
	g->deviation_ns = (uint64_t)((int64_t)g->deviation_ns +
	    (error - (int64_t)g->deviation_ns) / 4);
}

void
poll_work(struct poller *p, uint64_t now_ns)
{
	if (!poll_is_idle(p))
		return;
	gap_learn(poll_gap(p), now_ns - p->idle_since_ns);
	if (p->spun)
		poll_gap(p)->missed = 0;
	if (poll_gap(p)->skip > 0)
		poll_gap(p)->skip--;
	p->idle_since_ns = 0;
}

static void
idle_begin(struct poller *p, uint64_t now_ns, bool inflight)
{
	p->idle_since_ns = now_ns;
	p->inflight = inflight;
	p->spun = false;
}

/*
 * The spin is over and nothing came.  Twice as many idle periods are slept
 * through after each such run of bad luck.
 */
static void
gap_missed(struct poll_gap *g)
{
	unsigned n;

	if (++g->missed <= MISSES)
		return;
	n = g->missed - MISSES;
	g->skip = n < 6 ? 1u << n : MOST_SKIPS;
}

static enum poll_decision
idle_adaptive(struct poller *p, uint64_t waited, uint64_t *nap_ns)
{
	struct poll_gap *g = poll_gap(p);
	uint64_t from, to, lead = 2 * g->deviation_ns + WAKE_NS;

	to = g->mean_ns + 4 * g->deviation_ns + LEAST_NS;
	if (p->crowded || g->skip > 0 || to > POLL_AUTO_NS)
		return POLL_SLEEP;
	from = g->mean_ns > lead + SHORT_NS ? g->mean_ns - lead : 0;
	if (waited < from) {
		*nap_ns = from - waited;
		return POLL_NAP;
	}
	if (waited < to) {
		p->spun = true;
		return POLL_SPIN;
	}
	if (p->spun)
		gap_missed(g);
	p->spun = false;
	return POLL_SLEEP;
}

enum poll_decision
poll_idle(struct poller *p, uint64_t now_ns, bool inflight, uint64_t *nap_ns)
{
	if (!poll_is_idle(p))
		idle_begin(p, now_ns, inflight);
	if (p->window_us == POLL_AUTO)
		return idle_adaptive(p, now_ns - p->idle_since_ns, nap_ns);
	return now_ns - p->idle_since_ns < p->window_us * 1000ull ?
	    POLL_SPIN : POLL_SLEEP;
}

void
poll_delay(struct poller *p, uint64_t now_ns, uint64_t delay_ns)
{
	uint64_t elapsed = now_ns - p->looked_ns;
	uint64_t percent = (delay_ns - p->delay_ns) * 100 / elapsed;

	/* The first look, or one after a long sleep, says nothing. */
	if (p->looked_ns != 0 && elapsed < 10ull * POLL_LOOK_NS)
		p->crowded = percent >= (p->crowded ? RELAXED : CROWDED);
	else
		p->crowded = false;
	p->looked_ns = now_ns;
	p->delay_ns = delay_ns;
}
