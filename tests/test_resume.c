/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A disk process dies at any instant, and its successor goes on where it stood:
 * on a guest in this process (queue_rig.h).
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/queue_rig.h"

static sigjmp_buf death;

static void
on_trap(int sig)
{
	(void)sig;
	siglongjmp(death, 1);
}

/*
 * The process dies: what it knew is gone, what the page, the ring and the
 * storage hold stays.  I/O that was handed over is done by the kernel before
 * the process is gone, what was not is lost.
 */
static void
die(bool submitted)
{
	struct io *io;

	while ((io = STAILQ_FIRST(&queued)) != NULL) {
		STAILQ_REMOVE_HEAD(&queued, link);
		if (submitted)
			store_execute(io);
	}
	free(q.reqs);
	free(q.descriptors);
	free(q.grant.seg);
	arena_fini(&arena);
	memset(&q, 0, sizeof(q));
	maps = 0;
}

static int
succeed(enum resume_mode resume, unsigned ring_order)
{
	struct disk_spec spec = { .memory = 1 << 20, .merge = 1 << 20,
	    .segments = 256 };
	struct message_connect c = { .abi = RING_ABI_X86_64, .nr_queues = 1,
	    .ring = { { .order = ring_order, .port = 3 } } };
	char why[WHY_MAX];
	int i, rc;

	page.queue[0].stop_at = STEP_NONE;
	for (i = 0; i < (int)RING_MAX_PAGES; i++)
		c.ring[0].gref[i] = 1 + i;
	assert_int_equal(arena_init(&arena, spec.memory), 0);
	assert_int_equal(queue_open(&q, &image, 7, &spec, &arena, &page, 0,
	    why), 0);
	rc = queue_connect(&q, &c, resume, why);
	if (rc < 0) {
		queue_close(&q);
		arena_fini(&arena);
	}
	return rc;
}

/*
 * Forty requests over a ring of 64, every third one indirect, the frontend
 * publishing a few at a time; die at the nth time that a step is reached.
 * True: it was reached.
 */
static bool
die_at(enum page_step at, unsigned nth, bool submitted)
{
	unsigned answered[40] = { 0 }, i, n, round;
	volatile bool died = false;
	uint64_t id;

	connect_queue(8 << 20, 1, false);
	memset(disk, 0xee, sizeof(disk));
	page.queue[0].stop_at = at;
	page.queue[0].stop_after = nth;
	for (round = 0; round < 8; round++) {
		for (i = round * 5; i < round * 5 + 5; i++) {
			memset(guest[100 + i], i + 1, 4096);
			if (i % 3 == 0)
				put_indirect(BLKIF_OP_WRITE, i * 8, 1, 100 + i,
				    200 + i);
			else
				put(BLKIF_OP_WRITE, i * 8, 1, 100 + i);
		}
		*rsp_event = *rsp_prod + 1;
		n = notifies;
		if (sigsetjmp(death, 1) == 0) {
			run();
		} else {
			died = true;
			die(submitted);
			assert_int_equal(succeed(RESUME_REPLAY, 1), 0);
			/* Whatever the dead one had sent, one more comes. */
			assert_true(notifies > n);
			run();
		}
		while (rsp_cons != *rsp_prod) {
			id = ((blkif_response_t *)(void *)slot(rsp_cons))->id &
			    0xff;
			assert_int_equal(got(id), BLKIF_RSP_OKAY);
			assert_int_equal(answered[id]++, 0);
			assert_int_equal(disk[id * 4096], id + 1);
		}
		assert_true(queue_idle(&q));
	}
	for (i = 0; i < 40; i++)
		assert_int_equal(answered[i], 1);
	assert_int_equal(page.queue[0].stats.reqs_taken,
	    page.queue[0].stats.reqs_answered);
	queue_disconnect(&q);
	queue_close(&q);
	arena_fini(&arena);
	return died;
}

static void
test_death_at_each_step(void **state)
{
	struct sigaction sa = { .sa_handler = on_trap }, old[2];
	unsigned nth, deaths = 0;
	int at;

	(void)state;
	teardown(NULL);
	sigaction(SIGILL, &sa, &old[0]);
	sigaction(SIGTRAP, &sa, &old[1]);
	for (at = STEP_COPIED; at < NR_STEPS; at++) {
		for (nth = 0; die_at(at, nth, nth % 2); nth++)
			deaths++;
		if (nth == 0)
			fail_msg("step %d is never reached", at);
	}
	sigaction(SIGILL, &old[0], NULL);
	sigaction(SIGTRAP, &old[1], NULL);
	assert_true(deaths >= 5 * 40 + 7 * 8);
	setup(NULL);
}

/* The guest has waited since the request was taken, whoever took it. */
static void
test_resume_wait(void **state)
{
	struct page_queue *p = &page.queue[0];
	unsigned i;

	(void)state;
	stopped_ns = 5000000;
	hold = true;
	for (i = 0; i < 3; i++)
		put(BLKIF_OP_WRITE, i * 80, 1, 100);
	run();
	p->slot[1].taken_ns = 7000000;	/* a stamp that cannot be */
	p->slot[2].metadata = 1;
	die(false);
	stopped_ns = 6000000;
	assert_int_equal(succeed(RESUME_REPLAY, 0), 0);
	assert_int_equal(p->slot[2].metadata, 0);
	hold = false;
	run();
	assert_int_equal(p->stats.ops[PAGE_WRITE], 3);
	assert_int_equal(p->stats.wait_ns[PAGE_WRITE], 2000000);
	assert_int_equal(p->stats.waits[PAGE_WRITE][0], 1);
	assert_int_equal(p->stats.waits[PAGE_WRITE][19], 2);
}

/* A barrier that was in flight waits for what came before it once more. */
static void
test_resume_barrier(void **state)
{
	unsigned i;

	(void)state;
	/* Take slots in another order than the ring's. */
	put(BLKIF_OP_READ, 0, 1, 100);
	put(BLKIF_OP_READ, 0, 1, 100);
	run();
	rsp_cons = 2;
	memset(order, 0, sizeof(order));
	nr_ios = 0;
	hold = true;
	for (i = 0; i < 40; i++)
		put(i == 31 ? BLKIF_OP_WRITE_BARRIER : BLKIF_OP_WRITE,
		    i * 16, 1, 100 + i);
	*req_prod = 2 + 32;
	run();
	die(false);
	hold = false;
	assert_int_equal(succeed(RESUME_REPLAY, 0), 0);
	run();
	assert_string_equal(order, "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwfwf");
	assert_true(queue_idle(&q));
}

/*
 * The successor of one that died with indirect requests in flight reads their
 * descriptors again, and believes them no more than its predecessor did.
 */
static void
test_resume_indirect(void **state)
{
	static const int want[] = { BLKIF_RSP_OKAY, BLKIF_RSP_ERROR,
	    BLKIF_RSP_ERROR, BLKIF_RSP_OKAY };
	unsigned i, seen = 0;
	uint64_t id;

	(void)state;
	memset(disk, 0xee, sizeof(disk));
	hold = true;
	for (i = 0; i < 4; i++)
		put_indirect(BLKIF_OP_WRITE, i * 200, 20, 100, 50 + i);
	run();
	assert_int_equal(q.inflight, 4);
	die(false);
	hold = false;
	copies = 0;
	granted[51] = 0;
	descriptor(52, 19)->last_sect = 8;
	/* Another place, and one that is fine: the guest's own business. */
	fill(300, 20, 5);
	for (i = 0; i < 20; i++)
		descriptor(53, i)->gref = 300 + i;
	assert_int_equal(succeed(RESUME_REPLAY, 0), 0);
	run();
	assert_int_equal(copies, 2);
	while (rsp_cons != *rsp_prod) {
		id = ((blkif_response_t *)(void *)slot(rsp_cons))->id & 0xff;
		assert_int_equal(((blkif_response_t *)(void *)slot(rsp_cons))->
		    operation, BLKIF_OP_WRITE);
		assert_int_equal(got(id), want[id]);
		seen |= 1u << id;
	}
	assert_int_equal(seen, 15);
	assert_int_equal(disk[200 * 512], 0xee);
	assert_int_equal(disk[400 * 512], 0xee);
	assert_memory_equal(disk + 600 * 512, guest[300], 20 * 4096);
	assert_true(queue_idle(&q));
	assert_int_equal(q.arena.nr_used, 0);
}

/* What kills each successor is answered with ERROR at last. */
static void
test_resume_fail(void **state)
{
	unsigned i;

	(void)state;
	hold = true;
	for (i = 0; i < 5; i++)
		put(BLKIF_OP_WRITE, i * 8, 1, 100 + i);
	run();
	die(false);
	hold = false;
	assert_int_equal(succeed(RESUME_FAIL, 0), 0);
	run();
	assert_int_equal(nr_ios, 0);
	for (i = 0; i < 5; i++)
		assert_int_equal(got(i), BLKIF_RSP_ERROR);
	/* And so is all that follows, until the guest connects anew. */
	put(BLKIF_OP_READ, 0, 1, 100);
	put(0x7f, 0, 1, 100);
	run();
	assert_int_equal(nr_ios, 0);
	assert_int_equal(got(5), BLKIF_RSP_ERROR);
	assert_int_equal(got(6), BLKIF_RSP_EOPNOTSUPP);
	assert_true(queue_idle(&q));
}

/* A table that contradicts the indices is not believed. */
static void
test_resume_junk(void **state)
{
	(void)state;
	hold = true;
	put(BLKIF_OP_WRITE, 0, 1, 100);
	put(BLKIF_OP_WRITE, 8, 1, 100);
	run();
	die(false);
	page.queue[0].slot[0].state = PAGE_SLOT_FREE;
	page.queue[0].slot[1].state = PAGE_SLOT_FREE;
	assert_int_equal(succeed(RESUME_REPLAY, 0), -ESTALE);
	page.queue[0].rsp_prod = 2;
	assert_int_equal(succeed(RESUME_REPLAY, 0), 0);
	die(false);
	page.queue[0].req_cons = 1000;
	assert_int_equal(succeed(RESUME_REPLAY, 0), -ESTALE);
	assert_int_equal(maps, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_death_at_each_step),
		T(test_resume_indirect),
		T(test_resume_fail),
		T(test_resume_junk),
		T(test_resume_wait),
		T(test_resume_barrier),
	};

	return cmocka_run_group_tests_name("resume", tests, NULL, NULL);
}
