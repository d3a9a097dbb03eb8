/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_qcow2_resize: a disk becomes larger, whatever its clusters, with I/O in
 * flight, when a call fails, and when the host loses power at any moment.
 *
 * For the last, each call that changes the file is recorded while one resize
 * goes on; nothing else does, so that they come one after the other.  Of those
 * after the last sync all, none, each alone, and all but each are lost; the
 * file is then of the old or of the new size and has no error.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/io_tap.h"
#include "tests/qcow2_rig.h"

static int
resize(uint64_t size)
{
	return image_resize(disk.img, size, disk.why);
}

static void
refuses(uint64_t size, int error, const char *words)
{
	uint64_t was = disk.img->size;

	assert_int_equal(resize(size), error);
	snprintf(why, sizeof(why), "%s", disk.why);
	says(words);
	assert_int_equal(disk.img->size, was);
}

static void
is_size(const char *name, uint64_t size)
{
	assert_int_equal(peek(name, 24), size);
}

/*
 * Images.
 */

static const struct kind {
	const char *options;
	uint64_t    cluster, first, then, last;	/* bytes; sizes */
} kinds[] = {
	/* In the last step the table needs clusters of another block. */
	{ "cluster_size=512", 512, 1 * MiB, 3 * MiB, 200 * MiB },
	{ "cluster_size=512,compat=0.10", 512, 40000 * 512, 100000 * 512,
	  101000 * 512 },
	{ "cluster_size=4k,refcount_bits=1", 4 * KiB, 3 * MiB, 5 * MiB,
	  3000 * MiB },
	{ "cluster_size=16k,extended_l2=on", 16 * KiB, 5 * MiB, 30 * MiB,
	  70 * MiB },
	{ "cluster_size=64k,refcount_bits=64", 64 * KiB, 4 * MiB, 600 * MiB,
	  1300 * MiB },
	{ "cluster_size=64k,lazy_refcounts=on", 64 * KiB, 512 * MiB,
	  512 * MiB + 512, 8192 * MiB },
	{ "cluster_size=2M", 2 * MiB, 3 * MiB, 5 * MiB, 700 * 1024 * MiB },
};

#define NR_KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* What lies before the old end stays, behind it are zeroes to be written. */
static void
grow_step(uint64_t size)
{
	uint64_t was = disk.img->size, room = size - was;

	if (room > 192 * KiB)
		room = 192 * KiB;
	both_write(was - 4 * KiB, 4 * KiB);
	if (resize(size) != 0)
		fail_msg("%s", disk.why);
	assert_int_equal(disk.img->size, size);
	assert_int_equal(truncate(at("model"), (off_t)size), 0);
	assert_true(disk_holds(was, room, 0));
	assert_true(disk_holds(size - 512, 512, 0));
	/* Across the old end, and up to the new one. */
	both_write(was - 512, room < 4 * KiB ? 1024 : 4 * KiB);
	if (room > 4 * KiB)
		both_write(size - 3 * KiB, 3 * KiB);
	assert_int_equal(resize(size), 0);	/* again: nothing */
}

static void
test_kinds(void **state)
{
	const struct kind *k;
	unsigned i;

	(void)state;
	for (i = 0; i < NR_KINDS; i++) {
		k = &kinds[i];
		run("rm -f a; qemu-img create -q -f qcow2 -o %s a %llu",
		    k->options, (unsigned long long)k->first);
		model_make("a");
		disk_open("a", false);
		grow_step(k->then);
		refuses(k->first, -EINVAL, "no disk|smaller");
		grow_step(k->last);
		/* With the next opened, what was not flushed counts. */
		disk_close();
		is_size("a", k->last);
		image_is_clean("a");
		image_is_model("a");
		disk_open("a", false);
		assert_int_equal(disk.img->size, k->last);
		assert_true(disk_holds(k->last / 2 & ~4095ull, 4096, 0) ||
		    k->last < 64 * MiB);
		disk_close();
	}
}

/* More often than there may be blocks of the table that are to be written. */
static void
test_often(void **state)
{
	uint64_t size;

	(void)state;
	run("qemu-img create -q -f qcow2 -o cluster_size=512 a 64k");
	model_make("a");
	disk_open("a", false);
	for (size = 96 * KiB; size <= 4 * MiB; size += 48 * KiB)
		grow_step(size);
	disk_is_model();
	disk_close();
	image_is_clean("a");
	image_is_model("a");
}

/* With a full cache of changed slices, of an image that was small. */
static void
test_cache(void **state)
{
	uint64_t at_, size = 64 * MiB;

	(void)state;
	run("qemu-img create -q -f qcow2 -o cluster_size=512 a 64k");
	model_make("a");
	disk_open("a", false);
	assert_int_equal(resize(size), 0);
	assert_int_equal(truncate(at("model"), (off_t)size), 0);
	for (at_ = 0; at_ < size; at_ += 128 * KiB)
		both_write(at_, 512);
	disk_close();
	image_is_clean("a");
	image_is_model("a");
}

static void
test_snapshots(void **state)
{
	(void)state;
	run("qemu-img create -q -f qcow2 a 4M; qemu-io -f qcow2 -c "
	    "'write -P 7 0 4M' a; qemu-img snapshot -c s1 a; "
	    "qemu-img convert -f qcow2 -O raw a old");
	model_make("a");
	disk_open("a", false);
	grow_step(1500 * MiB);
	disk_close();
	image_is_clean("a");
	image_is_model("a");
	/*
	 * The snapshot is read with the disk's size, but is of the old one,
	 * and takes the disk back to it.
	 */
	run("qemu-img convert -f qcow2 -l s1 -O raw a then && "
	    "truncate -s 4M then && cmp old then && "
	    "qemu-img snapshot -a s1 a && "
	    "qemu-img compare -f qcow2 -F raw a old");
	image_is_clean("a");
	is_size("a", 4 * MiB);

	run("rm a; qemu-img create -q -f qcow2 -o compat=0.10 a 4M; "
	    "qemu-img snapshot -c s1 a");
	disk_open("a", false);
	refuses(8 * MiB, -EOPNOTSUPP, "snapshots|version 2|amend");
	disk_close();
}

static void
test_backing(void **state)
{
	(void)state;
	run("truncate -s 1M base; qemu-io -f raw -c 'write -P 3 0 1M' base; "
	    "qemu-img create -q -f qcow2 -b base -F raw a; "
	    "qemu-img create -q -f qcow2 -b base -F raw b 512k");
	model_make("a");
	disk_open("a", false);
	assert_int_equal(resize(2 * MiB), 0);
	assert_true(disk_holds(0, 1 * MiB, 3));
	assert_true(disk_holds(1 * MiB, 1 * MiB, 0));
	assert_int_equal(truncate(at("model"), 2 * MiB), 0);
	both_write(1 * MiB - 512, 1024);
	both_write(1 * MiB + 100 * KiB, 512);
	disk_is_model();
	disk_close();
	image_is_clean("a");
	image_is_model("a");
	disk_open("b", false);
	refuses(2 * MiB, -EOPNOTSUPP, "backing file|larger|qemu-img resize");
	disk_close();
}

static void
test_refused(void **state)
{
	(void)state;
	run("qemu-img create -q -f qcow2 -o cluster_size=512 a 1M");
	disk_open("a", false);
	refuses(512 * KiB, -EINVAL, "1048576|smaller");
	refuses(1 * MiB + 100, -EINVAL, "multiple of 512");
	refuses(0, -EINVAL, "name the new one");
	refuses(1ull << 40, -EFBIG, "32 MiB|larger ones");
	refuses(1ull << 33, -EFBIG, "in a row|qemu-img resize");
	disk_close();
	is_size("a", 1 * MiB);
	disk_open("a", true);
	refuses(2 * MiB, -EROFS, "read-only");
	disk_close();
	image_is_clean("a");
}

/* Bitmaps are of the old size: they count no more. */
static void
test_bitmaps(void **state)
{
	(void)state;
	run("qemu-img create -q -f qcow2 a 1M; qemu-img bitmap --add a b");
	assert_int_equal(peek("a", 88), 1);
	disk_open("a", false);
	assert_int_equal(resize(2 * MiB), 0);
	assert_int_equal(peek("a", 88), 0);
	disk_close();
	/* QEMU counts what they took as leaked. */
	assert_int_equal(image_status("a"), 3);
}

/*
 * With I/O in flight.
 */

static struct {
	atomic_bool stop;
	unsigned    nr;
	int         error;
} grower;

static void *
grow_on(void *arg)
{
	uint64_t size = disk.img->size;
	char text[WHY_MAX];

	(void)arg;
	while (!grower.stop && grower.error == 0) {
		size += 256 * KiB;
		grower.error = image_resize(disk.img, size, text);
		grower.nr++;
	}
	return NULL;
}

static void
test_under_load(void **state)
{
	uint64_t size, i, at_;
	pthread_t thread;

	(void)state;
	run("qemu-img create -q -f qcow2 -o cluster_size=4k a 1M");
	model_make("a");
	disk_open("a", false);
	assert_int_equal(truncate(at("model"), 1 << 30), 0);
	assert_int_equal(pthread_create(&thread, NULL, grow_on, NULL), 0);
	for (i = 0; i < 600 || grower.nr < 20; i++) {
		size = disk.img->size;	/* what is told may be used */
		at_ = i % 3 == 0 ? size - 4 * KiB :
		    i * 7919 * 512 % (size - 8 * KiB) & ~511ull;
		if (i % 16 == 15)
			both_discard(at_ & ~4095ull, 4 * KiB);
		else
			both_write(at_, 2 * KiB);
		if (i % 20 == 0)
			assert_int_equal(rig_flush(&disk), 0);
	}
	grower.stop = true;
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(grower.error, 0);
	print_message("%u times\n", grower.nr);
	assert_int_equal(truncate(at("model"), (off_t)disk.img->size), 0);
	disk_is_model();
	disk_close();
	image_is_clean("a");
	image_is_model("a");
}

/*
 * Failures.
 */

static struct {
	unsigned nth;		/* call to fail; 0: none */
	int      error;
	unsigned calls;
	bool     sync;		/* it was one */
	bool     twice;		/* and the next */
} trip;

static long
trip_begin(struct tap_call *c)
{
	if (c->kind == TAP_READ || c->async)
		return 0;
	if (++trip.calls != trip.nth &&
	    !(trip.twice && trip.calls == trip.nth + 1))
		return 0;
	trip.sync |= c->kind == TAP_SYNC;
	return trip.error;
}

static void
trip_over(unsigned nth, int error, bool twice)
{
	trip.nth = nth;
	trip.error = error;
	trip.twice = twice;
	trip.calls = 0;
	trip.sync = false;
	tap.begin = trip_begin;
}

/* Whether the call fails or not, what is there is whole.  False: all done. */
static bool
fail_one(const char *options, unsigned nth, int error, bool twice)
{
	uint64_t first = 1 * MiB, size = 600 * MiB;
	int rc, status;

	run("rm -f a; qemu-img create -q -f qcow2 -o %s a 1M", options);
	model_make("a");
	tap_watch(at("a"));
	disk_open("a", false);
	both_write(0, 64 * KiB);
	trip_over(nth, error, twice);
	rc = resize(size);
	tap.begin = NULL;
	assert_int_equal(disk.img->size, rc == 0 ? size : first);
	if (rc < 0 && !trip.sync) {
		/* It has the old size, is of use, and can be tried again. */
		assert_int_equal(disk_write(64 * KiB, 512), 0);
		both_write(64 * KiB, 4 * KiB);
		assert_int_equal(rig_flush(&disk), 0);
		assert_int_equal(rig_shell(NULL, 0, "cd %s; qemu-img info -U "
		    "a | grep -q '(%llu bytes)'", dir,
		    (unsigned long long)first), 0);
		if (resize(size) != 0)
			fail_msg("again: %s", disk.why);
	}
	if (!trip.sync) {
		assert_int_equal(truncate(at("model"), (off_t)size), 0);
		both_write(size - 4 * KiB, 4 * KiB);
		disk_close();
		image_is_model("a");
	} else {
		disk_abandon();
	}
	/* Clusters may be lost, but no more than that. */
	status = image_status("a");
	assert_true(status == 0 || status == 3);
	return trip.calls >= nth;
}

static void
test_failures(void **state)
{
	unsigned nth;

	(void)state;
	for (nth = 1; fail_one("cluster_size=4k", nth, -ENOSPC, false); nth++)
		;
	assert_in_range(nth, 5, 40);
	for (nth = 1; fail_one("cluster_size=64k", nth, -EIO, true); nth++)
		;
	assert_in_range(nth, 5, 40);
}

/*
 * The header's new sector reaches the file, but that fails, and so does putting
 * the old one back.
 */
static unsigned header_writes;

static long
header_begin(struct tap_call *c)
{
	if (c->kind != TAP_WRITE || c->async)
		return 0;
	if (c->offset == 0 && c->length == 512)
		return ++header_writes == 1 ? 48 : -EIO;
	return c->offset < 512 ? -EIO : 0;
}

static void
test_header_unsure(void **state)
{
	(void)state;
	run("qemu-img create -q -f qcow2 -o cluster_size=4k a 9M");
	model_make("a");
	disk.cache = CACHE_WRITEBACK;
	disk.engine = ENGINE_THREADS;
	disk_open("a", false);
	both_write(0, 64 * KiB);
	assert_int_equal(rig_flush(&disk), 0);
	header_writes = 0;
	tap_watch(at("a"));
	tap.begin = header_begin;
	refuses(600 * MiB, -EIO, "resize|dmesg");
	tap.begin = NULL;
	assert_true(header_writes > 1);
	/* Nobody knows which table it is: both are right. */
	is_size("a", 600 * MiB);
	run("cp a b; cp model model.b; truncate -s 600M model.b");
	assert_int_equal(image_status("b") & ~3, 0);
	run("qemu-img compare -f qcow2 -F raw b model.b");
	/* Before one of them changes, it is made sure. */
	both_write(5 * MiB, 64 * KiB);
	assert_int_equal(rig_flush(&disk), 0);
	is_size("a", 9 * MiB);
	run("cp a b");
	assert_int_equal(image_status("b") & ~3, 0);
	image_is_model("b");
	disk_close();
	image_is_model("a");
	disk.cache = CACHE_NONE;
	disk.engine = ENGINE_AIO;
}

/* What was discarded, but is not free yet, makes room for the table. */
static long
full_begin(struct tap_call *c)
{
	return c->kind == TAP_GROW || c->kind == TAP_RESIZE ? -ENOSPC : 0;
}

static void
test_full(void **state)
{
	uint64_t at_, size = 300ull << 40;

	(void)state;
	run("qemu-img create -q -f qcow2 a 32M");
	model_make("a");
	disk_open("a", false);
	for (at_ = 0; at_ < 24 * MiB; at_ += MiB)
		both_write(at_, MiB);
	assert_int_equal(rig_flush(&disk), 0);
	tap_watch(at("a"));
	tap.begin = full_begin;
	refuses(size, -ENOSPC, "No space|make room");
	both_discard(0, 24 * MiB);
	assert_int_equal(resize(size), 0);
	tap.begin = NULL;
	disk_close();
	image_is_clean("a");
}

/*
 * Power.
 */

#define MAX_EVENTS 64u

static struct event {
	enum tap_kind kind;
	uint64_t      offset, length;
	uint8_t      *data;
} events[MAX_EVENTS];
static unsigned nr_events;
static uint8_t *before;		/* the file as it was */
static uint64_t before_size;

static long
record_begin(struct tap_call *c)
{
	struct event *e;
	uint64_t done = 0;
	int i;

	if (c->kind == TAP_READ)
		return 0;
	assert_true(nr_events < MAX_EVENTS);
	e = &events[nr_events++];
	*e = (struct event){ c->kind, c->offset, c->length, NULL };
	if (c->kind != TAP_WRITE)
		return 0;
	e->data = malloc(c->length);
	assert_non_null(e->data);
	for (i = 0; i < c->iovcnt; done += c->iov[i++].iov_len)
		memcpy(e->data + done, c->iov[i].iov_base, c->iov[i].iov_len);
	return 0;
}

static void
event_apply(int fd, const struct event *e)
{
	struct stat st;
	int rc = 0;

	assert_int_equal(fstat(fd, &st), 0);
	if (e->kind == TAP_WRITE)
		rc = pwrite(fd, e->data, e->length, (off_t)e->offset) ==
		    (ssize_t)e->length ? 0 : -1;
	else if (e->kind == TAP_GROW &&
	    (uint64_t)st.st_size < e->offset + e->length)
		rc = ftruncate(fd, (off_t)(e->offset + e->length));
	else if (e->kind == TAP_RESIZE)
		rc = ftruncate(fd, (off_t)e->offset);
	else if (e->kind == TAP_PUNCH)
		rc = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		    (off_t)e->offset, (off_t)e->length);
	assert_int_equal(rc, 0);
}

/* All up to the last sync before 'end', and of the rest those of 'mask'. */
static void
crash_make(unsigned end, uint64_t mask)
{
	unsigned i, safe = 0;
	int fd = open(at("a"), O_RDWR | O_TRUNC | O_CLOEXEC);

	assert_true(fd != -1);
	assert_int_equal(pwrite(fd, before, before_size, 0), before_size);
	for (i = 0; i < end; i++)
		if (events[i].kind == TAP_SYNC)
			safe = i;
	for (i = 0; i < end; i++)
		if (i < safe || (mask >> (i - safe) & 1) != 0)
			event_apply(fd, &events[i]);
	close(fd);
}

/* Sound, of one of the two sizes, with what was in it, and of use. */
static void
crash_check(unsigned end, uint64_t mask, uint64_t old, uint64_t new)
{
	uint64_t size = peek("a", 24);
	int status = image_status("a");

	if (status != 0 && status != 3)
		fail_msg("after %u of %u calls, %#llx of the last: %d", end,
		    nr_events, (unsigned long long)mask, status);
	assert_true(size == old || size == new);
	disk_open("a", false);
	assert_true(disk_holds(0, 128 * KiB, 9));
	if (size == new)
		assert_true(disk_holds(new - 64 * KiB, 64 * KiB, 0));
	assert_int_equal(disk_write(size - 4 * KiB, 4 * KiB), 0);
	disk_close();
	if (mask != 1)			/* it takes its time */
		return;
	status = image_status("a");
	assert_true(status == 0 || status == 3);
}

static void
crash_all(const char *options, uint64_t old, uint64_t new)
{
	unsigned end, i, n, syncs = 0, made = 0;
	struct stat st = { 0 };
	uint64_t all;
	int fd;

	run("rm -f a; qemu-img create -q -f qcow2 -o %s a %llu; qemu-io -f "
	    "qcow2 -c 'write -P 9 0 128k' a", options,
	    (unsigned long long)old);
	disk_open("a", false);
	fd = open(at("a"), O_RDONLY | O_CLOEXEC);
	assert_true(fd != -1 && fstat(fd, &st) == 0);
	before_size = (uint64_t)st.st_size;
	before = malloc(before_size + 1);
	assert_non_null(before);
	assert_int_equal(pread(fd, before, before_size, 0), before_size);
	close(fd);
	nr_events = 0;
	tap_watch(at("a"));
	tap.begin = record_begin;
	assert_int_equal(resize(new), 0);
	tap.begin = NULL;
	disk_close();
	for (end = 1; end <= nr_events; end++) {
		syncs += events[end - 1].kind == TAP_SYNC;
		for (n = 0; n < end && events[end - 1 - n].kind != TAP_SYNC;
		    n++)
			;
		/* The sync itself may be the one that was lost. */
		all = (2ull << n) - 1;
		crash_make(end, all);
		crash_check(end, all, old, new);
		for (i = 0; i < n + 1; i++, made += 2) {
			crash_make(end, 1ull << i);
			crash_check(end, 1ull << i, old, new);
			crash_make(end, all & ~(1ull << i));
			crash_check(end, all & ~(1ull << i), old, new);
		}
	}
	assert_true(syncs >= 2);
	/* Whoever was told that it is larger can rely on it. */
	crash_make(nr_events, 0);
	is_size("a", new);
	print_message("%s: %u calls, %u crashes\n", options, nr_events, made);
	while (nr_events > 0)
		free(events[--nr_events].data);
	free(before);
}

static void
test_crashes(void **state)
{
	(void)state;
	crash_all("cluster_size=4k", 1 * MiB, 3000 * MiB);
	crash_all("cluster_size=512", 512 * KiB, 100 * MiB);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_kinds),
		TEST(test_often),
		TEST(test_cache),
		TEST(test_snapshots),
		TEST(test_backing),
		TEST(test_refused),
		TEST(test_bitmaps),
		TEST(test_under_load),
		TEST(test_failures),
		TEST(test_header_unsure),
		TEST(test_full),
		TEST(test_crashes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
