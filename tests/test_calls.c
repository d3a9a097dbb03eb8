/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_calls: the entry points of driver.c.  They find a driver, and they
 * assert what its callers and what the driver itself must not do; null, of
 * all drivers, gets its sizes tried.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/driver_rig.h"

#define MiB  (1024u * 1024u)
#define SIZE (32 * MiB)		/* of what the calls go to */

/*
 * Calls that are bugs.
 */

static void
bad_no_done(struct rig *r)
{
	struct rig_io *rio = rig_io_new(r, IO_READ, 0, 512, 1);

	rio->io.done = NULL;
	rig_submit(rio);
}

static void
bad_past_end(struct rig *r)
{
	rig_submit(rig_io_new(r, IO_READ, SIZE - 512, 1024, 1));
}

static void
bad_too_long(struct rig *r)
{
	rig_submit(rig_io_new(r, IO_READ, 0, SIZE + 512, 1));
}

static void
bad_start(struct rig *r)
{
	rig_submit(rig_io_new(r, IO_READ, UINT64_MAX - 511, 512, 1));
}

static void
bad_offset(struct rig *r)
{
	rig_submit(rig_io_new(r, IO_READ, 256, 512, 1));
}

static void
bad_empty(struct rig *r)
{
	rig_submit(rig_io_new(r, IO_READ, 0, 0, 0));
}

static void
bad_length(struct rig *r)
{
	struct rig_io *rio = rig_io_new(r, IO_READ, 0, 512, 1);

	rio->io.length = rio->io.iov[0].iov_len = 256;
	rig_submit(rio);
}

static void
bad_sum(struct rig *r)
{
	struct rig_io *rio = rig_io_new(r, IO_READ, 0, 4096, 2);

	rio->io.length = 2048;
	rig_submit(rio);
}

static void
bad_iov_empty(struct rig *r)
{
	struct rig_io *rio = rig_io_new(r, IO_READ, 0, 4096, 2);

	rio->io.iov[0].iov_len = 4096;
	rio->io.iov[1].iov_len = 0;
	rig_submit(rio);
}

static void
bad_memory(struct rig *r)
{
	struct rig_io *rio = rig_io_new(r, IO_READ, 0, 1024, 1);

	rio->io.length = rio->io.iov[0].iov_len = 512;
	rio->io.iov[0].iov_base = (char *)rio->buf + 4;
	rig_submit(rio);
}

static void
bad_op(struct rig *r)
{
	struct rig_io *rio = rig_io_new(r, IO_READ, 0, 512, 1);

	rio->io.op = (enum io_op)7;
	rig_submit(rio);
}

static void
bad_flush(struct rig *r)
{
	struct rig_io *rio = rig_io_new(r, IO_FLUSH, 0, 512, 1);

	rig_submit(rio);
}

static void
bad_inactive(struct rig *r)
{
	image_deactivate(r->img, r->why);
	rig_submit(rig_io_new(r, IO_READ, 0, 512, 1));
}

static void
bad_activate(struct rig *r)
{
	image_activate(r->img, r->why);
}

static void
bad_deactivate(struct rig *r)
{
	image_deactivate(r->img, r->why);
	image_deactivate(r->img, r->why);
}

static void
bad_close_active(struct rig *r)
{
	rig_unwatch(r);
	image_close(r->img);
}

static void
bad_close_channel(struct rig *r)
{
	image_deactivate(r->img, r->why);
	image_close(r->img);
}

static void
bad_depth(struct rig *r)
{
	struct channel *ch;

	channel_open(r->img, 0, &ch, r->why);
}

static void
bad_write(struct rig *r)
{
	rig_close(r);
	rig_open(r, "null", "32M", true, 1);
	rig_submit(rig_io_new(r, IO_WRITE, 0, 512, 1));
}

static void
discard(struct rig *r, bool readonly, uint32_t alignment, uint64_t offset,
    uint64_t length)
{
	rig_close(r);
	r->discard = true;
	rig_open(r, "null", "32M", readonly, 1);
	r->img->discard_alignment = alignment;
	rig_submit(rig_io_new(r, IO_DISCARD, offset, length, 0));
}

static void
bad_discard(struct rig *r)
{
	rig_submit(rig_io_new(r, IO_DISCARD, 0, 4096, 0));
}

static void
bad_discard_readonly(struct rig *r)
{
	discard(r, true, 0, 0, 4096);
}

static void
bad_discard_offset(struct rig *r)
{
	discard(r, false, 0, 512, 4096);
}

static void
bad_discard_length(struct rig *r)
{
	discard(r, false, 0, 4096, 4608);
}

static void
bad_discard_range(struct rig *r)
{
	discard(r, false, 0, SIZE, 4096);
}

static void
bad_discard_first(struct rig *r)
{
	discard(r, false, 4096, 0, 4096);
}

static const struct {
	const char *name;
	void      (*call)(struct rig *r);
} bad_calls[] = {
	{ "no done",                    bad_no_done },
	{ "runs past the end",          bad_past_end },
	{ "longer than the disk",       bad_too_long },
	{ "starts past the end",        bad_start },
	{ "offset inside a sector",     bad_offset },
	{ "no length",                  bad_empty },
	{ "length inside a sector",     bad_length },
	{ "iovs are not the length",    bad_sum },
	{ "an empty iov",               bad_iov_empty },
	{ "memory not aligned",         bad_memory },
	{ "no such operation",          bad_op },
	{ "a flush with a length",      bad_flush },
	{ "image not active",           bad_inactive },
	{ "activate twice",             bad_activate },
	{ "deactivate twice",           bad_deactivate },
	{ "close an active image",      bad_close_active },
	{ "close with a channel open",  bad_close_channel },
	{ "a channel without depth",    bad_depth },
	{ "write to a read-only image", bad_write },
	{ "discard was not offered",    bad_discard },
	{ "discard on a read-only one", bad_discard_readonly },
	{ "discard from half a granule", bad_discard_offset },
	{ "discard of half a granule",  bad_discard_length },
	{ "discard past the end",       bad_discard_range },
	{ "discard before the first granule", bad_discard_first },
};

/* The control: what surrounds the bad call does not abort by itself. */
static void
good_call(struct rig *r)
{
	discard(r, false, 512, 512, 8192);
	rig_wait(r);
	rig_do(rig_io_new(r, IO_READ, 0, 512, 1));
}

static void
make_call(void *arg)
{
	void (**call)(struct rig *) = arg;
	struct rig r = { 0 };

	rig_open(&r, "null", "32M", false, 4);
	(*call)(&r);
}

static bool
aborts(void (*call)(struct rig *r))
{
	return rig_aborts(make_call, &call);
}

static void
test_bad_calls(void **state)
{
	size_t i;

	(void)state;
	assert_false(aborts(good_call));
	for (i = 0; i < sizeof(bad_calls) / sizeof(bad_calls[0]); i++)
		if (!aborts(bad_calls[i].call))
			fail_msg("not asserted: %s", bad_calls[i].name);
}

/*
 * Drivers that do not keep the contract.
 */

static struct fake {
	int          rc;
	const char  *why;
	uint64_t     size;
	uint32_t     block, physical;
	uint32_t     granule, first;
	bool         channel;	/* open one, else activate */
	bool         foreign;	/* it says that it is of another image */
	bool         leave;	/* it is there although that failed */
} fake;

static int
fake_activate(struct image *img, char why[WHY_MAX])
{
	img->size = fake.size;
	img->block_size = fake.block;
	img->physical_block_size = fake.physical;
	img->discard_granularity = fake.granule;
	img->discard_alignment = fake.first;
	why_set(why, "%s", fake.why);
	return fake.rc;
}

static int
fake_channel_open(struct image *img, unsigned depth, struct channel **ch,
    char why[WHY_MAX])
{
	static struct channel channel;

	(void)depth;
	channel.img = fake.foreign ? NULL : img;
	channel.event_fd = -1;
	if (fake.rc == 0 || fake.leave)
		*ch = &channel;
	why_set(why, "%s", fake.why);
	return fake.rc;
}

static const struct driver driver_fake = {
	.name         = "fake",
	.activate     = fake_activate,
	.channel_open = fake_channel_open,
};

static void
fake_call(void *arg)
{
	char why[WHY_MAX];
	static struct image img = { .drv = &driver_fake };
	struct channel *ch;

	(void)arg;
	if (fake.channel)
		channel_open(&img, 1, &ch, why);
	else
		image_activate(&img, why);
}

static void
test_bad_drivers(void **state)
{
#define FAKE(...) { .size = 4096, .block = 512, .physical = 512, __VA_ARGS__ }
#define GEOMETRY(s, b, p) { .why = "", .size = s, .block = b, .physical = p }
	static const struct {
		const char *name;
		struct fake fake;
		bool        aborts;
	} cases[] = {
		{ "sound", FAKE(.why = ""), false },
		{ "fails", FAKE(.why = "x", .rc = -EIO), false },
		{ "fails, no reason", FAKE(.why = "", .rc = -EIO), true },
		{ "positive", FAKE(.why = "x", .rc = 1), true },
		{ "sound channel", FAKE(.why = "", .channel = true), false },
		{ "fails to open", FAKE(.why = "x", .channel = true,
		    .rc = -EIO), false },
		{ "fails and opens", FAKE(.why = "x", .channel = true,
		    .rc = -EIO, .leave = true), true },
		{ "not its channel", FAKE(.why = "", .channel = true,
		    .foreign = true), true },
		{ "empty", GEOMETRY(0, 512, 512), true },
		{ "too large", GEOMETRY(1ull << 63, 512, 512), true },
		{ "odd size", GEOMETRY(1000, 512, 512), true },
		{ "half a block", GEOMETRY(4608, 4096, 4096), true },
		{ "no block size", GEOMETRY(4096, 0, 512), true },
		{ "small blocks", GEOMETRY(4096, 256, 512), true },
		{ "odd blocks", GEOMETRY(4608, 1536, 2048), true },
		{ "odd physical blocks", GEOMETRY(4096, 512, 1536), true },
		{ "small physical blocks", GEOMETRY(4096, 1024, 512), true },
		{ "granules", FAKE(.why = "", .granule = 8192, .first = 512),
		    false },
		{ "odd granules", FAKE(.why = "", .granule = 1536), true },
		{ "small granules", FAKE(.why = "", .granule = 256), true },
		{ "granules inside blocks", FAKE(.why = "", .granule = 512,
		    .first = 256), true },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fake = cases[i].fake;
		if (rig_aborts(fake_call, NULL) != cases[i].aborts)
			fail_msg("%s", cases[i].name);
	}
}

static void
test_find(void **state)
{
	struct rig r = { 0 };

	(void)state;
	assert_ptr_equal(driver_find("raw"), &driver_raw);
	assert_ptr_equal(driver_find("null"), &driver_null);
	assert_ptr_equal(driver_find("fault"), &driver_fault);
	assert_null(driver_find(""));
	assert_null(driver_find("vhd"));
	assert_null(driver_find("RAW"));

	assert_int_equal(rig_image(&r, "vhd", "/x", false, CACHE_NONE),
	    -EINVAL);
	assert_non_null(strstr(r.why, "'vhd'"));
	assert_non_null(strstr(r.why, "raw, qcow2, null, fault"));

	/* One line, whatever the path holds. */
	assert_int_equal(rig_image(&r, "raw", "/no\nsuch\tfile\x1b", false,
	    CACHE_NONE), -ENOENT);
	assert_non_null(strstr(r.why, "/no?such?file?:"));
}

static void
test_null_sizes(void **state)
{
	static const struct { const char *path; uint64_t size; } sizes[] = {
		{ "512", 512 },
		{ "1048576", MiB },
		{ "64K", 65536 },
		{ "3M", 3 * MiB },
		{ "2G", 2048ull * MiB },
		{ "9007199254740991K", 9007199254740991ull << 10 },
		{ "8388607T", 8388607ull << 40 },
		{ "", 0 },
		{ "0", 0 },
		{ "511", 0 },
		{ "513", 0 },
		{ "K", 0 },
		{ "-512", 0 },
		{ "+512", 0 },
		{ " 512", 0 },
		{ "512 ", 0 },
		{ "1MB", 0 },
		{ "1m", 0 },
		{ "0x1000", 0 },
		{ "8388608T", 0 },
		{ "9223372036854775808", 0 },
		{ "18446744073709552128", 0 },
		{ "99999999999999999999999", 0 },
	};
	struct rig r = { 0 };
	size_t i;
	int rc;

	(void)state;
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		rc = rig_image(&r, "null", sizes[i].path, false, CACHE_NONE);
		if ((rc == 0) != (sizes[i].size != 0))
			fail_msg("null:%s: %d", sizes[i].path, rc);
		if (rc == 0)
			assert_int_equal(r.img->size, sizes[i].size);
		else
			assert_non_null(strstr(r.why, "for instance"));
		image_close(r.img);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_null_sizes),
		cmocka_unit_test(test_bad_calls),
		cmocka_unit_test(test_bad_drivers),
	};

	return cmocka_run_group_tests_name("calls", tests, NULL, NULL);
}
