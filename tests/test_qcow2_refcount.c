/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_qcow2_refcount: refcounts and allocator, on images of every shape, on
 * damaged ones, and when any call fails.  Most of what is checked is checked
 * by the rig.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/refcount_rig.h"

static void
check_width(unsigned cluster_bits, unsigned order)
{
	uint64_t max = order == 6 ? INT64_MAX : (1ull << (1u << order)) - 1, at;
	char out[4096], line[96];
	unsigned i;

	img_make(cluster_bits, order, "8M");
	img_load(16384);
	for (i = 1; i < 30; i++)
		assert_int_equal(reserve_or_write(i % 7 + 1), 0);
	write_back();
	img_reload(16384);

	/* A value at a place: QEMU sees the same. */
	at = img.runs[20].offset;
	if (order < 6)
		assert_int_equal(qcow2_refcounts_set(img.r, at, 1, max + 1),
		    -ERANGE);
	assert_int_equal(qcow2_refcounts_set(img.r, at, 1, max), 0);
	write_back();
	assert_int_equal(qemu_check(out, sizeof(out)), 3);
	snprintf(line, sizeof(line), "cluster %llu refcount=%llu reference=0",
	    (unsigned long long)at, (unsigned long long)max);
	if (strstr(out, line) == NULL)
		fail_msg("%s: not in %s", line, out);
	img_reload(65536);
	assert_int_equal(qcow2_refcounts_set(img.r, at, 1, 1), 0);
	finish();
}

static void
test_widths(void **state)
{
	static const unsigned bits[] = { 9, 12, 16, 21 };
	unsigned order, i;

	(void)state;
	for (order = 0; order <= 6; order++)
		for (i = 0; i < 4; i++)
			check_width(bits[i], order);
}

static void
test_growth(void **state)
{
	static const unsigned orders[] = { 6, 4 };
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		img_make(9, orders[i], "1M");
		img_load(4096);
		while (img.nr_tables < 3)
			assert_int_equal(reserve_or_write(61), 0);
		write_back();
		img_reload(65536);
		finish();
	}
}

/* Values of all sizes in ranges of all sizes, through a cache of 4 slices. */
static void
check_values(unsigned cluster_bits, unsigned order)
{
	uint64_t first, count, value;
	uint64_t max = order == 6 ? UINT64_MAX : (1ull << (1u << order)) - 1;
	unsigned i;

	img_make(cluster_bits, order, "1M");
	img_load(0);
	for (i = 0; i < 60; i++) {
		first = 64 + (uint64_t)random() % (cluster_bits == 21 ? 500 :
		    20000);
		count = 1 + (uint64_t)random() % (i % 10 == 0 ? 1000 : 50);
		value = (uint64_t)random() << 33 ^ (uint64_t)random();
		value = i % 3 == 0 ? 0 : i % 3 == 1 ? max : value & max;
		assert_int_equal(set_or_write(first, count, value), 0);
	}
	check_model();
	write_back();
	img_reload(1 << 20);
	img_close();
	unlink(img.path);
}

static void
test_values(void **state)
{
	static const unsigned bits[] = { 9, 13, 16, 21 };
	unsigned order, i;

	(void)state;
	srandom(7);
	for (order = 0; order <= 6; order++)
		for (i = 0; i < 4; i++)
			check_values(bits[i], order);
}

/* A cache that is full of changes says so, and nothing has changed. */
static void
test_again(void **state)
{
	uint64_t first;
	int rc;

	(void)state;
	img_make(16, 6, "64K");
	img_load(0);			/* 4 slices of 512 clusters */
	for (first = 1000; (rc = qcow2_refcounts_set(img.r, first, 1, 5)) == 0;
	    first += 512)
		assert_true(first < 4000);
	assert_int_equal(rc, -EAGAIN);
	assert_true(first > 2000);
	check_model();
	write_back();
	assert_int_equal(qcow2_refcounts_set(img.r, first, 1, 5), 0);

	/* Dropping more than fits writes by itself. */
	assert_int_equal(set_or_write(1000, 7000, 1), 0);
	assert_int_equal(qcow2_refcounts_drop(img.r, 1000, 7000, false), 0);
	for (first = 1000; first < 8000; first++)
		assert_int_equal(img.value[first], 0);
	finish();
}

static void
test_drop(void **state)
{
	uint64_t at;

	(void)state;
	img_make(12, 4, "1M");
	img_load(8192);
	assert_int_equal(reserve(8), 0);
	at = img.runs[0].offset;
	assert_int_equal(img.runs[0].bytes, 8);

	/* Shared, not exclusive, not there at all. */
	assert_int_equal(qcow2_refcounts_set(img.r, at + 2, 2, 3), 0);
	assert_int_equal(qcow2_refcounts_drop(img.r, at, 8, true), -EUCLEAN);
	check_model();
	assert_int_equal(img.value[at], 1);
	assert_int_equal(qcow2_refcounts_drop(img.r, at, 8, false), 0);
	assert_int_equal(img.value[at], 0);
	assert_int_equal(img.value[at + 2], 2);
	assert_int_equal(img.value[at + 4], 0);
	assert_int_equal(qcow2_refcounts_drop(img.r, at, 8, false), -EUCLEAN);
	assert_int_equal(img.value[at + 2], 1);
	assert_int_equal(img.value[at + 3], 1);
	assert_int_equal(qcow2_refcounts_drop(img.r, at + 2, 2, true), 0);
	check_model();
	img.nr_runs = 0;

	/* Nobody drops the header, the table, a block, the L1 table. */
	for (at = 0; at < 4; at++) {
		assert_int_equal(qcow2_refcounts_drop(img.r, at, 1, false),
		    -EUCLEAN);
		assert_int_equal(img.value[at], 1);
	}
	/* Nor what lies beyond everything. */
	assert_int_equal(qcow2_refcounts_drop(img.r, 1ull << 43, 5, false),
	    -EUCLEAN);
	assert_int_equal(qcow2_refcounts_drop(img.r, UINT64_MAX, UINT64_MAX,
	    false), -EUCLEAN);
	assert_int_equal(qcow2_refcounts_set(img.r, UINT64_MAX, 2, 1), -EFBIG);
	assert_int_equal(qcow2_refcounts_set(img.r, 1ull << 43, 5, 1),
	    -ENOSPC);
	assert_int_equal(qcow2_refcounts_set(img.r, 1ull << 30, 1ull << 43, 0),
	    0);			/* and soon */
	finish();
}

/* The next owner of a dropped cluster is told the truth about its zeroes. */
static void
test_zero(void **state)
{
	struct range run;

	(void)state;
	img_make(16, 4, "1M");
	img_load(65536);
	assert_int_equal(reserve(3), 0);
	assert_true(img.zero);
	assert_int_equal(kernel.nr_punched, 0);
	run = img.runs[0];
	assert_int_equal(drop_one(), 0);
	assert_int_equal(kernel.nr_punched, 1);

	kernel.punch_error = EOPNOTSUPP;
	assert_int_equal(reserve(3), 0);
	assert_int_equal(img.runs[0].offset, run.offset);
	assert_false(img.zero);
	assert_int_equal(drop_one(), 0);	/* could not be punched */
	kernel.punch_error = 0;
	assert_int_equal(reserve(3), 0);
	assert_int_equal(img.runs[0].offset, run.offset);
	assert_true(img.zero);

	/* What was grown needs no further call. */
	write_back();
	kernel.nr_calls = 0;
	assert_int_equal(reserve(5), 0);
	assert_true(img.zero);
	assert_int_equal(kernel.nr_calls, 0);
	assert_int_equal(qcow2_refcounts_reserve(img.r, 0, &run.offset,
	    &run.bytes, &img.zero), -EINVAL);
	finish();

	/* Bytes in the last cluster of the file, which nobody owns. */
	img_make(16, 4, "1M");
	assert_int_equal(rig_shell(NULL, 0, "truncate -s 256K '%s' && "
	    "head -c 512 /dev/urandom >>'%s'", img.path, img.path), 0);
	img_load(65536);
	assert_int_equal(reserve(1), 0);
	assert_int_equal(img.runs[0].offset, 4);
	assert_true(img.zero);
	kernel.punch_error = EIO;
	assert_int_equal(reserve(1), 0);
	assert_true(img.zero);
	kernel.punch_error = 0;
	finish();
}

/* Growth takes what there is; then the whole file is searched. */
static void
no_room(int error)
{
	unsigned i;
	int rc;

	img_make(16, 4, "1M");
	img_load(65536);
	kernel.cap = ((img.f.size >> 16) + 9) << 16;
	kernel.cap_error = error;
	while ((rc = reserve(1)) == 0)
		assert_true(img.nr_runs < 20);
	assert_int_equal(rc, error == EDQUOT ? -ENOSPC : -error);
	assert_int_equal(img.f.size, kernel.cap);
	assert_int_equal(img.nr_runs, 8);
	check_model();
	for (i = 0; i < 3; i++) {
		assert_int_equal(drop_one(), 0);
		assert_int_equal(reserve(4), 0);
		assert_int_equal(reserve(4), rc);
	}
	kernel.cap = 0;
	assert_int_equal(reserve(4), 0);
	assert_int_equal(kernel.last_grow, 4 * MiB);
	finish();
}

static void
test_no_room(void **state)
{
	(void)state;
	no_room(ENOSPC);
	no_room(EFBIG);
	no_room(EDQUOT);
}

/* Ahead: 4 MiB, a sixteenth of the file, 64 MiB. */
static void
test_ahead(void **state)
{
	static const struct { uint64_t size, step; } cases[] = {
		{ 1 * MiB, 4 * MiB }, { 160 * MiB, 10 * MiB },
		{ 4096 * MiB, 64 * MiB },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		img_make(16, 4, "1M");
		assert_int_equal(truncate(img.path, (off_t)cases[i].size), 0);
		img_load(65536);
		assert_int_equal(set_or_write(8, (cases[i].size >> 16) - 8, 1),
		    0);
		while (kernel.last_grow == 0)
			assert_int_equal(reserve_or_write(1), 0);
		assert_int_equal(kernel.last_grow, cases[i].step);
		assert_int_equal(img.f.size, cases[i].size + cases[i].step);
		img_close();
		unlink(img.path);
	}
}

/*
 * One free cluster far inside a full file: no reserve looks at more than 256
 * slices on its way there; without room to grow, one looks at all.
 */
static void
test_search(void **state)
{
	uint64_t free_one = 64 * 600 + 7;
	unsigned i, most = 0;
	int rc;

	(void)state;
	img_make(9, 6, "64K");
	assert_int_equal(truncate(img.path, 20 * MiB), 0);
	img_load(1 << 20);
	assert_int_equal(set_or_write(15, 20 * MiB / 512 - 15, 1), 0);
	for (i = 1; i < 20 * MiB / 512; i++)	/* tables left behind, too */
		if (img.value[i] == 0)
			assert_int_equal(set_or_write(i, 1, 1), 0);
	assert_int_equal(set_or_write(free_one, 1, 0), 0);
	write_back();
	img_reload(1 << 16);

	for (i = 0; i < 6 && img.value[free_one] == 0; i++) {
		kernel.nr[PREAD] = 0;
		assert_int_equal(reserve(1), 0);
		if (kernel.nr[PREAD] > most)
			most = kernel.nr[PREAD];
	}
	assert_int_equal(i, 3);
	assert_true(most >= 250 && most <= 260);

	/* Again, in an object that knows nothing yet. */
	assert_int_equal(drop_one(), 0);
	write_back();
	img_reload(1 << 16);
	kernel.cap = 1;
	kernel.cap_error = ENOSPC;
	while ((rc = reserve_or_write(1000)) == 0)
		;
	assert_int_equal(rc, -ENOSPC);
	assert_int_equal(img.value[free_one], 1);

	/* It knows what it has seen: freed ones are found without a look. */
	assert_int_equal(set_or_write(64 * 30 + 5, 1, 0), 0);
	kernel.nr[PREAD] = 0;
	assert_int_equal(reserve(2), 0);
	assert_int_equal(img.runs[img.nr_runs - 1].offset, 64 * 30 + 5);
	assert_int_equal(reserve(2), -ENOSPC);
	assert_true(kernel.nr[PREAD] <= 2);
	img_close();
	unlink(img.path);
}

static void
test_trim(void **state)
{
	uint64_t size;

	(void)state;
	img_make(16, 4, "1M");
	img_load(65536);
	size = img.f.size;
	assert_int_equal(reserve(5), 0);
	assert_int_equal(reserve(5), 0);
	assert_int_equal(reserve(5), 0);
	assert_true(img.f.size >= size + 4 * MiB - 65536);
	assert_int_equal(drop_one(), 0);
	assert_int_equal(qcow2_refcounts_trim(img.r), 0);
	assert_int_equal(img.f.size, bytes_of(img.runs[1].offset + 5));
	assert_int_equal(reserve(5), 0);	/* and on it goes */
	assert_true(img.zero);
	drop_all();
	assert_int_equal(qcow2_refcounts_trim(img.r), 0);
	assert_int_equal(img.f.size, (size + 65535) & ~65535ull);
	img_close();

	/* What it did not grow is not its to cut. */
	assert_int_equal(truncate(img.path, 3 * MiB + 512), 0);
	img_load(65536);
	assert_int_equal(reserve(5), 0);
	drop_all();
	assert_int_equal(qcow2_refcounts_trim(img.r), 0);
	assert_int_equal(img.f.size, 3 * MiB + 512);
	while (img.f.size < 4 * MiB)
		assert_int_equal(reserve(5), 0);
	drop_all();
	assert_int_equal(qcow2_refcounts_trim(img.r), 0);
	assert_int_equal(img.f.size, 3 * MiB + 512);
	finish();
}

/*
 * All of a device, or of a file that cannot be punched and does not grow, is
 * full of what was there before.  All of it can be had.
 */
static void
check_full(bool device, unsigned cluster_bits, unsigned megabytes)
{
	uint64_t i, nr_free = 0, limit;
	int rc;

	img_make(cluster_bits, 6, "64K");
	assert_int_equal(rig_shell(NULL, 0, "head -c %uM /dev/zero | "
	    "tr '\\0' '\\377' >>'%s'; truncate -s %uM '%s'", megabytes,
	    img.path, megabytes, img.path), 0);
	img_load(4096);
	img.f.device = device;
	if (device)
		img.f.discard_granularity = 0;
	kernel.punch_error = EOPNOTSUPP;
	kernel.cap = 1;
	kernel.cap_error = ENOSPC;
	limit = img.f.size >> cluster_bits;
	/* No room for a table behind the last cluster. */
	if (device && cluster_bits == 9)
		assert_int_equal(qcow2_refcounts_set(img.r, limit - 1, 1, 1),
		    -ENOSPC);
	while ((rc = reserve_or_write(50)) == 0)
		assert_false(img.zero);
	assert_int_equal(rc, -ENOSPC);
	assert_int_equal(img.f.size, megabytes * MiB);
	for (i = 1; i < limit; i++)
		nr_free += img.value[i] == 0;
	assert_int_equal(nr_free, 0);
	if (device) {
		assert_int_equal(kernel.nr_punched, 0);
		assert_int_equal(qcow2_refcounts_set(img.r, limit, 1, 1),
		    -ENOSPC);
	}
	finish();
}

static void
test_device(void **state)
{
	(void)state;
	check_full(true, 9, 6);
	check_full(true, 13, 20);
	check_full(false, 13, 20);
}

/* The table ends at 8 MiB: 32 GiB for clusters of 512 bytes and 64 bits. */
static void
test_largest(void **state)
{
	uint64_t bytes, GiB = 1024 * MiB;
	unsigned i;

	(void)state;
	img_make(9, 6, "64K");
	assert_int_equal(truncate(img.path, 40 * (off_t)GiB), 0);
	img_load(65536);
	img.f.device = true;
	img.f.discard_granularity = 0;
	assert_int_equal(qcow2_refcounts_set(img.r, 33 * GiB / 512, 1, 1),
	    -ENOSPC);
	assert_int_equal(qcow2_refcounts_set(img.r, 25 * GiB / 512, 1, 1), 0);
	bytes = bytes_of(img.h.reftable_clusters);
	assert_true(bytes > 6 * MiB && bytes < 8 * MiB);
	assert_int_equal(set_or_write(30 * GiB / 512, 1, 1), 0);
	assert_int_equal(bytes_of(img.h.reftable_clusters), 8 * MiB);
	for (i = 0; i < 2; i++)
		assert_int_equal(qcow2_refcounts_set(img.r, 33 * GiB / 512, 1,
		    1), -ENOSPC);
	write_back();
	img_reload(65536);
	img_close();
	unlink(img.path);
}

/* A block that is missing in the middle is made where it belongs. */
static void
test_missing(void **state)
{
	uint64_t middle = 3 * 64;	/* of 64 clusters each */

	(void)state;
	img_make(9, 6, "64K");
	img_load(65536);
	while (img.nr_runs == 0 || img.runs[img.nr_runs - 1].offset < 600)
		assert_int_equal(reserve(63), 0);
	drop_all();
	write_back();
	/* Forget the block: its range is free, and full of old bytes. */
	assert_int_equal(rig_shell(NULL, 0, "(head -c 8 /dev/zero | dd "
	    "of='%s' conv=notrunc bs=1 seek=%llu) 2>/dev/null", img.path,
	    (unsigned long long)img.h.reftable_offset + 3 * 8), 0);
	img_close();
	img_load(65536);
	assert_false(img.metadata[middle]);
	cluster_use(middle, false);
	kernel.punch_error = EIO;
	while (!img.metadata[middle])
		assert_int_equal(reserve(40), 0);
	kernel.punch_error = 0;
	assert_int_equal(img.runs[img.nr_runs - 1].offset, middle + 1);
	check_model();
	write_back();
	img_reload(65536);
	finish();
}

static void
poke(uint64_t offset, uint64_t value)
{
	static uint8_t buf[SECTOR] __attribute__((aligned(4096)));
	uint64_t be = htobe64(value), at = offset & ~511ull;

	assert_int_equal(syscall(SYS_pread64, img.f.fd, buf, SECTOR, at),
	    SECTOR);
	memcpy(buf + (offset & 511), &be, 8);
	assert_int_equal(syscall(SYS_pwrite64, img.f.fd, buf, SECTOR, at),
	    SECTOR);
}

static void
test_bad_tables(void **state)
{
	/* The table of a fresh image is cluster 1, its block cluster 2. */
	static const struct { uint64_t offset, value; const char *why; }
	cases[] = {
		{ 0x10000, 0, "no refcount block" },
		{ 0x10000, 0x20200, "not the start" },
		{ 0x10000, 0x20001, "not the start" },
		{ 0x10000, 0x7fff0000, "beyond the end" },
		{ 0x10000, 0xffffffffffff0000, "beyond the end" },
		{ 0x10000, 0x10000, "0x10000 is used twice" },
		{ 0x10008, 0x10000, "0x10000 is used twice" },
		{ 0x10008, 0x20000, "0x20000 is used twice" },
		{ 0x1fff8, 0x20000, "0x20000 is used twice" },
		{ 0x10010, 0x80010000, "where none may lie" },
		{ 0x20000, 0x0000000100010001, "refcount of its header is 0" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		img_make(16, 4, "1M");
		if (strstr(cases[i].why, "none") != NULL)
			assert_int_equal(truncate(img.path, 3ll << 30), 0);
		img_open_at(65536);
		poke(cases[i].offset, cases[i].value);
		assert_int_equal(img_try_load(), -EUCLEAN);
		if (strstr(img.why, cases[i].why) == NULL ||
		    strstr(img.why, img.path) == NULL ||
		    strstr(img.why, "qemu-img check -r all") == NULL)
			fail_msg("%s: %s", cases[i].why, img.why);
		img_close();
		unlink(img.path);
	}
}

/* The header parser lets none of these through; the table does not trust it. */
static void
test_bad_headers(void **state)
{
	static const struct { uint64_t offset; uint32_t clusters; } cases[] = {
		{ 0, 1 }, { 0x10000, 0 }, { 0x10200, 1 }, { 0x10000, 129 },
		{ 0x7f0000, 1 }, { 0x10000, UINT32_MAX },
	};
	size_t i;

	(void)state;
	img_make(16, 4, "1M");
	img_load(65536);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		img.h.reftable_offset = cases[i].offset;
		img.h.reftable_clusters = cases[i].clusters;
		assert_int_equal(img_try_load(), -EUCLEAN);
		assert_non_null(strstr(img.why, "has a refcount table of"));
	}
	img_close();
	unlink(img.path);
}

/* A block of zeroes gives nothing away that is in use as metadata. */
static void
test_bad_blocks(void **state)
{
	static const struct { uint64_t value; } cases[] = {
		{ 0x0001000000010001 },	/* the table is free */
		{ 0x0001000100000001 },	/* the block is free */
		{ 0x0001000100010000 },	/* the L1 table is free */
	};
	unsigned i, j;

	(void)state;
	for (i = 0; i < 3; i++) {
		img_make(16, 4, "1M");
		img_open_at(65536);
		poke(0x20000, cases[i].value);
		assert_int_equal(img_try_load(), 0);
		for (j = 0; j < 3; j++)
			assert_int_equal(reserve(4), -EUCLEAN);
		check_model();
		img_close();
		unlink(img.path);
	}
	/* Everything is said to be in use, up to 2 GiB beyond the file. */
	img_make(16, 4, "1M");
	img_load(65536);
	assert_int_equal(qcow2_refcounts_set(img.r, 4, 32764, 9), 0);
	write_back();
	img_reload(65536);
	for (j = 0; j < 3; j++)
		assert_int_equal(reserve(4), -EUCLEAN);
	assert_true(img.f.size < MiB);
	img_close();
	unlink(img.path);

	/* The L1 table lies where a block would have to be made. */
	img_make(16, 4, "1M");
	assert_int_equal(truncate(img.path, 3ll << 30), 0);
	img_load(65536);
	img.h.l1_offset = bytes_of(32768);
	assert_int_equal(qcow2_refcounts_set(img.r, 32800, 1, 1), -EUCLEAN);
	check_model();
	img_close();
	unlink(img.path);
}

/*
 * One call fails, whichever; the operation is tried again, and in the end
 * everything is as if nothing had happened.
 */

static uint8_t *template;
static size_t template_bytes;
static struct range template_runs[MAX_RUNS];
static unsigned template_nr_runs;

/* Just before the table has to grow: 64 blocks of 64 clusters. */
static void
template_make(void)
{
	FILE *f;

	img_make(9, 6, "64K");
	img_load(65536);
	img.untouched = true;
	while (img.value[64 * 64 - 30] == 0)
		assert_int_equal(reserve(29), 0);
	img.untouched = false;
	write_back();
	assert_int_equal(qcow2_refcounts_trim(img.r), 0);
	template_bytes = img.f.size;
	template = malloc(template_bytes);
	f = fopen(img.path, "re");
	assert_non_null(template);
	assert_non_null(f);
	assert_int_equal(fread(template, 1, template_bytes, f), template_bytes);
	fclose(f);
	memcpy(template_runs, img.runs, sizeof(template_runs));
	template_nr_runs = img.nr_runs;
}

/* Only what is not zero, which is not much. */
static void
template_copy(void)
{
	static const uint8_t zeroes[SECTOR];
	size_t i;
	int fd;

	if (img.r != NULL)
		img_close();
	fd = open(img.path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	assert_true(fd != -1);
	assert_int_equal(ftruncate(fd, (off_t)template_bytes), 0);
	for (i = 0; i < template_bytes; i += SECTOR)
		if (memcmp(template + i, zeroes, SECTOR) != 0)
			assert_int_equal(pwrite(fd, template + i, SECTOR,
			    (off_t)i), SECTOR);
	close(fd);
	img_load(0);		/* a small cache makes more calls */
	memcpy(img.runs, template_runs, sizeof(template_runs));
	img.nr_runs = template_nr_runs;
}

static int
step_drop(void)
{
	return drop_one();
}

static int
step_reserve(void)
{
	return reserve_or_write(20);
}

static int
step_write(void)
{
	return qcow2_refcounts_write(img.r, NULL);
}

static int
set_value(uint64_t value)
{
	int rc = qcow2_refcounts_set(img.r, 10000, 40, value);

	if (rc != -EAGAIN)
		return rc;
	rc = step_write();
	return rc == 0 ? qcow2_refcounts_set(img.r, 10000, 40, value) : rc;
}

static int
step_set(void)
{
	return set_value(1);
}

static int
step_unset(void)
{
	return set_value(0);
}

static int
step_trim(void)
{
	return qcow2_refcounts_trim(img.r);
}

/* Both say the same about the table, once what is dirty is written. */
static void
check_header(void)
{
	static uint8_t buf[SECTOR] __attribute__((aligned(4096)));
	uint64_t be;

	assert_int_equal(syscall(SYS_pread64, img.f.fd, buf, SECTOR, 0),
	    SECTOR);
	memcpy(&be, buf + QCOW2_AT_REFTABLE_OFFSET, 8);
	assert_int_equal(be64toh(be), img.h.reftable_offset);
}

static void
run_steps(unsigned fail_at)
{
	static int (*const steps[])(void) = {
		step_drop, step_drop, step_reserve, step_write, step_reserve,
		step_reserve, step_reserve, step_reserve, step_reserve,
		step_write, step_drop, step_drop, step_set, step_write,
		step_unset, step_trim, step_write,
	};
	size_t i;
	int rc;

	for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		rc = steps[i]();
		if (rc == 0)
			continue;
		if (kernel.failed == 0 || rc != -kernel.error)
			fail_msg("call %u, step %zu: %d", fail_at, i, rc);
		check_model();
		img.f.sync_error = 0;	/* attached again */
		if (kernel.lies) {
			write_back();
			check_header();
		}
		rc = steps[i]();
		if (rc != 0)
			fail_msg("call %u, step %zu again: %d", fail_at, i,
			    rc);
	}
}

static void
fail_each(int error, bool lies, unsigned stride)
{
	unsigned n, failed;

	for (n = 1, failed = 1; failed != 0; n += stride) {
		template_copy();
		kernel.fail_at = n;
		kernel.error = error;
		kernel.lies = lies;
		run_steps(n);
		assert_true(img.nr_tables >= 1);
		failed = kernel.failed;
		kernel.fail_at = 0;
		drop_all();
		write_back();
		check_model();
		img_reload(65536);
		if (qemu_check(NULL, 0) != 0)
			fail_msg("call %u: not clean", n);
	}
	if (n < 15)
		fail_msg("only %u calls", n);
}

/* What a table that came to nothing left behind is not taken for zeroes. */
static void
test_remains(void **state)
{
	unsigned n;
	int rc = -EIO;

	(void)state;
	for (n = 1; rc != 0; n++) {
		img_make(9, 6, "64K");
		img_load(65536);
		kernel.fail_at = n;
		kernel.error = EIO;
		rc = qcow2_refcounts_set(img.r, 5000, 1, 1);
		assert_true(rc == 0 || kernel.failed == 1);
		img.f.sync_error = 0;
		while (img.nr_runs == 0 ||
		    img.runs[img.nr_runs - 1].offset < 5200) {
			img.untouched = img.nr_runs < 75;
			assert_int_equal(reserve(img.untouched ? 60 : 2), 0);
		}
		img_close();
		unlink(img.path);
	}
	assert_true(n > 6);
}

static void
test_failures(void **state)
{
	unsigned stride = getenv("SOAK") != NULL ? 1 : 3;

	(void)state;
	template_make();
	fail_each(EIO, false, 1);
	fail_each(ENOSPC, false, stride);
	fail_each(EIO, true, 1);
	img_close();
	unlink(img.path);
	free(template);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_widths),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_largest),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_drop),
		cmocka_unit_test(test_zero),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_ahead),
		cmocka_unit_test(test_search),
		cmocka_unit_test(test_trim),
		cmocka_unit_test(test_device),
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_bad_tables),
		cmocka_unit_test(test_bad_headers),
		cmocka_unit_test(test_bad_blocks),
		cmocka_unit_test(test_remains),
		cmocka_unit_test(test_failures),
	};

	return cmocka_run_group_tests_name("qcow2_refcount", tests, NULL, NULL);
}
