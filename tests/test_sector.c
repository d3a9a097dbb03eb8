/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_sector: 512-byte sectors over a lab with larger ones.  What each I/O
 * costs below, who waits for whom, errors; and threads that write sectors
 * beside each other's, against what they know to be there.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "drivers/sector.h"
#include "tests/driver_rig.h"
#include "tests/lab.h"

#define KiB   1024u
#define BLOCK 4096u
#define SIZE  (1024 * KiB)
#define DEPTH 64u

static struct lab *lab;
static struct rig rig, other;		/* two channels of one image */

static void
open_lab(uint32_t block, uint32_t alignment)
{
	memset(&rig, 0, sizeof(rig));
	memset(&other, 0, sizeof(other));
	lab = lab_new(SIZE, block, alignment);
	if (sector_wrap(&lab->img, &rig.img, rig.why) != 0 ||
	    image_activate(rig.img, rig.why) != 0)
		fail_msg("%s", rig.why);
	rig_watch(&rig, DEPTH);
}

static void
open_other(void)
{
	other.img = rig.img;
	rig_watch(&other, DEPTH);
}

static void
close_lab(void)
{
	if (other.ch != NULL)
		rig_unwatch(&other);
	rig_close(&rig);
}

static struct rig_io *
io_start(struct rig *r, enum io_op op, uint64_t offset, uint64_t length,
    unsigned seed)
{
	struct rig_io *rio = rig_io_new(r, op, offset, length, 1);

	if (op == IO_WRITE)
		rig_fill(rio, seed);
	rig_submit(rio);
	rig_reap(r);
	return rio;
}

static void
io_do(enum io_op op, uint64_t offset, uint64_t length, unsigned seed)
{
	struct rig_io *rio = io_start(&rig, op, offset, length, seed);

	rig_wait(&rig);
	assert_int_equal(rio->error, 0);
	if (op == IO_READ && !rig_holds(rio, seed))
		fail_msg("%llu bytes at %llu are not those of %u",
		    (unsigned long long)length, (unsigned long long)offset,
		    seed);
	rig_io_free(rio);
}

static void
io_over(struct rig_io *rio, int error)
{
	assert_int_equal(rio->nr_done, 1);
	assert_int_equal(rio->error, error);
	rig_io_free(rio);
}

/*
 * What it looks like, and what it costs.
 */

static void
test_geometry(void **state)
{
	static uint64_t page[512];
	struct image_layer layers[IMAGE_LAYERS_MAX];
	struct image_check check = { 0 };
	struct image *img;

	(void)state;
	lab = lab_new(SIZE, BLOCK, 0);
	lab->img.readonly = true;
	assert_true(sector_needed(&lab->img));
	assert_int_equal(sector_wrap(&lab->img, &img, rig.why), 0);
	assert_false(sector_needed(img));
	assert_int_equal(img->size, SIZE);
	assert_int_equal(img->block_size, 512);
	assert_int_equal(img->physical_block_size, BLOCK);
	assert_int_equal(img->discard_granularity, 2 * BLOCK);
	assert_int_equal(img->discard_alignment, BLOCK);
	assert_int_equal(img->dev, 1);
	assert_int_equal(img->ino, 2);
	assert_int_equal(img->redo_bytes, 3 * 4096);
	assert_true(img->readonly);
	assert_int_equal(image_info(img, layers, rig.why), 1);
	assert_string_equal(layers[0].format, "lab");
	assert_int_equal(image_check(img, &check, rig.why), 0);
	assert_int_equal(check.clusters, SIZE);
	/* What is found at activate is what counts. */
	lab->img.size = SIZE / 2;
	img->redo = page;
	assert_int_equal(image_activate(img, rig.why), 0);
	assert_ptr_equal(lab->img.redo, page);
	assert_int_equal(img->size, SIZE / 2);
	/* Whole blocks of the storage. */
	assert_int_equal(image_resize(img, SIZE, rig.why), 0);
	assert_int_equal(img->size, SIZE);
	assert_int_equal(image_resize(img, SIZE + 512, rig.why), -EINVAL);
	assert_non_null(strstr(rig.why, "multiple of 4096"));
	assert_int_equal(image_resize(img, 1ull << 40, rig.why), -ENOSPC);
	assert_int_equal(img->size, SIZE);
	assert_int_equal(image_deactivate(img, rig.why), 0);
	assert_int_equal(atomic_load(&img->metadata_writes), 1);
	lab->activate_error = -EAGAIN;
	assert_int_equal(image_activate(img, rig.why), -EAGAIN);
	assert_string_equal(rig.why, "the lab is closed");
	assert_false(img->active);
	image_close(img);
}

static void
test_channel_fails(void **state)
{
	unsigned fds;

	(void)state;
	open_lab(BLOCK, 0);
	fds = rig_count_fds();
	lab->channel_error = -ENOMEM;
	assert_int_equal(channel_open(rig.img, 4, &other.ch, rig.why),
	    -ENOMEM);
	assert_string_equal(rig.why, "the lab is busy");
	assert_int_equal(rig_count_fds(), fds);
	close_lab();
}

static const struct {
	const char *name;
	enum io_op  op;
	uint64_t    offset, length;
	unsigned    reads, writes;	/* below */
} costs[] = {
	{ "a block written",     IO_WRITE, 4096, 4096, 0, 1 },
	{ "blocks written",      IO_WRITE, 0, 512 * KiB, 0, 1 },
	{ "a sector written",    IO_WRITE, 0, 512, 1, 1 },
	{ "the last of a block", IO_WRITE, 3584, 512, 1, 1 },
	{ "one amid a block",    IO_WRITE, 1024, 512, 1, 1 },
	{ "the disk's last one", IO_WRITE, SIZE - 512, 512, 1, 1 },
	{ "across two blocks",   IO_WRITE, 3584, 1024, 1, 1 },
	{ "a part and a block",  IO_WRITE, 3584, 4608, 1, 1 },
	{ "a block and a part",  IO_WRITE, 4096, 4608, 1, 1 },
	{ "64K from a sector",   IO_WRITE, 512, 64 * KiB, 2, 2 },
	{ "128K from a sector",  IO_WRITE, 512, 128 * KiB, 2, 3 },
	{ "all but two sectors", IO_WRITE, 512, SIZE - 1024, 2, 16 },
	{ "a block read",        IO_READ, 4096, 4096, 1, 0 },
	{ "blocks read",         IO_READ, 0, SIZE, 1, 0 },
	{ "a sector read",       IO_READ, 512, 512, 1, 0 },
	{ "a large read",        IO_READ, 512, 128 * KiB, 3, 0 },
};

static void
test_costs(void **state)
{
	struct rig_io *rio;
	unsigned seed = 2;
	size_t i;

	(void)state;
	open_lab(BLOCK, 0);
	io_do(IO_WRITE, 0, SIZE, 1);
	for (i = 0; i < sizeof(costs) / sizeof(costs[0]); i++) {
		lab->nr_reads = lab->nr_writes = 0;
		rio = io_start(&rig, costs[i].op, costs[i].offset,
		    costs[i].length, seed);
		rig_wait(&rig);
		assert_int_equal(rio->error, 0);
		if (lab->nr_reads != costs[i].reads ||
		    lab->nr_writes != costs[i].writes)
			fail_msg("%s: %u reads, %u writes", costs[i].name,
			    lab->nr_reads, lab->nr_writes);
		if (costs[i].op == IO_READ) {
			if (!rig_holds(rio, 1))
				fail_msg("%s", costs[i].name);
		} else {
			/* It is there, and nothing else has changed. */
			io_do(IO_READ, costs[i].offset, costs[i].length,
			    seed++);
			io_do(IO_WRITE, costs[i].offset, costs[i].length, 1);
			io_do(IO_READ, 0, SIZE, 1);
		}
		rig_io_free(rio);
	}
	assert_true(atomic_load(&rig.img->metadata_writes) > 0);
	assert_int_equal(atomic_load(&lab->img.metadata_writes), 0);
	close_lab();
}

/* What goes down as it is, is not copied. */
static void
test_no_copy(void **state)
{
	struct rig_io *rio;
	int op;

	(void)state;
	open_lab(BLOCK, 0);
	for (op = IO_READ; op <= IO_WRITE; op++) {
		rio = io_start(&rig, (enum io_op)op, 8192, 12 * KiB, 1);
		assert_ptr_equal(lab->last_base, rio->buf);
		rig_wait(&rig);
		rig_io_free(rio);
	}
	close_lab();
}

/* Whole blocks in memory that is not: copied, but no block is read for it. */
static void
test_memory(void **state)
{
	static const struct { uint32_t block, alignment; bool shift; }
	cases[] = {
		{ BLOCK, 0, false },	/* iovs of 512 and the rest */
		{ BLOCK, 4096, true },	/* a page needed, not given */
		{ 512, 4096, true },
		{ 512, 1024, true },
	};
	struct rig_io *rio;
	size_t i;
	int op;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		open_lab(cases[i].block, cases[i].alignment);
		for (op = IO_WRITE; op >= IO_READ; op--) {
			rio = rig_io_new(&rig, (enum io_op)op, 8192,
			    8 * KiB, 2);
			rig_fill(rio, op == IO_WRITE ? 5 : 6);
			rio->io.iov[0].iov_len = 512;
			rio->io.iov[1].iov_base = (char *)rio->buf + 512;
			rio->io.iov[1].iov_len = 8 * KiB - 512;
			lab->nr_ios = 0;
			rig_submit(rio);
			rig_wait(&rig);
			assert_int_equal(lab->nr_ios, 1);
			assert_true(rig_holds(rio, 5));
			assert_ptr_not_equal(lab->last_base, rio->buf);
			rig_io_free(rio);
		}
		close_lab();
	}
	/* And where the block is 512 and memory is as it has to be. */
	open_lab(512, 4096);
	rio = io_start(&rig, IO_WRITE, 512, 1024, 7);
	assert_ptr_equal(lab->last_base, rio->buf);
	rig_wait(&rig);
	io_over(rio, 0);
	close_lab();
}

/* driver.c asserts what the image below relies on. */
static void
call_below(void *arg)
{
	size_t first = *(const size_t *)arg;
	struct rig_io *rio;

	memset(&rig, 0, sizeof(rig));
	rig.img = &lab->img;
	if (image_activate(rig.img, rig.why) != 0)
		return;
	rig_watch(&rig, 1);
	rio = rig_io_new(&rig, IO_WRITE, 0, 16 * KiB, 2);
	rio->io.iov[0].iov_len = first;
	rio->io.iov[1].iov_base = (char *)rio->buf + first;
	rio->io.iov[1].iov_len = 16 * KiB - first;
	rig_do(rio);
}

static void
test_strict(void **state)
{
	static const struct { uint32_t block, align; size_t ok, bad; } c[] = {
		{ 4096, 0, 4096, 512 },
		{ 512, 4096, 4096, 512 },
		{ 1024, 2048, 2048, 1024 },
	};
	size_t i, ok, bad;

	(void)state;
	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		lab = lab_new(SIZE, c[i].block, c[i].align);
		ok = c[i].ok;
		bad = c[i].bad;
		assert_false(rig_aborts(call_below, &ok));
		assert_true(rig_aborts(call_below, &bad));
		image_close(&lab->img);
	}
}

/* They go down once each, whatever is on its way. */
static void
test_flush_and_discard(void **state)
{
	struct rig_io *rio;
	int i;

	(void)state;
	open_lab(BLOCK, 0);
	assert_int_equal(rig_flush(&rig), 0);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_DISCARD, BLOCK,
	    2 * BLOCK, 0)), 0);
	assert_int_equal(lab->nr_flushes, 1);
	assert_int_equal(lab->nr_discards, 1);
	for (i = 1; i <= 2; i++) {
		lab->fail_nth = lab->nr_ios + 1;
		rio = rig_io_new(&rig, i == 1 ? IO_FLUSH : IO_DISCARD,
		    i == 1 ? 0 : BLOCK, i == 1 ? 0 : 2 * BLOCK, 0);
		assert_int_equal(rig_do(rio), -EIO);
	}
	assert_int_equal(lab->nr_ios, 4);
	close_lab();
}

/*
 * Who waits for whom.  The lab holds all I/Os, and lets the oldest end.
 */

static const struct {
	const char *name;
	struct { uint64_t offset, length; } first, second;
	bool waits;
} pairs[] = {
	{ "two parts of a block",    { 0, 512 }, { 512, 512 }, true },
	{ "a part, then its block",  { 512, 512 }, { 0, 4096 }, true },
	{ "a block, then its part",  { 0, 4096 }, { 512, 512 }, true },
	{ "a part, then blocks",     { 8704, 512 }, { 0, 65536 }, true },
	{ "blocks, then a part",     { 0, 65536 }, { 61440, 512 }, true },
	{ "ends of two",             { 0, 4608 }, { 7680, 512 }, true },
	{ "parts of two blocks",     { 0, 512 }, { 4096, 512 }, false },
	{ "a part, the next block",  { 512, 3584 }, { 4096, 4096 }, false },
	{ "the block before a part", { 0, 4096 }, { 4096, 512 }, false },
	{ "the same block",          { 0, 4096 }, { 0, 4096 }, false },
	{ "far away",                { 0, 512 }, { 65536, 4096 }, false },
};

static void
check_pair(size_t i, struct rig *second)
{
	struct rig_io *a, *b;
	unsigned before;

	a = io_start(&rig, IO_WRITE, pairs[i].first.offset,
	    pairs[i].first.length, 1);
	before = lab->nr_ios;
	assert_int_equal(before, 1);
	b = io_start(second, IO_WRITE, pairs[i].second.offset,
	    pairs[i].second.length, 2);
	if ((lab->nr_ios == before) != pairs[i].waits)
		fail_msg("%s: it %s", pairs[i].name,
		    pairs[i].waits ? "does not wait" : "waits");
	/* The first one's part in it is there when the second one begins. */
	lab_end(lab, 1000);
	rig_wait(&rig);
	rig_wait(second);
	io_over(a, 0);
	io_over(b, 0);
	lab->hold = false;
	io_do(IO_READ, pairs[i].second.offset, pairs[i].second.length, 2);
	if (pairs[i].first.length == 512)
		io_do(IO_READ, pairs[i].first.offset, 512,
		    pairs[i].second.offset <= pairs[i].first.offset &&
		    pairs[i].first.offset < pairs[i].second.offset +
		    pairs[i].second.length ? 2 : 1);
}

static void
test_pairs(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < 2 * sizeof(pairs) / sizeof(pairs[0]); i++) {
		open_lab(BLOCK, 0);
		lab->hold = lab->racy = true;
		if (i % 2 == 1)
			open_other();
		check_pair(i / 2, i % 2 == 1 ? &other : &rig);
		close_lab();
	}
}

/* A later one does not overtake one that waits; reads do not wait at all. */
static void
test_order(void **state)
{
	struct rig_io *a, *b, *c, *r;

	(void)state;
	open_lab(BLOCK, 0);
	lab->hold = true;
	a = io_start(&rig, IO_WRITE, 512, 512, 1);
	b = io_start(&rig, IO_WRITE, 1024, 4096, 2);	/* for a */
	c = io_start(&rig, IO_WRITE, 4096, 4096, 3);	/* for b */
	assert_int_equal(lab->nr_ios, 1);
	r = io_start(&rig, IO_READ, 512, 512, 0);
	assert_int_equal(lab->nr_ios, 2);
	lab_end(lab, 3);		/* a's read, the read, a's write */
	while (lab->nr_inflight != 1 || lab->nr_ios != 4)
		rig_reap(&rig);
	assert_int_equal(lab->nr_reads, 3);	/* b has begun */
	assert_int_equal(lab->nr_writes, 1);	/* and c has not */
	io_over(a, 0);
	io_over(r, 0);
	assert_int_equal(b->nr_done + c->nr_done, 0);
	lab_end(lab, 1000);
	rig_wait(&rig);
	io_over(b, 0);
	io_over(c, 0);
	lab->hold = false;
	io_do(IO_READ, 512, 512, 1);
	io_do(IO_READ, 1024, 3072, 2);
	io_do(IO_READ, 4096, 4096, 3);
	close_lab();
}

/* More than there are buffers for, of which many wait for each other. */
static void
test_buffers(void **state)
{
	struct rig_io *rio[DEPTH];
	unsigned i, step;

	(void)state;
	for (step = 512; step <= 4096; step *= 8) {
		open_lab(BLOCK, 0);
		lab->hold = true;
		for (i = 0; i < DEPTH; i++)
			rio[i] = io_start(&rig, IO_WRITE, i * step, 512, i);
		assert_int_equal(lab->nr_ios, step == 512 ? DEPTH / 8 :
		    SECTOR_BOUNCES);
		lab_end(lab, 1000);
		rig_wait(&rig);
		assert_in_range(lab->max_inflight, 1, SECTOR_BOUNCES);
		lab->hold = false;
		assert_int_equal(lab->nr_ios, 2 * DEPTH);
		for (i = 0; i < DEPTH; i++) {
			io_over(rio[i], 0);
			io_do(IO_READ, i * step, 512, i);
		}
		close_lab();
	}
}

/* A channel that nobody is told of is polled. */
static void
test_silent(void **state)
{
	(void)state;
	memset(&rig, 0, sizeof(rig));
	lab = lab_new(SIZE, BLOCK, 0);
	lab->silent = true;
	assert_int_equal(sector_wrap(&lab->img, &rig.img, rig.why), 0);
	assert_int_equal(image_activate(rig.img, rig.why), 0);
	rig_watch(&rig, 4);
	assert_int_equal(rig.ch->event_fd, -1);
	io_do(IO_WRITE, 512, 9 * KiB, 3);
	io_do(IO_READ, 512, 9 * KiB, 3);
	close_lab();
}

/* The nth I/O below fails: of those above one does, and no other is lost. */
static unsigned
run_with_error(unsigned nth)
{
	struct rig_io *rio[8];
	unsigned i, failed = 0, seed;
	uint64_t at;

	open_lab(BLOCK, 0);
	io_do(IO_WRITE, 0, SIZE, 1);
	lab->fail_nth = nth == 0 ? 0 : lab->nr_ios + nth;
	for (i = 0; i < 8; i++)
		rio[i] = io_start(&rig, i == 6 ? IO_READ : IO_WRITE,
		    i < 5 ? 512 + i * 1024 : (i - 4) * 128 * KiB + 512,
		    i < 5 ? 1024 : 70 * KiB, i + 2);
	rig_wait(&rig);
	lab->fail_nth = 0;
	for (i = 0; i < 8; i++) {
		failed += rio[i]->error != 0;
		assert_true(rio[i]->error == 0 || rio[i]->error == -EIO);
		seed = i == 6 ? 1 : i + 2;
		if (rio[i]->error == 0)
			io_do(IO_READ, rio[i]->io.offset, rio[i]->io.length,
			    seed);
		at = rio[i]->io.offset + rio[i]->io.length;
		if (i >= 4 && at < SIZE)
			io_do(IO_READ, at, 512, 1);
		rig_io_free(rio[i]);
	}
	io_do(IO_READ, 0, 512, 1);
	io_do(IO_WRITE, 512, 70 * KiB, 20);
	io_do(IO_READ, 512, 70 * KiB, 20);
	close_lab();
	return failed;
}

static void
test_errors(void **state)
{
	unsigned nth, failed;

	(void)state;
	assert_int_equal(run_with_error(0), 0);
	for (nth = 1; ; nth++) {
		failed = run_with_error(nth);
		assert_in_range(failed, 0, 1);
		if (failed == 0)
			break;
	}
	/* 5 in two blocks, 2 * (2 reads, 2 writes), a read of two pieces */
	assert_int_equal(nth, 5 * 2 + 2 * 4 + 2 + 1);
}

/*
 * Threads, each with a channel.  A sector holds its number and a count that
 * goes up, in every word.
 */

#define SECTORS   256u
#define INFLIGHT  24u
#define IOS       6000u
#define WORDS     (512 / sizeof(uint64_t))
#define MAX_RUN   40u

static atomic_uint owned[SECTORS];	/* by an I/O that is in flight */
static atomic_uint count[SECTORS];	/* of what was written last */

struct job {
	struct io        io;
	struct iovec     iov[2];
	struct worker   *worker;
	unsigned         first, nr;	/* sectors */
	bool             owner;
	unsigned         before[MAX_RUN];
	uint64_t        *buf;
};

struct worker {
	pthread_t        thread;
	struct image    *img;
	struct channel  *ch;
	unsigned         seed, issued, inflight;
	struct job       job[INFLIGHT];
	bool             used[INFLIGHT];
};

#define need(what) \
	((what) ? (void)0 : broken(#what, __LINE__))

static void
broken(const char *what, int line)
{
	fprintf(stderr, "test_sector.c:%d: it does not hold that %s\n", line,
	    what);
	abort();
}

static bool
job_own(struct job *j)
{
	unsigned i, is;

	for (i = 0; i < j->nr; i++) {
		is = 0;
		if (atomic_compare_exchange_strong(&owned[j->first + i], &is,
		    1))
			continue;
		while (i-- > 0)
			atomic_store(&owned[j->first + i], 0);
		return false;
	}
	return true;
}

/* Whole sectors, of a count that they had while the read was on its way. */
static void
job_compare(const struct job *j)
{
	unsigned i, k, is, now;
	const uint64_t *p = j->buf;

	for (i = 0; i < j->nr; i++, p += WORDS) {
		for (k = 1; k < WORDS; k++)
			need(p[k] == p[0]);
		is = (unsigned)p[0];
		need(p[0] == 0 || p[0] >> 32 == j->first + i);
		now = atomic_load(&count[j->first + i]);
		if (j->owner)
			need(is == now);
		else
			need(is >= j->before[i] && is <= now + 1);
	}
}

static void
job_done(struct io *io, int error)
{
	struct job *j = container_of(io, struct job, io);
	unsigned i;

	need(error == 0);
	if (io->op == IO_READ)
		job_compare(j);
	for (i = 0; i < j->nr; i++)
		if (io->op == IO_WRITE)
			atomic_fetch_add(&count[j->first + i], 1);
	for (i = 0; i < j->nr && j->owner; i++)
		atomic_store(&owned[j->first + i], 0);
	j->worker->used[j - j->worker->job] = false;
	j->worker->inflight--;
}

static void
job_fill(struct job *j)
{
	uint64_t *p = j->buf;
	unsigned i, k;

	for (i = 0; i < j->nr; i++)
		for (k = 0; k < WORDS; k++)
			*p++ = (uint64_t)(j->first + i) << 32 |
			    (atomic_load(&count[j->first + i]) + 1);
}

static bool
job_submit(struct worker *w, struct job *j)
{
	unsigned i, dice = (unsigned)rand_r(&w->seed), split;

	j->nr = 1 + dice / 8 % (dice % 4 == 0 ? MAX_RUN : 5);
	j->first = (unsigned)rand_r(&w->seed) % (SECTORS - j->nr + 1);
	if (dice % 8 == 1) {
		j->nr = 8 * (1 + dice / 8 % 3);
		j->first = j->first / 8 * 8;
		if (j->first + j->nr > SECTORS)
			return false;
	}
	j->owner = dice % 8 != 7;
	if (j->owner && !job_own(j))
		return false;
	for (i = 0; i < j->nr; i++)
		j->before[i] = atomic_load(&count[j->first + i]);

	split = j->nr > 1 && dice % 5 == 0 ? 1 + dice / 8 % (j->nr - 1) : 0;
	j->iov[0].iov_base = j->buf;
	j->iov[0].iov_len = (split > 0 ? split : j->nr) * 512;
	j->iov[1].iov_base = (char *)j->buf + split * 512;
	j->iov[1].iov_len = (j->nr - split) * 512;
	j->io = (struct io){
		.op = j->owner && dice / 64 % 3 != 0 ? IO_WRITE : IO_READ,
		.offset = j->first * 512, .length = j->nr * 512,
		.iov = j->iov, .iovcnt = split > 0 ? 2 : 1, .done = job_done,
	};
	if (j->io.op == IO_WRITE)
		job_fill(j);
	channel_submit(w->ch, &j->io);
	return true;
}

static void
worker_fill(struct worker *w)
{
	unsigned i, tries;

	for (i = 0; i < INFLIGHT && w->issued < IOS; i++)
		for (tries = 0; tries < 4 && !w->used[i]; tries++)
			if (job_submit(w, &w->job[i])) {
				w->used[i] = true;
				w->inflight++;
				w->issued++;
			}
}

static void *
worker_main(void *arg)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	struct worker *w = arg;
	int epfd = epoll_create1(EPOLL_CLOEXEC);
	char why[WHY_MAX];
	unsigned i;

	need(channel_open(w->img, INFLIGHT, &w->ch, why) == 0);
	need(epfd != -1 &&
	    epoll_ctl(epfd, EPOLL_CTL_ADD, w->ch->event_fd, &ev) == 0);
	for (i = 0; i < INFLIGHT; i++) {
		w->job[i].worker = w;
		w->job[i].buf = aligned_alloc(4096, (MAX_RUN + 8) * 512);
		need(w->job[i].buf != NULL);
	}
	while (w->issued < IOS || w->inflight > 0) {
		worker_fill(w);
		channel_reap(w->ch);
		/* An edge that is missing makes this fail. */
		if (w->inflight > 0)
			need(epoll_wait(epfd, &ev, 1, RIG_TIMEOUT_MS) == 1);
		channel_reap(w->ch);
	}
	for (i = 0; i < INFLIGHT; i++)
		free(w->job[i].buf);
	close(epfd);
	channel_close(w->ch);
	return NULL;
}

static void
run_threads(unsigned nr, uint32_t block, uint32_t alignment)
{
	static struct worker worker[4];
	unsigned i;

	memset(worker, 0, sizeof(worker));
	for (i = 0; i < SECTORS; i++) {
		assert_int_equal(atomic_load(&owned[i]), 0);
		atomic_store(&count[i], 0);
	}
	open_lab(block, alignment);
	for (i = 0; i < nr; i++) {
		worker[i].img = rig.img;
		worker[i].seed = 1000 * nr + i;
		assert_int_equal(pthread_create(&worker[i].thread, NULL,
		    worker_main, &worker[i]), 0);
	}
	for (i = 0; i < nr; i++)
		assert_int_equal(pthread_join(worker[i].thread, NULL), 0);
	assert_int_equal(lab->nr_inflight, 0);
	assert_int_equal(lab->nr_closed, nr);
	close_lab();
}

static void
test_one_thread(void **state)
{
	(void)state;
	run_threads(1, BLOCK, 0);
	run_threads(1, 16 * KiB, 0);
	run_threads(1, 1024, 4096);
}

static void
test_threads(void **state)
{
	(void)state;
	run_threads(2, BLOCK, 0);
	run_threads(4, BLOCK, 4096);
	run_threads(4, 64 * KiB, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_geometry),
		cmocka_unit_test(test_channel_fails),
		cmocka_unit_test(test_costs),
		cmocka_unit_test(test_no_copy),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_strict),
		cmocka_unit_test(test_flush_and_discard),
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_buffers),
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_one_thread),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests_name("sector", tests, NULL, NULL);
}
