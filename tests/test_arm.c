/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_arm: no wake-up is lost, however the two sides interleave.
 *
 * The backend's steps are ring.c's own: it is compiled into this file with its
 * full barriers, which is where the other side's view of the order matters,
 * turned into a call, and the frontend takes one of its steps there, or
 * between two of the backend's functions.  The frontend's two steps are
 * xen public/io/ring.h's: publish the index; then see whether an event is
 * wanted.  All ways to place them are tried, for rings that were armed before,
 * disarmed before, or never touched, and over the wrap of the indices.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void point(void);

#define __atomic_thread_fence(order) do {	\
	__sync_synchronize();			\
	point();				\
} while (0)
#include "ring/ring.c" /* NOLINT(bugprone-suspicious-include) */
#undef __atomic_thread_fence

#define POINTS 12	/* more than there are on the way to sleep */
#define NEVER  UINT_MAX

static _Alignas(4096) uint8_t page[4096];
static struct ring_header *const shared = (struct ring_header *)page;

/* The frontend: two steps, at these points. */
static unsigned at, publish_at, look_at;
static uint32_t old_prod;
static bool event;

static void
point(void)
{
	if (at == publish_at) {
		old_prod = shared->req_prod;
		shared->req_prod++;
		__sync_synchronize();
	}
	if (at == look_at)
		event = shared->req_prod - shared->req_event <
		    shared->req_prod - old_prod;
	at++;
}

enum before { UNTOUCHED, ARMED, DISARMED };

static void
ring_begin(struct ring *r, enum before before, uint32_t index)
{
	memset(page, 0, sizeof(page));
	shared->req_prod = shared->rsp_prod = index;
	shared->req_event = shared->rsp_event = index + 1;
	publish_at = look_at = NEVER;
	at = 0;
	assert_int_equal(ring_attach(r, page, 0, RING_ABI_NATIVE), 0);
	if (before != UNTOUCHED)
		assert_false(ring_arm(r));
	if (before == DISARMED)
		ring_disarm(r);
	at = 0;
	event = false;
}

/* As the worker: spin a little, arm, look.  False: it found work itself. */
static bool
backend_sleeps(struct ring *r, bool disarm)
{
	point();
	if (disarm)
		ring_disarm(r);
	point();
	if (ring_pending(r) > 0)
		return false;
	point();
	if (ring_arm(r))
		return false;
	point();
	return true;
}

static void
one(enum before before, bool disarm, unsigned p, unsigned l, uint32_t index)
{
	struct ring r;
	bool asleep, told;

	ring_begin(&r, before, index);
	publish_at = p;
	look_at = l;
	asleep = backend_sleeps(&r, disarm);
	/* What was not taken yet is taken now. */
	while (at < POINTS)
		point();
	told = event;
	if (asleep && !told)
		fail_msg("asleep with a request: before %d, disarm %d, "
		    "published at %u, looked at %u, index %u", before, disarm,
		    p, l, index);
	assert_int_equal(ring_pending(&r), 1);
}

static void
test_interleavings(void **state)
{
	static const uint32_t starts[] = { 0, UINT32_MAX - 1, UINT32_MAX };
	enum before before;
	unsigned p, l, i, n = 0;
	int disarm;

	(void)state;
	for (i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
		for (before = UNTOUCHED; before <= DISARMED; before++)
			for (disarm = 0; disarm <= 1; disarm++)
				for (p = 0; p < POINTS - 1; p++)
					for (l = p; l < POINTS; l++, n++)
						one(before, disarm, p, l,
						    starts[i]);
	print_message("%u interleavings\n", n);
}

/* While it polls, the frontend sends no event. */
static void
test_disarmed(void **state)
{
	struct ring r;

	(void)state;
	ring_begin(&r, DISARMED, 7);
	publish_at = look_at = 0;
	point();
	assert_false(event);
	assert_int_equal(ring_pending(&r), 1);
}

/*
 * The same with threads: a backend that sleeps on a semaphore, a frontend that
 * posts it only when an event is wanted, ROUNDS requests one after the other.
 * A lost wake-up hangs, and the alarm ends it.
 */
#define ROUNDS 100000u

static struct ring threaded;
static unsigned rounds = ROUNDS;
static int wake[2];

static void *
backend(void *arg)
{
	blkif_request_t req;
	uint32_t spin = 1;
	unsigned i, n = 0;
	char byte;

	(void)arg;
	while (n < rounds) {
		for (i = spin & 63; i > 0 && ring_pending(&threaded) == 0; i--)
			;
		spin = spin * 1103515245 + 12345;
		if (spin >> 30 == 0)
			ring_disarm(&threaded);
		if (ring_pending(&threaded) == 0) {
			if (!ring_arm(&threaded))
				assert_int_equal(read(wake[0], &byte, 1), 1);
			continue;
		}
		ring_take(&threaded, &req);
		ring_put(&threaded, req.id, req.operation, BLKIF_RSP_OKAY);
		ring_publish(&threaded);
		n++;
	}
	return NULL;
}

static void
test_threads(void **state)
{
	const char *more = getenv("ARM_ROUNDS");
	uint32_t prod = 0, old;
	unsigned i;
	pthread_t t;

	(void)state;
	if (more != NULL)
		rounds = (unsigned)strtoul(more, NULL, 10);
	ring_begin(&threaded, UNTOUCHED, 0);
	assert_int_equal(pipe(wake), 0);
	alarm(60 + rounds / 10000);
	assert_int_equal(pthread_create(&t, NULL, backend, NULL), 0);
	while (prod < rounds) {
		old = prod++;
		__atomic_store_n(&shared->req_prod, prod, __ATOMIC_RELEASE);
		__sync_synchronize();
		if (prod - __atomic_load_n(&shared->req_event,
		    __ATOMIC_RELAXED) < prod - old)
			assert_int_equal(write(wake[1], "", 1), 1);
		for (i = 0; __atomic_load_n(&shared->rsp_prod,
		    __ATOMIC_ACQUIRE) != prod; i++)
			if (i % 64 == 63)
				sched_yield();
	}
	assert_int_equal(pthread_join(t, NULL), 0);
	alarm(0);
	close(wake[0]);
	close(wake[1]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_interleavings),
		cmocka_unit_test(test_disarmed),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
