/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_persistent: a queue whose guest's pages stay mapped (persistent.h), on
 * a guest in this process (queue_rig.h).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/queue_rig.h"

#define SECOND 1000000000u

static int
setup_persistent(void **state)
{
	(void)state;
	connect_queue(8 << 20, 0, true);
	stopped_ns = 1000ull * SECOND;
	return 0;
}

/* The smallest arena: 16 pages, so no more are mapped either. */
static int
setup_small(void **state)
{
	(void)state;
	connect_queue(16 * 4096, 0, true);
	stopped_ns = 1000ull * SECOND;
	return 0;
}

static const struct page_stats *
stats(void)
{
	return &page.queue[0].stats;
}

/* All calls for data, since the queue was opened. */
static void
assert_calls(unsigned map, unsigned unmap, unsigned copy, unsigned segments)
{
	assert_int_equal(stats()->map_calls, map);
	assert_int_equal(page_maps, map);
	assert_int_equal(stats()->unmap_calls, unmap);
	assert_int_equal(stats()->copy_calls, copy);
	assert_int_equal(copies, copy);
	assert_int_equal(stats()->copy_segments, segments);
}

/* A request of its own round, which is well. */
static void
ask(uint8_t op, unsigned segs, uint32_t gref)
{
	uint32_t n = *req_prod;

	put(op, gref * 8 % 4096, segs, gref);
	run();
	assert_int_equal(got(n), BLKIF_RSP_OKAY);
}

static void
test_no_calls(void **state)
{
	unsigned i, n;

	(void)state;
	fill(100, 11, 3);
	for (n = 0; n < 10; n++) {
		put(BLKIF_OP_WRITE, 16 + n * 88, 11, 100);
		run();
		assert_int_equal(got(2 * n), BLKIF_RSP_OKAY);
		put(BLKIF_OP_READ, 16 + n * 88, 11, 200);
		run();
		assert_int_equal(got(2 * n + 1), BLKIF_RSP_OKAY);
		assert_memory_equal(guest[200], guest[100], 11 * 4096);
		/* Once each, and never a copy: then there are no calls. */
		assert_calls(22, 0, 0, 0);
	}
	for (i = 0; i < 11; i++)
		assert_true(mapped[100 + i] && mapped[200 + i]);
	queue_disconnect(&q);
	assert_int_equal(maps, 0);
	assert_calls(22, 22, 0, 0);
}

/* What is merged is one I/O of many pages that lie anywhere. */
static void
test_merged(void **state)
{
	unsigned i;

	(void)state;
	fill(100, 32, 5);
	for (i = 0; i < 32; i++)
		put(BLKIF_OP_WRITE, i * 8, 1, 100 + (i * 7) % 32);
	run();
	assert_int_equal(nr_ios, 1);
	for (i = 0; i < 32; i++) {
		assert_int_equal(got(i), BLKIF_RSP_OKAY);
		assert_memory_equal(disk + i * 4096, guest[100 + (i * 7) % 32],
		    4096);
	}
}

static void
test_parts_of_pages(void **state)
{
	blkif_request_t *r;

	(void)state;
	fill(100, 2, 9);
	r = put(BLKIF_OP_WRITE, 0, 2, 100);
	r->seg[0].first_sect = 5;
	r->seg[1].last_sect = 1;
	run();
	assert_int_equal(got(0), BLKIF_RSP_OKAY);
	assert_memory_equal(disk, guest[100] + 5 * 512, 3 * 512);
	assert_memory_equal(disk + 3 * 512, guest[101], 2 * 512);
}

/* The same page in many requests at once, and twice in one. */
static void
test_shared_page(void **state)
{
	blkif_request_t *r;
	unsigned i;

	(void)state;
	fill(100, 1, 1);
	for (i = 0; i < 8; i++)
		put(BLKIF_OP_WRITE, i * 8, 1, 100);
	r = put(BLKIF_OP_WRITE, 800, 2, 100);
	r->seg[1].gref = 100;
	run();
	for (i = 0; i < 9; i++)
		assert_int_equal(got(i), BLKIF_RSP_OKAY);
	assert_int_equal(page_maps, 1);
	assert_memory_equal(disk + 801 * 512, guest[100] + 512, 3 * 512);
}

/*
 * What cannot be mapped is copied for, and the copy tells: one bad grant costs
 * its own request, and leaves nothing in use.
 */
static void
test_bad_grant(void **state)
{
	(void)state;
	granted[105] = 0;
	granted[120] = 1;	/* read-only: enough for a copy from it */
	put(BLKIF_OP_WRITE, 0, 11, 100);
	put(BLKIF_OP_WRITE, 100, 1, 120);
	put(BLKIF_OP_READ, 200, 1, 120);
	put(BLKIF_OP_READ, 300, 1, GUEST_PAGES + 5);
	put(BLKIF_OP_READ, 400, 1, 130);
	run();
	assert_int_equal(got(0), BLKIF_RSP_ERROR);
	assert_int_equal(got(1), BLKIF_RSP_OKAY);
	assert_int_equal(got(2), BLKIF_RSP_ERROR);
	assert_int_equal(got(3), BLKIF_RSP_ERROR);
	assert_int_equal(got(4), BLKIF_RSP_OKAY);
	assert_true(queue_idle(&q));
	assert_int_equal(stats()->reqs_failed, 3);
	/* Five were mapped, the sixth failed, and no more was tried. */
	assert_calls(6, 0, 2, 12 + 3);
}

/* After a map that failed there are none for a second: only copies. */
static void
test_rests(void **state)
{
	(void)state;
	ask(BLKIF_OP_READ, 1, 100);
	granted[200] = 0;
	put(BLKIF_OP_READ, 0, 1, 200);
	run();
	assert_int_equal(got(1), BLKIF_RSP_ERROR);
	assert_calls(2, 0, 1, 1);
	granted[200] = 2;
	stopped_ns += SECOND - 1;
	ask(BLKIF_OP_READ, 1, 200);
	assert_calls(2, 0, 2, 2);
	ask(BLKIF_OP_READ, 1, 100);	/* what is mapped is not copied */
	assert_calls(2, 0, 2, 2);
	stopped_ns++;
	ask(BLKIF_OP_READ, 1, 200);
	assert_calls(3, 0, 2, 2);
}

/* The longest unused makes room, but only after a second. */
static void
test_bounded(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 16; i++)
		ask(BLKIF_OP_READ, 1, 100 + i);
	ask(BLKIF_OP_READ, 1, 200);
	assert_calls(16, 0, 1, 1);
	stopped_ns += SECOND - 1;
	ask(BLKIF_OP_READ, 1, 100);		/* now 101 is the one */
	ask(BLKIF_OP_READ, 1, 200);
	assert_calls(16, 0, 2, 2);
	stopped_ns++;
	ask(BLKIF_OP_READ, 1, 200);
	assert_calls(17, 1, 2, 2);
	assert_true(mapped[100] && !mapped[101] && mapped[102]);
	assert_true(mapped[200]);

	/* More than fit, at once: they take turns. */
	for (i = 0; i < 8; i++)
		put(BLKIF_OP_READ, i * 80, 11, 300 + i * 11);
	run();
	for (i = 0; i < 8; i++)
		assert_int_equal(got(*req_prod - 8 + i), BLKIF_RSP_OKAY);
	assert_int_equal(maps, 17);	/* the ring's page is one */
}

/* Round and round among more pages than there is room for: no maps. */
static void
test_round_and_round(void **state)
{
	unsigned i, n;

	(void)state;
	for (n = 1; n <= 10; n++) {
		for (i = 0; i < 40; i++)
			ask(i & 1 ? BLKIF_OP_READ : BLKIF_OP_WRITE, 1, 100 + i);
		assert_calls(16, 0, n * 24, n * 24);
		stopped_ns += SECOND / 2;
	}
	/* Once around in more than a second: one map, one unmap for each. */
	stopped_ns += SECOND;
	for (i = 0; i < 40; i++)
		ask(BLKIF_OP_READ, 1, 300 + i);
	assert_calls(32, 16, 240 + 24, 240 + 24);
}

/* Some pages of a request are mapped, some are not: it is copied, all of it. */
static void
test_mixed(void **state)
{
	(void)state;
	fill(100, 11, 3);
	ask(BLKIF_OP_READ, 10, 200);
	assert_calls(10, 0, 0, 0);
	put(BLKIF_OP_WRITE, 0, 11, 100);
	put(BLKIF_OP_READ, 88, 1, 200);
	run();
	assert_int_equal(got(1), BLKIF_RSP_OKAY);
	assert_int_equal(got(2), BLKIF_RSP_OKAY);
	assert_memory_equal(disk, guest[100], 11 * 4096);
	assert_calls(16, 0, 1, 11);
	put(BLKIF_OP_READ, 0, 11, 102);		/* 102 to 105 are mapped */
	run();
	assert_int_equal(got(3), BLKIF_RSP_OKAY);
	assert_memory_equal(guest[102], disk, 11 * 4096);
	assert_calls(16, 0, 2, 22);
	ask(BLKIF_OP_WRITE, 6, 100);
	assert_calls(16, 0, 2, 22);
}

static void
test_in_use_stays(void **state)
{
	unsigned i;

	(void)state;
	hold = true;
	put(BLKIF_OP_READ, 0, 8, 100);
	run();
	stopped_ns += 5ull * SECOND;
	for (i = 0; i < 16; i++)
		put(BLKIF_OP_READ, 800 + i * 8, 1, 200 + i);
	run();
	for (i = 0; i < 8; i++)
		assert_true(mapped[100 + i] && mapped[200 + i]);
	hold = false;
	run();
	for (i = 0; i < 17; i++)
		assert_int_equal(got(i), BLKIF_RSP_OKAY);
	/* What found no room in the arena at first, found none here then. */
	assert_calls(16, 0, 1, 8);
}

/* All pages of indirect requests stay mapped, that of their descriptors too. */
static void
test_indirect(void **state)
{
	unsigned n;

	(void)state;
	fill(100, 64, 7);
	for (n = 0; n < 3; n++) {
		put_indirect(BLKIF_OP_WRITE, 64, 64, 100, 900);
		put_indirect(BLKIF_OP_READ, 64, 64, 300, 901);
		run();
		assert_int_equal(got(2 * n), BLKIF_RSP_OKAY);
		assert_int_equal(got(2 * n + 1), BLKIF_RSP_OKAY);
		assert_memory_equal(disk + 64 * 512, guest[100], 64 * 4096);
	}
	assert_int_equal(copies, 0);
	assert_int_equal(page_maps, 64 + 64 + 2);
	assert_true(mapped[900] && mapped[901]);
}

/* Bad descriptors cost their own request. */
static void
test_bad_descriptors(void **state)
{
	(void)state;
	granted[900] = 0;
	granted[902] = 1;
	put_indirect(BLKIF_OP_WRITE, 64, 64, 100, 900);
	put_indirect(BLKIF_OP_READ, 64, 64, 300, 901);
	put_indirect(BLKIF_OP_READ, 64, 64, 300, 902);
	run();
	assert_int_equal(got(0), BLKIF_RSP_ERROR);
	assert_int_equal(got(1), BLKIF_RSP_OKAY);
	assert_int_equal(got(2), BLKIF_RSP_OKAY);
	assert_calls(1, 0, 2, 3 + 2 * 64);
}

/* What is wrong with them is seen in the copy of a mapped page as well. */
static void
test_refused_descriptors(void **state)
{
	(void)state;
	put_indirect(BLKIF_OP_WRITE, 64, 64, 100, 900);
	descriptor(900, 63)->last_sect = 8;
	put_indirect(BLKIF_OP_WRITE, 64, 64, 100, 901);
	run();
	assert_int_equal(got(0), BLKIF_RSP_ERROR);
	assert_int_equal(got(1), BLKIF_RSP_OKAY);
	assert_int_equal(stats()->reqs_rejected, 1);
	assert_calls(2 + 64, 0, 0, 0);
}

/* Some descriptors are mapped, others are copied, in one round. */
static void
test_descriptors_mixed(void **state)
{
	unsigned i;

	(void)state;
	fill(100, 16, 3);
	ask(BLKIF_OP_READ, 11, 200);
	ask(BLKIF_OP_READ, 3, 300);
	put_indirect(BLKIF_OP_WRITE, 0, 12, 100, 900);
	run();
	assert_int_equal(got(2), BLKIF_RSP_OKAY);
	assert_calls(16, 0, 1, 12);		/* 900 and 100 are mapped */
	for (i = 1; i < 12; i++)
		*descriptor(900, i) = *descriptor(900, 0);
	put_indirect(BLKIF_OP_WRITE, 512, 12, 100, 901);
	put_indirect(BLKIF_OP_WRITE, 128, 12, 100, 900);
	put_indirect(BLKIF_OP_WRITE, 256, 12, 104, 902);
	for (i = 0; i < 12; i++)
		descriptor(900, i)->gref = 100;
	run();
	assert_int_equal(got(3), BLKIF_RSP_OKAY);
	assert_int_equal(got(4), BLKIF_RSP_OKAY);
	assert_int_equal(got(5), BLKIF_RSP_OKAY);
	assert_memory_equal(disk + 512 * 512, guest[100], 12 * 4096);
	for (i = 0; i < 12; i++)
		assert_memory_equal(disk + 128 * 512 + i * 4096, guest[100],
		    4096);
	assert_memory_equal(disk + 256 * 512, guest[104], 12 * 4096);
}

/* Descriptors find room even when the data then needs all of it. */
static void
test_descriptors_bounded(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 8; i++)
		put_indirect(BLKIF_OP_READ, i * 128, 16, 100 + i * 16, 900 + i);
	run();
	for (i = 0; i < 8; i++)
		assert_int_equal(got(i), BLKIF_RSP_OKAY);
	assert_int_equal(maps, 17);
	/* One page of descriptors, 15 of data; the other seven are copied. */
	assert_calls(16, 0, 1 + 2 * 7, 16 + 7 + 7 * 16);
}

/* Another connection. */
static void
reconnect(bool persistent)
{
	struct message_connect c = { .abi = RING_ABI_X86_64, .nr_queues = 1,
	    .persistent = persistent,
	    .ring = { { .port = 3, .gref = { 1 } } } };
	char why[WHY_MAX];

	queue_disconnect(&q);
	memset(ring_pages, 0, sizeof(ring_pages));
	*req_event = *rsp_event = 1;
	rsp_cons = 0;
	assert_int_equal(queue_connect(&q, &c, RESUME_NO, why), 0);
}

/* It finds nothing of the last one's. */
static void
test_again(void **state)
{
	(void)state;
	granted[200] = 0;
	put(BLKIF_OP_READ, 0, 2, 199);
	run();
	assert_int_equal(got(0), BLKIF_RSP_ERROR);
	assert_calls(2, 0, 1, 2);
	reconnect(true);
	assert_calls(2, 1, 1, 2);
	ask(BLKIF_OP_READ, 1, 199);
	assert_calls(3, 1, 1, 2);
}

/* A frontend that did not say so is copied for. */
static void
test_not_agreed(void **state)
{
	(void)state;
	reconnect(false);
	ask(BLKIF_OP_WRITE, 1, 100);
	assert_calls(0, 0, 1, 1);
}

/* So is one that says so to a queue that does not offer it. */
static void
test_not_offered(void **state)
{
	(void)state;
	reconnect(true);
	ask(BLKIF_OP_WRITE, 1, 100);
	assert_calls(0, 0, 1, 1);
}

/* Neither flushes nor discards have pages. */
static void
test_no_pages(void **state)
{
	blkif_request_discard_t *r;

	(void)state;
	put(BLKIF_OP_FLUSH_DISKCACHE, 0, 0, 0);
	r = (void *)put(BLKIF_OP_DISCARD, 0, 0, 0);
	r->nr_sectors = 64;
	run();
	assert_int_equal(got(0), BLKIF_RSP_OKAY);
	assert_int_equal(got(1), BLKIF_RSP_OKAY);
	assert_int_equal(page_maps, 0);
}

int
main(void)
{
#define P(f) cmocka_unit_test_setup_teardown(f, setup_persistent, teardown)
#define S(f) cmocka_unit_test_setup_teardown(f, setup_small, teardown)
	const struct CMUnitTest tests[] = {
		P(test_no_calls),
		P(test_merged),
		P(test_parts_of_pages),
		P(test_shared_page),
		P(test_bad_grant),
		P(test_rests),
		S(test_bounded),
		S(test_round_and_round),
		S(test_mixed),
		S(test_in_use_stays),
		P(test_indirect),
		P(test_bad_descriptors),
		P(test_refused_descriptors),
		S(test_descriptors_mixed),
		S(test_descriptors_bounded),
		P(test_again),
		P(test_not_agreed),
		T(test_not_offered),
		P(test_no_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
