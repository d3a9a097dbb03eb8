/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The rounds of one queue, on a guest in this process (queue_rig.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/queue_rig.h"

static void
test_write_read(void **state)
{
	(void)state;
	fill(100, 11, 3);
	put(BLKIF_OP_WRITE, 16, 11, 100);
	run();
	assert_int_equal(got(0), BLKIF_RSP_OKAY);
	assert_memory_equal(disk + 8192, guest[100], 11 * 4096);
	put(BLKIF_OP_READ, 16, 11, 200);
	run();
	assert_int_equal(got(1), BLKIF_RSP_OKAY);
	assert_memory_equal(guest[200], guest[100], 11 * 4096);
	assert_true(queue_idle(&q));
	assert_int_equal(page.queue[0].stats.bytes[PAGE_READ], 11 * 4096);
}

/* A full ring of 4 KiB neighbours costs one of everything. */
static void
test_one_of_everything(void **state)
{
	struct page_stats *s = &page.queue[0].stats;
	unsigned i;

	(void)state;
	for (i = 0; i < 32; i++)
		put(BLKIF_OP_WRITE, i * 8, 1, 100 + i);
	*rsp_event = 32;
	run();
	assert_int_equal(copies, 1);
	assert_int_equal(nr_ios, 1);
	assert_int_equal(notifies, 1);
	assert_int_equal(s->reqs_answered, 32);
	assert_int_equal(s->ios, 1);
	assert_int_equal(s->submits, 1);
	assert_int_equal(s->publishes, 1);
	for (i = 0; i < 32; i++)
		assert_int_equal(got(i), BLKIF_RSP_OKAY);

	for (i = 0; i < 32; i++)
		put(BLKIF_OP_READ, (i * 7 % 32) * 200, 1, 100 + i);
	*rsp_event = 64;
	run();
	assert_int_equal(copies, 2);
	assert_int_equal(notifies, 2);
	assert_int_equal(s->submits, 2);
}

/* One bad grant among eleven: nothing of the request reaches the image. */
/*
 * A round is as large as a merged I/O may be, but not larger, unless it is one
 * request: what it has taken is answered before more is.
 */
static void
test_round(void **state)
{
	unsigned i;

	(void)state;
	assert_int_equal(q.round_pages, 256);	/* the rig's merge= */
	q.round_pages = 32;
	for (i = 0; i < 16; i++)
		put(BLKIF_OP_READ, i * 200, 5, 100 + i * 5);
	assert_true(queue_round(&q));
	assert_int_equal(page.queue[0].req_cons, 7);
	assert_int_equal(*rsp_prod, 7);
	assert_int_equal(copies, 1);
	assert_true(queue_round(&q));
	assert_int_equal(*rsp_prod, 14);
	run();
	assert_int_equal(*rsp_prod, 16);
	assert_int_equal(copies, 3);

	q.round_pages = 4;
	put(BLKIF_OP_READ, 0, 11, 100);
	put(BLKIF_OP_READ, 200, 1, 120);
	assert_true(queue_round(&q));
	assert_int_equal(*rsp_prod, 17);
	run();
	assert_int_equal(*rsp_prod, 18);
}

/* What whoever looks at the page gets to know of each request. */
static void
test_stages(void **state)
{
	struct page_slot *s = page.queue[0].slot;
	struct page_stats *stats = &page.queue[0].stats;

	(void)state;
	s[2].length = 99;		/* of who had the slot before */
	stopped_ns = 1000000;
	hold = true;
	put(BLKIF_OP_WRITE, 400, 1, 100);
	put(BLKIF_OP_WRITE, 0, 1, 101);
	put(BLKIF_OP_WRITE, 8, 2, 102);		/* merged with the one before */
	put_indirect(BLKIF_OP_READ, 64, 12, 110, 200);
	put(BLKIF_OP_WRITE_BARRIER, 800, 1, 130);
	run();
	assert_int_equal(s[0].stage, PAGE_STAGE_STORAGE);
	assert_int_equal(s[1].stage, PAGE_STAGE_STORAGE | 1 << PAGE_STAGE_BITS);
	assert_int_equal(s[2].stage, PAGE_STAGE_STORAGE | 1 << PAGE_STAGE_BITS);
	assert_int_equal(s[3].stage, PAGE_STAGE_STORAGE | 3 << PAGE_STAGE_BITS);
	assert_int_equal(s[4].stage, PAGE_STAGE_ROOM);
	assert_int_equal(s[2].length, 0);
	assert_int_equal(s[3].length, 12 * 4096);
	assert_int_equal(s[4].taken_ns, 1000000);
	assert_int_equal(s[0].state, PAGE_SLOT_TAKEN);

	stopped_ns += 5000;
	hold = false;
	fail_op = IO_WRITE;
	fail_nth = 1;
	q.on_error = ON_ERROR_STOP;
	run();
	assert_int_equal(s[0].stage, PAGE_STAGE_HELD);
	assert_int_equal(s[0].state, PAGE_SLOT_TAKEN);
	assert_int_equal(s[1].state, PAGE_SLOT_FREE);
	assert_int_equal(stats->waits[PAGE_READ][12], 1);	/* from 4096 */
	assert_int_equal(stats->waits[PAGE_WRITE][12], 2);
	queue_retry(&q);
	run();
	assert_true(queue_idle(&q));
	assert_int_equal(stats->waits[PAGE_BARRIER][12], 1);
}

static void
test_bad_segment(void **state)
{
	unsigned bad;

	(void)state;
	memset(disk, 0x55, sizeof(disk));
	fill(100, 11, 1);
	for (bad = 0; bad < 11; bad++) {
		granted[100 + bad] = 0;
		put(BLKIF_OP_WRITE, 0, 11, 100);
		put(BLKIF_OP_WRITE, 88, 1, 300); /* its neighbour is fine */
		run();
		granted[100 + bad] = 2;
		assert_int_equal(got(2 * bad), BLKIF_RSP_ERROR);
		assert_int_equal(got(2 * bad + 1), BLKIF_RSP_OKAY);
		assert_int_equal(disk[0], 0x55);
		assert_int_equal(disk[11 * 4096 - 1], 0x55);
	}
	put(BLKIF_OP_WRITE, 0, 1, 5000);		/* beyond the table */
	granted[100] = 1;				/* read-only: fine */
	put(BLKIF_OP_WRITE, 8, 1, 100);
	put(BLKIF_OP_READ, 0, 1, 100);			/* ... not for a read */
	run();
	assert_int_equal(got(22), BLKIF_RSP_ERROR);
	assert_int_equal(got(23), BLKIF_RSP_OKAY);
	assert_int_equal(got(24), BLKIF_RSP_ERROR);
}

/* A copy call that fails half-way has copied half of the requests. */
static void
test_copy_call_fails(void **state)
{
	unsigned i, ok = 0;

	(void)state;
	copy_call_fails = true;
	for (i = 0; i < 8; i++)
		put(BLKIF_OP_WRITE, i * 8, 1, 100 + i);
	run();
	while (rsp_cons != *rsp_prod)
		ok += ((blkif_response_t *)(void *)slot(rsp_cons++))->status ==
		    BLKIF_RSP_OKAY;
	assert_int_equal(rsp_cons, 8);
	assert_int_equal(ok, 4);
}

/* Every request is answered exactly once, whichever I/O fails. */
static void
test_sweep(void **state)
{
	unsigned nth, i, failed;

	(void)state;
	for (nth = 1; ; nth++) {
		teardown(NULL);
		connect_queue(8 << 20, 0, false);
		fail_op = IO_WRITE;
		fail_nth = nth;
		for (i = 0; i < 8; i++)
			put(BLKIF_OP_WRITE, i * 8, 1, 100 + i);
		put(BLKIF_OP_FLUSH_DISKCACHE, 0, 0, 0);
		put(BLKIF_OP_WRITE, 64, 1, 110);
		run();
		assert_int_equal(*rsp_prod, 10);
		for (failed = i = 0; i < 10; i++)
			failed += ((blkif_response_t *)(void *)slot(i))->status
			    != BLKIF_RSP_OKAY;
		/*
		 * The first is the merged one: each goes again alone, and no
		 * request fails.  Those after it do not exist without it.
		 */
		assert_int_equal(failed, nth == 2 ? 1 : 0);
		if (fail_nth > 0)
			break;
	}
	assert_int_equal(nth, 3);
}

/* Storage that loses a flush is not trusted with a write again. */
static void
test_failed_flush(void **state)
{
	(void)state;
	fail_op = IO_FLUSH;
	fail_nth = 1;
	put(BLKIF_OP_FLUSH_DISKCACHE, 0, 0, 0);
	run();
	put(BLKIF_OP_WRITE, 0, 1, 100);
	put(BLKIF_OP_FLUSH_DISKCACHE, 0, 0, 0);
	put(BLKIF_OP_READ, 0, 1, 100);
	run();
	assert_int_equal(got(0), BLKIF_RSP_ERROR);
	assert_int_equal(got(1), BLKIF_RSP_ERROR);
	assert_int_equal(got(2), BLKIF_RSP_ERROR);
	assert_int_equal(got(3), BLKIF_RSP_OKAY);
	assert_int_equal(nr_ios, 2);
}

/* A flush that carries data: the flush, then the write, one response. */
static void
test_flush_with_data(void **state)
{
	(void)state;
	memset(disk, 0, sizeof(disk));
	fill(100, 2, 9);
	put(BLKIF_OP_FLUSH_DISKCACHE, 8, 2, 100);
	run();
	assert_int_equal(got(0), BLKIF_RSP_OKAY);
	assert_string_equal(order, "fw");
	assert_memory_equal(disk + 4096, guest[100], 8192);
	/* The write failed, the flush did not: the disk goes on. */
	fail_op = IO_WRITE;
	fail_nth = 1;
	put(BLKIF_OP_FLUSH_DISKCACHE, 8, 1, 100);
	put(BLKIF_OP_WRITE, 100, 1, 100);
	run();
	assert_int_equal(*rsp_prod, 3);
	assert_int_equal(page.header.failed, 0);
	/* Nor does a bad grant say anything of the storage. */
	granted[100] = 0;
	put(BLKIF_OP_FLUSH_DISKCACHE, 8, 1, 100);
	run();
	assert_int_equal(*rsp_prod, 4);
	assert_int_equal(page.header.failed, 0);
}

/* Nothing that came before a barrier is done after it, nor the other way. */
static void
test_barrier(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 3; i++)
		put(BLKIF_OP_WRITE, i * 16, 1, 100);
	put(BLKIF_OP_WRITE_BARRIER, 100, 2, 100);
	put(BLKIF_OP_WRITE, 200, 1, 100);
	put(BLKIF_OP_WRITE_BARRIER, 0, 0, 0);
	put(BLKIF_OP_READ, 0, 1, 100);
	run();
	assert_string_equal(order, "wwwfwfwfr");
	for (i = 0; i < 7; i++)
		assert_int_equal(got(i), BLKIF_RSP_OKAY);

	/* While the storage hangs nothing passes, and nobody spins. */
	hold = true;
	put(BLKIF_OP_WRITE, 0, 1, 100);
	put(BLKIF_OP_WRITE_BARRIER, 0, 1, 100);
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	assert_int_equal(q.inflight, 2);
	assert_false(queue_arm(&q));
	hold = false;
	run();
	assert_true(queue_idle(&q));
	assert_int_equal(*rsp_prod, 10);

	/* One that is refused does not lift the next one. */
	nr_ios = 0;
	memset(order, 0, sizeof(order));
	put(BLKIF_OP_WRITE_BARRIER, UINT64_MAX, 1, 100);
	put(BLKIF_OP_WRITE_BARRIER, 0, 1, 100);
	put(BLKIF_OP_WRITE, 200, 1, 100);
	run();
	assert_string_equal(order, "fwfw");
	assert_true(queue_idle(&q));
}

static void
test_barrier_fails(void **state)
{
	(void)state;
	fail_op = IO_FLUSH;
	fail_nth = 2;			/* its own data is not durable */
	put(BLKIF_OP_WRITE_BARRIER, 0, 1, 100);
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	assert_int_equal(got(0), BLKIF_RSP_ERROR);
	assert_int_equal(got(1), BLKIF_RSP_ERROR);
	assert_int_equal(page.header.failed, 1);
}

static void
test_discard(void **state)
{
	(void)state;
	memset(disk, 0x55, sizeof(disk));
	put(BLKIF_OP_DISCARD, 8, 0, 0);
	/* nr_sectors lies where the first segment does. */
	slot(*req_prod - 1)->seg[0].gref = 20;
	put(BLKIF_OP_DISCARD, 9, 0, 0);
	slot(*req_prod - 1)->seg[0].gref = 1;
	run();
	assert_int_equal(got(1), BLKIF_RSP_OKAY);
	assert_int_equal(got(0), BLKIF_RSP_OKAY);
	assert_string_equal(order, "d");
	assert_int_equal(disk[4095], 0x55);
	assert_int_equal(disk[4096], 0);
	assert_int_equal(disk[12287], 0);
	assert_int_equal(disk[12288], 0x55);
}

static void
test_refused(void **state)
{
	(void)state;
	put(0x7f, 0, 1, 100);
	put(BLKIF_OP_WRITE, DISK_BYTES / 512 - 7, 1, 100);
	put(BLKIF_OP_READ, 0, 0, 0);
	run();
	assert_int_equal(got(0), BLKIF_RSP_EOPNOTSUPP);
	assert_int_equal(got(1), BLKIF_RSP_ERROR);
	assert_int_equal(got(2), BLKIF_RSP_ERROR);
	assert_int_equal(nr_ios, 0);
	assert_int_equal(page.queue[0].stats.reqs_rejected, 3);
}

/* on-error=stop: what failed waits, and everything behind it. */
static void
test_stop(void **state)
{
	unsigned i;

	(void)state;
	q.on_error = ON_ERROR_STOP;
	fail_op = IO_WRITE;
	fail_nth = 2;
	for (i = 0; i < 3; i++)
		put(BLKIF_OP_WRITE, i * 16, 1, 100);
	run();
	assert_int_equal(*rsp_prod, 2);		/* the others are answered */
	assert_int_equal(q.stopped, -EIO);
	put(BLKIF_OP_READ, 0, 1, 100);
	run();
	assert_int_equal(*rsp_prod, 2);
	assert_false(queue_arm(&q));

	fail_nth = 1;				/* not mended yet */
	queue_retry(&q);
	run();
	assert_int_equal(q.stopped, -EIO);
	queue_retry(&q);
	run();
	assert_int_equal(q.stopped, 0);
	assert_int_equal(*rsp_prod, 4);
	assert_int_equal(got(0), BLKIF_RSP_OKAY);
	assert_int_equal(got(2), BLKIF_RSP_OKAY);
	assert_int_equal(got(3), BLKIF_RSP_OKAY);
	assert_int_equal(got(1), BLKIF_RSP_OKAY);
	assert_int_equal(page.queue[0].stats.reqs_failed, 0);

	/* With stop-enospc another error is the guest's. */
	q.on_error = ON_ERROR_STOP_ENOSPC;
	fail_nth = 1;
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	assert_int_equal(got(4), BLKIF_RSP_ERROR);

	/* A guest that goes away does not wait for the operator. */
	q.on_error = ON_ERROR_STOP;
	fail_nth = 1;
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	assert_int_equal(q.inflight, 1);
	q.draining = true;
	queue_retry(&q);
	run();
	assert_int_equal(got(5), BLKIF_RSP_ERROR);
	assert_true(queue_idle(&q));
}

/* Nor is a failed flush tried again: it might seem to succeed. */
static void
test_stop_flush(void **state)
{
	(void)state;
	q.on_error = ON_ERROR_STOP;
	fail_op = IO_FLUSH;
	fail_nth = 1;
	put(BLKIF_OP_FLUSH_DISKCACHE, 0, 0, 0);
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	assert_int_equal(q.stopped, 0);
	assert_int_equal(*rsp_prod, 3);
	assert_int_equal(got(0), BLKIF_RSP_ERROR);
}

/* Duplicate ids are legal: mini-os sends id 0 for each. */
static void
test_duplicate_ids(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 4; i++)
		put(BLKIF_OP_WRITE, i * 8, 1, 100)->id = 0;
	run();
	assert_int_equal(*rsp_prod, 4);
	for (i = 0; i < 4; i++)
		assert_true(slot(i)->id == 0 ||
		    ((blkif_response_t *)(void *)slot(i))->id == 0);
}

/* The arena holds one request and a half: the ring waits, nothing is lost. */
static void
test_small_arena(void **state)
{
	unsigned i;

	(void)state;
	teardown(NULL);
	connect_queue(16 * 4096, 1, false);
	fill(100, 11, 7);
	for (i = 0; i < 64; i++)
		put(BLKIF_OP_WRITE, i * 88, 11, 100);
	hold = true;
	run();
	assert_int_equal(q.inflight, 2);	/* the second one waits */
	assert_false(queue_arm(&q));		/* and is not looked for */
	hold = false;
	run();
	for (i = 0; i < 64; i++) {
		assert_int_equal(got(i), BLKIF_RSP_OKAY);
		assert_memory_equal(disk + i * 88 * 512, guest[100], 45056);
	}
}

static void
test_broken_ring(void **state)
{
	(void)state;
	hold = true;
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	*req_prod += 100000;
	run();
	assert_non_null(q.broken);
	assert_false(queue_arm(&q));
	*req_prod = 2;			/* broken stays broken */
	run();
	assert_int_equal(page.queue[0].stats.reqs_taken, 1);
	hold = false;			/* what was taken is answered */
	run();
	assert_int_equal(got(0), BLKIF_RSP_OKAY);
	assert_true(queue_idle(&q));
}

static void
test_draining(void **state)
{
	(void)state;
	hold = true;
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	q.draining = true;
	put(BLKIF_OP_WRITE, 8, 1, 100);
	run();
	assert_int_equal(q.inflight, 1);
	hold = false;
	run();
	assert_true(queue_idle(&q));
	assert_int_equal(*rsp_prod, 1);
	assert_int_equal(q.ring.req_cons, 1);	/* the other one stays there */
}

/* While polling req_event stays behind, so that the guest sends no event. */
static void
test_arm(void **state)
{
	(void)state;
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	assert_int_equal(*req_event, 1);
	assert_false(queue_arm(&q));
	assert_int_equal(*req_event, 2);
	put(BLKIF_OP_WRITE, 0, 1, 100);
	assert_true(queue_arm(&q));
}

/* Events without requests are slowed down; one request ends that. */
static void
test_storm(void **state)
{
	int i, timeout = -1;

	(void)state;
	pending_port = q.port;
	for (i = 0; i < 1000; i++) {
		queue_event(&q);
		run();
		assert_false(queue_arm(&q));
		timeout = queue_timeout(&q);
		if (timeout >= 0)
			queue_unmask(&q);
		assert_int_equal(unmasks, i + 1);
	}
	assert_in_range(timeout, 10, 1000);
	put(BLKIF_OP_READ, 0, 1, 100);
	run();
	queue_event(&q);
	assert_int_equal(queue_timeout(&q), -1);
	/* An event of a port that is not ours is nobody's. */
	pending_port = q.port + 1;
	q.masked = false;
	queue_event(&q);
	assert_false(q.masked);
}

/*
 * What has been armed stays so until a request is taken: answers that came
 * meanwhile change nothing, and whoever then spins wants no event.
 */
static void
test_disarm(void **state)
{
	(void)state;
	hold = true;
	put(BLKIF_OP_READ, 0, 1, 100);
	run();
	assert_false(queue_arm(&q));
	assert_int_equal(*req_event, 2);
	hold = false;
	run();
	assert_int_equal(got(0), BLKIF_RSP_OKAY);
	queue_disarm(&q);
	assert_int_equal(*req_event, 1);
	/* Nothing is armed any more, so nothing is written there. */
	assert_false(queue_arm(&q));
	assert_int_equal(*req_event, 2);
	put(BLKIF_OP_READ, 0, 1, 100);
	put(BLKIF_OP_READ, 0, 1, 100);
	run();
	queue_disarm(&q);
	assert_int_equal(*req_event, 2);
	assert_int_equal(got(1), BLKIF_RSP_OKAY);
}

/* What a connect cannot have leaves nothing behind. */
static void
test_connect_fails(void **state)
{
	struct message_connect c = { .nr_queues = 1,
	    .ring = { { .port = 3 } } };
	char why[WHY_MAX] = "";

	(void)state;
	queue_disconnect(&q);
	assert_true(queue_connect(&q, &c, RESUME_NO, why) < 0);
	assert_non_null(strstr(why, "map the ring"));
	c.ring[0].gref[0] = 1;
	c.ring[0].port = 0;
	assert_true(queue_connect(&q, &c, RESUME_NO, why) < 0);
	assert_non_null(strstr(why, "event channel"));
	assert_int_equal(maps, 0);
	*req_prod = 500;
	c.ring[0].port = 3;
	assert_int_equal(queue_connect(&q, &c, RESUME_NO, why),
	    -EPROTO);
	assert_int_equal(maps, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_write_read),
		T(test_one_of_everything),
		T(test_round),
		T(test_stages),
		T(test_bad_segment),
		T(test_copy_call_fails),
		T(test_sweep),
		T(test_failed_flush),
		T(test_flush_with_data),
		T(test_barrier),
		T(test_barrier_fails),
		T(test_discard),
		T(test_stop),
		T(test_stop_flush),
		T(test_refused),
		T(test_duplicate_ids),
		T(test_small_arena),
		T(test_broken_ring),
		T(test_draining),
		T(test_arm),
		T(test_storm),
		T(test_disarm),
		T(test_connect_fails),
	};

	return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
