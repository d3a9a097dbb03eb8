/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_qcow2_refcount: refcounts and allocator on images that qemu-img makes
 * and checks.
 *
 * This program defines the calls that reach the file itself.  So each can be
 * made to fail, and each write is held to the order on disk: a table entry
 * or a header is written only when nothing that it points to still waits for
 * a sync.  What the object says through its ops makes a model, which all
 * values are compared with.  Clusters that are said to read as zeroes are
 * read, and then filled, so that the next owner cannot be lucky.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "drivers/qcow2_refcount.h"
#include "tests/driver_rig.h"

#define MiB       (1024ull * 1024)
#define MODEL     (1u << 17)		/* clusters that the model knows */
#define MAX_RUNS  8192

enum { PREAD, PWRITE, SYNC, FALLOCATE, TRUNCATE, KINDS };

struct range { uint64_t offset, bytes; };

static struct {
	/* What the kernel does. */
	unsigned fail_at;	/* the call that fails; 0: none */
	int      error;
	uint64_t cap;		/* files do not grow beyond; 0: they may */
	int      punch_error;

	/* What it saw. */
	unsigned nr_calls, nr[KINDS], failed;
	struct range waiting[1024];	/* written, not synced; data is not */
	unsigned nr_waiting;
	uint64_t largest_grow;
} kernel;

static struct {
	char     path[512];
	struct file f;
	struct qcow2_header h;
	struct qcow2_refcounts *r;
	uint64_t value[MODEL];
	bool     metadata[MODEL];
	struct range runs[MAX_RUNS];	/* in clusters */
	unsigned nr_runs, nr_tables;
	bool     reserving;
	bool     zero;			/* what the last reserve said */
	char     why[WHY_MAX];
} img;

static uint64_t
bytes_of(uint64_t clusters)
{
	return clusters << img.h.cluster_bits;
}

/*
 * The kernel.
 */

static bool
call_fails(int kind, int fd)
{
	if (fd != img.f.fd)
		return false;
	kernel.nr[kind]++;
	if (++kernel.nr_calls != kernel.fail_at)
		return false;
	kernel.failed++;
	errno = kernel.error;
	return true;
}

static void
wait_for_sync(uint64_t offset, uint64_t bytes)
{
	assert_true(kernel.nr_waiting < 1024);
	kernel.waiting[kernel.nr_waiting++] = (struct range){ offset, bytes };
}

static bool
is_waiting(uint64_t offset, uint64_t bytes)
{
	const struct range *w;
	unsigned i;

	for (i = 0; i < kernel.nr_waiting; i++) {
		w = &kernel.waiting[i];
		if (offset < w->offset + w->bytes && w->offset < offset + bytes)
			return true;
	}
	return false;
}

/* Before a write of the table or the header: is it time for that? */
static void
check_order(const uint8_t *buf, size_t n, uint64_t offset)
{
	static uint8_t now[2 * MiB] __attribute__((aligned(4096)));
	uint64_t table = img.h.reftable_offset, be, was;
	size_t i;

	if (offset == 0) {
		memcpy(&be, buf + QCOW2_AT_REFTABLE_OFFSET, 8);
		if (be64toh(be) != table)
			assert_int_equal(kernel.nr_waiting, 0);
		return;
	}
	if (offset < table ||
	    offset >= table + bytes_of(img.h.reftable_clusters))
		return;
	assert_true(n <= sizeof(now));
	assert_int_equal(syscall(SYS_pread64, img.f.fd, now, n, offset), n);
	for (i = 0; i < n; i += 8) {
		memcpy(&be, buf + i, 8);
		memcpy(&was, now + i, 8);
		if (be != was && is_waiting(be64toh(be), bytes_of(1)))
			fail_msg("table entry before block %#llx",
			    (unsigned long long)be64toh(be));
	}
}

ssize_t
pread(int fd, void *buf, size_t n, off_t offset)
{
	if (call_fails(PREAD, fd))
		return -1;
	return syscall(SYS_pread64, fd, buf, n, offset);
}

ssize_t
pwrite(int fd, const void *buf, size_t n, off_t offset)
{
	if (call_fails(PWRITE, fd))
		return -1;
	if (fd == img.f.fd && img.r != NULL) {
		check_order(buf, n, (uint64_t)offset);
		wait_for_sync((uint64_t)offset, n);
	}
	return syscall(SYS_pwrite64, fd, buf, n, offset);
}

int
fdatasync(int fd)
{
	if (call_fails(SYNC, fd))
		return -1;
	if (fd == img.f.fd)
		kernel.nr_waiting = 0;
	return (int)syscall(SYS_fdatasync, fd);
}

int
fallocate(int fd, int mode, off_t offset, off_t bytes)
{
	if (call_fails(FALLOCATE, fd))
		return -1;
	if (fd == img.f.fd && mode == 0) {
		if (kernel.cap != 0 && (uint64_t)(offset + bytes) > kernel.cap) {
			errno = ENOSPC;
			return -1;
		}
		if ((uint64_t)bytes > kernel.largest_grow)
			kernel.largest_grow = (uint64_t)bytes;
	} else if (fd == img.f.fd) {
		if (kernel.punch_error != 0) {
			errno = kernel.punch_error;
			return -1;
		}
	}
	return (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

int
ftruncate(int fd, off_t size)
{
	if (call_fails(TRUNCATE, fd))
		return -1;
	return (int)syscall(SYS_ftruncate, fd, size);
}

/*
 * The image.
 */

static void
on_changed(void *arg, uint64_t first, uint64_t count, uint64_t value)
{
	assert_ptr_equal(arg, &img);
	assert_true(first + count <= MODEL);
	for (; count > 0; count--, first++) {
		if (img.reserving && value == 1)
			assert_int_equal(img.value[first], 0);
		img.value[first] = value;
	}
}

static void
on_metadata(void *arg, uint64_t first, uint64_t count, bool is)
{
	assert_ptr_equal(arg, &img);
	assert_true(first + count <= MODEL);
	if (first == img.h.reftable_offset >> img.h.cluster_bits && is)
		img.nr_tables++;
	for (; count > 0; count--) {
		assert_true(img.metadata[first] != is);
		img.metadata[first++] = is;
	}
}

static const struct qcow2_refcount_ops ops = {
	.changed = on_changed, .metadata = on_metadata,
};

static void
img_make(unsigned cluster_bits, unsigned order, const char *size)
{
	memset(&img, 0, sizeof(img));
	memset(&kernel, 0, sizeof(kernel));
	img.f.fd = -1;
	rig_make_file(img.path, 0);
	assert_int_equal(rig_shell(NULL, 0, "qemu-img create -q -f qcow2 -o "
	    "cluster_size=%u,refcount_bits=%u '%s' %s", 1u << cluster_bits,
	    1u << order, img.path, size), 0);
}

static void
img_open_at(size_t cache)
{
	static uint8_t buf[2 * MiB] __attribute__((aligned(4096)));
	uint64_t size;

	if (file_open(&img.f, img.path, false, CACHE_NONE, img.why) != 0)
		fail_msg("%s", img.why);
	assert_int_equal(file_pread(&img.f, buf, sizeof(buf), 0), 0);
	size = img.f.size < sizeof(buf) ? img.f.size : sizeof(buf);
	if (qcow2_header_parse(buf, size, img.f.size, &img.h, img.why) != 0)
		fail_msg("%s", img.why);
	if (qcow2_refcounts_open(&img.r, &img.f, &img.h, cache, &ops, &img,
	    img.why) != 0)
		fail_msg("%s", img.why);
}

static int
img_try_load(void)
{
	uint64_t i;
	int rc;

	memset(img.metadata, 0, sizeof(img.metadata));
	rc = qcow2_refcounts_load(img.r, img.why);
	for (i = 0; rc == 0 && i < MODEL; i++)
		rc = qcow2_refcounts_get(img.r, i, &img.value[i]);
	return rc;
}

static void
img_load(size_t cache)
{
	img_open_at(cache);
	if (img_try_load() != 0)
		fail_msg("%s", img.why);
	img.nr_tables = 0;
	memset(&kernel, 0, sizeof(kernel));
}

static void
img_close(void)
{
	qcow2_refcounts_close(img.r);
	img.r = NULL;
	file_close(&img.f);
	img.f.fd = -1;
}

static void
check_model(void)
{
	uint64_t i, value;

	for (i = 0; i < MODEL; i++) {
		assert_int_equal(qcow2_refcounts_get(img.r, i, &value), 0);
		if (value != img.value[i])
			fail_msg("cluster %llu: %llu, not %llu",
			    (unsigned long long)i, (unsigned long long)value,
			    (unsigned long long)img.value[i]);
	}
}

/* Another object reads the file and finds what the model says. */
static void
img_reload(size_t cache)
{
	static uint64_t value[MODEL];
	static bool metadata[MODEL];

	memcpy(value, img.value, sizeof(value));
	memcpy(metadata, img.metadata, sizeof(metadata));
	img_close();
	img_load(cache);
	assert_memory_equal(value, img.value, sizeof(value));
	assert_memory_equal(metadata, img.metadata, sizeof(metadata));
}

/* 0: clean; 2: damaged; 3: leaks only. */
static int
qemu_check(char *out, size_t size)
{
	return rig_shell(out, size, "qemu-img check '%s' 2>&1", img.path);
}

static void
write_back(void)
{
	assert_int_equal(qcow2_refcounts_write(img.r, NULL), 0);
	assert_false(qcow2_refcounts_dirty(img.r));
}

/* Read or fill the ends of a cluster, past what the hooks see. */
static void
cluster_use(uint64_t cluster, bool zero)
{
	static uint8_t buf[SECTOR] __attribute__((aligned(4096)));
	uint64_t at[2] = { bytes_of(cluster), bytes_of(cluster + 1) - SECTOR };
	int i, j;

	for (i = 0; i < (at[0] == at[1] ? 1 : 2); i++) {
		memset(buf, 0xee, sizeof(buf));
		assert_int_equal(syscall(SYS_pread64, img.f.fd, buf,
		    sizeof(buf), at[i]), sizeof(buf));
		for (j = 0; zero && j < (int)sizeof(buf); j++)
			if (buf[j] != 0)
				fail_msg("cluster %llu is not zero",
				    (unsigned long long)cluster);
		memset(buf, 0xa5, sizeof(buf));
		assert_int_equal(syscall(SYS_pwrite64, img.f.fd, buf,
		    sizeof(buf), at[i]), sizeof(buf));
	}
}

/* Reserve, and hold it to its contract. */
static int
reserve(uint64_t want)
{
	uint64_t first, count, i;
	int rc;

	img.reserving = true;
	rc = qcow2_refcounts_reserve(img.r, want, &first, &count, &img.zero);
	img.reserving = false;
	if (rc < 0)
		return rc;
	assert_true(count >= 1 && count <= want && first >= 1);
	assert_true(bytes_of(first + count) <= img.f.size);
	for (i = first; i < first + count; i++) {
		assert_int_equal(img.value[i], 1);
		assert_false(img.metadata[i]);
		cluster_use(i, img.zero);
	}
	assert_true(img.nr_runs < MAX_RUNS);
	img.runs[img.nr_runs++] = (struct range){ first, count };
	return 0;
}

/* ... writing when the cache wants that. */
static int
reserve_or_write(uint64_t want)
{
	int rc = reserve(want);

	if (rc != -EAGAIN)
		return rc;
	rc = qcow2_refcounts_write(img.r, NULL);
	return rc == 0 ? reserve(want) : rc;
}

static int
drop_one(void)
{
	const struct range *run = &img.runs[img.nr_runs - 1];
	int rc;

	rc = qcow2_refcounts_drop(img.r, run->offset, run->bytes, true);
	if (rc == -EAGAIN) {
		rc = qcow2_refcounts_write(img.r, NULL);
		if (rc == 0)
			rc = qcow2_refcounts_drop(img.r, run->offset,
			    run->bytes, true);
	}
	if (rc == 0)
		img.nr_runs--;
	return rc;
}

static void
drop_all(void)
{
	while (img.nr_runs > 0)
		assert_int_equal(drop_one(), 0);
}

/* All that was reserved is leaked, as far as qemu-img can see, then gone. */
static void
finish(void)
{
	write_back();
	assert_int_equal(qemu_check(NULL, 0), img.nr_runs > 0 ? 3 : 0);
	drop_all();
	write_back();
	assert_int_equal(qemu_check(NULL, 0), 0);
	assert_int_equal(qcow2_refcounts_trim(img.r), 0);
	assert_int_equal(qemu_check(NULL, 0), 0);
	check_model();
	img_close();
	unlink(img.path);
}

/*
 * Tests.
 */

static void
test_widths(void **state)
{
	static const unsigned sizes[] = { 9, 12, 16, 21 };
	unsigned order, s, i;
	uint64_t max, at;
	char out[4096], line[96];

	(void)state;
	for (order = 0; order <= 6; order++)
	for (s = 0; s < 4; s++) {
		img_make(sizes[s], order, "8M");
		img_load(16384);
		for (i = 1; i < 30; i++)
			assert_int_equal(reserve_or_write(i % 7 + 1), 0);
		write_back();
		img_reload(16384);

		/* A value at a place: QEMU sees the same. */
		max = order == 6 ? UINT64_MAX : (1ull << (1u << order)) - 1;
		at = img.runs[20].offset;
		if (order < 6)
			assert_int_equal(qcow2_refcounts_set(img.r, at, 1,
			    max + 1), -ERANGE);
		max = order == 6 ? INT64_MAX : max;
		assert_int_equal(qcow2_refcounts_set(img.r, at, 1, max), 0);
		write_back();
		assert_int_equal(qemu_check(out, sizeof(out)), 3);
		snprintf(line, sizeof(line), "cluster %llu refcount=%llu "
		    "reference=0", (unsigned long long)at,
		    (unsigned long long)max);
		if (strstr(out, line) == NULL)
			fail_msg("%s: not in %s", line, out);
		img_reload(65536);
		assert_int_equal(qcow2_refcounts_set(img.r, at, 1, 1), 0);
		finish();
	}
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_widths),
		cmocka_unit_test(test_growth),
	};

	return cmocka_run_group_tests_name("qcow2_refcount", tests, NULL, NULL);
}
