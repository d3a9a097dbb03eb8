/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Attacks on pages that stay mapped.  What a guest may do to a grant that is
 * mapped is little in life (Xen keeps the page); here it may do anything.
 */
#include <string.h>

#include "tests/hostile/attacks.h"

#define OKAY		BLKIF_RSP_OKAY
#define ERROR		BLKIF_RSP_ERROR
#define DISK_SECTORS	8192u		/* of the image: 4 MiB */
#define MOST		256u		/* segments, as offered */
#define FEW_PAGES	16u		/* memory=64k */
#define MANY_PAGES	256u		/* memory=1m */
#define NR_PAGES	16u		/* that are played with */

static const enum front_abi both[] = { FRONT_X86_64, FRONT_X86_32 };

static void
ask(struct enemy *e, uint8_t op, uint8_t n, uint64_t sector, uint32_t ref,
    int status)
{
	struct front_request	req = { .op = op, .nr_segments = n,
				    .sector = sector };
	unsigned		i;

	for (i = 0; i < FRONT_MAX_SEGMENTS; i++) {
		req.seg[i].gref = ref;
		req.seg[i].last = 7;
	}
	enemy_ask(e, &req, status);
}

static uint64_t
mapped_now(struct enemy *e)
{
	struct loopguest_counters	c;

	loopguest_counters(e->guest, &c);
	return c.mapped_now;
}

static uint64_t
segments_copied(struct enemy *e)
{
	struct loopguest_counters	c;

	loopguest_counters(e->guest, &c);
	return c.copy_segments;
}

/* Beside the ring. */
static int
mapped_at_most(struct enemy *e, uint64_t n)
{
	uint64_t	now = mapped_now(e) - (e->nr_queues << e->order);

	return now <= n ? 0 : fail("%lu pages are mapped, not %lu",
	    (unsigned long)now, (unsigned long)n);
}

/* Whatever became of its grant, every page is let go of. */
static int
disconnect(struct enemy *e)
{
	if (enemy_disconnect(e) < 0)
		return -1;
	return mapped_now(e) == 0 ? 0 : fail("%lu pages are mapped after "
	    "Closed", (unsigned long)mapped_now(e));
}

/* ---- grants that change ------------------------------------------------- */

static void
ask_all(struct enemy *e, const uint32_t ref[NR_PAGES], int reads, int writes)
{
	unsigned	i;

	for (i = 0; i < NR_PAGES; i++) {
		ask(e, BLKIF_OP_READ, 11, i * 88, ref[i], reads);
		ask(e, BLKIF_OP_WRITE, 1, i * 8, ref[i], writes);
	}
}

/* Taken back, given for other pages, made read-only: in this order. */
static int
change_all(struct enemy *e, const uint32_t ref[NR_PAGES])
{
	unsigned	i;

	for (i = 0; i < NR_PAGES; i++)
		loopguest_revoke(e->guest, ref[i]);
	ask_all(e, ref, OKAY, OKAY);
	if (enemy_collect(e) < 0)
		return fail("when they were taken back");
	for (i = 0; i < NR_PAGES; i++)
		loopguest_grant_at(e->guest, ref[i], DATA_PAGE + 100 + i, 0,
		    false);
	ask_all(e, ref, OKAY, OKAY);
	if (enemy_collect(e) < 0)
		return fail("when they were other pages'");
	for (i = 0; i < NR_PAGES; i++)
		loopguest_grant_readonly(e->guest, ref[i], true);
	ask_all(e, ref, OKAY, OKAY);
	return enemy_collect(e) < 0 ? fail("when they were read-only") : 0;
}

/*
 * A page that is mapped is as good as it was, whatever its grant has become.
 * The next connection sees what the grant is now.
 */
int
attack_mapped_revoked(struct enemy *e)
{
	uint32_t	ref[NR_PAGES], good = enemy_grant(e, 50, false);
	unsigned	i, k;

	for (k = 0; k < 2; k++) {
		if (enemy_connect(e, both[k], k) < 0)
			return -1;
		for (i = 0; i < NR_PAGES; i++)
			ref[i] = enemy_grant(e, i, false);
		ask_all(e, ref, OKAY, OKAY);
		if (enemy_collect(e) < 0 || change_all(e, ref) < 0 ||
		    mapped_at_most(e, NR_PAGES) < 0 || disconnect(e) < 0 ||
		    enemy_connect(e, both[1 - k], 0) < 0)
			return -1;
		/* What cannot be mapped may be good enough for a copy. */
		ask_all(e, ref, ERROR, OKAY);
		if (enemy_collect(e) < 0)
			return fail("when they were read-only, not mapped");
		for (i = 0; i < NR_PAGES; i++)
			loopguest_revoke(e->guest, ref[i]);
		ask_all(e, ref, ERROR, ERROR);
		ask(e, BLKIF_OP_READ, 11, 0, good, OKAY);
		if (enemy_collect(e) < 0 || mapped_at_most(e, 1) < 0 ||
		    disconnect(e) < 0)
			return -1;
	}
	enemy_ungrant(e, good);
	return 0;
}

static uint32_t	flipped[NR_PAGES];

/* Any of them, to anything, while it is used and comes and goes. */
static void
flip_grants(struct enemy *e, uint32_t random)
{
	uint32_t	ref = flipped[random % NR_PAGES];

	loopguest_revoke(e->guest, ref);
	loopguest_grant_at(e->guest, ref, DATA_PAGE + (random >> 8 & 63),
	    random & 0x30000 ? 0 : 9, random & 0x40000);
}

int
attack_mapped_flipping(struct enemy *e)
{
	unsigned	rounds = world.soak ? 2000 : 40, i, n;
	uint32_t	good = enemy_grant(e, 70, false);
	struct flipper	f;
	int		rc = 0;

	for (i = 0; i < NR_PAGES; i++)
		flipped[i] = enemy_grant(e, i, false);
	if (enemy_connect(e, FRONT_X86_64, 2) < 0 ||
	    flipper_start(&f, e, flip_grants) < 0)
		return -1;
	for (i = 0; i < rounds && rc == 0; i++) {
		for (n = 0; n < 100; n++)
			ask(e, n & 1 ? BLKIF_OP_READ : BLKIF_OP_WRITE, 1,
			    n * 8, flipped[n % NR_PAGES], ANY);
		ask(e, BLKIF_OP_READ, 11, i, good, OKAY);
		rc = enemy_collect(e);
		if (rc == 0)
			rc = mapped_at_most(e, FEW_PAGES);
	}
	flipper_stop(&f);
	if (rc == 0)
		rc = disconnect(e);
	for (i = 0; i < NR_PAGES; i++)
		loopguest_revoke(e->guest, flipped[i]);
	enemy_ungrant(e, good);
	return rc;
}

/* ---- many grants -------------------------------------------------------- */

/* More references than may be mapped, each of them, then any of them. */
static int
use_all(struct enemy *e, const uint32_t *ref, unsigned n, unsigned bound)
{
	unsigned	i;

	for (i = 0; i < n; i++) {
		ask(e, i & 1 ? BLKIF_OP_READ : BLKIF_OP_WRITE, 1, i % 1000,
		    ref[i], OKAY);
		ask(e, BLKIF_OP_READ, 2, i % 1000, ref[i * 7919u % n], OKAY);
		if (i % 100 == 99 && (enemy_collect(e) < 0 ||
		    mapped_at_most(e, bound) < 0))
			return -1;
	}
	return enemy_collect(e);
}

static int
many_grants(struct enemy *e, unsigned bound)
{
	static uint32_t	ref[4000];
	unsigned	i, round, n = bound * 15;
	struct usage	before;
	pid_t		pid;

	for (i = 0; i < n; i++)
		ref[i] = enemy_grant(e, i % 512, false);
	if (enemy_connect(e, FRONT_X86_64, 3) < 0 ||
	    use_all(e, ref, n, bound) < 0)
		return -1;
	if (mapped_now(e) < bound)
		return fail("only %lu pages are mapped",
		    (unsigned long)mapped_now(e));
	pid = enemy_process(e);
	if (usage_get(pid, &before) < 0)
		return -1;
	for (round = 0; round < (world.soak ? 20 : 1); round++)
		if (use_all(e, ref, n, bound) < 0)
			return -1;
	if (usage_same("its disk process", &before, pid) < 0 ||
	    disconnect(e) < 0)
		return -1;
	for (i = 0; i < n; i++)
		enemy_ungrant(e, ref[i]);
	return 0;
}

int
attack_many_grants(struct enemy *e)
{
	return many_grants(e, MANY_PAGES);
}

int
attack_many_grants_few(struct enemy *e)
{
	return many_grants(e, FEW_PAGES);
}

/* One page, all over a full ring, and as every page of indirect requests. */
int
attack_one_grant(struct enemy *e)
{
	uint32_t		ref = enemy_grant(e, 0, false);
	uint32_t		descriptors = enemy_grant(e, 1, false);
	struct front_segment	seg = { ref, 0, 7 };
	struct front_request	req = { .op = BLKIF_OP_INDIRECT,
				    .inner = BLKIF_OP_WRITE,
				    .nr_indirect = MOST,
				    .descriptors = descriptors };
	unsigned		i, k;

	for (i = 0; i < MOST; i++)
		front_describe_segment(enemy_data(e, 1), i, &seg);
	for (k = 0; k < 2; k++) {
		if (enemy_connect(e, both[k], 4) < 0)
			return -1;
		for (i = 0; i < 512; i++) {
			req.sector = i * 8;
			if (i % 8 == 0)
				enemy_ask(e, &req, OKAY);
			else
				ask(e, i & 1 ? BLKIF_OP_WRITE : BLKIF_OP_READ,
				    11, i * 8, ref, OKAY);
		}
		if (enemy_collect(e) < 0 || mapped_at_most(e, 2) < 0 ||
		    disconnect(e) < 0)
			return -1;
	}
	enemy_ungrant(e, ref);
	enemy_ungrant(e, descriptors);
	return 0;
}

/* ---- what is in the pages ----------------------------------------------- */

static void
flip_data(struct enemy *e, uint32_t random)
{
	volatile uint32_t	*p = enemy_data(e, random & 1);

	p[random >> 8 & 1023] = random;
}

/* Nobody knows what is on the disk then; but nobody minds. */
int
attack_data_changes(struct enemy *e)
{
	uint32_t	ref[2];
	unsigned	rounds = world.soak ? 2000 : 30, i, n;
	struct flipper	f;
	int		rc = 0;

	ref[0] = enemy_grant(e, 0, false);
	ref[1] = enemy_grant(e, 1, false);
	if (enemy_connect(e, FRONT_X86_32, 1) < 0 ||
	    flipper_start(&f, e, flip_data) < 0)
		return -1;
	for (i = 0; i < rounds && rc == 0; i++) {
		for (n = 0; n < 60; n++)
			ask(e, n % 3 == 0 ? BLKIF_OP_READ : BLKIF_OP_WRITE,
			    (uint8_t)(1 + n % 11), n * 88, ref[n & 1], OKAY);
		rc = enemy_collect(e);
	}
	flipper_stop(&f);
	if (rc == 0)
		rc = disconnect(e);
	enemy_ungrant(e, ref[0]);
	enemy_ungrant(e, ref[1]);
	return rc;
}

/* ---- maps that fail ----------------------------------------------------- */

/*
 * Each segment of a request in turn: it is copied then, all of it, and what was
 * mapped before is kept.
 */
int
attack_map_faults(struct enemy *e)
{
	struct front_request	req = { .op = BLKIF_OP_WRITE,
				    .nr_segments = FRONT_MAX_SEGMENTS };
	uint32_t		ref[FRONT_MAX_SEGMENTS];
	unsigned		i, nth;
	uint64_t		copied;

	for (i = 0; i < FRONT_MAX_SEGMENTS; i++) {
		ref[i] = enemy_grant(e, i, false);
		req.seg[i].gref = ref[i];
		req.seg[i].last = 7;
	}
	for (nth = 1; nth <= FRONT_MAX_SEGMENTS; nth += 5) {
		if (enemy_connect(e, FRONT_X86_64, 0) < 0)
			return -1;
		copied = segments_copied(e);
		loopguest_fault_map(e->guest, nth, 1, 12);
		enemy_ask(e, &req, OKAY);
		if (enemy_collect(e) < 0 || mapped_at_most(e, nth - 1) < 0)
			return fail("map %u", nth);
		if (segments_copied(e) - copied != FRONT_MAX_SEGMENTS)
			return fail("map %u: the request was not copied", nth);
		loopguest_fault_map(e->guest, 0, 0, 0);
		enemy_ask(e, &req, OKAY);
		if (enemy_collect(e) < 0 || disconnect(e) < 0)
			return fail("after map %u", nth);
	}
	for (i = 0; i < FRONT_MAX_SEGMENTS; i++)
		enemy_ungrant(e, ref[i]);
	return 0;
}

/* ---- coming and going --------------------------------------------------- */

/* Closed while the storage works on pages of the guest's. */
int
attack_mapped_in_flight(struct enemy *e)
{
	uint32_t	ref = enemy_grant(e, 0, false);
	unsigned	round, i;

	for (round = 0; round < 4; round++) {
		if (enemy_connect(e, round % 3, round % 4) < 0)
			return -1;
		for (i = 0; i < 32; i++)
			ask(e, round & 1 ? BLKIF_OP_READ : BLKIF_OP_WRITE, 1,
			    i * 8, ref, OKAY);
		enemy_push(e);
		sleep_ms(20);
		if (loopguest_grant_mapped(e->guest, ref) != 1)
			return fail("round %u: the page is not mapped", round);
		if (enemy_recover(e) < 0)
			return fail("round %u", round);
		if (mapped_now(e) != 0)
			return fail("a page is mapped after Closed");
	}
	enemy_ungrant(e, ref);
	return 0;
}

/* The domain is destroyed, and nobody takes its pages from the storage. */
int
attack_dies_mapped(struct enemy *e)
{
	uint32_t	ref = enemy_grant(e, 0, false);
	unsigned	i;

	if (enemy_connect(e, FRONT_X86_32, 3) < 0)
		return -1;
	for (i = 0; i < 200; i++)
		ask(e, i & 1 ? BLKIF_OP_READ : BLKIF_OP_WRITE, 11, i * 8, ref,
		    ANY);
	enemy_push(e);
	sleep_ms(50);
	return loopguest_grant_mapped(e->guest, ref) == 1 ? 0 :
	    fail("the page is not mapped");
}
