/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_poll: the poller against guests whose requests come at known times.
 *
 * A simulated thread asks every microsecond while it spins, is away for as
 * long as it naps, and until the work comes when it sleeps.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "blkback/poll.h"

#define US 1000ull
#define MS 1000000ull

static struct poller poller;
static uint64_t now;

/* What became of a number of gaps. */
static struct {
	unsigned gaps;
	unsigned spun;		/* the work was found while spinning */
	unsigned napped;	/* it came during a nap */
	unsigned slept;		/* or a sleep */
	uint64_t spin_ns;
	uint64_t all_ns;
} seen;

static void
gap(uint64_t length, bool inflight)
{
	uint64_t start = now, end = now + length, nap_ns;

	for (;;) {
		switch (poll_idle(&poller, now, inflight, &nap_ns)) {
		case POLL_SPIN:
			now += US;
			seen.spin_ns += US;
			if (now < end)
				continue;
			seen.spun++;
			break;
		case POLL_NAP:
			assert_true(nap_ns > 0);
			if (now + nap_ns < end) {
				now += nap_ns;
				continue;
			}
			now = end;
			seen.napped++;
			break;
		case POLL_SLEEP:
			now = end;
			seen.slept++;
			break;
		}
		break;
	}
	seen.gaps++;
	seen.all_ns += now - start;
	poll_work(&poller, now);
	assert_false(poll_is_idle(&poller));
	now += 5 * US;		/* a round */
}

static void
reset(uint32_t window_us)
{
	poll_init(&poller, window_us);
	now = 1000 * MS;
	memset(&seen, 0, sizeof(seen));
}

/* 'n' gaps around 'mean', none further from it than 'jitter'. */
static void
run(unsigned n, uint64_t mean, uint64_t jitter)
{
	while (n-- > 0)
		gap(mean - jitter + (jitter > 0 ?
		    (uint64_t)rand() % (2 * jitter) : 0), false);
}

/* What it has learned counts, not how it got there. */
static void
settle(unsigned n, uint64_t mean, uint64_t jitter)
{
	run(n, mean, jitter);
	memset(&seen, 0, sizeof(seen));
	run(1000, mean, jitter);
}

static void
test_fixed(void **state)
{
	(void)state;
	reset(50);
	run(10, 49 * US, 0);
	assert_int_equal(seen.spun, 10);
	run(10, 60 * US, 0);
	assert_int_equal(seen.slept, 10);
	assert_int_equal(seen.spin_ns, (10 * 49 + 10 * 50) * US);
	reset(0);
	run(10, 5 * US, 0);
	assert_int_equal(seen.slept, 10);
}

static void
test_busy_guest(void **state)
{
	(void)state;
	reset(POLL_AUTO);
	run(1000, 8 * US, 6 * US);
	assert_int_equal(seen.spun, 1000);
}

/* It thinks: found while spinning, most of the time spent elsewhere. */
static void
test_thinking_guest(void **state)
{
	static const struct { uint64_t mean, jitter; unsigned spin; } t[] = {
		{ 500 * US, 5 * US, 30 }, { 500 * US, 25 * US, 45 },
		{ 5 * MS, 50 * US, 10 }, { 5 * MS, 200 * US, 20 },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		reset(POLL_AUTO);
		settle(200, t[i].mean, t[i].jitter);
		assert_true(seen.spun >= 980);
		assert_true(seen.spin_ns * 100 <= seen.all_ns * t[i].spin);
	}
}

/* Nothing is gained by spinning for it. */
static void
test_slow_guest(void **state)
{
	(void)state;
	reset(POLL_AUTO);
	settle(100, 50 * MS, 10 * MS);
	assert_int_equal(seen.slept, 1000);
	assert_int_equal(seen.spin_ns, 0);
}

static void
test_changed_guest(void **state)
{
	(void)state;
	reset(POLL_AUTO);
	settle(200, 5 * MS, 50 * US);
	settle(100, 10 * US, 2 * US);
	assert_int_equal(seen.spun, 1000);
	settle(200, 500 * US, 5 * US);
	assert_true(seen.spun >= 980);
}

/* Half come at once and half nobody knows when: it spins little in vain. */
static void
test_moody_guest(void **state)
{
	unsigned i;

	(void)state;
	reset(POLL_AUTO);
	for (i = 0; i < 4000; i++)
		gap(rand() % 2 == 0 ? 10 * US :
		    (uint64_t)(rand() % 40) * MS, false);
	assert_true(seen.spin_ns * 10 <= seen.all_ns);
}

/* The storage's answers do not spoil what is known of the guest. */
static void
test_two_kinds(void **state)
{
	unsigned i;

	(void)state;
	reset(POLL_AUTO);
	for (i = 0; i < 2000; i++) {
		if (i == 500)
			memset(&seen, 0, sizeof(seen));
		gap(80 * US, true);
		gap(2 * MS, false);
	}
	assert_int_equal(seen.spun, 3000);
	assert_true(seen.spin_ns * 100 <= seen.all_ns * 20);
}

/* Short of CPU: no spinning, until it is better again. */
static void
test_crowded(void **state)
{
	uint64_t delay = 7 * MS;

	(void)state;
	reset(POLL_AUTO);
	assert_true(poll_wants_delay(&poller, now));
	poll_delay(&poller, now, delay);
	assert_false(poll_wants_delay(&poller, now + MS));
	run(100, 10 * US, 0);
	assert_int_equal(seen.spun, 100);

	now = poller.looked_ns + POLL_LOOK_NS;
	assert_true(poll_wants_delay(&poller, now));
	poll_delay(&poller, now, delay += 15 * MS);
	run(100, 10 * US, 0);
	assert_int_equal(seen.slept, 100);

	/* Less is not enough yet: it would come and go. */
	now = poller.looked_ns + POLL_LOOK_NS;
	poll_delay(&poller, now, delay += 5 * MS);
	run(100, 10 * US, 0);
	assert_int_equal(seen.slept, 200);
	now = poller.looked_ns + POLL_LOOK_NS;
	poll_delay(&poller, now, delay += 1 * MS);
	run(100, 10 * US, 0);
	assert_int_equal(seen.spun, 200);

	/* What was waited for during a long sleep says nothing. */
	now = poller.looked_ns + 60000 * MS;
	poll_delay(&poller, now, delay + 50000 * MS);
	run(100, 10 * US, 0);
	assert_int_equal(seen.spun, 300);
}

/* A thread that does not spin learns all the same. */
static void
test_clock(void **state)
{
	uint64_t nap;

	(void)state;
	reset(POLL_AUTO);
	assert_int_equal(poll_idle(&poller, now, false, &nap), POLL_SPIN);
	assert_true(poll_is_idle(&poller));
	assert_int_equal(poll_idle(&poller, now + MS, false, &nap),
	    POLL_SLEEP);
	poll_work(&poller, now + 2 * MS);
	assert_false(poll_is_idle(&poller));
	assert_true(poller.gap[0].mean_ns > 20 * US);
	assert_true(poller.gap[1].mean_ns == 20 * US);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fixed),
		cmocka_unit_test(test_busy_guest),
		cmocka_unit_test(test_thinking_guest),
		cmocka_unit_test(test_slow_guest),
		cmocka_unit_test(test_changed_guest),
		cmocka_unit_test(test_moody_guest),
		cmocka_unit_test(test_two_kinds),
		cmocka_unit_test(test_crowded),
		cmocka_unit_test(test_clock),
	};

	srand(1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
