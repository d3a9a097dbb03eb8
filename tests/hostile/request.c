/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Attacks with requests: every field, every kind of grant, and masses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/hostile/attacks.h"

#define OKAY		BLKIF_RSP_OKAY
#define ERROR		BLKIF_RSP_ERROR
#define UNSUPPORTED	BLKIF_RSP_EOPNOTSUPP
#define DISK_SECTORS	8192u		/* of the image: 4 MiB */
#define NO_GRANT	30000u		/* in the table, given to nobody */

static const enum front_abi both[] = { FRONT_X86_64, FRONT_X86_32 };

static struct front_request
request(uint8_t op, uint8_t n, uint64_t sector, uint32_t ref)
{
	struct front_request	req = { .op = op, .nr_segments = n,
				    .sector = sector, .handle = 0xffff };
	unsigned		i;

	for (i = 0; i < FRONT_MAX_SEGMENTS; i++) {
		req.seg[i].gref = ref;
		req.seg[i].last = 7;
	}
	return req;
}

static void
ask(struct enemy *e, struct front_request req, int status)
{
	enemy_ask(e, &req, status);
}

/* ---- fields ------------------------------------------------------------- */

static void
ask_operations(struct enemy *e, uint32_t ref)
{
	unsigned	op;

	for (op = 0; op < 256; op++) {
		if (op > BLKIF_OP_FLUSH_DISKCACHE && op != BLKIF_OP_DISCARD &&
		    op != BLKIF_OP_INDIRECT)
			ask(e, request((uint8_t)op, 1, 0, ref), UNSUPPORTED);
	}
}

static void
ask_counts(struct enemy *e, uint32_t ref)
{
	unsigned	n;

	for (n = 0; n < 256; n++) {
		ask(e, request(BLKIF_OP_READ, (uint8_t)n, 0, ref),
		    n >= 1 && n <= 11 ? OKAY : ERROR);
		if (n > 11) {
			ask(e, request(BLKIF_OP_WRITE, (uint8_t)n, 0, ref),
			    ERROR);
			ask(e, request(BLKIF_OP_WRITE_BARRIER, (uint8_t)n, 0,
			    ref), ERROR);
			ask(e, request(BLKIF_OP_FLUSH_DISKCACHE, (uint8_t)n, 0,
			    ref), ERROR);
		}
	}
	ask(e, request(BLKIF_OP_WRITE, 0, 0, ref), ERROR);
}

static void
ask_sectors(struct enemy *e, uint32_t ref)
{
	static const uint64_t	far[] = {
		DISK_SECTORS - 7, DISK_SECTORS - 1, DISK_SECTORS,
		DISK_SECTORS + 1, UINT32_MAX, 1ull << 32, 1ull << 54,
		(1ull << 55) - 1, 1ull << 55, (1ull << 55) + 1, 1ull << 63,
		UINT64_MAX - 7, UINT64_MAX,
	};
	static const uint8_t	ops[] = {
		BLKIF_OP_READ, BLKIF_OP_WRITE, BLKIF_OP_WRITE_BARRIER,
		BLKIF_OP_FLUSH_DISKCACHE,
	};
	unsigned		i, k;

	for (i = 0; i < sizeof(far) / sizeof(far[0]); i++) {
		for (k = 0; k < sizeof(ops); k++)
			ask(e, request(ops[k], 1, far[i], ref), ERROR);
	}
	ask(e, request(BLKIF_OP_READ, 1, DISK_SECTORS - 8, ref), OKAY);
	ask(e, request(BLKIF_OP_READ, 11, DISK_SECTORS - 88, ref), OKAY);
	ask(e, request(BLKIF_OP_READ, 11, DISK_SECTORS - 87, ref), ERROR);
	/* An empty flush has no sector that could be wrong. */
	ask(e, request(BLKIF_OP_FLUSH_DISKCACHE, 0, UINT64_MAX, ref), OKAY);
	ask(e, request(BLKIF_OP_WRITE_BARRIER, 0, UINT64_MAX, ref), OKAY);
}

int
attack_fields(struct enemy *e)
{
	uint32_t	ref = enemy_grant(e, 0, false);
	unsigned	i;

	for (i = 0; i < 2; i++) {
		if (enemy_connect(e, both[i], i * 3) < 0)
			return -1;
		ask_operations(e, ref);
		ask_counts(e, ref);
		ask_sectors(e, ref);
		if (enemy_collect(e) < 0 || enemy_disconnect(e) < 0)
			return -1;
	}
	enemy_ungrant(e, ref);
	return 0;
}

/*
 * The first page of the disk is read; written back it is a neighbour that must
 * not suffer, and the image stays as it is.
 */
static struct front_request
neighbour(struct enemy *e, unsigned page, uint32_t *ref)
{
	struct front_request	req;

	*ref = enemy_grant(e, page, false);
	req = request(BLKIF_OP_READ, 1, 0, *ref);
	enemy_ask(e, &req, OKAY);
	enemy_collect(e);
	req.op = BLKIF_OP_WRITE;
	return req;
}

/* All 65536 pairs of a first and a last sector. */
int
attack_segments(struct enemy *e)
{
	uint32_t		ref = enemy_grant(e, 0, false), own;
	struct front_request	req = request(BLKIF_OP_WRITE, 1, 0, ref);
	struct front_request	good_one;
	unsigned		pair, first, last;
	bool			good;

	if (enemy_connect(e, FRONT_X86_32, 4) < 0)
		return -1;
	good_one = neighbour(e, 1, &own);
	for (pair = 0; pair < 65536; pair++) {
		first = pair >> 8;
		last = pair & 255;
		good = first <= last && last <= 7;
		req.op = good ? BLKIF_OP_READ : BLKIF_OP_WRITE;
		req.seg[0].first = (uint8_t)first;
		req.seg[0].last = (uint8_t)last;
		enemy_ask(e, &req, good ? OKAY : ERROR);
		if (pair % 16 == 0)
			enemy_ask(e, &good_one, OKAY);
	}
	if (enemy_collect(e) < 0)
		return -1;
	enemy_ungrant(e, own);
	enemy_ungrant(e, ref);
	return 0;
}

/* A disk that is read-only, whatever the guest writes into its nodes. */
int
attack_read_only(struct enemy *e)
{
	uint32_t		ref = enemy_grant(e, 0, false);
	struct front_request	req;

	if (enemy_write(e, "mode", "w") < 0 ||
	    enemy_write(e, "params", "raw:/etc/passwd") < 0 ||
	    enemy_connect(e, FRONT_X86_64, 0) < 0)
		return -1;
	ask(e, request(BLKIF_OP_WRITE, 1, 0, ref), ERROR);
	ask(e, request(BLKIF_OP_WRITE_BARRIER, 1, 0, ref), ERROR);
	ask(e, request(BLKIF_OP_FLUSH_DISKCACHE, 1, 0, ref), ERROR);
	ask(e, request(BLKIF_OP_FLUSH_DISKCACHE, 0, 0, ref), OKAY);
	req = request(BLKIF_OP_INDIRECT, 1, 0, ref);
	req.inner = BLKIF_OP_WRITE;
	req.nr_indirect = 1;
	req.descriptors = ref;		/* a segment of grant 0, or what not */
	enemy_ask(e, &req, ERROR);
	/* What is not offered is unsupported, what is, forbidden. */
	req = request(BLKIF_OP_DISCARD, 0, 0, ref);
	req.nr_sectors = DISK_SECTORS;
	ask(e, req, UNSUPPORTED);
	ask(e, request(BLKIF_OP_READ, 1, 0, ref), OKAY);
	if (enemy_collect(e) < 0)
		return -1;
	enemy_ungrant(e, ref);
	return 0;
}

int
attack_discards(struct enemy *e)
{
	static const uint64_t	bad[][2] = {
		{ 0, DISK_SECTORS + 1 }, { DISK_SECTORS, 1 },
		{ 1, DISK_SECTORS }, { DISK_SECTORS + 1, 0 },
		{ 0, UINT64_MAX }, { 1, UINT64_MAX }, { UINT64_MAX, 1 },
		{ UINT64_MAX, UINT64_MAX }, { 1ull << 55, 1ull << 55 },
		{ 8, 1ull << 55 }, { 1ull << 63, 1ull << 63 },
		{ 8, UINT64_MAX - 7 }, { DISK_SECTORS - 1, 2 },
	};
	struct front_request	req = { .op = BLKIF_OP_DISCARD };
	unsigned		i, flag;

	for (i = 0; i < 2; i++) {
		if (enemy_connect(e, both[i], 0) < 0)
			return -1;
		for (flag = 0; flag < 256 * 13; flag++) {
			/* nr_segments is where a discard has its flag. */
			req.nr_segments = 0;
			req.sector = bad[flag % 13][0];
			req.nr_sectors = bad[flag % 13][1];
			enemy_ask(e, &req, ERROR);
		}
		/* Nothing, and less than a granule: fine, and no effect. */
		req.sector = 1;
		req.nr_sectors = 0;
		enemy_ask(e, &req, OKAY);
		req.sector = DISK_SECTORS;
		enemy_ask(e, &req, OKAY);
		req.sector = 1;
		req.nr_sectors = 1;
		enemy_ask(e, &req, OKAY);
		if (enemy_collect(e) < 0 || enemy_disconnect(e) < 0)
			return -1;
	}
	return 0;
}

/* An image that ends in the middle of a page. */
int
attack_odd_size(struct enemy *e)
{
	uint32_t		ref = enemy_grant(e, 0, false);
	struct front_request	req = request(BLKIF_OP_READ, 1, 0, ref);
	uint64_t		sectors = 0, at;
	char			path[128], *text;

	if (enemy_connect(e, FRONT_X86_64, 0) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/sectors", e->back_dir);
	text = xs_read(e->xs, XBT_NULL, path, NULL);
	if (text == NULL || sscanf(text, "%lu", &sectors) != 1 || sectors == 0)
		return fail("%s is %s", path, text);
	free(text);
	for (at = sectors - 9; at < sectors + 9; at++) {
		req.op = BLKIF_OP_READ;
		req.sector = at;
		req.seg[0].last = 7;
		enemy_ask(e, &req, at + 8 <= sectors ? OKAY : ERROR);
		req.seg[0].last = 0;
		enemy_ask(e, &req, at < sectors ? OKAY : ERROR);
		req.op = BLKIF_OP_WRITE;
		enemy_ask(e, &req, at < sectors ? OKAY : ERROR);
	}
	if (enemy_collect(e) < 0)
		return -1;
	enemy_ungrant(e, ref);
	return 0;
}

/* ---- grants ------------------------------------------------------------- */

void
bad_grants(struct enemy *e, uint32_t ref[NR_BAD])
{
	ref[0] = NO_GRANT;
	ref[1] = UINT32_MAX;
	ref[2] = LOOPGUEST_MAX_GREFS;
	ref[3] = 0;
	/* Somebody else's: granted to domain 9. */
	loopguest_grant(e->guest, DATA_PAGE + 1, 9, false, &ref[4]);
	/* Given and taken back. */
	ref[5] = enemy_grant(e, 2, false);
	loopguest_revoke(e->guest, ref[5]);
	ref[6] = 0x80000000 | LOOPGUEST_FIRST_GREF;
}

/* Each bad grant alone, and a read into a page that may only be read. */
int
attack_grants(struct enemy *e)
{
	uint32_t	good = enemy_grant(e, 0, false), bad[NR_BAD];
	uint32_t	readonly = enemy_grant(e, 3, true);
	unsigned	i, k;

	bad_grants(e, bad);
	memset(enemy_data(e, 3), 0x5a, LOOPGUEST_PAGE_SIZE);
	for (k = 0; k < 2; k++) {
		if (enemy_connect(e, both[k], 1) < 0)
			return -1;
		for (i = 0; i < NR_BAD; i++) {
			ask(e, request(BLKIF_OP_READ, 1, 0, bad[i]), ERROR);
			ask(e, request(BLKIF_OP_WRITE, 1, 0, bad[i]), ERROR);
			ask(e, request(BLKIF_OP_WRITE_BARRIER, 1, 0, bad[i]),
			    ERROR);
			ask(e, request(BLKIF_OP_FLUSH_DISKCACHE, 1, 0, bad[i]),
			    ERROR);
			/* Its neighbours in the round are none the worse. */
			ask(e, request(BLKIF_OP_READ, 11, 0, good), OKAY);
		}
		ask(e, request(BLKIF_OP_READ, 1, 0, readonly), ERROR);
		if (enemy_collect(e) < 0 || enemy_disconnect(e) < 0)
			return -1;
	}
	for (i = 0; i < LOOPGUEST_PAGE_SIZE; i++)
		if (((char *)enemy_data(e, 3))[i] != 0x5a)
			return fail("a page that was granted read-only has "
			    "been written to");
	loopguest_ungrant(e->guest, bad[4]);
	enemy_ungrant(e, readonly);
	enemy_ungrant(e, good);
	return 0;
}

/* Of eleven segments one is bad: nothing of the request reaches the image. */
int
attack_one_bad_segment(struct enemy *e)
{
	uint32_t		good = enemy_grant(e, 0, !e->persistent);
	uint32_t		bad[NR_BAD];
	struct front_request	req, beside;
	uint32_t		own;
	unsigned		at, i;

	bad_grants(e, bad);
	memset(enemy_data(e, 0), 0xee, LOOPGUEST_PAGE_SIZE);
	if (enemy_connect(e, FRONT_X86_64, 2) < 0)
		return -1;
	beside = neighbour(e, 4, &own);
	for (at = 0; at < FRONT_MAX_SEGMENTS; at++) {
		enemy_ask(e, &beside, OKAY);
		for (i = 0; i < NR_BAD; i++) {
			req = request(BLKIF_OP_WRITE, 11, 88 * i, good);
			req.seg[at].gref = bad[i];
			enemy_ask(e, &req, ERROR);
			req.op = BLKIF_OP_WRITE_BARRIER;
			enemy_ask(e, &req, ERROR);
			req.op = BLKIF_OP_FLUSH_DISKCACHE;
			enemy_ask(e, &req, ERROR);
		}
		req = request(BLKIF_OP_WRITE, 11, 0, good);
		req.seg[at].first = 8;
		enemy_ask(e, &req, ERROR);
		req = request(BLKIF_OP_WRITE, 11, 0, good);
		req.seg[at].last = 8;
		enemy_ask(e, &req, ERROR);
		enemy_ask(e, &beside, OKAY);
	}
	if (enemy_collect(e) < 0)
		return -1;
	loopguest_ungrant(e->guest, bad[4]);
	enemy_ungrant(e, own);
	enemy_ungrant(e, good);
	return 0;
}

/* What the hypervisor may answer for one segment, for each of a request. */
int
attack_copy_faults(struct enemy *e)
{
	uint32_t	ref = enemy_grant(e, 0, false);
	unsigned	nth;
	int		status;

	if (enemy_connect(e, FRONT_X86_64, 0) < 0)
		return -1;
	for (status = -1; status >= -12; status--) {
		for (nth = 1; nth <= FRONT_MAX_SEGMENTS; nth += 5) {
			loopguest_fault_copy(e->guest, nth, 1, status);
			ask(e, request(BLKIF_OP_WRITE, 11, 0, ref), ERROR);
			if (enemy_collect(e) < 0)
				return fail("status %d of copy %u", status,
				    nth);
			loopguest_fault_copy(e->guest, nth, 1, status);
			ask(e, request(BLKIF_OP_READ, 11, 0, ref), ERROR);
			if (enemy_collect(e) < 0)
				return fail("status %d of copy %u", status,
				    nth);
		}
	}
	loopguest_fault_copy(e->guest, 0, 0, 0);
	ask(e, request(BLKIF_OP_READ, 11, 0, ref), OKAY);
	if (enemy_collect(e) < 0)
		return -1;
	enemy_ungrant(e, ref);
	return 0;
}

/* ---- masses ------------------------------------------------------------- */

/* What can be asked of a full ring, of the dearest kinds. */
int
attack_floods(struct enemy *e)
{
	uint32_t		ref = enemy_grant(e, 0, false);
	struct front_request	req = { .op = BLKIF_OP_DISCARD };
	unsigned		i, round, rounds = world.soak ? 40 : 2;

	if (enemy_connect(e, FRONT_X86_32, 4) < 0)
		return -1;
	for (round = 0; round < rounds; round++) {
		for (i = 0; i < 512; i++)
			ask(e, request(BLKIF_OP_FLUSH_DISKCACHE, 0, 0, ref),
			    OKAY);
		for (i = 0; i < 64; i++) {
			ask(e, request(BLKIF_OP_WRITE_BARRIER, i & 1, i * 8,
			    ref), OKAY);
			/* One that is refused lies between two that are not. */
			ask(e, request(BLKIF_OP_WRITE_BARRIER, 1, UINT64_MAX,
			    ref), ERROR);
		}
		for (i = 0; i < 512; i++) {
			req.sector = i % 2 * 8;
			req.nr_sectors = DISK_SECTORS - 8;
			enemy_ask(e, &req, OKAY);
		}
		for (i = 0; i < 512; i++)
			ask(e, request(BLKIF_OP_WRITE, 11, i * 8, ref), OKAY);
		if (enemy_collect(e) < 0)
			return -1;
	}
	enemy_ungrant(e, ref);
	return 0;
}
