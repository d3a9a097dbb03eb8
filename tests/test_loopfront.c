/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the tests stand on must not be what lets a fault through: the frontend's
 * ring against the backend's, and whether wrong data is told from right.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

#include "ring/ring.h"
#include "tests/loopfront/front.h"
#include "tests/loopfront/verify.h"
#include "tools/hist.h"

static char	pages[RING_MAX_PAGES * RING_PAGE]
		    __attribute__((aligned(4096)));

static const enum ring_abi	abis[] = {
	[FRONT_NATIVE] = RING_ABI_NATIVE,
	[FRONT_X86_64] = RING_ABI_X86_64,
	[FRONT_X86_32] = RING_ABI_X86_32,
};

static void
both_ends(struct front *f, struct ring *r, enum front_abi abi, unsigned order)
{
	memset(pages, 0xff, sizeof(pages));
	front_init(f, pages, order, abi);
	assert_int_equal(ring_attach(r, pages, order, abis[abi]), 0);
}

static struct front_request
some_request(uint64_t n)
{
	struct front_request	req = { .op = BLKIF_OP_WRITE,
				    .nr_segments = 11, .handle = 51712,
				    .id = ~n, .sector = n * 88 };
	unsigned		i;

	for (i = 0; i < 11; i++) {
		req.seg[i].gref = (uint32_t)n * 11 + i;
		req.seg[i].first = i % 8;
		req.seg[i].last = 7;
	}
	return req;
}

static void
there_and_back(enum front_abi abi, unsigned order)
{
	struct front_response	rsp;
	struct front_request	req;
	blkif_request_t		seen;
	struct front		f;
	struct ring		r;
	uint64_t		n;
	uint32_t		i;

	both_ends(&f, &r, abi, order);
	for (n = 0; n < 5u * f.entries; n += i) {
		for (i = 0; front_room(&f) > 0; i++) {
			req = some_request(n + i);
			front_put(&f, &req);
		}
		assert_int_equal(i, f.entries);
		front_push(&f);
		assert_int_equal(ring_pending(&r), i);
		for (i = 0; i < f.entries; i++) {
			req = some_request(n + i);
			ring_take(&r, &seen);
			assert_int_equal(seen.operation, req.op);
			assert_int_equal(seen.nr_segments, 11);
			assert_true(seen.id == req.id);
			assert_true(seen.sector_number == req.sector);
			assert_int_equal(seen.seg[10].gref, req.seg[10].gref);
			assert_int_equal(seen.seg[10].first_sect,
			    req.seg[10].first);
			ring_put(&r, seen.id, seen.operation, BLKIF_RSP_ERROR);
		}
		ring_publish(&r);
		for (i = 0; front_take(&f, &rsp) == 1; i++) {
			assert_true(rsp.id == ~(n + i));
			assert_int_equal(rsp.op, BLKIF_OP_WRITE);
			assert_int_equal(rsp.status, BLKIF_RSP_ERROR);
			assert_false(rsp.padded);
		}
		assert_int_equal(i, f.entries);
	}
}

static void
test_there_and_back(void **state)
{
	unsigned	abi, order;

	(void)state;
	for (abi = 0; abi < 3; abi++) {
		for (order = 0; order <= FRONT_MAX_ORDER; order++)
			there_and_back((enum front_abi)abi, order);
	}
}

static void
test_discard(void **state)
{
	struct front_request	req = { .op = BLKIF_OP_DISCARD, .id = 7,
				    .sector = 5, .nr_sectors = 1ull << 40 };
	blkif_request_discard_t	seen;
	blkif_request_t		raw;
	struct front		f;
	struct ring		r;
	unsigned		abi;

	(void)state;
	for (abi = 0; abi < 3; abi++) {
		both_ends(&f, &r, (enum front_abi)abi, 0);
		front_put(&f, &req);
		front_push(&f);
		assert_int_equal(ring_pending(&r), 1);
		ring_take(&r, &raw);
		memcpy(&seen, &raw, sizeof(seen));
		assert_true(seen.sector_number == 5);
		assert_true(seen.nr_sectors == 1ull << 40);
		assert_int_equal(seen.flag, 0);
	}
}

static void
test_indirect(void **state)
{
	static struct blkif_request_segment descriptors[512];
	struct front_request	req = { .op = BLKIF_OP_INDIRECT,
				    .nr_segments = 44, .handle = 51712,
				    .id = 0xfedcba9876543210, .sector = 1ull <<
				    40, .inner = BLKIF_OP_WRITE,
				    .nr_indirect = 300, .descriptors = 77 };
	struct front_segment	seg = { .gref = 0x12345678, .first = 3,
				    .last = 6 };
	blkif_request_indirect_t seen;
	blkif_request_t		raw;
	struct front		f;
	struct ring		r;
	unsigned		abi;

	(void)state;
	for (abi = 0; abi < 3; abi++) {
		both_ends(&f, &r, (enum front_abi)abi, 0);
		front_put(&f, &req);
		front_push(&f);
		assert_int_equal(ring_pending(&r), 1);
		ring_take(&r, &raw);
		memcpy(&seen, &raw, sizeof(seen));
		assert_int_equal(seen.operation, BLKIF_OP_INDIRECT);
		assert_int_equal(seen.indirect_op, BLKIF_OP_WRITE);
		assert_int_equal(seen.nr_segments, 300);
		assert_true(seen.id == req.id);
		assert_true(seen.sector_number == req.sector);
		assert_int_equal(seen.handle, 51712);
		assert_int_equal(seen.indirect_grefs[0], 77);
	}
	front_describe_segment(descriptors, 255, &seg);
	assert_int_equal(descriptors[255].gref, 0x12345678);
	assert_int_equal(descriptors[255].first_sect, 3);
	assert_int_equal(descriptors[255].last_sect, 6);
	assert_int_equal(descriptors[254].gref, 0);
	assert_int_equal(descriptors[256].gref, 0);
}

/* An event is sent exactly when the other side asked for it. */
static void
test_events(void **state)
{
	struct front_response	rsp;
	struct front_request	req = some_request(1);
	blkif_request_t		seen;
	struct front		f;
	struct ring		r;

	(void)state;
	both_ends(&f, &r, FRONT_NATIVE, 0);
	assert_false(front_push(&f));
	front_put(&f, &req);
	assert_true(front_push(&f));		/* a new ring asks for one */
	front_put(&f, &req);
	assert_false(front_push(&f));		/* not armed again */
	assert_true(ring_arm(&r));		/* ... and two were missed */
	assert_int_equal(ring_pending(&r), 2);
	ring_take(&r, &seen);
	ring_take(&r, &seen);
	assert_false(ring_arm(&r));
	front_put(&f, &req);
	assert_true(front_push(&f));

	ring_put(&r, 1, 1, 0);
	assert_true(ring_publish(&r));
	assert_true(front_answered(&f));
	assert_true(front_arm(&f));		/* look, there is one */
	assert_int_equal(front_take(&f, &rsp), 1);
	assert_int_equal(front_take(&f, &rsp), 0);
	assert_false(front_arm(&f));
	ring_put(&r, 1, 1, 0);
	assert_true(ring_publish(&r));
}

static void
test_bad_responses(void **state)
{
	struct front_response	rsp;
	struct front_request	req = some_request(1);
	struct front		f;
	struct ring		r;

	(void)state;
	both_ends(&f, &r, FRONT_X86_64, 0);
	front_put(&f, &req);
	ring_put(&r, 1, 1, 0);
	ring_publish(&r);
	/* Filled, but not published: nobody can have answered it. */
	assert_int_equal(front_take(&f, &rsp), -EPROTO);
	front_push(&f);
	pages[64 + 13] = 1;
	assert_int_equal(front_take(&f, &rsp), 1);
	assert_true(rsp.padded);
	ring_put(&r, 1, 1, 0);
	ring_publish(&r);
	assert_int_equal(front_take(&f, &rsp), -EPROTO);
}

/* ---- data --------------------------------------------------------------- */

#define N	4u			/* sectors of an I/O */

static char	buf[N * 512], other[N * 512];
static char	why[VERIFY_WHY];

static int
read_back(struct verify *v, uint64_t sector, const char *data)
{
	uint32_t	floor[N];

	verify_before(v, sector, N, floor);
	return verify_check(v, sector, N, floor, false, data, why);
}

static int
read_torn(struct verify *v, uint64_t sector, const char *data)
{
	uint32_t	floor[N];

	verify_before(v, sector, N, floor);
	return verify_check(v, sector, N, floor, true, data, why);
}

static void
test_verify_writes(void **state)
{
	struct verify	*v;

	(void)state;
	assert_int_equal(verify_new(&v, 64, 1, true), 0);
	memset(other, 0, sizeof(other));
	assert_int_equal(read_back(v, 8, other), 0);
	other[600] = 1;
	assert_int_equal(read_back(v, 8, other), -EILSEQ);
	other[600] = 0;

	verify_fill(v, 8, N, buf);		/* old or new, until the ack */
	assert_int_equal(read_back(v, 8, buf), 0);
	assert_int_equal(read_back(v, 8, other), 0);
	verify_acked(v, 8, N);
	assert_int_equal(read_back(v, 8, buf), 0);
	assert_int_equal(read_back(v, 8, other), -EILSEQ);
	assert_non_null(strstr(why, "found zeros"));

	memcpy(other, buf, sizeof(buf));	/* the next generation */
	verify_fill(v, 8, N, buf);
	assert_int_equal(read_back(v, 8, other), 0);
	verify_acked(v, 8, N);
	assert_int_equal(read_back(v, 8, other), -EILSEQ);
	assert_non_null(strstr(why, "expected write 2, found write 1"));
	verify_free(v);
}

static void
test_verify_places(void **state)
{
	struct verify	*v;
	unsigned	 i;

	(void)state;
	assert_int_equal(verify_new(&v, 64, 1, true), 0);
	verify_fill(v, 8, N, buf);
	verify_acked(v, 8, N);
	verify_fill(v, 32, N, other);
	verify_acked(v, 32, N);
	assert_int_equal(read_back(v, 8, other), -EILSEQ);
	assert_non_null(strstr(why, "of sector 32"));
	for (i = 0; i < sizeof(buf); i++) {	/* each byte matters */
		buf[i] ^= 1;
		assert_int_equal(read_back(v, 8, buf), -EILSEQ);
		buf[i] ^= 1;
	}
	assert_int_equal(read_back(v, 8, buf), 0);
	memcpy(other, buf, sizeof(buf));
	verify_fill(v, 8, N, buf);
	memcpy(other + 512 + 256, buf + 512 + 256, 256);	/* torn */
	assert_int_equal(read_back(v, 8, other), -EILSEQ);
	assert_non_null(strstr(why, "torn at byte"));
	assert_int_equal(read_torn(v, 8, other), 0);
	other[512 + 100] ^= 1;			/* of neither write */
	assert_int_equal(read_torn(v, 8, other), -EILSEQ);
	other[512 + 100] ^= 1;
	verify_acked(v, 8, N);			/* of one that is too old */
	assert_int_equal(read_torn(v, 8, other), -EILSEQ);
	assert_int_equal(read_torn(v, 8, buf), 0);
	verify_free(v);
}

static void
test_verify_discard(void **state)
{
	struct verify	*v;

	(void)state;
	assert_int_equal(verify_new(&v, 64, 1, false), 0);
	memset(other, 0x11, sizeof(other));
	assert_int_equal(read_back(v, 0, other), 0);	/* never written */
	verify_fill(v, 0, N, buf);
	verify_acked(v, 0, N);
	memset(other, 0, sizeof(other));
	assert_int_equal(read_back(v, 0, other), -EILSEQ);
	assert_true(verify_content(v, 0, other));
	assert_memory_equal(other, buf, 512);
	memset(other, 0, sizeof(other));
	verify_discard(v, 0, N);
	assert_int_equal(read_back(v, 0, other), 0);
	assert_int_equal(read_back(v, 0, buf), 0);
	assert_false(verify_content(v, 0, other));
	verify_fill(v, 0, N, buf);
	verify_acked(v, 0, N);
	memset(other, 0, sizeof(other));
	assert_int_equal(read_back(v, 0, other), -EILSEQ);
	verify_free(v);
}

static void
test_hist(void **state)
{
	static struct hist	h;
	uint64_t		v, p;

	(void)state;
	assert_int_equal(hist_percentile(&h, 50), 0);
	for (v = 1; v <= 100000; v++)
		hist_add(&h, v * 10);
	assert_true(hist_mean(&h) > 500004.9 && hist_mean(&h) < 500005.1);
	p = hist_percentile(&h, 50);
	assert_true(p >= 500000 && p <= 500000 + 500000 / 64);
	p = hist_percentile(&h, 99);
	assert_true(p >= 990000 && p <= 990000 + 990000 / 64);
	assert_int_equal(hist_percentile(&h, 100), 1000000);
	assert_int_equal(h.min, 10);
}

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_discard),
		cmocka_unit_test(test_indirect),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_bad_responses),
		cmocka_unit_test(test_verify_writes),
		cmocka_unit_test(test_verify_places),
		cmocka_unit_test(test_verify_discard),
		cmocka_unit_test(test_hist),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
