/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_engine: what every engine does, whatever the kernel does to it; each
 * case is run over each engine.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drivers/threads.h"
#include "tests/engine_rig.h"

static struct rig_io *pages[MAX_DEPTH];

static void
test_short_transfers(void **state)
{
	static const struct { uint64_t cut, length; int iovcnt; } cases[] = {
		{ 512, 512, 1 },      { 512, 65536, 1 },   { 512, 65536, 16 },
		{ 512, 65536, 128 },  { 4096, 65536, 3 },  { 4096, 65536, 16 },
		{ 4608, 131072, 5 },  { 65024, 131072, 1 },
		{ 1024, 1048576, 256 },
	};
	struct rig_io *rio;
	unsigned seed = 0;
	size_t i;

	(void)state;
	open_raw(4);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		kernel.cut = cases[i].cut;
		rio = rig_io_new(&rig, IO_WRITE, 512, cases[i].length,
		    cases[i].iovcnt);
		rig_fill(rio, ++seed);
		assert_int_equal(rig_do(rio), 0);
		rio = rig_io_new(&rig, IO_READ, 512, cases[i].length,
		    cases[i].iovcnt);
		rig_submit(rio);
		rig_wait(&rig);
		assert_int_equal(rio->error, 0);
		assert_true(rig_holds(rio, seed));
		rig_io_free(rio);

		/* And it went where it should. */
		kernel.cut = 0;
		rio = rig_io_new(&rig, IO_READ, 512, cases[i].length, 1);
		rig_submit(rio);
		rig_wait(&rig);
		assert_true(rig_holds(rio, seed));
		rig_io_free(rio);
	}
}

/* Where they fall short inside a block that is larger than a sector. */
static void
test_short_of_a_block(void **state)
{
	struct rig_io *rio;
	unsigned seed;

	(void)state;
#ifndef STATX_DIOALIGN
	skip();
#endif
	kernel.block = 4096;
	open_raw(4);
	kernel.cut = 4096 + 1536;
	for (seed = 1; seed <= 2; seed++) {
		rio = rig_io_new(&rig, IO_WRITE, seed * 3072, 65536, 3);
		rig_fill(rio, seed);
		assert_int_equal(rig_do(rio), 0);
		rio = rig_io_new(&rig, IO_READ, seed * 3072, 65536, 5);
		rig_submit(rio);
		rig_wait(&rig);
		assert_int_equal(rio->error, 0);
		assert_true(rig_holds(rio, seed));
		rig_io_free(rio);
	}
	assert_int_equal(kernel.nr_odd, 0);
	kernel.cut = 3584;
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, 0, 8192, 1)), -EIO);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_WRITE, 0, 8192, 1)),
	    -ENOSPC);
}

static void
test_no_progress(void **state)
{
	(void)state;
	open_raw(4);
	kernel.nothing = true;
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, 0, 4096, 1)), -EIO);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, 0, 4096, 8)), -EIO);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_WRITE, 0, 4096, 1)),
	    -ENOSPC);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_WRITE, 0, 4096, 2)),
	    -ENOSPC);
}

/* The kernel says that a transfer has failed, or ended inside a sector. */
static void
test_results(void **state)
{
	struct rig_io *rio;

	(void)state;
	kernel.spoil = 16;		/* so that io_getevents() is asked */
	open_raw(4);
	kernel.event_error = -EREMOTEIO;
	assert_int_equal(rig_do(rig_io_new(&rig, IO_WRITE, 0, 4096, 1)),
	    -EREMOTEIO);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, 0, 4096, 2)),
	    -EREMOTEIO);
	kernel.sync_error = EREMOTEIO;
	assert_int_equal(rig_flush(&rig), -EREMOTEIO);
	kernel.event_error = kernel.sync_error = 0;

	kernel.event_limit = 700;
	rio = rig_io_new(&rig, IO_WRITE, 0, 8192, 3);
	rig_fill(rio, 4);
	assert_int_equal(rig_do(rio), 0);
	rio = rig_io_new(&rig, IO_READ, 0, 8192, 3);
	rig_submit(rio);
	rig_wait(&rig);
	assert_int_equal(rio->error, 0);
	assert_true(rig_holds(rio, 4));
	rig_io_free(rio);
	assert_int_equal(kernel.nr_odd, 0);
	kernel.event_limit = 511;
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, 0, 4096, 1)), -EIO);
}

/* In pieces, on a thread; with aio the kernel still does the flushes. */
static void
test_discard(void **state)
{
	const uint64_t piece = 64 << 20, length = 3 * piece + 8192;
	bool aio = rig.engine == ENGINE_AIO;

	(void)state;
	assert_int_equal(truncate(file, 4 * (off_t)piece), 0);
	rig.discard = true;
	open_raw(4);
	assert_int_equal(rig_count_threads(), nr_threads +
	    (aio ? 1 : THREADS_MAX));
	kernel.next = 4096;
	assert_int_equal(rig_do(rig_io_new(&rig, IO_DISCARD, 4096, length,
	    0)), 0);
	assert_int_equal(kernel.next, 4096 + length);
	assert_int_equal(kernel.nr_pieces, 4);
	assert_int_equal(kernel.largest, piece);
	assert_int_equal(rig_flush(&rig), 0);
	assert_int_equal(kernel.nr_sync, aio ? 0 : 1);

	kernel.next = 0;
	kernel.bad_piece = kernel.nr_pieces + 2;
	assert_int_equal(rig_do(rig_io_new(&rig, IO_DISCARD, 0, length, 0)),
	    -EOPNOTSUPP);
	assert_int_equal(kernel.next, 2 * piece);
}

/* The flush that deactivate makes has failed: unlocked all the same. */
static void
test_deactivate_fails(void **state)
{
	struct rig second = { 0 };

	(void)state;
	open_raw(4);
	rig_unwatch(&rig);
	kernel.sync_error = EIO;
	assert_int_equal(image_deactivate(rig.img, rig.why), -EIO);
	assert_non_null(strstr(rig.why, "may be lost"));
	assert_false(rig.img->active);
	rig_open(&second, "raw", file, true, 4);

	/* What is read-only has nothing to flush. */
	rig_unwatch(&second);
	assert_int_equal(image_deactivate(second.img, second.why), 0);
	image_close(second.img);
}

/* Linux tells a loss to one of the flushes: all the same, none is done. */
static void
test_flushes_at_once(void **state)
{
	struct rig_io *flush[4];
	unsigned i;

	(void)state;
	if (rig.engine == ENGINE_AIO)
		return;		/* the kernel's own; direct I/O tells each */
	open_raw(4);
	kernel.sync_told = EIO;
	for (i = 0; i < 4; i++) {
		flush[i] = rig_io_new(&rig, IO_FLUSH, 0, 0, 0);
		rig_submit(flush[i]);
	}
	rig_wait(&rig);
	for (i = 0; i < 4; i++) {
		assert_int_equal(flush[i]->error, -EIO);
		rig_io_free(flush[i]);
	}
	assert_int_equal(rig_flush(&rig), -EIO);

	/* Activated again, the image is what the storage says. */
	rig_unwatch(&rig);
	assert_int_equal(image_deactivate(rig.img, rig.why), 0);
	assert_int_equal(image_activate(rig.img, rig.why), 0);
	rig_watch(&rig, 4);
	assert_int_equal(rig_flush(&rig), 0);
}

#ifndef RINGBACK_SANITIZED
static void
test_no_allocation(void **state)
{
	unsigned i, before;

	(void)state;
	open_raw(64);
	for (i = 0; i < 32; i++) {
		pages[i] = rig_io_new(&rig, i < 31 ? IO_WRITE : IO_FLUSH,
		    i * 4096, i < 31 ? 4096 : 0, 2);
		rig_submit(pages[i]);
	}
	rig_wait(&rig);
	before = nr_allocs;
	assert_true(before > 64);	/* it does count */
	for (i = 0; i < 32; i++) {
		pages[i]->nr_done = 0;
		rig_submit(pages[i]);
	}
	rig_wait(&rig);
	assert_int_equal(nr_allocs, before);
	for (i = 0; i < 32; i++)
		rig_io_free(pages[i]);
}
#endif

/*
 * Calls that are bugs.
 */

static bool has_reaped;

/* Without the rig's own checks in it. */
static void
reap_within(struct io *io, int error)
{
	(void)io;
	(void)error;
	if (!has_reaped) {
		has_reaped = true;
		channel_reap(rig.ch);
	}
}

static void
bad_reap(void)
{
	pages[0]->io.done = reap_within;
	rig_submit(pages[0]);
	while (!has_reaped)
		channel_reap(rig.ch);
}

static void
close_within(struct rig_io *rio)
{
	channel_close(rio->rig->ch);
}

static void
bad_close(void)
{
	pages[0]->then = close_within;
	rig_submit(pages[0]);
	rig_wait(&rig);
}

static void
bad_busy(void)
{
	rig_submit(pages[0]);
	channel_close(rig.ch);
}

static void
bad_deep(void)
{
	rig_submit(pages[0]);
	rig_submit(pages[1]);
	rig_submit(pages[2]);
}

static void
good(void)
{
	rig_submit(pages[0]);
	rig_submit(pages[1]);
	rig_wait(&rig);
	channel_close(rig.ch);
}

static void
make_call(void *arg)
{
	void (**call)(void) = arg;
	int i;

	open_raw(2);
	for (i = 0; i < 3; i++)
		pages[i] = rig_io_new(&rig, IO_READ, 0, 512, 1);
	(*call)();
}

static bool
aborts(void (*call)(void))
{
	return rig_aborts(make_call, &call);
}

static void
test_bad_calls(void **state)
{
	(void)state;
	assert_false(aborts(good));
	assert_true(aborts(bad_reap));
	assert_true(aborts(bad_close));
	assert_true(aborts(bad_busy));
	assert_true(aborts(bad_deep));
}

/*
 * Only of threads.
 */

/* A set for all channels, each of them as busy as it can be; no more. */
static void
test_shared_threads(void **state)
{
	struct rig other = { 0 };
	unsigned i;

	(void)state;
	if (rig.engine == ENGINE_AIO)
		return;
	open_raw(64);
	other.img = rig.img;
	rig_watch(&other, 64);
	assert_int_equal(rig_count_threads(), nr_threads + THREADS_MAX);
	kernel.hold = true;
	for (i = 0; i < 2 * THREADS_MAX; i++) {
		pages[i] = rig_io_new(i % 2 == 0 ? &rig : &other, IO_READ,
		    i * 4096, 4096, 1);
		rig_submit(pages[i]);
	}
	rig_reap(&rig);
	rig_reap(&other);
	assert_int_equal(rig.ch->submits, 1);
	assert_int_equal(other.ch->submits, 1);
	for (i = 0; i < 5000 && kernel.nr_vectored < THREADS_MAX; i++)
		usleep(1000);
	usleep(20000);
	assert_int_equal(kernel.nr_vectored, THREADS_MAX);
	kernel.hold = false;
	rig_wait(&rig);
	rig_wait(&other);
	for (i = 0; i < 2 * THREADS_MAX; i++) {
		assert_int_equal(pages[i]->error, 0);
		rig_io_free(pages[i]);
	}
	rig_unwatch(&other);
}

/* Who looks without waiting for the event may close before it is raised. */
static void
test_close_at_once(void **state)
{
	struct rig_io *rio;
	unsigned i;

	(void)state;
	if (rig.engine == ENGINE_AIO)
		return;
	open_raw(4);
	kernel.late_event = true;
	for (i = 0; i < 20; i++) {
		rio = rig_io_new(&rig, IO_READ, 0, 4096, 1);
		rig_submit(rio);
		while (rio->nr_done == 0)
			rig_reap(&rig);
		rig_unwatch(&rig);
		rig_io_free(rio);
		rig_watch(&rig, 4);
	}
}

/* With cache=unsafe a flush asks nobody; nor does one that a done() submits. */
static void
test_no_flush(void **state)
{
	struct rig_io *flush;

	(void)state;
	if (rig.engine == ENGINE_AIO)
		return;
	rig.cache = CACHE_UNSAFE;
	open_raw(4);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_WRITE, 0, 4096, 1)), 0);
	rig.ch->submits = 0;
	flush = rig_io_new(&rig, IO_FLUSH, 0, 0, 0);
	rig_submit(flush);
	rig_reap(&rig);
	assert_int_equal(flush->nr_done, 1);
	assert_int_equal(flush->error, 0);
	rig_io_free(flush);
	flush = rig_io_new(&rig, IO_FLUSH, 0, 0, 0);
	flush->then = submit_follower;
	follower = rig_io_new(&rig, IO_FLUSH, 0, 0, 0);
	rig_submit(flush);
	rig_wait(&rig);
	assert_int_equal(follower->error, 0);
	rig_io_free(follower);
	rig_io_free(flush);
	assert_int_equal(rig.ch->submits, 0);
	rig_close(&rig);
	assert_int_equal(kernel.nr_sync, 0);
}

static void
test_interrupted(void **state)
{
	(void)state;
	if (rig.engine == ENGINE_AIO)
		return;
	open_raw(4);
	kernel.nr_interrupt = 3;
	assert_int_equal(rig_do(rig_io_new(&rig, IO_WRITE, 0, 4096, 1)), 0);
	assert_int_equal(kernel.nr_vectored, 4);
}

#define CASE(test) { #test, test }
static const struct {
	const char        *name;
	CMUnitTestFunction test;
} cases[] = {
	CASE(test_short_transfers),
	CASE(test_short_of_a_block),
	CASE(test_no_progress),
	CASE(test_results),
	CASE(test_discard),
	CASE(test_deactivate_fails),
	CASE(test_flushes_at_once),
#ifndef RINGBACK_SANITIZED
	CASE(test_no_allocation),
#endif
	CASE(test_bad_calls),
	CASE(test_shared_threads),
	CASE(test_close_at_once),
	CASE(test_no_flush),
	CASE(test_interrupted),
};

static const char *const engines[] = {
	[ENGINE_AIO] = "aio", [ENGINE_THREADS] = "threads",
};

#define NR_CASES   (sizeof(cases) / sizeof(cases[0]))
#define NR_ENGINES (sizeof(engines) / sizeof(engines[0]))

int
main(void)
{
	static char names[NR_ENGINES * NR_CASES][80];
	static struct CMUnitTest tests[NR_ENGINES * NR_CASES];
	size_t e, c, n = 0;

	for (e = 0; e < NR_ENGINES; e++)
		for (c = 0; c < NR_CASES; c++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s: %s",
			    engines[e], cases[c].name);
			tests[n] = (struct CMUnitTest){
				.name = names[n],
				.test_func = cases[c].test,
				.setup_func = engine_setup,
				.teardown_func = engine_teardown,
				.initial_state = (void *)e,
			};
		}
	return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
