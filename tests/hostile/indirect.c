/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Attacks with indirect requests: their fields, and their descriptors. */
#include <string.h>

#include "tests/hostile/attacks.h"

#define OKAY		BLKIF_RSP_OKAY
#define ERROR		BLKIF_RSP_ERROR
#define UNSUPPORTED	BLKIF_RSP_EOPNOTSUPP
#define DISK_SECTORS	8192u		/* of the image: 4 MiB */
#define MOST		256u		/* segments, as offered */

/* Data pages, but for 1 and 2, which bad_grants() has. */
enum { BUFFER, BESIDE = 3, GOOD_PAGE, ODD_PAGE };

static const enum front_abi both[] = { FRONT_X86_64, FRONT_X86_32 };

/* What every attack begins with. */
struct scene {
	uint32_t buffer;		/* one page, for every segment */
	uint32_t good;			/* MOST descriptors of it */
	struct front_request beside;	/* an honest request */
};

static void
describe(struct enemy *e, unsigned page, unsigned n, uint32_t gref,
    uint8_t first, uint8_t last)
{
	struct front_segment	seg = { gref, first, last };

	front_describe_segment(enemy_data(e, page), n, &seg);
}

static void
describe_all(struct enemy *e, unsigned page, uint32_t gref)
{
	unsigned	i;

	for (i = 0; i < MOST; i++)
		describe(e, page, i, gref, 0, 7);
}

static void
scene_set(struct scene *s, struct enemy *e)
{
	memset(s, 0, sizeof(*s));
	s->buffer = enemy_grant(e, BUFFER, false);
	s->good = enemy_grant(e, GOOD_PAGE, !e->persistent);
	describe_all(e, GOOD_PAGE, s->buffer);
	s->beside.op = BLKIF_OP_READ;
	s->beside.nr_segments = 1;
	s->beside.seg[0].gref = enemy_grant(e, BESIDE, false);
	s->beside.seg[0].last = 7;
}

static void
scene_end(struct scene *s, struct enemy *e)
{
	enemy_ungrant(e, s->buffer);
	enemy_ungrant(e, s->good);
	enemy_ungrant(e, s->beside.seg[0].gref);
}

static void
ask(struct enemy *e, uint8_t inner, uint16_t n, uint64_t sector,
    uint32_t descriptors, int status)
{
	struct front_request	req = { .op = BLKIF_OP_INDIRECT,
				    .inner = inner, .nr_indirect = n,
				    .sector = sector, .handle = 0xffff,
				    .descriptors = descriptors };

	enemy_ask(e, &req, status);
}

/* ---- fields ------------------------------------------------------------- */

static void
ask_numbers(struct enemy *e, struct scene *s)
{
	static const uint16_t	bad[] = { 0, MOST + 1, 511, 512, 513, 4096,
				    32768, 65535 };
	unsigned		i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ask(e, BLKIF_OP_READ, bad[i], 0, s->good, ERROR);
		ask(e, BLKIF_OP_WRITE, bad[i], 0, s->good, ERROR);
	}
	ask(e, BLKIF_OP_READ, 1, 0, s->good, OKAY);
	ask(e, BLKIF_OP_READ, MOST, 0, s->good, OKAY);
}

static void
ask_sectors(struct enemy *e, struct scene *s)
{
	static const uint64_t	far[] = {
		DISK_SECTORS - 95, DISK_SECTORS - 1, DISK_SECTORS,
		DISK_SECTORS + 1, UINT32_MAX, 1ull << 32, 1ull << 54,
		(1ull << 55) - 1, 1ull << 55, 1ull << 63, UINT64_MAX - 95,
		UINT64_MAX,
	};
	unsigned		i;

	for (i = 0; i < sizeof(far) / sizeof(far[0]); i++) {
		ask(e, BLKIF_OP_READ, 12, far[i], s->good, ERROR);
		ask(e, BLKIF_OP_WRITE, 12, far[i], s->good, ERROR);
	}
	ask(e, BLKIF_OP_READ, 12, DISK_SECTORS - 96, s->good, OKAY);
	ask(e, BLKIF_OP_READ, MOST, DISK_SECTORS - MOST * 8, s->good, OKAY);
	ask(e, BLKIF_OP_WRITE, MOST, DISK_SECTORS - MOST * 8 + 1, s->good,
	    ERROR);
}

int
attack_indirect_fields(struct enemy *e)
{
	struct scene	s;
	unsigned	i, op;

	scene_set(&s, e);
	for (i = 0; i < 2; i++) {
		if (enemy_connect(e, both[i], i * 3) < 0)
			return -1;
		for (op = 2; op < 256; op++) {
			ask(e, (uint8_t)op, 12, 0, s.good, ERROR);
			if (op % 16 == 0)
				enemy_ask(e, &s.beside, OKAY);
		}
		ask_numbers(e, &s);
		ask_sectors(e, &s);
		if (enemy_collect(e) < 0 || enemy_disconnect(e) < 0)
			return -1;
	}
	scene_end(&s, e);
	return 0;
}

/* With segments=11 there are none, whatever is in them. */
int
attack_indirect_unoffered(struct enemy *e)
{
	struct scene	s;
	unsigned	op;

	scene_set(&s, e);
	if (enemy_connect(e, FRONT_X86_32, 1) < 0)
		return -1;
	for (op = 0; op < 256; op++)
		ask(e, (uint8_t)op, (uint16_t)(op * 3), op, s.good,
		    UNSUPPORTED);
	enemy_ask(e, &s.beside, OKAY);
	if (enemy_collect(e) < 0)
		return -1;
	scene_end(&s, e);
	return 0;
}

/* ---- descriptors -------------------------------------------------------- */

/*
 * One odd segment of MOST, each time on a page of its own: the descriptors of
 * a request that was asked are not touched before it is answered.
 */
static int
ask_odd(struct enemy *e, struct scene *s, unsigned at, uint32_t gref,
    uint8_t first, uint8_t last)
{
	uint32_t	ref = enemy_grant(e, ODD_PAGE, !e->persistent);
	int		rc;

	describe_all(e, ODD_PAGE, s->buffer);
	describe(e, ODD_PAGE, at, gref, first, last);
	ask(e, BLKIF_OP_WRITE, MOST, 0, ref, ERROR);
	ask(e, BLKIF_OP_READ, MOST, 0, ref, ERROR);
	enemy_ask(e, &s->beside, OKAY);
	ask(e, BLKIF_OP_READ, 12, 0, s->good, OKAY);
	/* What is odd may be behind what is asked for. */
	ask(e, BLKIF_OP_READ, 1, 0, ref, at > 0 ? OKAY : ERROR);
	rc = enemy_collect(e);
	enemy_ungrant(e, ref);
	return rc;
}

int
attack_descriptors(struct enemy *e)
{
	static const uint8_t	pairs[][2] = { { 1, 0 }, { 7, 6 }, { 0, 8 },
				    { 8, 8 }, { 0, 255 }, { 255, 255 },
				    { 255, 0 } };
	static const unsigned	places[] = { 0, 11, 128, MOST - 1 };
	uint32_t		bad[NR_BAD];
	struct scene		s;
	unsigned		i, p;

	scene_set(&s, e);
	memset(enemy_data(e, BUFFER), 0xee, LOOPGUEST_PAGE_SIZE);
	bad_grants(e, bad);
	for (p = 0; p < 4; p++) {
		if (enemy_connect(e, both[p % 2], p) < 0)
			return -1;
		for (i = 0; i < 7; i++)
			if (ask_odd(e, &s, places[p], s.buffer, pairs[i][0],
			    pairs[i][1]) < 0)
				return fail("sectors %u to %u", pairs[i][0],
				    pairs[i][1]);
		for (i = 0; i < NR_BAD; i++)
			if (ask_odd(e, &s, places[p], bad[i], 0, 7) < 0)
				return fail("bad grant %u", i);
		if (enemy_disconnect(e) < 0)
			return -1;
	}
	loopguest_ungrant(e->guest, bad[4]);
	scene_end(&s, e);
	return 0;
}

int
attack_descriptor_grants(struct enemy *e)
{
	uint32_t	bad[NR_BAD], writable;
	struct scene	s;
	unsigned	i, k;

	scene_set(&s, e);
	bad_grants(e, bad);
	writable = enemy_grant(e, GOOD_PAGE, false);
	for (k = 0; k < 2; k++) {
		if (enemy_connect(e, both[k], 2) < 0)
			return -1;
		for (i = 0; i < NR_BAD; i++) {
			ask(e, BLKIF_OP_WRITE, 12, 0, bad[i], ERROR);
			ask(e, BLKIF_OP_READ, MOST, 0, bad[i], ERROR);
			ask(e, BLKIF_OP_READ, 12, 0, s.good, OKAY);
			ask(e, BLKIF_OP_READ, 12, 0, writable, OKAY);
			enemy_ask(e, &s.beside, OKAY);
		}
		/* Each with a bad one: nothing of a round is good. */
		for (i = 0; i < 128; i++)
			ask(e, BLKIF_OP_WRITE, 12, 0, bad[i % NR_BAD], ERROR);
		if (enemy_collect(e) < 0 || enemy_disconnect(e) < 0)
			return -1;
	}
	loopguest_ungrant(e->guest, bad[4]);
	enemy_ungrant(e, writable);
	scene_end(&s, e);
	return 0;
}

/* ---- descriptors under a second processor ------------------------------- */

static uint32_t	flipped;		/* a grant of what is flipped */

/* Any of the first 64 segments: its grant, its sectors, all of it. */
static void
flip_descriptor(struct enemy *e, uint32_t random)
{
	volatile uint8_t	*s = (volatile uint8_t *)enemy_data(e,
				    ODD_PAGE) + (random >> 8 & 63) * 8;
	volatile uint32_t	*gref = (volatile uint32_t *)(volatile void *)s;

	switch (random & 7) {
	case 0:
		*gref = random;
		break;
	case 1:
		s[4] = (uint8_t)(random >> 16);
		break;
	case 2:
		s[5] = (uint8_t)(random >> 16);
		break;
	default:
		*gref = flipped;
		s[4] = random >> 16 & 3;
		s[5] = 7;
		break;
	}
}

/* The one answer of each is one of two; what is good beside them stays good. */
static int
ask_flipped(struct enemy *e, struct scene *s, uint32_t descriptors,
    unsigned rounds)
{
	unsigned	i, n;

	for (i = 0; i < rounds; i++) {
		for (n = 0; n < 28; n++)
			ask(e, n % 4 == 0 ? BLKIF_OP_WRITE : BLKIF_OP_READ,
			    (uint16_t)(1 + (i + n * 7) % 64), n * 200,
			    descriptors, ANY);
		enemy_ask(e, &s->beside, OKAY);
		ask(e, BLKIF_OP_READ, 12, 0, s->good, OKAY);
		if (enemy_collect(e) < 0)
			return -1;
	}
	return 0;
}

int
attack_descriptors_change(struct enemy *e)
{
	unsigned	i, rounds = world.soak ? 2000 : 200;
	uint32_t	ref;
	struct flipper	f;
	struct scene	s;
	int		rc = 0;

	scene_set(&s, e);
	ref = enemy_grant(e, ODD_PAGE, !e->persistent);
	describe_all(e, ODD_PAGE, s.buffer);
	flipped = s.buffer;
	for (i = 0; i < 2 && rc == 0; i++) {
		if (enemy_connect(e, both[i], 0) < 0 ||
		    flipper_start(&f, e, flip_descriptor) < 0)
			return -1;
		rc = ask_flipped(e, &s, ref, rounds);
		flipper_stop(&f);
		if (rc == 0)
			rc = enemy_disconnect(e);
	}
	enemy_ungrant(e, ref);
	scene_end(&s, e);
	return rc;
}

/* The grant of the descriptors comes and goes, and belongs to another. */
static void
flip_grant(struct enemy *e, uint32_t random)
{
	loopguest_revoke(e->guest, flipped);
	loopguest_grant_at(e->guest, flipped, DATA_PAGE + ODD_PAGE,
	    random & 3 ? 0 : 9, random & 4);
}

int
attack_descriptors_vanish(struct enemy *e)
{
	unsigned	rounds = world.soak ? 2000 : 200, i, n;
	struct flipper	f;
	struct scene	s;
	int		rc = 0;

	scene_set(&s, e);
	flipped = enemy_grant(e, ODD_PAGE, !e->persistent);
	describe_all(e, ODD_PAGE, s.buffer);
	if (enemy_connect(e, FRONT_X86_64, 1) < 0 ||
	    flipper_start(&f, e, flip_grant) < 0)
		return -1;
	for (i = 0; i < rounds && rc == 0; i++) {
		for (n = 0; n < 60; n++)
			ask(e, BLKIF_OP_READ, 12, n * 96, flipped, ANY);
		enemy_ask(e, &s.beside, OKAY);
		ask(e, BLKIF_OP_READ, MOST, 0, s.good, OKAY);
		rc = enemy_collect(e);
	}
	flipper_stop(&f);
	loopguest_revoke(e->guest, flipped);
	scene_end(&s, e);
	return rc;
}

/*
 * What is read goes over the descriptors that say where it goes; and what the
 * ring's own page holds is taken for descriptors.
 */
int
attack_descriptors_as_data(struct enemy *e)
{
	struct scene	s;
	uint32_t	ref;
	unsigned	i;

	scene_set(&s, e);
	ref = enemy_grant(e, ODD_PAGE, false);
	for (i = 0; i < 2; i++) {
		if (enemy_connect(e, both[i], 0) < 0)
			return -1;
		describe_all(e, ODD_PAGE, ref);
		ask(e, BLKIF_OP_READ, MOST, 0, ref, OKAY);
		if (enemy_collect(e) < 0)
			return -1;
		/* Now they are what the image, random, says. */
		ask(e, BLKIF_OP_READ, MOST, 0, ref, ERROR);
		enemy_ask(e, &s.beside, OKAY);
		ask(e, BLKIF_OP_READ, MOST, 0, e->q->ring_ref[0], ERROR);
		ask(e, BLKIF_OP_READ, 12, 0, s.good, OKAY);
		if (enemy_collect(e) < 0 || enemy_disconnect(e) < 0)
			return -1;
	}
	enemy_ungrant(e, ref);
	scene_end(&s, e);
	return 0;
}
