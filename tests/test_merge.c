/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Merging, against a channel of our own that keeps what it is given and fails
 * what it is told to: what joins and what does not, and whose error is whose.
 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "blkback/merge.h"

#define NR 100

static struct arena arena;
static struct merger merger;
static struct request reqs[NR];
static int results[NR], nr_done;
static unsigned next_page;

static struct io_list given;
static unsigned nr_given;
static uint64_t bad_offset;	/* an I/O over this byte fails */
static uint64_t sizes[2 * NR];

static void
keep(struct channel *ch, struct io *io)
{
	(void)ch;
	sizes[nr_given++] = io->length;
	STAILQ_INSERT_TAIL(&given, io, link);
}

static unsigned
finish(struct channel *ch)
{
	struct io_list now = STAILQ_HEAD_INITIALIZER(now);
	struct io *io;
	unsigned n = 0;
	bool bad;

	(void)ch;
	STAILQ_CONCAT(&now, &given);
	while ((io = STAILQ_FIRST(&now)) != NULL) {
		STAILQ_REMOVE_HEAD(&now, link);
		bad = bad_offset >= io->offset &&
		    bad_offset - io->offset < io->length;
		io->done(io, bad ? -EIO : 0);
		n++;
	}
	return n;
}

static const struct driver keeper = { .name = "keeper", .submit = keep,
    .reap = finish };
static struct image image = { .drv = &keeper, .active = true,
    .size = 1ull << 30, .block_size = 512, .physical_block_size = 512 };
static struct channel channel = { .img = &image };

static void
done(struct request *req, int error)
{
	assert_int_equal(results[req - reqs], 1);	/* exactly once */
	results[req - reqs] = error;
	nr_done++;
}

static int
setup(void **state)
{
	unsigned i;

	(void)state;
	assert_int_equal(arena_init(&arena, NR * 11 * 4096), 0);
	memset(&merger, 0, sizeof(merger));
	merger.channel = &channel;
	merger.arena = &arena;
	merger.limit = 1 << 20;
	merger.done = done;
	for (i = 0; i < NR; i++) {
		reqs[i].merger = &merger;
		results[i] = 1;
	}
	STAILQ_INIT(&given);
	nr_given = nr_done = next_page = 0;
	bad_offset = UINT64_MAX;
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	arena_fini(&arena);
	return 0;
}

/* 'segs' segments of 'length' bytes at 'at' of their pages. */
static void
add(unsigned i, enum page_op op, uint64_t offset, unsigned segs, unsigned at,
    unsigned length)
{
	struct request_parsed *p = &reqs[i].parsed;
	unsigned s;

	p->op = op;
	p->offset = offset;
	p->nr_segments = segs;
	p->length = segs * length;
	p->segment = p->own;
	for (s = 0; s < segs; s++) {
		p->own[s].offset = at;
		p->own[s].length = length;
		arena.data[next_page + s] =
		    arena_page(&arena, next_page + s) + at;
	}
	reqs[i].page = next_page;
	for (s = 0; s < segs; s++)
		arena.data[next_page + s] =
		    arena_page(&arena, next_page + s) + at;
	next_page += segs;
	if (op == PAGE_FLUSH)
		merge_add_bare(&merger, &reqs[i], IO_FLUSH);
	else
		merge_add(&merger, &reqs[i]);
}

static void
run(void)
{
	merge_end(&merger);
	while (channel_reap(&channel) > 0)
		;
}

static void
test_sequential(void **state)
{
	struct io *io;
	unsigned i;

	(void)state;
	for (i = 0; i < 32; i++)
		add(i, PAGE_WRITE, i * 4096ull, 1, 0, 4096);
	merge_end(&merger);
	assert_int_equal(nr_given, 1);
	io = STAILQ_FIRST(&given);
	assert_int_equal(io->length, 32 * 4096);
	assert_int_equal(io->iovcnt, 1);	/* one run of memory */
	assert_ptr_equal(io->iov[0].iov_base, arena.base);
	run();
	assert_int_equal(nr_done, 32);
	for (i = 0; i < 32; i++)
		assert_int_equal(results[i], 0);
	assert_int_equal(merger.ios, 1);
}

/* Half pages: memory has holes, so each keeps its place in the vector. */
static void
test_holes(void **state)
{
	struct io *io;
	int i;

	(void)state;
	add(0, PAGE_READ, 0, 2, 512, 1024);
	add(1, PAGE_READ, 2048, 3, 0, 512);
	merge_end(&merger);
	assert_int_equal(nr_given, 1);
	io = STAILQ_FIRST(&given);
	assert_int_equal(io->length, 2048 + 1536);
	assert_int_equal(io->iovcnt, 5);
	for (i = 0; i < 5; i++) {
		assert_ptr_equal(io->iov[i].iov_base,
		    arena.base + i * 4096 + (i < 2 ? 512 : 0));
		assert_int_equal(io->iov[i].iov_len, i < 2 ? 1024 : 512);
	}
	run();
}

static void
test_does_not_join(void **state)
{
	(void)state;
	add(0, PAGE_WRITE, 0, 1, 0, 4096);
	add(1, PAGE_WRITE, 8192, 1, 0, 4096);		/* a gap */
	add(2, PAGE_WRITE, 4096, 1, 0, 4096);		/* backwards */
	add(3, PAGE_READ, 8192, 1, 0, 4096);		/* another operation */
	next_page++;
	add(4, PAGE_READ, 12288, 1, 0, 4096);		/* memory has a gap */
	add(5, PAGE_FLUSH, 0, 0, 0, 0);
	add(6, PAGE_READ, 16384, 1, 0, 4096);		/* across a flush */
	merge_end(&merger);
	assert_int_equal(nr_given, 7);
	run();
	assert_int_equal(nr_done, 7);
}

static void
test_limit(void **state)
{
	unsigned i;

	(void)state;
	merger.limit = 16384;
	for (i = 0; i < 9; i++)
		add(i, PAGE_WRITE, i * 4096ull, 1, 0, 4096);
	run();
	assert_int_equal(nr_given, 3);
	assert_int_equal(sizes[0], 16384);
	assert_int_equal(sizes[2], 4096);

	teardown(NULL);
	setup(NULL);
	merger.limit = 0;		/* off */
	add(0, PAGE_WRITE, 0, 11, 0, 4096);
	add(1, PAGE_WRITE, 45056, 11, 0, 4096);
	run();
	assert_int_equal(nr_given, 2);
}

/* No vector is longer than the kernel takes. */
static void
test_iov_max(void **state)
{
	unsigned i;

	(void)state;
	_Static_assert(NR * 11 > IOV_MAX, "enough to reach it");
	for (i = 0; i < NR; i++)
		add(i, PAGE_WRITE, i * 11ull * 512, 11, 0, 512);
	merge_end(&merger);
	assert_int_equal(nr_given, 2);
	assert_int_equal(STAILQ_FIRST(&given)->iovcnt, IOV_MAX / 11 * 11);
	run();
	assert_int_equal(nr_done, NR);
}

/* A merged I/O that fails is tried request by request. */
static void
test_error(void **state)
{
	unsigned i;

	(void)state;
	bad_offset = 5 * 4096 + 17;
	for (i = 0; i < 8; i++)
		add(i, PAGE_READ, i * 4096ull, 1, 0, 4096);
	run();
	assert_int_equal(nr_done, 8);
	for (i = 0; i < 8; i++)
		assert_int_equal(results[i], i == 5 ? -EIO : 0);
	assert_int_equal(merger.retried, 8);
	assert_int_equal(merger.ios, 9);
	for (i = 1; i < 9; i++)
		assert_int_equal(sizes[i], 4096);
}

/* One that was alone is not tried again. */
static void
test_error_alone(void **state)
{
	(void)state;
	bad_offset = 0;
	add(0, PAGE_WRITE, 0, 11, 0, 4096);
	run();
	assert_int_equal(results[0], -EIO);
	assert_int_equal(merger.ios, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_sequential),
		TEST(test_holes),
		TEST(test_does_not_join),
		TEST(test_limit),
		TEST(test_iov_max),
		TEST(test_error),
		TEST(test_error_alone),
	};

	return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}
