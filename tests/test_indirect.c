/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Indirect requests in the rounds of a queue, on queue_rig.h's guest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/queue_rig.h"

#define R BLKIF_OP_READ
#define W BLKIF_OP_WRITE

static struct page_stats *
stats(void)
{
	return &page.queue[0].stats;
}

/* The next response: its status; it must name operation 'op'. */
static int
answered(uint64_t id, uint8_t op)
{
	assert_int_equal(((blkif_response_t *)(void *)slot(rsp_cons))->
	    operation, op);
	return got(id);
}

static void
restart(uint32_t memory, unsigned ring_order)
{
	teardown(NULL);
	connect_queue(memory, ring_order, false);
}

static void
test_write_read(void **state)
{
	(void)state;
	memset(disk, 0, sizeof(disk));
	fill(100, 256, 3);
	put_indirect(W, 16, 256, 100, 50);
	granted[50] = 1;		/* to be read is all that is needed */
	run();
	assert_int_equal(answered(0, W), BLKIF_RSP_OKAY);
	assert_memory_equal(disk + 8192, guest[100], 256 * 4096);
	put_indirect(R, 16, 256, 400, 50);
	run();
	assert_int_equal(answered(1, R), BLKIF_RSP_OKAY);
	assert_memory_equal(guest[400], guest[100], 256 * 4096);
	assert_int_equal(stats()->bytes[PAGE_WRITE], 1 << 20);
	assert_int_equal(stats()->bytes[PAGE_READ], 1 << 20);
	assert_int_equal(nr_ios, 2);
	assert_true(queue_idle(&q));
	assert_int_equal(q.arena.nr_used, 0);
}

/* Segments of any part of a page, in any order of pages. */
static void
test_parts_of_pages(void **state)
{
	unsigned i;

	(void)state;
	memset(disk, 0, sizeof(disk));
	fill(100, 20, 5);
	put_indirect(W, 1, 20, 100, 50);
	for (i = 0; i < 20; i++) {
		descriptor(50, i)->gref = 119 - i;
		descriptor(50, i)->first_sect = 3;
		descriptor(50, i)->last_sect = 4;
	}
	run();
	assert_int_equal(answered(0, W), BLKIF_RSP_OKAY);
	for (i = 0; i < 20; i++)
		assert_memory_equal(disk + 512 + i * 1024,
		    guest[119 - i] + 3 * 512, 1024);
	assert_int_equal(disk[0] | disk[512 + 20 * 1024], 0);
}

/* All descriptors of a round cost one call, and none where there are none. */
static void
test_one_call(void **state)
{
	unsigned i;

	(void)state;
	q.round_pages = q.arena.pages;
	for (i = 0; i < 32; i++)
		put_indirect(W, i * 200, 12, 100, 500 + i);
	run();
	assert_int_equal(copies, 2);
	assert_int_equal(stats()->copy_calls, 2);
	assert_int_equal(stats()->copy_segments, 32 + 32 * 12);
	for (i = 0; i < 32; i++)
		assert_int_equal(answered(i, W), BLKIF_RSP_OKAY);

	for (i = 0; i < 32; i++)
		put_indirect(R, i * 200, 12, 100, 500 + i);
	run();
	assert_int_equal(copies, 4);
	assert_int_equal(stats()->copy_segments, 2 * (32 + 32 * 12));
	for (i = 0; i < 32; i++)
		assert_int_equal(answered(32 + i, R), BLKIF_RSP_OKAY);

	put(W, 0, 11, 100);
	run();
	assert_int_equal(copies, 5);
	/* Both kinds in one round share the call for their data. */
	put(W, 0, 11, 100);
	put_indirect(W, 88, 12, 100, 500);
	run();
	assert_int_equal(copies, 7);
	assert_int_equal(stats()->copy_segments,
	    2 * (32 + 32 * 12) + 11 + 11 + 1 + 12);
	assert_int_equal(*rsp_prod, 67);
}

/* Neighbours in a round of one whose descriptors are bad are none the worse. */
static void
beside_a_bad_one(uint16_t n)
{
	put_indirect(W, 0, 12, 100, 50);
	put_indirect(W, 800, 12, 100, 51);
	put(W, 1600, 1, 100);
	put_indirect(R, 2400, n, 100, 52);
	put_indirect(R, 3200, 12, 200, 53);
}

static void
only_the_second(uint32_t from, bool and_the_fourth)
{
	static const uint8_t ops[] = { W, W, W, R, R };
	int want[5] = { 0, BLKIF_RSP_ERROR, 0,
	    and_the_fourth ? BLKIF_RSP_ERROR : 0, 0 };
	int status[5], i, n;
	uint64_t id;

	for (i = 0; i < 5; i++) {
		assert_true(rsp_cons != *rsp_prod);
		id = ((blkif_response_t *)(void *)slot(rsp_cons))->id;
		n = (int)((id & 0xffff) - from);
		assert_in_range(n, 0, 4);
		status[n] = answered(from + (unsigned)n, ops[n]);
	}
	for (i = 0; i < 5; i++)
		assert_int_equal(status[i], want[i]);
	assert_int_equal(disk[800 * 512], 0x55);
	assert_true(queue_idle(&q));
	assert_int_equal(q.arena.nr_used, 0);
}

static void
test_bad_descriptor_grant(void **state)
{
	uint32_t from = 0;

	(void)state;
	memset(disk, 0x55, sizeof(disk));
	fill(100, 12, 1);
	granted[51] = 0;
	beside_a_bad_one(12);
	run();
	only_the_second(from, false);
	from = *req_prod;
	/* Beyond the table. */
	beside_a_bad_one(12);
	((blkif_request_indirect_t *)(void *)slot(from + 1))->
	    indirect_grefs[0] = 0xffffffff;
	run();
	only_the_second(from, false);
	/* Two of them, and the second one reads: nothing is written to it. */
	from = *req_prod;
	granted[52] = 0;
	memset(guest[100], 0xaa, 4096);
	beside_a_bad_one(12);
	run();
	only_the_second(from, true);
	assert_int_equal(guest[100][0], 0xaa);
	assert_int_equal(stats()->reqs_rejected, 4);
	assert_int_equal(stats()->reqs_taken, stats()->reqs_answered);
}

/* ... and of one whose descriptors make no sense. */
static void
test_bad_descriptors(void **state)
{
	uint32_t from = 0;

	(void)state;
	memset(disk, 0x55, sizeof(disk));
	beside_a_bad_one(12);
	descriptor(51, 11)->last_sect = 8;
	run();
	only_the_second(from, false);
	from = *req_prod;
	beside_a_bad_one(12);
	descriptor(51, 0)->first_sect = 8;
	descriptor(52, 3)->first_sect = 7;
	descriptor(52, 3)->last_sect = 6;
	run();
	only_the_second(from, true);
	/* What is behind its segments is nobody's business. */
	from = *req_prod;
	beside_a_bad_one(12);
	memset(descriptor(51, 11), 0xff, 4096 - 11 * 8);
	memset(descriptor(52, 12), 0xff, 4096 - 12 * 8);
	run();
	only_the_second(from, false);
	/* A descriptor may name a grant that is none: data fails then. */
	from = *req_prod;
	beside_a_bad_one(12);
	descriptor(51, 5)->gref = 0xfffffff0;
	descriptor(52, 5)->gref = 5000;
	run();
	only_the_second(from, true);
	assert_int_equal(stats()->reqs_rejected, 4);
	assert_int_equal(stats()->reqs_failed, 2);
}

/* The call for the descriptors fails half-way: half of them are there. */
static void
test_copy_call_fails(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 8; i++)
		put_indirect(R, i * 200, 12, 100, 50 + i);
	copy_call_fails = true;
	hold = true;
	run();
	copy_call_fails = false;
	hold = false;
	assert_int_equal(*rsp_prod, 4);		/* the others were bad */
	run();
	assert_int_equal(*rsp_prod, 8);
	for (i = 0; i < 4; i++)
		assert_int_equal(answered(4 + i, R), BLKIF_RSP_ERROR);
	for (i = 0; i < 4; i++)
		assert_int_equal(answered(i, R), BLKIF_RSP_OKAY);
}

static void
test_refused(void **state)
{
	(void)state;
	put_indirect(BLKIF_OP_FLUSH_DISKCACHE, 0, 1, 100, 50);
	put_indirect(0x7f, 0, 1, 100, 50);
	put_indirect(W, DISK_BYTES / 512, 12, 100, 50);
	put_indirect(R, 0, 12, 100, 50)->nr_segments = 257;
	put_indirect(R, 0, 12, 100, 50)->nr_segments = 0;
	run();
	/* The third is refused last: its size is in its descriptors. */
	assert_int_equal(answered(0, BLKIF_OP_FLUSH_DISKCACHE),
	    BLKIF_RSP_ERROR);
	assert_int_equal(answered(1, 0x7f), BLKIF_RSP_ERROR);
	assert_int_equal(answered(3, R), BLKIF_RSP_ERROR);
	assert_int_equal(answered(4, R), BLKIF_RSP_ERROR);
	assert_int_equal(answered(2, W), BLKIF_RSP_ERROR);
	assert_int_equal(nr_ios, 0);
	assert_int_equal(stats()->reqs_rejected, 5);

	restart(8 << 20, 0);
	q.limits.max_segments = 11;		/* segments=11 */
	put_indirect(R, 0, 1, 100, 50);
	run();
	assert_int_equal(answered(0, R), BLKIF_RSP_EOPNOTSUPP);
	assert_int_equal(copies, 0);
}

/* As many as a ring holds, more than one round fetches descriptors for. */
static void
test_many(void **state)
{
	unsigned i;

	(void)state;
	restart(8 << 20, 2);
	memset(disk, 0, sizeof(disk));
	for (i = 0; i < 100; i++) {
		memset(guest[500 + i], i + 1, 4096);
		put_indirect(W, i * 16, 1, 500 + i, 700 + i);
	}
	run();
	for (i = 0; i < 100; i++) {
		assert_int_equal(answered(i, W), BLKIF_RSP_OKAY);
		assert_int_equal(disk[i * 16 * 512], i + 1);
	}
	/* Two rounds, two calls each. */
	assert_int_equal(copies, 4);
	assert_int_equal(stats()->copy_segments, 200);

	/* A direct one has no need to wait, but keeps its place. */
	for (i = 0; i < 65; i++)
		put_indirect(R, i * 16, 1, 500, 700 + i);
	put(W, 0, 1, 500);
	hold = true;
	queue_round(&q);
	assert_int_equal(q.inflight, 65);
	assert_false(queue_arm(&q));
	run();
	assert_int_equal(q.inflight, 66);
	hold = false;
	run();
	assert_true(queue_idle(&q));
	assert_int_equal(*rsp_prod, 166);
}

/* The arena holds one and a half: the second waits for the first. */
static void
test_small_arena(void **state)
{
	unsigned i;

	(void)state;
	restart(300 * 4096, 1);
	fill(100, 256, 7);
	memset(disk, 0, sizeof(disk));
	for (i = 0; i < 40; i++)
		put_indirect(W, i % 4 * 2048, 256 - i, 100, 50);
	for (i = 0; i < 256; i++)
		descriptor(50, i)->gref = 100 + i;
	hold = true;
	run();
	assert_int_equal(q.inflight, 2);
	assert_int_equal(q.arena.nr_used, 256);
	assert_false(queue_arm(&q));
	hold = false;
	run();
	for (i = 0; i < 40; i++)
		assert_int_equal(answered(i, W), BLKIF_RSP_OKAY);
	for (i = 0; i < 4; i++)
		assert_memory_equal(disk + (i << 20), guest[100], 217 * 4096);
	assert_true(queue_idle(&q));
	assert_int_equal(q.arena.nr_used, 0);
	assert_int_equal(copies, 80);

	/* The least that may be had: sixteen pages, all for one request. */
	restart(16 * 4096, 0);
	put_indirect(W, 0, 16, 100, 50);
	put_indirect(W, 128, 16, 100, 51);
	put_indirect(W, 256, 17, 100, 52);
	run();
	assert_int_equal(answered(0, W), BLKIF_RSP_OKAY);
	assert_int_equal(answered(2, W), BLKIF_RSP_ERROR);
	assert_int_equal(answered(1, W), BLKIF_RSP_OKAY);
}

/* Adjacent ones are one I/O, up to the limit; direct ones join them. */
static void
test_merging(void **state)
{
	unsigned i;

	(void)state;
	fill(100, 256, 9);
	for (i = 0; i < 8; i++)
		put_indirect(W, i * 256, 32, 100 + i * 32, 50 + i);
	run();
	assert_int_equal(nr_ios, 1);
	assert_memory_equal(disk, guest[100], 1 << 20);
	put_indirect(R, 0, 64, 400, 50);
	put(R, 512, 11, 464);
	put_indirect(R, 600, 53, 475, 51);
	put_indirect(R, 1024, 128, 528, 52);
	/* One too many. */
	put_indirect(R, 2048, 12, 700, 53);
	run();
	assert_int_equal(nr_ios, 3);
	assert_memory_equal(guest[400], guest[100], 1 << 20);
	for (i = 0; i < 13; i++)
		assert_int_equal(got(i), BLKIF_RSP_OKAY);

	/* Merged, and failed: each goes again, alone. */
	fail_op = IO_WRITE;
	fail_nth = 1;
	for (i = 0; i < 4; i++)
		put_indirect(W, i * 256, 32, 300, 50 + i);
	run();
	for (i = 0; i < 4; i++) {
		assert_int_equal(answered(13 + i, W), BLKIF_RSP_OKAY);
		assert_memory_equal(disk + i * 256 * 512, guest[300],
		    32 * 4096);
	}
	assert_int_equal(nr_ios, 8);
}

/*
 * Descriptors are read once.  What the guest writes there afterwards, and what
 * the next round reads, is nothing to a request that is in flight.
 */
static void
test_changed_in_flight(void **state)
{
	(void)state;
	fill(300, 12, 1);
	memcpy(disk, guest[300], 12 * 4096);
	memset(guest[100], 0, 12 * 4096);
	memset(guest[600], 0, 12 * 4096);
	hold = true;
	put_indirect(R, 0, 12, 100, 50);
	run();
	memset(guest[50], 0xff, 4096);
	put_indirect(R, 2048, 12, 600, 51);
	run();
	put_indirect(R, 4096, 12, 600, 50);
	run();
	assert_int_equal(q.inflight, 3);
	hold = false;
	run();
	assert_int_equal(answered(0, R), BLKIF_RSP_OKAY);
	assert_memory_equal(guest[100], guest[300], 12 * 4096);
	assert_int_equal(answered(1, R), BLKIF_RSP_OKAY);
	assert_int_equal(answered(2, R), BLKIF_RSP_OKAY);
}

/* One that waits for the operator knows its segments when it goes on. */
static void
test_stop(void **state)
{
	(void)state;
	fill(300, 12, 4);
	memcpy(disk, guest[300], 12 * 4096);
	memset(guest[100], 0, 12 * 4096);
	q.on_error = ON_ERROR_STOP;
	fail_op = IO_READ;
	fail_nth = 1;
	put_indirect(R, 0, 12, 100, 50);
	run();
	assert_int_equal(*rsp_prod, 0);
	memset(guest[50], 0xff, 4096);
	queue_retry(&q);
	run();
	assert_int_equal(answered(0, R), BLKIF_RSP_OKAY);
	assert_memory_equal(guest[100], guest[300], 12 * 4096);
	assert_int_equal(copies, 2);
}

/* A barrier among them: what came before is done before. */
static void
test_barrier(void **state)
{
	(void)state;
	put_indirect(W, 0, 12, 100, 50);
	put(BLKIF_OP_WRITE_BARRIER, 1000, 1, 100);
	put_indirect(W, 2000, 12, 100, 51);
	put_indirect(R, 0, 12, 100, 52);
	run();
	assert_string_equal(order, "wfwfwr");
	assert_int_equal(*rsp_prod, 4);
	/* Nor does one that is refused hold up the barrier behind it. */
	granted[50] = 0;
	put_indirect(W, 0, 12, 100, 50);
	put(BLKIF_OP_WRITE_BARRIER, 1000, 1, 100);
	run();
	assert_int_equal(*rsp_prod, 6);
	assert_true(queue_idle(&q));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_write_read),
		T(test_parts_of_pages),
		T(test_one_call),
		T(test_bad_descriptor_grant),
		T(test_bad_descriptors),
		T(test_copy_call_fails),
		T(test_refused),
		T(test_many),
		T(test_small_arena),
		T(test_merging),
		T(test_changed_in_flight),
		T(test_stop),
		T(test_barrier),
	};

	return cmocka_run_group_tests_name("indirect", tests, NULL, NULL);
}
