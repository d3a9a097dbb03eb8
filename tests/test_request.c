/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One request, checked: a line of the table is a case with a name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "blkback/request.h"

#define SECTORS 2048u			/* of the disk */
#define OKAY  BLKIF_RSP_OKAY
#define ERROR BLKIF_RSP_ERROR
#define NOSUP BLKIF_RSP_EOPNOTSUPP
#define R BLKIF_OP_READ
#define W BLKIF_OP_WRITE
#define F BLKIF_OP_FLUSH_DISKCACHE
#define B BLKIF_OP_WRITE_BARRIER

static const struct {
	const char *name;
	uint32_t    block;
	int         readonly;
	uint8_t     op, segs, first, last;
	uint64_t    sector;
	int16_t     want;
	uint32_t    length;	/* when OKAY */
} cases[] = {
	{ "one sector",        512, 0, R, 1, 0, 0, 0, OKAY, 512 },
	{ "sector in a page",  512, 0, R, 1, 5, 5, 9, OKAY, 512 },
	{ "whole page",        512, 0, W, 1, 0, 7, 0, OKAY, 4096 },
	{ "eleven pages",      512, 0, W, 11, 0, 7, 0, OKAY, 45056 },
	{ "last sector",       512, 0, W, 1, 0, 0, SECTORS - 1, OKAY, 512 },
	{ "one past the end",  512, 0, R, 1, 0, 1, SECTORS - 1, ERROR, 0 },
	{ "at the end",        512, 0, R, 1, 0, 0, SECTORS, ERROR, 0 },
	{ "far past the end",  512, 0, R, 1, 0, 0, SECTORS + 1, ERROR, 0 },
	{ "wraps in bytes",    512, 0, R, 1, 0, 0, 1ull << 55, ERROR, 0 },
	{ "wraps to the start", 512, 0, W, 2, 0, 7, UINT64_MAX - 7, ERROR, 0 },
	{ "largest sector",    512, 0, R, 1, 0, 0, UINT64_MAX, ERROR, 0 },
	{ "no segments",       512, 0, R, 0, 0, 0, 0, ERROR, 0 },
	{ "twelve segments",   512, 0, R, 12, 0, 0, 0, ERROR, 0 },
	{ "255 segments",      512, 0, W, 255, 0, 0, 0, ERROR, 0 },
	{ "first > last",      512, 0, R, 1, 2, 1, 0, ERROR, 0 },
	{ "last outside",      512, 0, R, 1, 0, 8, 0, ERROR, 0 },
	{ "both outside",      512, 0, R, 1, 255, 255, 0, ERROR, 0 },
	{ "read-only write",   512, 1, W, 1, 0, 0, 0, ERROR, 0 },
	{ "read-only read",    512, 1, R, 1, 0, 0, 0, OKAY, 512 },
	{ "read-only flush",   512, 1, F, 0, 0, 0, 0, OKAY, 0 },
	{ "flush",             512, 0, F, 0, 0, 0, 0, OKAY, 0 },
	{ "flush anywhere",    512, 0, F, 0, 0, 0, UINT64_MAX, OKAY, 0 },
	{ "flush with data",   512, 0, F, 2, 0, 7, 8, OKAY, 8192 },
	{ "... read-only",     512, 1, F, 2, 0, 7, 8, ERROR, 0 },
	{ "... past the end",  512, 0, F, 2, 0, 7, SECTORS - 8, ERROR, 0 },
	{ "... 12 segments",   512, 0, F, 12, 0, 7, 0, ERROR, 0 },
	{ "4k: page",         4096, 0, W, 1, 0, 7, 8, OKAY, 4096 },
	{ "4k: half a page",  4096, 0, W, 1, 0, 3, 8, ERROR, 0 },
	{ "4k: between",      4096, 0, R, 1, 0, 7, 4, ERROR, 0 },
	{ "barrier",           512, 0, B, 0, 0, 0, 0, OKAY, 0 },
	{ "barrier with data", 512, 0, B, 11, 0, 7, 8, OKAY, 45056 },
	{ "... read-only",     512, 1, B, 1, 0, 7, 8, ERROR, 0 },
	{ "... past the end",  512, 0, B, 1, 0, 7, SECTORS - 7, ERROR, 0 },
	{ "reserved (4)",      512, 0, 4, 1, 0, 0, 0, NOSUP, 0 },
	{ "discard",           512, 0, BLKIF_OP_DISCARD, 0, 0, 0, 0, NOSUP, 0 },
	{ "unknown 7",         512, 0, 7, 1, 0, 0, 0, NOSUP, 0 },
	{ "unknown 0x7f",      512, 0, 0x7f, 1, 0, 0, 0, NOSUP, 0 },
	{ "unknown 0xff",      512, 1, 0xff, 1, 0, 0, 0, NOSUP, 0 },
};

static void
test_table(void **state)
{
	struct request_limits disk = { .size = SECTORS * 512ull };
	struct request_parsed req;
	blkif_request_t wire;
	const char *why;
	int16_t got;
	size_t i;
	int s;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		disk.block_size = cases[i].block;
		disk.readonly = cases[i].readonly;
		memset(&wire, 0, sizeof(wire));
		wire.operation = cases[i].op;
		wire.nr_segments = cases[i].segs;
		wire.sector_number = cases[i].sector;
		for (s = 0; s < BLKIF_MAX_SEGMENTS_PER_REQUEST; s++) {
			wire.seg[s].gref = 70 + s;
			wire.seg[s].first_sect = cases[i].first;
			wire.seg[s].last_sect = cases[i].last;
		}
		got = request_parse(&req, &wire, &disk, &why);
		if (got != cases[i].want)
			fail_msg("%s: %d (%s), not %d", cases[i].name, got,
			    why != NULL ? why : "-", cases[i].want);
		assert_true((got == OKAY) == (why == NULL));
		if (got == OKAY)
			assert_int_equal(req.length, cases[i].length);
	}
}

static void
test_translation(void **state)
{
	const struct request_limits disk = { .size = SECTORS * 512ull,
	    .block_size = 512 };
	blkif_request_t wire = { .operation = W, .nr_segments = 3,
	    .sector_number = 100 };
	struct request_parsed req;
	const char *why;

	(void)state;
	wire.seg[0] = (struct blkif_request_segment){ 11, 6, 7 };
	wire.seg[1] = (struct blkif_request_segment){ 0xffffffff, 0, 7 };
	wire.seg[2] = (struct blkif_request_segment){ 11, 3, 3 };
	assert_int_equal(request_parse(&req, &wire, &disk, &why), OKAY);
	assert_int_equal(req.op, PAGE_WRITE);
	assert_int_equal(req.offset, 51200);
	assert_int_equal(req.length, 1024 + 4096 + 512);
	assert_int_equal(req.nr_segments, 3);
	assert_int_equal(req.segment[0].offset, 3072);
	assert_int_equal(req.segment[0].length, 1024);
	assert_int_equal(req.segment[1].gref, 0xffffffff);
	assert_int_equal(req.segment[2].offset, 1536);
	assert_int_equal(req.segment[2].length, 512);

	/* One bad segment among good ones fails the whole. */
	wire.seg[1].last_sect = 8;
	assert_int_equal(request_parse(&req, &wire, &disk, &why), ERROR);
}

static void
test_plans(void **state)
{
	const struct request_limits disk = { .size = SECTORS * 512ull,
	    .block_size = 512 };
	static const struct {
		uint8_t     op, segs;
		const char *plan;
	} plans[] = {
		{ R, 1, "r" }, { W, 1, "w" }, { F, 0, "f" }, { F, 1, "fw" },
		{ B, 0, "f" }, { B, 1, "fwf" },
	};
	blkif_request_t wire = { 0 };
	struct request_parsed req;
	const char *why;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		wire.operation = plans[i].op;
		wire.nr_segments = plans[i].segs;
		assert_int_equal(request_parse(&req, &wire, &disk, &why), OKAY);
		assert_string_equal(req.plan, plans[i].plan);
	}
}

/* Granules of 4 KiB, or of 64 KiB of which the first begins at 12 KiB. */
static const struct discard_case {
	const char *name;
	uint32_t    granule, lead;
	int         readonly;
	uint64_t    sector, sectors;
	int16_t     want;
	uint64_t    offset, length;
} discards[] = {
	{ "not offered",      0,     0, 0, 0, 8, NOSUP, 0, 0 },
	{ "read-only",        4096,  0, 1, 0, 8, ERROR, 0, 0 },
	{ "one granule",      4096,  0, 0, 8, 8, OKAY, 4096, 4096 },
	{ "all",              4096,  0, 0, 0, SECTORS, OKAY, 0, SECTORS * 512 },
	{ "none",             4096,  0, 0, 8, 0, OKAY, 0, 0 },
	{ "inside a granule", 4096,  0, 0, 9, 6, OKAY, 0, 0 },
	{ "across two",       4096,  0, 0, 9, 8, OKAY, 0, 0 },
	{ "rounded inward",   4096,  0, 0, 9, 20, OKAY, 8192, 4096 },
	{ "one past the end", 4096,  0, 0, 1, SECTORS, ERROR, 0, 0 },
	{ "wraps",            4096,  0, 0, 8, UINT64_MAX - 7, ERROR, 0, 0 },
	{ "wraps in bytes",   4096,  0, 0, 8, 1ull << 55, ERROR, 0, 0 },
	{ "starts at 2^55",   4096,  0, 0, 1ull << 55, 8, ERROR, 0, 0 },
	{ "before the lead",  65536, 12288, 0, 0, 24, OKAY, 0, 0 },
	{ "from the start",   65536, 12288, 0, 0, 152, OKAY, 12288, 65536 },
	{ "after the lead",   65536, 12288, 0, 24, 256, OKAY, 12288, 131072 },
	{ "inward of both",   65536, 12288, 0, 25, 300, OKAY, 77824, 65536 },
};

/* As large as a format's clusters can be, on a disk that ends within one. */
#define ODD (12288u + 1)
static const struct discard_case odd_discards[] = {
	{ "64k: all",         65536, 0, 0, 0, ODD, OKAY, 0, 6291456 },
	{ "64k: the end",     65536, 0, 0, 12287, 2, OKAY, 0, 0 },
	{ "64k: last whole",  65536, 0, 0, 12160, 129, OKAY, 6225920, 65536 },
	{ "64k: past it",     65536, 0, 0, 12160, 130, ERROR, 0, 0 },
	{ "2M: all",        2097152, 0, 0, 0, ODD, OKAY, 0, 6291456 },
	{ "2M: within two", 2097152, 0, 0, 1, 8190, OKAY, 0, 0 },
	{ "2M: the second", 2097152, 0, 0, 1, 8191, OKAY, 2097152, 2097152 },
};

static void
try_discard(const struct discard_case *c, uint64_t sectors, uint8_t flag)
{
	const struct request_limits disk = { .size = sectors * 512,
	    .block_size = 512, .discard_granularity = c->granule,
	    .discard_alignment = c->lead, .readonly = c->readonly };
	const blkif_request_discard_t wire = { .operation = BLKIF_OP_DISCARD,
	    .flag = flag, .sector_number = c->sector,
	    .nr_sectors = c->sectors };
	blkif_request_t slot;
	struct request_parsed req;
	const char *why;
	int16_t got;

	memset(&slot, 0xff, sizeof(slot));
	memcpy(&slot, &wire, sizeof(wire));
	got = request_parse(&req, &slot, &disk, &why);
	if (got != c->want)
		fail_msg("%s: %d (%s), not %d", c->name, got,
		    why != NULL ? why : "-", c->want);
	if (got != OKAY)
		return;
	if (req.length != c->length ||
	    (req.length > 0 && req.offset != c->offset))
		fail_msg("%s: %llu bytes at %llu", c->name,
		    (unsigned long long)req.length,
		    (unsigned long long)req.offset);
	assert_string_equal(req.plan, req.length > 0 ? "d" : "");
	assert_int_equal(req.nr_segments, 0);
}

static void
test_discard(void **state)
{
	size_t i;

	(void)state;
	/* Secure (flag 1): ignored, as it is not offered. */
	for (i = 0; i < sizeof(discards) / sizeof(discards[0]); i++)
		try_discard(&discards[i], SECTORS, i % 2);
	for (i = 0; i < sizeof(odd_discards) / sizeof(odd_discards[0]); i++)
		try_discard(&odd_discards[i], ODD, i % 2);
}

/*
 * Indirect requests: what is wrong with one in its slot ('slot'), and what only
 * its descriptors show ('whole').  All descriptors are whole pages, but for one
 * that may be odd.
 */
#define ALL 256u
static const struct indirect_case {
	const char *name;
	uint32_t    offered, block;
	int         readonly;
	uint8_t     inner;
	uint16_t    segs;
	uint64_t    sector;
	int         odd;		/* which one; -1: none */
	uint8_t     first, last;
	int16_t     slot, whole;
} indirects[] = {
	{ "one segment",    ALL, 512, 0, R, 1, 0, -1, 0, 0, OKAY, OKAY },
	{ "twelve",         ALL, 512, 0, W, 12, 8, -1, 0, 0, OKAY, OKAY },
	{ "256",            ALL, 512, 0, W, 256, 0, -1, 0, 0, OKAY, OKAY },
	{ "... as offered", 32, 512, 0, R, 32, 0, -1, 0, 0, OKAY, OKAY },
	{ "... one more",   32, 512, 0, R, 33, 0, -1, 0, 0, ERROR, 0 },
	{ "none",           ALL, 512, 0, R, 0, 0, -1, 0, 0, ERROR, 0 },
	{ "257",            ALL, 512, 0, R, 257, 0, -1, 0, 0, ERROR, 0 },
	{ "512",            ALL, 512, 0, W, 512, 0, -1, 0, 0, ERROR, 0 },
	{ "65535",          ALL, 512, 0, R, 65535, 0, -1, 0, 0, ERROR, 0 },
	{ "not offered",    11, 512, 0, R, 1, 0, -1, 0, 0, NOSUP, 0 },
	{ "... nor a bad",  11, 512, 1, 0x7f, 999, 0, -1, 0, 0, NOSUP, 0 },
	{ "... unset",      0, 512, 0, R, 1, 0, -1, 0, 0, NOSUP, 0 },
	{ "of a barrier",   ALL, 512, 0, B, 1, 0, -1, 0, 0, ERROR, 0 },
	{ "of a flush",     ALL, 512, 0, F, 1, 0, -1, 0, 0, ERROR, 0 },
	{ "of a discard",   ALL, 512, 0, BLKIF_OP_DISCARD, 1, 0, -1, 0, 0,
	                                          ERROR, 0 },
	{ "of its like",    ALL, 512, 0, BLKIF_OP_INDIRECT, 1, 0, -1, 0, 0,
	                                          ERROR, 0 },
	{ "of 0x7f",        ALL, 512, 0, 0x7f, 1, 0, -1, 0, 0, ERROR, 0 },
	{ "read-only write", ALL, 512, 1, W, 12, 0, -1, 0, 0, ERROR, 0 },
	{ "read-only read", ALL, 512, 1, R, 12, 0, -1, 0, 0, OKAY, OKAY },
	{ "first > last",   ALL, 512, 0, W, 256, 0, 255, 2, 1, OKAY, ERROR },
	{ "last outside",   ALL, 512, 0, W, 256, 0, 0, 0, 8, OKAY, ERROR },
	{ "both outside",   ALL, 512, 0, R, 256, 0, 128, 255, 255, OKAY,
	                                          ERROR },
	{ "to the end",     ALL, 512, 0, W, 16, SECTORS - 128, -1, 0, 0, OKAY,
	                                          OKAY },
	{ "... one more",   ALL, 512, 0, W, 16, SECTORS - 127, -1, 0, 0, OKAY,
	                                          ERROR },
	{ "... but for 1",  ALL, 512, 0, W, 16, SECTORS - 127, 3, 1, 7, OKAY,
	                                          OKAY },
	{ "a whole disk",   ALL, 512, 0, R, 256, 1, -1, 0, 0, OKAY, ERROR },
	{ "at the end",     ALL, 512, 0, R, 1, SECTORS, -1, 0, 0, OKAY,
	                                          ERROR },
	{ "past the end",   ALL, 512, 0, R, 1, SECTORS + 1, -1, 0, 0, ERROR,
	                                          0 },
	{ "wraps in bytes", ALL, 512, 0, R, 1, 1ull << 55, -1, 0, 0, ERROR,
	                                          0 },
	{ "wraps",          ALL, 512, 0, W, 2, UINT64_MAX - 7, -1, 0, 0, ERROR,
	                                          0 },
	{ "4k: pages",      ALL, 4096, 0, W, 12, 8, -1, 0, 0, OKAY, OKAY },
	{ "4k: half a page", ALL, 4096, 0, W, 12, 8, 11, 0, 3, OKAY, ERROR },
	{ "4k: between",    ALL, 4096, 0, R, 12, 4, -1, 0, 0, ERROR, 0 },
};

static void
indirect_descriptors(const struct indirect_case *c,
    struct blkif_request_segment wire[ALL])
{
	unsigned i;

	for (i = 0; i < ALL; i++)
		wire[i] = (struct blkif_request_segment){ 1000 + i, 0, 7 };
	if (c->odd >= 0) {
		wire[c->odd].first_sect = c->first;
		wire[c->odd].last_sect = c->last;
	}
}

/* Translated as it stands there, nothing beyond its segments touched. */
static void
indirect_is(const struct indirect_case *c, const struct request_parsed *req,
    const struct segment *segment)
{
	uint64_t length = 0;
	unsigned i;

	assert_ptr_equal(req->segment, segment);
	for (i = 0; i < c->segs; i++) {
		assert_int_equal(segment[i].gref, 1000 + i);
		assert_int_equal(segment[i].offset,
		    (int)i == c->odd ? c->first * 512 : 0);
		length += segment[i].length;
	}
	for (; i < ALL; i++)
		assert_int_equal(segment[i].gref, 0);
	if (c->odd < 0)
		assert_int_equal(length, c->segs * 4096);
	assert_int_equal(req->length, length);
	assert_int_equal(req->offset, c->sector * 512);
}

static void
try_indirect(const struct indirect_case *c)
{
	const struct request_limits disk = { .size = SECTORS * 512ull,
	    .block_size = c->block, .readonly = c->readonly,
	    .max_segments = c->offered };
	const blkif_request_indirect_t wire = {
	    .operation = BLKIF_OP_INDIRECT, .indirect_op = c->inner,
	    .nr_segments = c->segs, .sector_number = c->sector,
	    .indirect_grefs = { 44, 55 } };
	struct blkif_request_segment descriptors[ALL];
	struct segment segment[ALL] = { { 0 } };
	struct request_parsed req;
	blkif_request_t slot;
	const char *why;
	int16_t got;

	memset(&slot, 0xff, sizeof(slot));
	memcpy(&slot, &wire, sizeof(wire));
	/* Whatever it is answered with, the answer names the inner one. */
	assert_int_equal(request_operation(&slot), c->inner);
	assert_int_equal(request_segments(&slot), c->segs);
	got = request_parse(&req, &slot, &disk, &why);
	if (got != c->slot || (got == OKAY) != (why == NULL))
		fail_msg("%s: %d (%s), not %d", c->name, got,
		    why != NULL ? why : "-", c->slot);
	if (got != OKAY)
		return;
	assert_null(req.segment);
	assert_int_equal(req.nr_segments, c->segs);
	assert_int_equal(req.descriptors, 44);
	assert_int_equal(req.op, c->inner == W ? PAGE_WRITE : PAGE_READ);
	assert_string_equal(req.plan, c->inner == W ? "w" : "r");

	indirect_descriptors(c, descriptors);
	got = request_parse_indirect(&req, descriptors, segment, &disk, &why);
	if (got != c->whole || (got == OKAY) != (why == NULL))
		fail_msg("%s: descriptors: %d (%s), not %d", c->name, got,
		    why != NULL ? why : "-", c->whole);
	if (got == OKAY)
		indirect_is(c, &req, segment);
}

static void
test_indirect(void **state)
{
	static const uint8_t ops[] = { R, W, B, F, BLKIF_OP_DISCARD, 0x7f };
	blkif_request_t slot = { .nr_segments = W };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(indirects) / sizeof(indirects[0]); i++)
		try_indirect(&indirects[i]);
	/* What is not indirect is answered as what it is. */
	for (i = 0; i < sizeof(ops); i++) {
		slot.operation = ops[i];
		assert_int_equal(request_operation(&slot), ops[i]);
		assert_int_equal(request_segments(&slot), W);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_translation),
		cmocka_unit_test(test_plans),
		cmocka_unit_test(test_discard),
		cmocka_unit_test(test_indirect),
	};

	return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
