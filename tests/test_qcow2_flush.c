/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_qcow2_flush: what durability costs.  Every call that writes or syncs
 * the image is counted (io_tap), and compared with what it may cost.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/io_tap.h"
#include "tests/qcow2_rig.h"

/* Of the image since the last look; guest data is written by an engine. */
static _Atomic unsigned nr_syncs, nr_writes, nr_async;
static atomic_bool hold;	/* syncs by the metadata thread */

static long
count(struct tap_call *c)
{
	while (c->kind == TAP_SYNC && !c->async && hold)
		usleep(1000);
	if (c->kind == TAP_SYNC)
		nr_syncs++;
	else if (c->kind == TAP_WRITE && c->async)
		nr_async++;
	else if (c->kind == TAP_WRITE)
		nr_writes++;
	return 0;
}

static void
counted(const char *options, const char *size)
{
	run("rm -f a; qemu-img create -q -f qcow2 -o %s a %s", options, size);
	disk_open("a", false);
	tap_watch(at("a"));
	nr_syncs = nr_writes = nr_async = 0;
}

static void
flush_costs(const char *what, unsigned syncs, unsigned writes)
{
	nr_syncs = nr_writes = nr_async = 0;
	assert_int_equal(rig_flush(&disk), 0);
	if (nr_syncs > syncs || nr_writes + nr_async > writes)
		fail_msg("%s: a flush costs %u syncs, %u + %u writes", what,
		    nr_syncs, nr_writes, nr_async);
}

static void
test_costs(void **state)
{
	(void)state;
	counted("cluster_size=64k", "1G");
	flush_costs("what a predecessor may have written", 1, 0);
	flush_costs("nothing", 0, 0);
	assert_int_equal(disk_read(0, MiB), 0);
	flush_costs("a read", 0, 0);

	assert_int_equal(disk_write(0, 4096), 0);
	flush_costs("a first write", 2, 4);
	assert_true(nr_syncs > 0 && nr_writes > 0);
	flush_costs("nothing since", 0, 0);

	assert_int_equal(disk_write(8192, 4096), 0);
	flush_costs("a write where one was", 1, 0);
	assert_int_equal(nr_syncs, 1);
	flush_costs("nothing since", 0, 0);

	assert_int_equal(disk_read(0, MiB), 0);
	flush_costs("a read", 0, 0);
	assert_int_equal(disk_discard(0, 64 * KiB), 0);
	flush_costs("a discard", 2, 4);
	flush_costs("nothing since", 0, 0);
	disk_close();
	image_is_clean("a");
}

/* Those that wait at the same time share what is done. */
static void
test_shared(void **state)
{
	struct rig_io *rio[16];
	size_t i;

	(void)state;
	counted("cluster_size=64k", "1G");
	assert_int_equal(disk_write(0, MiB), 0);
	for (i = 0; i < 16; i++) {
		rio[i] = rig_io_new(&disk, IO_FLUSH, 0, 0, 0);
		rig_submit(rio[i]);
	}
	rig_wait(&disk);
	for (i = 0; i < 16; i++) {
		assert_int_equal(rio[i]->error, 0);
		rig_io_free(rio[i]);
	}
	assert_in_range(nr_syncs, 1, 4);
	disk_close();
}

/* Who waits for metadata says so, as long as it does. */
static void
test_told(void **state)
{
	_Atomic uint32_t waits = 0;
	struct rig_io *rio;

	(void)state;
	counted("cluster_size=64k", "1G");
	assert_int_equal(disk_write(0, 4096), 0);
	rio = rig_io_new(&disk, IO_FLUSH, 0, 0, 0);
	rio->io.metadata = &waits;
	hold = true;
	rig_submit(rio);
	assert_int_equal(waits, 1);
	hold = false;
	rig_wait(&disk);
	assert_int_equal(rio->error, 0);
	assert_int_equal(waits, 0);
	rig_io_free(rio);

	/* Data that has its place is waited for itself. */
	rio = rig_io_new(&disk, IO_READ, 0, 4096, 1);
	rio->io.metadata = &waits;
	rig_submit(rio);
	assert_int_equal(waits, 0);
	rig_wait(&disk);
	rig_io_free(rio);
	disk_close();
}

static void
test_nothing_at_close(void **state)
{
	(void)state;
	counted("cluster_size=64k", "1G");
	assert_int_equal(disk_read(0, MiB), 0);
	disk_close();
	assert_int_equal(nr_writes + nr_async, 0);
}

/* Metadata written for 4k first writes, those at the end included. */
static double
metadata_per_write(const char *options, bool random, unsigned n)
{
	struct rig_io *rio[32];
	uint64_t x = 1, place;
	unsigned i, k;

	counted(options, "1G");
	for (i = 0; i < n; i += 32) {
		for (k = 0; k < 32; k++) {
			x = x * 6364136223846793005u + 1442695040888963407u;
			place = random ? (x >> 33) % (1u << 18) : i + k;
			rio[k] = rig_io_new(&disk, IO_WRITE, place * 4096,
			    4096, 1);
			rig_submit(rio[k]);
		}
		rig_wait(&disk);
		for (k = 0; k < 32; k++) {
			assert_int_equal(rio[k]->error, 0);
			rig_io_free(rio[k]);
		}
	}
	disk_close();
	return (double)nr_writes / n;
}

static void
test_metadata(void **state)
{
	double each;

	(void)state;
	each = metadata_per_write("cluster_size=64k", false, 4096);
	if (each > 0.02)
		fail_msg("%.3f metadata writes for each of 4096 sequential "
		    "ones", each);
	each = metadata_per_write("cluster_size=64k", true, 2048);
	if (each > 1)
		fail_msg("%.3f metadata writes for each of 2048 random ones",
		    each);
	each = metadata_per_write("cluster_size=128k,extended_l2=on", true,
	    2048);
	if (each > 1)
		fail_msg("%.3f metadata writes for each of 2048 random ones "
		    "with subclusters", each);
}

/* Nobody flushes: it is in the file after 5 s all the same. */
static void
test_age(void **state)
{
	time_t began = time(NULL);
	uint64_t l1;

	(void)state;
	counted("cluster_size=64k", "1G");
	assert_int_equal(disk_write(0, 4096), 0);
	l1 = peek("a", 40);
	while (peek("a", l1) == 0 || entry_of("a", 0) == 0) {
		if (time(NULL) - began > 8)
			fail_msg("metadata is not written in 8 seconds");
		usleep(50000);
	}
	disk_close();
	image_is_clean("a");
}

static const struct mode {
	enum engine_kind engine;
	enum cache_mode  cache;
} durable[] = {
	{ ENGINE_AIO, CACHE_DIRECTSYNC },
	{ ENGINE_THREADS, CACHE_DIRECTSYNC },
	{ ENGINE_THREADS, CACHE_WRITETHROUGH },
};

static struct rig_io *
begin_write(uint64_t offset)
{
	struct rig_io *rio = rig_io_new(&disk, IO_WRITE, offset, 4096, 1);
	unsigned ms;

	rig_submit(rio);
	for (ms = 0; ms < 50; ms++) {
		rig_reap(&disk);
		usleep(1000);
	}
	return rio;
}

/*
 * Where each write is durable its mapping is too, before the guest is told:
 * also the mapping that another write has made, a moment ago.
 */
static void
test_durable(void **state)
{
	struct rig_io *first, *second;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(durable) / sizeof(durable[0]); i++) {
		disk.engine = durable[i].engine;
		disk.cache = durable[i].cache;
		counted("cluster_size=64k", "1G");
		assert_int_equal(disk_write(0, 4096), 0);
		assert_int_not_equal(entry_of("a", 0), 0);

		hold = true;
		first = begin_write(MiB);
		second = begin_write(MiB + 8192);
		assert_int_equal(nr_async, 3);
		assert_int_equal(entry_of("a", MiB), 0);
		assert_int_equal(first->nr_done, 0);
		assert_int_equal(second->nr_done, 0);
		hold = false;
		rig_wait(&disk);
		assert_int_equal(first->error | second->error, 0);
		assert_int_not_equal(entry_of("a", MiB), 0);
		rig_io_free(first);
		rig_io_free(second);
		disk_close();
		image_is_clean("a");
	}
}

/* Nothing is synced, but what was flushed is in the file. */
static void
test_unsafe(void **state)
{
	(void)state;
	disk.engine = ENGINE_THREADS;
	disk.cache = CACHE_UNSAFE;
	counted("cluster_size=64k", "1G");
	assert_int_equal(disk_write(0, MiB), 0);
	flush_costs("a first write", 0, 4);
	assert_int_not_equal(entry_of("a", 0), 0);
	assert_int_equal(disk_discard(0, 64 * KiB), 0);
	assert_int_equal(disk_write(4096, 8192), 0);
	disk_close();
	assert_int_equal(nr_syncs, 0);
	image_is_clean("a");
}

static int
teardown_tap(void **state)
{
	tap_watch(NULL);
	disk.engine = ENGINE_AIO;
	disk.cache = CACHE_NONE;
	hold = false;
	return teardown(state);
}

#define COUNTED(test) cmocka_unit_test_setup_teardown(test, setup, \
	teardown_tap)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		COUNTED(test_costs),
		COUNTED(test_shared),
		COUNTED(test_told),
		COUNTED(test_nothing_at_close),
		COUNTED(test_metadata),
		COUNTED(test_age),
		COUNTED(test_durable),
		COUNTED(test_unsafe),
	};

	setenv("TMPDIR", "/dev/shm", 0);
	tap.real_aio = true;
	tap.begin = count;
	return cmocka_run_group_tests_name("qcow2 flushes", tests, NULL, NULL);
}
