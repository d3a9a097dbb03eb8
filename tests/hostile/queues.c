/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Attacks of guests with several queues: on how many there are and where, and
 * by what one of them does while the others are used.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hostile/attacks.h"

#define OKAY		BLKIF_RSP_OKAY
#define REQ_PROD	0		/* of the words of a ring's header */
#define RSP_PROD	2

/* Every queue answers. */
static int
honest(struct enemy *e)
{
	unsigned	i;

	for (i = 0; i < e->nr_queues; i++) {
		enemy_use(e, i);
		if (honest_reads(e, 40) < 0)
			return fail("queue %u of %u", i, e->nr_queues);
	}
	return 0;
}

static int
honest_connection(struct enemy *e)
{
	return enemy_connect(e, FRONT_X86_64, 1) < 0 || honest(e) < 0 ? -1 :
	    enemy_disconnect(e);
}

/* ---- nodes -------------------------------------------------------------- */

/* Four queues, and this written over their nodes: refused, for that reason. */
static int
try_node(struct enemy *e, const char *node, const char *value,
    const char *why)
{
	if (enemy_ring(e, FRONT_X86_32, 0) < 0 || (value == NULL ?
	    enemy_remove(e, node) : enemy_write(e, node, value)) < 0 ||
	    enemy_state(e, XenbusStateInitialised) < 0 ||
	    enemy_given_up(e, why) < 0 || enemy_recover(e) < 0)
		return fail("%s = \"%s\"", node, value == NULL ? "(none)" :
		    value);
	return 0;
}

int
attack_queue_counts(struct enemy *e)
{
	static const char *const	bad[] = { "0", "5", "16", "17",
	    "65535", "65537", "4294967295", "4294967297", "-1", "junk", "",
	    "2x", " 2", "0x2", "18446744073709551617" };
	unsigned			i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (try_node(e, "multi-queue-num-queues", bad[i],
		    "multi-queue-num-queues") < 0)
			return -1;
	for (i = 4; i > 0; i--) {
		e->nr_queues = i;
		if (honest_connection(e) < 0)
			return -1;
	}
	/* Fewer than there are nodes of: the rest is not looked at. */
	e->nr_queues = 4;
	if (enemy_ring(e, FRONT_X86_64, 0) < 0 ||
	    enemy_write(e, "multi-queue-num-queues", "2") < 0 ||
	    enemy_state(e, XenbusStateInitialised) < 0 ||
	    enemy_await(e, XenbusStateConnected) < 0)
		return -1;
	if (loopguest_port_bound(e->queue[2].port) ||
	    loopguest_grant_mapped(e->guest, e->queue[2].ring_ref[0]) > 0)
		return fail("a third queue of two is served");
	enemy_use(e, 1);
	return honest_reads(e, 40) < 0 ? -1 : enemy_recover(e);
}

/* What one queue has named another one names, too. */
static int
try_twice(struct enemy *e, const char *node, const char *from)
{
	char		path[160], *value;
	unsigned	n;
	int		rc;

	if (enemy_ring(e, FRONT_X86_32, 0) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/%s", e->front_dir, from);
	value = xs_read(e->xs, XBT_NULL, path, &n);
	if (value == NULL)
		return fail("there is no %s", path);
	rc = enemy_write(e, node, value);
	free(value);
	/* The last part of its name is what the backend tells. */
	if (rc < 0 || enemy_state(e, XenbusStateInitialised) < 0 ||
	    enemy_given_up(e, strchr(node, '/') + 1) < 0 ||
	    enemy_recover(e) < 0)
		return fail("%s as %s", node, from);
	return 0;
}

int
attack_queue_nodes(struct enemy *e)
{
	static const struct { const char *node, *value, *why; } bad[] = {
		{ "queue-1", NULL, "queue-1/ring-ref" },
		{ "queue-0", NULL, "queue-0/ring-ref" },
		{ "queue-3/event-channel", NULL, "queue-3/event-channel" },
		{ "queue-3/ring-ref0", NULL, "queue-3/ring-ref0" },
		{ "queue-2/ring-ref", "junk", "queue-2/ring-ref" },
		{ "queue-2/event-channel", "0", "queue-2/event-channel" },
		{ "queue-2/ring-ref", "30000", "cannot map" },
		{ "queue-3/ring-ref", "0", "cannot map" },
		{ "queue-3/event-channel", "4000", "event channel" },
		{ "queue-1/event-channel", "4294967295", "event channel" },
	};
	static const struct { const char *node, *from; } twice[] = {
		{ "queue-1/ring-ref", "queue-0/ring-ref0" },
		{ "queue-3/ring-ref", "queue-2/ring-ref0" },
		{ "queue-1/event-channel", "queue-0/event-channel" },
		{ "queue-3/event-channel", "queue-0/event-channel" },
	};
	unsigned	i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (try_node(e, bad[i].node, bad[i].value, bad[i].why) < 0)
			return -1;
	for (i = 0; i < sizeof(twice) / sizeof(twice[0]); i++)
		if (try_twice(e, twice[i].node, twice[i].from) < 0)
			return -1;
	/* The third map fails: the first two are taken back. */
	loopguest_fault_map(e->guest, 3, 1, ENOMEM);
	if (enemy_ring(e, FRONT_X86_64, 0) < 0 ||
	    enemy_state(e, XenbusStateInitialised) < 0 ||
	    enemy_given_up(e, "cannot map") < 0 || enemy_recover(e) < 0)
		return fail("a map that fails");
	return honest_connection(e);
}

/* ---- one for all -------------------------------------------------------- */

/*
 * One queue's producer runs away while the others have requests in flight.
 * These are answered, then no queue is served any more.
 */
static int
break_one(struct enemy *e, unsigned broken, uint32_t ref)
{
	uint32_t	answers[MAX_QUEUES_TRIED] = { 0 };
	unsigned	i, n;

	if (enemy_connect(e, FRONT_X86_64, 0) < 0 || honest(e) < 0)
		return -1;
	loopguest_delay_copy(e->guest, 100);
	for (i = 0; i < e->nr_queues; i++) {
		enemy_use(e, i);
		for (n = 0; i != broken && n < 10; n++)
			ask_read(e, ref, n * 8, OKAY);
		enemy_push(e);
	}
	sleep_ms(30);
	enemy_use(e, broken);
	enemy_words(e)[REQ_PROD] += 1000;
	loopguest_port_notify(e->q->port);
	if (enemy_given_up(e, "producer index") < 0)
		return -1;
	loopguest_delay_copy(e->guest, 0);
	for (i = 0; i < e->nr_queues; i++) {
		enemy_use(e, i);
		if (i != broken && enemy_collect(e) < 0)
			return fail("queue %u, when queue %u broke", i, broken);
		answers[i] = enemy_words(e)[RSP_PROD];
		if (i != broken)
			ask_read(e, ref, 0, OKAY);
		enemy_push(e);
		loopguest_port_notify(e->q->port);
	}
	sleep_ms(20);
	for (i = 0; i < e->nr_queues; i++) {
		enemy_use(e, i);
		if (enemy_words(e)[RSP_PROD] != answers[i])
			return fail("queue %u is served, though queue %u is "
			    "broken", i, broken);
	}
	return enemy_recover(e);
}

int
attack_queue_breaks(struct enemy *e)
{
	uint32_t	ref = enemy_grant(e, 0, false);
	unsigned	i;

	for (i = 0; i < 4; i++)
		if (break_one(e, i, ref) < 0)
			return -1;
	enemy_ungrant(e, ref);
	return honest_connection(e);
}

/* ---- one beside the others ---------------------------------------------- */

/* As many requests as its ring holds, answered or not, all the time. */
static void
stuff(struct enemy *e, uint32_t random)
{
	volatile uint32_t	*w = (volatile uint32_t *)(void *)
				    e->queue[0].front.shared;

	(void)random;
	w[REQ_PROD] = w[RSP_PROD] + 32;
	loopguest_port_notify(e->queue[0].port);
}

/* 'rounds' times 8 reads on the second queue; none waits for the first. */
static int
progress(struct enemy *e, unsigned rounds, uint64_t limit_ms)
{
	uint64_t	began = now_ms(), took;
	uint32_t	ref = enemy_grant(e, 0, false);
	unsigned	i, n;

	enemy_use(e, 1);
	for (i = 0; i < rounds; i++) {
		for (n = 0; n < 8; n++)
			ask_read(e, ref, n * 8, OKAY);
		if (enemy_collect(e) < 0)
			return -1;
	}
	took = now_ms() - began;
	enemy_ungrant(e, ref);
	return took < limit_ms ? 0 : fail("%u reads took %lu ms", rounds * 8,
	    (unsigned long)took);
}

/* The slots of the first ring hold reads of as much as a slot can ask for. */
int
attack_queue_stuffed(struct enemy *e)
{
	struct front_request	req = { .op = BLKIF_OP_READ,
				    .nr_segments = 11 };
	uint32_t		ref = enemy_grant(e, 1, false);
	struct flipper		f;
	unsigned		i;
	int			rc;

	for (i = 0; i < 11; i++) {
		req.seg[i].gref = ref;
		req.seg[i].last = 7;
	}
	if (enemy_connect(e, FRONT_X86_64, 0) < 0)
		return -1;
	enemy_use(e, 0);
	/* Answers go over the first bytes of a slot; the rest stays. */
	for (i = 0; i < 32; i++)
		enemy_ask(e, &req, OKAY);
	if (enemy_collect(e) < 0 || flipper_start(&f, e, stuff) < 0)
		return -1;
	rc = progress(e, world.soak ? 5000 : 300, world.soak ? 60000 : 5000);
	flipper_stop(&f);
	loopguest_revoke(e->guest, ref);
	return rc < 0 || enemy_recover(e) < 0 ? -1 : honest_connection(e);
}

/* More writes than the memory holds, none of which is done soon. */
int
attack_queue_hangs(struct enemy *e)
{
	struct front_request	req = { .op = BLKIF_OP_WRITE,
				    .nr_segments = 11 };
	uint32_t		ref = enemy_grant(e, 1, true);
	unsigned		i;

	for (i = 0; i < 11; i++) {
		req.seg[i].gref = ref;
		req.seg[i].last = 7;
	}
	if (enemy_connect(e, FRONT_X86_64, 0) < 0)
		return -1;
	enemy_use(e, 0);
	for (i = 0; i < 3; i++) {
		req.sector = i * 200;
		enemy_ask(e, &req, OKAY);
	}
	enemy_push(e);
	sleep_ms(50);
	if (progress(e, 20, 600) < 0)
		return fail("while the other queue waits for storage");
	enemy_use(e, 0);
	if (e->q->answered > 0 || front_answered(&e->q->front))
		return fail("the storage did not hang");
	if (enemy_collect(e) < 0)
		return -1;
	enemy_ungrant(e, ref);
	return enemy_disconnect(e);
}

/* ---- pages of both ------------------------------------------------------ */

/* One grant, of data or of descriptors, in each request of every queue. */
static int
share(struct enemy *e, uint32_t data, uint32_t descriptors)
{
	struct front_request	req = { .op = BLKIF_OP_INDIRECT,
				    .nr_indirect = 40,
				    .descriptors = descriptors };
	unsigned		i, n;

	for (n = 0; n < 20; n++) {
		for (i = 0; i < e->nr_queues; i++) {
			enemy_use(e, i);
			req.inner = (n + i) & 1 ? BLKIF_OP_WRITE :
			    BLKIF_OP_READ;
			enemy_ask(e, &req, OKAY);
			ask_read(e, data, n * 8, OKAY);
			enemy_push(e);
		}
		/* It vanishes while one of them may have it in use. */
		if (n == 10)
			loopguest_revoke(e->guest, data);
	}
	for (i = 0; i < e->nr_queues; i++) {
		enemy_use(e, i);
		if (enemy_collect(e) < 0)
			return fail("queue %u", i);
	}
	return 0;
}

/* Each queue maps it for itself, and each lets go of it. */
int
attack_queues_share(struct enemy *e)
{
	struct loopguest_counters	c;
	struct front_segment		seg = { .last = 7 };
	uint32_t			data = enemy_grant(e, 0, false);
	uint32_t			list = enemy_grant(e, 1, false);
	unsigned			i;

	seg.gref = data;
	for (i = 0; i < 40; i++)
		front_describe_segment(enemy_data(e, 1), i, &seg);
	if (enemy_connect(e, FRONT_X86_32, 1) < 0)
		return -1;
	for (i = 0; i < e->nr_queues; i++) {
		enemy_use(e, i);
		ask_read(e, data, 0, OKAY);
		ask_read(e, list, 4096, ANY);
		if (enemy_collect(e) < 0)
			return -1;
	}
	for (i = 0; i < 40; i++)
		front_describe_segment(enemy_data(e, 1), i, &seg);
	if (share(e, data, list) < 0)
		return -1;
	if (loopguest_grant_mapped(e->guest, list) != e->nr_queues)
		return fail("a page of two queues is mapped %u times",
		    loopguest_grant_mapped(e->guest, list));
	if (enemy_disconnect(e) < 0)
		return -1;
	loopguest_counters(e->guest, &c);
	loopguest_ungrant(e->guest, list);
	return c.mapped_now == 0 ? 0 : fail("%lu pages are mapped after "
	    "Closed", (unsigned long)c.mapped_now);
}

/* What is read through one queue goes into the rings of all. */
int
attack_queues_as_data(struct enemy *e)
{
	unsigned	i, round;

	for (round = 0; round < 4; round++) {
		if (enemy_connect(e, round & 1 ? FRONT_X86_32 : FRONT_X86_64,
		    0) < 0 || honest(e) < 0)
			return -1;
		enemy_use(e, round);
		for (i = 0; i < e->nr_queues; i++)
			ask_read(e, e->queue[i].ring_ref[0], i * 8, ANY);
		enemy_push(e);
		/* The image is random: the producers are now far away. */
		for (i = 0; i < e->nr_queues; i++)
			loopguest_port_notify(e->queue[i].port);
		if (enemy_await(e, XenbusStateClosing) < 0 ||
		    enemy_recover(e) < 0)
			return -1;
	}
	return honest_connection(e);
}

/* ---- coming and going --------------------------------------------------- */

/* Another number of them each time, with requests in flight at the end. */
int
attack_queues_come_and_go(struct enemy *e)
{
	unsigned	i, k, n, rounds = world.soak ? 2000 : 32;
	uint32_t	ref = enemy_grant(e, 0, false);
	struct usage	before;
	pid_t		pid = 0;

	for (n = 0; n < rounds; n++) {
		e->nr_queues = n * 7 % 4 + 1;
		if (enemy_connect(e, FRONT_X86_64, n % 3) < 0)
			return fail("connection %u", n);
		for (i = 0; i < e->nr_queues; i++) {
			enemy_use(e, i);
			for (k = 0; k < 20; k++)
				ask_read(e, ref, k * 8, OKAY);
			enemy_push(e);
			if (n % 2 == 0 && enemy_collect(e) < 0)
				return fail("connection %u", n);
		}
		if (enemy_recover(e) < 0)
			return fail("connection %u", n);
		/* Each queue has been used once. */
		if (n == 4)
			pid = enemy_process(e);
		if (n == 4 && usage_get(pid, &before) < 0)
			return -1;
	}
	if (enemy_process(e) != pid)
		return fail("it is not the same disk process");
	enemy_ungrant(e, ref);
	return usage_same("its disk process", &before, pid);
}
