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

static int
setup_persistent(void **state)
{
	(void)state;
	return connect_queue(8 << 20, 0, true);
}

/* The smallest arena: 16 pages, so no more are mapped either. */
static int
setup_small(void **state)
{
	(void)state;
	return connect_queue(16 * 4096, 0, true);
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
		/* Once each, and never a copy. */
		assert_int_equal(page_maps, 22);
	}
	assert_int_equal(copies, 0);
	for (i = 0; i < 11; i++)
		assert_true(mapped[100 + i] && mapped[200 + i]);
	queue_disconnect(&q);
	assert_int_equal(maps, 0);
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

/* One bad grant costs its own request, and leaves nothing in use. */
static void
test_bad_grant(void **state)
{
	(void)state;
	granted[105] = 0;
	granted[120] = 1;	/* read-only: not what was agreed on */
	put(BLKIF_OP_WRITE, 0, 11, 100);
	put(BLKIF_OP_WRITE, 100, 1, 120);
	put(BLKIF_OP_READ, 200, 1, GUEST_PAGES + 5);
	put(BLKIF_OP_READ, 300, 1, 130);
	run();
	assert_int_equal(got(0), BLKIF_RSP_ERROR);
	assert_int_equal(got(1), BLKIF_RSP_ERROR);
	assert_int_equal(got(2), BLKIF_RSP_ERROR);
	assert_int_equal(got(3), BLKIF_RSP_OKAY);
	assert_true(queue_idle(&q));
	granted[105] = 2;
	put(BLKIF_OP_WRITE, 0, 11, 100);
	run();
	assert_int_equal(got(4), BLKIF_RSP_OKAY);
}

/* The longest unused makes room; what is in use stays. */
static void
test_bounded(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 16; i++) {
		put(BLKIF_OP_READ, i * 8, 1, 100 + i);
		run();
		assert_int_equal(got(i), BLKIF_RSP_OKAY);
	}
	assert_int_equal(page_maps, 16);
	put(BLKIF_OP_READ, 0, 1, 100);		/* now 101 is the one */
	run();
	put(BLKIF_OP_READ, 0, 1, 200);
	run();
	assert_int_equal(page_maps, 17);
	assert_int_equal(got(16), BLKIF_RSP_OKAY);
	assert_int_equal(got(17), BLKIF_RSP_OKAY);
	assert_true(mapped[100] && !mapped[101] && mapped[102]);
	assert_true(mapped[200]);

	/* More than fit, at once: they take turns. */
	for (i = 0; i < 8; i++)
		put(BLKIF_OP_READ, i * 80, 11, 300 + i * 11);
	run();
	for (i = 0; i < 8; i++)
		assert_int_equal(got(18 + i), BLKIF_RSP_OKAY);
	assert_true(maps <= 17);	/* the ring's page is one */
}

static void
test_in_use_stays(void **state)
{
	unsigned i;

	(void)state;
	hold = true;
	put(BLKIF_OP_READ, 0, 8, 100);
	run();
	for (i = 0; i < 8; i++)
		assert_true(mapped[100 + i]);
	hold = false;
	for (i = 0; i < 16; i++)
		put(BLKIF_OP_READ, 800 + i * 8, 1, 200 + i);
	run();
	for (i = 0; i < 17; i++)
		assert_int_equal(got(i), BLKIF_RSP_OKAY);
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

/* Descriptors that cannot be mapped cost their own request. */
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
	assert_int_equal(got(2), BLKIF_RSP_ERROR);
	assert_int_equal(got(1), BLKIF_RSP_OKAY);
	assert_int_equal(maps, 1 + 65);
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
	assert_true(maps <= 17);
}

/* A frontend that did not say so is copied for. */
static void
test_not_agreed(void **state)
{
	struct message_connect c = { .abi = RING_ABI_X86_64, .nr_queues = 1,
	    .ring = { { .port = 3, .gref = { 1 } } } };
	char why[WHY_MAX];

	(void)state;
	queue_disconnect(&q);
	assert_int_equal(queue_connect(&q, &c, RESUME_NO, why), 0);
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	assert_int_equal(got(0), BLKIF_RSP_OKAY);
	assert_int_equal(copies, 1);
	assert_int_equal(page_maps, 0);
}

/* Nor is one that says so to a queue that does not offer it. */
static void
test_not_offered(void **state)
{
	struct message_connect c = { .abi = RING_ABI_X86_64, .nr_queues = 1,
	    .persistent = 1, .ring = { { .port = 3, .gref = { 1 } } } };
	char why[WHY_MAX];

	(void)state;
	queue_disconnect(&q);
	assert_int_equal(queue_connect(&q, &c, RESUME_NO, why), 0);
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	assert_int_equal(got(0), BLKIF_RSP_OKAY);
	assert_int_equal(copies, 1);
	assert_int_equal(page_maps, 0);
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
		S(test_bounded),
		S(test_in_use_stays),
		P(test_indirect),
		P(test_bad_descriptors),
		S(test_descriptors_bounded),
		P(test_not_agreed),
		T(test_not_offered),
		P(test_no_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
