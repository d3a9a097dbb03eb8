/* SPDX-License-Identifier: GPL-2.0-or-later */
/* refcount_rig: see refcount_rig.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/refcount_rig.h"

struct rig_kernel kernel;
struct rig_image img;

/*
 * The kernel.
 */

static bool
call_fails(int kind, int fd)
{
	if (fd != img.f.fd)
		return false;
	kernel.nr[kind]++;
	if (kernel.lies && kind != PWRITE)
		return false;
	if (++kernel.nr_calls != kernel.fail_at)
		return false;
	kernel.failed++;
	errno = kernel.error;
	return true;
}

static void
wait_for_sync(uint64_t offset, uint64_t bytes)
{
	assert_true(kernel.nr_waiting < MAX_WAITING);
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

/* What is dropped is given back before anybody can reserve it. */
static void
check_punch(uint64_t offset, uint64_t bytes)
{
	uint64_t first = offset >> img.h.cluster_bits, value;
	uint64_t end = (offset + bytes) >> img.h.cluster_bits;

	for (; img.dropping && first < end; first++) {
		assert_int_equal(img.value[first], 1);
		assert_int_equal(qcow2_refcounts_get(img.r, first, &value), 0);
		assert_int_equal(value, 1);
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
	int error;

	if (call_fails(PWRITE, fd)) {
		error = errno;
		if (kernel.lies)
			assert_int_equal(syscall(SYS_pwrite64, fd, buf, n,
			    offset), n);
		errno = error;
		return -1;
	}
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
	if (fd != img.f.fd)
		return (int)syscall(SYS_fdatasync, fd);
	kernel.nr_waiting = 0;		/* nobody pulls the plug here */
	return 0;
}

/* Growth comes as fallocate(), or, where that is no use, as ftruncate(). */
static bool
is_beyond_cap(off_t size)
{
	errno = kernel.cap_error;
	return kernel.cap != 0 && (uint64_t)size > kernel.cap;
}

int
fallocate(int fd, int mode, off_t offset, off_t bytes)
{
	if (call_fails(FALLOCATE, fd))
		return -1;
	if (fd == img.f.fd && mode == 0) {
		if (is_beyond_cap(offset + bytes))
			return -1;
		kernel.last_grow = (uint64_t)bytes;
	} else if (fd == img.f.fd) {
		kernel.nr_punched++;
		if (kernel.punch_error != 0) {
			errno = kernel.punch_error;
			return -1;
		}
		wait_for_sync((uint64_t)offset, (uint64_t)bytes);
		check_punch((uint64_t)offset, (uint64_t)bytes);
	}
	return (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

int
ftruncate(int fd, off_t size)
{
	if (call_fails(TRUNCATE, fd))
		return -1;
	if (fd == img.f.fd && (uint64_t)size > img.f.size) {
		if (is_beyond_cap(size))
			return -1;
		kernel.last_grow = (uint64_t)size - img.f.size;
	}
	return (int)syscall(SYS_ftruncate, fd, size);
}

/*
 * The image.
 */

static void
on_changed(void *arg, uint64_t first, uint64_t count, uint64_t value)
{
	assert_ptr_equal(arg, &img);
	for (; count > 0 && first < MODEL; count--, first++) {
		if (img.reserving && value == 1)
			assert_int_equal(img.value[first], 0);
		img.value[first] = value;
	}
}

static void
on_metadata(void *arg, uint64_t first, uint64_t count, bool is)
{
	assert_ptr_equal(arg, &img);
	if (first == img.h.reftable_offset >> img.h.cluster_bits && is) {
		img.nr_tables++;
		if (img.table_clusters != 0 &&
		    bytes_of(img.h.reftable_clusters) <
		    QCOW2_MAX_REFTABLE_BYTES)
			assert_true(img.h.reftable_clusters * 2 >=
			    img.table_clusters * 3);
		img.table_clusters = img.h.reftable_clusters;
	}
	for (; count > 0 && first < MODEL; count--) {
		assert_true(img.metadata[first] != is);
		img.metadata[first++] = is;
	}
}

static const struct qcow2_refcount_ops ops = {
	.changed = on_changed, .metadata = on_metadata,
};

void
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

void
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

int
img_try_load(void)
{
	uint64_t i;
	int rc;

	memset(img.metadata, 0, sizeof(img.metadata));
	img.table_clusters = 0;
	rc = qcow2_refcounts_load(img.r, img.why);
	for (i = 0; rc == 0 && i < MODEL; i++)
		rc = qcow2_refcounts_get(img.r, i, &img.value[i]);
	return rc;
}

void
img_load(size_t cache)
{
	img_open_at(cache);
	if (img_try_load() != 0)
		fail_msg("%s", img.why);
	img.nr_tables = 0;
	memset(&kernel, 0, sizeof(kernel));
}

void
img_close(void)
{
	qcow2_refcounts_close(img.r);
	img.r = NULL;
	file_close(&img.f);
	img.f.fd = -1;
}

void
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

void
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

int
qemu_check(char *out, size_t size)
{
	return rig_shell(out, size, "qemu-img check '%s' 2>&1", img.path);
}

void
write_back(void)
{
	assert_int_equal(qcow2_refcounts_write(img.r, NULL), 0);
	assert_false(qcow2_refcounts_dirty(img.r));
}

void
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

int
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
		if (!img.untouched && (i == first || i == first + count - 1))
			cluster_use(i, img.zero);
	}
	assert_true(img.nr_runs < MAX_RUNS);
	img.runs[img.nr_runs++] = (struct range){ first, count };
	return 0;
}

int
set_or_write(uint64_t first, uint64_t count, uint64_t value)
{
	int rc;

	while ((rc = qcow2_refcounts_set(img.r, first, count, value)) ==
	    -EAGAIN)
		write_back();
	return rc;
}

int
reserve_or_write(uint64_t want)
{
	int rc = reserve(want);

	if (rc != -EAGAIN)
		return rc;
	rc = qcow2_refcounts_write(img.r, NULL);
	return rc == 0 ? reserve(want) : rc;
}

static int
drop(const struct range *run)
{
	int rc;

	img.dropping = true;
	rc = qcow2_refcounts_drop(img.r, run->offset, run->bytes, true);
	img.dropping = false;
	return rc;
}

int
drop_one(void)
{
	const struct range *run = &img.runs[img.nr_runs - 1];
	int rc;

	rc = drop(run);
	if (rc == -EAGAIN) {
		rc = qcow2_refcounts_write(img.r, NULL);
		if (rc == 0)
			rc = drop(run);
	}
	if (rc == 0)
		img.nr_runs--;
	return rc;
}

void
drop_all(void)
{
	while (img.nr_runs > 0)
		assert_int_equal(drop_one(), 0);
}

void
finish(void)
{
	write_back();
	assert_int_equal(qemu_check(NULL, 0), img.nr_runs > 0 ? 3 : 0);
	drop_all();
	write_back();
	assert_int_equal(qcow2_refcounts_trim(img.r), 0);
	assert_int_equal(qemu_check(NULL, 0), 0);
	check_model();
	img_close();
	unlink(img.path);
}
